"""Offers from list prices, own machines and hosted APIs: what a unit costs and how long it binds.

What price lists do not say is assumed here, each with its reason and source letter a.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from types import MappingProxyType

from twofold.catalog.capacity import CONTRACT, supplied
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import economic_by_provider
from twofold.catalog.types import Observation, Price
from twofold.portfolio.problem import CapacityOffer, Tenure

YEAR_WEEKS = 52
TERM_WEEKS = MappingProxyType(
    {"on_demand": 0, "spot": 0, "community": 0, "lease": 1, "reserved_1y": YEAR_WEEKS, "reserved_3y": 156}
    | {CONTRACT: 0}  # of a run, for as long as it takes; see `held_contract`
)
# a: the middle bucket of the interruption frequencies that one cloud publishes, for those that publish none.
INTERRUPTED_PER_MONTH = 0.125
MONTH_H = 730.0
# a: until a unit that was taken away is back or replaced, and work since the last checkpoint is repeated.
RECOVERY_H = 1.0
MAY_VANISH = ("spot", "community")  # terms of machines that are taken back


def offer_of_price(
    price: Price, catalog: Catalog, *, virtualised: bool, interrupted_per_month: float | None = None
) -> CapacityOffer:
    """One row of a price list: its instance is the unit, and there are as many as can be had of it."""
    can, size = supplied(price, catalog), price.accelerator_count
    return CapacityOffer(
        name=offer_name(price.provider, price.instance, price.region, price.term),
        provider=price.provider,
        instance=price.instance,
        accelerator=price.accelerator,
        accelerator_count=price.accelerator_count,
        region=place_of(price.provider, price.region, catalog),
        term=price.term,
        tenure=tenure_of(price.term, virtualised),
        usd_per_unit_h=price.usd_per_accelerator_h * price.accelerator_count,
        minimum_weeks=TERM_WEEKS[price.term],
        interruptions_per_unit_h=interruptions_per_h(price.term, interrupted_per_month),
        egress_usd_per_tb=economic_by_provider("egress from", price.provider, catalog).value,
        support_fraction=economic_by_provider("support by", price.provider, catalog).value,
        source=f"prices: {price.source}",
        date=price.date,
        stated_region=stated_region(price.region),
        unit_limit=int(can.most_count) // size if isfinite(can.most_count) else None,
        job_unit_limit=max(1, int(can.gang_count) // size) if isfinite(can.gang_count) else None,
    )


def price_of(offer: CapacityOffer, region: str) -> Price:
    """The price that an offer is leased at; `region` as its list names it."""
    return Price(
        provider=offer.provider,
        instance=offer.instance,
        accelerator=offer.accelerator,
        accelerator_count=offer.accelerator_count,
        region=region,
        term=offer.term,
        usd_per_h=offer.usd_per_unit_h,
        usd_per_accelerator_h=offer.usd_per_unit_h / offer.accelerator_count,
        date=offer.date,
        date_precision="",
        source=offer.source,
    )


def held_contract(offer: CapacityOffer) -> CapacityOffer:
    """A contract as services take it: for the year, since what is agreed on is not given back at night."""
    return replace(offer, name=f"{offer.name} for a year", minimum_weeks=YEAR_WEEKS)


def serves(offer: CapacityOffer) -> bool:
    """Whether it may answer somebody who waits: nobody takes it away, and it is not for a run alone."""
    return offer.term not in MAY_VANISH and (offer.term != CONTRACT or offer.minimum_weeks > 0)


def own_offer(
    name: str, accelerator: str, accelerator_count: int, units: int, region: str, catalog: Catalog
) -> CapacityOffer:
    """Machines that are paid for already: no rent, and no more of them than there are."""
    return CapacityOffer(
        name=f"own {name}",
        provider="own",
        instance=name,
        accelerator=accelerator,
        accelerator_count=accelerator_count,
        region=place_of("", region, catalog),
        term="owned",
        tenure="owned",
        usd_per_unit_h=0.0,
        unit_limit=units,
        source="spec supply.own",
    )


def kept_fraction(offer: CapacityOffer) -> float:
    """The part of a unit's hours in which it works: interruptions cost their recovery.

    Formula  1 / (1 + interruptions per hour × hours until work goes on)
    """
    return 1.0 / (1.0 + offer.interruptions_per_unit_h * RECOVERY_H)


def offer_name(provider: str, instance: str, region: str, term: str) -> str:
    """How an offer is called: provider, instance, region and term."""
    return " ".join(filter(None, (provider, instance, stated_region(region), term)))


def stated_region(region: str) -> str:
    """The region that a price names; "" where it is of all."""
    return "" if region.lower() == "all" else region


def place_of(provider: str, region: str, catalog: Catalog) -> str:
    """`provider:region` where the catalogue knows the place; "" where the price does not say it."""
    known = {f"{each.provider}:{each.name}": each for each in catalog.regions()}
    for name in (region, f"{provider}:{region}"):
        if name in known:
            return name
    return min((name for name, each in known.items() if each.name == region), default="")


def interruptions_per_h(term: str, per_month: float | None = None) -> float:
    """How often the provider takes a unit away; `per_month` None: the usual frequency."""
    if term not in MAY_VANISH:
        return 0.0
    return (INTERRUPTED_PER_MONTH if per_month is None else per_month) / MONTH_H


def interruptions_by_place(observations: Iterable[Observation]) -> dict[tuple[str, str, str], float]:
    """(provider, region, instance) → share of units interrupted in a month, as clouds publish it."""
    found = {}
    for row in observations:
        if row.metric == "monthly interruption frequency":
            provider, _, region = row.system.partition(":")
            found[provider.removesuffix("-spot"), region, row.cause] = row.value / 100.0
    return found


def tenure_of(term: str, virtualised: bool) -> Tenure:
    """How units are held, by the term of their price."""
    if term == "community":
        return "community"
    return "virtual" if virtualised else "bare_metal"
