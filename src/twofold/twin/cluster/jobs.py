"""Jobs that arrive: like those of real clusters, by published curves, or taken from the rows of a trace.

Source   Hu et al., Characterization of LLM development in the datacenter (NSDI 2024): the curves of its
         figures for all GPU jobs of Seren, Kalos, Philly, Helios and PAI, read at powers of two, and its
         table of clusters. CC-BY 4.0. Hours of day and gaps between arrivals: the jobs of Philly
         (Jeon et al. 2019, CC-BY 4.0) and of Kalos.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import erf, inf, sqrt

import numpy as np
from numpy.typing import NDArray

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DURATIONS_S = tuple(2.0**exponent for exponent in range(22))
# Submissions by hour of day over their mean; the other clusters publish no such figure.
DAY_SHAPE = (
    1.37, 1.24, 1.36, 0.91, 0.48, 1.24, 1.72, 2.47, 1.04, 0.98, 0.99, 0.74,
    0.86, 0.59, 0.62, 0.53, 0.97, 0.65, 0.57, 0.48, 1.13, 0.86, 1.21, 1.0,
)  # fmt: skip
BLOCK_COUNT = 4096  # jobs that are drawn at once: memory does not grow with the number of jobs


@dataclass(frozen=True, slots=True)
class JobShape:
    """One cluster's jobs. Percentages are cumulative, at `SIZES` accelerators or `DURATIONS_S` seconds.

    A job on part of an accelerator counts as one on a whole one.
    """

    name: str
    jobs_count: int
    days: float
    size_percent_by_jobs: tuple[float, ...]
    size_percent_by_time: tuple[float, ...]
    duration_percent: tuple[float, ...]
    gap_cv_ratio: float  # spread of the gaps between arrivals over their mean; 1 is random
    completed_fraction: float  # of jobs, the rest failed or was cancelled


SHAPES = {
    shape.name: shape
    for shape in (
        JobShape(
            "seren", 663_813, 184.0,
            (54.04, 65.43, 67.95, 96.75, 97.86, 98.82, 99.32, 99.55, 99.73, 99.86, 100.0),
            (1.35, 1.79, 2.37, 11.92, 13.15, 19.12, 27.59, 41.69, 56.3, 69.69, 100.0),
            (2.18, 2.78, 5.62, 11.76, 23.38, 31.71, 37.12, 48.91, 65.63, 79.21, 88.03, 92.94, 95.99, 97.53,
             98.44, 99.19, 99.64, 99.83, 99.93, 99.98, 100.0, 100.0),
            6.18, 0.497,
        ),
        JobShape(
            "kalos", 19_907, 184.0,
            (86.28, 88.36, 88.36, 93.92, 94.26, 94.65, 95.3, 95.68, 96.9, 98.94, 100.0),
            (0.14, 0.14, 0.14, 0.62, 0.62, 1.96, 3.26, 3.75, 24.88, 64.14, 100.0),
            (0.0, 0.0, 0.0, 0.01, 1.48, 18.72, 38.19, 50.47, 69.1, 79.45, 85.94, 92.77, 97.06, 98.68,
             99.11, 99.45, 99.66, 99.83, 99.95, 99.98, 100.0, 100.0),
            6.18, 0.541,
        ),
        JobShape(
            "philly", 112_956, 75.0,
            (82.42, 84.48, 92.05, 98.91, 99.81, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
            (16.43, 19.4, 38.17, 88.03, 97.2, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
            (0.03, 0.08, 0.17, 0.82, 3.62, 8.42, 18.88, 26.99, 31.5, 36.28, 54.91, 67.47, 79.28, 84.6,
             90.29, 92.71, 94.86, 96.95, 98.39, 99.32, 99.8, 100.0),
            20.29, 0.604,
        ),
        JobShape(
            "helios", 1_580_464, 184.0,
            (72.19, 74.75, 80.47, 94.69, 97.72, 99.35, 99.73, 99.88, 100.0, 100.0, 100.0),
            (5.44, 7.16, 12.14, 41.34, 61.5, 86.63, 94.38, 97.48, 100.0, 100.0, 100.0),
            (4.0, 4.93, 6.35, 7.7, 10.72, 16.15, 24.88, 37.81, 56.57, 67.58, 75.25, 84.1, 87.53, 90.75,
             94.36, 96.26, 97.77, 98.9, 99.55, 99.86, 99.96, 100.0),
            6.18, 0.624,
        ),
        JobShape(
            "pai", 1_037_085, 60.0,
            (97.07, 98.65, 99.11, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
            (68.12, 72.89, 78.65, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
            (0.08, 0.08, 0.11, 0.43, 2.99, 11.87, 21.06, 28.95, 39.62, 50.9, 60.79, 69.84, 78.51, 87.12,
             93.19, 97.05, 99.03, 99.69, 99.95, 100.0, 100.0, 100.0),
            6.18, 1.0,
        ),
    )
}  # fmt: skip


def sizes(shape: JobShape, ranks: NDArray[np.float64]) -> NDArray[np.int64]:
    """Accelerators of jobs that stand at `ranks` (0 to 1) in the order of size."""
    places = np.searchsorted(np.asarray(shape.size_percent_by_jobs) / 100, ranks, side="left")
    return np.asarray(SIZES)[np.minimum(places, len(SIZES) - 1)]


def durations_s(shape: JobShape, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of jobs that stand at `ranks` (0 to 1) in the order of duration: straight in its logarithm."""
    logs = np.interp(ranks * 100, (0.0, *shape.duration_percent), range(-1, len(DURATIONS_S)))
    return np.exp2(logs)


