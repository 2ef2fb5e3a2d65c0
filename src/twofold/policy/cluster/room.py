"""Room for a gang: when ends make it, which nodes are kept for it, who may go ahead, and who makes room.

One job has a reservation: the first that waits for room. Another one behind it may start now if it leaves the
reserved nodes alone, or is expected to be gone before the reservation begins (EASY). So, as far as
estimates hold, nobody delays the head; where a job overruns its estimate, the head waits for it as it would
have anyway.

Who makes room is the cheapest that may, elastic jobs by shrinking before anybody by stopping. Nobody is
stopped for a job of lower priority, nobody who may not be preempted, and nobody of another team that is
within its quota by one that is not. What is borrowed goes first.

Source  Lifka 1995, the ANL/IBM SP scheduling system; Mu'alem and Feitelson 2001.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain

from twofold.policy.cluster.events import Placement
from twofold.policy.cluster.gang_queue import Job, JobState
from twofold.policy.cluster.placement import Node
from twofold.policy.cluster.view import ClusterView, Reservation

Step = tuple[Job, Placement, bool]  # pieces of one job that come back; whether it is stopped for them
# One job that makes room after its checkpoint, and the nodes that it leaves if it is elastic; None: all.
Victim = tuple[Job, frozenset[str] | None]


@dataclass(frozen=True, slots=True)
class Need:
    """Accelerators for one gang; `largest_count` as in `place`: 0 asks for whole nodes, however few."""

    accelerator_count: int
    largest_count: int


@dataclass(slots=True)
class Room:
    """What would be free if some pieces came back. Mutable: pieces are added and taken away."""

    nodes: Mapping[str, Node]
    need: Need
    whole_count: int  # accelerators on whole nodes, the free ones at first; not looked at for one node
    gained: dict[str, int] = field(default_factory=dict)  # node: accelerators that came back
    fitting: set[str] = field(default_factory=set)  # nodes that hold the whole gang, or are whole
    one_node: bool = field(init=False)

    def __post_init__(self) -> None:
        self.one_node = self.need.accelerator_count <= self.need.largest_count

    @property
    def enough(self) -> bool:
        """Whether the gang fits. Whole nodes are counted: a remainder beside another gang is a windfall."""
        if self.one_node:
            return bool(self.fitting)
        return self.whole_count >= self.need.accelerator_count

    def add(self, pieces: Iterable[tuple[str, int]], sign: int = 1) -> None:
        """These accelerators come back, or with −1 do not after all; on unusable nodes they never do."""
        # HOT: per piece of every job that is walked through: bench/twin_cluster.py
        nodes, gained, fitting = self.nodes, self.gained, self.fitting
        one_node, needed_count = self.one_node, self.need.accelerator_count
        for node_id, count in pieces:
            node = nodes[node_id]
            if not node.usable:
                continue
            size = node.accelerator_count
            gained_count = gained[node_id] = gained.get(node_id, 0) + sign * count
            fits = gained_count > 0 and node.free_count + gained_count >= (needed_count if one_node else size)
            if fits == (node_id in fitting):
                continue
            if fits:
                fitting.add(node_id)
            else:
                fitting.discard(node_id)
            if not one_node:
                self.whole_count += size if fits else -size


def reserve(view: ClusterView, head: Job, now_s: float) -> Reservation:
    """Walk through the expected ends until the head fits; the nodes that make it fit are its own.

    One that is overdue is expected to be late once more by as much as it is late already. Call with nothing
    held. A head that would not fit if everything ended waits for nodes to come back: its reservation is at
    infinity, and keeps nothing.
    """
    need = Need(head.submitted.minimum_count, view.largest_count)
    room = Room(view.nodes, need, view.free.whole_count)
    walked: list[Job] = []
    count = bisect_left(view.ends, (now_s,))
    overdue = sorted((2.0 * now_s - end_s, sequence, job) for end_s, sequence, job in view.ends[:count])
    # HOT: per look at the queue and job; the whole nodes of a job are one number: bench/twin_cluster.py
    for end_s, _, job in merge(overdue, view.ends[count:]):
        walked.append(job)
        room.add(job.beside)
        room.whole_count += job.whole_count
        if room.enough or (room.one_node and job.whole_count):
            return Reservation(head.job_id, end_s, _kept(view, room, walked))
    return Reservation(head.job_id, math.inf, ())


def _kept(view: ClusterView, room: Room, walked: list[Job]) -> tuple[str, ...]:
    """What comes free is taken first, so that what is free now is left to others as far as it can be."""
    missing_count, kept = room.need.accelerator_count, []
    whole_ids = (
        node_id
        for job in reversed(walked)
        if job.whole_count
        for node_id, _ in job.placement
        if node_id not in room.gained
    )
    for node_id in chain(sorted(room.fitting), whole_ids):
        if missing_count <= 0:
            break
        kept.append(node_id)
        missing_count -= view.nodes[node_id].accelerator_count
    whole = view.free.whole_nodes(missing_count) if missing_count > 0 else None
    return (*kept, *(node.node_id for node in whole or ()))


def expected_end_s(job: Job, size_count: int, now_s: float) -> float:
    """When a job that starts now would leave.

    Formula  now + restart + (expected − done) · full size / size
    Why      An elastic job is as slow as it is small. A job beyond its estimate has an unknown rest: nothing
             is added for it, and the overdue are put off again and again.
    """
    rest_s = max(job.submitted.expected_s - job.done_s, 0.0)
    return now_s + job.submitted.restart_s + rest_s * job.submitted.accelerator_count / size_count


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
    rules = view.settings.preemption
    if rules is None:
        return []
    within = view.teams.of(head.submitted.team, now_s).within_quota(head.submitted.minimum_count)
    borrowed_counts: dict[str, int] = {}
    found = []
    for job in view.running():
        team, above = job.submitted.team, head.submitted.priority - job.submitted.priority
        if above < 0 or not may_make_room(job, rules.minimum_run_s, now_s):
            continue
        if team not in borrowed_counts:
            borrowed_counts[team] = view.teams.of(team, now_s).borrowed_count
        lent = within and team != head.submitted.team and borrowed_counts[team] > 0
        outranked = above > 0 and (within or team == head.submitted.team)
        if lent or outranked:
            waste_s = cost_accelerator_s(job) / job.size_count  # per accelerator that comes free
            found.append((not lent, job.submitted.priority, waste_s, job.sequence, outranked, job))
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
        if may_make_room(job, 0.0, now_s):
            borrowed = view.teams.of(job.submitted.team, now_s).borrowed_count > 0
            waste_s = cost_accelerator_s(job) / job.size_count
            found.append((not borrowed, job.submitted.priority, waste_s, job.sequence, job))
    found.sort()
    return [job for *_, job in found]


def may_make_room(job: Job, least_run_s: float, now_s: float) -> bool:
    """Whether a job may be preempted now at all, if its attempt has run so long."""
    return (
        job.submitted.preemptible
        and job.submitted.saves
        and job.state is JobState.RUNNING
        and job.making_room is None
        and now_s - job.begun_s >= least_run_s
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
        room.add(pieces, -1)
        if room.enough:
            continue
        room.add(pieces)
        _, nodes = kept.get(job.job_id, (job, set()))
        if stopped or nodes is None:
            kept[job.job_id] = (job, None)
        else:
            kept[job.job_id] = (job, nodes | {node_id for node_id, _ in pieces})
    return [(job, None if nodes is None else frozenset(nodes)) for job, nodes in kept.values()]
