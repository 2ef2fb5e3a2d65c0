"""What both halves of a plan are made of: machines and their prices, parts of a total, and what lost."""

from dataclasses import dataclass

from twofold.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class PriceUsed:
    """The catalogue row a cost was made with; `usd_per_accelerator_h` spreads over the offers seen."""

    provider: str  # whose list
    instance: str  # the instance type that is rented
    region: str  # the catalogue region of the price
    term: str  # on_demand spot reserved_1y reserved_3y; contract where no list has so many
    date: str  # day the price was seen
    usd_per_accelerator_h: Estimate  # USD/h of one accelerator, list price
    discount_fraction: float | None = None  # off it; null: as the spec says of all list prices
    support_fraction: float | None = None  # of what is left; null: as the catalogue says of the provider
    egress_usd_per_tb: float | None = None  # of what leaves it; null: as the catalogue says
    gate: str = ""  # what stands between this price and so many: a quota, or a quote to ask for
    kind: str = ""  # marketplace host, on-demand cloud, contract …
    quantity: int | None = None  # accelerators that one gets of it without a contract; null: no limit
    least_h: float = 0.0  # hours of each accelerator that a run pays at least: the term of a contract
    least_assumed: bool = False  # whether nobody states that term


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal nodes of one kind. `price` None: the plan counts accelerator-hours and says `no price`."""

    accelerator: str  # catalogue name
    node: str  # catalogue name of the server or instance type
    node_count: int  # nodes in all
    accelerators_per_node: int  # in one node
    accelerator_count: int  # in all
    fabric: str  # between nodes: infiniband roce efa ethernet …
    price: PriceUsed | None  # what one accelerator-hour costs; null: no price is known
    held_fraction: float = 1.0  # of these nodes, what is leased on average while it is needed
    fabric_bytes_per_s: float | None = None  # between nodes, of one accelerator, as planned with
    base_price: PriceUsed | None = None  # of the nodes that are held all year; null: all are at `price`
    base_node_count: int = 0  # of these nodes, those; the others come and go by the hour
    base_answered_fraction: float = 0.0  # of what the service answers, on them

    @property
    def hourly_count(self) -> int:
        """Accelerators at `price`, at most at once: without those that are held all year at their own."""
        return self.accelerator_count - self.base_node_count * self.accelerators_per_node

    @property
    def prices(self) -> tuple[PriceUsed, ...]:
        """Of all its leases; none where none is known."""
        return tuple(price for price in (self.base_price, self.price) if price)

    @property
    def usd_per_accelerator_h(self) -> float:
        """List price of an hour that is paid for, the mean of all leases; 0 where none is known."""
        usd = self.price.usd_per_accelerator_h.value if self.price else 0.0
        if self.base_price is None:
            return usd
        share = self.base_node_count / (self.node_count * self.held_fraction)
        return share * self.base_price.usd_per_accelerator_h.value + (1.0 - share) * usd


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a total; the `share_fraction`s of a total's parts add up to 1."""

    name: str  # what this part is
    value: Estimate  # in the unit of its total
    share_fraction: float  # of the total


@dataclass(frozen=True, slots=True)
class Bound:
    """What a plan is bound by: `gain_fraction` of its time or cost goes when `resource` improves by 20 %."""

    resource: str  # compute, memory bandwidth, memory capacity, link, fabric, host …
    gain_fraction: float  # of time or cost, when it is 20 % better


@dataclass(frozen=True, slots=True)
class Loser:
    """Something else that was tried, and the constraint or the figure it lost by."""

    what: str  # the alternative
    why: str  # in words, with figures


@dataclass(frozen=True, slots=True)
class Count:
    """How many candidates fell to one reason."""

    reason: str  # memory, divisibility, slower …
    count: int  # candidates


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One point of the front of time, cost and size."""

    what: str  # nodes × accelerators, and the layout
    accelerator_count: int  # size
    wall_s: float  # until it is over, with headroom, on machines that it shares beside the others, s
    cost_usd: float | None  # with headroom, USD
    feasible: bool  # meets deadline and budget
    accelerator_h: float = 0.0  # with headroom


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """How a step scales: efficiency is throughput per accelerator over that of the smallest size."""

    accelerator_count: int  # size
    step_s: Estimate  # s
    efficiency_fraction: Estimate  # of the smallest size's rate


@dataclass(frozen=True, slots=True)
class OperatorRate:
    """One kind of work on one accelerator: how much it computes for each byte, and how fast."""

    what: str  # products, attention or experts, of which step; the sizes of a product that was timed
    flops_per_byte: float  # FLOPs over bytes read and written
    flops_per_s: float  # of one accelerator
    source: str  # who timed it; "" where it is planned


@dataclass(frozen=True, slots=True)
class Roofline:
    """What an accelerator can do at most, what this work is planned to reach, and what others measured."""

    accelerator: str  # catalogue name
    number_format: str  # that the products run in
    peak_flops_per_s: float  # by the datasheet, in that format
    memory_bytes_per_s: float  # by the datasheet
    planned: tuple[OperatorRate, ...]  # this work, as the plan prices it
    measured: tuple[OperatorRate, ...]  # products timed on this accelerator; none: nobody did
