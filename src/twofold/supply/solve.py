"""Solves a portfolio with HiGHS: hours in fractions of units first, then whole ones."""

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.supply.portfolio_problem import (
    DAY_H,
    DAYS_PER_WEEK,
    CampaignOption,
    Placement,
    PortfolioAnswer,
    PortfolioProblem,
    Portion,
    is_hourly,
    is_metered,
)
from twofold.supply.portfolio_prune import Calendar, calendar_of, pruned
from twofold.supply.solve_matrix import Programme
from twofold.supply.solve_model import Columns, programme_of

Floats = NDArray[np.float64]
GAP_FRACTION = 0.005
LIMIT_S = 20.0
LARGE_NODES = 5  # branches of a large programme
LARGE_COLUMNS = 6000  # of a programme in which looking for whole units takes more than it saves
FEW_HOURLY, FEW_NODES = 3, 30  # hourly offers of a first search for whole units, and its branches
WHOLE = 1e-6  # how far from a whole number still counts as one


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One run of the solver; `values` None: there is no answer, or none was found in time."""

    values: Floats | None
    usd: float
    bound_usd: float
    finished: bool
    infeasible: bool


class Effort(Enum):
    """How long to look for whole units by the hour: counted in branches, so that equal problems end equal."""

    QUICK = 0  # round up, and choose among the most used offers
    USUAL = 60
    THOROUGH = 1_000_000  # until the gap is closed or time is up


def solve(
    problem: PortfolioProblem,
    *,
    gap_fraction: float = GAP_FRACTION,
    limit_s: float = LIMIT_S,
    effort: Effort = Effort.THOROUGH,
) -> PortfolioAnswer | None:
    """The cheapest portfolio within a gap, or the best one found with that effort; None where there is none.

    Offers that others beat and hours that equal others are merged first, which changes no answer. Hours in
    fractions of units bound the cost from below; rounded up they are a first answer, better ones follow.
    """
    began = time.monotonic()
    small = pruned(problem)
    if _unserved(small):
        return None
    calendar = calendar_of(small)
    programme, columns = programme_of(small, calendar)
    large = effort is not Effort.THOROUGH and len(programme.cost_usd) > LARGE_COLUMNS
    few_nodes = LARGE_NODES if large else FEW_NODES
    nodes_first = None if effort is Effort.THOROUGH else few_nodes
    relaxed = _indices(columns)
    first = run(programme, gap_fraction / 2, limit_s, relaxed=relaxed, nodes=nodes_first)
    if first.values is None:
        return None
    best = _rounded(programme, columns, first)

    def left_s() -> float:
        return limit_s - (time.monotonic() - began)

    for kept, nodes in ((FEW_HOURLY, few_nodes), (None, effort.value)):
        if (
            nodes == 0
            or (large and kept is None)
            or left_s() <= 0
            or (best is not None and _gap(best) <= gap_fraction)
        ):
            continue
        part = programme if kept is None else _few(programme, columns, first, kept)
        start = None if best is None else best.values
        whole = run(part, gap_fraction, left_s(), start=start, nodes=nodes)
        if kept is None and whole.infeasible and best is None:
            return None
        bound = max(first.bound_usd, whole.bound_usd) if kept is None else first.bound_usd
        best = _better(best, whole, bound)
    if best is None or best.values is None:
        return None
    answer = _answer(problem, small, calendar, columns, best)
    finished = answer.gap_fraction <= gap_fraction + 1e-9
    return replace(answer, finished=finished, seconds=time.monotonic() - began)


def _few(programme: Programme, columns: Columns, solved: Solved, kept: int) -> Programme:
    """The same with only the hourly offers that fractions use most, and the hours of others at none."""
    assert solved.values is not None
    spent = {
        name: float(np.sum(programme.cost_usd[np.unique(where)] * solved.values[np.unique(where)]))
        for name, where in columns.hourly.items()
    }
    idle = sorted(spent, key=lambda name: (-spent[name], name))[kept:]
    upper = programme.upper.copy()
    for name in idle:
        upper[columns.hourly[name].ravel()] = 0.0
    return replace(programme, upper=upper)


def bound_usd(problem: PortfolioProblem) -> float | None:
    """What the same problem costs when nothing need be whole: no portfolio is cheaper. None: impossible."""
    small = pruned(problem)
    if _unserved(small):
        return None
    programme, _ = programme_of(small, calendar_of(small))
    everything = np.flatnonzero(programme.integer)
    solved = run(programme, 0.0, LIMIT_S, relaxed=everything)
    return None if solved.values is None else solved.usd


def is_possible(problem: PortfolioProblem, limit_s: float = LIMIT_S) -> bool:
    """Whether any portfolio meets every requirement; asked without an interest in its price."""
    small = pruned(problem)
    if _unserved(small):
        return False
    programme, columns = programme_of(small, calendar_of(small))
    free = replace(programme, cost_usd=np.zeros_like(programme.cost_usd))
    limited = problem.budget_usd is not None or any(offer.unit_limit is not None for offer in small.offers)
    return not run(free, 1.0, limit_s, relaxed=() if limited else _indices(columns)).infeasible


def _unserved(problem: PortfolioProblem) -> bool:
    """Whether some demand or run has no offer at all."""
    served = {rate.demand for rate in problem.rates}
    wanted = {each.name for each in problem.batches if np.any(each.requests_per_day > 0)}
    if problem.shortage_usd_per_request is None:
        wanted |= {each.name for each in problem.demands if np.any(each.rate_per_s > 0)}
    return not wanted <= served or any(not each.options for each in problem.campaigns)


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
        "time_limit": max(limit_s, 0.05),
    }
    if nodes is not None:
        settings["mip_max_nodes"] = nodes
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    solver.passModel(_lp(programme, relaxed))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        solver.setSolution(solution)
    solver.run()
    status = solver.getModelStatus()
    kinds = highspy.HighsModelStatus
    info = solver.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    values = np.array(solver.getSolution().col_value) if feasible else None
    whole = bool(np.any(programme.integer)) and len(relaxed) < int(programme.integer.sum())
    bound = info.mip_dual_bound if whole else info.objective_function_value
    return Solved(
        values,
        float(info.objective_function_value) if feasible else np.inf,
        float(bound),
        status == kinds.kOptimal,
        status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible),
    )


def _lp(programme: Programme, relaxed: Any) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(programme.cost_usd), len(programme.row_lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = (
        programme.cost_usd,
        programme.lower,
        _infinite(programme.upper),
    )
    model.row_lower_, model.row_upper_ = _infinite(programme.row_lower), _infinite(programme.row_upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = programme.row_starts.astype(np.int32)
    model.a_matrix_.index_ = programme.columns.astype(np.int32)
    model.a_matrix_.value_ = programme.values
    whole = programme.integer.copy()
    whole[np.asarray(relaxed, int)] = False
    if np.any(whole):
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in whole]
    return model


def _infinite(values: Floats) -> Floats:
    import highspy

    bounded = values.copy()
    bounded[np.isposinf(values)], bounded[np.isneginf(values)] = highspy.kHighsInf, -highspy.kHighsInf
    return bounded


def _indices(columns: Columns) -> NDArray[np.int64]:
    parts = [each.ravel() for each in columns.relaxed]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _rounded(programme: Programme, columns: Columns, solved: Solved) -> Solved | None:
    """The same answer with hours in whole units; None where the budget has no room for them."""
    assert solved.values is not None
    values = solved.values.copy()
    hours = _indices(columns)
    values[hours] = np.minimum(np.ceil(values[hours] - WHOLE), programme.upper[hours])
    usd = float(programme.cost_usd @ values)
    if _breaks(programme, values):
        return None
    return Solved(values, usd, solved.bound_usd, True, False)


def _breaks(programme: Programme, values: Floats) -> bool:
    products = programme.values * values[programme.columns]
    sums = np.add.reduceat(np.append(products, 0.0), programme.row_starts[:-1])
    sums = np.where(np.diff(programme.row_starts) > 0, sums, 0.0)
    room = 1e-5 * (1.0 + np.abs(sums))
    return bool(np.any(sums > programme.row_upper + room) or np.any(sums < programme.row_lower - room))


def _better(one: Solved | None, other: Solved, bound: float) -> Solved | None:
    """The cheaper of two, with the better of the two bounds."""
    candidates = [each for each in (one, other) if each is not None and each.values is not None]
    if not candidates:
        return None
    return replace(min(candidates, key=lambda each: each.usd), bound_usd=bound)


def _gap(solved: Solved) -> float:
    return (solved.usd - solved.bound_usd) / max(abs(solved.usd), 1e-9)


def _answer(
    problem: PortfolioProblem, small: PortfolioProblem, calendar: Calendar, columns: Columns, solved: Solved
) -> PortfolioAnswer:
    """The solver's numbers as weeks and hours of the problem that was asked."""
    assert solved.values is not None
    values = solved.values
    spread = _Spread(problem, calendar)
    offers = {offer.name: index for index, offer in enumerate(problem.offers)}
    work = {name: index for index, name in enumerate(problem.work_names)}
    runs = {campaign.name: index for index, campaign in enumerate(problem.campaigns)}
    weeks = problem.week_count
    held, started = np.zeros((len(offers), weeks)), np.zeros((len(offers), weeks))
    hourly = np.zeros((len(offers), weeks, DAY_H))
    served = np.zeros((len(offers), len(work), weeks, DAY_H))
    paused = np.zeros((len(offers), len(runs), weeks, DAY_H))
    rented = np.zeros((len(offers), len(runs)))
    short = np.zeros((len(problem.demands), weeks, DAY_H))
    for offer in small.offers:
        index = offers[offer.name]
        if is_hourly(offer):
            hourly[index] = np.rint(spread.hours(values[columns.hourly[offer.name]]))
        elif not is_metered(offer):
            held[index] = np.rint(spread.weeks(values[columns.held[offer.name]]))
            held[index, : offer.first_week] = 0.0
            before = np.concatenate([[0.0], held[index, :-1]])
            started[index] = np.maximum(held[index] - before, 0.0)
            if offer.name in columns.started:
                started[index] = np.rint(spread.weeks(values[columns.started[offer.name]]))
    for rate, where in columns.served:
        served[offers[rate.offer], work[rate.demand]] += spread.hours(values[where])
    done: dict[tuple[str, CampaignOption], float] = {}
    for campaign, option, inside, where in columns.paused:
        units = np.zeros((len(calendar.blocks), len(calendar.hour_groups)))
        units[inside] = values[where]
        by_hour = np.maximum(spread.hours(units), 0.0)
        paused[offers[option.offer], runs[campaign.name]] += by_hour
        done[campaign.name, option] = float(by_hour.sum()) * DAYS_PER_WEEK / option.unit_h
    for campaign, option, column in columns.rented:
        hours = max(float(values[column]), 0.0)
        rented[offers[option.offer], runs[campaign.name]] += hours
        done[campaign.name, option] = hours / option.unit_h
    for name, where in columns.shortage.items():
        short[work[name]] = spread.hours(values[where])
    placements = tuple(
        Placement(campaign.name, option.offer, option.units, week, option.wall_h, option.extra_usd)
        for campaign, option, week, column in columns.starts
        if values[column] > 0.5
    )
    return PortfolioAnswer(
        solved.usd,
        min(solved.bound_usd, solved.usd),
        solved.finished,
        0.0,
        held,
        started,
        hourly,
        np.maximum(served, 0.0),
        paused,
        rented,
        placements,
        tuple(Portion(*which, fraction) for which, fraction in done.items() if fraction > 0),
        np.maximum(short, 0.0),
    )


class _Spread:
    """Merged weeks and hours back to every week and hour."""

    def __init__(self, problem: PortfolioProblem, calendar: Calendar) -> None:
        self.block = np.repeat(np.arange(len(calendar.blocks)), [weeks for _, weeks in calendar.blocks])
        self.group = np.zeros(DAY_H, int)
        for index, hours in enumerate(calendar.hour_groups):
            self.group[list(hours)] = index
        assert len(self.block) == problem.week_count

    def weeks(self, values: Floats) -> Floats:
        spread: Floats = values[self.block]
        return spread

    def hours(self, values: Floats) -> Floats:
        spread: Floats = values[self.block][:, self.group]
        return spread
