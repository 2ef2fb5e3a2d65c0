"""A robust fit of constants that are pooled over a tree: all accelerators, their families, each one.

Every constant has one value per node, in logarithms. Rows pull the leaves, a ridge pulls each node to its
parent and the root to its prior, so that a family without rows keeps what the others taught, no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]  # scipy ships no types

from twofold.measure.kernel_tables import Array, Rows

NOISE_LOG = 0.1  # of one measurement: beyond it the loss grows like |error|
FAMILY_SPREAD_LOG = 0.25  # of a family around all
LEAF_SPREAD_LOG = 0.12  # of an accelerator around its family
STEP_LOG = 1e-5  # of the numerical slopes
TOLERANCE = 1e-14  # of the search: far below the four digits that are written, so that every machine agrees
MOST_STEPS = 300
Z_80 = 1.2816  # half of an 80 % range, in standard deviations


@dataclass(frozen=True, slots=True)
class Prior:
    """Where a constant lies before any row is seen, and what physics allows."""

    name: str
    value: float
    spread_log: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pooled:
    """Fitted values by constant and node (`""` root, a family, a leaf) and the spread of their logarithm."""

    values: Mapping[tuple[str, str], float]
    spreads_log: Mapping[tuple[str, str], float]

    def by_row(self, names: Sequence[str], leaf: NDArray[np.str_]) -> dict[str, Array]:
        """The constants `names` of each row's leaf."""
        return {name: np.array([self.values[name, one] for one in leaf]) for name in names}


def fit_pooled(
    rows: Rows, priors: Sequence[Prior], families: Mapping[str, str], keep: NDArray[np.bool_] | None = None
) -> Pooled:
    """Fit `priors` to the kept rows; `families` names every leaf's family, leaves without rows included."""
    kept = np.ones(rows.measured_s.shape, bool) if keep is None else keep
    nodes = ["", *sorted(set(families.values())), *sorted(families)]
    parent = np.array([0] + [_parent(node, nodes, families) for node in nodes[1:]])
    leaf_index = np.array([nodes.index(leaf) for leaf in rows.leaf], int)
    log_measured = np.log(rows.measured_s)
    shape = (len(priors), len(nodes))
    centre = np.log([[prior.value] for prior in priors])
    ridge = np.array([1.0 / (LEAF_SPREAD_LOG if node in families else FAMILY_SPREAD_LOG) for node in nodes])

    spread_log = np.array([prior.spread_log for prior in priors])

    def log_predicted(theta: Array) -> Array:
        return np.log(
            rows.predict({prior.name: np.exp(theta[i, leaf_index]) for i, prior in enumerate(priors)})
        )

    def residuals(flat: Array) -> Array:
        theta = flat.reshape(shape)
        error = (log_predicted(theta) - log_measured)[kept] / NOISE_LOG
        return np.concatenate([_pulls(theta, centre, spread_log, parent, ridge).ravel(), error])

    pull_slopes = _pull_slopes(shape, spread_log, parent, ridge)
    kept_rows, kept_leaf = np.flatnonzero(kept), leaf_index[kept]

    def slopes(flat: Array) -> Array:
        # HOT: a step of one constant on all leaves at once gives all its columns, since each row feels its
        # own leaf alone: one prediction per constant instead of one per constant and node.
        theta = flat.reshape(shape)
        middle = log_predicted(theta)
        table = np.zeros((theta.size + kept_rows.size, theta.size))
        table[: theta.size] = pull_slopes
        for i in range(len(priors)):
            stepped = theta.copy()
            stepped[i] += STEP_LOG
            slope = (log_predicted(stepped) - middle)[kept] / (STEP_LOG * NOISE_LOG)
            table[theta.size + np.arange(kept_rows.size), i * len(nodes) + kept_leaf] = slope
        return table

    bounds = [
        np.log([[getattr(prior, end)] * len(nodes) for prior in priors]).ravel() for end in ("low", "high")
    ]
    start = np.clip(np.repeat(centre, len(nodes), axis=1).ravel(), bounds[0] + 1e-6, bounds[1] - 1e-6)
    solution = least_squares(
        residuals,
        start,
        slopes,
        (bounds[0], bounds[1]),
        loss="soft_l1",
        x_scale=np.repeat(spread_log, len(nodes)),
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
        max_nfev=MOST_STEPS,
    )
    theta = solution.x.reshape(shape)
    error = solution.fun[theta.size :] * NOISE_LOG
    values = {
        (prior.name, node): float(np.exp(theta[i, j]))
        for i, prior in enumerate(priors)
        for j, node in enumerate(nodes)
    }
    here = leaf_index[kept]
    implementation = {
        node: _implementation_spread(error, rows.kernel[kept], here == j) for j, node in enumerate(nodes)
    }
    return Pooled(values, _spreads(theta, priors, nodes, families, implementation))


def _pulls(theta: Array, centre: Array, spread_log: Array, parent: Array, ridge: Array) -> Array:
    """How far each value lies from its parent, and the root from its prior, in expected spreads."""
    pull = (theta - theta[:, parent]) * ridge
    pull[:, 0] = (theta[:, 0] - centre[:, 0]) / spread_log
    return pull


def _pull_slopes(shape: tuple[int, int], spread_log: Array, parent: Array, ridge: Array) -> Array:
    """Derivatives of the pulls by the values: constant, since the pulls are linear."""
    zero = np.zeros(shape)
    origin = _pulls(zero, zero, spread_log, parent, ridge).ravel()
    units = np.eye(zero.size).reshape(zero.size, *shape)
    return np.stack(
        [_pulls(unit, zero, spread_log, parent, ridge).ravel() - origin for unit in units], axis=1
    )


def _parent(node: str, nodes: Sequence[str], families: Mapping[str, str]) -> int:
    return nodes.index(families[node]) if node in families else 0


def _implementation_spread(error: Array, kernel: NDArray[np.str_], here: NDArray[np.bool_]) -> float:
    """How far apart the kernels of one accelerator lie: the standard deviation of their median errors."""
    medians = [
        np.median(error[here & (kernel == one)])
        for one in set(kernel[here])
        if (here & (kernel == one)).sum() >= 5
    ]
    return float(np.std(medians)) if len(medians) > 1 else NOISE_LOG / 2


def _spreads(
    theta: Array,
    priors: Sequence[Prior],
    nodes: Sequence[str],
    families: Mapping[str, str],
    implementation: Mapping[str, float],
) -> dict[tuple[str, str], float]:
    """Standard deviation of each value's logarithm: between kernels, and at a parent between its children."""
    spreads = {}
    members = {
        family: [leaf for leaf in families if families[leaf] == family] for family in families.values()
    }
    family_columns = [nodes.index(family) for family in members]
    for i, prior in enumerate(priors):
        between = max(float(np.std(theta[i, family_columns])), FAMILY_SPREAD_LOG / 2)
        for node in nodes:
            own = members.get(node, [node] if node in families else list(families))
            within = float(np.mean([implementation[leaf] for leaf in own]))
            level = 0.0 if node in families else LEAF_SPREAD_LOG if node in members else between
            spreads[prior.name, node] = float(np.hypot(within, level))
    return spreads


def fold_masks(rows: Rows, fold_count: int) -> list[NDArray[np.bool_]]:
    """Masks of the rows to leave out, one per fold, dealt in turn."""
    turn = np.arange(rows.measured_s.size) % fold_count
    return [turn == fold for fold in range(fold_count)]
