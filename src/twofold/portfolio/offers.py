"""Which offers a plan's portfolio chooses from: list prices, quotes, own machines and hosted APIs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from math import inf

from twofold.answer.context import Context
from twofold.answer.offers import Offer, in_regions, node_for, node_of_size, own_offers, priced
from twofold.answer.supply_rules import all_asked_regions, asked_regions
from twofold.catalog.capacity import CONTRACT, supplied
from twofold.catalog.catalog import Catalog
from twofold.catalog.regimes import find_regime, permits, refusal_reason
from twofold.catalog.types import Node, Observation
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.training_run import TrainingRun
from twofold.portfolio.listed import (
    held_contract,
    interruptions_by_place,
    offer_of_price,
    own_offer,
    price_of,
)
from twofold.portfolio.problem import CapacityOffer
from twofold.portfolio.quotes import Quote, offer_of_quote, read_quotes

KEPT_PER_KIND = 3  # cheapest of an accelerator, size, place and way to pay: others lose whatever is asked
NEARLY = 0.99  # of a line rate, which tables round
SHOWN_REFUSED = 3  # quotes that rules forbid


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """An offer with the node that its unit is, and the region as its price names it."""

    offer: CapacityOffer
    node: Node
    price_region: str


def node_offers(
    context: Context, accelerators: Iterable[str], searched: Iterable[Offer], start: date | None
) -> tuple[NodeOffer, ...]:
    """Offers of accelerators that the searches priced: quotes and own machines, then the shop's lists."""
    names = sorted(set(accelerators))
    held = context.spec.supply.own
    pairs = zip(own_offers(context.catalog, context.spec.supply), held, strict=True)
    own = []
    for mine, owned in pairs:
        node, name, region = mine.node, mine.accelerator.name, owned.region or ""
        size, units = node.accelerator_count, mine.node_count_max or 0
        own.append(NodeOffer(own_offer(node.name, name, size, units, region, context.catalog), node, region))
    fixed = [_named(offer, context) for offer in searched if offer.price is not None and not offer.owned]
    listed = [each for name in names for each in _listed(name, context)]
    quoted = []
    for quote in _quotes(context):
        if quote.offer.accelerator in names and not _refused_because(quote, context):
            offer = offer_of_quote(quote, start or context.today)
            nodes = context.catalog.nodes_with(offer.accelerator)
            accelerator = context.catalog.accelerator(offer.accelerator)
            named = next((node for node in nodes if node.name == offer.instance), None)
            node = named or node_of_size(context.catalog, accelerator, offer.accelerator_count)
            quoted.append(NodeOffer(offer, node, quote.region))
    found: dict[str, NodeOffer] = {}
    for each in (*own, *quoted, *fixed, *listed):
        found.setdefault(each.offer.name, each)
    return tuple(found.values())


def stands_in(each: NodeOffer, entry: TrainingRun | Service, context: Context) -> bool:
    """Whether an offer counts in the regions that bind an entry.

    Your own machines are bound by the service's regions alone, and count where nobody says they stand.
    """
    regions = asked_regions(entry, context.spec.supply)
    if each.offer.term == "owned":
        regions = entry.regions if isinstance(entry, Service) and each.price_region else ()
    return not regions or in_regions(context.catalog, each.offer.provider, each.price_region, regions)


def may_join(each: NodeOffer, node: Node, count: int) -> bool:
    """Whether one job gets so many units of an offer, with the fabric that it was planned with on `node`."""
    most = min(each.offer.unit_limit or inf, each.offer.job_unit_limit or inf)
    same = each.node.fabric == node.fabric and each.node.nic_bytes_per_s >= NEARLY * node.nic_bytes_per_s
    return count <= most and (count == 1 or same)


def paid_unit_h(each: NodeOffer, count: int, wall_h: float, catalog: Catalog) -> float:
    """Unit-hours that are paid for a run on so many units: a contract's least term, however soon it ends."""
    size = each.offer.accelerator_count
    can = supplied(price_of(each.offer, each.price_region), catalog)
    return can.paid_h(count * size, count * size * wall_h) / size


