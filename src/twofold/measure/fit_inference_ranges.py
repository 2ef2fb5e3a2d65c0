"""80 % ranges of serving figures: split-conformal on sources that the fit never saw."""

import numpy as np
from numpy.typing import NDArray

from twofold.core import Source
from twofold.measure.serving_problem import Problem
from twofold.perf import ConstantRow

Array = NDArray[np.float64]
FITTED_BY = "inference"


def interval_rows(problem: Problem, error: Array) -> list[ConstantRow]:
    """Factors that hold the truth of unseen sources, by metric, then load, then what was stated or assumed.

    Formula  exp of the 8 % and 92 % quantiles of −log(predicted / measured), each source with equal weight
    Why      split-conformal on sources left out; two per cent more either way than 80 %: sources are few.
    Limits   a group with under 40 figures, or with a single source, takes its parent's.
    """
    targets = problem.targets
    rows = []
    for scope, chosen in _interval_groups(problem):
        sources, counts = np.unique(targets.source[chosen], return_counts=True)
        if np.sum(chosen) < 40 or sources.size < 2:
            continue
        share = dict(zip(sources, 1.0 / counts, strict=True))
        weight = np.array([share[each] for each in targets.source[chosen]])
        low, high = _weighted_quantiles(-error[chosen], weight, (0.08, 0.92))
        for name, value in (
            ("interval_serving_low", min(np.exp(low), 0.95)),
            ("interval_serving_high", max(np.exp(high), 1.05)),
        ):
            note = f"sources left out: {' '.join(sources)}"
            rows.append(
                ConstantRow(
                    name,
                    scope,
                    float(value),
                    float(value),
                    float(value),
                    "ratio",
                    Source.FITTED,
                    int(np.sum(chosen)),
                    FITTED_BY,
                    note,
                )
            )
    return rows


def _interval_groups(problem: Problem) -> list[tuple[str, NDArray[np.bool_]]]:
    metric = np.array([name.split("_")[0] for name in problem.targets.metric])
    load = np.array([problem.cases[place].kind for place in problem.targets.place])
    basis = np.array(
        ["assumed" if problem.cases[place].assumed else "stated" for place in problem.targets.place]
    )
    groups = [("", np.ones(metric.size, bool))]
    for m in np.unique(metric):
        groups.append((f"metric={m}", metric == m))
        for each in np.unique(load):
            inside = (metric == m) & (load == each)
            groups.append((f"load={each};metric={m}", inside))
            groups += [(f"basis={b};load={each};metric={m}", inside & (basis == b)) for b in np.unique(basis)]
    return groups


def _weighted_quantiles(values: Array, weight: Array, levels: tuple[float, float]) -> tuple[float, float]:
    order = np.argsort(values)
    reached = (np.cumsum(weight[order]) - 0.5 * weight[order]) / np.sum(weight)
    low, high = np.interp(levels, reached, values[order])
    return float(low), float(high)
