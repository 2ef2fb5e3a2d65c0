"""How far predictions lie from measurements: errors, ranks, ranges, and what a chosen layout costs.

Pure statistics over arrays. A figure that too few rows can tell is None, never 0. Errors are fractions of the
measured value.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_RANKED = 3  # fewer rows have no order worth a coefficient


@dataclass(frozen=True, slots=True)
class Values:
    """Measurements and what was predicted of them, arrays of one length; NaN where there is no answer."""

    measured: Array
    predicted: Array
    low_80: Array
    high_80: Array
    low_95: Array
    high_95: Array

    def where(self, mask: Mask) -> "Values":
        """The rows that `mask` names."""
        return Values(*(getattr(self, field.name)[mask] for field in fields(self)))

    @property
    def answered(self) -> Mask:
        """Rows that were both measured and predicted."""
        return np.isfinite(self.measured) & np.isfinite(self.predicted)


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one group of rows."""

    rows: int
    mean_error: float | None
    median_error: float | None
    bias: float | None
    spearman: float | None
    within_10: float | None
    within_20: float | None
    within_30: float | None
    coverage_80: float | None
    width_80: float | None
    coverage_95: float | None
    width_95: float | None
    above_80: float | None  # measured above the upper end


def score(values: Values) -> Score:
    """All figures of the rows that were answered."""
    kept = values.where(values.answered)
    return Score(
        rows=kept.measured.size,
        mean_error=mean_error(kept),
        median_error=median_error(kept),
        bias=bias(kept),
        spearman=spearman(kept.measured, kept.predicted),
        within_10=share_within(kept, 0.1),
        within_20=share_within(kept, 0.2),
        within_30=share_within(kept, 0.3),
        coverage_80=coverage(kept.measured, kept.low_80, kept.high_80),
        width_80=width(kept.low_80, kept.high_80),
        coverage_95=coverage(kept.measured, kept.low_95, kept.high_95),
        width_95=width(kept.low_95, kept.high_95),
        above_80=share_above(kept.measured, kept.high_80),
    )


def errors(values: Values) -> Array:
    """|predicted / measured − 1| of each row."""
    return np.abs(values.predicted / values.measured - 1.0)


def mean_error(values: Values) -> float | None:
    """Mean absolute error: MAPE as a fraction."""
    return float(errors(values).mean()) if values.measured.size else None


def median_error(values: Values) -> float | None:
    """Median absolute error."""
    return float(np.median(errors(values))) if values.measured.size else None


def share_within(values: Values, fraction: float) -> float | None:
    """Share of rows whose error is at most `fraction`."""
    return float(np.mean(errors(values) <= fraction)) if values.measured.size else None


def log_errors(values: Values) -> Array:
    """ln(predicted / measured): twice too much and half of it are equally far off."""
    return np.log(values.predicted / values.measured)


def bias(values: Values) -> float | None:
    """Geometric mean of predicted over measured, less one."""
    return float(np.expm1(log_errors(values).mean())) if values.measured.size else None


def ranks(values: Array) -> Array:
    """Ranks from 1, ties at the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2.0)[place]


def spearman(first: Array, second: Array) -> float | None:
    """Correlation of the ranks; None below three rows, or where one side is all ties."""
    if first.size < LEAST_RANKED:
        return None
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else None


def coverage(measured: Array, low: Array, high: Array) -> float | None:
    """Share of rows inside their range, of those that have one."""
    ranged = np.isfinite(low) & np.isfinite(high)
    if not ranged.any():
        return None
    return float(np.mean((low <= measured)[ranged] & (measured <= high)[ranged]))


def width(low: Array, high: Array) -> float | None:
    """Median of high over low, of the rows that have a range."""
    ranged = np.isfinite(low) & np.isfinite(high)
    return float(np.median(high[ranged] / low[ranged])) if ranged.any() else None


def share_above(measured: Array, high: Array) -> float | None:
    """Share of rows that were measured above the upper end of their range."""
    ranged = np.isfinite(high)
    return float(np.mean(measured[ranged] > high[ranged])) if ranged.any() else None


def regret(measured: Array, predicted: Array) -> float:
    """What the fastest by prediction costs over the fastest by measurement, as a fraction of the latter.

    >>> round(regret(np.array([2.0, 1.0, 1.1]), np.array([3.0, 2.0, 1.0])), 3)
    0.1
    """
    return float(measured[int(np.argmin(predicted))] / measured.min() - 1.0)


def regrets(
    sets: Sequence[Hashable], layouts: Sequence[Hashable], measured: Array, predicted: Array
) -> dict[Hashable, float]:
    """The regret of every set of rows that holds at least two layouts."""
    members: dict[Hashable, list[int]] = {}
    for place, key in enumerate(sets):
        members.setdefault(key, []).append(place)
    return {
        key: regret(measured[places], predicted[places])
        for key, places in members.items()
        if len({layouts[place] for place in places}) > 1
    }
