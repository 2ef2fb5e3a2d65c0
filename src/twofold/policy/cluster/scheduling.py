"""A look at the queue: who starts now, what is kept for the head, who goes ahead of it or makes room."""

import math
from dataclasses import dataclass, field

from twofold.policy.cluster.attempts import make_room, start
from twofold.policy.cluster.events import ClusterEffect, Placement, StopReason
from twofold.policy.cluster.gang_queue import Job, Standing, TeamUse
from twofold.policy.cluster.placement import FreeNodes, place
from twofold.policy.cluster.room import Need, candidates_for, expected_end_s, reserve, victims
from twofold.policy.cluster.view import ClusterView, Due


@dataclass(slots=True)
class _Doorman:
    """Quotas and shares as of one look. Mutable: a job that waits for its quota closes the door behind it."""

    view: ClusterView
    now_s: float
    uses: dict[str, TeamUse] = field(default_factory=dict)

    def use(self, team: str) -> TeamUse:
        found = self.uses.get(team)
        if found is None:
            found = self.uses[team] = self.view.teams.of(team, self.now_s)
        return found

    def standing(self, job: Job) -> Standing:
        use = self.use(job.submitted.team)
        return not use.within_quota(job.submitted.minimum_count), use.share

    def may_start(self, job: Job) -> bool:
        """Whether its quota lets it; if not, no job of its team may take what it waits for."""
        if (job.submitted.team, job.submitted.preemptible) in self.view.closed_teams:
            return False
        use = self.use(job.submitted.team)
        left_count = use.left_count(job.submitted.preemptible)
        if left_count is None or left_count >= job.submitted.minimum_count:
            return True
        self.view.closed_lines.add((job.submitted.team, job.submitted.priority))
        self.view.closed_teams.add((job.submitted.team, job.submitted.preemptible))
        loan_count = use.left_count(True)
        if loan_count is not None and loan_count < job.submitted.minimum_count:
            # What the team's other jobs would borrow is what this one needs.
            self.view.closed_teams |= {(job.submitted.team, False), (job.submitted.team, True)}
        return False

    def size_limit(self, job: Job) -> int:
        """The most accelerators that it may start with."""
        full_count = job.submitted.accelerator_count
        left_count = self.use(job.submitted.team).left_count(job.submitted.preemptible)
        return full_count if left_count is None else min(full_count, left_count)


def look(view: ClusterView, now_s: float) -> list[ClusterEffect]:
    """Start, in order, whoever fits; keep room for the first that does not; backfill; preempt for it."""
    view.let_go()
    view.room_changed = False
    view.closed_lines.clear()
    view.closed_teams.clear()
    if not len(view.queue):
        return []
    door = _Doorman(view, now_s)
    effects: list[ClusterEffect] = []
    started: list[Job] = []
    head: Job | None = None
    left_count = view.settings.queue.backfill_count
    least_failed_count = math.inf
    for job in view.queue.ordered(now_s, door.standing, door.may_start):
        placement: Placement | None = None
        if head is None:
            placement = _fitting(view, view.free, job, door.size_limit(job))
            if placement is None:
                head = job
                view.hold(reserve(view, head, now_s))
                least_failed_count = head.submitted.minimum_count
        else:
            left_count -= 1
            # What did not fit once does not fit later in the same look: room only shrinks.
            if job.submitted.minimum_count < least_failed_count:
                placement = _fitting(view, view.free, job, door.size_limit(job))
                if placement is None:
                    least_failed_count = job.submitted.minimum_count
            placement = placement or _short_fitting(view, job, door.size_limit(job), now_s)
        if placement is not None:
            view.counts.backfilled += head is not None
            started.append(job)
            effects.append(start(view, job, placement, now_s))
        if head is not None and (left_count <= 0 or not view.free.free_count + view.held.free_count):
            break
    for job in started:
        view.queue.remove(job)
    if head is not None:
        effects += _room_for(view, head, now_s)
    if len(view.queue):
        view.timers.set(Due.LOOK, "", now_s + view.settings.queue.look_every_s)
    return effects


def arrived(view: ClusterView, job: Job, now_s: float) -> list[ClusterEffect]:
    """A job has joined the queue. While another waits at its head, only this one is looked at."""
    kept = view.reservation
    if kept is None or view.room_changed:
        return look(view, now_s)
    door = _Doorman(view, now_s)
    head = view.jobs[kept.job_id]
    if view.queue.before(job, head, now_s, door.standing):
        return look(view, now_s)
    closed = (job.submitted.team, job.submitted.priority) in view.closed_lines
    if closed or len(view.queue) > view.settings.queue.backfill_count + 1 or not door.may_start(job):
        return []
    limit_count = door.size_limit(job)
    placement = _fitting(view, view.free, job, limit_count) or _short_fitting(view, job, limit_count, now_s)
    if placement is None:
        return []
    view.queue.remove(job)
    view.counts.backfilled += 1
    return [start(view, job, placement, now_s)]


def _fitting(view: ClusterView, free: FreeNodes, job: Job, limit_count: int) -> Placement | None:
    """A placement at full size; of an elastic job else at the largest that whole nodes, or one node, give."""
    if free.free_count < job.submitted.minimum_count:
        return None
    largest_count = view.largest_count
    placement = place(free, limit_count, largest_count)
    if placement is not None or job.submitted.minimum_count == limit_count:
        return placement
    whole_count = min(free.whole_count, limit_count)
    if whole_count >= job.submitted.minimum_count:
        placement = place(free, whole_count, largest_count)
    return placement or place(free, job.submitted.minimum_count, largest_count)


def _short_fitting(view: ClusterView, job: Job, limit_count: int, now_s: float) -> Placement | None:
    """Room among what is kept for the head, for a job that is gone before the head can start."""
    kept = view.reservation
    if kept is None or limit_count < job.submitted.accelerator_count or not view.held.free_count:
        return None
    if expected_end_s(job, job.submitted.accelerator_count, now_s) > kept.at_s:
        return None
    return place(view.held, job.submitted.accelerator_count, view.largest_count)


def _room_for(view: ClusterView, head: Job, now_s: float) -> list[ClusterEffect]:
    """Have others make room, unless that happens soon by itself."""
    rules, kept = view.settings.preemption, view.reservation
    if rules is None or kept is None or kept.at_s - now_s <= rules.patience_s:
        return []
    candidates = candidates_for(view, head, now_s)
    if not candidates:
        return []
    chosen = victims(view, Need(head.submitted.minimum_count, view.largest_count), candidates)
    effects: list[ClusterEffect] = []
    for victim in chosen or ():
        outranked = victim[0].submitted.priority < head.submitted.priority
        reason = StopReason.PREEMPTED if outranked else StopReason.RECLAIMED
        effects += make_room(view, victim, reason, now_s)
    if effects or chosen:
        # Their places are kept now, and nobody goes ahead there.
        view.let_go()
        view.hold(reserve(view, head, now_s))
    return effects
