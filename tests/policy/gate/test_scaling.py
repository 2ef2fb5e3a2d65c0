"""The scaler against a pool of plain numbers: as many requests are in flight as come in a service time."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import ReplicaAdded, ReplicaReported, StartReplica, StopReplica
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.scaling import Scaler, Stays, surely_late_fraction
from twofold.policy.gate.settings import (
    Beliefs,
    ForecastSettings,
    GateSettings,
    PoolScaling,
    ScalingSettings,
    WarmSettings,
)

LIMIT = 10
SERVICE_S = 5.0
START_S = 60.0
SETTINGS = ScalingSettings(
    pools=(PoolScaling(max_count=20, in_flight_limit_count=LIMIT),),
    start_s=START_S, down_pause_s=120.0, idle_s=200.0,
)  # fmt: skip


@dataclass
class Pool:
    """Executes the effects after START_S, and spreads `rate · SERVICE_S` requests over what is there."""

    scaler: Scaler
    fails: Callable[[float], bool] = lambda _now_s: False
    view: FleetView = field(default_factory=lambda: FleetView(GateSettings(), Beliefs(0.0, 0.01)))
    starting: dict[str, tuple[float, StartReplica]] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    counts: list[tuple[float, int]] = field(default_factory=list)
    short_s: float = 0.0  # seconds with more requests than places
    now_s: float = 0.0

    def run(self, rate: Callable[[float], float], until_s: float, kept: tuple[str, ...] = ()) -> "Pool":
        while self.now_s < until_s:
            self._ready()
            busy = round(rate(self.now_s) * SERVICE_S)
            for replica in self.view.replicas.values():
                replica.in_flight_count = 0
            replicas = [r for r in self.view.replicas.values() if r.healthy and r.added.version not in kept]
            places = sum(replica.in_flight_limit for replica in replicas)
            self.short_s += busy > places
            for index, replica in enumerate(replicas):
                share = min(busy, places)
                replica.in_flight_count = share // len(replicas) + (index < share % len(replicas))
            self.scaler.observe_finished("", rate(self.now_s), min(busy, places), LIMIT)
            if busy:
                self.scaler.observe_arrival("", self.now_s, rate(self.now_s))
            if self.now_s % SETTINGS.tick_s == 0:
                held = max(busy - places, 0)
                for effect in self.scaler.tick(self.view, self.now_s, {"": held}, kept_versions=kept):
                    self._do(effect)
            self.counts.append((self.now_s, len(replicas)))
            self.now_s += 1.0
        return self

    def _do(self, effect: Any) -> None:
        if isinstance(effect, StartReplica):
            self.starts.append(self.now_s)
            self.starting[effect.replica_id] = (self.now_s, effect)
        else:
            assert isinstance(effect, StopReplica)
            self.stops.append(self.now_s)
            del self.view.replicas[effect.replica_id]

    def _ready(self) -> None:
        for name, (at_s, effect) in list(self.starting.items()):
            if self.now_s - at_s >= START_S:
                del self.starting[name]
                if self.fails(self.now_s):
                    assert self.scaler.start_failed(name, self.now_s)
                    continue
                self.view.add_replica(
                    ReplicaAdded(name, LIMIT, effect.zone, effect.pool, effect.model, effect.version)
                )
                self.scaler.replica_added(name, self.now_s)

    def count(self, at_s: float) -> int:
        return next(count for seen_s, count in self.counts if seen_s >= at_s)


def pool(scaler: Scaler, count: int = 1, **of: str) -> Pool:
    made = Pool(scaler)
    for number in range(count):
        made.view.add_replica(ReplicaAdded(f"first-{number}", LIMIT, **of))
    return made


def constant(rate: float) -> Callable[[float], float]:
    return lambda _at_s: rate


def test_the_pool_settles_where_its_places_are_used_to_the_target() -> None:
    run = pool(Scaler(SETTINGS)).run(constant(10.0), 1500.0)  # 50 requests in flight
    assert run.count(1400.0) == math.ceil(50 / (0.7 * LIMIT))
    assert run.stops == [] and max(run.starts) < 700.0


def test_what_fell_is_followed_only_after_the_pause_and_a_dip_is_not_followed() -> None:
    def rate(at_s: float) -> float:
        return 2.0 if 600.0 <= at_s < 660.0 or at_s >= 1000.0 else 10.0

    run = pool(Scaler(SETTINGS), 8).run(rate, 2600.0)
    assert min(run.stops) >= 1000.0 + SETTINGS.down_pause_s
    assert run.count(2500.0) < 8 and run.starts == []
    gaps = {later - sooner for sooner, later in pairwise(run.stops)}
    assert min(gaps) >= SETTINGS.down_pause_s  # one at a time: a tenth of eight


def test_steps_up_are_limited_and_paused() -> None:
    run = pool(Scaler(SETTINGS)).run(constant(200.0), 400.0)
    at = sorted(set(run.starts))
    assert run.starts.count(at[0]) == SETTINGS.up_count
    assert all(b - a >= SETTINGS.up_pause_s for a, b in pairwise(at))
    assert len(run.starts) == 19  # and one was there: the most that the pool may have


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 60.0), st.integers(0, 9)), min_size=1, max_size=8),
    st.integers(0, 3),
    st.integers(0, 6),
)
def test_bounds_hold_whoever_is_sick_and_ids_are_never_given_twice(
    days: list[tuple[float, int]], least: int, more: int
) -> None:
    bounds = PoolScaling(min_count=least, max_count=max(least + more, 1), in_flight_limit_count=LIMIT)
    run = pool(Scaler(replace(SETTINGS, pools=(bounds,))), least)
    for number, (rate, sick_count) in enumerate(days):
        for index, replica in enumerate(run.view.replicas.values()):
            replica.circuit = Circuit(until_s=9e9 if index < sick_count else None)
        run.run(constant(rate), 100.0 * (number + 1))
        assert least <= len(run.view.replicas) + len(run.starting) <= bounds.max_count
    assert len(run.starts) == run.scaler._given_ids


def test_a_pool_goes_to_zero_when_nobody_asks_and_a_held_request_wakes_it() -> None:
    bounds = PoolScaling(min_count=0, max_count=5, in_flight_limit_count=LIMIT)
    run = pool(Scaler(replace(SETTINGS, pools=(bounds,))))
    run.run(lambda at_s: 0.0 if at_s >= 100.0 and at_s != 800.0 else 1.0, 1000.0)
    assert len(run.stops) == 1 and run.stops[0] >= 100.0 + SETTINGS.idle_s
    assert run.count(700.0) == 0 and run.starts == [800.0]
    assert run.count(900.0) == 1


def test_a_start_that_fails_is_tried_again_after_pauses_that_double_up_to_a_bound() -> None:
    scaler = Scaler(replace(SETTINGS, start_backoff_s_max=160.0))
    run = pool(scaler, 0)
    run.fails = lambda _now_s: True
    run.run(constant(1.0), 2000.0)
    gaps = [later - sooner for sooner, later in pairwise(run.starts)]
    assert gaps == sorted(gaps) and gaps[0] < 90.0 and START_S + 160.0 <= gaps[-1] <= START_S + 180.0
    run.fails = lambda _now_s: False
    run.run(constant(1.0), 2400.0)
    assert len(run.view.replicas) == 1 and scaler.pools[""].starts.failed_count == 0


def test_a_start_that_never_ends_is_given_up() -> None:
    scaler = Scaler(replace(SETTINGS, start_s=60.0, start_s_max=300.0))
    run = pool(scaler, 0)
    for step in range(100):
        scaler.tick(run.view, step * 10.0, {"": 1})
    assert 2 <= scaler._given_ids <= 3 and len(scaler.pools[""].starts.pending) <= 1


def test_a_start_up_time_is_learnt() -> None:
    scaler = Scaler(replace(SETTINGS, start_s=300.0))
    pool(scaler).run(constant(40.0), 600.0)
    assert 55.0 < scaler.pools[""].start_s < 120.0


def test_a_replica_that_stays_sick_is_replaced_and_one_that_recovers_soon_is_not() -> None:
    run = pool(Scaler(SETTINGS), 4)
    run.run(constant(5.0), 100.0)
    run.view.replicas["first-0"].circuit = Circuit(until_s=9e9)
    run.run(constant(5.0), 120.0)
    assert run.starts == []
    run.run(constant(5.0), 200.0)
    assert len(run.starts) == 1
    run.view.replicas["first-0"].circuit = Circuit()
    run.run(constant(5.0), 900.0)
    assert len(run.stops) == 1


def test_a_full_pool_replaces_who_is_sick_and_one_of_whom_nothing_is_heard_stays_as_it_is() -> None:
    bounds = PoolScaling(min_count=4, max_count=4, in_flight_limit_count=LIMIT)
    for sick_count, kept_count in ((1, 3), (4, 4)):
        run = pool(Scaler(replace(SETTINGS, pools=(bounds,))), 4)
        for replica in list(run.view.replicas.values())[:sick_count]:
            replica.circuit = Circuit(until_s=9e9)
        run.run(constant(0.0), 300.0)
        assert sum(name.startswith("first") for name in run.view.replicas) == kept_count
        assert len(run.view.replicas) == 4 and len(run.starts) == len(run.stops) == 4 - kept_count


def test_a_request_that_waits_for_an_empty_pool_waits_for_no_pause() -> None:
    run = pool(Scaler(replace(SETTINGS, up_pause_s=100.0)), 0)
    assert len(run.scaler.tick(run.view, 0.0, {"": 1})) == 1
    assert run.scaler.start_failed("scaled-1", 1.0)
    assert run.scaler.tick(run.view, 10.0, {"": 1}) == []  # after a failed start it does …
    assert len(run.scaler.tick(run.view, 11.0, {"": 1})) == 1  # … and not after a step
    assert run.scaler.start_failed("scaled-2", 12.0)
    assert run.scaler.tick(run.view, 50.0, {}) == []  # nobody waits


def test_the_sick_and_the_outdated_are_stopped_first() -> None:
    run = pool(Scaler(SETTINGS), 3, version="2")
    run.view.add_replica(ReplicaAdded("another-0", LIMIT, version="1"))
    run.view.add_replica(ReplicaAdded("another-1", LIMIT, version="2"))
    run.view.replicas["first-0"].circuit = Circuit(until_s=9e9)
    run.run(constant(0.0), 900.0)
    left = list(run.view.replicas)
    assert "first-0" not in left and "another-0" not in left and 1 <= len(left) < 4


def test_full_kv_caches_ask_for_replicas_as_long_as_the_reports_are_fresh() -> None:
    for age_s, expected in ((0.0, 3), (SETTINGS.report_s_max + 1.0, 2)):
        run = pool(Scaler(SETTINGS), 2)
        for replica in run.view.replicas.values():
            replica.report = ReplicaReported(replica.replica_id, 1000.0 - age_s, 5, 0, 1.0)
        assert 2 + len(run.scaler.tick(run.view, 1000.0, {})) == expected


def test_late_first_tokens_ask_for_more_and_little_headroom_forbids_less() -> None:
    for late_share, changes in ((0.5, StartReplica), (0.04, None), (0.03, None), (0.0, StopReplica)):
        run = pool(Scaler(SETTINGS), 6)
        seen: set[type] = set()
        for step in range(400):
            for number in range(5):
                late = (step * 5 + number + 1) * 617 % 1000 < 1000 * late_share
                run.scaler.observe_first_token("", late, False)
            if step % 10 == 0:
                seen |= {type(effect) for effect in run.scaler.tick(run.view, float(step), {})}
        assert seen == ({changes} if changes else set())


def test_a_quiet_pool_is_not_scaled_by_the_few_late_answers_of_any_fleet() -> None:
    """One in a hundred is late, and few are asked for: now and then it is one of the last ten."""
    draws = Random(3)
    run = pool(Scaler(SETTINGS), 1)
    for step in range(0, 20_000, 10):
        for _ in range(2):
            run.scaler.observe_first_token("", draws.random() < 0.01, False)
        assert run.scaler.tick(run.view, float(step), {}) == []
    assert surely_late_fraction(0.0, 0.0) == surely_late_fraction(0.0, 50.0) == 0.0


def test_one_late_answer_of_a_pool_that_hardly_answers_asks_for_nothing() -> None:
    """A request per 30 s, one of fifty late: a pool of ten never grows."""
    run = pool(Scaler(SETTINGS), 10)
    grown: set[str] = set()
    for step in range(6000):
        if step % 30 == 0:
            run.scaler.observe_first_token("", step // 30 % 50 == 25, False)
        if step % 10 == 0:
            effects = run.scaler.tick(run.view, float(step), {})
            grown |= {effect.replica_id for effect in effects if isinstance(effect, StartReplica)}
    assert not grown


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_what_is_surely_late_is_less_than_what_was_and_as_much_in_the_end(share: float, count: float) -> None:
    sure = surely_late_fraction(share * count, count)
    assert 0.0 <= sure <= share + 1e-12
    assert surely_late_fraction(share * 4 * count, 4 * count) >= sure - 1e-12
    assert surely_late_fraction(share * 1e12, 1e12) == pytest.approx(share, abs=1e-5)


def test_a_pool_learns_how_much_its_replicas_bear_and_forgets_it_slowly() -> None:
    """With more than three requests each, replicas are slow, though they have ten places."""
    run = pool(Scaler(SETTINGS), 3)
    for step in range(150):
        busy = max(replica.in_flight_count for replica in run.view.replicas.values())
        for _ in range(60):
            run.scaler.observe_first_token("", busy > 3, busy > 3)
        run.run(constant(4.0), 10.0 * (step + 1))
    bearable = run.scaler.pools[""].bearable_ratio * 7.0
    assert 2.0 < bearable <= 3.2 and 20 / 3.2 <= len(run.view.replicas) <= 10
    for step in range(150, 400):
        for _ in range(60):
            run.scaler.observe_first_token("", False, False)
        run.run(constant(4.0), 10.0 * (step + 1))
    assert run.scaler.pools[""].bearable_ratio * 7.0 > bearable


@given(st.floats(0.5, 3.0), st.floats(0.0, 0.3), st.integers(0, 10**6))
def test_the_time_with_a_full_replica_is_told_from_emptier_ones(alone: float, each: float, seed: int) -> None:
    draws, stays = Random(seed), Stays()
    for _ in range(400):
        beside, work_s = draws.randint(1, 40), draws.uniform(0.5, 2.0)
        stays.add(work_s, work_s * (alone + each * beside), beside)
    assert stays.per_work_ratio(100.0) == pytest.approx(alone + each * 100, rel=0.05)
    assert Stays().per_work_ratio(10.0) == 0.0


def test_zones_are_filled_evenly_and_a_lost_one_is_left_out() -> None:
    zones = PoolScaling(max_count=20, zones=("a", "b", "c"), in_flight_limit_count=LIMIT)
    scaler = Scaler(replace(SETTINGS, pools=(zones,), up_count=9))
    view = FleetView(GateSettings(), Beliefs(0.0, 0.01))
    view.add_replica(ReplicaAdded("first", LIMIT, zone="a"))
    started = scaler.tick(view, 0.0, {"": 60})
    assert sorted(e.zone for e in started if isinstance(e, StartReplica)) == ["a"] * 2 + ["b"] * 3 + ["c"] * 3
    started = scaler.tick(view, 60.0, {"": 100}, lost_zones={"a"})
    assert {e.zone for e in started if isinstance(e, StartReplica)} == {"b", "c"}


def test_a_lost_zone_without_replicas_gets_one_on_trial_that_keeps_nothing_else_waiting() -> None:
    zones = PoolScaling(min_count=2, max_count=4, zones=("a", "b"), in_flight_limit_count=LIMIT)
    scaler = Scaler(replace(SETTINGS, pools=(zones,)))
    view = FleetView(GateSettings(), Beliefs(0.0, 0.01))
    view.add_replica(ReplicaAdded("first", LIMIT, zone="b"))
    view.add_replica(ReplicaAdded("second", LIMIT, zone="b"))
    tried_s = []
    for step in range(0, 600, 10):
        for effect in scaler.tick(view, float(step), {}, lost_zones={"a"}):
            assert isinstance(effect, StartReplica) and effect.zone == "a"
            tried_s.append(step)
            assert scaler.start_failed(effect.replica_id, step + 1.0)
    pauses = [later - sooner for sooner, later in pairwise(tried_s)]
    assert pauses == sorted(pauses) and pauses[-1] >= 160
    (other,) = scaler.tick(view, 601.0, {"": 20}, lost_zones={"a"})  # by then another trial is not due
    assert isinstance(other, StartReplica) and other.zone == "b"
    view.add_replica(ReplicaAdded("third", LIMIT, zone="a"))
    later = scaler.tick(view, 9000.0, {}, lost_zones={"a"})
    assert not any(isinstance(effect, StartReplica) for effect in later)  # it is seen by who is there


def test_spares_for_a_lost_zone_stand_beyond_the_need() -> None:
    zones = PoolScaling(max_count=20, zones=("a", "b", "c"), in_flight_limit_count=LIMIT)
    scaler = Scaler(replace(SETTINGS, pools=(zones,), up_count=20), spare_zones_count=1)
    view = FleetView(GateSettings(), Beliefs(0.0, 0.01))
    assert len(scaler.tick(view, 0.0, {"": 28})) == 6  # 4 needed; two in each zone leave 4
    of_four = Scaler(scaler.settings, spare_zones_count=1)
    for number in range(4):
        view.add_replica(ReplicaAdded(f"first-{number}", LIMIT, zone="abca"[number]))
    assert len(of_four.tick(view, 0.0, {"": 30})) == 4  # 4.3 needed, so 5; as near as it is to 4


def test_a_trial_in_a_lost_zone_is_one_at_a_time_within_the_bound_and_given_up_when_silent() -> None:
    view = FleetView(GateSettings(), Beliefs(0.0, 0.01))
    for name in ("first", "second"):
        view.add_replica(ReplicaAdded(name, LIMIT, zone="b"))
    for most, expected_s in ((2, []), (4, [0, 320])):
        zones = PoolScaling(min_count=2, max_count=most, zones=("a", "b"), in_flight_limit_count=LIMIT)
        scaler = Scaler(replace(SETTINGS, pools=(zones,), start_s_max=300.0))
        asked = [step for step in range(0, 600, 10) if scaler.tick(view, step, {}, lost_zones={"a"})]
        starts = [step for step in asked if step < 600]
        assert starts[: len(expected_s)] == expected_s and len(starts) == len(expected_s)


def test_new_replicas_run_what_most_of_the_pool_runs_and_a_trial_is_left_alone() -> None:
    run = pool(Scaler(SETTINGS), 2, version="1")
    for number in range(4):
        run.view.add_replica(ReplicaAdded(f"trial-{number}", LIMIT, version="2"))
    run.run(constant(10.0), 300.0, kept=("2",))
    versions = [replica.added.version for replica in run.view.replicas.values()]
    assert versions.count("2") == 4 and versions.count("1") == 8
    run.run(constant(0.0), 4000.0, kept=("2",))
    versions = [replica.added.version for replica in run.view.replicas.values()]
    assert versions.count("2") == 4 and versions.count("1") == 1


def wave(at_s: float) -> float:
    """Ten minutes of calm, then a peak that rises within half a minute: each twenty minutes."""
    phase = at_s % 1200.0
    return 2.0 + 18.0 * min(max((phase - 600.0) / 30.0, 0.0), 1.0)


def test_a_repeating_rise_is_met_by_the_forecast_and_not_by_reaction() -> None:
    """From the third wave on, the forecast knows the season; reaction is too late each time."""
    short = {}
    quick = replace(SETTINGS, up_count=20, down_pause_s=30.0, down_fraction=0.5)
    for name, forecast in (("reactive", None), ("predictive", ForecastSettings(30.0, 1200.0))):
        run = pool(Scaler(replace(quick, forecast=forecast)), 3).run(wave, 2400.0)
        before_s = run.short_s
        short[name] = run.run(wave, 6000.0).short_s - before_s
    assert short["reactive"] > 3 * 50.0 and short["predictive"] < 0.2 * short["reactive"]


def test_a_warm_pool_meets_rises_that_nobody_can_foretell() -> None:
    def rate(at_s: float) -> float:
        return 5.0 + 6.0 * (int(at_s / 150.0) * 7919 % 5 == 0)

    short = {}
    for name, warm in (("cold", None), ("warm", WarmSettings(covered_fraction=0.99))):
        quick = replace(SETTINGS, down_pause_s=60.0)
        short[name] = pool(Scaler(quick, warm), 5).run(rate, 4000.0).short_s
    assert short["cold"] > 0 and short["warm"] < 0.5 * short["cold"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_fraction": 0.0},
        {"tick_s": 0.0},
        {"up_ratio": 0.5},
        {"start_s": 10.0, "start_s_max": 5.0},
        {"pools": ()},
        {"pools": (PoolScaling(), PoolScaling())},
    ],
)
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        ScalingSettings(**wrong)
