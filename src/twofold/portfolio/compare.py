"""What a portfolio is held against: honest alternatives, rules that could bind it, other years."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

import numpy as np

from twofold.contracts.results import holdings
from twofold.portfolio.alternatives import Fleet, break_even_ratio, one_cluster, two_fleets
from twofold.portfolio.problem import CapacityOffer, PortfolioAnswer, PortfolioProblem, is_hourly
from twofold.portfolio.prune import part_of, pruned
from twofold.portfolio.solve import Effort, Leased, bound_usd, solve
from twofold.portfolio.solved import LEAST_UNITS, NOT_PROMISED, WEEK_H, SolvedPortfolio
from twofold.portfolio.tables import calendar

LIMIT_S = 60.0  # a guard: effort ends each question much sooner, and the same everywhere
YEAR_GAP = 0.02  # of another year, which is only compared
SLIP_WEEKS = 4
SHOWN_RUNS = 2  # names in a cell of the table
PEAK_FACTOR, LULL_FACTOR, PRICE_FACTOR = 1.3, 0.7, 1.25


def fleet_options(
    solved: SolvedPortfolio, what: str, discount_fraction: float
) -> tuple[holdings.FleetOption, ...]:
    """The portfolio, one cluster for both halves, and a fleet for each: cost, promises, deadlines, crossing.

    The spec's discount comes off list prices whoever rents, so off the fleets' too.
    """
    problem, paid = solved.problem, solved.answer.usd
    apart = two_fleets(problem)
    less = f" less {100 * discount_fraction:.4g} %" if discount_fraction else ""
    ends = _kept(late_runs(problem, solved.answer), solved)
    rows = [
        holdings.FleetOption("portfolio", what, paid, _slo(solved), ends, 0.0, None),
    ]
    for name, fleet in (("one cluster", one_cluster(problem)), ("dedicated fleets", apart)):
        if fleet is None:
            continue
        usd = fleet.usd * (1.0 - discount_fraction)
        crossing = break_even_ratio(fleet, apart) if apart and fleet is not apart else None
        rows.append(
            holdings.FleetOption(
                name,
                f"{fleet.what}, all year at list price{less}",
                usd,
                _missed(fleet, problem),
                _kept(fleet.missed, solved),
                1.0 - paid / usd if usd else 0.0,
                crossing,
            )
        )
    return tuple(rows)


def _slo(solved: SolvedPortfolio) -> str:
    """`met`, or the classes that are short of machines and those of hosted interfaces: these promise none."""
    short = [
        demand.name
        for number, demand in enumerate(solved.problem.demands)
        if solved.answer.shortage_per_s[number].max(initial=0.0) > 1e-6
    ]
    hosted = [
        work
        for number, work in enumerate(solved.problem.work_names)
        if any(
            offer.tenure == "api" and solved.answer.served_per_s[index, number].max(initial=0.0) > 1e-6
            for index, offer in enumerate(solved.problem.offers)
        )
    ]
    parts = [
        f"{what} {', '.join(names)}" for what, names in (("misses", short), (NOT_PROMISED, hosted)) if names
    ]
    if not parts:
        return "met" if solved.problem.demands else "–"
    return "; ".join(parts)


def late_runs(problem: PortfolioProblem, answer: PortfolioAnswer) -> tuple[str, ...]:
    """Runs that were put nowhere, or that are not over when their window is."""
    ends = {each.campaign: each.start_week + each.option.wall_h / WEEK_H for each in answer.placements}
    late = []
    for number, campaign in enumerate(problem.campaigns):
        if campaign.dense:
            is_late = ends.get(campaign.name, inf) > campaign.end_week + 1e-6
        else:
            # It may pause: it is late where it runs in a week after its window; rented hours lie within.
            weeks = np.flatnonzero(answer.paused_units[:, number].sum(axis=(0, 2)) > LEAST_UNITS)
            is_late = bool(len(weeks)) and float(weeks[-1]) >= campaign.end_week
        if is_late:
            late.append(campaign.name)
    return tuple(late)


def _kept(late: tuple[str, ...], solved: SolvedPortfolio) -> str:
    """`on time`, or the runs that are late and those that no machines end in time."""
    parts = [
        f"{what} {', '.join(names[:SHOWN_RUNS])}"
        + (f" and {len(names) - SHOWN_RUNS} more" if len(names) > SHOWN_RUNS else "")
        for what, names in (("misses", late), ("without", solved.dropped))
        if names
    ]
    if not solved.problem.campaigns and not solved.dropped:
        return "–"
    return "; ".join(parts) or "on time"


def _missed(fleet: Fleet, problem: PortfolioProblem) -> str:
    if not problem.demands:
        return "–"
    weeks = "1 week" if fleet.short_weeks == 1 else f"{fleet.short_weeks} weeks"
    return f"misses in {weeks} of training" if fleet.short_weeks else "met"


def restrictions(solved: SolvedPortfolio) -> tuple[holdings.Restriction, ...]:
    """What one platform, or one provider, would cost; nothing where the portfolio has no more anyway.

    Held against the same portfolio without the rule, both in fractions of units.
    """
    offers, problem = _used(solved), solved.problem
    rows = []
    free = bound_usd(problem)
    if problem.platform_limit is not None:
        rows.append(_restriction("any number of platforms", _unlimited(solved, free), solved))
    elif len({offer.accelerator for offer in offers}) > 1:
        by_platform = pruned(replace(problem, platform_limit=1))
        extra = _only_one(by_platform, lambda offer: offer.accelerator, free)
        rows.append(_restriction("one platform", extra, solved))
    if len({offer.provider for offer in offers}) > 1:
        by_provider = pruned(replace(problem, provider_limit=1))
        extra = _only_one(by_provider, lambda offer: offer.provider, free)
        rows.append(_restriction("one provider", extra, solved))
    return tuple(rows)


def _only_one(
    problem: PortfolioProblem, kind_of: Callable[[CapacityOffer], str], free: float | None
) -> float | None:
    """What the best kind of offers alone costs over what all together do, both in fractions of units.

    The problem's offers were only compared with others of their kind.
    """
    open_problem = replace(problem, platform_limit=None, provider_limit=None)
    kinds = sorted({kind_of(offer) for offer in problem.offers})
    parts = [
        part_of(open_problem, {each.name for each in problem.offers if kind_of(each) == kind})
        for kind in kinds
    ]
    bounds = [bound for part in parts if (bound := bound_usd(part)) is not None]
    return min(bounds) / free - 1.0 if bounds and free else None


def _unlimited(solved: SolvedPortfolio, bound: float | None) -> float | None:
    """What the portfolio would cost without its limit of platforms, over what it does."""
    free = bound_usd(replace(solved.problem, platform_limit=None))
    return free / bound - 1.0 if bound and free is not None else None


def _restriction(rule: str, extra_fraction: float | None, solved: SolvedPortfolio) -> holdings.Restriction:
    if extra_fraction is None:
        return holdings.Restriction(rule, None, None)
    return holdings.Restriction(rule, solved.answer.usd * (1.0 + extra_fraction), extra_fraction)


def _used(solved: SolvedPortfolio) -> list[CapacityOffer]:
    answer = solved.answer
    placed = {each.option.offer for each in answer.placements}
    return [
        offer
        for index, offer in enumerate(solved.problem.offers)
        if offer.name in placed
        or answer.served_per_s[index].max(initial=0.0) > 1e-6
        or answer.rented_unit_h[index].max(initial=0.0) > 1e-6
        or answer.paused_units[index].max(initial=0.0) > 1e-6
    ]


def year_scenarios(solved: SolvedPortfolio) -> tuple[holdings.YearScenario, ...]:
    """A busier year, a quieter one, dearer hours, late runs: this portfolio's leases against foresight."""
    leased = _leased(solved)
    problem = replace(pruned(solved.problem, leased), budget_usd=None, shortage_usd_per_request=None)
    years = {
        f"+{100 * (PEAK_FACTOR - 1):.0f} % traffic": _busier(problem, PEAK_FACTOR),
        f"{100 * (LULL_FACTOR - 1):+.0f} % traffic": _busier(problem, LULL_FACTOR),
        f"hours +{100 * (PRICE_FACTOR - 1):.0f} % dearer": _dearer(problem),
    }
    if problem.campaigns:
        years[f"runs {SLIP_WEEKS} weeks late"] = _late(problem)
    return tuple(_in_year(name, year, leased, solved) for name, year in years.items())


