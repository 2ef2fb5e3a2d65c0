"""Jobs that arrive: generated from published distributions, or taken from the rows of a trace."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import erf, inf, sqrt
from typing import Protocol

import numpy as np

from twofold.twin.cluster.job_shapes import DAY_SHAPE, JobShape, durations_s, size_correlation, sizes

BLOCK_COUNT = 4096  # jobs that are drawn at once: memory does not grow with the number of jobs


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
    expected_s: float | None = None  # what its owner says; None: `duration_s` with the world's error
    checkpoint_bytes: float | None = None  # None: the world's, per accelerator
    tokens: float = 0.0  # that all its work trains on; 0: not said
    samples: float = 0.0

    def __post_init__(self) -> None:
        assert 0 <= self.submit_s < inf and 0 <= self.duration_s < inf, self
        assert 1 <= (self.minimum_count or 1) <= self.accelerator_count, self


class JobRow(Protocol):
    """A row of a trace of jobs, whoever read it."""

    @property
    def submit_s(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    @property
    def accelerator_count(self) -> float: ...

    @property
    def team(self) -> str: ...

    @property
    def state(self) -> str: ...


def arrivals_of(rows: Iterable[JobRow], time_factor: float = 1.0) -> Iterator[JobArrival]:
    """Jobs of a trace, in its order; gaps between them are `time_factor` times as long.

    Jobs that never ran or asked for no accelerator are left out; a part of an accelerator counts as a whole.
    A state that is not known counts as completed.
    """
    ends = {"failed": JobEnd.FAILED, "cancelled": JobEnd.CANCELLED}
    for row in rows:
        if row.accelerator_count > 0 and row.state != "pending":
            yield JobArrival(
                submit_s=row.submit_s * time_factor,
                duration_s=row.duration_s,
                accelerator_count=max(1, int(np.ceil(row.accelerator_count))),
                team=row.team,
                state=ends.get(row.state, JobEnd.COMPLETED),
            )


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
    Source   `job_shapes`.
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
            completed = shape.completed_fraction
            state = (
                JobEnd.COMPLETED
                if fate < completed
                else (JobEnd.FAILED if fate < (1 + completed) / 2 else JobEnd.CANCELLED)
            )
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


def _normal_rank(
    scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """From 0 to 1: the share of normal scores below each."""
    return np.array([(1 + erf(score / sqrt(2))) / 2 for score in scores.tolist()])
