"""Percentiles of a stream in fixed memory, and how far they can be trusted.

A `Histogram` has bins whose ends are 1 % apart, so a value is known to 0.5 %; it is a sum of whole numbers,
so parts may be merged in any order. A `Stream` keeps its histogram in consecutive batches: requests that
follow each other wait in the same queue, and only the spread between long batches says what that costs.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import exp, inf, isfinite, log, sqrt
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twofold.contracts.goals import QUANTILES
from twofold.contracts.results import simulated

ERROR_FRACTION = 0.005
_GROWTH = log((1.0 + ERROR_FRACTION) / (1.0 - ERROR_FRACTION))
_BINS_PER_LOG = 1.0 / _GROWTH
_MIDDLE = 1.0 - ERROR_FRACTION  # of a bin, below its upper end, in the ratio that errs equally both ways
_SMALLEST = 1e-9  # anything below is 0
_ZERO = -(1 << 40)  # the bin of 0: below all others
_TICKS = float(1 << 30)  # parts of one, in which sums are kept: whole numbers add up in any order
_HALF = 32
BATCHES_MAX = 32  # halved to 16 when it is full, by joining neighbours
BATCH_MIN_COUNT = 8
BATCHES_FOR_INTERVAL = 8
RESOLVED_FRACTION = 0.1  # of a p95: a wider interval does not resolve it


class Interval(NamedTuple):
    """A figure, and between what it lies with 95 % confidence; without enough data, from 0 to infinity."""

    value: float
    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Low and high; None without enough data."""
        return (self.low, self.high) if isfinite(self.high) else None