def _named(offer: Offer, context: Context) -> NodeOffer:
    """A node that a search was given, at the price that it was searched with; its size is the node's."""
    assert offer.price
    node, count = offer.node, offer.node.accelerator_count
    made = _discounted(offer_of_price(offer.price, context.catalog, virtualised=node.virtualised), context)
    share = offer.price.usd_per_accelerator_h * count
    name = made.name if count == made.accelerator_count else f"{count} of {made.name}"
    limit, job_limit = (
        None if units is None else units * made.accelerator_count // count
        for units in (made.unit_limit, made.job_unit_limit)
    )
    sized = replace(made, name=name, accelerator_count=count, usd_per_unit_h=share)
    sized = replace(sized, unit_limit=limit, job_unit_limit=job_limit)
    return NodeOffer(sized, node, offer.price.region)


def _listed(name: str, context: Context) -> list[NodeOffer]:
    """List prices of one accelerator under the shop's rules, the cheapest of each kind."""
    catalog, shop = context.catalog, context.spec.supply.shop
    accelerator = catalog.accelerator(name)
    often = interruptions_by_place(catalog.rows(Observation))
    kinds: dict[tuple[object, ...], list[NodeOffer]] = {}
    prices = priced(catalog, accelerator, shop, shop.terms, shop.regions)
    for price in sorted(prices, key=lambda each: (each.usd_per_accelerator_h, each.provider, each.region)):
        node = node_for(catalog, accelerator, price)
        seen = often.get((price.provider, price.region, price.instance))
        made = offer_of_price(price, catalog, virtualised=node.virtualised, interrupted_per_month=seen)
        kind = (made.accelerator_count, made.term, made.region, node.fabric, made.unit_limit)
        kinds.setdefault(kind, []).append(NodeOffer(_discounted(made, context), node, price.region))
        if made.term == CONTRACT:
            held = held_contract(_discounted(made, context))
            kinds.setdefault((*kind, "held"), []).append(NodeOffer(held, node, price.region))
    return [each for group in kinds.values() for each in group[:KEPT_PER_KIND]]


def _discounted(offer: CapacityOffer, context: Context) -> CapacityOffer:
    """A list price with what the spec says comes off it; a quote states its own."""
    return replace(offer, discount_fraction=context.spec.supply.economics.discount_fraction)


def _quotes(context: Context) -> tuple[Quote, ...]:
    file = context.spec.supply.quotes
    return () if file is None else read_quotes(file, context.catalog, context.today)


def refused_quotes(context: Context) -> tuple[str, ...]:
    """The quotes that the spec's rules forbid, with row and reason; the portfolio has none of them."""
    refused = [
        f"{quote.place.file}:{quote.place.line} {quote.offer.provider} {quote.offer.instance} "
        f"{quote.region}: {why}"
        for quote in _quotes(context)
        if (why := _refused_because(quote, context))
    ]
    more = len(refused) - SHOWN_REFUSED
    return (*refused[:SHOWN_REFUSED], *([f"{more} more quotes, for the same rules"] if more > 0 else []))


def _refused_because(quote: Quote, context: Context) -> str:
    """Why the spec's regions or its regime forbid a quote, in words; "" where it may be taken."""
    spec = context.spec
    asked = all_asked_regions(spec)
    provider = quote.offer.provider
    if asked and not in_regions(context.catalog, provider, quote.region, asked):
        return f"not in {', '.join(asked)}, as far as the quote and the table of regions say"
    if spec.compliance is None:
        return ""
    regime = find_regime(context.catalog, spec.compliance.regime)
    region = quote.region.removeprefix(f"{provider}:")
    if permits(context.catalog, regime)(provider, region):
        return ""
    rows = context.catalog.authorisations(regime.name)
    return refusal_reason(provider.lower(), region.lower(), regime, rows)
