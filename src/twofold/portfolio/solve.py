"""Solves a portfolio with HiGHS: what is held first, with hours in fractions of units, then whole hours."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from twofold.portfolio.problem import (
    DAY_H,
    DAYS_PER_WEEK,
    CampaignOption,
    Placement,
    PortfolioAnswer,
    PortfolioProblem,
    Portion,
)
from twofold.portfolio.programme import Floats, Known, Programme, Solved, breaks, run
from twofold.portfolio.prune import Calendar, calendar_of, pruned, with_mean_hours
from twofold.portfolio.solve_bound import can_be_bounded, otherwise, whole_hours, working
from twofold.portfolio.solve_model import Columns, programme_of

GAP_FRACTION = 0.005
LIMIT_S = 20.0
LONG_COLUMNS = 6000  # of a programme with leases of some weeks
MOST_HOLDINGS = 4  # choices of what is held for which hours are made whole
FIRST_NODES = 30  # branches while what is held is chosen
WHOLE = 1e-6  # how far from a whole number still counts as one


class Effort(Enum):
    """How long to look for whole units by the hour: counted in branches, so that equal problems end equal."""

    QUICK = 0  # round up
    USUAL = 60  # of each part of the hours
    THOROUGH = 1_000_000  # until the gap is closed or time is up


@dataclass(frozen=True, slots=True, eq=False)
class Leased:
    """What is leased already: units of an offer by week, and those whose leases begin."""

    units: Floats
    started: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """A problem without what others beat, and its programme."""

    problem: PortfolioProblem
    calendar: Calendar
    programme: Programme
    columns: Columns


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Values of the columns of a case that keep every row."""

    case: _Case
    values: Floats

    @property
    def usd(self) -> float:
        return float(self.case.programme.cost_usd @ self.values)


def solve(
    problem: PortfolioProblem,
    *,
    gap_fraction: float = GAP_FRACTION,
    limit_s: float = LIMIT_S,
    effort: Effort = Effort.THOROUGH,
    leased: Mapping[str, Leased] | None = None,
    known: Known | None = None,
) -> PortfolioAnswer | None:
    """The cheapest portfolio within a gap, or the best one found with that effort; None where there is none.

    `leased` fixes what is held, offer by offer: no more of it and no less. `known` remembers parts for other
    problems that share them.

    Offers that others beat and hours that equal others are merged first, which changes no answer. Hours in
    fractions of units bound the cost from below and choose what is held. Then hours are made whole, week by
    week, and the bound rises by looking at what else might be held.
    """
    began = time.monotonic()

    def left_s() -> float:
        return limit_s - (time.monotonic() - began)

    case = _case(pruned(problem, leased or ()))
    if case is None:
        return None
    if leased is not None:
        case = replace(case, programme=_leasing(case, leased))
    nodes = None if effort is Effort.THOROUGH else FIRST_NODES
    first = None
    if leased is None and nodes is not None and _is_long(case):
        first = _from_rough(case, gap_fraction, left_s)
    if first is None:
        first = run(case.programme, gap_fraction / 2, left_s(), relaxed=_hours(case), nodes=nodes)
    if first.values is None:
        return None
    best, bound = _rounded(case, first), first.bound_usd
    if effort is not Effort.QUICK and left_s() > 0 and _gap(best, bound) > gap_fraction:
        search = _Search(gap_fraction, effort, left_s, {} if known is None else known)
        best, bound = _in_parts(case, first, best, search)
    if left_s() > 0 and (best is None or (effort is Effort.THOROUGH and _gap(best, bound) > gap_fraction)):
        start = best.values if best and best.case is case else None
        whole = run(case.programme, gap_fraction, left_s(), start=start, nodes=max(FIRST_NODES, effort.value))
        if whole.values is not None and (best is None or whole.usd < best.usd):
            best = _Found(case, whole.values)
        bound = max(bound, whole.bound_usd)
    if best is None:
        return None
    answer = _answer(problem, best, bound)
    finished = answer.gap_fraction <= gap_fraction + 1e-9
    return replace(answer, finished=finished, seconds=time.monotonic() - began)


def _case(small: PortfolioProblem) -> _Case | None:
    """None: some demand or run has no offer at all."""
    if _unserved(small):
        return None
    calendar = calendar_of(small)
    return _Case(small, calendar, *programme_of(small, calendar))


def _is_long(case: _Case) -> bool:
    """Whether leases of some weeks tell so many weeks apart that choosing them takes longest."""
    return bool(case.columns.started) and len(case.programme.cost_usd) > LONG_COLUMNS


