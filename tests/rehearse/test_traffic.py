"""The requests of a rehearsal: rates and lengths as planned, bursts where they are, traces at their pace."""

from dataclasses import replace
from pathlib import Path

import pytest

from twofold.app.simulate_inputs import Rehearsable, opened, rehearsable
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.results.serving import ClassPlan
from twofold.contracts.spec.scenario import Scenario, parse_scenario
from twofold.core.errors import InputErrors, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.rehearse.traffic import TracedTraffic, TrafficMix, drawn_parts, scan_trace

ONE = Estimate(1.0, 1.0, 1.0, "1/s")
CHAT = ClassPlan(
    "chat", 20.0, 40.0, 500.0, 100.0, {}, (), 1, ONE, ONE, None, None, (),
    input_spread_ratio=0.8, output_spread_ratio=0.4, shared_prefix_fraction=0.25,
)  # fmt: skip


def mix(scenario: Scenario, horizon_s: float = 100.0, seed: int = 0) -> TrafficMix:
    return TrafficMix(drawn_parts(CHAT, scenario, 32_768, 64, 0), horizon_s, seed)


def test_rates_and_lengths_are_the_plans() -> None:
    arrivals = list(mix(Scenario()).arrivals())
    assert len(arrivals) == pytest.approx(4000, rel=0.06)
    assert sum(each.input_tokens for each in arrivals) / len(arrivals) == pytest.approx(500, rel=0.06)
    assert sum(each.output_tokens for each in arrivals) / len(arrivals) == pytest.approx(100, rel=0.06)
    assert all(each.input_tokens + each.output_tokens <= 32_768 for each in arrivals)
    assert {each.class_name for each in arrivals} == {"chat"}


def test_a_seed_repeats_and_another_differs() -> None:
    assert list(mix(Scenario(), 10).arrivals()) == list(mix(Scenario(), 10).arrivals())
    assert list(mix(Scenario(), 10).arrivals()) != list(mix(Scenario(), 10, seed=1).arrivals())


def test_a_burst_of_a_tenant_is_its_own() -> None:
    text = (
        "traffic: {level: mean, tenants: [{name: noisy, share: 50 %}], "
        "bursts: {at: 50 s, for: 50 s, rate: 4x, tenant: noisy}}"
    )
    counts: dict[tuple[str, bool], int] = {}
    for each in mix(parse_scenario(text, "s.yaml")).arrivals():
        key = (each.tenant, each.arrival_s >= 50)
        counts[key] = counts.get(key, 0) + 1
    assert counts["noisy", True] == pytest.approx(2000, rel=0.1)
    assert counts["noisy", False] == pytest.approx(500, rel=0.15)
    assert counts["", True] == pytest.approx(500, rel=0.15)


def test_a_trace_goes_at_its_scale_and_again_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n5,10,1\n6,20,1\n7,30,0\n")
    assert scan_trace(path, "chat", ("chat",), 1000)[0] == 2.0
    part = TracedTraffic(path, "chat", ("chat",), ("chat",), 2.0, True, 1000)
    again = list(TrafficMix((part,), 2.5, 0).arrivals())
    assert [each.arrival_s for each in again] == [0, 0.5, 1, 1, 1.5, 2, 2]
    assert [each.input_tokens for each in again] == [10, 20, 30, 10, 20, 30, 10]
    assert min(each.output_tokens for each in again) == 1  # an answer has a token
    once = list(TrafficMix((replace(part, repeats=False),), 9.0, 0).arrivals())
    assert len(once) == 3


def test_streams_are_merged_by_time_and_of_equal_times_the_earlier_ones_first(
    tmp_path: Path,
) -> None:
    parts = []
    for name, times in (("a", (0, 2, 4)), ("b", (0, 2, 3))):
        path = tmp_path / f"{name}.csv"
        path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},9,1\n" for at in times))
        parts.append(TracedTraffic(path, name, (name,), (name,), 1.0, False, 1000))
    found = [(each.arrival_s, each.class_name) for each in TrafficMix(tuple(parts), 9.0, 0).arrivals()]
    assert found == [(0, "a"), (0, "b"), (2, "a"), (2, "b"), (3, "b"), (4, "a")]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((5, 6, 6, 7), ""),
        ((5, 7, 6, 8), "t.csv: 1 row was not in order of time and put right, the first one on line 4"),
        ((9, 5, 7, 8), "t.csv: 3 rows were not in order of time and put right, the first one on line 3"),
    ],
    ids=["sorted", "one", "most"],
)
def test_rows_that_are_put_right_are_counted_and_the_first_is_named(
    tmp_path: Path, times: tuple[int, ...], said: str
) -> None:
    """They were sorted without a word."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},10,1\n" for at in times))
    end_s, _, notes = scan_trace(path, "chat", ("chat",), 1000)
    assert (notes, end_s) == ([said] if said else [], max(times) - min(times))


def test_answers_of_no_token_are_told_as_what_they_are_replayed_as(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n1,10,0\n2,10,1\n3,10,0\n")
    *_, notes = scan_trace(path, "chat", ("chat",), 1000)
    assert notes == ["t.csv: 2 answers of no token are replayed with one, which ends it"]


def test_a_halved_trace_keeps_one_of_each_two_minutes_in_order_and_another_seed_other_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{30 * index},{index + 1},1" for index in range(80)]  # two requests a minute, for 40 min
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows, ""]))
    part = TracedTraffic(path, "chat", ("chat",), ("chat",), 1.0, False, 1000, halved=True)
    seen = []
    for seed in range(4):
        arrivals = list(TrafficMix((part,), 9e9, seed).arrivals())
        assert [each.arrival_s for each in arrivals] == [30.0 * index for index in range(40)]
        minutes = [(each.input_tokens - 1) // 2 for each in arrivals]
        assert [minute // 2 for minute in minutes] == [index // 2 for index in range(40)]
        assert list(TrafficMix((part,), 9e9, seed).arrivals()) == arrivals
        seen.append(tuple(minutes))
    assert len(set(seen)) == 4


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
    return rehearsable(opened(SPEC, None))


def scenario(text: str) -> Scenario:
    return parse_scenario(f"beliefs: {{error: 0 %}}\n{text}", "scenario.yaml")


SHORT = "horizon: 20 s\nwarm_up: 2 s\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("horizon: 100 y", "would not end: a year is the most"),
        ("horizon: 200 s\nwarm_up: 2 s\ntraffic: {scale: 1000000x}", "requests are more than"),
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
