"""One job in truth: how far it is, what is safe, and what its accelerators do meanwhile."""

from enum import Enum
from math import inf

from twofold.policy.cluster import events
from twofold.twin.cluster.jobs import JobArrival
from twofold.twin.cluster.nodes import BUSY, CHECKPOINTING, LOST, RESTARTING, SLOWED, Nodes

DONE_TOLERANCE_FRACTION = 1e-9  # of a job's work, that rounding may leave undone


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


class Job:
    """One job. Mutable; work is in accelerator-seconds of sound, perfectly scaling accelerators.

    Between two changes it works at one rate, so how far it is follows from when that began (`sync`).
    """

    __slots__ = (
        "arrival",
        "attempt",
        "checkpoints_count",
        "done_s",
        "due",
        "failed_at_s",
        "failures_count",
        "held_count",
        "job_id",
        "kept_slow_s",
        "lost_s",
        "pace_is_old",
        "pace_setter",
        "phase",
        "placement",
        "preempted_count",
        "rate",
        "saved_s",
        "since_s",
        "slow_s",
        "snap_slow_s",
        "snap_work_s",
        "started_s",
        "step_factor",
        "work_s",
        "write_from_s",
        "write_stood_s",
        "writing",
    )

    def __init__(self, job_id: str, arrival: JobArrival, efficiency_fraction: float) -> None:
        self.job_id, self.arrival = job_id, arrival
        self.work_s = arrival.duration_s * arrival.accelerator_count * efficiency_fraction
        self.done_s = self.saved_s = self.snap_work_s = 0.0
        # Time beyond what sound accelerators take: since the last checkpoint, at its snapshot, and safe.
        self.slow_s = self.snap_slow_s = self.kept_slow_s = 0.0
        self.lost_s = 0.0
        self.phase = Phase.WAITING
        self.placement: events.Placement = ()
        self.held_count = self.attempt = 0
        self.rate, self.step_factor, self.pace_setter = 0.0, 1.0, ""
        # HOT: a large gang's pace is a look at all its nodes; looking again after every checkpoint made a
        # month of one job on 2,000 nodes 4 times slower: bench/twin_cluster.py
        self.pace_is_old = True
        self.since_s = 0.0
        self.due: int | None = None  # number of the heap entry that comes next for it
        self.started_s: float | None = None
        self.failed_at_s: float | None = None  # while a failure has not been made good
        self.writing = False
        self.write_from_s = self.write_stood_s = 0.0
        self.checkpoints_count = self.failures_count = self.preempted_count = 0

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
        self.phase = phase

    def hold(self, placement: events.Placement, nodes: Nodes, now_s: float) -> None:
        """Begin an attempt on these accelerators; it must hold none."""
        assert not self.placement, self.job_id
        nodes.hold(self.job_id, placement, RESTARTING, now_s)
        self.placement, self.phase, self.since_s = placement, Phase.LAUNCHING, now_s
        self.held_count = sum(count for _, count in placement)

    def release(self, phase: Phase, nodes: Nodes, now_s: float) -> None:
        """Give all accelerators back."""
        self.sync(nodes, now_s)
        nodes.free(self.job_id, self.placement, self.phase.use, now_s)
        self.placement, self.held_count, self.phase = (), 0, phase

    def finishes_s(self, now_s: float) -> float:
        """When all its work is done at the present rate; `sync` came first."""
        return now_s + (self.work_s - self.done_s) / self.rate if self.rate > 0 else inf

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.done_s >= self.work_s * (1 - DONE_TOLERANCE_FRACTION)

    def snap(self) -> None:
        """What is done now is what the checkpoint being written holds."""
        self.snap_work_s, self.snap_slow_s = self.done_s, self.slow_s

    def save(self) -> None:
        """The checkpoint is whole."""
        self.saved_s = self.snap_work_s
        self.kept_slow_s += self.snap_slow_s
        self.slow_s -= self.snap_slow_s
        self.snap_slow_s = 0.0
        self.checkpoints_count += 1

    def lose(self, nodes: Nodes) -> float:
        """Go back to the last checkpoint; the accelerator-seconds that this undoes. `sync` came first."""
        work_s, slow_s = self.done_s - self.saved_s, self.slow_s
        nodes.ledger.transfer(work_s, BUSY, LOST)
        nodes.ledger.transfer(slow_s, SLOWED, LOST)
        self.done_s, self.slow_s, self.snap_slow_s = self.saved_s, 0.0, 0.0
        self.lost_s += work_s + slow_s
        return work_s + slow_s
