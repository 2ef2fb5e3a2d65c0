"""Solves a portfolio with HiGHS: what is held first, with hours in fractions of units, then whole hours.

The first pass leaves hours in fractions, so its bound knows nothing of whole ones. What is held takes few
numbers: with them fixed every week is a small programme of its own, and any other choice of them costs at
least what it costs with hours in fractions.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from twofold.portfolio.problem import (
    DAY_H,
    DAYS_PER_WEEK,
    CampaignOption,
    Placement,
    PortfolioAnswer,
    PortfolioProblem,
    Portion,
    admitted,
)
from twofold.portfolio.programme import Floats, Known, Programme, Solved, breaks, by_parts, run
from twofold.portfolio.prune import pruned, with_mean_hours
from twofold.portfolio.solve_model import Case, case_of

GAP_FRACTION = 0.005
LIMIT_S = 20.0
LONG_COLUMNS = 6000  # of a programme with leases of some weeks
MOST_HOLDINGS = 4  # choices of what is held for which hours are made whole
MOST_HELD = 6  # numbers of units held: each is looked at below and above
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
class _Found:
    """Values of the columns of a case that keep every row."""

    case: Case
    values: Floats

    @property
    def usd(self) -> float:
        return float(self.case.programme.cost_usd @ self.values)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """How far and how long is looked, and what was found before."""

    gap_fraction: float
    effort: Effort
    end_s: float  # of the clock
    known: Known

    @property
    def left_s(self) -> float:
        return self.end_s - time.monotonic()


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
    search = _Search(gap_fraction, effort, time.monotonic() + limit_s, {} if known is None else known)
    case = _case(pruned(problem, leased or ()))
    if case is None:
        return None
    if leased is not None:
        case = replace(case, programme=_holding(case, leased))
    nodes = None if effort is Effort.THOROUGH else FIRST_NODES
    first = None
    # Leases of some weeks may tell so many weeks apart that choosing them takes longest.
    is_long = bool(case.columns.started) and len(case.programme.cost_usd) > LONG_COLUMNS
    if leased is None and nodes is not None and is_long:
        first = _from_rough(case, search)
    if first is None:
        first = run(case.programme, gap_fraction / 2, search.left_s, relaxed=case.columns.hours, nodes=nodes)
    if first.values is None:
        return None
    best, bound = _rounded(case, first.values), first.bound_usd
    if effort is not Effort.QUICK and search.left_s > 0 and _gap(best, bound) > gap_fraction:
        best, bound = _in_parts(case, first, best, search)
    if search.left_s > 0 and (
        best is None or (effort is Effort.THOROUGH and _gap(best, bound) > gap_fraction)
    ):
        start = best.values if best and best.case is case else None
        most = max(FIRST_NODES, effort.value)
        whole = run(case.programme, gap_fraction, search.left_s, start=start, nodes=most)
        if whole.values is not None and (best is None or whole.usd < best.usd):
            best = _Found(case, whole.values)
        bound = max(bound, whole.bound_usd)
    if best is None:
        return None
    answer = _answer(problem, best, bound)
    return replace(answer, finished=answer.gap_fraction <= gap_fraction + 1e-9)


def unserved(problem: PortfolioProblem) -> tuple[str, ...]:
    """What no offer can take at all, whatever it costs: demands, a day's work, runs."""
    offers = {offer.name for offer in problem.offers}
    served = {rate.demand for rate in admitted(problem) if rate.offer in offers}
    demands = problem.demands if problem.shortage_usd_per_request is None else ()
    wanted = [("class", each.name, each.rate_per_s) for each in demands]
    wanted += [("batch", each.name, each.requests_per_day) for each in problem.batches]
    return (
        *(f"{kind} {name}" for kind, name, asked in wanted if np.any(asked > 0) and name not in served),
        *(f"run {each.name}" for each in problem.campaigns if not each.options),
    )


def _case(small: PortfolioProblem) -> Case | None:
    """None: some demand or run has no offer at all."""
    return None if unserved(small) else case_of(small)