class Histogram:
    """Counts by log-spaced bins. Mutable."""

    __slots__ = ("bins", "count", "ticks")

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}
        self.count = 0
        self.ticks = 0

    def add(self, values: NDArray[np.float64]) -> None:
        """More values, from 0."""
        if len(values):
            self._bin(values, None)
            self.count += len(values)
            ticks = (values * _TICKS).astype(np.int64)
            # In two halves, whose sums cannot overflow.
            self.ticks += (int((ticks >> _HALF).sum()) << _HALF) + int((ticks & ((1 << _HALF) - 1)).sum())

    def add_counted(self, values: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """More values, from 0, each so many times."""
        self._bin(values, counts)
        self.count += int(counts.sum())
        # Products overflow what numpy has.
        self.ticks += sum(map(mul, (values * _TICKS).astype(np.int64).tolist(), counts.tolist()))

    def _bin(self, values: NDArray[np.float64], counts: NDArray[np.int64] | None) -> None:
        bins, above = self.bins, values > _SMALLEST
        zeros = int(np.count_nonzero(~above) if counts is None else counts[~above].sum())
        if zeros:
            bins[_ZERO] = bins.get(_ZERO, 0) + zeros
        if above.any():
            indices = np.ceil(np.log(values[above]) * _BINS_PER_LOG).astype(np.int64)
            first = int(indices.min())
            # Sums of counts are floats, which are exact to 2**53.
            sums = np.bincount(indices - first, None if counts is None else counts[above])
            for place in np.flatnonzero(sums).tolist():
                bins[first + place] = bins.get(first + place, 0) + int(sums[place])

    def merge(self, other: "Histogram") -> None:
        """Take in all of another's values."""
        bins = self.bins
        for index, count in other.bins.items():
            bins[index] = bins.get(index, 0) + count
        self.count += other.count
        self.ticks += other.ticks

    @property
    def mean(self) -> float:
        """Of all values, to a nanosecond."""
        return self.ticks / _TICKS / self.count if self.count else 0.0

    def quantile(self, fraction: float) -> float:
        """The smallest value that `fraction` of all values do not exceed, to 0.5 %; 0 of nothing."""
        return value_of(self.bin_of(fraction))

    def bin_of(self, fraction: float) -> int:
        """The bin in which that value lies."""
        wanted, seen, index = fraction * self.count - 1e-9, 0, _ZERO
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen >= wanted:
                return index
        return index

    def fraction_to(self, index: int) -> float:
        """Which part of the values lies in this bin or below."""
        return sum(count for at, count in self.bins.items() if at <= index) / self.count


def value_of(index: int) -> float:
    """What stands for all values of a bin."""
    return 0.0 if index == _ZERO else exp(index * _GROWTH) * _MIDDLE


def merged(parts: Iterable[Histogram]) -> Histogram:
    """All values of all parts."""
    whole = Histogram()
    for part in parts:
        whole.merge(part)
    return whole


class Stream:
    """A histogram in consecutive batches. Mutable: `add` is told of values in order of time."""

    __slots__ = ("_batch_count", "_batches", "_open")

    def __init__(self) -> None:
        self._batches: list[Histogram] = []
        self._batch_count = BATCH_MIN_COUNT
        self._open = Histogram()

    # HOT: in blocks of thousands; one value at a time was 7 times slower: bench/twin.py
    def add(self, values: NDArray[np.float64]) -> None:
        """Further values, from 0; how they are cut into calls makes no difference."""
        at = 0
        while at < len(values):
            part = values[at : at + self._batch_count - self._open.count]
            self._open.add(part)
            at += len(part)
            if self._open.count == self._batch_count:
                self._close()

    def histogram(self) -> Histogram:
        """All values so far."""
        whole = merged(self._batches)
        whole.merge(self._open)
        return whole

    def latency(self, unanswered_count: int = 0, instant_count: int = 0) -> simulated.LatencyFigures | None:
        """Mean and percentiles with their intervals; None of nothing.

        `asked`: percentiles of all that asked, those without an answer later than any that has one, and
        answers that waited for nothing (a single token has no time per further one) before all others.
        """
        whole = self.histogram()
        if not whole.count:
            return None
        half = half_width([batch.mean for batch in self._batches])
        found = [self.quantile(whole, fraction) for fraction in (0.5, 0.9, 0.95, 0.99)]
        mean = Interval(whole.mean, max(0.0, whole.mean - half), whole.mean + half)
        asked: dict[str, float | None] = {}
        all_count = whole.count + unanswered_count + instant_count
        for name, fraction in QUANTILES.items():
            place = fraction * all_count - instant_count  # among those that waited for something
            answered = whole.quantile(place / whole.count) if place > 0.0 else 0.0
            asked[name] = answered if place <= whole.count + 1e-9 else None
        p95 = found[2]
        half_width_fraction = (p95.high - p95.low) / 2.0 / p95.value if p95.value else inf
        return simulated.LatencyFigures(
            p50=found[0].value,
            p90=found[1].value,
            p95=p95.value,
            p99=found[3].value,
            mean=mean.value,
            count=whole.count,
            interval=simulated.Bounds(*(each.bounds for each in (*found, mean))),
            resolved=half_width_fraction <= RESOLVED_FRACTION,
            asked=asked,
        )

    def _close(self) -> None:
        self._batches.append(self._open)
        self._open = Histogram()
        if len(self._batches) == BATCHES_MAX:
            pairs = zip(self._batches[::2], self._batches[1::2], strict=True)
            self._batches = [merged(pair) for pair in pairs]
            self._batch_count *= 2

    def quantile(self, whole: Histogram, fraction: float) -> Interval:
        """A percentile of the whole stream, and between which percentiles of the sample the true one lies.

        How  In each batch, the part of its values up to the percentile is a mean of 0 and 1: batch means say
             how far that part may be off, and never less than for independent values (binomial). The sample's
             percentiles that far below and above are the interval, widened by the width of a bin.
        """
        index = whole.bin_of(fraction)
        value = value_of(index)
        alone = 1.96 * sqrt(fraction * (1.0 - fraction) / max(whole.count, 1))
        half = max(alone, half_width([batch.fraction_to(index) for batch in self._batches]))
        low = 0.0 if fraction - half <= 0.0 else whole.quantile(fraction - half)
        high = inf if fraction + half >= 1.0 else whole.quantile(fraction + half)
        return Interval(value, low * (1.0 - ERROR_FRACTION), high * (1.0 + ERROR_FRACTION))


def half_width(means: list[float]) -> float:
    """Half of the 95 % interval of the mean of equally long batches; infinite for fewer than 8.

    Formula  t · s / √B · √((1+r)/(1-r)), s the spread of the B means, r how alike neighbours are, from 0.
    Why      batches that are too short for the queue's memory are alike; r says so and widens the interval.
    """
    count = len(means)
    if count < BATCHES_FOR_INTERVAL:
        return inf
    middle = sum(means) / count
    off = [mean - middle for mean in means]
    square = sum(d * d for d in off)
    if square <= 0.0:
        return 0.0
    alike = sum(a * b for a, b in pairwise(off)) / square
    alike = min(max(alike, 0.0), 0.9)
    return student_t(count - 1) * sqrt(square / (count - 1) / count * (1.0 + alike) / (1.0 - alike))


def student_t(freedom: int) -> float:
    """97.5 % point of Student's t, to 1 % from 5 degrees on (Abramowitz & Stegun 26.7.5)."""
    z, n = 1.959964, float(freedom)
    first = (z**3 + z) / 4.0
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96.0
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0
    return z + first / n + second / n**2 + third / n**3