def _in_year(
    name: str, year: PortfolioProblem, leased: Mapping[str, Leased], solved: SolvedPortfolio
) -> holdings.YearScenario:
    """Commitments are made before the year is known, hours are rented when it is; both in whole units.

    What one who knew would have leased is never dearer than what was leased: the cheaper of the two stands.
    """
    best = _priced(year, None, solved)
    kept = best if best is not None and _is_held(best, year, leased) else _priced(year, leased, solved)
    if kept is None:
        return holdings.YearScenario(
            name, None, best.usd if best else None, None, _shortage(year, leased, solved)
        )
    low = kept if best is None else min(best, kept, key=lambda each: each.usd)
    gap = (low.usd - min(each.bound_usd for each in (best, low) if each)) / max(low.usd, 1e-9)
    return holdings.YearScenario(name, kept.usd, low.usd, kept.usd - low.usd, "", max(0.0, gap))


def _priced(
    year: PortfolioProblem, leased: Mapping[str, Leased] | None, solved: SolvedPortfolio
) -> PortfolioAnswer | None:
    """The year's best, or its best with what is leased; years of one traffic share weeks that are solved."""
    return solve(
        year, gap_fraction=YEAR_GAP, limit_s=LIMIT_S, effort=Effort.USUAL, leased=leased, known=solved.known
    )


