"""Rules on supply: only the prices of authorised regions count, and an empty shop is refused early."""

from collections.abc import Sequence

from twofold.answer.context import Context
from twofold.answer.offers import Offer, serving_offers, training_offers
from twofold.catalog import Catalog, Price, Regime
from twofold.contracts.spec import Service, Shop, Spec, Supply, TrainingRun
from twofold.core import InfeasibleError, format_si
from twofold.facility import find_regime, permits, places_in_words, refusal_reason

OWN_SITES = frozenset({"", "onprem", "user"})  # providers of nodes that one buys
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
    entries: Sequence[TrainingRun | Service] = (*spec.training, *spec.services)
    for entry in entries:
        if _has_none(entry, spec.supply, narrow):
            raise _refusal(entry, spec.supply, catalog, narrow, regime)
    return narrow


def _has_none(entry: TrainingRun | Service, supply: Supply, narrow: Catalog) -> bool:
    """Whether an entry has no machines: a cloud's node that no authorised region rents, or an empty shop."""
    if entry.on:
        if entry.on.node is None or narrow.node(entry.on.node).provider in OWN_SITES:
            return False
        node = narrow.node(entry.on.node)
        return all(price.instance != node.name for price in narrow.prices_for(node.accelerator))
    return not supply.own and not _offers(entry, supply, narrow)


def _offers(entry: TrainingRun | Service, supply: Supply, catalog: Catalog) -> tuple[Offer, ...]:
    if isinstance(entry, Service):
        return serving_offers(catalog, supply, entry.regions or supply.shop.regions).offers
    return training_offers(catalog, supply).offers


def _refusal(
    entry: TrainingRun | Service, supply: Supply, whole: Catalog, narrow: Catalog, regime: Regime
) -> InfeasibleError:
    """What was refused with the reason, and the cheapest that would fit."""
    rows = narrow.authorisations(regime.name)
    refused = [offer.price for offer in _offers(entry, supply, whole) if offer.price]
    wide = supply.model_copy(update={"shop": EVERYTHING})
    anywhere = entry.model_copy(update={"regions": ()}) if isinstance(entry, Service) else entry
    fitting = [offer for offer in _offers(anywhere, wide, narrow) if offer.price]
    reasons = [
        f"{_named(price)}: {refusal_reason(price.provider.lower(), price.region.lower(), regime, rows)}"
        for price in refused[:SHOWN]
    ]
    closed = f"; closed regions without a public price: {places_in_words(rows)}" if rows else ""
    own = "machines of your own: `supply: {own: …}`, or `on:` with an accelerator"
    offered = [
        f"{offer.accelerator.name} at {_named(offer.price)}" for offer in fitting[:SHOWN] if offer.price
    ]
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
