"""A small search for constants that explain measured seconds: logarithms, priors, no library but numpy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = Mapping[str, float]
Predict = Callable[[Values], Array]  # constants -> seconds of every row

NOISE_LOG = 0.1  # of one measured row; beyond it the loss grows like |error|
FIRST_STEP_LOG, NEAR_STEP_LOG, LAST_STEP_LOG = 0.8, 0.2, 0.02
ROUNDS_MAX = 120


@dataclass(frozen=True, slots=True)
class Unknown:
    """A constant to be found: where it lies before any row is seen, how surely, and what physics allows."""

    name: str
    start: float
    spread_log: float
    low: float
    high: float


def fit_logs(
    predict: Predict, measured_s: Array, unknowns: Sequence[Unknown], near: Values | None = None
) -> dict[str, float]:
    """The constants under which predictions are nearest to what was measured; `near` is where to begin.

    Formula  min over log θ of Σ soft(log(predicted/measured)/noise) + Σ ((log θ − log start)/spread)²/2
    Why      Errors of times are ratios. Coordinate steps that shrink need no derivative and no library; the
             soft loss lets a disturbed row lie.
    Units    seconds; constants in their own.
    Source   Pattern search (Hooke & Jeeves 1961); soft-L1 loss √(1+x²)−1.
    Limits   no rows: the priors. A handful of constants: not for more.
    """
    low, high = (np.log([getattr(each, end) for each in unknowns]) for end in ("low", "high"))
    start = np.log([each.start for each in unknowns])
    spread = np.array([each.spread_log for each in unknowns])
    names = [each.name for each in unknowns]

    def loss(theta: Array) -> float:
        error = np.log(predict(dict(zip(names, np.exp(theta), strict=True))) / measured_s) / NOISE_LOG
        return float(np.sum(np.sqrt(1 + error**2) - 1) + 0.5 * np.sum(((theta - start) / spread) ** 2))

    theta = np.clip(np.log([near[name] for name in names]) if near else start, low, high)
    best, step_log = loss(theta), NEAR_STEP_LOG if near else FIRST_STEP_LOG
    for _ in range(ROUNDS_MAX):
        before = best
        for index in range(len(theta)):
            for sign in (1.0, -1.0):
                tried = theta.copy()
                tried[index] = np.clip(theta[index] + sign * step_log, low[index], high[index])
                value = loss(tried)
                if value < best:
                    theta, best = tried, value
                    break
        if best >= before:
            step_log /= 2
            if step_log < LAST_STEP_LOG:
                break
    return dict(zip(names, (float(each) for each in np.exp(theta)), strict=True))


def spread_log(errors_log: Array, least: float) -> float:
    """Half of an 80 % range in logarithms: what 80 % of the errors stay within, and at least `least`."""
    return max(float(np.quantile(np.abs(errors_log), 0.8)) if errors_log.size else 0.0, least)