def _leased(solved: SolvedPortfolio) -> dict[str, Leased]:
    """What the portfolio holds of every offer that is not rented by the hour."""
    return {
        offer.name: Leased(solved.answer.held_units[index], solved.answer.started_units[index])
        for index, offer in enumerate(solved.problem.offers)
        if not is_hourly(offer) and solved.answer.held_units[index].max(initial=0.0) > LEAST_UNITS
    }


def _is_held(answer: PortfolioAnswer, year: PortfolioProblem, leased: Mapping[str, Leased]) -> bool:
    """Whether an answer holds what is leased, and nothing else."""
    return all(
        np.array_equal(
            answer.held_units[index],
            leased[offer.name].units if offer.name in leased else np.zeros(year.week_count),
        )
        for index, offer in enumerate(year.offers)
    )


def _shortage(year: PortfolioProblem, leased: Mapping[str, Leased], solved: SolvedPortfolio) -> str:
    """When it is too little, and what would help."""
    elastic = replace(year, shortage_usd_per_request=100.0)
    answer = solve(elastic, limit_s=LIMIT_S, effort=Effort.QUICK, leased=leased)
    if answer is None:
        return "a run finds no machines: widen its window, or allow other terms"
    months: tuple[holdings.MonthDemand, ...] = calendar(
        replace(solved, case=replace(solved.case, problem=elastic), answer=answer)
    )
    short = [
        f"{month.label}: {month.shortage_count} accelerators" for month in months if month.shortage_count
    ]
    limited = [
        offer.name for offer in year.offers if offer.unit_limit is not None and offer.tenure != "owned"
    ]
    options = [f"more of {limited[0]}"] if limited else []
    return f"{', '.join(short)}; options: {', '.join([*options, 'another provider or term', 'a later run'])}"


def _busier(problem: PortfolioProblem, factor: float) -> PortfolioProblem:
    return replace(
        problem,
        demands=tuple(replace(each, rate_per_s=each.rate_per_s * factor) for each in problem.demands),
        batches=tuple(
            replace(each, requests_per_day=np.asarray(each.requests_per_day) * factor)
            for each in problem.batches
        ),
    )


def _dearer(problem: PortfolioProblem) -> PortfolioProblem:
    return replace(
        problem,
        offers=tuple(
            replace(offer, usd_per_unit_h=offer.usd_per_unit_h * PRICE_FACTOR) if is_hourly(offer) else offer
            for offer in problem.offers
        ),
    )


def _late(problem: PortfolioProblem) -> PortfolioProblem:
    """Dense runs begin and end later, as far as the plan's weeks allow."""
    moved = []
    for each in problem.campaigns:
        if each.dense and each.end_week + SLIP_WEEKS <= problem.week_count:
            each = replace(each, first_week=each.first_week + SLIP_WEEKS, end_week=each.end_week + SLIP_WEEKS)
        moved.append(each)
    return replace(problem, campaigns=tuple(moved))


def considered(problem: PortfolioProblem) -> int:
    """Offers that no other always beats."""
    return len(pruned(problem).offers)
