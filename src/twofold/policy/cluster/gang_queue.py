"""Jobs, what their teams may have and used, and the queue in which gangs wait for all they need at once.

Quota       What a team is promised. Jobs that may not be preempted live inside it.
Borrowing   Preemptible jobs may go beyond, as long as nobody else uses it; another team's job that is within
            its own quota may take it back. So a quota is never lost by being lent.
Share       What a team used, an old second counting less than a new one, over its weight. The cluster shares
            one resource, accelerators, so a team's dominant share is its share of these.
Order       One line per team and priority, first come first served; a job that comes back keeps its place.
            Between lines: priority first, aged so that nothing starves; then teams that are within their
            quota; then the team that has used least; then the older job.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush

from twofold.policy.cluster.events import JobSubmitted, Placement, StopReason
from twofold.policy.cluster.settings import TeamQuota

IDLE_TEAMS_MAX = 1000  # that nobody named, and whose past is kept
FORGOTTEN_FRACTION = 1e-6  # of one accelerator for one half-life: less is nothing
Standing = tuple[bool, float]  # of a job: beyond its team's quota, share of its team


class JobState(Enum):
    """Where a job is; one that is over is forgotten."""

    QUEUED = "queued"
    PAUSED = "paused"  # failed: waits before it is queued again, and has nothing
    HELD = "held"  # failed: waits before it is started again, and keeps its accelerators
    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """What becomes of a job once its checkpoint is written."""

    reason: StopReason
    given_up: frozenset[str] | None  # nodes that an elastic job leaves; None: it is stopped


@dataclass(slots=True, eq=False)
class Job:
    """One job that is not over. Mutable: it starts, fails, shrinks and starts again."""

    submitted: JobSubmitted
    sequence: int  # of submission
    submitted_s: float
    job_id: str = field(init=False)
    write_s: float = field(init=False)  # of one checkpoint, smoothed over what was seen
    stall_s: float = field(init=False)  # of that, how long it stands still, smoothed alike
    state: JobState = JobState.QUEUED
    placement: Placement = ()
    size_count: int = 0  # accelerators that it has
    whole_count: int = 0  # of them, on nodes that it has alone
    beside: Placement = ()  # its pieces on other nodes
    attempt: int = 0  # the latest
    failed_count: int = 0  # failures since it last got on …
    refused_count: int = 0  # … of these by what it was given
    done_s: float = 0.0  # work in its last checkpoint, in seconds at full size
    since_s: float = 0.0  # work from then on is in no checkpoint
    begun_s: float = 0.0  # when the attempt was ordered
    end_s: float = 0.0  # when it is expected to leave, as last estimated
    saving_since_s: float | None = None  # a checkpoint is being written
    making_room: MakingRoom | None = None
    spared_until_s: float = 0.0  # it could not write a checkpoint: no victim before this
    step_s_max: float = 0.0  # of the steps that its attempt reported
    slow_counts: dict[str, int] = field(default_factory=dict)  # reports in a row that each node was slow in
    slow_node_id: str = ""  # of these, the one that it leaves once its work is safe

    def __post_init__(self) -> None:
        self.job_id, self.write_s = self.submitted.job_id, self.submitted.checkpoint_write_s
        stall_s = self.submitted.checkpoint_stall_s
        self.stall_s = self.write_s if stall_s is None else stall_s

    @property
    def elastic(self) -> bool:
        return self.submitted.minimum_count < self.submitted.accelerator_count

    @property
    def speed_ratio(self) -> float:
        """Work per second as a share of what it does at full size."""
        return self.size_count / self.submitted.accelerator_count


@dataclass(slots=True)
class TeamUse:
    """One team's accelerators now and before. Mutable."""

    quota: TeamQuota
    used_count: int = 0  # accelerators that its jobs have
    firm_count: int = 0  # of them, of jobs that may not be preempted
    decayed_accelerator_s: float = 0.0  # up to `decayed_at_s`
    decayed_at_s: float = 0.0

    def advance(self, now_s: float, half_life_s: float) -> None:
        """Bring the decayed use up to now.

        Formula  u ← u·2^(−Δ/h) + n·h/ln 2·(1 − 2^(−Δ/h))
        Why      the integral of n accelerators over Δ, each second weighed by its age.
        """
        past_s = now_s - self.decayed_at_s
        if past_s > 0:
            kept = 2.0 ** (-past_s / half_life_s)
            grown = self.used_count * half_life_s / math.log(2) * (1.0 - kept)
            self.decayed_accelerator_s = self.decayed_accelerator_s * kept + grown
            self.decayed_at_s = now_s

    @property
    def share(self) -> float:
        """Decayed use over weight; only the order of teams matters. Call `advance` first."""
        return self.decayed_accelerator_s / self.quota.weight_ratio

    @property
    def borrowed_count(self) -> int:
        """Accelerators beyond the quota."""
        quota_count = self.quota.quota_count
        return 0 if quota_count is None else max(self.used_count - quota_count, 0)

    def within_quota(self, accelerator_count: int) -> bool:
        """Whether so many more are still its own."""
        quota_count = self.quota.quota_count
        return quota_count is None or self.used_count + accelerator_count <= quota_count

    def left_count(self, preemptible: bool) -> int | None:
        """Accelerators that a job may still start with; None: no limit.

        All jobs of a team live within quota and loan together; firm ones among themselves within the quota.
        """
        quota = self.quota
        if quota.quota_count is None:
            return None
        limits = [] if preemptible else [quota.quota_count - self.firm_count]
        if quota.borrow_count is not None:
            limits.append(quota.quota_count + quota.borrow_count - self.used_count)
        return min(limits, default=None)


