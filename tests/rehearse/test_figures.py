"""Power is what ready machines draw; after a fault stands what the gate did, and when it was over."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results import serving
from twofold.contracts.results.serving import ClassPlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.scenario import Scenario
from twofold.core.estimate import exact
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.rehearse.figures import after_fault, class_figures, missed_goal, power_w
from twofold.rehearse.run import class_model
from twofold.twin.serving.engine_types import EngineSpent
from twofold.twin.serving.fault_types import Drain, Fault, RandomCrashes, Release
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_state import Visit
from twofold.twin.serving.fleet_types import (
    Arrival,
    ClassModel,
    FleetResult,
    FleetWorld,
    ReplicaGroup,
    ReplicaModel,
    TimelineRow,
    replica_order,
)
from twofold.twin.serving.metrics import Metrics
from twofold.twin.serving.metrics_result import counted_figures


def no_engine() -> None:
    raise AssertionError("nothing is sent, so that no engine is asked for anything")


MODEL = ReplicaModel(no_engine, 8, idle_w=100.0, busy_w=300.0)  # type: ignore[arg-type]
ROW = TimelineRow(0.0, 10.0, 100, 100, 0, 0, 0, 100, 0.1, 1.0, 0.2, 1.0, 0.0, 0.1, 0.5, 4)


def rows(*changes: dict[str, float]) -> tuple[TimelineRow, ...]:
    """Buckets of 10 s, one after the other."""
    return tuple(
        replace(ROW, from_s=10.0 * number, until_s=10.0 * (number + 1), **change)  # type: ignore[arg-type]
        for number, change in enumerate(changes)
    )


def world(*faults: Fault, horizon_s: float = 200.0) -> FleetWorld:
    return FleetWorld(
        {("", ""): MODEL},
        (ReplicaGroup(2, replica_order("a")), ReplicaGroup(2, replica_order("b"))),
        GateSettings(),
        Beliefs(0.001, 0.01),
        (ClassModel(""),),
        faults=faults,
        horizon_s=horizon_s,
    )


@pytest.fixture(scope="module")
def empty() -> FleetResult:
    idle = replace(MODEL, new_engine=_Idle)  # type: ignore[arg-type]
    return simulate_fleet(replace(world(), models={("", ""): idle}), ())


class _Idle:
    """Nothing to do, ever."""

    busy_s = 0.0

    def spent(self) -> EngineSpent:
        return EngineSpent()

    def next_at_s(self) -> None:
        return None

    def set_speed(self, factor: float, now_s: float) -> None:
        pass


def run(empty: FleetResult, timeline: tuple[TimelineRow, ...], **changes: object) -> FleetResult:
    figures = replace(empty.figures, duration_s=timeline[-1].until_s)
    return replace(empty, timeline=timeline, figures=figures, **changes)  # type: ignore[arg-type]


def test_power_is_idle_power_and_the_busy_part_of_what_is_above_it(empty: FleetResult) -> None:
    made = run(empty, rows({}, {}, {}))
    assert power_w(made, MODEL) == [4 * (100.0 + 0.5 * 200.0)]


def test_power_is_averaged_over_half_a_minute_and_a_part_of_one_is_left_out(empty: FleetResult) -> None:
    off, on = {"busy_fraction": 0.0}, {"busy_fraction": 1.0}
    made = run(empty, rows(off, off, on, on, on, on, on))  # 70 s: two whole spans
    assert power_w(made, MODEL) == pytest.approx([4 * (100.0 + 200.0 / 3), 4 * 300.0])


@given(busy=st.lists(st.floats(0, 1), min_size=3, max_size=12), ready=st.integers(0, 50))
def test_power_lies_between_all_idle_and_all_busy(empty: FleetResult, busy: list[float], ready: int) -> None:
    made = run(empty, rows(*({"busy_fraction": each, "ready_replica_count": ready} for each in busy)))
    for watts in power_w(made, MODEL):
        assert ready * 100.0 - 1e-6 <= watts <= ready * 300.0 + 1e-6


def test_without_a_fault_or_with_faults_of_chance_nothing_is_said(empty: FleetResult) -> None:
    made = run(empty, rows({}, {}))
    assert after_fault(made, world()) is None
    assert after_fault(made, world(RandomCrashes(1.0))) is None


def test_what_the_gate_did_is_timed_from_the_first_fault(empty: FleetResult) -> None:
    made = run(
        empty,
        rows(*({} for _ in range(12))),
        first_effects_s={"OpenCircuit": 32.5},
        missent_count=3,
        missent_last_s=31.0,
    )
    told = after_fault(made, world(Drain(60.0, "b"), Drain(30.0, "a")))
    assert told is not None
    assert (told.at_s, dict(told.first_effects_s)) == (30.0, {"OpenCircuit": 2.5})
    assert (told.missent_count, told.missent_s, told.affected_fraction) == (3, 1.0, None)
    assert told.recovered_s == 0.0  # nothing was ever late


def test_it_is_over_when_three_spans_together_are_as_good_as_before(empty: FleetResult) -> None:
    bad, good = {"within_slo_count": 50}, {"within_slo_count": 100}
    fault = Drain(30.0, "a")
    timeline = rows(good, good, good, bad, bad, good, good, good, good)
    told = after_fault(run(empty, timeline), world(fault))
    assert told is not None
    assert told.recovered_s == 20.0  # 50 + 100 + 100 of 300 are below 90 %, three good spans are not
    never = after_fault(run(empty, rows(good, good, good, *([bad] * 8))), world(fault))
    assert never is not None
    assert never.recovered_s is None


def test_what_was_bad_before_need_not_be_better_after(empty: FleetResult) -> None:
    half = {"within_slo_count": 50}
    told = after_fault(run(empty, rows(*([half] * 9))), world(Drain(30.0, "a")))
    assert told is not None
    assert told.recovered_s == 0.0


def test_the_share_that_a_release_got_is_known_once_it_is_decided(empty: FleetResult) -> None:
    timeline, release = rows(*({} for _ in range(9))), Release(30.0, "next")
    sent = {"base": 90, "next": 10}
    undecided = after_fault(run(empty, timeline, sent_counts=sent), world(release))
    decided = run(empty, timeline, sent_counts=sent, first_effects_s={"RollBackRelease": 50.0})
    told = after_fault(decided, world(release))
    assert undecided is not None and told is not None
    assert undecided.affected_fraction is None
    assert told.affected_fraction == pytest.approx(0.1)


PLANNED = ClassPlan(
    name="chat",
    rate_per_s=1.0,
    peak_per_s=2.0,
    input_tokens=100.0,
    output_tokens=10.0,
    percentiles={},
    slos=tuple(
        serving.SloOutcome(metric, limit_s, None, None)
        for metric, limit_s in (("ttft_p50", 0.4), ("ttft_p95", 1.0), ("e2e_p99", 2.0))
    ),
    replica_count=1,
    rate_per_replica_per_s=exact(1.0, "1/s"),
    holds_until_per_s=exact(1.0, "1/s"),
    knee_per_s=None,
    usd_per_1k_output_tokens=None,
    latency_budget=(),
    success=serving.SuccessOutcome(0.99),
)
AS_PLANNED = Scenario()
VERDICTS = {False: 0, None: 1, True: 2}
Answer = tuple[float, int]  # seconds to the whole of it, of which half to its first token, and tokens


def counted(answers: list[Answer], refused: set[int], scenario: Scenario = AS_PLANNED) -> ClassFigures:
    """A class of which the twin was told request by request: some got an answer, some none."""
    model = class_model(PLANNED, scenario)
    metrics = Metrics([model], 0.0, 100)
    for number, (whole_s, tokens) in enumerate(answers):
        visit = Visit(number, Arrival(0.1 * number, 100, tokens, "chat"), 0, 100, None)
        metrics.arrived_at(visit)
        visit.begun_s = visit.arrival_s + whole_s / 2
        if number in refused:
            metrics.ended_at(visit, "refused", visit.arrival_s)
        else:
            metrics.finished_at(visit, tokens, visit.arrival_s + whole_s)
    metrics.settle(1000.0)
    return counted_figures(metrics.classes[0], replace(world(), classes=(model,)), 1000.0)


def verdicts(
    empty: FleetResult, answers: list[Answer], refused: set[int], planned: ClassPlan, scenario: Scenario
) -> dict[str, bool | None]:
    """Of each goal."""
    figures = counted(answers, refused, scenario)
    made = class_figures(planned, figures, scenario, empty, world())
    assert made.success is not None
    assert ("success" in made.missed) == (made.success.met is False)
    return {**{each.metric: each.met for each in made.slos}, "success": made.success.met}


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.5, 1.5, 3.0]), st.integers(1, 3)), min_size=1, max_size=150),
    st.sets(st.integers(0, 150), max_size=30),
    st.sets(st.integers(0, 150), max_size=30),
    st.booleans(),
    st.none() | st.sampled_from(["50 %", "90 %", "99 %", "99.9 %"]),
    st.sampled_from([0.5, 0.9, 0.99, 0.999]),
)
def test_refused_requests_never_make_a_verdict_better(
    empty: FleetResult,
    answers: list[Answer],
    more: set[int],
    refused: set[int],
    faulty: bool,
    stated: str | None,
    goal: float,
) -> None:
    """INV-36: whoever is turned away, and wherever success is stated, no goal does better than before."""
    faults = {"faults": [{"kind": "replica-crash", "at": "1 min"}]} if faulty else {}
    scenario = Scenario.model_validate({**faults, **({"success": stated} if stated else {})})
    planned = replace(PLANNED, success=serving.SuccessOutcome(goal))
    before, after = (verdicts(empty, answers, each, planned, scenario) for each in (refused, refused | more))
    for name, met in after.items():
        assert VERDICTS[met] <= VERDICTS[before[name]], name


@pytest.mark.parametrize("faulty", [False, True])
def test_what_may_fail_is_said_in_one_place_or_another_and_judged_alike(
    empty: FleetResult, faulty: bool
) -> None:
    """Of 100 requests ten are refused: p95 is missed however many may fail, and whoever said so."""
    answers, refused = [(0.2, 3)] * 100, set(range(10))
    faults = {"faults": [{"kind": "replica-crash", "at": "1 min"}]} if faulty else {}
    ways = [(0.999, "80 %"), (0.8, None), (0.8, "80 %")]
    told = [
        verdicts(
            empty,
            answers,
            refused,
            replace(PLANNED, success=serving.SuccessOutcome(goal)),
            Scenario.model_validate({**faults, **({"success": stated} if stated else {})}),
        )
        for goal, stated in ways
    ]
    assert told[0] == told[1] == told[2]
    assert told[0]["success"] is True and told[0]["ttft_p95"] is False and told[0]["ttft_p50"] is True


def test_a_goal_that_is_stated_as_it_would_be_anyway_changes_nothing(empty: FleetResult) -> None:
    crash = {"faults": [{"kind": "replica-crash", "at": "1 min"}]}
    answers = [(0.2, 3)] * 940 + [(9.0, 3)] * 50 + [(0.2, 3)] * 10
    told = [
        verdicts(empty, answers, set(range(990, 1000)), PLANNED, Scenario.model_validate({**crash, **stated}))
        for stated in ({}, {"success": "99 %"})
    ]
    assert told[0] == told[1] and told[0]["ttft_p95"] is False


def test_an_answer_of_one_token_keeps_its_pace_and_a_refused_request_does_not(empty: FleetResult) -> None:
    planned = replace(PLANNED, slos=(serving.SloOutcome("tpot_p95", 0.1, None, None),))

    def met(answers: list[Answer], refused: set[int]) -> bool | None:
        return verdicts(empty, answers, refused, planned, Scenario())["tpot_p95"]

    single, slow = [(1.0, 1)] * 80, [(1.0, 3)] * 20
    assert met(single + slow, set()) is False
    assert met(single + slow, set(range(80, 100))) is False, "nobody is left whose pace is too slow"
    assert met(single, set()) is None and met(single, {0}) is None and met(single, set(range(8))) is False


def success(answered: int, arrived: int, text: dict[str, object], empty: FleetResult) -> object:
    scenario = Scenario.model_validate(text)
    figures = counted([(0.1, 2)] * arrived, set(range(arrived - answered)))
    made = class_figures(PLANNED, figures, scenario, empty, world()).success
    assert made is not None
    return made.goal_fraction, made.met, made.year_failed_fraction


def test_what_fails_is_charged_to_the_year_by_how_often_it_happens(empty: FleetResult) -> None:
    crash = {"faults": [{"kind": "replica-crash", "at": "1 min"}]}
    planned = replace(PLANNED, success=serving.SuccessOutcome(0.999))
    rare, often = ({**crash, "once_every": each} for each in ("30 d", "2 h"))
    for text, kept in ((rare, True), (often, False)):
        scenario = Scenario.model_validate(text)
        figures = counted([(0.1, 2)] * 1000, set(range(10)))
        made = class_figures(planned, figures, scenario, empty, world()).success
        assert made is not None and made.goal_fraction == 0.99 and made.met is kept
        assert scenario.once_every_s is not None
        assert made.year_failed_fraction == pytest.approx(10 / scenario.once_every_s)


def test_a_scenario_says_what_may_fail_in_it(empty: FleetResult) -> None:
    assert success(980, 1000, {}, empty) == (0.99, False, None)
    assert success(980, 1000, {"success": "98 %"}, empty) == (0.98, True, None)
    cold = {"fleet": {"start": "cold"}, "once_every": "365 d"}
    assert success(1000, 1000, cold, empty) == (0.99, True, 0.0)


def test_a_percentile_that_was_not_answered_is_named_where_enough_were(empty: FleetResult) -> None:
    planned = replace(PLANNED, success=serving.SuccessOutcome(0.9))
    figures = counted([(0.1, 2)] * 1000, set(range(80)))
    made = class_figures(planned, figures, Scenario(), empty, world())
    assert made.success is not None and made.success.met and made.missed == ("ttft_p95", "e2e_p99")
    broke = missed_goal([made], world())
    assert broke is not None and broke.signal == "slo chat e2e_p99" and broke.value == pytest.approx(0.08)
    assert broke.limit == 0.01 and "more than E2E p99 leaves over" in broke.text


def test_no_more_than_all_of_a_year_fails(empty: FleetResult) -> None:
    often = {"faults": [{"kind": "replica-crash", "at": "1 min"}], "once_every": "1 s"}
    assert success(900, 1000, often, empty) == (0.99, False, 1.0)
