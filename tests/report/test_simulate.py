"""The screen of a rehearsal claims no more certainty than its runs have."""

from dataclasses import replace

import pytest

from twofold.app.planning import plan
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.results.simulated import Comparison, Difference, Simulation, SloKept
from twofold.report.simulate import _class_rows, _comparison_lines, _plain, simulation_lines

SPEC = """
name: s
model: llama-3.1-8b
serving:
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 4 /s, input: {mean: 300 tok, p95: 900 tok}, output: {mean: 60 tok, p95: 150 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""
BRIEF = "name: brief\nhorizon: 30 s\nwarm_up: 5 s\nbeliefs: {error: 0 %}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    path = tmp_path_factory.mktemp("brief") / "brief.yaml"
    path.write_text(BRIEF, "utf-8")
    return simulate(SPEC, SimulateOptions(scenario=str(path))).data


def test_the_verdict_and_its_reason_come_before_the_figures(made: Simulation) -> None:
    lines = simulation_lines(replace(made, broke_first="7% of chat answers had a TTFT above 2 s from 9 s on"))
    heads = [line.split("  ")[0] for line in lines if line[:1].isupper()]
    assert heads[:3] == ["GOALS", "STRAINED", "SERVING"] and "BROKE FIRST" not in heads
    missed = replace(
        made.classes[0], slos=(replace(made.classes[0].slos[0], met=False), *made.classes[0].slos[1:])
    )
    lost = replace(made, slos_met=False, classes=(missed,), broke_first="refused")
    text = simulation_lines(lost)
    assert "GOALS        missed: chat TTFT p95" in text
    assert text.index("BROKE FIRST  refused") < next(
        at for at, line in enumerate(text) if line.startswith("SERVING")
    )


def test_a_goal_missed_by_who_got_no_answer_says_so_beside_the_cross(made: Simulation) -> None:
    """`966 ms ≤ 1 s ✗` had its reason ten lines below."""
    each = replace(
        made.classes[0],
        arrived_count=200,
        finished_count=180,
        slos=(SloKept("ttft_p95", 9.0, None, 1.0, False),),
    )
    assert next(_class_rows(each, made))[-1] == "✗ 10 % without an answer"
    slow = replace(each, slos=(SloKept("ttft_p95", 1e-6, 1.0, 1.0, False),))
    assert next(_class_rows(slow, made))[-1] == "✗"


def test_replicas_and_their_spares_are_those_of_the_plan(made: Simulation) -> None:
    (fleet,), (service,) = made.fleets, plan(SPEC).serving
    assert (fleet.replica_count, fleet.spare_count) == (service.replica_count, service.spare_count)
    told = f"{service.replica_count} replicas, {service.spare_count} of them spare, on L4"
    assert service.spare_count and any(told in line for line in simulation_lines(made))


def test_busy_is_of_what_the_replicas_hold(made: Simulation) -> None:
    (fleet,) = made.fleets
    assert fleet.load_fraction is not None and 0.0 < fleet.load_fraction < fleet.utilisation_fraction * 2
    text = " ".join(simulation_lines(made))
    assert "of what its replicas hold · computing " in text and "busy 9" not in text.replace("busy 9 ", "")


def test_a_run_shorter_than_what_power_is_averaged_over_names_no_power(made: Simulation) -> None:
    """8 s that took 11 Wh were said to draw 0 W at most."""
    (fleet,) = made.fleets
    assert "W at most, changing by" in " ".join(simulation_lines(made))
    short = replace(fleet, power_w_max=0.0, power_ramp_w_per_s=0.0)
    assert "at most, changing by" not in " ".join(simulation_lines(replace(made, fleets=(short,))))


@pytest.mark.parametrize(("seen_s", "said"), [(21600.0, "keeps up"), (32400.0, "9.0 h"), (None, "–")])
def test_paced_work_of_a_day_keeps_up_or_is_late(made: Simulation, seen_s: float | None, said: str) -> None:
    """It arrives at the pace that fills its window, so that the window is no time at which it was done."""
    each = replace(
        made.classes[0], slos=(SloKept("finish_within", 21600.0, seen_s, 18000.0, seen_s == 21600.0),)
    )
    row = next(iter(_class_rows(each, made)))
    assert said in row and "5.0 h" in row and "6.0 h" not in row


@pytest.mark.parametrize(("half_s", "marked"), [(0.0, False), (0.1, True), (2.0, False)])
def test_a_difference_is_beyond_chance_only_where_chance_was_at_work(half_s: float, marked: bool) -> None:
    gap = Difference("chat.ttft_p95_s", 1.0, 2.0, 1.0, 1.0 - half_s, 1.0 + half_s)
    lines = _comparison_lines(Comparison("a", "b", (0, 1), (gap,)))
    assert lines[1].endswith("*") == marked
    assert ("nothing is drawn" in lines[-1]) == (half_s == 0.0)


@pytest.mark.parametrize(
    ("number", "text"),
    [(100.0, "100"), (0.00231, "0.0023"), (3e-8, "0.00000003"), (0.0, "0"), (1e-5, "0.00001")],
)
def test_shares_of_a_year_have_no_exponent(number: float, text: str) -> None:
    assert _plain(number) == text
