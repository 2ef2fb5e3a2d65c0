"""What a brain knows of its cluster: nodes, jobs, what is free, what falls due, and the counts. Mutable.

Only the brain changes it; decisions and the driver's status page read it. Every change of who has what goes
through `give`, `free` and `file`, which keep nodes, teams, the order of ends and the free nodes equal.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush

from twofold.policy.cluster.cadence import prior_rate
from twofold.policy.cluster.events import Placement
from twofold.policy.cluster.gang_queue import GangQueue, Job, Teams
from twofold.policy.cluster.placement import FreeNodes, Node, NodeUse
from twofold.policy.cluster.settings import ClusterSettings
from twofold.policy.cluster.sharing import ServingPlan

RECENT_IDS_MAX = 10_000


class Due(Enum):
    """What a timer is for. The id beside it is a job's, a node's, or empty."""

    SAVE = "save"  # the job's next checkpoint
    WAITED = "waited"  # for the job's checkpoint, long enough
    RESTART = "restart"  # the job's pause is over
    SILENT = "silent"  # nothing was heard of the job for too long
    RELEASE = "release"  # the node's quarantine is over
    LOOK = "look"  # at the queue
    SERVING = "serving"  # look at what it should have


Key = tuple[Due, str]


@dataclass(slots=True)
class Timers:
    """One time per key, the latest set. Mutable."""

    _at_s: dict[Key, tuple[float, int]] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)  # may hold what was cancelled
    _set_count: int = 0

    def set(self, due: Due, name: str, at_s: float) -> None:
        """From now on this key is due then, and not when it was."""
        self._set_count += 1
        key = (due, name)
        self._at_s[key] = (at_s, self._set_count)
        heappush(self._heap, (at_s, self._set_count, key))
        if len(self._heap) > 2 * len(self._at_s) + 64:
            self._heap = [(*entry, key) for key, entry in self._at_s.items()]
            heapify(self._heap)

    def cancel(self, due: Due, name: str) -> None:
        """The key is not due any more; one that was not is no matter."""
        self._at_s.pop((due, name), None)

    def next_at_s(self) -> float | None:
        """When the first one is due; None: there is none."""
        heap = self._heap
        while heap and self._at_s.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_s: float) -> Key | None:
        """The first that is due by now, which then no longer is; equal times in the order they were set."""
        at_s = self.next_at_s()
        if at_s is None or at_s > now_s:
            return None
        key = heappop(self._heap)[2]
        del self._at_s[key]
        return key


@dataclass(slots=True)
class RecentIds:
    """The latest ids, so that one that comes again is known; old ones are forgotten. Mutable."""

    _ids: dict[str, None] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self._ids.pop(name, None)
        self._ids[name] = None
        if len(self._ids) > RECENT_IDS_MAX:
            del self._ids[next(iter(self._ids))]

    def __contains__(self, name: str) -> bool:
        return name in self._ids


@dataclass(slots=True)
class ClusterCounts:
    """Since the start. submitted = refused + finished + failed + cancelled + jobs in the view."""

    submitted: int = 0
    refused: int = 0
    finished: int = 0
    failed: int = 0  # for good
    cancelled: int = 0
    ignored: int = 0  # events that came late, twice, or about nobody
    started: int = 0  # attempts
    backfilled: int = 0  # of them, before a job that was ahead
    interrupted: int = 0  # attempts that a failure ended
    preempted: int = 0
    shrunk: int = 0
    grown: int = 0
    swapped: int = 0
    hung: int = 0  # attempts of which nothing was heard
    slow: int = 0  # nodes that gangs were found to wait for
    quarantined: int = 0
    checkpoints: int = 0
    checkpoints_lost: int = 0  # failed, or not in time


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for the job at the head of the queue."""

    job_id: str
    at_s: float  # when it can start, as estimated; infinite: not before nodes come back
    node_ids: tuple[str, ...]


