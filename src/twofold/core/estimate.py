"""A number that leaves a model: a middle, an 80 % range, a unit and where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import hypot, log
from statistics import NormalDist

LEAST_END_FRACTION = 1e-3  # of the middle: how low an end of a range is read as that of a ratio


class Source(StrEnum):
    """Where a number comes from, weakest last; a derived number takes the weakest of its inputs."""

    MEASURED = "m"  # measured here
    FITTED = "f"  # fitted on published measurements
    VENDOR = "v"  # a vendor's figure
    ASSUMED = "a"  # assumed


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value` with the 80 % range `low`-`high` in `unit` (SI: s, B, USD, 1/s, tok/s, fraction …)."""

    value: float
    low: float
    high: float
    unit: str
    source: Source = Source.FITTED

    def __post_init__(self) -> None:
        ordered = self.low <= self.value <= self.high
        assert ordered or self.value != self.value, (self.low, self.value, self.high)

    def __repr__(self) -> str:
        """In a notebook and a list of them: `Estimate(8.63 [7.94–9.51] s, f)`."""
        return f"Estimate({self.value:.3g} [{self.low:.3g}–{self.high:.3g}] {self.unit}, {self.source.value})"

    def __float__(self) -> float:
        return self.value

    def times(self, factor: float, unit: str = "") -> "Estimate":
        """The estimate times an exact number, in another unit where one is given."""
        low, value, high = (part * factor for part in (self.low, self.value, self.high))
        return Estimate(value, low, high, unit or self.unit, self.source)

    def probability_within(self, limit: float) -> float:
        """The probability that the number is at most `limit`, where its range is all that is known of it.

        Formula  Φ(1.2816 · log(limit / value) / log(end / value)), the end of the range on the limit's side
        Why      The range is of a ratio and holds 80 %: 0.1 at its lower end, 0.5 in the middle, 0.9 at the
                 upper end.
        Limits   Positive numbers. Without a spread on that side it is 0 or 1, at the middle itself 1. An end
                 below a thousandth of the middle counts as a thousandth.
        """
        end = self.high if limit >= self.value else max(self.low, self.value * LEAST_END_FRACTION)
        if limit <= 0 or end == self.value:
            return float(limit >= self.value)
        deciles = abs(log(end / self.value))
        return NormalDist().cdf(NormalDist().inv_cdf(0.9) * log(limit / self.value) / deciles)


def half_common(spreads: Sequence[float]) -> float:
    """How far a sum reaches beyond its middle where half of each part's spread is common to all of them.

    Formula  Σ s/2 + √(Σ s²)/2
    Why      Prices and efficiencies move parts together, what each rests on besides does not.

    >>> half_common([3.0, 4.0])
    6.0
    """
    return 0.5 * sum(spreads) + 0.5 * hypot(*spreads)


def exact(value: float, unit: str, source: Source = Source.ASSUMED) -> Estimate:
    """An estimate without spread: a count, or a figure that the user gave."""
    return Estimate(value, value, value, unit, source)
