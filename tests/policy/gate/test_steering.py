"""The gate with everything on that steers the fleet, against a world of replicas that come, go and differ."""

import heapq
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from twofold.core.data import from_data
from twofold.live.gateway.replays import entry_from_line, first_difference
from twofold.policy.gate.events import (
    AnswerScored,
    Cause,
    EjectReplica,
    Event,
    FailOverZone,
    Hold,
    Probe,
    ProbeAnswered,
    ProbeFailed,
    PromoteRelease,
    Refuse,
    ReleaseOffered,
    ReleaseWithdrawn,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaReported,
    ReplicaStartFailed,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    RestoreZone,
    RollBackRelease,
    Send,
    StageRelease,
    StartReplica,
    StopReplica,
    to_line,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    Beliefs,
    CanarySettings,
    ClassSettings,
    ForecastSettings,
    GateSettings,
    LimitSettings,
    OutlierSettings,
    PoolRules,
    PoolScaling,
    QueueSettings,
    Rate,
    RolloutSettings,
    Routing,
    RoutingSettings,
    ScalingSettings,
    Stage,
    WarmSettings,
    ZoneSettings,
)
from twofold.policy.machine import Entry, Woke

BELIEFS = Beliefs(0.0001, 0.02)
LIMIT = 8
QUICK = CanarySettings(
    stages=(Stage(0.2, 100), Stage(0.5, 100)), request_limit_count=800, block_count=25
)  # fmt: skip
ALL_ON = GateSettings(
    probe_every_s=1.0,
    routing=Routing.PREFIX,
    queue=QueueSettings(),
    outliers=OutlierSettings(requests_min_count=10),
    zones=ZoneSettings(restore_after_s=5.0),
    scaling=ScalingSettings(
        pools=(PoolScaling(zones=("a", "b"), max_count=12, in_flight_limit_count=LIMIT),),
        start_s=10.0,
        up_pause_s=10.0,
        down_pause_s=40.0,
        forecast=ForecastSettings(5.0, 100.0),
    ),
    warm=WarmSettings(max_count=2),
    canary=QUICK,
    rollout=RolloutSettings(),
)


