"""A training cluster in plain values: nodes, steps, checkpoints, faults, and what a run answers.

The world's truth (durations, speeds, faults) stands here; what the brain may know goes through its events.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from math import inf

from twofold.contracts.results import courses, simulated
from twofold.policy.cluster import events
from twofold.policy.machine import Machine
from twofold.training.run import Reliability

ClusterMachine = Machine[events.ClusterEvent, events.ClusterEffect]


class Use(StrEnum):
    """What an accelerator's time goes into. Every second of every accelerator is exactly one."""

    BUSY = "busy"  # work that counts, at the speed of sound accelerators side by side
    SLOWED = "slowed"  # the rest of the time of work that counts: stragglers, spread, jitter, neighbours
    LOST = "lost"  # work since the last checkpoint, before a failure or a stop
    CHECKPOINTING = "checkpointing"  # standing still for a write
    RESTARTING = "restarting"  # from a failure until its job goes on, or gives its accelerators back
    SERVING = "serving"
    IDLE = "idle"
    QUARANTINED = "quarantined"
    DOWN = "down"  # being repaired


class RunEnd(Enum):
    """When a run is over."""

    HORIZON = "horizon"  # at the horizon
    LAST_JOB = "last-job"  # when the last job has ended, at the latest at the horizon


# --- the world ---


@dataclass(frozen=True, slots=True)
class CauseRate:
    """One cause: how often it strikes, and what becomes of the node."""

    cause: events.FaultCause
    failures_per_accelerator_h: float
    repair_s: float  # on average; 0: the node stays, only the job ends
    repair: events.RepairKind


@dataclass(frozen=True, slots=True)
class FaultRates:
    """All causes of a cluster, and its lemons: few nodes that cause many of its failures."""

    causes: tuple[CauseRate, ...] = ()
    detection_s: float = Reliability().detection_s  # from a failure until the brain knows
    lemon_fraction: float = 0.0  # of the nodes
    lemon_failure_share: float = 0.0  # of all failures, that lemons cause
    inspection_s: float = 8 * 3600.0  # a quarantined node is looked after within this, and sound again
    drift: tuple[tuple[float, float], ...] = ()  # from this second on, so many times the rates

    def __post_init__(self) -> None:
        assert 0 <= self.lemon_fraction < 1 and 0 <= self.lemon_failure_share < 1, self
        assert list(self.drift) == sorted(self.drift) and all(factor >= 0 for _, factor in self.drift), self

    @property
    def failures_per_accelerator_h(self) -> float:
        """Of all causes together, over all nodes."""
        return sum(one.failures_per_accelerator_h for one in self.causes)

    def scaled(self, factor: float) -> "FaultRates":
        """The same causes and repairs, each `factor` times as often."""
        causes = tuple(
            replace(one, failures_per_accelerator_h=one.failures_per_accelerator_h * factor)
            for one in self.causes
        )
        return replace(self, causes=causes)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes that stand together: name0, name1, … or on from another number."""

    name: str
    count: int
    accelerator_count: int = 8
    domain: tuple[str, ...] = ()  # where they stand, outer to inner
    first: int = 0

    def __post_init__(self) -> None:
        assert self.count >= 0 and self.accelerator_count >= 1, self


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A node whose devices or links take so many times as long, for a while."""

    node_id: str
    from_s: float = 0.0
    until_s: float = inf
    device_factor: float = 1.0
    link_factor: float = 1.0  # 2.0: a link at half speed

    def __post_init__(self) -> None:
        assert 0 <= self.from_s < self.until_s and min(self.device_factor, self.link_factor) >= 1, self


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """A node that fails at a known time, whatever its rates say; where it is down by then, it stays so."""

    at_s: float
    node_id: str
    cause: events.FaultCause = events.FaultCause.HOST
    back_after_s: float = inf  # infinity: never; nobody repairs it before the failure is known

    def __post_init__(self) -> None:
        assert self.at_s >= 0 and self.back_after_s >= 0, self


@dataclass(frozen=True, slots=True)
class NodeStall:
    """What runs on a node stands still from then on, and nobody is told: only its silence tells."""

    at_s: float
    node_id: str

    def __post_init__(self) -> None:
        assert self.at_s >= 0, self


@dataclass(frozen=True, slots=True)
class StepModel:
    """What a step's time is made of, relative to sound accelerators side by side."""

    step_s: float = 1.0  # as reports say it; work goes on at its rate, whatever its steps
    communication_fraction: float = 0.2  # of a step, that it waits for the network
    jitter_fraction: float = 0.0  # one accelerator's spread of step times over their mean
    training_interference_fraction: float = 0.0  # longer communication beside serving in the same domain
    serving_interference_fraction: float = 0.0  # longer service times beside training in the same domain


