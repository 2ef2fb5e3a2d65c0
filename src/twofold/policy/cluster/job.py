"""One job of the cluster: what was asked, where it is, and what is known of its work."""

from dataclasses import dataclass, field
from enum import Enum

from twofold.policy.cluster.events import JobSubmitted, Placement, StopReason


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
    state: JobState = JobState.QUEUED
    placement: Placement = ()
    size_count: int = 0  # accelerators that it has
    whole_count: int = 0  # of them, on nodes that it has alone
    beside: Placement = ()  # its pieces on other nodes
    attempt: int = 0  # the latest
    failed_count: int = 0  # failures since it last got on
    done_s: float = 0.0  # work in its last checkpoint, in seconds at full size
    since_s: float = 0.0  # of its last checkpoint or its attempt's start, whichever is later
    begun_s: float = 0.0  # when the attempt was ordered
    end_s: float = 0.0  # when it is expected to leave, as last estimated
    saving_since_s: float | None = None  # a checkpoint is being written
    making_room: MakingRoom | None = None
    spared_until_s: float = 0.0  # it could not write a checkpoint: no victim before this

    def __post_init__(self) -> None:
        self.job_id, self.write_s = self.submitted.job_id, self.submitted.checkpoint_write_s

    @property
    def elastic(self) -> bool:
        return self.submitted.minimum_count < self.submitted.accelerator_count

    @property
    def speed_ratio(self) -> float:
        """Work per second as a share of what it does at full size."""
        return self.size_count / self.submitted.accelerator_count

    def worked_s(self, now_s: float) -> float:
        """Work since the last checkpoint, in seconds at full size; what a failure now would undo."""
        return max(now_s - self.since_s, 0.0) * self.speed_ratio if self.state is JobState.RUNNING else 0.0
