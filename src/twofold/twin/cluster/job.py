"""One job in truth: how far it is, what is safe, and what its accelerators do meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from twofold.policy.cluster import events
from twofold.twin.cluster.jobs import JobArrival
from twofold.twin.cluster.nodes import BUSY, CHECKPOINTING, LOST, RESTARTING, SLOWED, Nodes


class Phase(Enum):
    """Where a job is. The last two hold no accelerators."""

    LAUNCHING = RESTARTING  # processes start
    READING = RESTARTING + 100  # its checkpoint is read
    RUNNING = BUSY
    STANDING = CHECKPOINTING  # still, for a checkpoint
    HUNG = RESTARTING + 200  # something failed, and nobody knows yet
    PAUSED = RESTARTING + 300  # the brain knows, and has not said what follows
    WAITING = -1
    ENDED = -2

    @property
    def use(self) -> int:
        """What its accelerators do; only while it holds any."""
        return int(self.value) % 100


@dataclass(slots=True, eq=False)
class Job:
    """One job. Mutable; work is in accelerator-seconds of sound, perfectly scaling accelerators.

    Between two changes it works at one rate, so how far it is follows from when that began (`sync`).
    """

    job_id: str
    arrival: JobArrival
    work_s: float
    done_s: float = 0.0
    saved_s: float = 0.0
    snap_work_s: float = 0.0
    # Time beyond what sound accelerators take: since the last checkpoint, and at its snapshot.
    slow_s: float = 0.0
    snap_slow_s: float = 0.0
    lost_s: float = 0.0
    phase: Phase = Phase.WAITING
    placement: events.Placement = ()
    stood: events.Placement = ()  # the latest, also when it is given back
    held_count: int = 0
    attempt: int = 0
    rate: float = 0.0
    step_factor: float = 1.0
    pace_setter: str = ""
    # HOT: a large gang's pace is a look at all its nodes; looking again after every checkpoint made a
    # month of one job on 2,000 nodes 4 times slower: bench/twin_cluster.py
    pace_is_old: bool = True
    since_s: float = 0.0
    due: int | None = None  # number of the heap entry that comes next for it
    started_s: float | None = None
    failed_at_s: float | None = None  # while a failure has not been made good
    writing: bool = False
    write_from_s: float = 0.0
    checkpoints_count: int = 0
    failures_count: int = 0
    preempted_count: int = 0
    follow: Callable[[Phase, float], None] | None = None  # told of every phase, where somebody asks

    def sync(self, nodes: Nodes, now_s: float) -> None:
        """Fold the time since the last change into what is done."""
        elapsed_s = now_s - self.since_s
        self.since_s = now_s
        if self.phase is Phase.RUNNING and elapsed_s > 0:
            gained_s = min(self.rate * elapsed_s, self.work_s - self.done_s)
            slow_s = self.held_count * elapsed_s - gained_s
            self.done_s += gained_s
            self.slow_s += slow_s
            nodes.ledger.transfer(slow_s, BUSY, SLOWED)

    def enter(self, phase: Phase, nodes: Nodes, now_s: float) -> None:
        """Go on to another phase that holds the same accelerators."""
        self.sync(nodes, now_s)
        nodes.ledger.move(self.held_count, self.phase.use, phase.use, now_s)
        self._stands(phase, now_s)

    def hold(self, placement: events.Placement, nodes: Nodes, now_s: float) -> None:
        """Begin an attempt on these accelerators; it must hold none."""
        assert not self.placement, self.job_id
        nodes.hold(self.job_id, placement, RESTARTING, now_s)
        self.placement = self.stood = placement
        self._stands(Phase.LAUNCHING, now_s)
        self.since_s = now_s
        self.held_count = sum(count for _, count in placement)

    def release(self, phase: Phase, nodes: Nodes, now_s: float) -> None:
        """Give all accelerators back."""
        self.sync(nodes, now_s)
        nodes.free(self.job_id, self.placement, self.phase.use, now_s)
        self.placement, self.held_count = (), 0
        self._stands(phase, now_s)

    def _stands(self, phase: Phase, now_s: float) -> None:
        self.phase = phase
        if self.follow is not None:
            self.follow(phase, now_s)

    def lose(self, nodes: Nodes) -> float:
        """Go back to the last checkpoint; the accelerator-seconds that this undoes. `sync` came first."""
        work_s, slow_s = self.done_s - self.saved_s, self.slow_s
        nodes.ledger.transfer(work_s, BUSY, LOST)
        nodes.ledger.transfer(slow_s, SLOWED, LOST)
        self.done_s, self.slow_s, self.snap_slow_s = self.saved_s, 0.0, 0.0
        self.lost_s += work_s + slow_s
        return work_s + slow_s
