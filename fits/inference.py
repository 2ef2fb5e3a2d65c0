"""Fit what serving engines add to the kernels: host times by engine and era, eager floors, a few factors.

Kernel efficiencies stay pinned. Everything is in logarithms: a robust loss on log(predicted / measured) with
equal weight per source, and a ridge that pulls each constant of `serving_priors.csv` to its parent. The same
fit runs from a cold start without each source and each fold of configurations, for errors on unseen rows.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fits.fitted import Fitted
from fits.serving_problem import Key, Problem, log_errors_with_slopes, read_problem
from twofold.catalog.catalog import load_catalog
from twofold.core.estimate import Estimate, Source
from twofold.measure.blind import EVERYTHING, BlindRow, fold_of, hidden_source
from twofold.measure.truth import read_tables
from twofold.perf.constants import ConstantRow, Constants

Array = NDArray[np.float64]
FITTED_BY = "inference"
NOISE = 0.2  # log error of a good row: beyond it the loss turns from square to logarithmic
ROUNDS = 8
ENOUGH = 3e-3  # of the loss: a round that gains less is the last
LOWER, UPPER = 0.05, 20.0  # how far a fit may leave its prior
SHAPED_SHARE = 0.1  # of what tells a constant, from which on a source is named in its note
SPREAD = 1.28  # deviations that an 80 % range spans either way
UNITS = {
    "_s": "s",
    "_factor": "ratio",
    "_gain": "ratio",
    "_fraction": "fraction",
    "_steps": "count",
    "_low": "ratio",
    "_high": "ratio",
}


@dataclass(frozen=True, slots=True)
class Prior:
    """One constant before the fit. Scopes of one name form a tree: no question has two answers."""

    name: str
    scope: str
    value: float
    factor: float  # that its range spans either way
    least: float  # a physical bound below; 0 for none
    fitted: bool
    note: str

    @property
    def key(self) -> Key:
        """What names it among all constants."""
        return self.name, self.scope


@cache
def read_priors() -> tuple[Prior, ...]:
    """The table of priors beside this module."""
    content = Path(__file__).with_name("serving_priors.csv").read_text(encoding="utf-8")
    return tuple(
        Prior(
            name=row["name"],
            scope=row["scope"],
            value=float(row["value"]),
            factor=float(row["factor"]),
            least=float(row["least"] or 0.0),
            fitted=row["fitted"] == "yes",
            note=row["note"],
        )
        for row in csv.DictReader(StringIO(content))
    )


def free_priors() -> tuple[Prior, ...]:
    """Those that the fit moves."""
    return tuple(prior for prior in read_priors() if prior.fitted)


def prior_rows() -> list[ConstantRow]:
    """The constants before any fit: physics and published leads, marked assumed."""
    return [
        ConstantRow(
            name=prior.name,
            scope=prior.scope,
            value=prior.value,
            low=prior.value / prior.factor,
            high=_most(prior),
            unit=unit_of(prior.name),
            source=Source.ASSUMED,
            rows=0,
            fitted_by=FITTED_BY,
            note=prior.note or "prior",
        )
        for prior in read_priors()
    ]


def _most(prior: Prior) -> float:
    """The end of its range; a fraction is no more than all."""
    high = prior.value * prior.factor
    return min(high, 1.0) if unit_of(prior.name) == "fraction" else high


def unit_of(name: str) -> str:
    """The unit that a constant's name ends in."""
    return next(unit for ending, unit in UNITS.items() if name.endswith(ending))


def fit(truth: Path, constants: Constants) -> Fitted:
    """The engine constants fitted on the open rows, and those of fits that did not see a source or a fold."""
    constants = from_priors(constants)
    keys = [prior.key for prior in free_priors()]
    problem = read_problem(read_tables(truth, "inference.csv"), load_catalog(), constants, keys)
    hiding = hidden_weights(problem)
    logs, *others = solve(problem, np.array([problem.targets.weight, *hiding.values()]))
    hidden = dict(zip(hiding, others, strict=True))
    spread = np.std([each for name, each in hidden.items() if name.startswith("source")], axis=0)
    fitted = _constant_rows(problem, logs, spread)
    fixed = [row for row in prior_rows() if (row.name, row.scope) not in keys]
    blind = blind_rows({**hidden, EVERYTHING: _prior_logs()}, spread)
    return Fitted([*fitted, *fixed], blind)


