"""Workloads that are given by measurement instead of by a model: embeddings, vision, speech, diffusion.

Rows of (batch size, seconds) become a server that takes what has queued, up to its largest batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold.core import InputError
from twofold.inference.load import Latency, flat_latency

POINTS = 200


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """Seconds that one batch takes, by batch size, on one replica of `accelerators`."""

    batch_sizes: tuple[float, ...]  # rising
    service_s: tuple[float, ...]
    accelerators: int = 1


def measured_service(rows: Sequence[tuple[float, float]], accelerators: int = 1) -> MeasuredService:
    """From (batch size, seconds) rows; several rows of one size give their median."""
    if not rows or any(not (size >= 1 and seconds > 0 and np.isfinite(seconds)) for size, seconds in rows):
        raise InputError(
            "a measured workload needs rows of batch size ≥ 1 and seconds > 0",
            hint="columns: batch_size, service_s",
        )
    sizes = sorted({size for size, _ in rows})
    medians = [float(np.median([s for size, s in rows if size == each])) for each in sizes]
    return MeasuredService(tuple(sizes), tuple(medians), accelerators)


def measured_latency(service: MeasuredService, rate_per_s: float) -> Latency:
    """Latency of Poisson arrivals at a server that always takes all that waits, up to its largest batch.

    Formula  b = λ·s(b), at least 1; wait: the running batch's residual s/2, plus ρ²/(1−ρ)·s/2 near saturation
    Why      While one batch runs the next gathers: the batch settles where arrivals fill it.
    Units    requests/s; seconds.
    Source   bulk-service queue, mean value; ρ is the rate over the largest batch's.
    Limits   at the largest batch's rate and beyond: infinite.
    """
    largest, slowest = service.batch_sizes[-1], service.service_s[-1]
    busy = rate_per_s * slowest / largest
    if busy >= 1.0:
        return flat_latency(float("inf"))
    batch = 1.0
    for _ in range(POINTS):  # a contraction: λ·s'(b) < 1 below saturation
        batch = 0.5 * batch + 0.5 * max(1.0, rate_per_s * _service_s(service, batch))
    seconds = _service_s(service, batch)
    occupied = min(1.0, rate_per_s * seconds / batch)
    wait = occupied * seconds / 2.0 + busy**2 / (1.0 - busy) * slowest / 2.0
    mean = seconds + wait
    return Latency(mean, mean, seconds + 2.0 * wait, seconds + 3.0 * wait)


def measured_rate_limit(service: MeasuredService, latency_s_p95: float) -> float:
    """Requests/s of one replica at which the 95th percentile still meets the target; 0 when it never does."""
    most = service.batch_sizes[-1] / service.service_s[-1]
    rates = np.linspace(0.0, most, POINTS, endpoint=False)
    held = [rate for rate in rates if float(measured_latency(service, rate).p95_s) <= latency_s_p95]
    return float(max(held, default=0.0))


def _service_s(service: MeasuredService, batch: float) -> float:
    return float(np.interp(batch, service.batch_sizes, service.service_s))
