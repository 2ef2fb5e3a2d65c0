"""The doubt that a user's rows leave of calibrated factors, as draws beside the common ones.

What is common to all stacks keeps its own draws; a calibrated stack's factors move with them, less far.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.perf import Constants, format_scope

COVARIANCE = "calibration_log_covariance"
NO_DOUBT = 1e-12

Draws = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What is not known of one calibrated stack: logarithms of factors, around their medians."""

    scope: str
    names: tuple[str, ...]
    root: NDArray[np.float64]  # of the covariance


def with_doubt(draws: Draws, constants: Constants, sigma_log: Mapping[str, float]) -> Draws:
    """The common draws, and further ones for every calibrated stack under keys `scope|factor`.

    Formula  exp(root · z), z the common draws as standard normals, root · rootᵀ the covariance after the rows
    Why      The same draw stays lucky or unlucky for all figures; a calibrated one is just less so.
    """
    count = next(iter(draws.values())).shape[0]
    further = dict(draws)
    for doubt in _doubts(constants):
        normal = [_normal(name, draws, sigma_log, count) for name in doubt.names]
        logs = doubt.root @ np.array(normal)
        for name, values in zip(doubt.names, logs, strict=True):
            further[f"{doubt.scope}|{name}"] = np.exp(values)[:, np.newaxis]
    return further


def _normal(name: str, draws: Draws, sigma_log: Mapping[str, float], count: int) -> NDArray[np.float64]:
    if sigma_log.get(name, 0.0) > NO_DOUBT:
        common: NDArray[np.float64] = np.log(np.ravel(draws[name])) / sigma_log[name]
        return common
    return np.random.default_rng([len(draws), *name.encode()]).standard_normal(count)


def _doubts(constants: Constants) -> list[_Doubt]:
    by_scope: dict[str, dict[tuple[str, str], float]] = {}
    for pairs, row in constants.by_name.get(COVARIANCE, ()):
        told = dict(pairs)
        key = told.pop("factor"), told.pop("with")
        by_scope.setdefault(format_scope(told), {})[key] = row.value
    doubts = []
    for scope, values in by_scope.items():
        names = tuple(dict.fromkeys(first for first, _ in values))
        covariance = np.array([[values[one, other] for other in names] for one in names])
        spread, axes = np.linalg.eigh(covariance)
        root = axes * np.sqrt(np.maximum(spread, 0.0)) @ axes.T  # symmetric: a factor stays with its own draw
        doubts.append(_Doubt(scope, names, root))
    return doubts


def draws_in(draws: Draws, scope: Mapping[str, str]) -> Draws:
    """The draws of a stack: its calibrated factors' own in place of the common ones."""
    own: dict[str, NDArray[np.float64]] = {}
    narrowest = 0
    for key, values in draws.items():
        where, bar, name = key.partition("|")
        pairs = dict(part.split("=", 1) for part in where.split(";")) if bar else {}
        if bar and pairs.items() <= scope.items():
            own = {} if len(pairs) > narrowest else own
            if len(pairs) >= narrowest:
                own[name] = values
                narrowest = len(pairs)
    return {**draws, **own} if own else draws
