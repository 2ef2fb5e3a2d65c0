"""How much of a price's machines can be had: at once, with a quota, by contract; and on which fabric.

Quota, stock and approval are three gates: a list price passes none of them. Machines of your own, your quotes
and your own rows of prices are never limited here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import HYPERSCALERS
from twofold.catalog.types import Capacity, Node, Price

CONTRACT = "contract"  # the term of what no list has: a person is asked, and a quote is waited for
LARGE_CLOUDS = HYPERSCALERS | {"oci"}
NO_FABRIC = frozenset({"", "none", "ethernet"})  # between such nodes no job is planned
DAY_H = 24.0
LINKED = 4  # devices that a link joins: parts that jobs over several nodes are made of
USUAL_NODE = 8  # accelerators
QUOTED_ABOVE = 64  # accelerators: larger reservations are quoted, whatever a list says
KINDS = {  # of rows that speak for a term
    "on_demand": ("on_demand", "marketplace"),
    "community": ("marketplace",),
    "spot": ("spot",),
    CONTRACT: ("instant_cluster", "capacity_block", "reserved"),
}


@dataclass(frozen=True, slots=True)
class Supplied:
    """What of a price's machines can be had, in accelerators; infinite where nobody limits it."""

    kind: str  # in words, as screens say it
    free_count: float  # without asking anybody
    most_count: float  # with a quota; more is a contract
    gang_count: float  # of one job: on one fabric, or one node where none is stated
    fabric: str = ""  # stated between nodes; "" where none is
    nic_bytes_per_s: float | None = None  # of one accelerator
    ram_bytes: float | None = None  # of one node
    product: str = ""  # what a cluster or block of it is called, and
    product_count: float = 0  # how many of these one gets
    least_h: float = 0.0  # that a contract is paid at least, as is assumed
    product_least_h: float | None = None  # of the product, where it states any
    is_own: bool = False  # a row or quote of the user's: its node is what it says

    def least_of(self, accelerator_count: int) -> tuple[float, bool]:
        """Hours that so many are paid at least, and whether that is assumed; 0 by the hour."""
        if self.product_least_h is not None and accelerator_count <= self.product_count:
            return self.product_least_h, False
        return self.least_h, self.least_h > 0.0

    def paid_h(self, accelerator_count: int, used_h: float) -> float:
        """Accelerator-hours that are paid when so many are used together for `used_h` of them."""
        return max(used_h, self.least_of(accelerator_count)[0] * accelerator_count)


def supplied(price: Price, catalog: Catalog) -> Supplied:
    """What can be had at a price; where no row speaks of it, what is assumed of its kind of offer."""
    found = catalog.supplied.get(price)
    if found is None:
        found = catalog.supplied[price] = _supplied(price, catalog)
    return found


def is_own(price: Price) -> bool:
    """Whether a price is a quote or a row of the user's, also once it has been leased at."""
    return price.source == "user" or price.source.startswith("quote") or price.source.endswith(": user")


def _supplied(price: Price, catalog: Catalog) -> Supplied:
    if is_own(price):
        return Supplied("your quote", inf, inf, inf, is_own=True)
    size, rows = price.accelerator_count, _rows(price, catalog)
    row = max(rows, key=lambda each: _rank(each, price), default=None)
    network = fabric, _, ram = _network(row, price, catalog)
    held_bytes = size * catalog.accelerator(price.accelerator).memory_nominal_bytes
    joined = fabric not in NO_FABRIC and (ram is None or ram >= held_bytes)
    if price.term == CONTRACT:
        sold = row if row and size >= LINKED and row.kind != "reserved" else None
        product = _product(sold), (sold.accelerators_max or 0) if sold else 0
        least = _least_h(_band("contract", catalog)) or 0.0, _least_h(sold)
        return Supplied("contract", 0, inf, inf if joined else size, *network, *product, *least)
    if price.term.startswith("reserved"):
        return Supplied("reserved contract", QUOTED_ABOVE, inf, inf if joined else size, *network)
    if price.term == "spot":
        band = _band("spot", catalog)
        free = band.accelerators_max or 0
        return Supplied("spot", 0, free, (band.nodes_max or 1) * size if joined else size, *network)
    if price.term == "community" or _is_market(price, catalog):
        band = _band("one host", catalog)
        hosts = (band.replicas_max or 0) // (band.accelerators_max or 1)
        most = row.accelerators_max if row and row.accelerators_max else hosts * size
        return Supplied("marketplace host", most, most, size, *network)
    unsold = row.accelerators_max == 0 if row else _has_rows(price, catalog)
    if unsold and not _is_large(price):
        return Supplied("sold by contract only", 0, 0, 0, *network)
    return _on_demand(row, price, joined, network, catalog)


