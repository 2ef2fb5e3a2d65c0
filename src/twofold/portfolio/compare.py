"""What a portfolio is held against: honest alternatives, rules that could bind it, other years."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf

import numpy as np

from twofold.contracts.results import holdings
from twofold.portfolio.alternatives import break_even_ratio, one_cluster, two_fleets
from twofold.portfolio.problem import WEEK_H, CapacityOffer, PortfolioAnswer, PortfolioProblem, is_hourly
from twofold.portfolio.prune import part_of, pruned
from twofold.portfolio.solve import Effort, Leased, bound_usd, solve
from twofold.portfolio.solved import LEAST_UNITS, NOT_PROMISED, SolvedPortfolio
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
    rows = [holdings.FleetOption("portfolio", what, paid, _slo(solved), ends, 0.0, None)]
    for name, fleet in (("one cluster", one_cluster(problem)), ("dedicated fleets", apart)):
        if fleet is None:
            continue
        weeks = "1 week" if fleet.short_weeks == 1 else f"{fleet.short_weeks} weeks"
        missed = f"misses in {weeks} of training" if fleet.short_weeks else "met"
        usd = fleet.usd * (1.0 - discount_fraction)
        crossing = break_even_ratio(fleet, apart) if apart and fleet is not apart else None
        rows.append(
            holdings.FleetOption(
                name,
                f"{fleet.what}, all year at list price{less}",
                usd,
                missed if problem.demands else "–",
                _kept(fleet.missed, solved),
                1.0 - paid / usd if usd else 0.0,
                crossing,
            )
        )
    return tuple(rows)


def _slo(solved: SolvedPortfolio) -> str:
    """`met`, or the classes that are short of machines and those of hosted APIs: these promise none."""
    answer, problem = solved.answer, solved.problem
    short = [
        demand.name
        for number, demand in enumerate(problem.demands)
        if answer.shortage_per_s[number].max(initial=0.0) > LEAST_UNITS
    ]
    api = [index for index, offer in enumerate(problem.offers) if offer.tenure == "api"]
    hosted = [
        work
        for number, work in enumerate(problem.work_names)
        if answer.served_per_s[api, number].max(initial=0.0) > LEAST_UNITS
    ]
    parts = [
        f"{what} {', '.join(names)}" for what, names in (("misses", short), (NOT_PROMISED, hosted)) if names
    ]
    return "; ".join(parts) or ("met" if problem.demands else "–")


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


def restrictions(solved: SolvedPortfolio) -> tuple[holdings.Restriction, ...]:
    """What one platform, or one provider, would cost; nothing where the portfolio has no more anyway.

    Both in whole units, as they are leased: in fractions of them one kind often costs what several do.
    """
    answer, problem = solved.answer, solved.problem
    placed = {each.option.offer for each in answer.placements}
    arrays = (answer.served_per_s, answer.rented_unit_h, answer.paused_units)
    offers = [
        offer
        for index, offer in enumerate(problem.offers)
        if offer.name in placed or any(each[index].max(initial=0.0) > LEAST_UNITS for each in arrays)
    ]
    found: dict[str, float | None] = {}  # what all costs under each rule
    if problem.platform_limit is not None:
        found["any number of platforms"] = _whole_usd(replace(problem, platform_limit=None), solved)
    elif len({offer.accelerator for offer in offers}) > 1:
        by_platform = pruned(replace(problem, platform_limit=1))
        found["one platform"] = _only_one(by_platform, lambda offer: offer.accelerator, solved)
    if len({offer.provider for offer in offers}) > 1:
        by_provider = pruned(replace(problem, provider_limit=1))
        found["one provider"] = _only_one(by_provider, lambda offer: offer.provider, solved)
    return tuple(
        holdings.Restriction(rule, usd, None if usd is None else usd / answer.usd - 1.0)
        for rule, usd in found.items()
    )


def _only_one(
    problem: PortfolioProblem, kind_of: Callable[[CapacityOffer], str], solved: SolvedPortfolio
) -> float | None:
    """What the best kind of offers alone costs; kinds that cannot beat it, even in fractions, are not solved.

    The problem's offers were only compared with others of their kind. Without a rule nothing costs more, so
    that what is found to cost less than the portfolio, within its gap, costs as much.
    """
    open_problem = replace(problem, platform_limit=None, provider_limit=None)
    parts = [
        part_of(open_problem, {each.name for each in problem.offers if kind_of(each) == kind})
        for kind in sorted({kind_of(offer) for offer in problem.offers})
    ]
    bounds = [(bound, place) for place, part in enumerate(parts) if (bound := bound_usd(part)) is not None]
    best: float | None = None
    for bound, place in sorted(bounds):
        if best is not None and bound >= best:
            break
        usd = _whole_usd(parts[place], solved)
        best = usd if best is None or (usd is not None and usd < best) else best
    return None if best is None else max(best, solved.answer.usd)


def _whole_usd(problem: PortfolioProblem, solved: SolvedPortfolio) -> float | None:
    """What a problem costs in whole units, with the effort of the portfolio itself."""
    answer = solve(problem, limit_s=LIMIT_S, effort=Effort.USUAL, known=solved.known)
    return None if answer is None else answer.usd


def year_scenarios(solved: SolvedPortfolio) -> tuple[holdings.YearScenario, ...]:
    """A busier year, a quieter one, dearer hours, late runs: this portfolio's leases against foresight."""
    leased = {  # what the portfolio holds of every offer that is not rented by the hour
        offer.name: Leased(solved.answer.held_units[index], solved.answer.started_units[index])
        for index, offer in enumerate(solved.problem.offers)
        if not is_hourly(offer) and solved.answer.held_units[index].max(initial=0.0) > LEAST_UNITS
    }
    problem = replace(pruned(solved.problem, leased), shortage_usd_per_request=None)
    dearer = tuple(
        replace(offer, usd_per_unit_h=offer.usd_per_unit_h * PRICE_FACTOR) if is_hourly(offer) else offer
        for offer in problem.offers
    )
    years = {
        f"+{100 * (PEAK_FACTOR - 1):.0f} % traffic": _busier(problem, PEAK_FACTOR),
        f"{100 * (LULL_FACTOR - 1):+.0f} % traffic": _busier(problem, LULL_FACTOR),
        f"hours +{100 * (PRICE_FACTOR - 1):.0f} % dearer": replace(problem, offers=dearer),
    }
    if problem.campaigns:
        moved = [  # dense runs begin and end later, as far as the plan's weeks allow
            replace(each, first_week=each.first_week + SLIP_WEEKS, end_week=each.end_week + SLIP_WEEKS)
            if each.dense and each.end_week + SLIP_WEEKS <= problem.week_count
            else each
            for each in problem.campaigns
        ]
        years[f"runs {SLIP_WEEKS} weeks late"] = replace(problem, campaigns=tuple(moved))
    return tuple(_in_year(name, year, leased, solved) for name, year in years.items())


