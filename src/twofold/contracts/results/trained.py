"""What `measure train` found on this machine, schema `twofold/measure-train/1`. Nothing here computes."""

from dataclasses import dataclass

from twofold.contracts.results import loop
from twofold.core.estimate import Estimate

TRAINED_SCHEMA = "twofold/measure-train/1"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What was other from run to run."""

    ranks: int
    precision: str
    compute: str  # eager, compiled
    micro_batch: int  # sequences of a rank at once
    recompute: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine while a run ran. What it tells nobody is None."""

    energy_j: float | None
    energy_source: str  # RAPL, NVML; "" without
    tokens_per_j: float | None
    clock_hz_mean: float | None
    clock_hz_min: float | None
    temperature_c_max: float | None
    throttled_fraction: float | None  # of the samples
    clock_of: str = "cores"  # or accelerators: whose clock, temperature and throttling that is


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """One run, and what it says."""

    name: str
    settings: RunSettings
    measured: loop.TrainingMeasured
    held_out_loss: float | None  # after the last step
    slowest_collective: str  # and the rank that the others wait for; "" with one rank
    conditions: Conditions
    branched_from_step: int | None = None  # of the first run, whose checkpoint it went on from
    branched_from_sha256: str = ""  # of that checkpoint's manifest


@dataclass(frozen=True, slots=True)
class Reading:
    """Readers of staged text, at once, each in a process of its own."""

    readers: int
    bytes_per_s_each: tuple[float, ...]  # of tokens as they are kept
    tokens_per_s: float  # of the slowest
    times_needed: float  # of what a rank of the fastest run consumes


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two runs that differ in one thing."""

    what: str  # compiled over eager, 2 ranks over 1, bf16 over fp32
    step_ratio: float  # of median steps; below 1 is faster
    loss_distance_fraction: float  # of the last losses
    loss_limit_fraction: float = 0.0  # at most which that may be
    planned: Estimate | None = None  # of `step_ratio`, by the other runs alone; None without a device


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How far a long sum of bf16 products is off, by what it is added up in, on one device."""

    device: str
    fp32_error_fraction: float
    bf16_error_fraction: float


@dataclass(frozen=True, slots=True)
class TrainedPage:
    """All runs of one model on one machine."""

    model: str
    machine: str
    runs: tuple[TrainedRun, ...]
    ratios: tuple[Ratio, ...]
    readings: tuple[Reading, ...]
    accumulation: Accumulation
    findings: tuple[loop.Finding, ...]
    notes: tuple[str, ...]
    rows_file: str = ""
