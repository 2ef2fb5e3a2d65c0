"""When the head of the queue can start, which nodes are kept for it, and who may go ahead meanwhile (EASY).

One job has a reservation: the first that waits for room. Another one behind it may start now if it leaves the
reserved nodes alone, or is expected to be gone before the reservation begins. So, as far as estimates hold,
nobody delays the head; where a job overruns its estimate, the head waits for it as it would have anyway.

Source  Lifka 1995, the ANL/IBM SP scheduling system; Mu'alem and Feitelson 2001.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from twofold.policy.cluster.job import Job
from twofold.policy.cluster.placement import Node
from twofold.policy.cluster.view import ClusterView, Reservation


@dataclass(frozen=True, slots=True)
class Need:
    """Accelerators for one gang; `largest_count` as in `place`: 0 asks for whole nodes, however few."""

    accelerator_count: int
    largest_count: int

    @property
    def on_one_node(self) -> bool:
        return self.accelerator_count <= self.largest_count


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
        self.one_node = self.need.on_one_node

    def add(self, pieces: Iterable[tuple[str, int]]) -> None:
        """These accelerators come back; those of nodes that training may not use do not."""
        self._change(pieces, 1)

    def remove(self, pieces: Iterable[tuple[str, int]]) -> None:
        """Undo `add`."""
        self._change(pieces, -1)

    @property
    def enough(self) -> bool:
        """Whether the gang fits. Whole nodes are counted: a remainder beside another gang is a windfall."""
        if self.one_node:
            return bool(self.fitting)
        return self.whole_count >= self.need.accelerator_count

    def _change(self, pieces: Iterable[tuple[str, int]], sign: int) -> None:
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

    Call with nothing held. A head that would not fit if everything ended waits for nodes to come back: its
    reservation is at infinity, and keeps nothing.
    """
    need = Need(head.submitted.minimum_count, view.largest_count)
    room = Room(view.nodes, need, view.free.whole_count)
    walked: list[Job] = []
    # HOT: per look at the queue and job; the whole nodes of a job are one number: bench/twin_cluster.py
    for end_s, job in expected_ends(view, now_s):
        walked.append(job)
        room.add(job.beside)
        room.whole_count += job.whole_count
        if room.enough or (need.on_one_node and job.whole_count):
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


def expected_ends(view: ClusterView, now_s: float) -> Iterator[tuple[float, Job]]:
    """All jobs that have accelerators, by when they are expected to leave.

    One that is overdue is expected to be late once more by as much as it is late already.
    """
    overdue = []
    for end_s, _, job in view.ends:
        if end_s >= now_s:
            break
        overdue.append((2.0 * now_s - end_s, job.sequence, job))
    overdue.sort()
    late = iter(overdue)
    waiting = next(late, None)
    for end_s, sequence, job in view.ends[len(overdue) :]:
        while waiting is not None and waiting[:2] < (end_s, sequence):
            yield waiting[0], waiting[2]
            waiting = next(late, None)
        yield end_s, job
    while waiting is not None:
        yield waiting[0], waiting[2]
        waiting = next(late, None)


def expected_end_s(job: Job, size_count: int, now_s: float) -> float:
    """When a job that starts now would leave.

    Formula  now + restart + (expected − done) · full size / size
    Why      An elastic job is as slow as it is small. A job beyond its estimate has an unknown rest: nothing
             is added for it, and the overdue are put off again and again.
    """
    rest_s = max(job.submitted.expected_s - job.done_s, 0.0)
    return now_s + job.submitted.restart_s + rest_s * job.submitted.accelerator_count / size_count