@dataclass(frozen=True, slots=True)
class CheckpointModel:
    """What a checkpoint is, and what a restart takes before it is read."""

    bytes_per_accelerator: float = 0.0
    snapshot_s: float | None = None  # how long training stops; None: for the whole write
    files_per_accelerator: float = 1.0
    failed_fraction: float = 0.0  # of writes, that come to nothing
    restart_s: float = Reliability().restart_s


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """What all writes and reads share."""

    bytes_per_s: float = inf
    operations_per_s: float = inf  # files created or opened


@dataclass(frozen=True, slots=True)
class ServingLoad:
    """What serving needs of the pool: steps of (from second, accelerators)."""

    needed: tuple[tuple[float, int], ...]  # in truth
    asked: tuple[tuple[float, int], ...]  # what its autoscaler asks for: a forecast, with its lead
    start_s: float = 60.0  # from a grant until the node serves


@dataclass(frozen=True, slots=True)
class ClusterWorld:
    """All of one run except its jobs."""

    nodes: tuple[NodeGroup, ...]
    new_brain: Callable[[], ClusterMachine]
    horizon_s: float
    ends: RunEnd = RunEnd.HORIZON
    faults: FaultRates = field(default_factory=FaultRates)
    slow_nodes: tuple[SlowNode, ...] = ()
    losses: tuple[NodeLoss, ...] = ()
    stalls: tuple[NodeStall, ...] = ()
    report_s: float | None = None  # between a job's reports of its steps; None: it sends none
    step: StepModel = StepModel()
    checkpoint: CheckpointModel = CheckpointModel()
    store: CheckpointStore = CheckpointStore()
    serving: ServingLoad | None = None
    followed_team: str = ""  # whose jobs' courses are kept; "": nobody's
    quotas: Mapping[str, float] | None = None  # of the whole cluster, by team: what shares are held against
    estimate_sigma: float = 0.0  # of the logarithm of what owners say against what their jobs take
    idle_w: float = 0.0  # one accelerator with its share of the host
    busy_w: float = 0.0
    timeline_count: int = 120
    seed: int = 0

    def __post_init__(self) -> None:
        assert 0 < self.horizon_s < inf and self.timeline_count >= 1, self
        assert self.report_s is None or self.report_s > 0, self


# --- what comes out ---


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One bucket of the timeline: mean accelerators by use, and the state at its end."""

    from_s: float
    until_s: float
    training_count: float
    serving_count: float
    idle_count: float
    away_count: float  # down or quarantined
    queued_count: int
    running_count: int
    largest_free_count: int  # accelerators of whole free nodes in one domain
    fragmentation_fraction: float  # of free accelerators, that are on nodes which others use too
    needed_count: int  # by serving


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job that ended, or was there at the end; None where it did not come so far."""

    job_id: str
    team: str
    accelerator_count: int
    state: str  # completed, failed, cancelled, refused, gave-up, running, queued
    submit_s: float
    started_s: float | None  # first
    ended_s: float | None
    waited_s: float  # until it was first started, or until now
    completion_s: float | None  # from submission to its end
    busy_s: float  # accelerator-seconds of work kept
    lost_s: float  # accelerator-seconds
    attempts: int
    preempted_count: int
    failures_count: int
    checkpoints_count: int
    slowest_node: str  # that set its pace last; "": none did
    tokens_per_s: float | None  # from its first start to its end
    samples_per_s: float | None
    placement: str  # where it stood last, as in `n0:8 n1:4`; "": it never ran


@dataclass(frozen=True, slots=True)
class ServingFigures:
    """What serving needed and had of the pool."""

    needed_h: float  # accelerator-hours
    shortfall_h: float  # accelerator-hours that were needed and not ready
    shortfall_s: float  # time in which any was missing: a stand-in for time outside its SLO
    slowdown_factor: float  # of service times beside training; 1: none


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """What a run came to; equal inputs give an equal result."""

    figures: simulated.TrainingFigures
    capacity_h: float  # accelerator-hours: what those by use sum to
    node_failure_count: int
    checkpoint_failed_count: int
    lost_s_mean: float  # wall seconds per failure
    serving: ServingFigures | None
    timeline: tuple[ClusterRow, ...]
    followed: tuple[courses.JobCourse, ...] = ()  # of the team that is followed
