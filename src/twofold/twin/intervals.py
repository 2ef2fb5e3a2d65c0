"""A figure with how far it can be trusted, and the percentiles of one metric.."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it lies with 95 % confidence; without enough data, from 0 to infinity."""

    value: float
    low: float
    high: float

    @property
    def half_width_fraction(self) -> float:
        """Half of the interval over the value."""
        return (self.high - self.low) / 2.0 / self.value if self.value else inf


@dataclass(frozen=True, slots=True)
class Latency:
    """One metric of one class, in seconds."""

    count: int
    mean: Interval
    p50: Interval
    p90: Interval
    p95: Interval
    p99: Interval
