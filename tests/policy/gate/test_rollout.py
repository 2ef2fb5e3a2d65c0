from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import ReplicaAdded, StartReplica, StopReplica
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.rollout import Rollout
from twofold.policy.gate.settings import Beliefs, GateSettings, RolloutSettings

SETTINGS = RolloutSettings(surge_fraction=0.25, start_backoff_s=30.0)
ZONES = ("a", "b")


@dataclass
class Pool:
    """Executes a rollout's effects: what is started is ready at the next tick, what is stopped is gone."""

    count: int
    rollout: Rollout = field(default_factory=lambda: Rollout(SETTINGS))
    view: FleetView = field(default_factory=lambda: FleetView(GateSettings(), Beliefs(0.0, 0.01)))
    fails: bool = False
    start_s: float = 0.0  # longer: what is started is not ready at the next tick
    starting: list[StartReplica] = field(default_factory=list)
    least: int = 10**9
    most: int = 0
    asked_s: dict[str, float] = field(default_factory=dict)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        for number in range(self.count):
            self.view.add_replica(ReplicaAdded(f"old-{number}", 8, ZONES[number % 2], version="1", model="m"))
        self.rollout.offered(self.view, "2", "")

    def run(
        self, ticks: int, share: float | None = None, promoted: bool = False, scaled: tuple[str, ...] = ()
    ) -> None:
        shares = {} if share is None else {"2": share}
        for _ in range(ticks):
            self.now_s += SETTINGS.tick_s
            ready, self.starting = self.starting, []
            for asked in ready:
                if self.now_s - self.asked_s[asked.replica_id] < self.start_s:
                    self.starting.append(asked)
                    continue
                if self.fails:
                    assert self.rollout.start_failed(asked.replica_id, self.now_s)
                    continue
                self.view.add_replica(
                    ReplicaAdded(asked.replica_id, 8, asked.zone, "", asked.model, asked.version)
                )
                self.rollout.replica_added(asked.replica_id, ["2"] if promoted else [])
            won = ["2"] if promoted else []
            for effect in self.rollout.tick(self.view, self.now_s, shares, won, scaled):
                if isinstance(effect, StartReplica):
                    self.starting.append(effect)
                    self.asked_s[effect.replica_id] = self.now_s
                    continue
                assert isinstance(effect, StopReplica)
                if self.view.replicas.pop(effect.replica_id, None) is None:
                    (stopped,) = [each for each in self.starting if each.replica_id == effect.replica_id]
                    self.starting.remove(stopped)
            self.least = min(self.least, len(self.view.replicas))
            self.most = max(self.most, len(self.view.replicas) + len(self.starting))

    def versions(self) -> tuple[int, int]:
        versions = [replica.added.version for replica in self.view.replicas.values()]
        return versions.count("1"), versions.count("2")


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [
        (16, 0.01, (16, 1)),  # a single one stands beside the pool: 99 % of the requests need all the others
        (16, 0.05, (16, 1)),
        (16, 0.25, (12, 4)),
        (16, 0.5, (8, 8)),
        (1, 0.5, (1, 1)),
        (3, 0.5, (2, 2)),
    ],
)
def test_a_stage_has_its_share_of_the_pool_and_the_rest_keeps_what_it_needs(
    count: int, share: float, expected: tuple[int, int]
) -> None:
    pool = Pool(count)
    pool.run(30, share)
    assert pool.versions() == expected


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.lists(st.sampled_from([0.01, 0.25, 0.5]), max_size=3), st.booleans())
def test_a_pool_is_never_smaller_than_it_was_and_ends_with_one_version(
    count: int, shares: list[float], promoted: bool
) -> None:
    pool = Pool(count)
    for share in sorted(shares):
        pool.run(8, share)
    if promoted:
        pool.run(80, promoted=True)
        assert pool.least >= count and pool.versions() == (0, count)
    else:
        pool.run(20)
        assert pool.versions() == (count, 0)
    assert pool.most <= count + max(count // 4, 1) + 1 and not pool.rollout.courses


def test_a_rolled_back_release_is_gone_at_once() -> None:
    pool = Pool(8)
    pool.run(30, 0.5)
    pool.run(1)
    assert pool.versions() == (4, 0)
    pool.run(2)
    assert pool.versions() == (8, 0)


@pytest.mark.parametrize("scaled", [(), ("",)])
def test_what_starts_of_a_rolled_back_release_is_stopped_before_it_comes(scaled: tuple[str, ...]) -> None:
    pool = Pool(8, start_s=60.0)
    pool.run(5, 0.25, scaled=scaled)
    assert {asked.version for asked in pool.starting} == {"2"}
    pool.run(1, scaled=scaled)
    assert pool.starting == [] and pool.rollout.courses == {}
    pool.run(30, scaled=scaled)
    assert pool.versions() == (8, 0)


def test_the_sick_are_stopped_first_and_then_the_idlest() -> None:
    pool = Pool(8)
    for number, replica in enumerate(pool.view.replicas.values()):
        replica.in_flight_count = 8 - number
    pool.view.replicas["old-0"].circuit = Circuit(until_s=9e9)
    pool.run(30, 0.25)
    assert sorted(set(pool.view.replicas)) == [f"old-{n}" for n in range(1, 7)] + ["release-1", "release-2"]


def test_where_a_scaler_keeps_the_size_old_ones_go_only_after_a_promotion_and_one_for_one() -> None:
    pool = Pool(8)
    pool.run(30, 0.5, scaled=("",))
    assert pool.versions() == (8, 4)
    pool.run(60, promoted=True, scaled=("",))
    assert pool.versions() == (0, 12) and pool.least >= 8
    other = Pool(8)
    other.run(30, 0.25, scaled=("",))
    other.run(5, scaled=("",))
    assert other.versions() == (8, 0)


def test_a_start_that_fails_is_tried_again_after_a_pause() -> None:
    pool = Pool(4)
    pool.fails = True
    pool.run(13, 0.01)  # 65 s: at 5 s, and 30 s after each failure, a tick later
    assert pool.rollout._given_ids == 2 and pool.versions() == (4, 0)
    pool.fails = False
    pool.run(10, 0.01)
    assert pool.versions() == (4, 1)


def test_new_replicas_are_like_the_old_ones_and_fill_the_zones_evenly() -> None:
    pool = Pool(8)
    pool.run(30, 0.5)
    zones = [replica.added.zone for replica in pool.view.replicas.values() if replica.added.version == "2"]
    assert sorted(zones) == ["a", "a", "b", "b"]
    assert {replica.added.model for replica in pool.view.replicas.values()} == {"m"}


@pytest.mark.parametrize("wrong", [{"surge_fraction": 0.0}, {"tick_s": 0.0}, {"start_backoff_s": 0.0}])
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        RolloutSettings(**wrong)
