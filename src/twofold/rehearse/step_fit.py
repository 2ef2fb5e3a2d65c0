"""Fits step times to what was measured: the twin is asked what live was asked, until it says the same."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from twofold.rehearse.as_measured import FINISHED, Deployed, Ran, Seen, StepTimes, as_deployed, rehearsed
from twofold.rehearse.run import PoolTask
from twofold.twin.serving import fault_types, fleet_types

QUANTILES = (0.25, 0.5, 0.75, 0.95)
WEIGHTS = (1.0, 2.0, 1.0, 1.0)
TRIALS_MAX = 160  # of each of two searches
STEP_LOG = 0.4  # first trial steps, of the logarithms: half as much again
CLOSE_LOG = 0.01  # where the search ends
LEAST_S = 1e-6  # that a part takes: logarithms have no zero
MOST_SLOWDOWN = 20.0
LOST_LOG = log(3.0)  # what a quantile that is missing on one side counts as


@dataclass(frozen=True, slots=True)
class Measured:
    """One live run of the calibration: what was asked, what was done to the service, what came of it."""

    arrivals: tuple[fleet_types.Arrival, ...]
    ran: Ran
    faults: tuple[fault_types.Fault, ...] = ()
    one_more_s: float | None = None  # when a replica more began to start
    until_s: float = inf  # requests that came later do not count


@dataclass(frozen=True, slots=True)
class Fit:
    """Step times, and what a figure of the calibration is off by with them: root mean square of logs."""

    times: StepTimes
    off_fraction: float


def fitted(task: PoolTask, there: Deployed, runs: Sequence[Measured], begin: StepTimes) -> Fit:
    """The step times with which the twin comes nearest to all runs, from `begin` on."""

    def off(point: Sequence[float]) -> float:
        return _off(task, there, runs, _times(point))

    start = [log(max(each, LEAST_S)) for each in astuple(begin)]
    if all(run.one_more_s is None for run in runs):
        start.pop()  # there was never one more: nothing tells what it takes of others
    point, square = nearest(off, start)
    point, square = nearest(off, point)  # anew: a simplex that has gone flat sees one direction only
    return Fit(_times(point), sqrt(square))


def _times(point: Sequence[float]) -> StepTimes:
    times = StepTimes(*map(exp, point))
    return replace(times, crowd_ratio=min(max(times.crowd_ratio, 1.0), MOST_SLOWDOWN))


def _off(task: PoolTask, there: Deployed, runs: Sequence[Measured], times: StepTimes) -> float:
    """Mean square of the logarithms of twin over live, over runs, metrics and quantiles."""
    total = weights = 0.0
    for run in runs:
        world = as_deployed(task, there, times, run.faults, one_more_s=run.one_more_s)
        twin = rehearsed(world, run.arrivals)
        for metric in ("ttft_s", "tpot_s", "e2e_s"):
            ours, theirs = (
                _quantiles([each for each in seen if each.at_s < run.until_s], metric)
                for seen in (twin.seen, run.ran.seen)
            )
            for weight, one, other in zip(WEIGHTS, ours, theirs, strict=True):
                weights += weight
                total += weight * (log(one / other) if one and other else LOST_LOG) ** 2
    return total / weights


def _quantiles(seen: Sequence[Seen], metric: str) -> list[float]:
    values = [getattr(each, metric) for each in seen if each.outcome == FINISHED]
    known = [value for value in values if value is not None]
    return np.quantile(known, QUANTILES).tolist() if known else [0.0] * len(QUANTILES)


class Corner(NamedTuple):
    """One point of a simplex, and how far off it is."""

    off_value: float
    point: tuple[float, ...]


def nearest(off: Callable[[Sequence[float]], float], start: Sequence[float]) -> tuple[Sequence[float], float]:
    """A point at which `off` is smallest as far as a simplex search from `start` finds one, and its value.

    Source  Nelder & Mead 1965, with the usual coefficients; no derivative is asked for, since a run of the
            twin has jumps.
    """

    trials, axes = 0, range(len(start))

    def corner(point: Iterable[float]) -> Corner:
        nonlocal trials
        trials += 1
        taken = tuple(map(float, point))
        return Corner(off(taken), taken)

    simplex = [corner(start)]
    simplex += [corner(each + STEP_LOG * (axis == at) for at, each in enumerate(start)) for axis in axes]
    simplex.sort()
    while trials < TRIALS_MAX and _spread(simplex) > CLOSE_LOG:
        worst = simplex[-1]
        middle = np.mean([each.point for each in simplex[:-1]], axis=0)
        away = middle - np.array(worst.point)
        tried = corner(middle + away)
        if tried.off_value < simplex[0].off_value:
            simplex[-1] = min(tried, corner(middle + 2.0 * away))
        elif tried.off_value < simplex[-2].off_value:
            simplex[-1] = tried
        else:
            inner = corner(middle + (0.5 if tried.off_value < worst.off_value else -0.5) * away)
            if inner.off_value < min(tried.off_value, worst.off_value):
                simplex[-1] = inner
            else:
                best = np.array(simplex[0].point)
                shrunk = [corner(best + 0.5 * (np.array(each.point) - best)) for each in simplex[1:]]
                simplex = [simplex[0], *shrunk]
        simplex.sort()
    return simplex[0].point, simplex[0].off_value


def _spread(simplex: Sequence[Corner]) -> float:
    return float(np.ptp([each.point for each in simplex], axis=0).max())
