"""A number that leaves a model: a middle, an 80 % range, a unit and where it comes from."""

from dataclasses import dataclass
from enum import StrEnum


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

    def times(self, factor: float, unit: str = "") -> "Estimate":
        """The estimate times an exact number, in another unit where one is given."""
        low, value, high = (part * factor for part in (self.low, self.value, self.high))
        return Estimate(value, low, high, unit or self.unit, self.source)


def exact(value: float, unit: str, source: Source = Source.ASSUMED) -> Estimate:
    """An estimate without spread: a count, or a figure that the user gave."""
    return Estimate(value, value, value, unit, source)