def _from_rough(case: Case, search: _Search) -> Solved | None:
    """What is held as hours with their means in place of them choose it, then hours as they are.

    Means ask no more than hours do: whatever serves all hours serves, on the mean of its units, their mean,
    and costs the same. So the bound of the rough problem is one of the whole. None: peaks need more.
    """
    rough = _case(with_mean_hours(case.problem))
    if rough is None:
        return None
    gap_fraction, hours = search.gap_fraction / 2, rough.columns.hours
    first = run(rough.programme, gap_fraction, search.left_s, relaxed=hours, nodes=FIRST_NODES)
    if first.values is None or search.left_s <= 0:
        return None
    held = _as_in(case, rough, first.values)
    whole = run(held, 0.0, search.left_s, relaxed=case.columns.hours, nodes=FIRST_NODES)
    return None if whole.values is None else replace(whole, bound_usd=first.bound_usd)


def _in_parts(
    case: Case, first: Solved, rounded: _Found | None, search: _Search
) -> tuple[_Found | None, float]:
    """Whole hours for what the first pass holds, then for what else might be held, cheapest bound first.

    Each choice of what is held has a bound of its own, and all others share one: with hours in fractions.
    """
    best, closed, gap_fraction = rounded, np.inf, search.gap_fraction
    opened = [(first, case.programme)]
    for _ in range(MOST_HOLDINGS):
        opened.sort(key=lambda each: each[0].bound_usd)
        if not opened or search.left_s <= 0:
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
        if not _can_be_bounded(case, solved.values):
            closed = min(closed, solved.bound_usd)
            continue
        closed = min(closed, max(inside, solved.bound_usd))
        for other in _otherwise(case, programme, solved.values):
            left_s = max(search.left_s, 0.1)
            again = run(other, gap_fraction / 4, left_s, relaxed=case.columns.hours, nodes=FIRST_NODES)
            if not again.infeasible:
                opened.append((again, other))
    bound = min([closed, *(solved.bound_usd for solved, _ in opened)])
    return best, max(first.bound_usd, bound if np.isfinite(bound) else -np.inf)


def _whole(case: Case, values: Floats, search: _Search) -> tuple[_Found | None, float]:
    """Whole hours for what is held in `values`, None where none were found, and a bound for just that.

    Where a dense run is not put on held units, weeks in which it might have been need not be told apart. Runs
    that may pause first count as if idle hours were theirs for nothing; then they get those that are.
    """
    narrow = _case(_narrowed(case, values))
    if narrow is not None and len(narrow.programme.cost_usd) < len(case.programme.cost_usd):
        again = run(_as_in(narrow, case, values), 0.0, search.left_s, relaxed=narrow.columns.hours)
        if again.values is not None:
            case, values = narrow, again.values
    programme, columns = case.programme, case.columns
    # What links weeks: held units, when their leases begin, dense runs on units that serve too, kinds chosen.
    fixed, whole = programme.integer.copy(), programme.integer
    fixed[columns.hours] = False
    fixed[[each for _, option, _, each in columns.starts if option.offer not in columns.working]] = False
    for began in columns.started.values():
        fixed[began] = True
    solved = by_parts(
        _without_pauses(case),
        values,
        ~fixed,
        # A part's gap is less of the whole.
        lambda part: run(part, search.gap_fraction, search.left_s, nodes=search.effort.value),
        search.known,
    )
    if solved.values is None:
        return None, -np.inf
    settled = np.rint(solved.values)
    lower = np.where(whole | fixed, settled, programme.lower)
    upper = np.where(whole | fixed, settled, programme.upper)
    last = run(replace(programme, lower=lower, upper=upper), 0.0, LIMIT_S, relaxed=np.flatnonzero(whole))
    if last.values is None or breaks(programme, last.values):
        return None, solved.bound_usd
    return _Found(case, last.values), solved.bound_usd


def _without_pauses(case: Case) -> Programme:
    """Runs that may pause take nothing of the units that are held."""
    programme, columns = case.programme, case.columns
    paused = np.concatenate([np.zeros(0, np.int64), *[each.ravel() for *_, each in columns.paused]])
    holding = programme.row_of[np.isin(programme.columns, columns.units)]
    free = np.isin(programme.columns, paused) & np.isin(programme.row_of, holding)
    return replace(programme, values=np.where(free, 0.0, programme.values))


