"""A programme whose linking decisions are fixed falls into parts that share no row: each is small.

Knows nothing of portfolios. Equal parts, as those of equal weeks, are solved once.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from twofold.supply.solve_matrix import Floats, Ints, Programme
from twofold.supply.solve_run import Solved

Mask = NDArray[np.bool_]
# Of the free columns: a limit that holds so many, and no few, binds all parts, as a budget does.
LONG_FRACTION, LONG_COUNT = 0.1, 50
DIGITS = 9  # to which numbers of two parts that count as equal agree


Solver = Callable[[Programme], Solved]
Known = dict[
    tuple[bytes, ...], tuple[Solved, float]
]  # parts with values or without any, and their scale of money


def by_parts(programme: Programme, values: Floats, free: Mask, solver: Solver, known: Known) -> Solved:
    """The free columns anew, part by part, the others as they are in `values`; `known` grows by new parts.

    A part that only ran out of time is tried again where it is met again: another call may have more of it.
    Long rows are left out: whoever uses the values checks them. The bound holds for the fixed columns only.
    """
    found = values.copy()
    usd = bound = float(programme.cost_usd[~free] @ values[~free])
    for part, columns in _parts(programme, values, free):
        scale = max(float(np.abs(part.cost_usd).max(initial=0.0)), 1e-12)
        key = _key(part, scale)
        solved, own_scale = known.get(key) or (solver(part), scale)
        if solved.values is not None or solved.infeasible:
            known[key] = (solved, own_scale)
        if solved.values is None:
            return Solved(None, np.inf, bound, False, solved.infeasible)
        found[columns] = solved.values
        usd += solved.usd * scale / own_scale
        bound += solved.bound_usd * scale / own_scale
    return Solved(found, usd, bound, True, False)


def _key(part: Programme, scale: float) -> tuple[bytes, ...]:
    """Equal for parts that differ by what an hour of all their hours costs alone."""
    numbers = (part.cost_usd / scale, part.lower, part.upper, part.row_lower, part.row_upper, part.values)
    return (
        *[np.round(each, DIGITS).tobytes() for each in numbers],
        part.integer.tobytes(),
        part.columns.tobytes(),
        part.row_starts.tobytes(),
    )


def _parts(programme: Programme, values: Floats, free: Mask) -> Iterator[tuple[Programme, Ints]]:
    """Each part as a programme of its own, and which columns it has."""
    rows = len(programme.row_lower)
    row_of = np.repeat(np.arange(rows), np.diff(programme.row_starts))
    fixed = np.where(free[programme.columns], 0.0, programme.values * values[programme.columns])
    shift = np.bincount(row_of, fixed, minlength=rows)
    kept = free[programme.columns] & (programme.values != 0.0)
    counts = np.bincount(row_of[kept], minlength=rows)
    long = counts > max(LONG_FRACTION * np.count_nonzero(free), LONG_COUNT)
    long &= np.isneginf(programme.row_lower)
    if _is_split(programme, kept & ~long[row_of], row_of, free):
        kept &= ~long[row_of]
    label = _labels(len(free), row_of[kept], programme.columns[kept], rows)
    row_label = np.full(rows, -1)
    row_label[row_of[kept]] = label[programme.columns[kept]]
    for number in np.unique(label[free]):
        columns = np.flatnonzero((label == number) & free)
        mine = np.flatnonzero(row_label == number)
        entries = kept & (row_label[row_of] == number)
        place, row_place = np.zeros(len(free), np.int64), np.zeros(rows, np.int64)
        place[columns], row_place[mine] = np.arange(len(columns)), np.arange(len(mine))
        counts = np.bincount(row_place[row_of[entries]], minlength=len(mine))
        yield (
            Programme(
                programme.cost_usd[columns],
                programme.lower[columns],
                programme.upper[columns],
                programme.integer[columns],
                programme.row_lower[mine] - shift[mine],
                programme.row_upper[mine] - shift[mine],
                np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                place[programme.columns[entries]],
                programme.values[entries],
            ),
            columns,
        )


def _is_split(programme: Programme, kept: Mask, row_of: Ints, free: Mask) -> bool:
    """Whether what is left without long rows falls into more than one part."""
    label = _labels(len(free), row_of[kept], programme.columns[kept], len(programme.row_lower))
    return len(np.unique(label[free])) > 1


def _labels(column_count: int, rows: Ints, columns: Ints, row_count: int) -> Ints:
    """Columns that rows link, directly or through others, have one number: the least of them."""
    label = np.arange(column_count)
    while True:
        least = np.full(row_count, column_count)
        np.minimum.at(least, rows, label[columns])
        further = label.copy()
        np.minimum.at(further, columns, least[rows])
        if np.array_equal(further, label):
            return label
        label = further
