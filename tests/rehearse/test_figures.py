"""Power is what ready machines draw; after a fault stands what the gate did, and when it was over."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.rehearse.figures import after_fault, power_w
from twofold.twin.serving import simulate_fleet
from twofold.twin.serving.engine_types import EngineSpent
from twofold.twin.serving.fault_types import Drain, Fault, RandomCrashes, Release
from twofold.twin.serving.fleet_types import (
    ClassModel,
    FleetResult,
    FleetWorld,
    ReplicaGroup,
    ReplicaModel,
    TimelineRow,
    replica_order,
)


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
