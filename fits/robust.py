"""Fit logarithms of constants: a robust loss, a ridge toward each constant's parent, bounds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
LogErrors = Callable[[Values], Values]
"""(trials, constants) logarithms to (trials, rows) of log(predicted / measured)."""

STEP = 1e-4  # in the logarithm, for slopes
LONGEST_STEP = 0.5  # in the logarithm, of one round
DAMPINGS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # tried side by side in every round
ENOUGH = 1e-5  # a round that gains less of the cost ends the fit
ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Ridge:
    """How far constants may go from where the ridge wants them: |matrix·θ − target|², low ≤ θ ≤ high."""

    start: Values
    matrix: Values
    target: Values
    low: Values
    high: Values


def solve(log_errors: LogErrors, weight: Values, noise: float, ridge: Ridge) -> Values:
    """The logarithms that fit best, from a cold start at the ridge's.

    Formula  min Σ weight·ρ(error / noise) + |matrix·θ − target|², ρ(x) = 2·(sqrt(1 + x²) − 1)
    Why      Damped Gauss–Newton, reweighted each round; ρ is quadratic when small and linear when large.
             All slopes of a round, and all dampings, are one call each.
    Limits   No weight: the ridge alone. A constant that no row tells goes where its parent goes.
    """
    logs = ridge.start.copy()
    error = log_errors(logs[None])[0]
    now = _cost(error[None], logs[None], weight, noise, ridge)[0]
    for _ in range(ROUNDS):
        steps = _trial_steps(log_errors, logs, error, weight, noise, ridge)
        trials = np.clip(logs + steps, ridge.low, ridge.high)
        errors = log_errors(trials)
        costs = _cost(errors, trials, weight, noise, ridge)
        best = int(np.argmin(costs))
        gain = now - costs[best]
        if gain <= 0:
            break
        logs, error, now = trials[best], errors[best], costs[best]
        if gain < ENOUGH * now:
            break
    return logs


def _cost(errors: Values, logs: Values, weight: Values, noise: float, ridge: Ridge) -> Values:
    lost = 2.0 * (np.sqrt(1.0 + np.square(errors / noise)) - 1.0)
    away = logs @ ridge.matrix.T - ridge.target
    total: Values = lost @ weight + np.sum(np.square(away), axis=-1)
    return total


def _trial_steps(
    log_errors: LogErrors, logs: Values, error: Values, weight: Values, noise: float, ridge: Ridge
) -> Values:
    """One step per damping; a constant that pushes against its bound stays."""
    slope = (log_errors(logs + STEP * np.eye(logs.size)) - error).T / STEP
    row_weight = weight / noise**2 / np.sqrt(1.0 + np.square(error / noise))
    normal = slope.T @ (slope * row_weight[:, None]) + ridge.matrix.T @ ridge.matrix
    downhill = -(slope.T @ (row_weight * error) + ridge.matrix.T @ (ridge.matrix @ logs - ridge.target))
    held = ((logs <= ridge.low) & (downhill < 0)) | ((logs >= ridge.high) & (downhill > 0))
    free = np.flatnonzero(~held)
    steps = np.zeros((len(DAMPINGS), logs.size))
    inside = normal[np.ix_(free, free)]
    for place, damping in enumerate(DAMPINGS):
        damped = inside + damping * np.diag(np.diag(inside))
        steps[place, free] = np.linalg.solve(damped, downhill[free])
    return np.clip(steps, -LONGEST_STEP, LONGEST_STEP)
