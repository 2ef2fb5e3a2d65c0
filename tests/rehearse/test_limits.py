"""What would not end, or has nothing to run on, is refused before it begins; what is merely odd runs."""

from pathlib import Path

import pytest

from twofold.app.simulate_inputs import Rehearsable, rehearsable
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.scenario import Scenario
from twofold.contracts.scenario.scenario import parse_scenario
from twofold.core import InputErrors, ValueRefusedError

SPEC = """\
name: small
model: llama-3.1-8b
serving:
  zones: 2
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 1 /s, peak: 2x, input: 600 tok, output: 40 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""


@pytest.fixture(scope="module")
def given() -> Rehearsable:
    return rehearsable(SPEC)


def scenario(text: str) -> Scenario:
    return parse_scenario(f"beliefs: {{error: 0 %}}\n{text}", "scenario.yaml")


SHORT = "horizon: 20 s\nwarm_up: 2 s\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("horizon: 100 y", "would not end: a year is the most"),
        (f"{SHORT}traffic: {{scale: 10000000x}}", "requests are more than"),
        (f"{SHORT}metrics: {{every: 100 ns}}", "looks at each replica"),
        (f"{SHORT}fleet: {{spares: 100000000}}", "more than a rehearsal takes"),
        (f"{SHORT}engine: {{chunk: 1000000000 tok}}", "no memory left for a cache"),
    ],
)
def test_what_would_not_end_is_refused_before_it_begins(given: Rehearsable, text: str, says: str) -> None:
    with pytest.raises(ValueRefusedError, match=says) as caught:
        simulate(given.plan, SimulateOptions(scenario(text)))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("engine: {chunk: 1 tok}", "less than one block of the cache"),
        ("clients: {retry: immediate, attempts: 1000000}", "nobody asks 1,000,000 times"),
        ("faults: [{kind: release, at: 1 s, version: base}]", "`base` is what runs"),
        ("faults: [{kind: release, at: 1 s}, {kind: release, at: 2 s}]", "`next` is released twice"),
        ("traffic: {tenants: [{name: a, share: 30 %}, {name: a, share: 30 %}]}", "the same name"),
        ("fleet: {ramp: 0 W}", "`ramp: 0 W` is zero"),
    ],
)
def test_a_scenario_that_contradicts_itself_names_its_place(text: str, says: str) -> None:
    with pytest.raises(InputErrors) as caught:
        scenario(text)
    (error,) = caught.value.errors
    assert says in error.message
    assert error.place is not None


def test_a_trace_over_decades_is_refused_and_requests_without_tokens_have_one(
    given: Rehearsable, tmp_path: Path
) -> None:
    header = "arrival_s,input_tokens,output_tokens\n"
    path = tmp_path / "t.csv"
    path.write_text(f"{header}" + "".join(f"{3e7 * at},10,10\n" for at in range(9)))
    with pytest.raises(ValueRefusedError, match="would not end"):
        simulate(given.plan, SimulateOptions(scenario(""), {"": path}))
    path.write_text(f"{header}0,0,0\n1,0,5\n2,5,0\n")
    with pytest.raises(ValueRefusedError, match=r"a warm-up of 3(.0)? s leaves none"):
        simulate(given.plan, SimulateOptions(scenario("warm_up: 3 s"), {"": path}))
    made = simulate(given.plan, SimulateOptions(scenario(""), {"": path})).data
    assert made.fleets[0].outcomes == {"finished": 3}


def test_requests_that_all_come_at_once_are_all_judged_or_told_of(given: Rehearsable, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n7,10,10\n7,20,10\n")
    made = simulate(given.plan, SimulateOptions(scenario(""), {"": path})).data
    assert made.classes[0].arrived_count == 2 and made.slos_met
    with pytest.raises(ValueRefusedError, match="all requests arrive at once"):
        simulate(given.plan, SimulateOptions(scenario("warm_up: 3 s"), {"": path}))


def test_a_fleet_that_nobody_asks_costs_what_it_costs(given: Rehearsable) -> None:
    none, one = (
        simulate(given.plan, SimulateOptions(scenario(f"{SHORT}traffic: {{scale: {scale}x}}"))).data.fleets[0]
        for scale in (1e-6, 1)
    )
    assert none.arrived_count == 0 and none.duration_s == 20.0
    assert none.cost_usd is not None and one.cost_usd is not None
    assert none.cost_usd / none.duration_s == pytest.approx(one.cost_usd / one.duration_s)


@pytest.mark.parametrize("engine", ["max_batch: 1", "chunk: 16 tok"])
def test_the_smallest_engines_run(given: Rehearsable, engine: str) -> None:
    made = simulate(given.plan, SimulateOptions(scenario(f"{SHORT}engine: {{{engine}}}"))).data
    assert made.fleets[0].outcomes["finished"] > 0
    assert sum(made.fleets[0].outcomes.values()) == made.fleets[0].arrived_count


def test_a_dead_fleet_with_clients_who_never_stop_asking_ends(given: Rehearsable) -> None:
    dead = "fleet: {replicas: 1}\nfaults: [{kind: replica-crash, at: 1 s}]\n"
    text = f"{dead}clients: {{retry: immediate, attempts: 50}}"
    made = simulate(given.plan, SimulateOptions(scenario(f"{SHORT}{text}"))).data
    assert made.fleets[0].retry_count > 0
    assert sum(made.fleets[0].outcomes.values()) == made.fleets[0].arrived_count
