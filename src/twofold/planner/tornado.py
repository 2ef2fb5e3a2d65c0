"""How far each unknown alone moves the headline figures: the bars of a tornado chart."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer import (
    FACTORS,
    HIGH_PERCENTILE,
    LOW_PERCENTILE,
    Context,
    Draws,
    ServingChoice,
    TrainingChoice,
    drawn_pool,
    factor_ends,
    served_by,
    step_samples,
)
from twofold.contracts.results import Factor


def factor_swings(
    runs: Sequence[TrainingChoice], services: Sequence[ServingChoice], context: Context
) -> tuple[Factor, ...]:
    """Every factor with its range, and the width that it alone gives the first step and the first TPOT."""
    draws = _ends(context)
    steps = _swings(_steps(runs[0], draws)) if runs else {}
    tpots = _swings(_tpots(services[0], context, draws)) if services else {}
    rows = [
        Factor(name, *factor_ends(context.constants, name), steps.get(name), tpots.get(name))
        for name in FACTORS
    ]
    return tuple(sorted(rows, key=_largest_swing, reverse=True))


def _largest_swing(row: Factor) -> float:
    return max(row.step_swing_fraction or 0.0, row.tpot_swing_fraction or 0.0)


def _ends(context: Context) -> Draws:
    """Three draws per factor: its low end, its middle, its high end; all others at 1."""
    draws = {name: np.ones((3 * len(FACTORS), 1)) for name in FACTORS}
    for index, name in enumerate(FACTORS):
        ends = np.percentile(context.draws[name], (LOW_PERCENTILE, 50.0, HIGH_PERCENTILE))
        draws[name][3 * index : 3 * index + 3, 0] = ends
    return draws


def _swings(figure: NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = figure.reshape(len(FACTORS), 3).T
    return dict(zip(FACTORS, (np.abs(high - low) / middle).tolist(), strict=True))


def _steps(choice: TrainingChoice, draws: Draws) -> NDArray[np.float64]:
    chosen = choice.chosen
    assert chosen.found.best
    layouts = chosen.found.best.layouts
    return np.ravel(step_samples(choice.job, layouts, chosen.cluster, chosen.stack, draws))


def _tpots(choice: ServingChoice, context: Context, draws: Draws) -> NDArray[np.float64]:
    pool = max(choice.fleet.pools, key=lambda each: each.accelerators)
    drawn = drawn_pool(pool, choice, replace(context, draws=draws))
    load = max(drawn.loads, key=lambda each: each.traffic.rate_per_s)
    served = served_by(drawn, load, drawn.replica.under_draws)
    return np.ravel(np.asarray(served.tpot.p95_s, float))