def _on_demand(
    row: Capacity | None,
    price: Price,
    joined: bool,
    network: tuple[str, float | None, float | None],
    catalog: Catalog,
) -> Supplied:
    """What a cloud gives without a contract: first what anybody gets, then what a quota may grant.

    A limit that is stated binds, and a large cloud's of none is that of an account without a quota. The usual
    of its kind is assumed only where nobody states one.
    """
    size = price.accelerator_count
    stated = row.accelerators_max if row else None
    free, most = (stated, stated) if stated else _usual(price, catalog, is_joined=joined)
    on_fabric = row.nodes_max * size if row and row.nodes_max else inf
    gang = min(most, on_fabric) if joined else size
    return Supplied("on-demand cloud", free, most, gang, *network)


def _usual(price: Price, catalog: Catalog, *, is_joined: bool) -> tuple[float, float]:
    """Accelerators that an account is taken to get at once, and with a quota."""
    if _is_large(price):
        linked = catalog.accelerator(price.accelerator).scaleup_domain_count >= LINKED
        band = _band("hyperscaler" if linked else "hyperscaler without fast links", catalog)
    else:
        band = _band("specialised cloud with a fabric" if is_joined else "specialised cloud", catalog)
        if not is_joined:
            return band.replicas_max or 0, band.replicas_max or 0
    free = band.accelerators_max or 0
    return free, max(free, (band.nodes_max or 1) * USUAL_NODE)


def gate_of(price: Price, accelerator_count: int, is_job: bool, catalog: Catalog, whose: str = "") -> str:
    """What stands between a list price and so many accelerators, in words; "" where nothing does.

    `whose` names all that they are for, where several share what an account gets.
    """
    can, count = supplied(price, catalog), f"{accelerator_count:,} GPUs{whose}"
    apart = is_job and accelerator_count > can.gang_count  # on nodes that nobody says are joined
    if can.is_own or (accelerator_count <= can.free_count and not apart):
        return ""
    if price.term == CONTRACT:
        count += " on one fabric" if apart else ""
        listed = supplied(replace(price, term="on_demand"), catalog)
        named = f" as {can.product}" if accelerator_count <= can.product_count else ""
        most = listed.gang_count if is_job else listed.most_count
        if not is_job and 0 < accelerator_count <= most:  # held for long, and not for their number
            return f"ask {price.provider} for a quote: {count} by contract"
        return f"ask {price.provider} for a quote: {count}{named}, {_stops(most)}"
    if apart:
        return f"ask {price.provider} for one fabric: none is stated between its nodes"
    if price.term.startswith("reserved"):
        return f"ask {price.provider} for a quote: {count} reserved; a list price is no stock"
    if accelerator_count > can.most_count:
        return f"ask {price.provider} for a quote: {count}, {_stops(can.most_count)}"
    return f"ask {price.provider} for a quota: {count}, accounts start at {can.free_count:,.0f}"


def _stops(most_count: float) -> str:
    return f"self-service stops at {most_count:,.0f}" if most_count else "none by self-service"


def row_of(provider: str, instance: str, region: str, term: str) -> str:
    """The row of prices.csv that a price stands on; a contract's is that of the same by the hour."""
    listed = "on_demand" if term == CONTRACT else term
    return f"prices.csv {provider} {instance} {region} {listed}"


def with_contracts(prices: Sequence[Price], catalog: Catalog, *, of_all: bool = False) -> tuple[Price, ...]:
    """The prices, and for each that is asked by the hour what its provider's contract is taken to cost.

    Of those that are known to sell so, or `of_all`.

    Formula  the larger of the provider's own list price and the middle of what specialised clouds ask
    Why      No list has contracts. Large ones cost less than lists and small ones as much; a provider that
             lists single machines below the others sells clusters at what the others ask.
    """
    return (*prices, *_contracts(prices, catalog, of_all))


