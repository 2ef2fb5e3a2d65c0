"""The bill of a portfolio: rent and its discount, support, egress and storage, each with its source."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.contracts.results import Lease, LineItem, UnitCost, cents, line_item
from twofold.portfolio.solved import DAYS, HOUR_S, SolvedPortfolio

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
