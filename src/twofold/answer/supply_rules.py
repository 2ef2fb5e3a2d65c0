"""Where a spec may buy: only prices of authorised regions count, and of those that it asks."""

from collections.abc import Iterable, Sequence
from itertools import islice

from twofold.answer.context import Context
from twofold.answer.offers import (
    Offer,
    own_offers,
    owned_offer,
    priced,
    rented_offer,
    run_terms,
    serving_offers,
    shop_prices,
    training_offers,
)
from twofold.catalog.catalog import Catalog
from twofold.catalog.places import country_of, places_in
from twofold.catalog.regimes import find_regime, permits, refusal_reason
from twofold.catalog.types import Authorisation, Price, Regime
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.supply import Shop, Supply
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_seconds, format_si
from twofold.core.errors import InfeasibleError


def offered_where_asked(spec: Spec, catalog: Catalog) -> Catalog:
    """The tables that rules permit, once every run and service has something to run on in its regions.

    Raises InfeasibleError, with what is nearest and what to write instead, for one that has nothing there
    though there is something elsewhere, and as `authorised` does. Machines of your own need no offer.
    """
    catalog = authorised(spec, catalog)
    for entry in _entries(spec):
        asked = asked_regions(entry, spec.supply)
        if asked and not _has_some(entry, spec.supply, asked, catalog):
            elsewhere = _prices(entry, spec.supply, catalog)
            if elsewhere:
                raise _refusal(entry, spec.supply, asked, elsewhere, catalog)
    return catalog


def _entries(spec: Spec) -> tuple[TrainingRun | Service, ...]:
    return (*spec.training, *spec.services)


def asked_regions(entry: TrainingRun | Service, supply: Supply) -> tuple[str, ...]:
    """The regions that a service names, else those of the shop."""
    return (entry.regions if isinstance(entry, Service) else ()) or supply.shop.regions


def all_asked_regions(spec: Spec) -> tuple[str, ...]:
    """The regions that bind everything in a spec together; none where a run or a service may be anywhere."""
    asked = [asked_regions(entry, spec.supply) for entry in _entries(spec)]
    return tuple(dict.fromkeys(name for regions in asked for name in regions)) if all(asked) else ()


def _has_some(entry: TrainingRun | Service, supply: Supply, asked: tuple[str, ...], catalog: Catalog) -> bool:
    bound = entry.regions if isinstance(entry, Service) else ()  # your own machines, where they stand
    if entry.on:
        named = rented_offer(entry.on, catalog, supply, _terms(entry, supply), asked)
        return named.price is not None or owned_offer(entry.on, named, catalog, supply, bound) is not None
    return bool(own_offers(catalog, supply, bound) or _offers(entry, supply, catalog, asked))


def _terms(entry: TrainingRun | Service, supply: Supply) -> tuple[str, ...]:
    return supply.shop.terms if isinstance(entry, Service) else run_terms(supply.shop)


def _prices(entry: TrainingRun | Service, supply: Supply, catalog: Catalog) -> list[Price]:
    """What the same shop would offer in any region, the cheapest first."""
    if entry.on:
        terms = _terms(entry, supply)
        part = rented_offer(entry.on, catalog, _placed(supply, ()), terms).accelerator
        found = priced(catalog, part, supply.shop, terms, ())
        node = entry.on.node and catalog.node(entry.on.node).name
        found = [price for price in found if not node or price.instance == node] or found
    else:
        found = shop_prices(catalog, supply, training=not isinstance(entry, Service))
    return sorted(found, key=lambda price: (price.usd_per_accelerator_h, price.provider, price.region))


def _placed(supply: Supply, regions: tuple[str, ...]) -> Supply:
    return supply.model_copy(update={"shop": supply.shop.model_copy(update={"regions": regions})})


def _refusal(
    entry: TrainingRun | Service,
    supply: Supply,
    asked: tuple[str, ...],
    elsewhere: Sequence[Price],
    catalog: Catalog,
) -> InfeasibleError:
    """What is nearest to the regions asked, each place once at its cheapest."""

    def accepts(region: str) -> bool:
        return _has_some(entry, _placed(supply, (region,)), (region,), catalog)

    places = places_in(catalog, asked)
    cheapest: dict[str, Price] = {}
    for price in elsewhere:
        cheapest.setdefault(f"{price.provider}:{price.region}", price)
    ways = {at: _way_s(catalog, at, places) for at in cheapest}
    known = sorted((way_s, at) for at, way_s in ways.items() if way_s is not None)
    # What is said to be near must be taken when it is asked.
    taken = ((at, (way_s, cheapest[at])) for way_s, at in known if accepts(_written(at, catalog)))
    nearest = list(islice(taken, SHOWN))
    told = []
    for at, (way_s, price) in nearest:
        away = f", {format_seconds(way_s)} away" if way_s else ""
        where = f"{at.replace(':', ' ')} ({country_of(catalog, *at.split(':', 1))}{away})"
        told.append(f"{where} {_price_text(price)}")
    hint = "leave `regions` out, or write others"
    if nearest:
        at = nearest[0][0]
        country = country_of(catalog, *at.split(":", 1))
        wider = f", or its country, `regions: [{country}]`" if accepts(country) else ""
        users = "where users are goes into `users`, which binds no place"
        hint = f"write `regions: [{_written(at, catalog)}]`{wider}; {users}"
    cheap, words = elsewhere[0], ", ".join(asked)
    verb = "serve" if isinstance(entry, Service) else "train"
    return InfeasibleError(
        f"nothing that may be rented in {words} can {verb} `{entry.name}`",
        lines=(
            ("asked", f"regions: [{words}]; an offer counts only there, or on a list that covers it"),
            ("nearest", " · ".join(told) or "no place of an offer is known"),
            ("cheapest", f"{cheap.provider} {cheap.region} {_price_text(cheap)}"),
        ),
        hint=hint,
    )


