"""A load in the twin: through the gate that serves, slower the fuller it is, as wide as chance makes it."""

from pathlib import Path

import pytest

from twofold.app.gates import ServedGate, served_gate
from twofold.rehearse.as_measured import Starting, tail_of_a_start
from twofold.rehearse.loads import OpenLoad, load_figures

LAPTOP = Path(__file__).parents[2] / "examples" / "laptop" / "twofold.yaml"
LOAD = OpenLoad("chat", 2.0, 12.0, 128.0, 48.0)


@pytest.fixture(scope="module")
def gate() -> ServedGate:
    return served_gate(LAPTOP, 2, None)


def test_a_lone_request_takes_what_the_twin_s_engine_takes_and_a_crowd_longer(gate: ServedGate) -> None:
    alone = load_figures(gate.task, 2, OpenLoad("chat", 0.2, 60.0, 128.0, 48.0), 3)
    crowd = load_figures(gate.task, 2, OpenLoad("chat", 30.0, 12.0, 128.0, 48.0), 3)
    for name in alone:
        assert alone[name].low <= alone[name].value <= alone[name].high
    # Nobody is met, so that chance has nothing to move:
    assert alone["ttft_p50"].low == pytest.approx(alone["ttft_p50"].high)
    assert crowd["ttft_p95"].value > alone["ttft_p95"].value
    assert crowd["tpot_p50"].value > alone["tpot_p50"].value
    assert crowd["ttft_p95"].low < crowd["ttft_p95"].high


def test_fewer_replicas_are_slower_and_the_same_load_is_the_same_again(gate: ServedGate) -> None:
    load = OpenLoad("chat", 40.0, 12.0, 128.0, 48.0)
    one, two = (load_figures(gate.task, count, load, 3) for count in (1, 2))
    assert one["tpot_p50"].value > two["tpot_p50"].value
    assert two == load_figures(gate.task, 2, load, 3)


def test_longer_answers_end_later(gate: ServedGate) -> None:
    short = load_figures(gate.task, 2, LOAD, 2)
    long = load_figures(gate.task, 2, OpenLoad("chat", 2.0, 12.0, 128.0, 96.0), 2)
    assert long["e2e_p50"].value > 1.5 * short["e2e_p50"].value


def test_the_tail_of_a_start_is_of_those_who_came_meanwhile_and_grows_with_what_it_takes_of_the_others(
    gate: ServedGate,
) -> None:
    load = OpenLoad("chat", 20.0, 30.0, 128.0, 48.0)
    alike, slowed = (
        tail_of_a_start(gate.task, 1, load, Starting(8.0, 15.0, ratio), 3) for ratio in (1.0, 3.0)
    )
    assert alike is not None and slowed is not None
    assert 0.0 < alike.low <= alike.value <= alike.high and slowed.value > alike.value
    # A replica more that was there from the first: less waits than while the second one is still to come.
    both = load_figures(gate.task, 2, load, 3)["ttft_p95"]
    assert alike.value > both.value
    quiet = OpenLoad("chat", 0.001, 1.0, 128.0, 48.0)
    assert tail_of_a_start(gate.task, 1, quiet, Starting(0.2, 0.5), 2) is None


def test_what_nobody_finished_has_no_figure(gate: ServedGate) -> None:
    assert load_figures(gate.task, 2, OpenLoad("chat", 0.001, 1.0, 128.0, 48.0), 2) == {}
