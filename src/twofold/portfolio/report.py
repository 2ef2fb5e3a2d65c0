"""A solved portfolio as the plan says it, with its bill line by line, each with its source."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from twofold.answer.context import Context
from twofold.contracts.results import holdings
from twofold.contracts.results.ledger import LineItem, UnitCost, cents, line_item
from twofold.core.display import format_usd
from twofold.core.errors import TwofoldError
from twofold.portfolio.check import paid_usd, violations
from twofold.portfolio.compare import fleet_options, restrictions, year_scenarios
from twofold.portfolio.problem import (
    DAYS_PER_WEEK,
    HOUR_S,
    WEEK_H,
    PortfolioAnswer,
    PortfolioProblem,
    unit_usd_per_h,
)
from twofold.portfolio.prune import pruned
from twofold.portfolio.solved import SolvedPortfolio
from twofold.portfolio.tables import (
    calendar,
    leases,
    materials,
    ranking,
    served_shares,
    term_splits,
    window_costs,
)

# Arrays of an answer that begin with its offers.
BY_OFFER = ("held_units", "started_units", "hourly_units", "served_per_s", "paused_units", "rented_unit_h")
LEAST_GAP = 0.001  # of other years, that is worth saying
HOSTED = "hosted APIs promise no latency: their answers are taken to be in time, which nothing shows"


def portfolio_of(solved: SolvedPortfolio, context: Context) -> holdings.Portfolio:
    """Everything that the plan says about its portfolio. The answer is checked first, by other code."""
    broken = violations(*_used_part(solved))
    if broken:
        raise TwofoldError(
            f"our bug, not yours: the portfolio that was found breaks what it must keep: {broken[0]}",
            hint="please report it, with the spec",
        )
    found = leases(solved)
    kinds = dict.fromkeys(lease.accelerator for lease in found)
    in_words = f"{len(found)} leases: {', '.join(kinds)}"
    scenarios = () if solved.conflict else year_scenarios(solved)
    paid = paid_usd(solved.problem, solved.answer)
    terms = context.spec.supply.economics
    # Tax is the same on every line, so it changes no choice: amounts are before it.
    with_tax = f"{format_usd(paid * (1 + terms.tax_fraction))} with {100 * terms.tax_fraction:.4g} %"
    taxed = (f"amounts are before tax: {with_tax}, as its bill has it",) if terms.tax_fraction else ()
    weeks = solved.problem.week_count
    owed_usd = sum(  # what commitments longer than the plan still cost after it
        float(solved.answer.held_units[index].max(initial=0.0))
        * max(0, offer.minimum_weeks - weeks)
        * WEEK_H
        * unit_usd_per_h(offer)
        for index, offer in enumerate(solved.problem.offers)
        if offer.tenure != "owned"
    )
    return holdings.Portfolio(
        start=str(solved.start or ""),
        weeks=weeks,
        usd=paid,
        bound_usd=min(solved.answer.bound_usd, paid),
        gap_fraction=solved.answer.gap_fraction,
        finished=solved.answer.finished,
        offers_count=len(solved.problem.offers),
        kept_count=len(pruned(solved.problem).offers),
        owed_usd=owed_usd,
        leases=found,
        served=served_shares(solved, context),
        calendar=calendar(solved),
        # What cannot all be met is no alternative to fleets that meet it, whatever the rest of it costs.
        options=() if solved.conflict else fleet_options(solved, in_words, terms.discount_fraction),
        materials=materials(solved, found),
        ranking=ranking(solved, found, context),
        windows=window_costs(solved),
        splits=term_splits(solved, found),
        restrictions=() if solved.conflict else restrictions(solved),
        scenarios=scenarios,
        conflict=solved.conflict,
        items=bill(solved, found, terms.tax_fraction),
        notes=(
            *taxed,
            *_notes(solved, found, scenarios),
        ),
    )


def _used_part(solved: SolvedPortfolio) -> tuple[PortfolioProblem, PortfolioAnswer]:
    """The problem and its answer without the offers that the answer leaves alone."""
    answer, problem = solved.answer, solved.problem
    placed = {each.option.offer for each in answer.placements}
    arrays: dict[str, Any] = {name: getattr(answer, name) for name in BY_OFFER}
    keep = [
        index
        for index, offer in enumerate(problem.offers)
        if offer.name in placed or any(each[index].any() for each in arrays.values())
    ]
    offers = tuple(problem.offers[index] for index in keep)
    names = {offer.name for offer in offers}
    rates = tuple(each for each in problem.rates if each.offer in names)
    kept = replace(answer, **{name: each[keep] for name, each in arrays.items()})
    return replace(problem, offers=offers, rates=rates), kept


def _notes(
    solved: SolvedPortfolio, found: tuple[holdings.Lease, ...], scenarios: tuple[holdings.YearScenario, ...]
) -> Iterator[str]:
    """What is left out, and how sure the rest is: other years are searched less than this one."""
    yield from (f"not in it: {text}" for text in solved.case.left_out)
    if not solved.answer.finished and solved.answer.gap_fraction > 0:
        share = f"{100 * solved.answer.gap_fraction:.1f} %"
        yield f"the search was cut short: at most {share} dearer than the best there is"
    if any(lease.term == "api" for lease in found):
        yield HOSTED
    gap = max((each.gap_fraction for each in scenarios), default=0.0)
    if gap >= LEAST_GAP:
        yield f"other years are priced in whole units too, each within {100 * gap:.1f} % of its cheapest"


NOT_RENTED = ("owned", "api")  # terms and tenures of leases without a line of rent
LEAST_USD = 0.005  # what rounds to nothing is no line


def bill(
    solved: SolvedPortfolio, found: tuple[holdings.Lease, ...], tax_fraction: float
) -> tuple[LineItem, ...]:
    """Every line of the plan's weeks, each with its offer's discount and the spec's tax on what is left."""
    offers = {offer.name: offer for offer in solved.problem.offers}
    items: list[LineItem] = []
    for lease in found:
        offer = offers[lease.offer]
        if offer.tenure in NOT_RENTED:
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
        if offer.support_fraction:
            source = offer.source if offer.source.startswith("quote") else "economics.csv support"
            items.append(
                line_item(
                    f"{lease.what}: support of {offer.provider}",
                    "support",
                    cents(rent.total_usd - rent.tax_usd),
                    "USD of rent",
                    UnitCost(offer.support_fraction, f"{offer.name}: {source}", offer.date),
                    tax_fraction=tax_fraction,
                )
            )
    return (*items, *_by_request(solved, tax_fraction), *_of_runs(solved, tax_fraction))


def _by_request(solved: SolvedPortfolio, tax_fraction: float) -> Iterator[LineItem]:
    """Egress of answers, and hosted APIs."""
    for index, offer in enumerate(solved.problem.offers):
        for number, work in enumerate(solved.problem.work_names):
            rate = solved.rate(offer, work)
            requests = float(solved.answer.served_per_s[index, number].sum()) * DAYS_PER_WEEK * HOUR_S
            if rate is None or requests * rate.usd_per_request < LEAST_USD:
                continue
            category, what, source = "egress", "answers out of", "assumed bytes per token"
            if offer.tenure == "api":
                category, what, source = "api", "requests to", offer.source
            yield line_item(
                f"{work}: {what} {offer.provider}",
                category,
                requests / 1e6,
                "million requests",
                UnitCost(rate.usd_per_request * 1e6, f"{offer.name}: {source}", offer.date),
                tax_fraction=tax_fraction,
            )


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
        if usd >= LEAST_USD
    ]
