"""Whole hours for what is held, and how much cheaper anything else that might be held could be.

The first pass leaves hours in fractions, so its bound knows nothing of whole ones. What is held takes few
numbers: with them fixed every week is a small programme of its own, and any other choice of them costs at
least what it costs with hours in fractions.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from twofold.portfolio.problem import PortfolioProblem
from twofold.portfolio.programme import Floats, Ints, Known, Programme, Solved, breaks, by_parts, run
from twofold.portfolio.solve_model import Columns

Runner = Callable[[Programme], Solved]
MOST_HELD = 6  # numbers of units held: each is looked at below and above
LIMIT_S = 20.0  # of one linear programme, a guard


def whole_hours(
    programme: Programme, columns: Columns, values: Floats, runner: Runner, known: Known
) -> tuple[Floats | None, float]:
    """Values with whole hours, None where none were found, and a bound for what is held as it is.

    Runs that may pause first count as if idle hours were theirs for nothing; then they get those that are.
    """
    fixed = np.zeros(len(values), bool)
    fixed[_linking(columns)] = True
    fixed[_kinds(programme, columns)] = True
    solved = by_parts(_without_pauses(programme, columns), values, ~fixed, runner, known)
    if solved.values is None:
        return None, -np.inf
    whole = programme.integer
    settled = np.rint(solved.values)
    lower = np.where(whole, settled, programme.lower)
    upper = np.where(whole, settled, programme.upper)
    upper[fixed], lower[fixed] = settled[fixed], settled[fixed]
    last = run(replace(programme, lower=lower, upper=upper), 0.0, LIMIT_S, relaxed=np.flatnonzero(whole))
    if last.values is None or breaks(programme, last.values):
        return None, solved.bound_usd
    return last.values, solved.bound_usd


def can_be_bounded(problem: PortfolioProblem, columns: Columns, values: Floats) -> bool:
    """Whether what is held is few numbers and nothing else links the hours of one week with another's."""
    if problem.platform_limit is not None or problem.provider_limit is not None or columns.started:
        return False
    if len(_held(columns)) > MOST_HELD:
        return False
    linked = working(columns)
    return not any(
        option.offer in linked and (values[column] > 0.5 or option.offer in columns.hourly)
        for _, option, _, column in columns.starts
    )


def working(columns: Columns) -> set[str]:
    """Offers whose units do hours of work: where a dense run takes some, the hours of its weeks change."""
    serving = {rate.offer for rate, _ in columns.served} | {option.offer for _, option, *_ in columns.paused}
    return serving & (set(columns.held) | set(columns.hourly))


def otherwise(programme: Programme, columns: Columns, values: Floats) -> Iterator[Programme]:
    """Programmes that together have every answer which holds something else, or trains on what is held."""
    for column in _held(columns):
        here = round(float(values[column]))
        for low, high in ((programme.lower[column], here - 1.0), (here + 1.0, programme.upper[column])):
            if low <= high:
                lower, upper = programme.lower.copy(), programme.upper.copy()
                lower[column], upper[column] = low, high
                yield replace(programme, lower=lower, upper=upper)
    held = working(columns) & set(columns.held)
    on_held = [column for _, option, _, column in columns.starts if option.offer in held]
    if on_held:
        yield _with_one_of(programme, on_held)


def _with_one_of(programme: Programme, columns: list[int]) -> Programme:
    """One more row: of these columns at least one."""
    chosen = np.array(sorted(columns), np.int64)
    return replace(
        programme,
        row_lower=np.append(programme.row_lower, 1.0),
        row_upper=np.append(programme.row_upper, np.inf),
        row_starts=np.append(programme.row_starts, programme.row_starts[-1] + len(chosen)),
        columns=np.append(programme.columns, chosen),
        values=np.append(programme.values, np.ones(len(chosen))),
    )


def _held(columns: Columns) -> list[int]:
    return sorted({int(column) for where in columns.held.values() for column in np.ravel(where)})


def _linking(columns: Columns) -> Ints:
    """What links weeks: held units, when their leases begin, and dense runs on units that serve too."""
    shared = working(columns)
    starts = [column for _, option, _, column in columns.starts if option.offer in shared]
    began = [int(column) for where in columns.started.values() for column in np.ravel(where)]
    return np.array(sorted({*_held(columns), *began, *starts}), np.int64)


def _kinds(programme: Programme, columns: Columns) -> Ints:
    """Whole columns that choose a kind of offer: neither units nor starts."""
    other = programme.integer.copy()
    other[_held(columns)] = False
    for where in columns.relaxed:
        other[where.ravel()] = False
    for _, _, _, column in columns.starts:
        other[column] = False
    return np.flatnonzero(other)


def _without_pauses(programme: Programme, columns: Columns) -> Programme:
    """Runs that may pause take nothing of the units that are held."""
    paused = np.zeros(len(programme.cost_usd), bool)
    for _, _, _, where in columns.paused:
        paused[where.ravel()] = True
    held = np.zeros(len(programme.cost_usd), bool)
    held[_held(columns)] = True
    row_of = np.repeat(np.arange(len(programme.row_lower)), np.diff(programme.row_starts))
    has_held = np.zeros(len(programme.row_lower), bool)
    has_held[row_of[held[programme.columns]]] = True
    free = paused[programme.columns] & has_held[row_of]
    return replace(programme, values=np.where(free, 0.0, programme.values))
