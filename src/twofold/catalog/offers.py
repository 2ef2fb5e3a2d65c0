"""Which offer a plan is priced with, and how old a price is."""

import datetime
from collections.abc import Collection

from twofold.catalog.catalog import Catalog
from twofold.catalog.names import canonical
from twofold.catalog.places import Fit, fit_of, scope_of
from twofold.catalog.types import Price

STALE_DAYS = 365.25
COMMUNITY = "community"


def best_price(
    catalog: Catalog,
    accelerator_name: str,
    terms: Collection[str],
    *,
    regions: Collection[str] = (),
    exclude_providers: Collection[str] = (),
) -> Price | None:
    """The cheapest list price per accelerator-hour under one of `terms`; None where nobody lists one.

    `community` offers (one's own machine, let to others) count only where `terms` names them. `regions` keeps
    these regions, and lists of providers that have one there; empty keeps all. A word of `exclude_providers`
    leaves out a provider, or the term of that name.
    """
    wanted = tuple(_known(catalog, region) for region in regions)
    excluded = {canonical(word) for word in exclude_providers}
    offers = [
        price
        for price in catalog.prices_for(accelerator_name)
        if price.term in terms
        and (not wanted or fit_of(catalog, price.provider, price.region, wanted) is not Fit.OUTSIDE)
        and not {canonical(price.provider), canonical(price.term)} & excluded
    ]
    # Equal prices: the youngest, then by name, so that the choice never depends on the order of rows.
    offers.sort(key=lambda price: (price.provider, price.instance, price.region, price.term))
    offers.sort(key=lambda price: price.date, reverse=True)
    return min(offers, key=lambda price: price.usd_per_accelerator_h, default=None)


def age_days(price: Price, today: datetime.date) -> float:
    """Days from the price's date to `today`; a month or a year counts from its middle, never below 0."""
    year, month, day = (int(part) for part in (price.date + "-00-00")[:10].split("-"))
    read_on = datetime.date(year, month or 7, day or (15 if month else 1))
    return float(max(0, (today - read_on).days))


def is_stale(price: Price, today: datetime.date) -> bool:
    """Older than twelve months."""
    return age_days(price, today) > STALE_DAYS


def _known(catalog: Catalog, region: str) -> str:
    """The word itself. Raises UnknownNameError where no table, price, country or family is called so."""
    scope = scope_of(catalog, (region,))
    if not (scope.places or scope.names or scope.countries):
        catalog.region(region)
    return region
