"""Who makes room: the cheapest that may, elastic jobs by shrinking before anybody by stopping.

Nobody is stopped for a job of lower priority, nobody who may not be preempted, and nobody of another team
that is within its quota by one that is not. What is borrowed goes first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from twofold.policy.cluster.backfill import Need, Room
from twofold.policy.cluster.events import Placement
from twofold.policy.cluster.job import Job, JobState
from twofold.policy.cluster.view import ClusterView

Step = tuple[Job, Placement, bool]  # pieces of one job that come back; whether it is stopped for them


@dataclass(frozen=True, slots=True)
class Victim:
    """One job that makes room after its checkpoint."""

    job: Job
    given_up: frozenset[str] | None  # nodes that an elastic job leaves; None: it is stopped


def cost_accelerator_s(job: Job) -> float:
    """Accelerator-seconds that preempting a job wastes.

    Formula  (write + restart) · size
    Why      It writes a checkpoint first, so no work is lost; both while it writes and while it loads again,
             its accelerators do nothing.
    """
    return (job.write_s + job.submitted.restart_s) * job.size_count


def candidates_for(view: ClusterView, head: Job, now_s: float) -> list[Job]:
    """Jobs that may make room for the head: borrowed ones first, then low priority, then the cheapest.

    Of a team no more than it borrowed is taken because it is borrowed, rounded up to whole jobs.
    """
    within = view.teams.of(head.submitted.team, now_s).within_quota(head.submitted.minimum_count)
    borrowed_counts: dict[str, int] = {}
    found = []
    for job in view.running():
        if job.submitted.priority > head.submitted.priority or not may_make_room(view, job, now_s):
            continue
        if job.submitted.team not in borrowed_counts:
            borrowed_counts[job.submitted.team] = view.teams.of(job.submitted.team, now_s).borrowed_count
        lent = (
            within and job.submitted.team != head.submitted.team and borrowed_counts[job.submitted.team] > 0
        )
        outranked = job.submitted.priority < head.submitted.priority and (
            within or job.submitted.team == head.submitted.team
        )
        if lent or outranked:
            found.append((not lent, job.submitted.priority, _dearness(job), job.sequence, outranked, job))
    found.sort()
    chosen = []
    for *_, outranked, job in found:
        if outranked or borrowed_counts[job.submitted.team] > 0:
            borrowed_counts[job.submitted.team] -= job.size_count
            chosen.append(job)
    return chosen


def candidates_for_serving(view: ClusterView, now_s: float) -> list[Job]:
    """Jobs that may make room for serving, in the same order; how long they have run does not matter."""
    found = []
    for job in view.running():
        if job.submitted.preemptible and job.state is JobState.RUNNING and job.making_room is None:
            spared = now_s < job.spared_until_s
            borrowed = view.teams.of(job.submitted.team, now_s).borrowed_count > 0
            if not spared:
                found.append((not borrowed, job.submitted.priority, _dearness(job), job.sequence, job))
    found.sort()
    return [job for *_, job in found]


def may_make_room(view: ClusterView, job: Job, now_s: float) -> bool:
    """Whether a job may be preempted now at all."""
    rules = view.settings.preemption
    return (
        rules is not None
        and job.submitted.preemptible
        and job.state is JobState.RUNNING
        and job.making_room is None
        and now_s - job.begun_s >= rules.minimum_run_s
        and now_s >= job.spared_until_s
    )


def victims(view: ClusterView, need: Need, candidates: Iterable[Job]) -> list[Victim] | None:
    """As few as make a gang fit that does not fit now; None: all together would not be enough.

    Those that leave already count as gone.

    Jobs are added in order until there is room, shrinking all before stopping any; then whoever turns out not
    to be needed is let off, the last first.
    """
    room = _room_after_leaving(view, need)
    chosen = _chosen(room, list(candidates))
    return _needed(room, chosen) if room.enough else None


def as_many_victims(view: ClusterView, need: Need, candidates: Iterable[Job]) -> list[Victim]:
    """As `victims`, but if all together would not do, whoever brings nearer to it."""
    room = _room_after_leaving(view, need)
    chosen = _chosen(room, list(candidates))
    if not room.enough:
        room.need = Need(room.whole_count, 0)
    return _needed(room, chosen)


def _room_after_leaving(view: ClusterView, need: Need) -> Room:
    room = Room(view.nodes, need, view.free.whole_count + view.held.whole_count)
    for job in view.leaving.values():
        given_up = job.making_room.given_up if job.making_room else None
        room.add(piece for piece in job.placement if given_up is None or piece[0] in given_up)
    return room


def _chosen(room: Room, candidates: list[Job]) -> list[Step]:
    chosen: list[Step] = []
    if room.enough:
        return chosen
    trimmed = {job.job_id: spare_pieces(job) for job in candidates if job.elastic}
    for job in candidates:
        for piece in trimmed.get(job.job_id, ()):
            if not room.enough:
                chosen.append((job, (piece,), False))
                room.add((piece,))
    for job in candidates:
        if room.enough:
            break
        gone = trimmed.get(job.job_id, ())
        rest = tuple(piece for piece in job.placement if piece not in gone)
        chosen.append((job, rest, True))
        room.add(rest)
    return chosen


def spare_pieces(job: Job) -> tuple[tuple[str, int], ...]:
    """What an elastic job can give up at once and go on: its last pieces, down to its minimum."""
    left_count, given = job.size_count, []
    for node_id, count in reversed(job.placement):
        if left_count - count >= job.submitted.minimum_count:
            left_count -= count
            given.append((node_id, count))
    return tuple(given)


def _needed(room: Room, chosen: list[Step]) -> list[Victim]:
    kept: dict[str, tuple[Job, set[str] | None]] = {}
    for job, pieces, stopped in reversed(chosen):
        room.remove(pieces)
        if room.enough:
            continue
        room.add(pieces)
        _, nodes = kept.get(job.job_id, (job, set()))
        if stopped or nodes is None:
            kept[job.job_id] = (job, None)
        else:
            kept[job.job_id] = (job, nodes | {node_id for node_id, _ in pieces})
    return [Victim(job, None if nodes is None else frozenset(nodes)) for job, nodes in kept.values()]


def _dearness(job: Job) -> float:
    """Waste per accelerator that comes free: what orders victims of one rank."""
    return cost_accelerator_s(job) / job.size_count
