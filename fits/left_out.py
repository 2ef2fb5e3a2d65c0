"""Ranges that held on sources left out: a width for each class of rows, as wide as held sources not in it.

Rows of a class (a kind of model, a basis, seen together) stray by a factor more or less than all do; that
factor is shrunk to 1. Every source is then held against the spread of all others, the factors found without
it. A range is as wide as held a share of these, each source weighing the same. What a source scores
under a spread that knows nothing of it is what the next one will score, so that no mass is kept for that one
beside: 1/(J + 1) on top held 88 % of simulated rows with ten sources, and 98 % with four.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from twofold.perf.known import FEW_SOURCES

Array = NDArray[np.float64]
Level = tuple[str, str]  # a key of a scope and its value
Scope = Mapping[str, str]
POOL_SOURCES = 2  # that count for what is not known of a class: its middle 0, its factor 1
FEWEST_ROWS = 4  # of a source that weighs as one; fewer weigh less
ROUNDS = 8  # in which factors of several keys settle
NEAR = "known", "near"


@dataclass(frozen=True, slots=True)
class Left:
    """Errors of rows whose source no fit saw, in logarithms, and the classes that each row belongs to."""

    log: Array
    source: NDArray[np.str_]
    levels: Mapping[Level, NDArray[np.bool_]]

    def but(self, name: str) -> "Left":
        """Without a source."""
        kept = self.source != name
        return Left(
            self.log[kept], self.source[kept], {level: rows[kept] for level, rows in self.levels.items()}
        )

    def weights(self) -> Array:
        """Of rows, so that sources weigh alike; one of few rows weighs less."""
        _, where, counts = np.unique(self.source, return_inverse=True, return_counts=True)
        return np.asarray(np.minimum(counts, FEWEST_ROWS)[where] / FEWEST_ROWS / counts[where], float)


@dataclass(frozen=True, slots=True)
class Strays:
    """How far rows stray: about `middle` by `scale`, times the factor of each class that they are of."""

    middle: float
    scale: float
    factors: Mapping[Level, float]

    def of(self, levels: Mapping[Level, NDArray[np.bool_]], size: int) -> Array:
        """The scale of each row."""
        found = np.full(size, self.scale)
        for level, rows in levels.items():
            found = np.where(rows, found * self.factors.get(level, 1.0), found)
        return found


def left_out(log: Array, scopes: Sequence[Scope], source: NDArray[np.str_], keys: Sequence[str]) -> Left:
    """The rows by classes of these keys; of what was seen of a row, only whether all of it together."""
    values = {key: np.array([scope[key] for scope in scopes]) for key in keys}
    levels = [(key, str(value)) for key in keys for value in np.unique(values[key])]
    kept = [level for level in levels if level[0] != NEAR[0] or level == NEAR]
    return Left(log, source, {(key, value): values[key] == value for key, value in kept})


def strays_of(left: Left) -> Strays:
    """The middle and the scale of all, and the factor of each class.

    Formula  middle Σm/(J + k) of the J sources' medians m; a class's factor (Σf + k)/(J + k), f the mean of
             |error| over scale and other factors in each of its J sources, k sources of factor 1
    Why      A source is one draw, however many rows it has. A class of fewer than five sources is never
             narrower than all, and what was seen together never wider than what was not (INV-19).
    """
    names = np.unique(left.source)
    medians = [float(np.median(left.log[left.source == name])) for name in names]
    middle = sum(medians) / (len(medians) + POOL_SOURCES)
    off, weights = np.abs(left.log - middle), left.weights()
    factors = dict.fromkeys(left.levels, 1.0)
    scale = float(np.average(off, weights=weights))
    for _ in range(ROUNDS):
        for level, rows in left.levels.items():
            if np.any(rows):
                others = Strays(middle, scale, {**factors, level: 1.0}).of(left.levels, off.size)[rows]
                factors[level] = _factor(off[rows] / others, left.source[rows], level)
        alone = Strays(middle, 1.0, factors).of(left.levels, off.size)
        scale = float(np.average(off / alone, weights=weights))
    return Strays(middle, scale, factors)


def _factor(ratios: Array, source: NDArray[np.str_], level: Level) -> float:
    rows = Left(ratios, source, {})
    sources = np.unique(source).size
    found = (float(np.sum(rows.weights() * ratios)) + POOL_SOURCES) / (
        float(np.sum(rows.weights())) + POOL_SOURCES
    )
    found = max(found, 1.0) if sources < FEW_SOURCES else found
    return min(found, 1.0) if level == NEAR else found


def held_widths(left: Left, shares: Sequence[float]) -> tuple[float, ...]:
    """How many scales hold each share of the rows of sources left out, every source weighing the same."""
    scores = np.empty(left.log.size)
    for name in np.unique(left.source):
        rows = left.source == name
        others = strays_of(left.but(str(name)) if np.any(~rows) else left)
        own = {level: each[rows] for level, each in left.levels.items()}
        scores[rows] = np.abs(left.log[rows] - others.middle) / others.of(own, int(np.sum(rows)))
    order, weights = np.argsort(scores), left.weights()
    reached = np.cumsum(weights[order]) - weights[order] / 2
    return tuple(
        float(np.interp(share * np.sum(weights), reached, scores[order])) for share in sorted(shares)
    )


def ranges_of(left: Left, shares: Sequence[float]) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    """(classes, ends of each share in logarithms) of all rows and of every combination of classes."""
    strays, widths = strays_of(left), held_widths(left, shares)
    keys = dict.fromkeys(key for key, _ in left.levels)
    choices = [
        [None, *(level for level in left.levels if level[0] == key)]
        if key == NEAR[0]
        else [level for level in left.levels if level[0] == key]
        for key in keys
    ]
    combined = [tuple(level for level in each if level) for each in product(*choices)]
    found = {
        each: strays.scale * float(np.prod([strays.factors[level] for level in each])) for each in combined
    }
    found[()] = max(found.values())  # of a class that nobody measured: as wide as the widest
    return [
        (dict(each), [(strays.middle - width * scale, strays.middle + width * scale) for width in widths])
        for each, scale in found.items()
    ]
