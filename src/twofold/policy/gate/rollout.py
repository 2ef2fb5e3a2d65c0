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
from twofold.policy.gate.fleet_view import FleetView, Replica, most_common_version
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
        self.courses: dict[tuple[str, str], Course] = {}  # by version and pool
        self._given_ids = 0

    def offered(self, view: FleetView, version: str, pool: str) -> None:
        """A release is to be tried: remember what the pool is."""
        old = [replica for replica in view.members(pool) if replica.added.version != version]
        size_count, starts = max(len(old), 1), Starts(self.settings)
        self.courses[version, pool] = Course(pool, version, most_common_version(old), size_count, starts)

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
        released = {version for version, _ in self.courses}
        for course in list(self.courses.values()):
            course.starts.given_up(now_s)
            stopped |= {effect.replica_id for effect in effects if isinstance(effect, StopReplica)}
            members = [each for each in view.members(course.pool) if each.replica_id not in stopped]
            new = [replica for replica in members if replica.added.version == course.version]
            old = [replica for replica in members if replica.added.version not in released]
            version, size_count, like = course.version, course.size_count, [*old, *new]
            scaled, over_count = course.pool in scaled_pools, 0
            if version in shares:
                goal_count = max(math.ceil(shares[version] * size_count - 1e-9), 1)
                effects += self._started(course, version, goal_count - len(new), like, now_s)
                if not scaled:
                    kept_count = math.ceil((1 - shares[version]) * size_count - 1e-9)
                    over_count = min(len(old) - kept_count, len(like) - size_count)
            elif version in promoted:
                missing_count = len(old) - course.owed_count if scaled else size_count - len(new)
                effects += self._started(course, version, missing_count, like, now_s)
                over_count = min(len(old), course.owed_count if scaled else len(like) - size_count)
                course.owed_count -= over_count if scaled else 0
                if not old:
                    del self.courses[version, course.pool]
            else:
                # Nobody else would ever stop one that came later: it is of a version that nobody runs.
                starting = [name for name, (_, what) in course.starts.pending.items() if what == version]
                effects += [StopReplica(name) for name in (*(each.replica_id for each in new), *starting)]
                course.starts.forget(starting)
                if not scaled:
                    missing_count = size_count - len(old)
                    effects += self._started(course, course.old_version, missing_count, old or new, now_s)
                if not new and not course.starts.pending:
                    del self.courses[version, course.pool]
            # The sick end first, then the idlest.
            order = sorted(old, key=lambda r: (r.healthy, r.in_flight_count, r.replica_id))
            effects += [StopReplica(replica.replica_id) for replica in order[: max(over_count, 0)]]
        return effects

    def _started(
        self, course: Course, version: str, missing_count: int, like: Sequence[Replica], now_s: float
    ) -> list[Effect]:
        """Start some of those that are missing, where the pool has fewest, like the replicas that it has."""
        surge_count = max(int(self.settings.surge_fraction * course.size_count), 1)
        room_count = surge_count if version == course.version else course.size_count  # what ran: at once
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