@dataclass
class World:
    """Runs a gate over replicas that take requests at once. Mutable: its state is the run."""

    settings: GateSettings
    seed: int = 1
    start_s: float = 8.0
    slow: dict[str, float] = field(default_factory=dict)  # by version or replica
    failing: dict[str, float] = field(default_factory=dict)  # by version
    dead_zone: Callable[[float], str] = lambda _now_s: ""
    start_fails: Callable[[float], bool] = lambda _now_s: False

    def __post_init__(self) -> None:
        self.gate = Gate(self.settings, BELIEFS)
        self.draws = np.random.default_rng(self.seed)
        self.heap: list[tuple[float, int, Event]] = []
        self.order = count()
        self.entries: list[Entry] = []
        self.told: list[tuple[float, Any]] = []
        self.alive: dict[str, ReplicaAdded] = {}
        self.sent: Counter[str] = Counter()
        self.now_s = 0.0

    def at(self, at_s: float, event: Event) -> None:
        heapq.heappush(self.heap, (at_s, next(self.order), event))

    def add(self, number: int, zone: str = "", version: str = "1", pool: str = "", model: str = "") -> None:
        for index in range(number):
            name = f"r{len(self.heap)}-{index}"
            self.at(0.0, ReplicaAdded(name, LIMIT, zone=zone, version=version, pool=pool, model=model))

    def traffic(self, rate: Callable[[float], float], until_s: float) -> "World":
        now_s = 0.0
        while (now_s := now_s + self.draws.exponential(1 / max(rate(now_s), 1e-3))) < until_s:
            if self.draws.random() < rate(now_s) / max(rate(now_s), 1e-3):
                session = int(self.draws.integers(40))
                self.at(
                    now_s,
                    RequestArrived(
                        600, 40, session_id=f"s{session}", prefix_blocks=(session, 100 + session), zone="a"
                    ),
                )
        return self

    def run(self, until_s: float) -> "World":
        while self.now_s < until_s:
            wake_s = self.gate.wake_at_s()
            if self.heap and (wake_s is None or self.heap[0][0] <= wake_s):
                self.now_s, _, event = heapq.heappop(self.heap)
            elif wake_s is not None:
                self.now_s, event = max(wake_s, self.now_s), Woke()
            else:
                break
            self.tell(event)
        return self

    def tell(self, event: Event) -> None:
        if isinstance(event, ReplicaAdded):
            self.alive[event.replica_id] = event
        effects = self.gate.handle(event, self.now_s)
        self.entries.append(Entry(self.now_s, event, tuple(effects)))
        if isinstance(event, RequestArrived):
            kinds = [type(effect) for effect in effects if isinstance(effect, Send | Hold | Refuse)]
            assert len(kinds) == 1, effects
        for effect in effects:
            self.do(effect)

    def do(self, effect: Any) -> None:
        now_s = self.now_s
        match effect:
            case Send():
                self.serve(effect)
            case Probe():
                lost = self.alive[effect.replica_id].zone == self.dead_zone(now_s) != ""
                of = effect.replica_id, effect.number
                self.at(now_s + 0.01, ProbeFailed(*of, Cause.REFUSED) if lost else ProbeAnswered(*of))
            case StartReplica():
                made = ReplicaAdded(
                    effect.replica_id, LIMIT, effect.zone, effect.pool, effect.model, effect.version
                )
                failed = self.start_fails(now_s)
                self.at(now_s + self.start_s, ReplicaStartFailed(effect.replica_id) if failed else made)
                self.told.append((now_s, effect))
            case StopReplica():
                self.at(now_s + 5.0, ReplicaRemoved(effect.replica_id))
                self.told.append((now_s, effect))
            case _:
                self.told.append((now_s, effect))

    def serve(self, effect: Send) -> None:
        now_s, name = self.now_s, effect.replica_id
        replica = self.alive[name]
        seen = self.gate.view.replicas[name]
        assert seen.in_flight_count <= seen.in_flight_limit and not seen.draining, name  # INV-14
        assert seen.ejected_until_s is None and not seen.zone_lost, name
        self.sent[replica.version] += 1
        if replica.zone == self.dead_zone(now_s) != "":
            self.at(now_s + 0.01, ResponseFailed(effect.request_id, Cause.REFUSED))
            return
        slow = self.slow.get(replica.version, 1.0) * self.slow.get(name, 1.0)
        ttft_s, tpot_s = self.draws.lognormal((-2.5, -4.0), (0.3, 0.2)) * slow
        if self.draws.random() < self.failing.get(replica.version, 0.0):
            self.at(now_s + ttft_s, ResponseFailed(effect.request_id, Cause.ERROR, effect.attempt))
            return
        self.at(now_s + ttft_s, ResponseStarted(effect.request_id, effect.attempt))
        self.at(now_s + ttft_s + 39 * tpot_s, ResponseEnded(effect.request_id, 40, None, effect.attempt))

    def kinds(self) -> Counter[str]:
        return Counter(type(effect).__name__ for _, effect in self.told)


def only(**parts: Any) -> GateSettings:
    """Those parts on, the rest off."""
    off = dict.fromkeys(("outliers", "zones", "scaling", "warm", "canary", "rollout"))
    return replace(ALL_ON, **{**off, **parts})


def restless(seed: int) -> World:
    """A day on which everything happens that can."""
    world = World(
        ALL_ON,
        seed,
        slow={"3": 1.6},
        failing={"2": 0.02},
        dead_zone=lambda now_s: "a" if 150.0 <= now_s < 180.0 else "",
        start_fails=lambda now_s: 60.0 < now_s < 75.0,
    )
    world.add(2, "a")
    world.add(2, "b")
    world.at(40.0, ReleaseOffered("2"))
    world.at(200.0, ReleaseOffered("3"))
    world.at(210.0, ReleaseOffered("4"))
    world.at(230.0, ReleaseWithdrawn("4"))
    for at_s in range(41, 230, 3):
        version = "2" if at_s < 200 else "4"
        world.at(float(at_s), AnswerScored(version, 0.5 + 0.4 * math.sin(at_s), 0.9))
    for at_s in range(0, 300, 20):
        world.at(at_s + 1.0, ReplicaReported("r0-0", float(at_s), 3, 0, 0.9))
    return world.traffic(lambda at_s: 4.0 + 3.5 * math.sin(at_s / 16.0), 260.0).run(300.0)


