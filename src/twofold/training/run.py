"""From a step to a run: steps, failures, checkpoints, goodput, storage, accelerator-hours and energy."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twofold.core import record
from twofold.core.errors import InputError
from twofold.perf.types import Cluster
from twofold.policy.cluster.cadence import checkpoint_interval_s
from twofold.training.job import TrainingJob
from twofold.training.stack import WRITES_BEHIND, software_family

TOKEN_BYTES = 4.0  # a token id on disk with its share of index
COMPUTE_UTILISATION_FRACTION = 0.9  # of the dynamic power range that a training step draws
WRITING_FRACTION = 0.05  # of the time that may go into writes beside training: storage and hosts serve others
# What an asynchronous checkpoint stops a run for beside its copy: all ranks agree on it and hand it over.
SNAPSHOT_S = 2.0  # 0.5 s (ByteCheckpoint 2024) to 6 s (PyTorch's distributed checkpoint, 2024)


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often a cluster stops and how long it takes to go on."""

    accelerator_h_between_failures: float = 50_700.0  # Llama 3: 419 interruptions, 16,384 GPUs, 54 days
    detection_s: float = 120.0
    restart_s: float = 300.0  # spare node, processes, communicators; reading the checkpoint comes on top


LLAMA_3 = Reliability()


@dataclass(frozen=True, slots=True)
class StoragePlan:
    """What the job asks of storage, and which term asks for most; None where a size is not known."""

    checkpoint_write_bytes_per_s: float | None
    ingest_bytes_per_s: float | None
    needed_bytes_per_s: float | None
    source: str | None  # checkpoint write | restart read | data ingest


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A whole run. `wall_s` = compute + checkpoints + failures; headroom is bought on top of it.

    Under a cluster that hardly gets from one checkpoint to the next, `wall_s` grows without end and
    `goodput_fraction` falls to 0; whether that is a plan is for the caller to say, by `gets_ahead`.
    """

    steps_count: int
    compute_s: float
    checkpoint_stall_s: float
    failure_s: float
    wall_s: float
    goodput_fraction: float
    base_accelerator_h: float
    headroom_accelerator_h: Mapping[str, float]
    total_accelerator_h: float
    total_s: float  # wall time with headroom
    failures_count: float
    mean_time_between_failures_s: float
    checkpoint_bytes: float | None  # None: not known
    checkpoint_write_s: float
    checkpoint_pause_s: float  # of one: how long training stops for it
    checkpoint_interval_s: float
    restart_s: float  # per failure: to notice it, to start again, to read the checkpoint
    lost_work_s: float  # per failure, on average
    storage: StoragePlan
    energy_j: float

    @property
    def gets_ahead(self) -> bool:
        """Whether a restart and one checkpoint take less than the mean time between failures."""
        return self.restart_s + self.checkpoint_write_s < self.mean_time_between_failures_s


# Of `RunPlan`: how a figure follows, and the names of what it follows from.
FORMULAS: Mapping[str, tuple[str, ...]] = {
    "compute_s": ("steps × step", "run.steps_count", "step_s"),
    "checkpoint_interval_s": (
        "√(2 · pause · time between failures), Daly's terms added, and beside training 20 writes, "
        "summed as squares; no longer than for a pause of a whole write",
        *("run.checkpoint_pause_s", "write", "failures", "accelerators"),
    ),
    "checkpoint_stall_s": (
        "compute / interval × pause",
        "run.compute_s",
        "run.checkpoint_interval_s",
        "run.checkpoint_pause_s",
    ),
    "failure_s": (
        "failures × (detection + restart + reading the checkpoint back + about half an interval, and what "
        "was done beside a write)",
        *("failures", "accelerators", "stop", "write", "run.checkpoint_pause_s"),
        *("run.checkpoint_interval_s", "run.compute_s"),
    ),
    "wall_s": (
        "compute + checkpoints + failures",
        "run.compute_s",
        "run.checkpoint_stall_s",
        "run.failure_s",
    ),
    "total_s": ("wall × (1 + headroom)", "run.wall_s", "headroom"),
    "total_accelerator_h": ("total × accelerators / 3600", "run.total_s", "accelerators"),
    "failures_count": ("wall × accelerators / hours per failure", "run.wall_s", "accelerators", "failures"),
    "goodput_fraction": ("compute / wall", "run.compute_s", "run.wall_s"),
}


@dataclass(frozen=True, slots=True)
class RunWork:
    """What a run has to do, however its step is known; None where a size is not known."""

    steps_count: int
    checkpoint_bytes: float | None
    data_bytes_per_step: float | None
    checkpoint_write_s: float = 60.0  # until it is whole
    stated_stall_s: float | None = None  # of which training stops, where somebody says
    writes_behind: bool = False  # else for a snapshot alone, as the framework does, or for all of it


def run_work(job: TrainingJob, tokens: float, write_s: float = 60.0, stall_s: float | None = None) -> RunWork:
    """Steps, checkpoint and data of a job whose model is known; its framework tells how it writes."""
    if not (tokens > 0 and np.isfinite(tokens)):
        raise InputError("a run needs a positive step time, token count and checkpoint write time")
    steps = int(np.ceil(tokens / job.tokens_per_step))
    record.note("run.steps_count", steps, "tokens / tokens per step, rounded up", "tokens", "batch")
    sizes = job.workload.checkpoint_bytes, job.tokens_per_step * TOKEN_BYTES
    behind = software_family(job.framework, job.precision) in WRITES_BEHIND
    return RunWork(steps, *sizes, write_s, stall_s, behind)


def run_plan(
    work: RunWork,
    step_s: float,
    cluster: Cluster,
    headroom: Mapping[str, float] | None = None,
    reliability: Reliability = LLAMA_3,
) -> RunPlan:
    """Everything that a run's steps take beyond the step.

    `headroom` names shares of the base accelerator-hours kept for other causes (retries, validation, …).
    Storage is sized to write a checkpoint in its time. Writes beside training take storage and hosts for a
    small share of it; what is done while one is written is lost with it until it is whole.
    """
    write_s = work.checkpoint_write_s
    if not (step_s > 0 and np.isfinite(step_s) and write_s > 0):
        raise InputError("a run needs a positive step time, token count and checkpoint write time")
    shares = dict(headroom or {})
    for name, share in shares.items():
        if not 0 <= share < np.inf:
            raise InputError(f"headroom '{name}' is {share}", hint="write a share of the run, such as 5 %")
    stall_s = _stall_s(work, cluster)
    behind_s = write_s - stall_s
    compute_s = work.steps_count * step_s
    between_s = reliability.accelerator_h_between_failures * 3600 / cluster.accelerator_count
    # Writes beside training take a small share of its time, unless failures ask for whole writes more often.
    sparse_s = float(np.hypot(checkpoint_interval_s(between_s, stall_s), write_s / WRITING_FRACTION))
    interval_s = min(sparse_s, checkpoint_interval_s(between_s, write_s))
    # A checkpoint is read back about as fast as it was written.
    restart_s = reliability.detection_s + reliability.restart_s + write_s
    stalled_s = compute_s / interval_s * stall_s
    wall_s = compute_s * failing_time_ratio(between_s, restart_s + behind_s, interval_s, stall_s)
    failures = wall_s / between_s
    base_h = wall_s / 3600 * cluster.accelerator_count
    total_factor = 1 + sum(shares.values())
    plan = RunPlan(
        steps_count=work.steps_count,
        compute_s=compute_s,
        checkpoint_stall_s=stalled_s,
        failure_s=wall_s - compute_s - stalled_s,
        wall_s=wall_s,
        goodput_fraction=compute_s / wall_s,
        base_accelerator_h=base_h,
        headroom_accelerator_h={name: base_h * share for name, share in shares.items()},
        total_accelerator_h=base_h * total_factor,
        total_s=wall_s * total_factor,
        failures_count=failures,
        mean_time_between_failures_s=between_s,
        checkpoint_bytes=work.checkpoint_bytes,
        checkpoint_write_s=write_s,
        checkpoint_pause_s=stall_s,
        checkpoint_interval_s=interval_s,
        restart_s=restart_s,
        lost_work_s=lost_work_s(between_s, interval_s + stall_s) + behind_s,
        storage=_storage(work, step_s, reliability),
        energy_j=float(np.max(cluster.device.power_w(COMPUTE_UTILISATION_FRACTION) * wall_s))
        * cluster.accelerator_count,
    )
    for name, said in FORMULAS.items():
        record.note(f"run.{name}", getattr(plan, name), *said)
    said_j = "watts of an accelerator at work × wall × accelerators"
    record.note("accelerators_j", plan.energy_j, said_j, "watts", "run.wall_s", "accelerators")
    return plan


def failing_time_ratio(
    mean_time_between_failures_s: float, restart_s: float, interval_s: float, stall_s: float
) -> float:
    """Expected seconds per second of work under failures, restarts and checkpoints.

    Formula  M·e^(R/M)·(e^((τ+δ)/M) − 1) / τ
    Why      Failures come at random and can strike a restart or repeated work too: the expected tries until
             a restart, and then a stretch of τ with its checkpoint δ, pass without one.
    Units    seconds; the ratio has none.
    Source   Daly 2006, equation 20, exponential times between failures.
    Limits   M → ∞: 1 + δ/τ, checkpoints alone; M → 0: infinite, nothing gets done.

    >>> round(failing_time_ratio(3.1 * 3600, 480.0, 19 * 60, 60.0), 2)
    1.16
    """
    between = mean_time_between_failures_s
    with np.errstate(over="ignore"):
        tries = np.exp(restart_s / between) * np.expm1((interval_s + stall_s) / between)
        return float(between * tries / interval_s)


def lost_work_s(mean_time_between_failures_s: float, stretch_s: float) -> float:
    """Seconds of a stretch of work and checkpoint that a failure in it undoes, on average.

    Formula  M − s / (e^(s/M) − 1)
    Why      The mean of an exponential time that is known to end within s.
    Units    seconds.
    Source   Daly 2006.
    Limits   M → ∞: s/2; M → 0: M.
    """
    between = mean_time_between_failures_s
    with np.errstate(over="ignore"):
        return float(between - stretch_s / np.expm1(stretch_s / between))


def _stall_s(work: RunWork, cluster: Cluster) -> float:
    """How long training stops for one checkpoint.

    Formula  stated; else the whole write; behind training its snapshot, no longer than the write:
             agreeing on it + bytes / accelerators / host link
    Why      Each accelerator copies its share to its host, from where it is written while training goes on.
    Units    seconds.
    Source   Wan et al. 2024 (ByteCheckpoint); PyTorch and Megatron-Core on asynchronous checkpoints, 2024.
    Limits   a share that the host's memory does not hold is not told apart.
    """
    write_s, host = work.checkpoint_write_s, float(np.max(cluster.network.host_bytes_per_s))
    copied_s = (work.checkpoint_bytes or 0.0) / cluster.accelerator_count / host
    stall_s, formula, *inputs = write_s, "the whole write", "write"
    if work.stated_stall_s is not None:
        stall_s, formula, *inputs = work.stated_stall_s, "as stated", "stall"
    elif work.writes_behind:
        formula = "agreeing on it + bytes / accelerators / host link, no longer than the write"
        stall_s, inputs = SNAPSHOT_S + copied_s, ["snapshot", "accelerators", "write"]
    return record.note("run.checkpoint_pause_s", min(stall_s, write_s), formula, *inputs)


def _storage(work: RunWork, step_s: float, reliability: Reliability) -> StoragePlan:
    """Rates that the job needs; the largest names the source."""
    size, data = work.checkpoint_bytes, work.data_bytes_per_step
    write = None if size is None else size / work.checkpoint_write_s
    # Half of a restart may go into reading.
    read = None if size is None else size / max(reliability.restart_s / 2, 1.0)
    ingest = None if data is None else data / step_s
    terms = {"checkpoint write": write, "restart read": read, "data ingest": ingest}
    known = [(rate, name) for name, rate in terms.items() if rate is not None]
    needed, source = max(known, key=lambda term: term[0], default=(None, None))
    return StoragePlan(write, ingest, needed, source)