def _from_rough(case: _Case, gap_fraction: float, left_s: Callable[[], float]) -> Solved | None:
    """What is held as hours with their means in place of them choose it, then hours as they are.

    Means ask no more than hours do: whatever serves all hours serves, on the mean of its units, their mean,
    and costs the same. So the bound of the rough problem is one of the whole. None: peaks need more.
    """
    rough = _case(with_mean_hours(case.problem))
    if rough is None:
        return None
    first = run(rough.programme, gap_fraction / 2, left_s(), relaxed=_hours(rough), nodes=FIRST_NODES)
    if first.values is None or left_s() <= 0:
        return None
    whole = run(_holding(case, rough, first.values), 0.0, left_s(), relaxed=_hours(case), nodes=FIRST_NODES)
    return None if whole.values is None else replace(whole, bound_usd=first.bound_usd)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """How far and how long is looked, and what was found before."""

    gap_fraction: float
    effort: Effort
    left_s: Callable[[], float]
    known: Known


def _leasing(case: _Case, leased: Mapping[str, Leased]) -> Programme:
    """The programme with what is leased as it is; offers that are not named are not held."""
    lower, upper = case.programme.lower.copy(), case.programme.upper.copy()
    firsts = [first for first, _ in case.calendar.blocks]
    for name, where in case.columns.held.items():
        mine = leased.get(name)
        units = mine.units[firsts] if mine else np.zeros(len(firsts))
        if np.unique(where).size == 1:
            units = np.full(len(firsts), units.max(initial=0.0))
        lower[where] = upper[where] = units
        if name in case.columns.started:
            began = case.columns.started[name]
            lower[began] = upper[began] = mine.started[firsts] if mine else 0.0
    return replace(case.programme, lower=lower, upper=upper)


def _in_parts(
    case: _Case, first: Solved, rounded: _Found | None, search: _Search
) -> tuple[_Found | None, float]:
    """Whole hours for what the first pass holds, then for what else might be held, cheapest bound first.

    Each choice of what is held has a bound of its own, and all others share one: with hours in fractions.
    """
    best, closed, gap_fraction = rounded, np.inf, search.gap_fraction
    opened = [(first, case.programme)]
    for _ in range(MOST_HOLDINGS):
        opened.sort(key=lambda each: each[0].bound_usd)
        if not opened or search.left_s() <= 0:
            break
        solved, programme = opened[0]
        if best is not None and solved.bound_usd >= best.usd * (1 - gap_fraction / 4):
            break
        opened.pop(0)
        if solved.values is None:
            closed = min(closed, solved.bound_usd)
            continue
        found, inside = _whole(case, solved.values, search)
        if found is not None and (best is None or found.usd < best.usd):
            best = found
        if _gap(best, first.bound_usd) <= gap_fraction:
            return best, first.bound_usd
        if not can_be_bounded(case.problem, case.columns, solved.values):
            closed = min(closed, solved.bound_usd)
            continue
        closed = min(closed, max(inside, solved.bound_usd))
        for other in otherwise(programme, case.columns, solved.values):
            again = run(
                other, gap_fraction / 4, max(search.left_s(), 0.1), relaxed=_hours(case), nodes=FIRST_NODES
            )
            if not again.infeasible:
                opened.append((again, other))
    bound = min([closed, *(solved.bound_usd for solved, _ in opened)])
    return best, max(first.bound_usd, bound if np.isfinite(bound) else -np.inf)


def _whole(case: _Case, values: Floats, search: _Search) -> tuple[_Found | None, float]:
    """Whole hours for what is held in `values`, and a bound for just that.

    Where a dense run is not put on held units, weeks in which it might have been need not be told apart.
    """
    own = case
    narrow = _case(_narrowed(case, values))
    if narrow is not None and len(narrow.programme.cost_usd) < len(case.programme.cost_usd):
        again = run(_holding(narrow, case, values), 0.0, search.left_s(), relaxed=_hours(narrow))
        if again.values is not None:
            own, values = narrow, again.values
    found, inside = whole_hours(
        own.programme,
        own.columns,
        values,
        # A part's gap is less of the whole.
        lambda part: run(part, search.gap_fraction, search.left_s(), nodes=search.effort.value),
        search.known,
    )
    return None if found is None else _Found(own, found), inside


def _narrowed(case: _Case, values: Floats) -> PortfolioProblem:
    """Without the held units that dense runs might have had and were not given."""
    held = working(case.columns) & set(case.columns.held)
    taken = {
        (campaign.name, option.offer)
        for campaign, option, _, column in case.columns.starts
        if values[column] > 0.5
    }
    return replace(
        case.problem,
        campaigns=tuple(
            replace(
                each,
                options=tuple(
                    option
                    for option in each.options
                    if option.offer not in held or (each.name, option.offer) in taken
                ),
            )
            if each.dense
            else each
            for each in case.problem.campaigns
        ),
    )


