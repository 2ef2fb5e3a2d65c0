"""Machines that a run or a service may use: what is given, what is owned, and what is for rent."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from twofold.answer.stacks import cluster_on
from twofold.catalog.capacity import CONTRACT, NO_FABRIC, supplied, with_contracts
from twofold.catalog.catalog import Catalog
from twofold.catalog.places import Fit, fit_of
from twofold.catalog.types import Accelerator, Node, Price
from twofold.contracts.results.parts import Loser
from twofold.contracts.spec.parts import FixedCluster
from twofold.contracts.spec.supply import Shop, Supply
from twofold.core.errors import UnknownNameError
from twofold.perf.constants import Constants
from twofold.perf.types import Cluster

# Families that the usual frameworks drive; the others are considered only when the spec names the part.
USUAL = "volta turing ampere ada hopper blackwell blackwell-rtx rubin cdna2 cdna3 cdna4 cdna5"
USUAL_FAMILIES = frozenset(USUAL.split())
TRAINING_MEMORY_BYTES = 38e9  # smaller parts are sold for inference
DEFAULT_NIC_BYTES_PER_S = (
    50e9  # 400 Gb/s per accelerator, where a node is described by its accelerators alone
)
NO_FABRIC_BYTES_PER_S = 1.5625e9  # a: a card of 100 Gb/s that eight accelerators share
FABRICS = ("infiniband", "roce", "ici", "efa", "tcpx", "omnipath", "ethernet", "none")  # preferred first
KEPT_FOR_TRAINING = 10  # cheapest per FLOP first


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind of node: what it holds, what it costs, how many there are."""

    accelerator: Accelerator
    node: Node
    price: Price | None
    node_count_max: int | None  # None: as many as wanted
    owned: bool
    overhead_fraction: float  # of time, on virtual machines
    fixed_count: int | None = None  # nodes, where the spec names them
    note: str = ""
    # Accelerators of one job at this price: more than the first, which a cheaper one gives, up to the second.
    job_above_count: float = 0.0
    job_count_max: float = inf
    # What comes off the price and on it; None: as the spec says, and the catalogue of the provider.
    discount_fraction: float | None = None
    support_fraction: float | None = None  # of what is left
    egress_usd_per_tb: float | None = None
    quoted_count: int | None = None  # accelerators that a quote has at this price; None: it does not say

    @property
    def usd_per_accelerator_h(self) -> float | None:
        """List price, None where none is known."""
        return self.price.usd_per_accelerator_h if self.price else None

    @property
    def flops_per_s(self) -> float:
        """The vendor's 16-bit rate of one accelerator."""
        return self.accelerator.bf16_flops_per_s or self.accelerator.fp16_flops_per_s or 1.0

    @property
    def held(self) -> int:
        """Accelerators of one's own; 0 where as many as wanted are for rent."""
        return (self.node_count_max or 0) * self.node.accelerator_count

    @property
    def nic_bytes_per_s(self) -> float:
        """Line rate between nodes, of one accelerator."""
        return self.node.nic_bytes_per_s / self.node.accelerator_count

    @property
    def replica_count_max(self) -> int:
        """Accelerators of a node that may hold one model together: slices hold it alone."""
        return 1 if self.accelerator.works_alone else self.node.accelerator_count

    def is_had(self, node_count: int) -> bool:
        """Whether one job gets so many nodes of it at this price."""
        return self.job_above_count < node_count * self.node.accelerator_count <= self.job_count_max

    def usd_per(self, rate: float) -> float:
        """USD/h over a rate of one accelerator, to rank by; infinite without a price."""
        price = self.usd_per_accelerator_h
        return float("inf") if price is None else price / rate


@dataclass(frozen=True, slots=True)
class Offers:
    """What may be used, and what was left out before any model saw it."""

    offers: tuple[Offer, ...]
    left_out: tuple[Loser, ...]


def cluster_of(
    offer: Offer, node_count: int, constants: Constants, catalog: Catalog, supply: Supply
) -> Cluster:
    """`node_count` nodes of an offer as the models see them, the hypervisor's share taken off."""
    node = offer.node
    # A class of fabric by name takes the fitted constants; a row of the user's speaks for itself.
    fabric = catalog.fabric(node.fabric)
    bare = cluster_on(
        offer.accelerator,
        node.accelerator_count,
        offer.nic_bytes_per_s,
        fabric if fabric.source == "user" else fabric.name,
        constants,
        node_count * node.accelerator_count,
        supply.oversubscription_ratio,
    )
    return bare.virtualised(offer.overhead_fraction)