def test_with_everything_on_requests_are_accounted_for_and_a_log_replays() -> None:  # INV-13, INV-15
    world = restless(1)
    counts, view = world.gate.view.counts, world.gate.view
    over = counts.finished + counts.refused + counts.gave_up + counts.left
    assert counts.arrived == over + len(view.requests) + len(view.held) > 600
    assert {"StartReplica", "StopReplica", "StageRelease", "FailOverZone", "RestoreZone"} <= set(
        world.kinds()
    )
    assert (
        first_difference(
            Gate(ALL_ON, BELIEFS), map(entry_from_line, [to_line(entry) for entry in world.entries])
        )
        is None
    )


def test_a_bad_release_brings_its_replicas_is_found_out_and_is_gone() -> None:
    world = World(only(canary=QUICK, rollout=RolloutSettings()), slow={"2": 1.3})
    world.add(4)
    world.at(20.0, ReleaseOffered("2"))
    world.traffic(lambda _: 12.0, 200.0).run(200.0)
    told = [effect for _, effect in world.told if not isinstance(effect, StartReplica | StopReplica)]
    staged, rolled_back = told
    assert staged == StageRelease("2", 0.2) and isinstance(rolled_back, RollBackRelease)
    assert rolled_back.reason in ("tpot worse", "ttft worse")
    assert {replica.added.version for replica in world.gate.view.replicas.values()} == {"1"}
    assert len(world.gate.view.replicas) == 4
    assert 0 < world.sent["2"] < 0.25 * world.sent["1"]


def test_a_good_release_is_staged_promoted_and_ends_up_everywhere() -> None:
    world = World(only(canary=QUICK, rollout=RolloutSettings()))
    world.add(4)
    world.at(10.0, ReleaseOffered("2"))
    world.traffic(lambda _: 14.0, 300.0).run(300.0)
    told = [effect for _, effect in world.told if not isinstance(effect, StartReplica | StopReplica)]
    assert told == [StageRelease("2", 0.2), StageRelease("2", 0.5), PromoteRelease("2")]
    assert {replica.added.version for replica in world.gate.view.replicas.values()} == {"2"}
    assert len(world.gate.view.replicas) == 4
    assert world.gate.view.counts.refused == 0


def test_a_smaller_model_is_no_part_of_what_is_released_or_scaled() -> None:
    classes = (ClassSettings(smaller_model="mini"),)
    world = World(replace(only(canary=QUICK, rollout=RolloutSettings()), classes=classes))
    world.add(4)
    world.add(2, version="small", model="mini")
    world.at(10.0, ReleaseOffered("2"))
    world.traffic(lambda _: 14.0, 300.0).run(300.0)
    there = Counter((each.added.model, each.added.version) for each in world.gate.view.replicas.values())
    assert there == {("", "2"): 4, ("mini", "small"): 2} and not world.sent["small"]
    scaled = World(replace(only(scaling=ALL_ON.scaling), classes=classes))
    scaled.add(1, "a")
    scaled.add(2, "a", model="mini")
    scaled.traffic(lambda at_s: 8.0 if at_s < 100.0 else 0.2, 300.0).run(400.0)
    there = Counter(each.added.model for each in scaled.gate.view.replicas.values())
    assert there["mini"] == 2 and scaled.kinds()["StartReplica"] and scaled.kinds()["StopReplica"]


@pytest.mark.parametrize("slow", [{}, {"2": 1.5}], ids=["good", "bad"])
def test_a_release_of_two_pools_has_one_trial_and_ends_everywhere_or_nowhere(slow: dict[str, float]) -> None:
    rules = PoolRules("talk", "night", ("batch",), borrow_fraction=0.0)
    settings = replace(only(canary=QUICK, rollout=RolloutSettings()), routes=RoutingSettings(pools=rules))
    world = World(settings, slow=slow)
    world.add(4, pool="talk")
    world.add(2, pool="night")
    world.at(10.0, ReleaseOffered("2"))
    world.traffic(lambda _: 14.0, 300.0).run(400.0)
    told = [effect for _, effect in world.told if not isinstance(effect, StartReplica | StopReplica)]
    assert [type(each) for each in told].count(PromoteRelease) == (not slow)
    assert [type(each) for each in told].count(RollBackRelease) == bool(slow)
    there = Counter((each.added.pool, each.added.version) for each in world.gate.view.replicas.values())
    version = "1" if slow else "2"
    assert there == {("talk", version): 4, ("night", version): 2}
    stopped = [at_s for at_s, effect in world.told if isinstance(effect, StopReplica)]
    promoted = [at_s for at_s, effect in world.told if isinstance(effect, PromoteRelease)]
    started = [(at_s, each) for at_s, each in world.told if isinstance(each, StartReplica)]
    assert all(promoted and at_s >= promoted[0] for at_s, each in started if each.pool == "night")
    assert stopped and world.gate.view.counts.refused == 0 and not world.gate.releases