def from_priors(constants: Constants) -> Constants:
    """The constants as before any fit of this module."""
    others = tuple(row for row in constants.rows if row.fitted_by != FITTED_BY)
    return replace(constants, rows=others).with_rows(prior_rows())


def _prior_logs() -> Array:
    return np.log([prior.value for prior in free_priors()])


def solve(problem: Problem, weights: Array) -> Array:
    """Damped Gauss–Newton from the priors: [fit, constant] logarithms, one fit per row of figures' weights.

    Formula  minimise Σ w·ρ(r/noise) + Σ ((θ − parent's θ − prior ratio)/σ)², ρ(x) = ln(1 + x²)
    Why      Gross errors are runs that something else delayed: compilation, a full cache. They must not pull.
             A constant that its rows do not tell stays where its parent and its prior put it. All fits go
             side by side, because one evaluation of many trials costs little more than that of one.
    """
    priors = {prior.key: prior for prior in free_priors()}
    told = [priors[key] for key in problem.keys]
    prior = np.log([each.value for each in told])
    bounds = np.log([max(each.least, each.value * LOWER) for each in told]), prior + np.log(UPPER)
    ridge, pull = _ridge(told)
    fits = [_Fit(prior, weight, ridge, pull, bounds) for weight in weights]
    for _ in range(ROUNDS):
        open_fits = [fit for fit in fits if not fit.done]
        if not open_fits:
            break
        error, slope = log_errors_with_slopes(problem, np.array([fit.trial for fit in open_fits]))
        for place, fit in enumerate(open_fits):
            fit.tried(error[place], slope[place])
    return np.array([fit.logs for fit in fits])


class _Fit:
    """One fit on its way: where it stands, what it tries next, how far it dares to step."""

    def __init__(self, prior: Array, weight: Array, ridge: Array, pull: Array, bounds: tuple[Array, Array]):
        self.logs, self.trial, self.done = prior.copy(), prior.copy(), False
        self._weight, self._ridge, self._pull, self._bounds = weight, ridge, pull, bounds
        self._cost, self._damping = np.inf, 1e-2
        self._error, self._slope = np.zeros(0), np.zeros((0, 0))

    def tried(self, error: Array, slope: Array) -> None:
        """Take the trial if it costs less, else step shorter; set the next trial."""
        soft = np.log1p(np.square(error / NOISE))
        cost = float(np.sum(self._weight * soft) + np.sum(np.square(self._ridge @ self.trial - self._pull)))
        if cost < self._cost:
            self.done = self._cost - cost < ENOUGH * cost
            self.logs, self._cost, self._error, self._slope = self.trial, cost, error, slope
            self._damping = max(self._damping / 5.0, 1e-4)
        else:
            self._damping *= 10.0
        self.trial = self._next()

    def _next(self) -> Array:
        row_weight = self._weight / NOISE**2 / (1.0 + np.square(self._error / NOISE))
        normal = self._slope.T @ (self._slope * row_weight[:, None]) + self._ridge.T @ self._ridge
        gradient = self._slope.T @ (row_weight * self._error) + self._ridge.T @ (
            self._ridge @ self.logs - self._pull
        )
        damped = normal + self._damping * np.diag(np.diag(normal))
        step = _bounded_step(damped, gradient, self.logs, self._bounds[0])
        return np.clip(self.logs + np.clip(step, -0.7, 0.7), *self._bounds)