def _contracts(prices: Iterable[Price], catalog: Catalog, of_all: bool) -> Iterator[Price]:
    middles: dict[str, float] = {}
    whole: dict[tuple[str, ...], Price] = {}  # what is agreed on is whole nodes
    for price in prices:
        if price.term == "on_demand" and ":" not in price.accelerator:
            place = price.provider, price.accelerator, price.region
            size, usd = price.accelerator_count, price.usd_per_accelerator_h
            best = whole.setdefault(place, price)
            if (-size, usd) < (-best.accelerator_count, best.usd_per_accelerator_h):
                whole[place] = price
    for price in whole.values():
        if not (of_all or sells_contracts(price, catalog)):
            continue
        if price.accelerator not in middles:
            middles[price.accelerator] = contract_band(price.accelerator, catalog)
        usd = max(price.usd_per_accelerator_h, middles[price.accelerator])
        yield replace(
            price,
            term=CONTRACT,
            usd_per_accelerator_h=usd,
            usd_per_h=usd * price.accelerator_count,
            source=f"assumed: {_list_name(price)}, or the middle of specialised clouds where that is more",
            confidence="assumed",
        )


def _list_name(price: Price) -> str:
    return row_of(price.provider, price.instance, price.region, price.term)


def contract_band(accelerator: str, catalog: Catalog) -> float:
    """USD/h of one accelerator: the middle of specialised clouds' cheapest list prices; 0 where none is."""
    cheapest: dict[str, float] = {}
    known = {row.provider for row in catalog.rows(Capacity)} - LARGE_CLOUDS
    for price in catalog.prices_for(accelerator):
        if price.term == "on_demand" and price.provider in known and not _is_market(price, catalog):
            usd = price.usd_per_accelerator_h
            cheapest[price.provider] = min(usd, cheapest.get(price.provider, usd))
    return median(cheapest.values()) if cheapest else 0.0


def sells_contracts(price: Price, catalog: Catalog) -> bool:
    """Whether a provider is known to sell an accelerator by contract, cluster or block; large clouds do."""
    if is_own(price) or _is_market(price, catalog):
        return False
    return _is_large(price) or bool(_rows(replace(price, term=CONTRACT), catalog))


def _is_large(price: Price) -> bool:
    return price.provider in LARGE_CLOUDS


def _is_market(price: Price, catalog: Catalog) -> bool:
    rows = catalog.rows(Capacity)
    return any(row.kind == "marketplace" and row.provider == price.provider for row in rows)


def _least_h(row: Capacity | None) -> float | None:
    return None if row is None or row.term_min_d is None else row.term_min_d * DAY_H


def _product(row: Capacity | None) -> str:
    if row is None:
        return ""
    return f"{row.family} block" if row.kind == "capacity_block" else row.family


def _band(family: str, catalog: Catalog) -> Capacity:
    return next(row for row in catalog.rows(Capacity) if (row.provider, row.family) == ("any", family))


def _of(price: Price, catalog: Catalog) -> Iterator[Capacity]:
    """Rows of the price's provider for its accelerator; queued runs of days are another product."""
    name = price.accelerator.partition(":")[0]
    for row in catalog.rows(Capacity):
        if row.provider == price.provider and "flex-start" not in row.family:
            named = row.accelerators.split("; ")
            if name in named or not {"all", "various"}.isdisjoint(named):
                yield row


def _rows(price: Price, catalog: Catalog) -> list[Capacity]:
    kinds = KINDS.get(price.term, ("reserved",))
    return [row for row in _of(price, catalog) if row.kind in kinds]


def _has_rows(price: Price, catalog: Catalog) -> bool:
    return any(row.accelerators not in ("all", "various") for row in _of(price, catalog))


def _is_named(row: Capacity, price: Price) -> bool:
    return any(price.instance.startswith(word) for word in row.family.split())


def _rank(row: Capacity, price: Price) -> tuple[bool, bool, float, bool]:
    """Which row speaks best for a price: of its instance, with a fabric and the largest stated amount."""
    return (
        _is_named(row, price),
        row.fabric_bytes_per_s is not None,
        row.accelerators_max or 0,
        row.confidence == "stated",
    )


def _network(row: Capacity | None, price: Price, catalog: Catalog) -> tuple[str, float | None, float | None]:
    """Fabric, rate of one accelerator and host memory of a node; "" and None where nobody states them.

    A row of larger nodes does not speak for parts of them, and a fabric without a rate is none to plan with.
    """
    node = catalog.named(Node).get(price.instance)
    if row is not None and not _is_named(row, price) and price.accelerator_count < LINKED:
        row = None
    ram = (row.ram_bytes if row else None) or (node.ram_bytes if node else None)
    is_better = node is None or node.fabric in NO_FABRIC or (row is not None and _is_named(row, price))
    if row is not None and row.fabric and row.fabric_bytes_per_s and is_better:
        return row.fabric, row.fabric_bytes_per_s, ram
    if node:
        return node.fabric, node.nic_bytes_per_s / node.accelerator_count, ram
    return "", None, ram