def _holding(narrow: _Case, case: _Case, values: Floats) -> Programme:
    """The narrower programme with what another case holds and where it puts dense runs."""
    lower, upper = narrow.programme.lower.copy(), narrow.programme.upper.copy()
    spread = _Spread(case.problem.week_count, case.calendar)
    firsts = [first for first, _ in narrow.calendar.blocks]
    for mine, theirs in (
        (narrow.columns.held, case.columns.held),
        (narrow.columns.started, case.columns.started),
    ):
        for name, where in mine.items():
            fixed = spread.weeks(values[theirs[name]])[firsts]
            lower[where] = upper[where] = np.rint(fixed)
    taken = {
        (campaign.name, option, week)
        for campaign, option, week, column in case.columns.starts
        if values[column] > 0.5
    }
    on_held = [each for each in narrow.columns.starts if each[1].offer in narrow.columns.held]
    for campaign, option, week, column in on_held:
        lower[column] = upper[column] = float((campaign.name, option, week) in taken)
    return replace(narrow.programme, lower=lower, upper=upper)


def bound_usd(problem: PortfolioProblem) -> float | None:
    """What the same problem costs when nothing need be whole: no portfolio is cheaper. None: impossible."""
    case = _case(pruned(problem))
    if case is None:
        return None
    solved = run(case.programme, 0.0, LIMIT_S, relaxed=np.flatnonzero(case.programme.integer))
    return None if solved.values is None else solved.usd


def is_possible(problem: PortfolioProblem, limit_s: float = LIMIT_S) -> bool:
    """Whether any portfolio meets every requirement; asked without an interest in its price."""
    case = _case(pruned(problem))
    if case is None:
        return False
    free = replace(case.programme, cost_usd=np.zeros_like(case.programme.cost_usd))
    limited = problem.budget_usd is not None or any(
        offer.unit_limit is not None for offer in case.problem.offers
    )
    return not run(free, 1.0, limit_s, relaxed=() if limited else _hours(case)).infeasible


def _unserved(problem: PortfolioProblem) -> bool:
    """Whether some demand or run has no offer at all."""
    served = {rate.demand for rate in problem.rates}
    wanted = {each.name for each in problem.batches if np.any(each.requests_per_day > 0)}
    if problem.shortage_usd_per_request is None:
        wanted |= {each.name for each in problem.demands if np.any(each.rate_per_s > 0)}
    return not wanted <= served or any(not each.options for each in problem.campaigns)


def _hours(case: _Case) -> NDArray[np.int64]:
    """Units by the hour, which a first pass may leave in fractions."""
    parts = [each.ravel() for each in case.columns.relaxed]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _rounded(case: _Case, solved: Solved) -> _Found | None:
    """The same answer with hours in whole units; None where the budget has no room for them."""
    assert solved.values is not None
    values, hours = solved.values.copy(), _hours(case)
    values[hours] = np.minimum(np.ceil(values[hours] - WHOLE), case.programme.upper[hours])
    return None if breaks(case.programme, values) else _Found(case, values)


def _gap(found: _Found | None, bound: float) -> float:
    return np.inf if found is None else (found.usd - bound) / max(abs(found.usd), 1e-9)


def _answer(problem: PortfolioProblem, found: _Found, bound: float) -> PortfolioAnswer:
    """The solver's numbers as weeks and hours of the problem that was asked."""
    case, values = found.case, found.values
    small, calendar, columns = case.problem, case.calendar, case.columns
    spread = _Spread(problem.week_count, calendar)
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
        if offer.name in columns.hourly:
            hourly[index] = np.rint(spread.hours(values[columns.hourly[offer.name]]))
        elif offer.name in columns.held:
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
        Placement(campaign.name, option, week)
        for campaign, option, week, column in columns.starts
        if values[column] > 0.5
    )
    return PortfolioAnswer(
        found.usd,
        min(bound, found.usd),
        False,
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

    def __init__(self, week_count: int, calendar: Calendar) -> None:
        self.block = np.repeat(np.arange(len(calendar.blocks)), [weeks for _, weeks in calendar.blocks])
        self.group = np.zeros(DAY_H, int)
        for index, hours in enumerate(calendar.hour_groups):
            self.group[list(hours)] = index
        assert len(self.block) == week_count

    def weeks(self, values: Floats) -> Floats:
        spread: Floats = values[self.block]
        return spread

    def hours(self, values: Floats) -> Floats:
        spread: Floats = values[self.block][:, self.group]
        return spread
