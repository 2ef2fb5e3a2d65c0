"""The fastest layout that fits, the trade-offs beside it, and why the others lost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twofold.core.display import format_memory
from twofold.perf.types import Cluster, Floats
from twofold.training.job import TrainingJob, Workload
from twofold.training.layouts import EVERYTHING, Layouts, Limits, Recompute, enumerate_layouts
from twofold.training.memory import Memory, memory
from twofold.training.stack import Stack
from twofold.training.step import StepTime, step_time

BLOCK = 8192  # candidates priced in one pass: their arrays stay in cache
TRIED_DEVICES_MAX = 4096  # when looking for a count that would fit


@dataclass(frozen=True, slots=True)
class Candidate:
    """Layouts with their step and their memory; of what a search returns, each of length one."""

    layouts: Layouts
    step: StepTime
    memory: Memory

    @property
    def step_s(self) -> float:
        """Seconds of its step."""
        return float(self.step.total_s[..., 0])  # type: ignore[index]

    @property
    def high_bytes(self) -> float:
        """Upper end of its memory range."""
        return float(np.ravel(self.memory.high_bytes)[0])

    def describe(self) -> str:
        """The layout on one line."""
        return self.layouts.describe()


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """The layout that came closest to fitting."""

    candidate: Candidate
    missing_bytes: float  # per device
    change: str  # the smallest change that makes the job fit, in words


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found. `reasons` counts the losers: by broken rule, by memory, by being slower."""

    best: Candidate | None
    front: Layouts | None  # no other is both faster and smaller; fastest first
    evaluated_count: int
    reasons: dict[str, int]
    nearest_miss: NearestMiss | None  # when nothing fits


@dataclass(frozen=True, slots=True)
class Priced:
    """Every valid layout with its time and the upper end of its memory."""

    layouts: Layouts
    step_s: NDArray[np.float64]
    high_bytes: NDArray[np.float64]
    refused: dict[str, int]


def price_layouts(job: TrainingJob, cluster: Cluster, stack: Stack, limits: Limits = EVERYTHING) -> Priced:
    """Step time and memory of every valid layout, in blocks that stay in cache."""
    layouts, refused = enumerate_layouts(job, cluster, limits)
    work = job.workload
    step_s, high_bytes = np.empty(len(layouts)), np.empty(len(layouts))
    for start in range(0, len(layouts), BLOCK):
        block = slice(start, start + BLOCK)
        part = layouts.take(np.arange(len(layouts))[block])
        step_s[block] = step_time(work, job.precision, part, cluster, stack).total_s
        high_bytes[block] = memory(work, part, stack).high_bytes
    return Priced(layouts, step_s, high_bytes, refused)


def search(job: TrainingJob, cluster: Cluster, stack: Stack, limits: Limits = EVERYTHING) -> SearchResult:
    """Exhaust the layouts of `job` on `cluster`; what fits does so at the upper end of its memory range."""
    priced = price_layouts(job, cluster, stack, limits)
    fits = priced.high_bytes <= cluster.device.memory_bytes
    count = len(priced.layouts)
    reasons = dict(priced.refused)
    if count > int(fits.sum()):
        reasons["memory"] = count - int(fits.sum())
    if not count:
        return SearchResult(None, None, count, reasons, None)
    if not fits.any():
        smallest = priced.layouts.row(int(np.argmin(priced.high_bytes)))
        closest = candidate(job.workload, job.precision, smallest, cluster, stack)
        missing_bytes = closest.high_bytes - cluster.device.memory_bytes
        miss = NearestMiss(closest, missing_bytes, _nearest_change(job, cluster, stack, closest))
        return SearchResult(None, None, count, reasons, miss)
    if fits.sum() > 1:
        reasons["slower"] = int(fits.sum()) - 1
    front = pareto_front(priced, fits)
    # Only the fastest is priced in full: a plan looks at dozens of sizes, and a front has dozens of layouts.
    best = candidate(job.workload, job.precision, priced.layouts.row(front[0]), cluster, stack)
    return SearchResult(best, priced.layouts.take(np.array(front)), count, reasons, None)


def candidate(work: Workload, precision: str, layouts: Layouts, cluster: Cluster, stack: Stack) -> Candidate:
    """Given layouts with everything that is known of them: one, or as many as `work` has numbers for."""
    step = step_time(work, precision, layouts, cluster, stack)
    return Candidate(layouts, step, memory(work, layouts, stack))


def pareto_front(priced: Priced, fits: NDArray[np.bool_]) -> list[int]:
    """Indices of the feasible layouts that none beats in both time and memory, fastest first."""
    index = np.flatnonzero(fits)
    order = index[np.lexsort((priced.high_bytes[index], priced.step_s[index]))]
    smallest = np.minimum.accumulate(priced.high_bytes[order])
    first = np.concatenate([[True], smallest[1:] < smallest[:-1]])
    return [int(i) for i in order[first]]


def _nearest_change(job: TrainingJob, cluster: Cluster, stack: Stack, closest: Candidate) -> str:
    """What would make the job fit: more nodes, states in host memory, or more memory per device."""
    words = [f"devices with {format_memory(closest.high_bytes)} of memory"]
    nodes = -(-cluster.accelerator_count // cluster.network.node_size)
    more = _smallest_count_that_fits(job, cluster, stack, nodes)
    if more:
        size = cluster.network.node_size
        what = f"nodes of {size}" if size > 1 else "devices"
        words.insert(0, f"{more} {what} instead of {nodes}")
    if job.optimizer_place == "device":
        offloaded = replace(job, optimizer_place="host")
        if _fits(offloaded, cluster, stack, cluster.accelerator_count):
            words.append("optimiser states in host memory")
    return " · ".join(words)


def _smallest_count_that_fits(job: TrainingJob, cluster: Cluster, stack: Stack, nodes: int) -> int | None:
    """Nodes near the asked number first, then its doublings as far as anybody would go."""
    most = TRIED_DEVICES_MAX // cluster.network.node_size
    near = {nodes + extra for extra in range(1, 5)} | {nodes * factor // 2 for factor in range(3, 17)}
    doubled = {nodes * 2**power for power in range(4, TRIED_DEVICES_MAX.bit_length())}
    sizes = sorted(size for size in near | {size for size in doubled if size <= most} if size > nodes)
    return next((n for n in sizes if _fits(job, cluster, stack, n * cluster.network.node_size)), None)


def _fits(job: TrainingJob, cluster: Cluster, stack: Stack, accelerator_count: int) -> bool:
    larger = replace(cluster, accelerator_count=accelerator_count)
    lean = Limits(micro_batch_max=1, vpp_max=1, recompute=(Recompute.FULL,))
    layouts, _ = enumerate_layouts(job, larger, lean)
    return bool(np.any(memory(job.workload, layouts, stack).high_bytes <= cluster.device.memory_bytes))


def straggler_loss_fraction(step_s: Floats, counts: Sequence[int]) -> float:
    """Throughput that a pool of mixed parts loses because every step waits for the slowest.

    Formula  1 − (n / max t) / Σ(n_i / t_i), t_i the step on a pool of part i alone, n_i how many of them
    Why      Synchronous data parallelism advances at the pace of the slowest rank; pools of one kind each
             would add their throughputs.
    Units    `step_s` per kind of part, seconds; a fraction out.
    Limits   one kind or equal kinds: 0; a kind infinitely slow: 1.

    >>> straggler_loss_fraction(np.array([1.0, 1.0]), [8, 8])
    0.0
    """
    times, sizes = np.asarray(step_s, float), np.asarray(counts, float)
    return float(1 - sizes.sum() / times.max() / np.sum(sizes / times))