def _can_be_bounded(case: Case, values: Floats) -> bool:
    """Whether what is held is few numbers and nothing else links the hours of one week with another's."""
    problem, columns = case.problem, case.columns
    if problem.platform_limit is not None or problem.provider_limit is not None or columns.started:
        return False
    return len(columns.units) <= MOST_HELD and not any(
        option.offer in columns.working and (values[column] > 0.5 or option.offer in columns.hourly)
        for _, option, _, column in columns.starts
    )


def _otherwise(case: Case, programme: Programme, values: Floats) -> Iterator[Programme]:
    """Programmes that together have every answer which holds something else, or trains on what is held."""
    for column in case.columns.units:
        here = round(float(values[column]))
        for low, high in ((programme.lower[column], here - 1.0), (here + 1.0, programme.upper[column])):
            if low <= high:
                lower, upper = programme.lower.copy(), programme.upper.copy()
                lower[column], upper[column] = low, high
                yield replace(programme, lower=lower, upper=upper)
    held = case.columns.working & set(case.columns.held)
    on_held = sorted(column for _, option, _, column in case.columns.starts if option.offer in held)
    if on_held:  # one more row: of these columns at least one
        yield replace(
            programme,
            row_lower=np.append(programme.row_lower, 1.0),
            row_upper=np.append(programme.row_upper, np.inf),
            row_starts=np.append(programme.row_starts, programme.row_starts[-1] + len(on_held)),
            columns=np.append(programme.columns, np.array(on_held, np.int64)),
            values=np.append(programme.values, np.ones(len(on_held))),
        )


def _narrowed(case: Case, values: Floats) -> PortfolioProblem:
    """Without the held units that dense runs might have had and were not given."""
    held = case.columns.working & set(case.columns.held)
    taken = {(each.campaign, each.option.offer) for each in _placements(case, values)}
    campaigns = []
    for each in case.problem.campaigns:
        left = tuple(
            option
            for option in each.options
            if not each.dense or option.offer not in held or (each.name, option.offer) in taken
        )
        campaigns.append(replace(each, options=left))
    return replace(case.problem, campaigns=tuple(campaigns))


def _placements(case: Case, values: Floats) -> tuple[Placement, ...]:
    return tuple(
        Placement(campaign.name, option, week)
        for campaign, option, week, column in case.columns.starts
        if values[column] > 0.5
    )


def _held(case: Case, values: Floats) -> dict[str, Leased]:
    """What is held of every offer, week by week, and the leases that begin."""
    found = {}
    for name, where in case.columns.held.items():
        offer = next(each for each in case.problem.offers if each.name == name)
        units = np.rint(case.calendar.weeks(values[where]))
        units[: offer.first_week] = 0.0
        began = np.maximum(np.diff(units, prepend=0.0), 0.0)
        if name in case.columns.started:
            began = np.rint(case.calendar.weeks(values[case.columns.started[name]]))
        found[name] = Leased(units, began)
    return found


def _holding(case: Case, leased: Mapping[str, Leased]) -> Programme:
    """The programme with what is leased as it is; offers that are not named are not held."""
    lower, upper = case.programme.lower.copy(), case.programme.upper.copy()
    firsts, nothing = case.calendar.first_weeks, np.zeros(case.problem.week_count)
    for name, where in case.columns.held.items():
        mine = leased.get(name, Leased(nothing, nothing))
        # One number for the whole plan is the most of it.
        lower[where] = upper[where] = mine.units.max() if len(set(where)) == 1 else mine.units[firsts]
        if name in case.columns.started:
            began = case.columns.started[name]
            lower[began] = upper[began] = mine.started[firsts]
    return replace(case.programme, lower=lower, upper=upper)