def _bounded_step(normal: Array, gradient: Array, logs: Array, least: Array) -> Array:
    """The step of Gauss–Newton; a constant on its bound that would go below stays, and the others know it."""
    free = ~((logs <= least + 1e-9) & (gradient > 0))
    step = np.zeros(logs.size)
    step[free] = np.linalg.solve(normal[np.ix_(free, free)], -gradient[free])
    return step


def _ridge(priors: Sequence[Prior]) -> tuple[Array, Array]:
    """Rows of (constant − its parent)/σ, and what the priors put there."""
    ridge = np.zeros((len(priors), len(priors)))
    for place, prior in enumerate(priors):
        sigma = np.log(prior.factor)
        ridge[place, place] = 1.0 / sigma
        parent = _parent(prior, priors)
        if parent is not None:
            ridge[place, parent] = -1.0 / sigma
    return ridge, ridge @ np.log([prior.value for prior in priors])


def _parent(prior: Prior, priors: Sequence[Prior]) -> int | None:
    """The constant of the same name with the longest scope inside this one."""
    pairs = set(filter(None, prior.scope.split(";")))
    inside = [
        (len(other.scope), place)
        for place, other in enumerate(priors)
        if other.name == prior.name
        and other.scope != prior.scope
        and set(filter(None, other.scope.split(";"))) < pairs
    ]
    return max(inside)[1] if inside else None


def hidden_weights(problem: Problem) -> dict[str, Array]:
    """Weights of the figures for each source and each fold that a fit must not see: 0 where hidden."""
    found = {}
    for hides in (hidden_source, fold_of):
        told = np.array([hides(row) for row in problem.rows])[problem.targets.place]
        for name in np.unique(told):
            found[str(name)] = np.where(told == name, 0.0, problem.targets.weight)
    return found


def blind_rows(hidden: dict[str, Array], spread: Array) -> tuple[BlindRow, ...]:
    """Every free constant of every fit that did not see something, with the range of the shipped one."""
    rows = []
    for name, logs in hidden.items():
        for prior, log, wide in zip(free_priors(), logs, spread, strict=True):
            value, width = float(np.exp(log)), _width(wide)
            estimate = Estimate(value, value / width, value * width, "ratio")
            rows.append(BlindRow("inference", name, prior.name, prior.scope, estimate))
    return tuple(rows)


def _width(spread: float) -> float:
    return float(np.exp(SPREAD * np.hypot(spread, 0.05)))


def _constant_rows(problem: Problem, logs: Array, spread: Array) -> list[ConstantRow]:
    slope = log_errors_with_slopes(problem, logs[None, :])[1][0]
    free = {prior.key: prior for prior in free_priors()}
    rows = []
    for row in prior_rows():
        if (row.name, row.scope) not in free:
            continue
        index = problem.keys.index((row.name, row.scope))
        value, told = float(f"{np.exp(logs[index]):.4g}"), int(np.sum(np.abs(slope[:, index]) > 1e-3))
        if told or abs(logs[index] - np.log(row.value)) > 1e-3:  # one told to stay at its prior is known
            width = min(_width(spread[index]), free[row.name, row.scope].factor)
            row = replace(
                row,
                value=value,
                low=float(f"{value / width:.4g}"),
                high=float(f"{value * width:.4g}"),
                source=Source.FITTED,
                rows=told,
                note=shaped_by(problem, slope[:, index]),
            )
        rows.append(row)
    return rows


def shaped_by(problem: Problem, slope: Array) -> str:
    """Which sources told a constant: their shares of the information, Σ weight·slope², largest first."""
    targets = problem.targets
    told = targets.weight * np.square(slope)
    whole = max(float(np.sum(told)), 1e-30)
    shares = {
        str(each): float(np.sum(told[targets.source == each])) / whole for each in np.unique(targets.source)
    }
    named = sorted(((share, name) for name, share in shares.items() if share >= SHAPED_SHARE), reverse=True)
    if not named:
        return "moved with its parent"
    return "shaped by " + " ".join(f"{name} {share:.0%}" for share, name in named)