def _way_s(catalog: Catalog, at: str, places: frozenset[str]) -> float | None:
    """The shortest round trip from a priced place to those asked; 0 in their country where none is known."""
    if at not in _known(catalog):
        asked = {country_of(catalog, *place.split(":")) for place in places}
        return 0.0 if country_of(catalog, *at.split(":", 1)) in asked else None
    return min((catalog.rtt_s(at, place) for place in places), default=0.0)


def _price_text(price: Price) -> str:
    usd = format_si(price.usd_per_accelerator_h, "USD/h")
    return f"{price.accelerator} at {usd} {price.term}"


def _written(at: str, catalog: Catalog) -> str:
    """A priced place as a spec names it: with its provider where the catalogue knows both together."""
    return at if at in _known(catalog) else at.partition(":")[2]


def _known(catalog: Catalog) -> frozenset[str]:
    return frozenset(f"{region.provider}:{region.name}" for region in catalog.regions())


OWN_SITES = frozenset({"", "onprem", "user"})  # providers of nodes that one buys
SHOWN_REGIONS = 6  # of each provider
SHOWN = 3
EVERYTHING = Shop(terms=("on_demand", "spot", "reserved_1y", "reserved_3y"))


def authorised(spec: Spec, catalog: Catalog) -> Catalog:
    """The tables that a spec may be planned with: of the prices, only those that its rules permit.

    Raises InfeasibleError, with what was refused and what would fit, where a run or a service is left without
    machines; machines of your own are always permitted.
    """
    if spec.compliance is None:
        return catalog
    regime = find_regime(catalog, spec.compliance.regime)
    narrow = catalog.restricted(permits(catalog, regime))
    for entry in _entries(spec):
        if _has_none(entry, spec.supply, narrow):
            raise _unauthorised(entry, spec.supply, catalog, narrow, regime)
    return narrow


def _has_none(entry: TrainingRun | Service, supply: Supply, narrow: Catalog) -> bool:
    """Whether an entry has no machines: a cloud's node that no authorised region rents, or an empty shop."""
    if entry.on:
        if entry.on.node is None or narrow.node(entry.on.node).provider in OWN_SITES:
            return False
        node = narrow.node(entry.on.node)
        return all(price.instance != node.name for price in narrow.prices_for(node.accelerator))
    return not supply.own and not _offers(entry, supply, narrow, asked_regions(entry, supply))


def _offers(
    entry: TrainingRun | Service, supply: Supply, catalog: Catalog, asked: tuple[str, ...]
) -> tuple[Offer, ...]:
    is_service = isinstance(entry, Service)
    found = serving_offers(catalog, supply, asked) if is_service else training_offers(catalog, supply)
    return found.offers


def _unauthorised(
    entry: TrainingRun | Service, supply: Supply, whole: Catalog, narrow: Catalog, regime: Regime
) -> InfeasibleError:
    """What was refused with the reason, and the cheapest that would fit."""
    rows = narrow.authorisations(regime.name)
    offers = _offers(entry, supply, whole, asked_regions(entry, supply))
    refused = [offer.price for offer in offers if offer.price]
    wide = supply.model_copy(update={"shop": EVERYTHING})
    fitting = [(offer, offer.price) for offer in _offers(entry, wide, narrow, ()) if offer.price]
    reasons = [
        f"{_named(price)}: {refusal_reason(price.provider.lower(), price.region.lower(), regime, rows)}"
        for price in refused[:SHOWN]
    ]
    closed = f"; closed regions without a public price: {places_in_words(rows)}" if rows else ""
    own = "machines of your own: `supply: {own: …}`, or `on:` with an accelerator"
    offered = [f"{offer.accelerator.name} at {_named(price)}" for offer, price in fitting[:SHOWN]]
    lines = (
        ("rule", f"{regime.name}: {len(narrow.prices())} of {len(whole.prices())} offers are authorised"),
        *(("refused", reason) for reason in reasons or ["every offer of this shop"]),
        ("would fit", " · ".join(offered) or f"{own}{closed}"),
    )
    verb = "serve" if isinstance(entry, Service) else "train"
    return InfeasibleError(
        f"no authorised machine can {verb} `{entry.name}` under {regime.name}",
        lines=lines,
        hint="widen `supply.shop`, or its `regions`" if offered else "write `supply: {own: …}`",
    )


def _named(price: Price) -> str:
    usd = format_si(price.usd_per_accelerator_h, "USD/h")
    return f"{price.provider} {price.region} {price.instance} ({usd}, {price.term})"


def may_host(provider: str, context: Context) -> bool:
    """Whether the spec's rules let a provider host the model: where it is authorised by the same name."""
    rules = context.spec.compliance
    if rules is None:
        return True
    regime = find_regime(context.catalog, rules.regime)
    held = {row.provider.lower() for row in context.catalog.authorisations(regime.name)}
    return regime.rented and provider.lower() in held


def places_in_words(rows: Iterable[Authorisation]) -> str:
    """`aws us-gov-west-1, us-gov-east-1 · azure usgovvirginia`: who would be authorised."""
    by_provider: dict[str, list[str]] = {}
    for row in rows:
        by_provider.setdefault(row.provider, []).append(row.region)
    return " · ".join(
        f"{provider} {', '.join(regions[:SHOWN_REGIONS])}{' …' if len(regions) > SHOWN_REGIONS else ''}"
        for provider, regions in by_provider.items()
    )
