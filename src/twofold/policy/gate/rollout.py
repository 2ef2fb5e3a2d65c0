"""How the replicas of a release come and go, stage by stage: new ones first, then old ones end. Mutable.

Under trial   as many new replicas as the stage's share of the pool, at least one; the pool keeps its size and
              is never below what the rest of the requests needs.
Promoted      old replicas are replaced, a few at a time: a new one is ready before an old one is stopped.
Rolled back   new replicas end at once, those that are not ready yet too, and the pool is filled up again with
              the version that ran.

Where a scaler keeps the pool's size (`scaled`), it alone starts and stops old replicas; only the replacement
of a promoted release is done here, one for one.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twofold.policy.gate.events import Effect, StartReplica, StopReplica
from twofold.policy.gate.fleet_view import FleetView, Replica
from twofold.policy.gate.settings import RolloutSettings
from twofold.policy.gate.starts import Starts


@dataclass(slots=True)
class Course:
    """One release's way through a pool. Mutable."""

    pool: str
    version: str
    old_version: str
    size_count: int  # of the pool when the release was offered
    starts: Starts  # and their versions
    owed_count: int = 0  # old replicas that a new one has come for


class Rollout:
    """Rolls out the releases of one gate."""

    def __init__(self, settings: RolloutSettings) -> None:
        self.settings = settings
        self.courses: dict[str, Course] = {}  # by version
        self._given_ids = 0

    def offered(self, view: FleetView, version: str, pool: str) -> None:
        """A release is to be tried: remember what the pool is."""
        old = [replica for replica in _members(view, pool) if replica.added.version != version]
        versions = Counter(replica.added.version for replica in old)
        common = max(versions, key=lambda name: (versions[name], name)) if versions else ""
        self.courses[version] = Course(pool, version, common, max(len(old), 1), Starts(self.settings))

    def replica_added(self, replica_id: str, promoted: Collection[str]) -> None:
        """One is ready."""
        for course in self.courses.values():
            if course.starts.came(replica_id) is not None and course.version in promoted:
                course.owed_count += 1

    def start_failed(self, replica_id: str, now_s: float) -> bool:
        """One that was started will not come. Whether it was started here."""
        return any(course.starts.failed(replica_id, now_s) for course in self.courses.values())

    def tick(
        self,
        view: FleetView,
        now_s: float,
        shares: Mapping[str, float],
        promoted: Collection[str],
        scaled_pools: Collection[str] = (),
    ) -> list[Effect]:
        """What to start and stop now. `shares`: of the versions under trial; `promoted`: those that won."""
        effects: list[Effect] = []
        stopped: set[str] = set()
        for course in list(self.courses.values()):
            course.starts.given_up(now_s)
            stopped |= {effect.replica_id for effect in effects if isinstance(effect, StopReplica)}
            members = [r for r in _members(view, course.pool) if r.replica_id not in stopped]
            new = [replica for replica in members if replica.added.version == course.version]
            old = [replica for replica in members if replica.added.version not in self.courses]
            scaled = course.pool in scaled_pools
            if course.version in shares:
                effects += self._tried(course, old, new, shares[course.version], scaled, now_s)
            elif course.version in promoted:
                effects += self._promoted(course, old, new, scaled, now_s)
                if not old:
                    del self.courses[course.version]
            else:
                effects += self._rolled_back(course, old, new, scaled, now_s)
                if not new and not course.starts.pending:
                    del self.courses[course.version]
        return effects

    def _tried(
        self,
        course: Course,
        old: Sequence[Replica],
        new: Sequence[Replica],
        share_fraction: float,
        scaled: bool,
        now_s: float,
    ) -> list[Effect]:
        size_count = course.size_count
        goal_count = max(math.ceil(share_fraction * size_count - 1e-9), 1)
        effects = self._started(course, course.version, goal_count - len(new), [*old, *new], now_s)
        if not scaled:
            kept_count = math.ceil((1 - share_fraction) * size_count - 1e-9)
            beyond_count = min(len(old) - kept_count, len(old) + len(new) - size_count)
            effects += _stopped(old, beyond_count)
        return effects

    def _promoted(
        self, course: Course, old: Sequence[Replica], new: Sequence[Replica], scaled: bool, now_s: float
    ) -> list[Effect]:
        if scaled:
            effects = self._started(course, course.version, len(old) - course.owed_count, [*old, *new], now_s)
            over_count = min(course.owed_count, len(old))
            course.owed_count -= over_count
            return effects + _stopped(old, over_count)
        missing_count = course.size_count - len(new)
        effects = self._started(course, course.version, missing_count, [*old, *new], now_s)
        return effects + _stopped(old, min(len(old), len(old) + len(new) - course.size_count))

    def _rolled_back(
        self, course: Course, old: Sequence[Replica], new: Sequence[Replica], scaled: bool, now_s: float
    ) -> list[Effect]:
        effects: list[Effect] = [StopReplica(replica.replica_id) for replica in new]
        starting = [name for name, (_, version) in course.starts.pending.items() if version == course.version]
        # Nobody else would ever stop one that came later: it is of a version that nobody runs.
        effects += [StopReplica(name) for name in starting]
        course.starts.forget(lambda version: version == course.version)
        if not scaled:
            missing_count = course.size_count - len(old)
            effects += self._started(
                course, course.old_version, missing_count, old or new, now_s, at_once=True
            )
        return effects

    def _started(
        self,
        course: Course,
        version: str,
        missing_count: int,
        like: Sequence[Replica],
        now_s: float,
        *,
        at_once: bool = False,
    ) -> list[Effect]:
        """Start some of those that are missing, where the pool has fewest, like the replicas that it has."""
        surge_count = max(int(self.settings.surge_fraction * course.size_count), 1)
        room_count = course.size_count if at_once else surge_count
        count = min(missing_count, room_count) - len(course.starts.pending)
        if count <= 0 or now_s < course.starts.not_before_s or not like:
            return []
        zones = Counter(replica.added.zone for replica in like)
        effects: list[Effect] = []
        for _ in range(count):
            zone = min(zones, key=lambda name: (zones[name], name))
            zones[zone] += 1
            self._given_ids += 1
            replica_id = f"release-{self._given_ids}"
            course.starts.asked(replica_id, now_s, version)
            effects.append(StartReplica(replica_id, like[0].added.pool, zone, like[0].added.model, version))
        return effects


def _members(view: FleetView, pool: str) -> list[Replica]:
    """Replicas of a pool that stay; every one is of the pool without a name."""
    return [r for r in view.replicas.values() if not r.draining and (not pool or r.added.pool == pool)]


def _stopped(old: Sequence[Replica], count: int) -> list[Effect]:
    """Stop so many: the sick, then the idlest."""
    order = sorted(old, key=lambda r: (r.healthy, r.in_flight_count, r.replica_id))
    return [StopReplica(replica.replica_id) for replica in order[: max(count, 0)]]