def test_a_session_tries_the_release_or_does_not_but_does_not_change_sides_in_a_stage() -> None:
    world = World(only(canary=replace(QUICK, stages=(Stage(0.4, 10**6),), request_limit_count=10**6)))
    world.add(2)
    world.add(2, version="2")
    world.at(1.0, ReleaseOffered("2"))
    world.traffic(lambda _: 5.0, 60.0).run(60.0)
    sides: dict[str, set[str]] = {}
    for entry in world.entries:
        if isinstance(entry.event, RequestArrived) and entry.now_s > 1.0:
            (send,) = entry.effects
            assert isinstance(send, Send)
            sides.setdefault(entry.event.session_id, set()).add(world.alive[send.replica_id].version)
    assert all(len(versions) == 1 for versions in sides.values())
    assert {version for versions in sides.values() for version in versions} == {"1", "2"}


def test_a_failed_attempt_of_a_release_is_repeated_where_the_old_version_runs() -> None:
    world = World(only(canary=QUICK), failing={"2": 1.0})
    world.add(2)
    world.add(2, version="2")
    world.at(1.0, ReleaseOffered("2"))
    world.traffic(lambda _: 5.0, 60.0).run(80.0)
    assert world.gate.view.counts.gave_up == 0 and world.gate.view.counts.finished > 200
    assert RollBackRelease("2", "failures worse") in [effect for _, effect in world.told]
    assert world.sent["2"] < 40


def test_a_slow_replica_is_ejected_and_gets_nothing_until_its_time_is_over() -> None:
    settings = only(outliers=OutlierSettings(requests_min_count=10, eject_s=20.0))
    world = World(replace(settings, routing=Routing.ROUND_ROBIN), slow={"r1-0": 4.0})
    for _ in range(5):
        world.add(1)
    world.traffic(lambda _: 10.0, 60.0).run(60.0)
    assert [e.replica_id for _, e in world.told if isinstance(e, EjectReplica)][:1] == ["r1-0"]
    assert world.kinds()["ReadmitReplica"] >= 1


def test_a_session_whose_requests_fail_wherever_they_go_ejects_nobody() -> None:  # INV-17
    world = World(replace(only(outliers=OutlierSettings(requests_min_count=10)), routing=Routing.SESSION))
    for _ in range(6):
        world.add(1)
    world.traffic(lambda _: 12.0, 90.0)
    for at_s in range(20, 90):
        world.at(float(at_s), RequestArrived(100, 40, session_id="poison"))
    arrived, poisoned = world.serve, set()

    def serve(effect: Send) -> None:
        if world.gate.view.requests[effect.request_id].arrival.session_id == "poison":
            poisoned.add(effect.replica_id)
            world.at(world.now_s + 0.1, ResponseFailed(effect.request_id, Cause.ERROR, effect.attempt))
        else:
            arrived(effect)

    world.serve = serve  # type: ignore[method-assign]
    world.run(90.0)
    assert poisoned and world.kinds()["EjectReplica"] == world.kinds()["OpenCircuit"] == 0


def test_a_replica_whose_failures_others_make_good_is_ejected() -> None:
    world = World(
        replace(only(outliers=OutlierSettings(requests_min_count=10)), routing=Routing.ROUND_ROBIN),
        failing={"flaky": 0.4},
    )
    world.add(5)
    world.run(1.0)
    world.alive["r4-4"] = replace(world.alive["r4-4"], version="flaky")
    world.traffic(lambda _: 12.0, 60.0).run(60.0)
    assert {e.replica_id for _, e in world.told if isinstance(e, EjectReplica)} == {"r4-4"}


def test_a_lost_zone_whose_replicas_are_gone_is_taken_back_by_one_on_trial() -> None:
    scaling = replace(ALL_ON.scaling, forecast=None, down_pause_s=1e6)
    world = World(
        only(zones=ZoneSettings(restore_after_s=5.0), scaling=scaling, canary=None),
        dead_zone=lambda now_s: "a" if 20.0 <= now_s < 100.0 else "",
        start_fails=lambda now_s: now_s < 100.0,
    )
    world.add(1, "a")
    world.add(1, "b")
    world.at(30.0, ReplicaRemoved("r0-0"))
    world.run(400.0)
    zones = [effect for _, effect in world.told if isinstance(effect, FailOverZone | RestoreZone)]
    assert zones == [FailOverZone("a"), RestoreZone("a")]
    assert {replica.added.zone for replica in world.gate.view.replicas.values()} == {"a", "b"}