@lru_cache(maxsize=len(SHAPES))
def size_correlation(shape: JobShape) -> float:
    """How much larger jobs last longer: the correlation of the ranks' normal scores.

    Formula  the one of −0.5, −0.475, … 0.95 whose accelerator-time by size is closest to the published curve
    Why      Both curves by jobs say nothing of the link; the curve by accelerator-time does.
    """
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, 20_000))
    size = sizes(shape, _ranks(first))
    wanted = np.asarray(shape.size_percent_by_time) / 100

    def miss(correlation: float) -> float:
        score = correlation * first + np.sqrt(1 - correlation**2) * second
        time = size * durations_s(shape, _ranks(score))
        shares = np.array([time[size <= limit].sum() for limit in SIZES]) / time.sum()
        return float(np.sum((shares - wanted) ** 2))

    return float(min(np.arange(-0.5, 0.951, 0.025), key=miss))


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 0 to 1 by order."""
    return (np.argsort(np.argsort(scores)) + 0.5) / len(scores)


class JobEnd(Enum):
    """How a job ends where nothing of the cluster ends it first."""

    COMPLETED = "completed"
    FAILED = "failed"  # of itself: it is not tried again
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobArrival:
    """One job as the world knows it. What the brain is told of `duration_s` is an estimate."""

    submit_s: float
    duration_s: float  # of work on `accelerator_count` sound accelerators side by side
    accelerator_count: int
    team: str = ""
    state: JobEnd = JobEnd.COMPLETED
    job_id: str = ""  # "": numbered as it arrives
    priority: int = 0
    minimum_count: int | None = None  # fewer would do; None: a gang of exactly `accelerator_count`
    preemptible: bool = True
    tokens: float = 0.0  # that all its work trains on; 0: not said
    samples: float = 0.0

    def __post_init__(self) -> None:
        assert 0 <= self.submit_s < inf and 0 <= self.duration_s < inf, self
        assert 1 <= (self.minimum_count or 1) <= self.accelerator_count, self


@dataclass(frozen=True, slots=True)
class JobTraffic:
    """Jobs like those of one published cluster."""

    shape: JobShape
    until_s: float  # none arrives later
    rate_factor: float = 1.0  # of the published cluster's arrivals
    sizes_max: int = 1024  # larger ones are drawn again at this size
    teams: tuple[tuple[str, float], ...] = (("", 1.0),)  # and their shares of the jobs
    day_shape: tuple[float, ...] = DAY_SHAPE
    gap_cv_ratio: float | None = None  # None: the shape's
    seed: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.until_s < inf and self.rate_factor > 0 and self.sizes_max >= 1, self
        assert min(self.day_shape) > 0 and all(share > 0 for _, share in self.teams), self


def generate_jobs(traffic: JobTraffic) -> Iterator[JobArrival]:
    """Jobs in order of time, drawn anew from the same seed.

    Formula  batches at random times whose rate follows the day; sizes of batches are geometric with mean
             (1 + v²)/2, so that gaps between jobs have the spread v; size and duration by their curves,
             linked by `size_correlation`; how it ends by the share of completed jobs
    Why      People submit sweeps; a batch is one team's.
    """
    shape = traffic.shape
    timer, drawer = (np.random.default_rng([traffic.seed, purpose]) for purpose in (1, 2))
    cv_ratio = shape.gap_cv_ratio if traffic.gap_cv_ratio is None else traffic.gap_cv_ratio
    batch_mean = max(1.0, (1 + cv_ratio**2) / 2)
    rate_per_s = shape.jobs_count / shape.days / 86400 * traffic.rate_factor
    names = [name for name, _ in traffic.teams]
    ends_at = np.cumsum([share for _, share in traffic.teams])
    drawn = _drawn(shape, drawer)
    for at_s in _batch_times(traffic.day_shape, rate_per_s / batch_mean, traffic.until_s, timer):
        team = names[int(np.searchsorted(ends_at, timer.random() * ends_at[-1], side="right"))]
        for _ in range(int(timer.geometric(1 / batch_mean))):
            size, duration_s, fate = next(drawn)
            state = JobEnd.CANCELLED if fate >= (1 + shape.completed_fraction) / 2 else JobEnd.FAILED
            state = JobEnd.COMPLETED if fate < shape.completed_fraction else state
            yield JobArrival(at_s, duration_s, min(size, traffic.sizes_max), team, state)


def _batch_times(
    day_shape: Sequence[float], rate_per_s: float, until_s: float, generator: np.random.Generator
) -> Iterator[float]:
    """A random process whose rate follows the hours of the day, by thinning."""
    highest = max(day_shape)
    mean = sum(day_shape) / len(day_shape)
    hour_s = 86400 / len(day_shape)
    at_s = 0.0
    while True:
        at_s += float(generator.exponential(mean / (rate_per_s * highest)))
        if at_s >= until_s:
            return
        if generator.random() * highest < day_shape[int(at_s / hour_s) % len(day_shape)]:
            yield at_s


def _drawn(shape: JobShape, generator: np.random.Generator) -> Iterator[tuple[int, float, float]]:
    """Size, duration and a number from 0 to 1 for how it ends, without end."""
    correlation = size_correlation(shape)
    while True:
        first, second = generator.standard_normal((2, BLOCK_COUNT))
        score = correlation * first + sqrt(1 - correlation**2) * second
        size = sizes(shape, _normal_rank(first))
        duration_s = durations_s(shape, _normal_rank(score))
        fates = generator.random(BLOCK_COUNT)
        yield from zip(size.tolist(), duration_s.tolist(), fates.tolist(), strict=True)


def _normal_rank(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 0 to 1: the share of normal scores below each."""
    return np.array([(1 + erf(score / sqrt(2))) / 2 for score in scores.tolist()])