def fixed_offer(on: FixedCluster, catalog: Catalog, supply: Supply, terms: tuple[str, ...]) -> Offer:
    """The machines that a spec names: yours where you have as many of them, else those for rent."""
    rented = rented_offer(on, catalog, supply, terms, is_job=True)
    return owned_offer(on, rented, catalog, supply) or rented


def owned_offer(
    on: FixedCluster, rented: Offer, catalog: Catalog, supply: Supply, regions: tuple[str, ...] = ()
) -> Offer | None:
    """The machines that a spec names, out of those that you have; None where these are others or fewer.

    A part of your nodes will do for an accelerator by name; a node by name is that node.
    """
    size = rented.node.accelerator_count
    for own in own_offers(catalog, supply, regions):
        whole = own.node.accelerator_count
        same = own.node.name == rented.node.name if on.node else whole % size == 0
        held = (own.node_count_max or 0) * (whole // size)
        if own.accelerator.name == rented.accelerator.name and same and held >= on.count:
            node = own.node if whole == size else rented.node
            return replace(own, node=node, node_count_max=held, fixed_count=on.count)
    return None


def rented_offer(
    on: FixedCluster,
    catalog: Catalog,
    supply: Supply,
    terms: tuple[str, ...],
    regions: tuple[str, ...] = (),
    *,
    is_job: bool = False,
) -> Offer:
    """The machines that a spec names, at the cheapest price known for them in the regions asked.

    A node by name has its own price; of an accelerator by name any price will do, yours beside the spec too.
    Only prices count at which there are as many, of a job on one fabric; by contract there always are. Where
    no provider that is asked is known to sell so, its contract is assumed: somebody has to be asked.
    """
    if on.node:
        node = bought = catalog.node(on.node)
        accelerator = catalog.accelerator(node.accelerator)
    else:
        accelerator = catalog.accelerator(on.accelerator or "")
        node = node_of_size(catalog, accelerator, on.accelerators_per_node or 1)
        bought = replace(node, name="")
    prices = priced(catalog, accelerator, supply.shop, terms, regions or supply.shop.regions)
    wanted, is_job = on.count * node.accelerator_count, is_job and on.count > 1
    enough = [price for price in prices if wanted <= _most(price, catalog, is_job)]
    asked = () if CONTRACT in supply.shop.exclude else with_contracts(prices, catalog, of_all=True)
    price = cheapest(enough or asked[len(prices) :] or prices, bought)
    can = supplied(price, catalog) if price else None
    same = price and price.accelerator_count == node.accelerator_count and not on.node
    if can and same and is_job and enough and not can.is_own:
        nic = (can.nic_bytes_per_s or NO_FABRIC_BYTES_PER_S) * node.accelerator_count
        node = replace(node, fabric=can.fabric, nic_bytes_per_s=nic)
    return Offer(accelerator, node, price, None, False, _overhead(node, supply), on.count)


def _most(price: Price, catalog: Catalog, is_job: bool) -> float:
    can = supplied(price, catalog)
    return can.gang_count if is_job else can.most_count


def node_of_size(catalog: Catalog, accelerator: Accelerator, size: int) -> Node:
    """The catalogue's node with so many of an accelerator, bare metal and fast fabric first."""
    fitting = [node for node in catalog.nodes_with(accelerator.name) if node.accelerator_count == size]
    if fitting:
        return min(
            fitting, key=lambda node: (node.virtualised, -node.nic_bytes_per_s, FABRICS.index(node.fabric))
        )
    larger = [node for node in catalog.nodes_with(accelerator.name) if node.accelerator_count > size]
    if larger:
        whole = min(larger, key=lambda node: (node.accelerator_count, node.virtualised))
        share = size / whole.accelerator_count
        return replace(whole, accelerator_count=size, nic_bytes_per_s=whole.nic_bytes_per_s * share)
    return assumed_node(accelerator, size)


def assumed_node(accelerator: Accelerator, size: int) -> Node:
    """A server that no table describes: 400 Gb/s per accelerator, InfiniBand where parts have fast links."""
    linked = accelerator.scaleup_domain_count >= 4 and accelerator.family != "cpu"
    return Node(
        name=f"{size} × {accelerator.name}",
        provider="",
        accelerator=accelerator.name,
        accelerator_count=size,
        cpu="",
        vcpu_count=None,
        ram_bytes=None,
        nvme_bytes=None,
        nic_bytes_per_s=(DEFAULT_NIC_BYTES_PER_S if linked else DEFAULT_NIC_BYTES_PER_S / 8) * size,
        nic_type="assumed",
        fabric="infiniband" if linked else "ethernet",
        power_w_max=None,
        rack_units=None,
        virtualised=False,
        source="assumed",
        licence="",
        confidence="assumed",
    )


def own_offers(catalog: Catalog, supply: Supply, regions: tuple[str, ...] = ()) -> tuple[Offer, ...]:
    """Machines that the user has, in these regions where the spec says where they stand.

    Accelerators counted alone stand in their usual node.
    """
    offers: list[Offer] = []
    for owned in supply.own:
        if regions and owned.region and not in_regions(catalog, "own", owned.region, regions):
            continue
        all_count = owned.count
        if owned.node:
            node, count = catalog.node(owned.node), all_count
            accelerator = catalog.accelerator(node.accelerator)
        else:
            accelerator = catalog.accelerator(owned.accelerator or "")
            sizes = {node.accelerator_count for node in catalog.nodes_with(accelerator.name)} or {8}
            fitting = [size for size in sizes if size <= all_count] or [all_count]
            # Whole nodes: 12 of a part that comes in eights are one node and four that wait for more.
            _, size = max((all_count % size == 0 and size > 1, size) for size in fitting)
            node, count = node_of_size(catalog, accelerator, size), all_count // size
        offers.append(Offer(accelerator, node, None, count, True, _overhead(node, supply)))
    return tuple(offers)


def training_offers(catalog: Catalog, supply: Supply) -> Offers:
    """Whole nodes for rent whose accelerators can train, by part and class of fabric: the cheapest of each.

    Where a job may have few of the cheapest, the next that gives more stands beside it; machines without a
    fabric are for jobs of one node.
    """
    kept: dict[bool, list[tuple[Offer, ...]]] = {True: [], False: []}
    left_out: list[Loser] = []
    for accelerator in considered(catalog, supply.shop, left_out):
        why = _why_not_training(accelerator)
        if why:
            left_out.append(Loser(accelerator.name, why))
            continue
        least = _least_for_training(catalog, accelerator)
        found = _rentable(catalog, supply, accelerator, run_terms(supply.shop), least)
        for fabric in sorted({offer.node.fabric for offer in found}):
            same = [offer for offer in found if offer.node.fabric == fabric]
            kept[fabric in NO_FABRIC].append(_by_size(same))
    offers: list[Offer] = []
    for groups in kept.values():
        groups.sort(key=lambda each: (each[0].usd_per(each[0].flops_per_s), each[0].accelerator.name))
        offers += [offer for group in groups[:KEPT_FOR_TRAINING] for offer in group]
    return Offers(tuple(offers), tuple(left_out))


def _by_size(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The cheapest offer for jobs of every size: each for those that cheaper ones do not give."""
    kept: list[Offer] = []
    for offer in sorted(offers, key=_price_order):
        # A contract does not stand for what is sold by the hour: it is paid beyond a short run.
        rivals = [each for each in kept if is_contract(offer) or not is_contract(each)]
        above = max((each.job_count_max for each in rivals), default=0.0)
        if offer.job_count_max > above:
            kept.append(replace(offer, job_above_count=above))
    return tuple(kept)


def is_contract(offer: Offer) -> bool:
    """Whether nobody sells it by the hour."""
    return offer.price is not None and offer.price.term == CONTRACT


def shop_prices(catalog: Catalog, supply: Supply, training: bool) -> list[Price]:
    """Every price that `training_offers` or `serving_offers` would choose from if no region were asked."""
    terms = run_terms(supply.shop) if training else supply.shop.terms
    return [
        price
        for accelerator in considered(catalog, supply.shop, [])
        if not (training and _why_not_training(accelerator))
        for price in priced(catalog, accelerator, supply.shop, terms, ())
        if not training or price.accelerator_count >= _least_for_training(catalog, accelerator)
    ]


def serving_offers(catalog: Catalog, supply: Supply, regions: Iterable[str]) -> Offers:
    """Nodes for rent in the regions: of each part the largest, and the smallest where cheaper."""
    offers: list[Offer] = []
    left_out: list[Loser] = []
    for accelerator in considered(catalog, supply.shop, left_out):
        found = _rentable(catalog, supply, accelerator, supply.shop.terms, 1, tuple(regions))
        if not found:
            continue
        sizes = [offer.node.accelerator_count for offer in found]
        whole, single = (
            min((each for each in found if each.node.accelerator_count == size), key=_price_order)
            for size in (max(sizes), min(sizes))
        )
        joined = [each for each in found if _joins(each, whole)]
        if joined:  # a replica may stand on several of them, which is leased where they have that fabric
            node = min(joined, key=_price_order).node
            own = replace(whole.node, fabric=node.fabric, nic_bytes_per_s=node.nic_bytes_per_s)
            whole = replace(whole, node=own)
        offers += [whole] if _price_order(whole) <= _price_order(single) else [whole, single]
    return Offers(tuple(sorted(offers, key=_price_order)), tuple(left_out))


def _joins(offer: Offer, whole: Offer) -> bool:
    """Whether an offer is as large a node, and has a fabric that one job may use."""
    return offer.node.accelerator_count == whole.node.accelerator_count and (
        offer.node.fabric not in NO_FABRIC
    )


def bought_near(
    offer: Offer,
    catalog: Catalog,
    supply: Supply,
    regions: tuple[str, ...],
    terms: tuple[str, ...],
    accelerator_count: int = 1,
) -> Offer | None:
    """The machine of the same part that is bought in these regions, where replicas get as many.

    None where it is sold only elsewhere.

    A price brings its own machine: what is virtual there is so here. Yours, and what nobody sells, stays.
    """
    if offer.owned or offer.price is None:
        return offer
    wanted = regions or supply.shop.regions
    prices = priced(catalog, offer.accelerator, supply.shop, terms, wanted)
    enough = [each for each in prices if accelerator_count <= supplied(each, catalog).most_count]
    price = cheapest(enough or prices, offer.node)
    if price is None:
        return None
    node = node_for(catalog, offer.accelerator, price)
    return replace(offer, node=node, price=price, overhead_fraction=_overhead(node, supply))


def considered(catalog: Catalog, shop: Shop, left_out: list[Loser]) -> list[Accelerator]:
    """The accelerators of the shop: those named, or every usual one. Announced ones are left out aloud."""
    named = {catalog.accelerator(name).name for name in shop.accelerators}
    excluded = set()
    for word in shop.exclude:  # the others are providers or terms
        with suppress(UnknownNameError):
            excluded.add(catalog.accelerator(word).name)
    slices = [catalog.accelerator(name) for name in sorted(named) if ":" in name]
    result = []
    for accelerator in (*catalog.rows(Accelerator), *slices):
        usual = accelerator.family in USUAL_FAMILIES and "consumer" not in accelerator.form_factor
        if accelerator.name in excluded or not (accelerator.name in named if named else usual):
            continue
        if accelerator.released or shop.allow_unreleased:
            result.append(accelerator)
        else:
            why = "announced, not released: `shop.allow_unreleased` considers it"
            left_out.append(Loser(accelerator.name, why))
    return result


def _why_not_training(accelerator: Accelerator) -> str:
    if accelerator.works_alone:
        return "a slice, which trains alone: name one with `on:`"
    if not (accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s):
        return "no 16-bit matrix units"
    if accelerator.memory_bytes < TRAINING_MEMORY_BYTES:
        return f"{accelerator.memory_bytes / 2**30:.0f} GiB of memory: an inference part"
    return ""


def _least_for_training(catalog: Catalog, accelerator: Accelerator) -> int:
    """Accelerators of a node that a run may be given: whole ones, of eight where there are larger."""
    return min(8, max((node.accelerator_count for node in catalog.nodes_with(accelerator.name)), default=8))


def _rentable(
    catalog: Catalog,
    supply: Supply,
    accelerator: Accelerator,
    terms: tuple[str, ...],
    size_min: int,
    regions: tuple[str, ...] = (),
) -> list[Offer]:
    """Every node of an accelerator that has a price; one without a price when nobody sells the part."""
    wanted = regions or supply.shop.regions
    offers: dict[tuple[object, ...], Offer] = {}
    for price in priced(catalog, accelerator, supply.shop, terms, wanted):
        if price.accelerator_count < size_min:
            continue
        node = node_for(catalog, accelerator, price)
        most = supplied(price, catalog).gang_count
        offer = Offer(accelerator, node, price, None, False, _overhead(node, supply), job_count_max=most)
        key = node.name, node.fabric, most
        if key not in offers or _price_order(offer) < _price_order(offers[key]):
            offers[key] = offer
    if supply.shop.accelerators and not catalog.whole.prices_for(accelerator.name):
        sizes = [node.accelerator_count for node in catalog.nodes_with(accelerator.name)]
        size = max(sizes, default=min(8, accelerator.scaleup_domain_count))
        node = node_of_size(catalog, accelerator, size)
        offers[()] = Offer(accelerator, node, None, None, False, _overhead(node, supply))
    return list(offers.values())


def priced(
    catalog: Catalog, accelerator: Accelerator, shop: Shop, terms: tuple[str, ...], regions: tuple[str, ...]
) -> list[Price]:
    """List prices that a shop allows; contracts too, at what is assumed, where it allows on demand."""
    excluded = {word.lower() for word in shop.exclude}
    providers = {name.lower() for name in shop.providers}
    hourly = "on_demand" in terms or CONTRACT in terms
    found = [
        price
        for price in catalog.prices_for(accelerator.name)
        if (price.term in terms or (hourly and price.term == "on_demand"))
        and not {price.term, price.provider.lower()} & excluded
        and (not providers or price.provider.lower() in providers)
        and in_regions(catalog, price.provider, price.region, regions)
    ]
    hourly = hourly and CONTRACT not in excluded
    every = with_contracts(found, catalog) if hourly else found
    allowed = {*terms, CONTRACT} if hourly else {*terms}
    return [price for price in every if price.term in allowed and supplied(price, catalog).most_count]


def in_regions(catalog: Catalog, provider: str, region: str, regions: tuple[str, ...]) -> bool:
    """A price of the regions asked, or of a list that names no region and whose provider has one there."""
    return fit_of(catalog, provider, region, regions) is not Fit.OUTSIDE


def cheapest(prices: Iterable[Price], node: Node) -> Price | None:
    """The cheapest price of this very node; else of one at least as large; else of any."""
    listed = sorted(prices, key=lambda price: (price.usd_per_accelerator_h, price.provider, price.region))
    same = [price for price in listed if price.instance == node.name]
    whole = [price for price in listed if price.accelerator_count >= node.accelerator_count]
    return next(iter(same or whole or listed), None)


def node_for(catalog: Catalog, accelerator: Accelerator, price: Price) -> Node:
    """The node that a price buys: by instance name, else a plain one of the provider's size.

    Its fabric is the one that is stated for the offer; where none is, it has none.
    """
    node = next((each for each in catalog.nodes_with(accelerator.name) if each.name == price.instance), None)
    if node is None:
        node = node_of_size(catalog, accelerator, price.accelerator_count)
        node = replace(node, virtualised=True) if node.provider == "onprem" else node
    can = supplied(price, catalog)
    if can.is_own:
        return node
    nic = (can.nic_bytes_per_s or NO_FABRIC_BYTES_PER_S) * node.accelerator_count
    ram = can.ram_bytes or node.ram_bytes
    return replace(node, fabric=can.fabric or "none", nic_bytes_per_s=nic, ram_bytes=ram)


def run_terms(shop: Shop) -> tuple[str, ...]:
    """A run is over before a year is: reservations do not pay for it unless nothing else is allowed."""
    short = tuple(term for term in shop.terms if not term.startswith("reserved"))
    return short or shop.terms


def _overhead(node: Node, supply: Supply) -> float:
    return supply.virtual_overhead_fraction if node.virtualised else 0.0


def _price_order(offer: Offer) -> tuple[float, str, str]:
    where = (offer.price.provider, offer.price.region) if offer.price else ("", "")
    return (offer.usd_per(1.0), *where)