def _as_in(case: Case, other: Case, values: Floats) -> Programme:
    """A case's programme with what another case holds and where it puts dense runs on what is held."""
    programme = _holding(case, _held(other, values))
    lower, upper = programme.lower.copy(), programme.upper.copy()
    taken = _placements(other, values)
    for campaign, option, week, column in case.columns.starts:
        if option.offer in case.columns.held:
            lower[column] = upper[column] = float(Placement(campaign.name, option, week) in taken)
    return replace(programme, lower=lower, upper=upper)


def bound_usd(problem: PortfolioProblem) -> float | None:
    """What the same problem costs when nothing need be whole: no portfolio is cheaper. None: impossible."""
    case = _case(pruned(problem))
    if case is None:
        return None
    solved = run(case.programme, 0.0, LIMIT_S, relaxed=np.flatnonzero(case.programme.integer))
    return None if solved.values is None else solved.usd


def is_possible(problem: PortfolioProblem) -> bool:
    """Whether any portfolio meets every requirement; asked without an interest in its price."""
    case = _case(pruned(problem))
    if case is None:
        return False
    free = replace(case.programme, cost_usd=np.zeros_like(case.programme.cost_usd))
    limited = any(offer.unit_limit is not None for offer in case.problem.offers)
    return not run(free, 1.0, LIMIT_S, relaxed=() if limited else case.columns.hours).infeasible


def _rounded(case: Case, values: Floats) -> _Found | None:
    """The same answer with hours in whole units; None where a limit has no room for them."""
    values, hours = values.copy(), case.columns.hours
    values[hours] = np.minimum(np.ceil(values[hours] - WHOLE), case.programme.upper[hours])
    return None if breaks(case.programme, values) else _Found(case, values)


def _gap(found: _Found | None, bound: float) -> float:
    return np.inf if found is None else (found.usd - bound) / max(abs(found.usd), 1e-9)


def _answer(problem: PortfolioProblem, found: _Found, bound: float) -> PortfolioAnswer:
    """The solver's numbers as weeks and hours of the problem that was asked."""
    values, calendar, columns = found.values, found.case.calendar, found.case.columns
    offers = {offer.name: index for index, offer in enumerate(problem.offers)}
    work = {name: index for index, name in enumerate(problem.work_names)}
    runs = {campaign.name: index for index, campaign in enumerate(problem.campaigns)}
    weeks = problem.week_count
    held, started = np.zeros((2, len(offers), weeks))
    hourly = np.zeros((len(offers), weeks, DAY_H))
    served = np.zeros((len(offers), len(work), weeks, DAY_H))
    paused = np.zeros((len(offers), len(runs), weeks, DAY_H))
    rented = np.zeros((len(offers), len(runs)))
    short = np.zeros((len(problem.demands), weeks, DAY_H))
    for name, where in columns.hourly.items():
        hourly[offers[name]] = np.rint(calendar.hours(values[where]))
    for name, mine in _held(found.case, values).items():
        held[offers[name]], started[offers[name]] = mine.units, mine.started
    for rate, where in columns.served:
        served[offers[rate.offer], work[rate.demand]] += calendar.hours(values[where])
    done: dict[tuple[str, CampaignOption], float] = {}
    for campaign, option, inside, where in columns.paused:
        units = np.zeros(calendar.period_h.shape)
        units[inside] = values[where]
        by_hour = np.maximum(calendar.hours(units), 0.0)
        paused[offers[option.offer], runs[campaign.name]] += by_hour
        done[campaign.name, option] = float(by_hour.sum()) * DAYS_PER_WEEK / option.unit_h
    for campaign, option, column in columns.rented:
        hours = max(float(values[column]), 0.0)
        rented[offers[option.offer], runs[campaign.name]] += hours
        done[campaign.name, option] = hours / option.unit_h
    for name, where in columns.shortage.items():
        short[work[name]] = calendar.hours(values[where])
    return PortfolioAnswer(
        found.usd,
        min(bound, found.usd),
        False,
        held,
        started,
        hourly,
        np.maximum(served, 0.0),
        paused,
        rented,
        _placements(found.case, values),
        tuple(Portion(*which, fraction) for which, fraction in done.items() if fraction > 0),
        np.maximum(short, 0.0),
    )
