"""Regions that a spec asks: a run or a service for which nothing is offered there is refused."""

from collections.abc import Sequence

from twofold.catalog import Catalog, Fit, Price, country_of, fit_of, places_in, scope_of
from twofold.contracts import Lease, Service, Spec, Supply, TrainingRun
from twofold.core import InfeasibleError, InputError, format_seconds, format_si
from twofold.plan.offers import (
    considered,
    own_offers,
    owned_offer,
    priced,
    rented_offer,
    run_terms,
    serving_offers,
    training_offers,
)

SHOWN = 3


def offered_where_asked(spec: Spec, catalog: Catalog) -> Catalog:
    """The catalogue, once every run and service has something to run on in its regions.

    Raises InfeasibleError, with what is nearest and what to write instead, for one that has nothing there
    though there is something elsewhere. Machines of your own need no offer.
    """
    entries: Sequence[TrainingRun | Service] = (*spec.training, *spec.services)
    for entry in entries:
        asked = asked_regions(entry, spec.supply)
        if not asked or _has_some(entry, spec.supply, asked, catalog):
            continue
        elsewhere = _prices(entry, spec.supply, catalog)
        if elsewhere:
            raise _refusal(entry, asked, elsewhere, catalog)
    return catalog


def asked_regions(entry: TrainingRun | Service, supply: Supply) -> tuple[str, ...]:
    """The regions that a service names, else those of the shop."""
    return (entry.regions if isinstance(entry, Service) else ()) or supply.shop.regions


def all_asked_regions(spec: Spec) -> tuple[str, ...]:
    """The regions that bind everything in a spec together; none where a run or a service may be anywhere."""
    entries: Sequence[TrainingRun | Service] = (*spec.training, *spec.services)
    asked = [asked_regions(entry, spec.supply) for entry in entries]
    return tuple(dict.fromkeys(name for regions in asked for name in regions)) if all(asked) else ()


def wider_notes(leases: Sequence[Lease], spec: Spec, catalog: Catalog) -> tuple[str, ...]:
    """Leases at prices of lists that cover the regions asked without naming them."""
    entries: Sequence[TrainingRun | Service] = (*spec.training, *spec.services)
    asked = tuple(dict.fromkeys(name for each in entries for name in asked_regions(each, spec.supply)))
    found = {
        lease.offer: f"says only `{lease.region}`" if lease.region else "says no region"
        for lease in leases
        if asked
        and lease.term not in ("owned", "api")
        and fit_of(catalog, lease.provider, lease.region, asked) is Fit.WIDER
    }
    return tuple(
        f"the price of {offer} {says}: ask whether it holds in {', '.join(asked)}"
        for offer, says in found.items()
    )


def _has_some(entry: TrainingRun | Service, supply: Supply, asked: tuple[str, ...], catalog: Catalog) -> bool:
    bound = entry.regions if isinstance(entry, Service) else ()  # your own machines, where they stand
    if entry.on:
        named = rented_offer(entry.on, catalog, supply, _terms(entry, supply), asked)
        return named.price is not None or owned_offer(entry.on, named, catalog, supply, bound) is not None
    if own_offers(catalog, supply, bound):
        return True
    if isinstance(entry, Service):
        return bool(serving_offers(catalog, supply, asked).offers)
    return bool(training_offers(catalog, supply).offers)


def _terms(entry: TrainingRun | Service, supply: Supply) -> tuple[str, ...]:
    return supply.shop.terms if isinstance(entry, Service) else run_terms(supply.shop)


def _prices(entry: TrainingRun | Service, supply: Supply, catalog: Catalog) -> list[Price]:
    """What the same shop would offer in any region, the cheapest first."""
    terms = _terms(entry, supply)
    if entry.on:
        anywhere = supply.model_copy(update={"shop": supply.shop.model_copy(update={"regions": ()})})
        part = rented_offer(entry.on, catalog, anywhere, terms).accelerator
        found = priced(catalog, part, supply.shop, terms, ())
        node = entry.on.node and catalog.node(entry.on.node).name
        found = [price for price in found if not node or price.instance == node] or found
    else:
        parts = considered(catalog, supply.shop, [])
        found = [price for part in parts for price in priced(catalog, part, supply.shop, terms, ())]
    return sorted(found, key=lambda price: (price.usd_per_accelerator_h, price.provider, price.region))


def _refusal(
    entry: TrainingRun | Service, asked: tuple[str, ...], elsewhere: Sequence[Price], catalog: Catalog
) -> InfeasibleError:
    """What is nearest to the regions asked, each place once at its cheapest."""
    places = places_in(catalog, scope_of(catalog, asked))
    found: dict[str, tuple[float, Price]] = {}
    for price in elsewhere:
        at = f"{price.provider}:{price.region}"
        if at not in found and (way_s := _way_s(catalog, at, places)) is not None:
            found[at] = (way_s, price)
    nearest = sorted(found.items(), key=lambda item: (item[1][0], item[0]))[:SHOWN]
    told = [_told(at, way_s, price, catalog) for at, (way_s, price) in nearest]
    cheap = elsewhere[0]
    verb = "serve" if isinstance(entry, Service) else "train"
    words = ", ".join(asked)
    return InfeasibleError(
        f"nothing that may be rented in {words} can {verb} `{entry.name}`",
        lines=(
            ("asked", f"regions: [{words}]; an offer counts only there, or on a list that covers it"),
            ("nearest", " · ".join(told) or "no place of an offer is known"),
            ("cheapest", f"{cheap.provider} {cheap.region} {_price_text(cheap)}"),
        ),
        hint=_hint(nearest, asked, catalog),
    )


def _way_s(catalog: Catalog, at: str, places: frozenset[str]) -> float | None:
    """The shortest round trip from a priced place to those asked; 0 in their country where none is known."""
    provider, _, name = at.partition(":")
    try:
        catalog.region(at)
    except InputError:
        asked = {country_of(catalog, *place.split(":")) for place in places}
        return 0.0 if country_of(catalog, provider, name) in asked else None
    return min((catalog.rtt_s(at, place) for place in places), default=0.0)


def _told(at: str, way_s: float, price: Price, catalog: Catalog) -> str:
    country = country_of(catalog, *at.split(":", 1))
    way = f", {format_seconds(way_s)} away" if way_s else ""
    return f"{at.replace(':', ' ')} ({country}{way}) {_price_text(price)}"


def _price_text(price: Price) -> str:
    usd = format_si(price.usd_per_accelerator_h, "USD/h")
    return f"{price.accelerator} at {usd} {price.term}"


def _hint(nearest: Sequence[tuple[str, object]], asked: tuple[str, ...], catalog: Catalog) -> str:
    if not nearest:
        return "leave `regions` out, or write others"
    provider, _, name = nearest[0][0].partition(":")
    country = country_of(catalog, provider, name)
    known = {f"{region.provider}:{region.name}" for region in catalog.regions()}
    at = nearest[0][0] if nearest[0][0] in known else name
    wider = f", or its country, `regions: [{country}]`" if country.lower() not in asked else ""
    return f"write `regions: [{at}]`{wider}; where users are goes into `users`, which binds no place"
