"""What happens to the cluster brain and what it wants done: two closed unions, each value one line of JSON.

The driver reports each interruption once: NodeFailed stands for every job that has a part on the node,
JobFailed for what no NodeFailed tells; after either nothing of the attempt runs any more. Accelerators are
free for the brain from the StopJob, ResizeJob or SwapNode on: a driver that needs time to stop a job begins
the next one after it. Where an event carries an `attempt`, 0 means the latest; the report of another attempt
is late, and ignored.

One JobSubmitted is answered by a RefuseJob, or is followed by StartJob when its turn comes. Each StartJob,
ResizeJob and SwapNode begins an attempt (counted from 1) from the last checkpoint; JobStarted says that its
work goes on. Each SaveCheckpoint is answered by CheckpointWritten or CheckpointFailed; one that is not
answered in time counts as failed, and is asked for again.

JobProgressed is for drivers that see steps: a job that has sent one is watched, and is ended when it falls
silent or sets a pace that another node need not have. An attempt that StopJob ends as hung still runs.
"""

from enum import Enum

from twofold.policy.machine import Woke, record

Placement = tuple[tuple[str, int], ...]  # node, accelerators on it: what one gang has


class FaultCause(Enum):
    """What failed, as far as the one who reports it knows."""

    ACCELERATOR = "accelerator"
    MEMORY = "memory"  # of the accelerator
    NETWORK = "network"
    HOST = "host"
    STORAGE = "storage"
    POWER = "power"
    THERMAL = "thermal"
    SOFTWARE = "software"
    INPUT = "input"  # of a job, no node: it cannot do what it was told, and is likely to fail the same again
    MAINTENANCE = "maintenance"  # planned: no sign of a bad node
    UNKNOWN = "unknown"


class RepairKind(Enum):
    """What was done to a node before it came back."""

    REBOOTED = "rebooted"
    REPLACED = "replaced"  # its past failures say nothing any more


class JobRefusal(Enum):
    """Why a job was not taken."""

    MALFORMED = "malformed"  # sizes or times that no job has
    DUPLICATE = "duplicate"  # the id is known already; the job that has it goes on
    TOO_LARGE = "too-large"  # more than all nodes together
    ABOVE_QUOTA = "above-quota"  # more than its team may ever have, and it may not borrow
    QUEUE_FULL = "queue-full"


class StopReason(Enum):
    """Why a job's attempt is ended."""

    PREEMPTED = "preempted"  # for a job of higher priority; it is queued again
    RECLAIMED = "reclaimed"  # its team had borrowed what another team now uses; it is queued again
    SERVING = "serving"  # serving needs the nodes; it is queued again
    FAILED = "failed"  # its attempt is over already, and nothing takes the lost part's place: queued again
    GAVE_UP = "gave-up"  # it failed too often: it is failed for good
    CANCELLED = "cancelled"
    HUNG = "hung"  # nothing was heard of it: it is ended wherever it runs; what follows is told after this


# --- events ---


@record
class NodeAdded:
    """A node joins; `domain` is where it stands, outer to inner, such as ("zone-a", "rail-3")."""

    node_id: str
    accelerator_count: int
    domain: tuple[str, ...] = ()


@record
class NodeFailed:
    """A node is gone, and with it the attempts of all jobs that had a part there."""

    node_id: str
    cause: FaultCause


@record
class NodeRepaired:
    """A failed node is back; a node that was up but quarantined was looked after."""

    node_id: str
    kind: RepairKind = RepairKind.REBOOTED


@record
class JobSubmitted:
    """A team asks for a gang. `minimum_count` below `accelerator_count`: the job is elastic."""

    job_id: str
    team: str
    accelerator_count: int
    minimum_count: int
    priority: int  # more is sooner
    expected_s: float  # at full size, without interruptions: an estimate, and often wrong
    checkpoint_write_s: float  # a first guess: the written ones tell
    restart_s: float
    preemptible: bool
    saves: bool = True  # whether it writes checkpoints; one that does not is asked for none
    checkpoint_stall_s: float | None = None  # of a write, how long it stands still; None: all of it


@record
class JobStarted:
    """The attempt has loaded its checkpoint; its work goes on from now."""

    job_id: str
    attempt: int = 0


@record
class JobProgressed:
    """Steps were done since the last report; after JobStarted.

    `node_s`: what each node worked itself in a step, waiting for others apart; empty where nobody knows.
    """

    job_id: str
    step_s: float  # of one step, the mean since the last report
    node_s: tuple[tuple[str, float], ...] = ()
    attempt: int = 0


@record
class JobFinished:
    """All its work is done."""

    job_id: str
    attempt: int = 0


@record
class JobFailed:
    """The attempt ended by itself. `node_id`: where, if it is known, else empty."""

    job_id: str
    cause: FaultCause
    node_id: str = ""
    attempt: int = 0


@record
class JobCancelled:
    """Nobody wants the job any more."""

    job_id: str


@record
class CheckpointWritten:
    """The job's work, as it was when the write began, is safe.

    `write_s` is the time until it was: the job stood still for `stall_s` of it, and worked beside the rest.
    """

    job_id: str
    write_s: float
    attempt: int = 0
    stall_s: float | None = None  # None: all of it


@record
class CheckpointFailed:
    """The job goes on, its last checkpoint is older."""

    job_id: str
    attempt: int = 0


@record
class ServingDemand:
    """What serving needs now, of the pool that it shares with training."""

    accelerator_count: int


NodeReport = NodeAdded | NodeFailed | NodeRepaired
JobReport = JobStarted | JobProgressed | JobFinished | JobFailed | CheckpointWritten | CheckpointFailed
ClusterEvent = NodeReport | JobSubmitted | JobReport | JobCancelled | ServingDemand | Woke

# --- effects ---


@record
class StartJob:
    """Begin an attempt on these accelerators, all of them at once."""

    job_id: str
    placement: Placement
    attempt: int


@record
class SaveCheckpoint:
    """Write a checkpoint now, and tell how it went."""

    job_id: str


@record
class StopJob:
    """End the attempt; unless the reason says otherwise, the job is queued again by itself."""

    job_id: str
    reason: StopReason


@record
class ResizeJob:
    """Go on from the last checkpoint on another number of accelerators: a new attempt."""

    job_id: str
    placement: Placement
    attempt: int = 0


@record
class RefuseJob:
    """The job is not taken, or no longer."""

    job_id: str
    reason: JobRefusal


@record
class QuarantineNode:
    """Nothing is started on the node before `until_s`: it fails more often than chance explains."""

    node_id: str
    until_s: float


@record
class ReleaseNode:
    """The node may be used again. To be told, not done."""

    node_id: str


@record
class SwapNode:
    """Go on from the last checkpoint with the spare in the failed node's place: a new attempt."""

    job_id: str
    failed_node_id: str
    spare_node_id: str
    attempt: int = 0


@record
class GrantServing:
    """These whole nodes are serving's."""

    node_ids: tuple[str, ...]


@record
class ReclaimServing:
    """These nodes are training's again; serving needs them no longer, or they failed."""

    node_ids: tuple[str, ...]


@record
class SlowNode:
    """The gang waits for this node, step after step. To be told, not done."""

    node_id: str
    job_id: str
    slow_ratio: float  # of its own work per step to the others' median


NewAttempt = StartJob | ResizeJob | SwapNode
JobOrder = NewAttempt | SaveCheckpoint | StopJob | RefuseJob
NodeOrder = QuarantineNode | ReleaseNode | GrantServing | ReclaimServing | SlowNode
ClusterEffect = JobOrder | NodeOrder