def _busier(problem: PortfolioProblem, factor: float) -> PortfolioProblem:
    return replace(
        problem,
        demands=tuple(replace(each, rate_per_s=each.rate_per_s * factor) for each in problem.demands),
        batches=tuple(
            replace(each, requests_per_day=each.requests_per_day * factor) for each in problem.batches
        ),
    )


def _in_year(
    name: str, year: PortfolioProblem, leased: Mapping[str, Leased], solved: SolvedPortfolio
) -> holdings.YearScenario:
    """Commitments are made before the year is known, hours are rented when it is; both in whole units.

    What one who knew would have leased is never dearer than what was leased: the cheaper of the two stands.
    Years of one traffic share weeks that are solved.
    """
    priced = partial(
        solve, year, gap_fraction=YEAR_GAP, limit_s=LIMIT_S, effort=Effort.USUAL, known=solved.known
    )
    kept = best = priced()
    if best is None or not all(
        np.array_equal(
            best.held_units[index],
            leased[offer.name].units if offer.name in leased else np.zeros(year.week_count),
        )
        for index, offer in enumerate(year.offers)
    ):
        kept = priced(leased=leased)  # it holds something else
    if kept is None:
        return holdings.YearScenario(
            name, None, best.usd if best else None, None, _shortage(year, leased, solved)
        )
    low = kept if best is None else min(best, kept, key=lambda each: each.usd)
    gap = (low.usd - min(each.bound_usd for each in (best, low) if each)) / max(low.usd, 1e-9)
    return holdings.YearScenario(name, kept.usd, low.usd, kept.usd - low.usd, "", max(0.0, gap))


def _shortage(year: PortfolioProblem, leased: Mapping[str, Leased], solved: SolvedPortfolio) -> str:
    """When it is too little, and what would help."""
    elastic = replace(year, shortage_usd_per_request=100.0)
    answer = solve(elastic, limit_s=LIMIT_S, effort=Effort.QUICK, leased=leased)
    if answer is None:
        return "a run finds no machines: widen its window, or allow other terms"
    months = calendar(replace(solved, case=replace(solved.case, problem=elastic), answer=answer))
    short = [
        f"{month.label}: {month.shortage_count} accelerators" for month in months if month.shortage_count
    ]
    limited = (each.name for each in year.offers if each.unit_limit is not None and each.tenure != "owned")
    options = [f"more of {name}" for name in islice(limited, 1)]
    return f"{', '.join(short)}; options: {', '.join([*options, 'another provider or term', 'a later run'])}"
