"""What a brain knows of its cluster: nodes, jobs, what is free, and the counts. Mutable, and says so.

Only the brain changes it; decisions and the driver's status page read it. Every change of who has what goes
through `give`, `free` and `file`, which keep nodes, teams, the order of ends and the free nodes equal.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from twofold.policy.cluster.cadence import FailureRate, prior_rate
from twofold.policy.cluster.events import Placement
from twofold.policy.cluster.fair_share import Teams
from twofold.policy.cluster.gang_queue import GangQueue
from twofold.policy.cluster.job import Job
from twofold.policy.cluster.placement import FreeNodes, Node, NodeUse
from twofold.policy.cluster.settings import ClusterSettings
from twofold.policy.cluster.sharing import DayProfile, ServingPlan
from twofold.policy.cluster.timers import RecentIds, Timers


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
    quarantined: int = 0
    checkpoints: int = 0
    checkpoints_lost: int = 0  # failed, or not in time


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for the job at the head of the queue."""

    job_id: str
    at_s: float  # when it can start, as estimated; infinite: not before nodes come back
    node_ids: tuple[str, ...]


@dataclass(slots=True)
class ClusterView:
    """Everything that one brain knows."""

    settings: ClusterSettings
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)  # all that are not over
    counts: ClusterCounts = field(default_factory=ClusterCounts)
    free: FreeNodes = field(default_factory=FreeNodes)
    held: FreeNodes = field(default_factory=FreeNodes)  # what of the reservation is free already
    reservation: Reservation | None = None
    kept_ids: frozenset[str] = frozenset()  # nodes of the reservation
    spares: dict[str, Node] = field(default_factory=dict)
    serving: dict[str, Node] = field(default_factory=dict)
    serving_count: int = 0  # accelerators of those
    quarantined: dict[str, Node] = field(default_factory=dict)
    ends: list[tuple[float, int, Job]] = field(default_factory=list)  # of jobs that have accelerators
    leaving: dict[str, Job] = field(default_factory=dict)  # jobs that write a checkpoint to make room
    total_count: int = 0  # accelerators of all nodes, up or not
    busy_count: int = 0  # accelerators of attempts that have started
    up_node_count: int = 0
    usable_sizes: dict[int, int] = field(default_factory=dict)  # accelerators of a usable node: nodes
    room_changed: bool = False  # since the queue was last looked at
    serving_changed: bool = False  # what serving needs or has, since that was last looked at
    repair_s: float = field(init=False)  # of a node, smoothed over what was seen
    closed_lines: set[tuple[str, int]] = field(default_factory=set)  # whose first job waits for its quota
    closed_teams: set[tuple[str, bool]] = field(default_factory=set)  # … whose (preemptible) jobs wait for it
    part_demands: dict[str, DayProfile] = field(default_factory=dict)  # by profile of a partition
    parts_refused: tuple[tuple[str, str], ...] = ()  # profile and reason, as last told
    cuts: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)  # of partitioned nodes
    timers: Timers = field(default_factory=Timers)
    over: RecentIds = field(default_factory=RecentIds)  # jobs
    teams: Teams = field(init=False)
    interruptions: FailureRate = field(init=False)  # of jobs, by accelerator-seconds
    node_failures: FailureRate = field(init=False)  # by node-seconds
    serving_plan: ServingPlan = field(init=False)
    queue: GangQueue = field(init=False)

    def __post_init__(self) -> None:
        queue = self.settings.queue
        self.teams = Teams(self.settings.teams, queue.share_half_life_s)
        self.queue = GangQueue(queue.limit_count, queue.aging_s)
        cadence, faults = self.settings.cadence, self.settings.faults
        self.interruptions = prior_rate(
            cadence.prior_failures_per_accelerator_s, cadence.prior_count, cadence.memory_count
        )
        self.node_failures = prior_rate(
            faults.prior_failures_per_node_s, cadence.prior_count, cadence.memory_count
        )
        self.repair_s = faults.prior_repair_s
        self.serving_plan = ServingPlan(self.settings.sharing)

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
        size = node.accelerator_count
        self.usable_sizes[size] = self.usable_sizes.get(size, 0) + 1
        self.total_count += size
        self.up_node_count += 1
        self.file(node)
        self.room_changed = True

    def running(self) -> Iterable[Job]:
        """Jobs that have accelerators, the soonest expected to leave first."""
        return (job for _, _, job in self.ends)

    def give(self, job: Job, placement: Placement, end_s: float, now_s: float) -> None:
        """Let a job have these accelerators, all of them, until about `end_s`."""
        assert not job.placement, job
        for node_id, count in placement:
            self._shift(self.nodes[node_id], job, count)
        self._remember(job, placement)
        self._count_for_team(job, job.size_count, now_s)
        job.end_s = end_s
        insort(self.ends, (end_s, job.sequence, job))

    def take_back(self, job: Job, now_s: float) -> None:
        """Undo `give`."""
        self._forget_end(job)
        for node_id, count in job.placement:
            self._shift(self.nodes[node_id], job, -count)
        self._count_for_team(job, -job.size_count, now_s)
        self._remember(job, ())
        self.room_changed = True

    def exchange(self, job: Job, placement: Placement, end_s: float, now_s: float) -> None:
        """As `take_back` and `give`, but only what differs is touched."""
        after = dict(placement)
        less = tuple(piece for piece in job.placement if after.get(piece[0]) != piece[1])
        gone = {node_id for node_id, _ in less}
        kept = {node_id for node_id, _ in job.placement if node_id not in gone}
        more = tuple(piece for piece in placement if piece[0] not in kept)
        for node_id, count in less:
            self._shift(self.nodes[node_id], job, -count)
        for node_id, count in more:
            self._shift(self.nodes[node_id], job, count)
        self._count_for_team(job, sum(after.values()) - job.size_count, now_s)
        self._remember(job, placement)
        self.room_changed = self.room_changed or bool(less)
        self.expect_end(job, end_s)

    def expect_end(self, job: Job, end_s: float) -> None:
        """A new estimate of when a job leaves."""
        self._forget_end(job)
        job.end_s = end_s
        insort(self.ends, (end_s, job.sequence, job))

    def change(self, node: Node) -> "_Refiled":
        """`with view.change(node):` around whatever makes a node usable or not."""
        return _Refiled(self, node)

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

    def _remember(self, job: Job, placement: Placement) -> None:
        nodes = self.nodes
        job.placement, job.size_count = placement, sum(count for _, count in placement)
        job.beside = tuple(piece for piece in placement if piece[1] != nodes[piece[0]].accelerator_count)
        job.whole_count = job.size_count - sum(count for _, count in job.beside)

    def _unfile(self, node: Node) -> None:
        if node.filed_in is not None:
            node.filed_in.take(node)

    def _forget_end(self, job: Job) -> None:
        index = bisect_left(self.ends, (job.end_s, job.sequence))  # a shorter tuple is less
        assert self.ends[index][2] is job, job
        del self.ends[index]

    def _count_for_team(self, job: Job, count: int, now_s: float) -> None:
        use = self.teams.of(job.submitted.team, now_s)
        use.used_count += count
        if not job.submitted.preemptible:
            use.firm_count += count


class _Refiled:
    """Takes a node out of the free ones while it changes, and files it anew by what it then is."""

    __slots__ = ("node", "view", "was_usable")

    def __init__(self, view: ClusterView, node: Node) -> None:
        self.view, self.node = view, node

    def __enter__(self) -> None:
        self.was_usable = self.node.usable
        self.view._unfile(self.node)

    def __exit__(self, *_: object) -> None:
        view, node = self.view, self.node
        node.judge()
        view.file(node)
        if node.usable != self.was_usable:
            size, step = node.accelerator_count, 1 if node.usable else -1
            view.usable_sizes[size] = view.usable_sizes.get(size, 0) + step
            if not view.usable_sizes[size]:
                del view.usable_sizes[size]
            view.room_changed = True
        if node.node_id in view.serving:
            del view.serving[node.node_id]
            view.serving_count -= node.accelerator_count
        view.spares.pop(node.node_id, None)
        if node.use is NodeUse.SERVING:
            view.serving[node.node_id] = node
            view.serving_count += node.accelerator_count
        elif node.use is NodeUse.SPARE:
            view.spares[node.node_id] = node
        if node.quarantined_until_s is not None:
            view.quarantined[node.node_id] = node
        else:
            view.quarantined.pop(node.node_id, None)
