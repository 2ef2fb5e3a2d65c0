"""A solved portfolio as the plan says it, with its bill line by line, each with its source."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twofold.answer import Context, wider_notes
from twofold.contracts.results import Lease, LineItem, Portfolio, UnitCost, cents, holdings, line_item
from twofold.core import TwofoldError, format_usd
from twofold.portfolio.check import paid_usd, violations
from twofold.portfolio.compare import considered, fleet_options, restrictions, year_scenarios
from twofold.portfolio.problem import PortfolioAnswer, PortfolioProblem, unit_usd_per_h
from twofold.portfolio.solved import DAYS, HOUR_S, WEEK_H, SolvedPortfolio
from twofold.portfolio.tables import (
    calendar,
    leases,
    materials,
    ranking,
    served_shares,
    term_splits,
    trained_shares,
    window_costs,
)

LEAST_GAP = 0.001  # of other years, that is worth saying
HOSTED = "hosted interfaces promise no latency: their answers are taken to be in time, which nothing shows"
OTHER_MACHINES = (
    "above, each half is planned alone and held for its peak; here machines may be others, shared by both, "
    "and those by the hour follow the traffic"
)


def portfolio_of(solved: SolvedPortfolio, context: Context) -> Portfolio:
    """Everything that the plan says about its portfolio. The answer is checked first, by other code."""
    broken = violations(*_used_part(solved))
    if broken:
        raise TwofoldError(
            f"our bug, not yours: the portfolio that was found breaks what it must keep: {broken[0]}",
            hint="please report it, with the spec",
        )
    found = leases(solved)
    scenarios = () if solved.conflict else year_scenarios(solved)
    paid = paid_usd(solved.problem, solved.answer)
    terms = context.spec.supply.economics
    return Portfolio(
        start=str(solved.start or ""),
        weeks=solved.problem.week_count,
        usd=paid,
        bound_usd=min(solved.answer.bound_usd, paid),
        gap_fraction=solved.answer.gap_fraction,
        finished=solved.answer.finished,
        offers_count=len(solved.problem.offers),
        kept_count=considered(solved.problem),
        owed_usd=_owed(solved),
        leases=found,
        served=served_shares(solved, context),
        calendar=calendar(solved),
        options=fleet_options(solved, _in_words(found), terms.discount_fraction),
        materials=materials(solved, found),
        ranking=ranking(solved, context),
        windows=window_costs(solved),
        splits=term_splits(solved, found),
        restrictions=() if solved.conflict else restrictions(solved),
        scenarios=scenarios,
        conflict=solved.conflict,
        items=bill(solved, found, terms.tax_fraction),
        notes=(
            *_tax_note(paid, terms.tax_fraction),
            *wider_notes(found, context.spec, context.catalog),
            *_notes(solved, found),
            *_year_note(scenarios),
        ),
        rounds=solved.rounds,
        rehearsed=solved.rehearsed,
        trained=trained_shares(solved),
    )


def _used_part(solved: SolvedPortfolio) -> tuple[PortfolioProblem, PortfolioAnswer]:
    """The problem and its answer without the offers that the answer leaves alone."""
    answer, problem = solved.answer, solved.problem
    placed = {each.option.offer for each in answer.placements}
    arrays = (
        answer.held_units,
        answer.hourly_units,
        answer.served_per_s,
        answer.paused_units,
        answer.rented_unit_h,
    )
    keep = [
        index
        for index, offer in enumerate(problem.offers)
        if offer.name in placed or any(each[index].max(initial=0.0) > 0 for each in arrays)
    ]
    offers = tuple(problem.offers[index] for index in keep)
    names = {offer.name for offer in offers}
    return (
        replace(problem, offers=offers, rates=tuple(each for each in problem.rates if each.offer in names)),
        replace(
            answer,
            held_units=answer.held_units[keep],
            started_units=answer.started_units[keep],
            hourly_units=answer.hourly_units[keep],
            served_per_s=answer.served_per_s[keep],
            paused_units=answer.paused_units[keep],
            rented_unit_h=answer.rented_unit_h[keep],
        ),
    )


def _in_words(found: tuple[Lease, ...]) -> str:
    kinds = dict.fromkeys(lease.accelerator for lease in found)
    return f"{len(found)} leases: {', '.join(kinds)}"


def _owed(solved: SolvedPortfolio) -> float:
    """What commitments longer than the plan still cost after it."""
    weeks = solved.problem.week_count
    return sum(
        float(solved.answer.held_units[index].max(initial=0.0))
        * max(0, offer.minimum_weeks - weeks)
        * WEEK_H
        * unit_usd_per_h(offer)
        for index, offer in enumerate(solved.problem.offers)
        if offer.tenure != "owned"
    )


def _tax_note(paid: float, tax_fraction: float) -> tuple[str, ...]:
    """Tax is the same on every line, so it changes no choice: amounts are before it."""
    if not tax_fraction:
        return ()
    share = f"{100 * tax_fraction:.4g} %"
    return (
        f"amounts are before tax: {format_usd(paid * (1 + tax_fraction))} with {share}, as its bill has it",
    )


def _year_note(scenarios: tuple[holdings.YearScenario, ...]) -> tuple[str, ...]:
    """How sure a regret is: other years are searched less than this one."""
    gap = max((each.gap_fraction for each in scenarios), default=0.0)
    if gap < LEAST_GAP:
        return ()
    return (f"other years are priced in whole units too, each within {100 * gap:.1f} % of its cheapest",)


def _notes(solved: SolvedPortfolio, found: tuple[Lease, ...]) -> tuple[str, ...]:
    notes = [f"not in it: {text}" for text in solved.case.left_out]
    if not solved.answer.finished and solved.answer.gap_fraction > 0:
        share = f"{100 * solved.answer.gap_fraction:.1f} %"
        notes.append(f"the search was cut short: at most {share} dearer than the best there is")
    if any(lease.term == "api" for lease in found):
        notes.append(HOSTED)
    return (*notes, OTHER_MACHINES)


NOT_RENTED = ("owned", "api")  # terms of leases without a line of rent


@dataclass(frozen=True, slots=True)
class LeaseLines:
    """What one lease is billed."""

    lease: Lease
    rent: LineItem
    support: LineItem | None


def by_lease(
    leases: Sequence[Lease], lines: Sequence[LineItem]
) -> tuple[tuple[LeaseLines, ...], tuple[LineItem, ...]]:
    """The lines of each rented lease, with which `bill` begins in the order of the leases; and all others."""
    found, at = [], 0
    for lease in leases:
        if lease.term in NOT_RENTED:
            continue
        assert at < len(lines), lease
        rent, *others = lines[at : at + 2]
        assert rent.category == "rent" and rent.what.startswith(f"{lease.what}: "), (lease, rent)
        support = others[0] if others and others[0].category == "support" else None
        found.append(LeaseLines(lease, rent, support))
        at += 2 if support else 1
    return tuple(found), tuple(lines[at:])


def bill(solved: SolvedPortfolio, found: tuple[Lease, ...], tax_fraction: float) -> tuple[LineItem, ...]:
    """Every line of the plan's weeks, each with its offer's discount and the spec's tax on what is left."""
    offers = {offer.name: offer for offer in solved.problem.offers}
    items: list[LineItem] = []
    for lease in found:
        offer = offers[lease.offer]
        if offer.tenure in ("owned", "api"):
            continue
        sized = f"{lease.units} × {lease.accelerators_per_unit} {lease.accelerator}"
        rent = line_item(
            f"{lease.what}: {sized}, {offer.term}",
            "rent",
            lease.unit_h,
            "unit-h",
            UnitCost(offer.usd_per_unit_h, f"{offer.name} ({offer.source})", offer.date),
            discount_fraction=offer.discount_fraction,
            tax_fraction=tax_fraction,
        )
        items.append(rent)
        quoted = offer.source.startswith("quote")
        if offer.support_fraction:
            items.append(
                line_item(
                    f"{lease.what}: support of {offer.provider}",
                    "support",
                    cents(rent.total_usd - rent.tax_usd),
                    "USD of rent",
                    UnitCost(
                        offer.support_fraction,
                        f"{offer.name}: {offer.source if quoted else 'economics.csv support'}",
                        offer.date,
                    ),
                    tax_fraction=tax_fraction,
                )
            )
    return (*items, *_by_request(solved, tax_fraction), *_of_runs(solved, tax_fraction))


