"""Who has used how much, what each team may still have, and what of it is only borrowed.

Quota       What a team is promised. Jobs that may not be preempted live inside it.
Borrowing   Preemptible jobs may go beyond, as long as nobody else uses it; another team's job that is within
            its own quota may take it back. So a quota is never lost by being lent.
Share       What a team used, an old second counting less than a new one, over its weight. The cluster shares
            one resource, accelerators, so a team's dominant share is its share of these.
"""

import math
from dataclasses import dataclass

from twofold.policy.cluster.settings import TeamQuota

IDLE_TEAMS_MAX = 1000  # that nobody named, and whose past is kept
FORGOTTEN_FRACTION = 1e-6  # of one accelerator for one half-life: less is nothing


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

    def __len__(self) -> int:
        return len(self._uses)

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
