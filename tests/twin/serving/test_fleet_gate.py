"""The whole gate in the serving world: it scales, rolls out, fails over, hedges and sheds for real."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.settings import (
    AdmissionSettings,
    CanarySettings,
    ClassSettings,
    DegradationSettings,
    ForecastSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    OutlierSettings,
    PoolScaling,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    RolloutSettings,
    Routing,
    ScalingSettings,
    Stage,
    ZoneSettings,
)
from twofold.twin.serving.fault_types import Fault, RandomCrashes, Release, SlowReplica, ZoneLoss
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import (
    Arrival,
    ClassModel,
    ClientModel,
    FleetResult,
    FleetWorld,
    ReplicaGroup,
    RequestRecord,
    Retry,
)
from twofold.twin.serving.traffic import Lengths, Surge, TrafficModel, generate

Worlds = Callable[..., FleetWorld]
Requests = Callable[..., list[Arrival]]
SHORT = Lengths(20.0, 40.0)  # about 0.3 s at the fixed engine: a place takes 3 requests per second
QUICK = ScalingSettings(
    (PoolScaling(max_count=6, in_flight_limit_count=4),),
    tick_s=1.0,
    up_pause_s=2.0,
    down_pause_s=10.0,
    start_s=2.0,
    idle_s=5.0,
)
TRIAL = CanarySettings((Stage(0.2, 50), Stage(0.5, 50)), request_limit_count=400)


def everything(scaling: ScalingSettings | None = QUICK) -> GateSettings:
    """All parts of the gate at once."""
    return GateSettings(
        routing=Routing.PREFIX,
        classes=(
            ClassSettings("", ttft_slo_s=2.0, e2e_slo_s=8.0, output_fraction_min=0.5, queue_limit_count=50),
        ),
        limits=LimitSettings(tenant=Rate(requests_per_s=60.0)),
        admission=AdmissionSettings(),
        queue=QueueSettings(),
        degradation=DegradationSettings(),
        retry_budget=RetryBudgetSettings(),
        hedge=HedgeSettings(),
        outliers=OutlierSettings(requests_min_count=5),
        zones=ZoneSettings(),
        scaling=scaling,
        canary=TRIAL,
        rollout=RolloutSettings(tick_s=1.0),
    )


def run(world: FleetWorld, arrivals: list[Arrival]) -> tuple[FleetResult, list[RequestRecord]]:
    records: list[RequestRecord] = []
    return simulate_fleet(world, arrivals, records.append), records


FAULTS: tuple[tuple[Fault, ...], ...] = (
    (),
    (ZoneLoss(4.0, "a", 5.0), SlowReplica(1.0, 9.0, "r1", 4.0)),
    (RandomCrashes(600.0, "process", 1.0), Release(2.0, "next", step_factor=2.0)),
    (RandomCrashes(600.0, "node", None), Release(2.0, "next", error_fraction=0.5, withdrawn_s=6.0)),
)


@given(
    faults=st.sampled_from(FAULTS),
    rate=st.floats(5.0, 80.0),
    retry=st.sampled_from(Retry),
    patience_s=st.sampled_from((0.5, 60.0)),
    seed=st.integers(0, 9),
)
@settings(max_examples=8)
def test_with_everything_on_each_request_still_ends_once(  # INV-13, and of the world
    fixed_world: Worlds, faults: tuple[Fault, ...], rate: float, retry: Retry, patience_s: float, seed: int
) -> None:
    client = ClientModel(retry, 3, patience_s=patience_s)
    world = fixed_world(
        2,
        ("a", "b"),
        gate=everything(),
        classes=(ClassModel("", client),),
        faults=faults,
        in_flight_limit=4,
        start_s=1.0,
        seed=seed,
        stall_timeout_s=2.0,
        first_token_timeout_s=5.0,
        lost_after_s=3.0,
        metrics_every_s=1.0,
    )
    arrivals = list(generate(TrafficModel(rate, output=SHORT, tenants=(("x", 1.0), ("y", 2.0))), seed, 10.0))
    result, records = run(world, arrivals)
    assert (
        len(records) == result.figures.arrived_count == len(arrivals) == sum(result.figures.outcomes.values())
    )
    assert result.figures.waits_for is None and result.figures.little_error_fraction < 1e-9
    assert result.figures.finished_count > 0


def test_a_fleet_grows_into_a_surge_and_shrinks_after_it(fixed_world: Worlds) -> None:
    traffic = TrafficModel(4.0, output=SHORT, surges=(Surge(20.0, 60.0, 12.0),))
    world = fixed_world(
        1, gate=GateSettings(queue=QueueSettings(), scaling=QUICK), in_flight_limit=4, start_s=2.0
    )
    result, _ = run(world, list(generate(traffic, 1, 150.0)))
    assert result.figures.started_count >= 2 and result.figures.start_s_mean == pytest.approx(2.0)
    assert result.figures.effects["StopReplica"] >= 1
    counts = [row.ready_replica_count for row in result.timeline]
    assert counts[10] <= 2 < max(counts) and counts[-1] < max(counts)
    assert result.replica_h * 3600.0 < result.figures.replica_count_max * result.figures.duration_s
    fixed, _ = run(
        replace(world, gate=GateSettings(queue=QueueSettings())), list(generate(traffic, 1, 150.0))
    )
    assert fixed.figures.started_count == 0
    assert result.figures.finished_count > fixed.figures.finished_count


def test_who_knows_the_day_before_has_replicas_ready_when_the_day_opens(fixed_world: Worlds) -> None:
    """A day of 60 s opens at 30 s with six times the requests; a start takes 5 s. The second is measured."""
    openings = tuple(Surge(60.0 * day + 30.0, 60.0 * day + 42.0, 6.0) for day in range(2))
    traffic = TrafficModel(5.0, output=SHORT, surges=openings)

    def second_day(forecast: ForecastSettings | None) -> float:
        scaling = replace(QUICK, start_s=5.0, down_pause_s=5.0, down_fraction=1.0, forecast=forecast)
        gate = GateSettings(queue=QueueSettings(), scaling=scaling)
        classes = (ClassModel("", ttft_s=0.5),)
        world = fixed_world(1, gate=gate, classes=classes, in_flight_limit=4, start_s=5.0, warm_up_s=62.0)
        result = simulate_fleet(world, generate(traffic, 1, 110.0))
        return result.classes[0].goodput_fraction

    reactive, predictive = second_day(None), second_day(ForecastSettings(bin_s=2.0, season_s=60.0))
    assert reactive < 0.8 and predictive > 0.95


def test_a_fleet_starts_from_nothing_when_somebody_asks(fixed_world: Worlds, steady: Requests) -> None:
    scaling = replace(QUICK, pools=(PoolScaling(min_count=0, max_count=2, in_flight_limit_count=4),))
    gate = GateSettings(queue=QueueSettings(), scaling=scaling)
    world = replace(fixed_world(1, gate=gate, start_s=2.0), replicas=(ReplicaGroup(0),))
    result, records = run(world, steady(20, 1.0))
    assert result.figures.finished_count == 20 and result.figures.effects["Hold"] >= 1
    assert records[0].ttft_s is not None and 2.0 < records[0].ttft_s < 6.0


def tried(fixed_world: Worlds, release: Release, seed: int = 1, **changes: object) -> FleetResult:
    gate = GateSettings(canary=TRIAL, rollout=RolloutSettings(tick_s=1.0))
    world = fixed_world(4, gate=gate, faults=(release,), start_s=1.0, seed=seed, **changes)
    return simulate_fleet(world, generate(TrafficModel(40.0, output=SHORT), seed, 60.0))


def test_a_sound_release_is_rolled_out_and_a_bad_one_is_taken_back(fixed_world: Worlds) -> None:
    equal = tried(fixed_world, Release(5.0, "next"))
    assert equal.figures.effects.get("PromoteRelease") == 1 and "RollBackRelease" not in equal.figures.effects
    assert equal.figures.started_count >= 4  # the whole pool runs on it
    for bad in (
        Release(5.0, "next", step_factor=1.6),
        Release(5.0, "next", error_fraction=0.3),
        Release(5.0, "next", quality_drop=0.2),
    ):
        result = tried(fixed_world, bad, quality_spread=0.05)
        assert (
            result.figures.effects.get("RollBackRelease") == 1
            and "PromoteRelease" not in result.figures.effects
        ), bad


def test_a_lost_zone_is_avoided_and_spares_carry_it(fixed_world: Worlds) -> None:
    lost = (ZoneLoss(10.0, "b", None),)
    classes = (ClassModel("", ttft_s=0.5),)
    traffic = TrafficModel(30.0, output=SHORT)

    def held(count: int) -> FleetResult:
        gate = GateSettings(queue=QueueSettings(), zones=ZoneSettings())
        world = fixed_world(
            count, ("a", "b"), gate=gate, faults=lost, classes=classes, in_flight_limit=4, stall_timeout_s=2.0
        )
        return simulate_fleet(world, generate(traffic, 3, 40.0))

    spared, short = held(20), held(4)
    assert spared.figures.effects["FailOverZone"] == 1
    broke = short.figures.broke_first
    assert broke is not None and "after zone b was lost at 10 s" in broke.text
    assert short.figures.goodput_per_s < 0.7 * spared.figures.goodput_per_s


def test_a_retry_storm_happens_without_limits_and_ends_with_the_gate_s_queue(fixed_world: Worlds) -> None:
    traffic = TrafficModel(8.0, output=SHORT, surges=(Surge(5.0, 12.0, 4.0),))
    classes = (ClassModel("", ClientModel(Retry.IMMEDIATE, 30, patience_s=3.0), ttft_s=1.0),)

    def asked(gate: GateSettings) -> FleetResult:
        world = fixed_world(1, gate=gate, classes=classes, in_flight_limit=4)
        return simulate_fleet(world, generate(traffic, 1, 25.0))

    bare, queued = asked(GateSettings()), asked(GateSettings(queue=QueueSettings()))
    assert bare.figures.retry_count > bare.figures.arrived_count
    assert queued.figures.retry_count < 0.2 * bare.figures.retry_count
    assert queued.figures.goodput_per_s > 0.0


def test_who_asks_again_keeps_a_fleet_overloaded_after_a_burst_unless_repeats_are_limited(
    fixed_world: Worlds,
) -> None:
    """A burst of 4 s, then 9 requests/s where 13 could be served; clients wait 2 s, and ask again at once."""
    traffic = TrafficModel(9.0, output=SHORT, surges=(Surge(4.0, 8.0, 4.0),))
    classes = (ClassModel("", ClientModel(Retry.IMMEDIATE, 20, timeout_s=2.0), ttft_s=1.0),)

    def after(budget: RetryBudgetSettings | None, surged: bool = True) -> FleetResult:
        world = fixed_world(
            1, gate=GateSettings(retry_budget=budget), classes=classes, in_flight_limit=64, warm_up_s=12.0
        )
        model = traffic if surged else replace(traffic, surges=())
        return simulate_fleet(world, generate(model, 1, 28.0))

    def kept_fraction(result: FleetResult) -> float:
        (figures,) = result.classes
        return figures.goodput_fraction

    calm, stormy, limited = after(None, surged=False), after(None), after(RetryBudgetSettings())
    assert calm.figures.retry_count < 0.1 * calm.figures.arrived_count and kept_fraction(calm) > 0.9
    assert stormy.figures.effects["Send"] > 2.0 * stormy.figures.arrived_count
    assert limited.figures.effects["Send"] < 1.1 * limited.figures.arrived_count
    assert kept_fraction(stormy) < 0.5 and kept_fraction(limited) > 0.9


def test_a_client_breaks_off_what_takes_too_long_and_asks_as_often_as_it_may(
    fixed_world: Worlds, steady: Requests
) -> None:
    client = ClientModel(Retry.IMMEDIATE, 3, timeout_s=0.15)  # an answer takes 0.2 s
    result, records = run(fixed_world(classes=(ClassModel("", client),)), steady(5, 1.0))
    assert result.figures.outcomes == {"finished": 0, "left": 5} and result.figures.retry_count == 10
    assert [record.e2e_s for record in records] == pytest.approx([0.45 + 2 * 0.002] * 5)
    patient = ClientModel(Retry.IMMEDIATE, 3, timeout_s=0.25)
    result, _ = run(fixed_world(classes=(ClassModel("", patient),)), steady(5, 1.0))
    assert result.figures.outcomes == {"finished": 5} and result.figures.retry_count == 0


def test_a_greedy_tenant_takes_nobody_half_of_its_share_at_three_times_what_can_be_served(
    fixed_world: Worlds,
) -> None:
    """One of five asks for 80 % of 400 requests/s where 133 can be served, and nobody can wait."""
    tenants = (("greedy", 0.8), *((name, 0.05) for name in "abcd"))
    traffic = TrafficModel(400.0, output=SHORT, tenants=tenants)

    def served_fraction(kept_fraction: float) -> float:
        """What the least served of the modest got of what it asked for, which is its fair share."""
        queue = QueueSettings(kept_fraction=kept_fraction)
        gate = GateSettings(classes=(ClassSettings(queue_limit_count=0),), queue=queue)
        world = fixed_world(5, gate=gate, places=8, in_flight_limit=8)
        _, records = run(world, list(generate(traffic, 1, 6.0)))
        return min(
            sum(r.outcome == "finished" for r in records if r.tenant == name)
            / sum(r.tenant == name for r in records)
            for name in "abcd"
        )

    first_come, fair = served_fraction(0.0), served_fraction(0.03)
    assert first_come < 0.5 < 0.7 < fair


def test_hedges_leave_one_answer_per_request(fixed_world: Worlds, steady: Requests) -> None:
    slow = SlowReplica(2.0, 40.0, "r0", 20.0)
    gate = GateSettings(hedge=HedgeSettings(attempts_fraction=0.5), routing=Routing.ROUND_ROBIN)
    result, records = run(fixed_world(24, gate=gate, faults=(slow,)), steady(300, 0.1))
    assert result.figures.outcomes == {"finished": 300}
    assert result.figures.effects["Cancel"] > 0 and result.figures.effects["Send"] > 300
    plain, without = run(fixed_world(24, gate=replace(gate, hedge=None), faults=(slow,)), steady(300, 0.1))
    assert plain.figures.finished_count == 300

    def mean_s(all_records: list[RequestRecord]) -> float:
        return sum(r.ttft_s or 0.0 for r in all_records) / len(all_records)

    assert mean_s(records) < mean_s(without)