class Teams:
    """All teams that have jobs, or that have used something of late. Mutable."""

    def __init__(self, quotas: tuple[TeamQuota, ...], half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._uses = {quota.team: TeamUse(quota) for quota in quotas}
        self._named = frozenset(self._uses)
        self._unnamed_limit_count = 64

    def of(self, team: str, now_s: float) -> TeamUse:
        """A team's use, up to date; one that is new has used nothing."""
        use = self._uses.get(team)
        if use is None:
            self._forget(now_s)
            use = self._uses[team] = TeamUse(TeamQuota(team), decayed_at_s=now_s)
        use.advance(now_s, self._half_life_s)
        return use

    def _forget(self, now_s: float) -> None:
        """Let go of idle teams nobody named, once there are many: memory does not grow with names.

        Those that used nothing of late go first; where that is not enough, those that used least.
        """
        if len(self._uses) - len(self._named) < self._unnamed_limit_count:
            return
        idle = []
        for team, use in self._uses.items():
            use.advance(now_s, self._half_life_s)
            if not use.used_count and team not in self._named:
                idle.append((use.decayed_accelerator_s, team))
        idle.sort()
        nothing_accelerator_s = FORGOTTEN_FRACTION * self._half_life_s
        for index, (used_accelerator_s, team) in enumerate(idle):
            if used_accelerator_s <= nothing_accelerator_s or index < len(idle) - IDLE_TEAMS_MAX:
                del self._uses[team]
        self._unnamed_limit_count = max(64, 2 * (len(self._uses) - len(self._named)))


class GangQueue:
    """Mutable. `len` is how many wait."""

    def __init__(self, limit_count: int, aging_s: float) -> None:
        self._limit_count = limit_count
        self._aging_s = aging_s
        self._lines: dict[tuple[str, int], list[tuple[int, Job]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether a new job is refused; one that comes back never is."""
        return self._count >= self._limit_count

    def push(self, job: Job) -> None:
        """Into its line, by when it was submitted."""
        insort(self._lines.setdefault((job.submitted.team, job.submitted.priority), []), (job.sequence, job))
        self._count += 1

    def remove(self, job: Job) -> None:
        """Out of its line."""
        key = (job.submitted.team, job.submitted.priority)
        line = self._lines[key]
        index = bisect_left(line, (job.sequence,))  # a shorter tuple is less
        assert line[index][1] is job, job
        del line[index]
        self._count -= 1
        if not line:
            del self._lines[key]

    def ordered(
        self, now_s: float, standing: Callable[[Job], Standing], may_start: Callable[[Job], bool]
    ) -> Iterator[Job]:
        """All jobs in order; a line whose next job may not start is left alone from there on.

        A line's next job is looked at when the one before it was taken from here. Nothing may be pushed or
        removed meanwhile.
        """
        # HOT: per look at the queue; only the first of each line is judged before it is needed.
        heap = [(*self._key(line[0][1], now_s, standing), 1, line) for line in self._lines.values()]
        heapify(heap)
        while heap:
            *_, number, line = heappop(heap)
            job = line[number - 1][1]
            if may_start(job):
                yield job
                if number < len(line):
                    heappush(heap, (*self._key(line[number][1], now_s, standing), number + 1, line))

    def before(self, one: Job, other: Job, now_s: float, standing: Callable[[Job], Standing]) -> bool:
        """Whether one job is looked at before the other."""
        return self._key(one, now_s, standing) < self._key(other, now_s, standing)

    def _key(
        self, job: Job, now_s: float, standing: Callable[[Job], Standing]
    ) -> tuple[int, bool, float, int]:
        beyond, share = standing(job)
        return (-aged_priority(job, now_s, self._aging_s), beyond, share, job.sequence)


def aged_priority(job: Job, now_s: float, aging_s: float) -> int:
    """Formula  priority + ⌊waited / aging⌋, where waited counts from submission.

    Why      A job overtakes whatever came this much later per step of priority that it is behind, so the
             number of jobs that can pass it is bounded.
    """
    return job.submitted.priority + int((now_s - job.submitted_s) // aging_s)