def test_a_lost_zone_is_failed_over_and_taken_back() -> None:
    world = World(
        only(zones=ZoneSettings(restore_after_s=5.0)),
        dead_zone=lambda now_s: "a" if 20.0 <= now_s < 40.0 else "",
    )
    world.add(3, "a")
    world.add(3, "b")
    world.traffic(lambda _: 10.0, 80.0).run(80.0)
    zones = [(at_s, effect) for at_s, effect in world.told if isinstance(effect, FailOverZone | RestoreZone)]
    assert [effect for _, effect in zones] == [FailOverZone("a"), RestoreZone("a")]
    assert zones[0][0] < 25.0 and 45.0 <= zones[1][0] < 60.0
    assert world.gate.view.counts.gave_up == 0


def test_a_fleet_at_zero_holds_the_first_request_and_starts_a_replica_at_once() -> None:
    scaling = ScalingSettings(pools=(PoolScaling(min_count=0, max_count=3),), idle_s=30.0, down_pause_s=20.0)
    world = World(only(scaling=scaling))
    world.at(100.0, RequestArrived(10, 40))
    world.run(200.0)
    assert (100.0, StartReplica("scaled-1", "", "", "", "")) in world.told
    assert world.gate.view.counts.finished == 1
    assert world.kinds() == {"Hold": 1, "StartReplica": 1, "StopReplica": 1}
    assert not world.gate.view.replicas


def test_what_limits_refuse_keeps_no_replica_up() -> None:
    scaling = ScalingSettings(pools=(PoolScaling(min_count=0, max_count=3),), idle_s=30.0, down_pause_s=20.0)
    limits = LimitSettings(tenants=(("capped", Rate(0.001)),))
    world = World(replace(only(scaling=scaling), limits=limits))
    for step in range(60):
        world.at(100.0 + 5.0 * step, RequestArrived(10, 40, "capped"))
    world.run(300.0)
    assert world.gate.view.counts.refused > 30 and not world.gate.view.replicas


def test_a_wave_is_followed_up_and_down() -> None:
    world = World(only(scaling=replace(ALL_ON.scaling, forecast=None), canary=None))
    world.add(1, "a")
    world.traffic(lambda at_s: 30.0 if 20.0 < at_s < 80.0 else 1.0, 250.0).run(250.0)
    up = [at_s for at_s, effect in world.told if isinstance(effect, StartReplica)]
    down = [at_s for at_s, effect in world.told if isinstance(effect, StopReplica)]
    assert len(up) >= 3 and min(up) > 20.0 and min(down) > 80.0
    assert world.gate.view.counts.refused == 0


@pytest.mark.parametrize(("input_token_s", "helps"), [(1e-4, True), (0.1, False)])
def test_prompts_that_are_late_on_an_idle_replica_ask_for_no_other(input_token_s: float, helps: bool) -> None:
    classes = (ClassSettings(ttft_slo_s=1.0),)
    reactive = replace(ALL_ON.scaling, forecast=None, slo_window_s=120.0)  # of 18 answers
    world = World(replace(only(scaling=reactive, canary=None), classes=classes), slow={"1": 30.0})
    world.gate.view.beliefs = Beliefs(input_token_s, 0.01)
    world.add(2, "a")
    world.traffic(lambda _at_s: 0.15, 200.0).run(200.0)
    assert (world.kinds()["StartReplica"] > 0) == helps


def test_without_steering_the_events_of_releases_and_starts_are_ignored() -> None:
    gate = Gate(GateSettings(), BELIEFS)
    for event in (ReleaseOffered("2"), ReleaseWithdrawn("2"), ReplicaStartFailed("scaled-1")):
        assert gate.handle(event, 1.0) == []
    assert gate.view.counts.ignored == 3 and gate.wake_at_s() is None


def test_settings_with_everything_on_come_back_from_their_json() -> None:
    whole = replace(ALL_ON, routes=RoutingSettings(pools=PoolRules(bulk_classes=("batch",))))
    assert from_data(GateSettings, json.loads(json.dumps(asdict(whole)))) == whole
