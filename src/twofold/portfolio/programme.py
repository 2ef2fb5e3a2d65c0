"""A mixed-integer programme in columns and rows, built in blocks of arrays. Knows nothing of portfolios."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """minimise cost · x within column and row bounds; `matrix` is by rows."""

    cost_usd: Floats
    lower: Floats
    upper: Floats
    integer: Mask
    row_lower: Floats
    row_upper: Floats
    row_starts: Ints
    columns: Ints
    values: Floats

    @property
    def row_of(self) -> Ints:
        """The row of each value."""
        return np.repeat(np.arange(len(self.row_lower)), np.diff(self.row_starts))


@dataclass(slots=True)
class Builder:
    """Collects columns and rows; mutable, for one programme. Blocks keep their shape."""

    column_count: int = 0
    row_count: int = 0
    _columns: list[tuple[Floats, Floats, Floats, Mask]] = field(default_factory=list)
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

    def built(self) -> Programme:
        """The programme of everything added so far; entries of one place add up."""
        cost, lower, upper, whole = _joined(self._columns, 4)
        low, high = _joined(self._bounds, 2)
        row, column, value = _joined(self._entries, 3)
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


def _joined(parts: Sequence[tuple[Any, ...]], width: int) -> list[Any]:
    """Arrays of each place of the parts, end to end; empty ones where nothing was added."""
    return [np.concatenate([part[place] for part in parts] or [np.zeros(0, int)]) for place in range(width)]


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One run of the solver; `values` None: there is no answer, or none was found in time."""

    values: Floats | None
    usd: float
    bound_usd: float
    infeasible: bool


def run(
    programme: Programme,
    gap_fraction: float,
    limit_s: float,
    *,
    relaxed: Any = (),
    start: Floats | None = None,
    nodes: int | None = None,
) -> Solved:
    """One call of HiGHS, on one thread and with a fixed seed: equal programmes give equal answers."""
    import highspy

    solver = highspy.Highs()
    settings = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 1,
        "mip_rel_gap": gap_fraction,
        "mip_heuristic_run_feasibility_jump": False,  # a tenth of the time, and finds nothing here
        "time_limit": max(limit_s, 0.05),
    }
    if nodes is not None:
        settings["mip_max_nodes"] = nodes
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(programme.cost_usd), len(programme.row_lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = programme.cost_usd, programme.lower, programme.upper
    model.row_lower_, model.row_upper_ = programme.row_lower, programme.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = programme.row_starts.astype(np.int32)
    model.a_matrix_.index_ = programme.columns.astype(np.int32)
    model.a_matrix_.value_ = programme.values
    whole = programme.integer.copy()
    whole[np.asarray(relaxed, int)] = False
    if np.any(whole):
        types = highspy.HighsVarType
        model.integrality_ = [types.kInteger if each else types.kContinuous for each in whole]
    solver.passModel(model)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        solver.setSolution(solution)
    solver.run()
    status, kinds, info = solver.getModelStatus(), highspy.HighsModelStatus, solver.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    return Solved(
        np.array(solver.getSolution().col_value) if feasible else None,
        float(info.objective_function_value) if feasible else np.inf,
        float(info.mip_dual_bound if np.any(whole) else info.objective_function_value),
        status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible),
    )


def breaks(programme: Programme, values: Floats) -> bool:
    """Whether values leave some row of a programme."""
    products = programme.values * values[programme.columns]
    sums = np.add.reduceat(np.append(products, 0.0), programme.row_starts[:-1])
    sums = np.where(np.diff(programme.row_starts) > 0, sums, 0.0)
    room = 1e-5 * (1.0 + np.abs(sums))
    return bool(np.any(sums > programme.row_upper + room) or np.any(sums < programme.row_lower - room))


# Of the free columns: a limit that holds so many, and no few, binds all parts, as a budget does.
LONG_FRACTION, LONG_COUNT = 0.1, 50
DIGITS = 9  # to which numbers of two parts that count as equal agree

Solver = Callable[[Programme], Solved]
# Parts with values or without any, and their scale of money.
Known = dict[tuple[bytes, ...], tuple[Solved, float]]


def by_parts(programme: Programme, values: Floats, free: Mask, solver: Solver, known: Known) -> Solved:
    """The free columns anew, part by part, the others as they are in `values`; `known` grows by new parts.

    A part that only ran out of time is tried again where it is met again: another call may have more of it.
    Long rows are left out: whoever uses the values checks them. The bound holds for the fixed columns only.
    """
    found = values.copy()
    usd = bound = float(programme.cost_usd[~free] @ values[~free])
    for part, columns in _parts(programme, values, free):
        scale = max(float(np.abs(part.cost_usd).max(initial=0.0)), 1e-12)
        numbers = (part.cost_usd / scale, part.lower, part.upper, part.row_lower, part.row_upper, part.values)
        exact = part.integer, part.columns, part.row_starts
        # Equal for parts that differ by what an hour of all their hours costs alone.
        key = (*[np.round(each, DIGITS).tobytes() for each in numbers], *[each.tobytes() for each in exact])
        solved, own_scale = known.get(key) or (solver(part), scale)
        if solved.values is not None or solved.infeasible:
            known[key] = (solved, own_scale)
        if solved.values is None:
            return Solved(None, np.inf, bound, solved.infeasible)
        found[columns] = solved.values
        usd += solved.usd * scale / own_scale
        bound += solved.bound_usd * scale / own_scale
    return Solved(found, usd, bound, False)


def _parts(programme: Programme, values: Floats, free: Mask) -> Iterator[tuple[Programme, Ints]]:
    """Each part as a programme of its own, and which columns it has."""
    rows, row_of = len(programme.row_lower), programme.row_of
    fixed = np.where(free[programme.columns], 0.0, programme.values * values[programme.columns])
    shift = np.bincount(row_of, fixed, minlength=rows)
    kept = free[programme.columns] & (programme.values != 0.0)
    counts = np.bincount(row_of[kept], minlength=rows)
    long = counts > max(LONG_FRACTION * np.count_nonzero(free), LONG_COUNT)
    long &= np.isneginf(programme.row_lower)
    short = kept & ~long[row_of]
    label = _labels(len(free), row_of[short], programme.columns[short], rows)
    if len(np.unique(label[free])) > 1:
        kept = short
    else:  # without long rows too all hang together
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
