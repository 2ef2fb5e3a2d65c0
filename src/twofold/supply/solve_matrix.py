"""A mixed-integer programme in columns and rows, built in blocks of arrays. Knows nothing of portfolios."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """minimise cost · x within column and row bounds; `matrix` is by rows."""

    cost_usd: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]
    row_lower: Floats
    row_upper: Floats
    row_starts: Ints
    columns: Ints
    values: Floats


@dataclass(slots=True)
class Builder:
    """Collects columns and rows; mutable, for one programme. Blocks keep their shape."""

    column_count: int = 0
    row_count: int = 0
    _columns: list[tuple[Floats, Floats, Floats, NDArray[np.bool_]]] = field(default_factory=list)
    _bounds: list[tuple[Floats, Floats]] = field(default_factory=list)
    _entries: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)

    def add(
        self, shape: Sequence[int], cost: Any, upper: Any, *, lower: Any = 0.0, whole: bool = False
    ) -> Ints:
        """New columns of a shape; returns their indices in it."""
        size = int(np.prod(shape))
        parts = [np.broadcast_to(np.asarray(each, float), shape).ravel() for each in (cost, lower, upper)]
        self._columns.append((parts[0], parts[1], parts[2], np.full(size, whole)))
        first, self.column_count = self.column_count, self.column_count + size
        return np.arange(first, self.column_count).reshape(shape)

    def rows(self, shape: Sequence[int], lower: Any, upper: Any) -> Ints:
        """New empty rows of a shape; returns their indices in it."""
        size = int(np.prod(shape))
        low, high = (np.broadcast_to(np.asarray(each, float), shape).ravel() for each in (lower, upper))
        self._bounds.append((low, high))
        first, self.row_count = self.row_count, self.row_count + size
        return np.arange(first, self.row_count).reshape(shape)

    def put(self, rows: Any, columns: Any, values: Any) -> None:
        """Coefficients; the three broadcast."""
        row, column, value = np.broadcast_arrays(
            np.asarray(rows, np.int64), np.asarray(columns, np.int64), np.asarray(values, float)
        )
        self._entries.append((row.ravel(), column.ravel(), value.ravel()))

    def costs_usd(self) -> Floats:
        """What one of each column costs."""
        return np.concatenate([part[0] for part in self._columns])

    def built(self) -> Programme:
        """The programme of everything added so far; entries of one place add up."""
        cost, lower, upper, whole = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        low, high = (np.concatenate(part) for part in zip(*self._bounds, strict=True))
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        order = np.lexsort((column, row))
        row, column, value = row[order], column[order], value[order]
        first = np.ones(len(row), bool)
        first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
        starts = np.flatnonzero(first)
        value = np.add.reduceat(value, starts) if len(starts) else value
        row, column = row[starts], column[starts]
        counts = np.bincount(row, minlength=self.row_count)
        row_starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Programme(cost, lower, upper, whole, low, high, row_starts, column, value)