class ClusterView:
    """Everything that one brain knows."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}  # all that are not over
        self.counts = ClusterCounts()
        self.free = FreeNodes()
        self.held = FreeNodes()  # what of the reservation is free already
        self.reservation: Reservation | None = None
        self.kept_ids: frozenset[str] = frozenset()  # nodes of the reservation
        self.spares: dict[str, Node] = {}
        self.serving: dict[str, Node] = {}
        self.quarantined: dict[str, Node] = {}
        self.ends: list[tuple[float, int, Job]] = []  # of jobs that have accelerators
        self.leaving: dict[str, Job] = {}  # jobs that write a checkpoint to make room
        self.total_count = 0  # accelerators of all nodes, up or not
        self.busy_count = 0  # accelerators of attempts that have started
        self.up_node_count = 0
        self.usable_sizes: dict[int, int] = {}  # accelerators of a usable node: nodes
        self.room_changed = False  # since the queue was last looked at
        self.serving_changed = False  # what serving needs or has, since that was last looked at
        self.repair_s = settings.faults.prior_repair_s  # of a node, smoothed over what was seen
        self.closed_lines: set[tuple[str, int]] = set()  # whose first job waits for its quota
        self.closed_teams: set[tuple[str, bool]] = set()  # … whose (preemptible) jobs wait for it
        self.timers = Timers()
        self.over = RecentIds()  # jobs
        self.teams = Teams(settings.teams, settings.queue.share_half_life_s)
        worth = (settings.cadence.prior_count, settings.cadence.memory_count)
        self.interruptions = prior_rate(
            settings.cadence.prior_failures_per_accelerator_s, *worth
        )  # of jobs, by accelerator-seconds
        self.node_failures = prior_rate(settings.faults.prior_failures_per_node_s, *worth)
        self.serving_plan = ServingPlan(settings.sharing)
        self.queue = GangQueue(settings.queue.limit_count, settings.queue.aging_s)

    @property
    def largest_count(self) -> int:
        """Accelerators of the largest node that training may use."""
        return max(self.usable_sizes, default=0)

    @property
    def usable_count(self) -> int:
        """Accelerators on nodes that training may use, busy or not."""
        return sum(size * count for size, count in self.usable_sizes.items())

    def advance(self, past_s: float) -> None:
        """So long nothing has changed: what ran was at risk."""
        self.interruptions.advance(past_s * self.busy_count)
        self.node_failures.advance(past_s * self.up_node_count)

    def join(self, node: Node) -> None:
        """A new node is up."""
        self.nodes[node.node_id] = node
        self._count_usable(node, 1)
        self.total_count += node.accelerator_count
        self.up_node_count += 1
        self.file(node)

    def running(self) -> Iterable[Job]:
        """Jobs that have accelerators, the soonest expected to leave first."""
        return (job for _, _, job in self.ends)

    def give(self, job: Job, placement: Placement, end_s: float, now_s: float) -> None:
        """Let a job have exactly these accelerators, until about `end_s`; only what differs is touched."""
        nodes, before, after = self.nodes, dict(job.placement), dict(placement)
        for node_id, count in job.placement:
            if after.get(node_id) != count:
                self._shift(nodes[node_id], job, -count)
                self.room_changed = True
        for node_id, count in placement:
            if before.get(node_id) != count:
                self._shift(nodes[node_id], job, count)
        use, size_count = self.teams.of(job.submitted.team, now_s), sum(after.values())
        use.used_count += size_count - job.size_count
        if not job.submitted.preemptible:
            use.firm_count += size_count - job.size_count
        if job.placement:
            self._forget_end(job)
        job.placement, job.size_count = placement, size_count
        job.beside = tuple(piece for piece in placement if piece[1] != nodes[piece[0]].accelerator_count)
        job.whole_count = size_count - sum(count for _, count in job.beside)
        if placement:
            job.end_s = end_s
            insort(self.ends, (end_s, job.sequence, job))

    def expect_end(self, job: Job, end_s: float) -> None:
        """A new estimate of when a job leaves."""
        self._forget_end(job)
        job.end_s = end_s
        insort(self.ends, (end_s, job.sequence, job))

    @contextmanager
    def change(self, node: Node) -> Iterator[None]:
        """Around whatever makes a node usable or not: out of the free ones meanwhile, then filed anew."""
        was_usable = node.usable
        self._unfile(node)
        yield
        up = node.down_since_s is None and node.quarantined_until_s is None
        node.usable = up and node.use is NodeUse.TRAINING
        self.file(node)
        if node.usable != was_usable:
            self._count_usable(node, 1 if node.usable else -1)
        for nodes, belongs in (
            (self.serving, node.use is NodeUse.SERVING),
            (self.spares, node.use is NodeUse.SPARE),
            (self.quarantined, node.quarantined_until_s is not None),
        ):
            nodes.pop(node.node_id, None)
            if belongs:
                nodes[node.node_id] = node

    def _count_usable(self, node: Node, step: int) -> None:
        size = node.accelerator_count
        self.usable_sizes[size] = self.usable_sizes.get(size, 0) + step
        if not self.usable_sizes[size]:
            del self.usable_sizes[size]
        self.room_changed = True

    def file(self, node: Node) -> None:
        """Put a node where the queue finds it, if it is usable and has something free."""
        if node.usable and node.free_count:
            (self.held if node.node_id in self.kept_ids else self.free).add(node)

    def hold(self, reservation: Reservation) -> None:
        """Keep the free part of the reserved nodes away from backfill."""
        self.reservation = reservation
        self.kept_ids = frozenset(reservation.node_ids)
        for node_id in reservation.node_ids:
            node = self.nodes[node_id]
            if node.filed_in is self.free:
                self.free.take(node)
                self.held.add(node)

    def let_go(self) -> None:
        """Undo `hold`."""
        self.reservation = None
        self.kept_ids = frozenset()
        for node in self.held.nodes():
            self.held.take(node)
            self.free.add(node)

    def _shift(self, node: Node, job: Job, count: int) -> None:
        """The job has so many more of the node's accelerators, or so many less: all that it had there."""
        self._unfile(node)
        if count > 0:
            assert count <= node.free_count and node.usable and job.job_id not in node.job_counts, (job, node)
            node.job_counts[job.job_id] = count
        else:
            assert node.job_counts[job.job_id] == -count, (job, node)
            del node.job_counts[job.job_id]
        node.free_count -= count
        self.file(node)

    def _unfile(self, node: Node) -> None:
        if node.filed_in is not None:
            node.filed_in.take(node)

    def _forget_end(self, job: Job) -> None:
        index = bisect_left(self.ends, (job.end_s, job.sequence))  # a shorter tuple is less
        assert self.ends[index][2] is job, job
        del self.ends[index]
