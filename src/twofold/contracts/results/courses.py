"""A rehearsal over time, part of `twofold/simulation/1`: columns of equally many numbers, bounded in length.

Nothing here computes. A span of a course ends where its `until_s` says and begins where the one before ends,
the first at 0. Seconds since the run began.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatencyCourse:
    """One metric of a class, of answers that ended in each span; null: none did."""

    name: str  # of the class
    metric: str  # ttft, tpot or e2e
    p50_s: tuple[float | None, ...]  # s
    p95_s: tuple[float | None, ...]  # s
    p99_s: tuple[float | None, ...]  # s


@dataclass(frozen=True, slots=True)
class ReplicaSpan:
    """A stretch of one replica's life; those that were ready all the time are counted elsewhere."""

    replica: str  # its name
    state: str  # starting, ready, draining or down
    from_s: float  # s
    until_s: float  # s


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that befell the world, or that was decided."""

    at_s: float  # s
    text: str  # on one line


@dataclass(frozen=True, slots=True)
class TrialCourse:
    """A release under trial, as the gate saw it at its looks."""

    pool: str  # that it was tried in
    version: str  # its name
    at_s: tuple[float, ...]  # of each look, s
    share_fraction: tuple[float, ...]  # of requests that it was to get
    tried_count: tuple[int, ...]  # requests that it had answered, or failed
    worse_probability: dict[str, tuple[float, ...]]  # by test: worse by the margin, even odds before
    decision: str  # promoted, or rolled back and why; empty: none yet
    decided_s: float | None  # s; null: none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCourse:
    """One pool over time."""

    service: str = ""  # whose pool
    pool: str = ""  # as in its figures
    until_s: tuple[float, ...]  # ends of the spans, s
    arrived_count: tuple[int, ...]  # requests
    finished_count: tuple[int, ...]  # requests with a whole answer
    refused_count: tuple[int, ...]  # askings that the gate turned down
    failed_count: tuple[int, ...]  # requests that ended without a whole answer, refused and left ones apart
    queued_mean: tuple[float, ...]  # requests that the gate held
    waiting_mean: tuple[float, ...]  # requests in engines whose answer had not begun
    ready_count: tuple[int, ...]  # replicas at the end of the span
    busy_fraction: tuple[float, ...]  # of ready time in which a replica computed
    kv_used_fraction: tuple[float, ...]  # of the caches
    latencies: tuple[LatencyCourse, ...]  # by class: metrics with a goal, else the first token's
    replicas: tuple[ReplicaSpan, ...]  # of those that came, went or failed
    steady_count: int  # replicas that were ready from the first second to the last
    left_out_count: int  # spans of replicas beyond what is kept
    marks: tuple[Mark, ...]  # faults
    trials: tuple[TrialCourse, ...]  # of releases


@dataclass(frozen=True, slots=True)
class JobSpan:
    """A stretch of one job's life."""

    state: str  # queued, starting, running or failed
    from_s: float  # s
    until_s: float  # s


@dataclass(frozen=True, slots=True)
class JobCourse:
    """One job: the plan's own, or one of the largest of others."""

    name: str  # of the job
    team: str  # whose it is
    accelerator_count: int  # that it asks for
    state: str  # completed, running, queued … at the end
    own: bool  # whether it is the plan's
    spans: tuple[JobSpan, ...]  # of others: queued, then running
    failure_s: tuple[float, ...]  # when it failed, s; of others none are kept
    checkpoint_s: tuple[float, ...]  # when one was written, s; of others none are kept
    checkpoint_every: int  # checkpoints that each of these stands for
    left_out_count: int  # spans and failures beyond what is kept


@dataclass(frozen=True, slots=True)
class ClusterCourse:
    """A training cluster over time: accelerators by use, in the mean of each span."""

    until_s: tuple[float, ...]  # ends of the spans, s
    training_count: tuple[float, ...]  # accelerators that jobs held
    serving_count: tuple[float, ...]  # accelerators that served
    idle_count: tuple[float, ...]  # accelerators
    away_count: tuple[float, ...]  # accelerators down or quarantined
    needed_count: tuple[int, ...]  # accelerators that serving needed, at the end of the span
    queued_count: tuple[int, ...]  # jobs that waited, at the end of the span
    jobs: tuple[JobCourse, ...]  # the plan's own, then the largest of others
