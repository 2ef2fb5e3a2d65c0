"""How a job scales: efficiency from one accelerator to many, and what mixed or shared machines lose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.perf import Cluster, Floats
from twofold.training.job import TrainingJob
from twofold.training.layouts import Limits
from twofold.training.search import Candidate, search
from twofold.training.stack import Stack


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One cluster size. Efficiency is throughput per accelerator over that of the smallest size that fits."""

    accelerator_count: int
    candidate: Candidate | None
    efficiency_fraction: float


def weak_scaling(
    job: TrainingJob, cluster: Cluster, stack: Stack, counts: Sequence[int]
) -> tuple[ScalingRow, ...]:
    """Efficiency while the batch grows with the cluster: `job`'s batch is that of the largest of `counts`."""
    rows: list[ScalingRow] = []
    base = np.nan
    for count in counts:
        batch = max(1, job.global_batch_sequences * count // max(counts))
        sized = replace(job, global_batch_sequences=batch)
        best = search(sized, replace(cluster, accelerator_count=count), stack, Limits(vpp_max=8)).best
        rate = sized.tokens_per_step / best.step_s / count if best else 0.0
        base = rate if rate > 0 and np.isnan(base) else base
        rows.append(ScalingRow(count, best, rate / base))
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
