"""How a job scales: efficiency from one accelerator to many, and what mixed or shared machines lose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.perf import Cluster, Floats
from twofold.training.job import TrainingJob
from twofold.training.layouts import Limits
from twofold.training.search import Candidate, search
from twofold.training.stack import Stack

KNEE_EFFICIENCY_FRACTION = 0.5


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One cluster size. Efficiency is throughput per accelerator over that of the smallest size that fits."""

    accelerator_count: int
    candidate: Candidate | None
    tokens_per_s: float
    efficiency_fraction: float
    efficiency_low: float
    efficiency_high: float


def weak_scaling(
    job: TrainingJob, cluster: Cluster, stack: Stack, counts: Sequence[int], spread_factor: float = 1.1
) -> tuple[ScalingRow, ...]:
    """Efficiency while the batch grows with the cluster: `job`'s batch is that of the largest of `counts`."""
    largest = max(counts)

    def batch(count: int) -> int:
        return max(1, job.global_batch_sequences * count // largest)

    jobs = [replace(job, global_batch_sequences=batch(count)) for count in counts]
    return _rows(jobs, cluster, stack, counts, spread_factor)


def strong_scaling(
    job: TrainingJob, cluster: Cluster, stack: Stack, counts: Sequence[int], spread_factor: float = 1.1
) -> tuple[ScalingRow, ...]:
    """Efficiency at a fixed batch: where more accelerators stop paying."""
    return _rows([job] * len(counts), cluster, stack, counts, spread_factor)


def diminishing_count(rows: Sequence[ScalingRow]) -> int | None:
    """The smallest cluster whose efficiency is below one half; None when none is."""
    below = [
        r.accelerator_count for r in rows if r.candidate and r.efficiency_fraction < KNEE_EFFICIENCY_FRACTION
    ]
    return min(below, default=None)


def _rows(
    jobs: Sequence[TrainingJob], cluster: Cluster, stack: Stack, counts: Sequence[int], spread_factor: float
) -> tuple[ScalingRow, ...]:
    found = [
        search(job, replace(cluster, accelerator_count=count), stack, Limits(vpp_max=8)).best
        for job, count in zip(jobs, counts, strict=True)
    ]
    rates = [
        job.tokens_per_step / best.step_s if best else 0.0 for job, best in zip(jobs, found, strict=True)
    ]
    per_device = [rate / count for rate, count in zip(rates, counts, strict=True)]
    base = next((rate for rate in per_device if rate > 0), np.nan)
    first = next((count for count, rate in zip(counts, per_device, strict=True) if rate > 0), 0)
    rows = []
    for count, best, rate, alone in zip(counts, found, rates, per_device, strict=True):
        efficiency = alone / base
        spread = spread_factor if count != first else 1.0  # the reference is itself by definition
        rows.append(ScalingRow(count, best, rate, efficiency, efficiency / spread, efficiency * spread))
    return tuple(rows)


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


def virtualised(
    cluster: Cluster, compute_overhead_fraction: float, network_overhead_fraction: float
) -> Cluster:
    """The same cluster behind a hypervisor: slower kernels by one share, slower fabric by another."""
    device, network = cluster.device, cluster.network
    slowed = {name: peak / (1 + compute_overhead_fraction) for name, peak in device.peak_flops_per_s.items()}
    return replace(
        cluster,
        device=replace(
            device,
            peak_flops_per_s=slowed,
            memory_bytes_per_s=device.memory_bytes_per_s / (1 + compute_overhead_fraction),
            kernel_floor_s=device.kernel_floor_s * (1 + compute_overhead_fraction),
        ),
        network=replace(network, nic_bytes_per_s=network.nic_bytes_per_s / (1 + network_overhead_fraction)),
    )