def _by_request(solved: SolvedPortfolio, tax_fraction: float) -> list[LineItem]:
    """Egress of answers, and hosted APIs."""
    items = []
    for index, offer in enumerate(solved.problem.offers):
        for number, work in enumerate(solved.problem.work_names):
            rate = solved.rate(offer, work)
            requests = float(solved.answer.served_per_s[index, number].sum()) * DAYS * HOUR_S
            if rate is None or requests * rate.usd_per_request < 0.005:
                continue
            hosted = offer.tenure == "api"
            items.append(
                line_item(
                    f"{work}: {'requests to' if hosted else 'answers out of'} {offer.provider}",
                    "api" if hosted else "egress",
                    requests / 1e6,
                    "million requests",
                    UnitCost(
                        rate.usd_per_request * 1e6,
                        f"{offer.name}: {offer.source if hosted else 'assumed bytes per token'}",
                        offer.date,
                    ),
                    tax_fraction=tax_fraction,
                )
            )
    return items


def _of_runs(solved: SolvedPortfolio, tax_fraction: float) -> list[LineItem]:
    """Weights moved; checkpoints are kept as those of the plan's fleets are, which the bill counts."""
    extras: dict[tuple[str, str], float] = defaultdict(float)
    for placed in solved.answer.placements:
        extras[placed.campaign, placed.option.offer] += placed.option.extra_usd
    for part in solved.answer.portions:
        extras[part.campaign, part.option.offer] += part.done_fraction * part.option.extra_usd
    return [
        line_item(
            f"{name}: weights moved",
            "egress",
            1.0,
            "run",
            UnitCost(usd, f"{offer}: economics.csv egress"),
            tax_fraction=tax_fraction,
        )
        for (name, offer), usd in extras.items()
        if usd >= 0.005
    ]
