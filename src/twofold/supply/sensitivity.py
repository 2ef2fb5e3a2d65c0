"""How a figure moves with its inputs: a tornado, a Monte-Carlo over common draws, the value of measuring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
LOW_PERCENTILE, HIGH_PERCENTILE = 10.0, 90.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One input at both ends of its range, and what the figure is there, all else in the middle."""

    name: str
    low_input: float
    high_input: float
    at_low: float
    at_high: float

    @property
    def swing(self) -> float:
        return abs(self.at_high - self.at_low)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A figure over its draws."""

    mean: float
    low: float  # 10th percentile
    median: float
    high: float  # 90th percentile
    over_limit_fraction: float | None  # of the draws; None: there is no limit

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Narrowing:
    """One measurement: which inputs it pins, and how much narrower the figure's 80 % range then is."""

    name: str
    pins: tuple[str, ...]
    width_before: float
    width_after: float

    @property
    def narrowed(self) -> float:
        return self.width_before - self.width_after


def tornado(
    figure: Callable[[Mapping[str, float]], float], ranges: Mapping[str, tuple[float, float]], most: int = 10
) -> tuple[Bar, ...]:
    """The inputs that move a figure most, longest bar first.

    Formula  bar = figure(input at its low end), figure(at its high end), the others at 1 or their middle
    Why      One at a time: what each unknown alone is worth knowing.
    Units    those of the figure; `figure` takes only the inputs that differ from their middle.
    """
    bars = [
        Bar(name, low, high, figure({name: low}), figure({name: high}))
        for name, (low, high) in ranges.items()
    ]
    return tuple(sorted(bars, key=lambda bar: (-bar.swing, bar.name))[:most])


def distribution(samples: Samples, limit: float | None = None) -> Distribution:
    """Mean, median, deciles, and the share of draws above a limit."""
    low, middle, high = np.percentile(samples, (LOW_PERCENTILE, 50.0, HIGH_PERCENTILE))
    over = None if limit is None else float(np.mean(samples > limit))
    return Distribution(float(np.mean(samples)), float(low), float(middle), float(high), over)


def value_of_measuring(
    figure: Callable[[frozenset[str]], Samples], measurements: Mapping[str, Sequence[str]]
) -> tuple[Narrowing, ...]:
    """Which measurement narrows a figure most, the best first.

    `figure` gives the samples with the named inputs held at their middle and the others as drawn.

    Formula  narrowing = width of the 80 % range with all inputs drawn − width with the measured ones held
    Why      Knowing an input exactly takes its part of the spread away. Widths do not add: two measurements
             together take away more than either, less than both.
    Units    those of the figure.
    Limits   What the draws cannot resolve counts as nothing: no measurement widens a range.
    """
    before = distribution(figure(frozenset())).width
    rows = [
        Narrowing(name, tuple(pins), before, min(before, distribution(figure(frozenset(pins))).width))
        for name, pins in measurements.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.narrowed, row.name)))
