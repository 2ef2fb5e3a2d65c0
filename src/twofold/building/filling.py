"""Servers into racks: how many fit by heat, power, rack units, ports and weight, and how even the heat is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil
from operator import add, gt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.building.cooling import LIQUID, CoolingKind, cooling_limit_w
from twofold.building.node_power import (
    is_liquid_cooled,
    is_rack_scale,
    network_cards,
    node_power,
    serving_w,
    training_w,
)
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Node

Use = Literal["training", "serving"]
Limit = Literal["cooling", "power", "rack units", "ports", "weight", "a rack of its own"]
ASSUMED_W_PER_UNIT = 1300.0  # of servers whose height no table states: DGX H100 has 1,275
# A symmetric layout may take so many more racks than the fullest one before racks differ by one server.
SYMMETRY_RACKS_RATIO = 1.15
HOT_SPOT_RATIO = 1.15  # over the mean of all racks


@dataclass(frozen=True, slots=True)
class RackLimits:
    """What one rack carries. `power_w` is the feed's limit, `cooling_w` the heat that is taken away."""

    cooling: CoolingKind
    cooling_w: float
    power_w: float
    rack_units: int
    ports: int  # of the network, at the rack
    weight_kg: float


@dataclass(frozen=True, slots=True)
class NodeList:
    """So many servers of one kind for one use."""

    name: str  # the run or service
    use: Use
    node: Node
    count: int


@dataclass(frozen=True, slots=True)
class RackFill:
    """How many of one server fit into a rack, by every limit; the least binds."""

    nodes_per_rack: int
    binding: Limit
    by_limit: tuple[tuple[Limit, int], ...]
    rack_w: float  # of a full rack, at the vendor's maximum


@dataclass(frozen=True, slots=True)
class RackLoad:
    """What servers take of a rack: power as planned, heat in use, room, ports and weight."""

    planned_w: float
    heat_w: float
    rack_units: int
    ports: int
    weight_kg: float


@dataclass(frozen=True, slots=True)
class Rack:
    """One rack: what stands in it, what that takes of it, and what would be full first."""

    holds: tuple[tuple[str, int], ...]  # (run or service, servers)
    load: RackLoad
    binding: Limit


def rack_limits(
    catalog: Catalog,
    cooling: CoolingKind,
    *,
    power_w: float | None = None,
    rack_units: int | None = None,
    ports: int | None = None,
    weight_kg: float | None = None,
) -> RackLimits:
    """The limits of one rack: the table's, where none is given. A feed is built for what cooling carries."""
    cooling_w = cooling_limit_w(catalog, cooling).value

    def row(item: str) -> float:
        return figure(catalog, "rack", item).value

    return RackLimits(
        cooling,
        cooling_w,
        cooling_w if power_w is None else power_w,
        int(row("usable rack units")) if rack_units is None else rack_units,
        int(row("network ports")) if ports is None else ports,
        row("static load limit") if weight_kg is None else weight_kg,
    )


def nodes_per_rack(catalog: Catalog, node: Node, limits: RackLimits) -> RackFill:
    """Servers of one kind that one rack holds, and the limit that binds.

    Formula  least of ⌊cooling/w⌋, ⌊feed/w⌋, ⌊units/height⌋, ⌊ports/cards⌋, ⌊load/weight⌋
    Why      Each is used up by every server alike; w is the vendor's maximum, which breakers are sized for.
    Units    servers.
    Source   catalogue: `nodes`, `facility: rack_kw, rack`.
    Limits   A server of 40 U and more is a rack of its own; one too dense for air needs liquid: 0 without.
    """
    power = node_power(catalog, node).planned_w
    dry = is_liquid_cooled(catalog, node) and limits.cooling not in LIQUID
    counts: list[tuple[Limit, int]] = [
        ("cooling", 0 if dry else int(limits.cooling_w / power + 1e-9)),
        ("power", int(limits.power_w / power + 1e-9)),
    ]
    if is_rack_scale(node):
        counts.append(("a rack of its own", 1))
    else:
        counts += [
            ("rack units", limits.rack_units // height(catalog, node)),
            ("ports", limits.ports // max(network_cards(node)[0], 1)),
            ("weight", int(limits.weight_kg / weight_kg(catalog, node) + 1e-9)),
        ]
    binding, fewest = min(counts, key=lambda pair: pair[1])
    return RackFill(fewest, binding, tuple(counts), fewest * power)


def training_racks(catalog: Catalog, wanted: NodeList, limits: RackLimits) -> tuple[Rack, ...]:
    """Repeatable racks: all alike where that takes hardly more of them, else differing by one server."""
    foot = _footprint(catalog, wanted, limits)
    if foot.fill.nodes_per_rack == 0 or wanted.count == 0:
        return ()
    counts = even_counts(wanted.count, foot.fill.nodes_per_rack)
    return tuple(_rack(((foot, count),), limits) for count in counts)


def even_counts(node_count: int, per_rack: int) -> tuple[int, ...]:
    """Servers in each rack: equal where a divisor is near the fullest rack, else as even as they can be.

    >>> even_counts(64, 4), even_counts(10, 4)
    ((4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4), (4, 3, 3))
    """
    fewest = ceil(node_count / per_rack)
    for size in range(min(per_rack, node_count), 0, -1):
        if node_count % size == 0 and node_count // size <= SYMMETRY_RACKS_RATIO * fewest:
            return (size,) * (node_count // size)
    more = node_count % fewest
    return tuple(node_count // fewest + (index < more) for index in range(fewest))


def serving_racks(catalog: Catalog, wanted: Sequence[NodeList], limits: RackLimits) -> tuple[Rack, ...]:
    """Mixed racks: each server goes to the coolest rack that still has room, hot kinds first.

    Opens as many racks as the fullest packing needs, so that hot and cool servers share racks evenly.
    """
    feet = [_footprint(catalog, each, limits) for each in wanted if each.count]
    kinds = sorted((foot for foot in feet if foot.fill.nodes_per_rack), key=lambda foot: -foot.load.planned_w)
    filled = [row for row in _spread(kinds, limits).tolist() if any(row)]
    held = [[(kind, count) for kind, count in zip(kinds, row, strict=True) if count] for row in filled]
    return tuple(_rack(each, limits) for each in held)


def unevenness(racks: Iterable[Rack]) -> tuple[float, list[bool]]:
    """The hottest rack in use over the mean, 1 where all are alike; and which are over 15 % above it."""
    heat = [rack.load.heat_w for rack in racks]
    mean = sum(heat) / len(heat) if heat else 0.0
    return max(max(heat) / mean, 1.0) if mean else 1.0, [own > HOT_SPOT_RATIO * mean for own in heat]


def mixed_imbalance(catalog: Catalog, nodes: Sequence[Node], each: int) -> float:
    """The hottest rack over the mean where so many of each node are spread over racks in air."""
    kinds = [NodeList(node.name, "serving", node, each) for node in nodes]
    return unevenness(serving_racks(catalog, kinds, rack_limits(catalog, "air")))[0]


def band_verdict(catalog: Catalog, use: Use, rack_w: float) -> str:
    """`in`, `below` or `above` the band of rack power that circulates for that use, 40–120 or 10–30 kW."""
    row = figure(catalog, "rack", f"{use} rack band")
    return "below" if rack_w < row.low else "above" if rack_w > row.high else "in"


def height(catalog: Catalog, node: Node) -> int:
    """Rack units; of servers whose height no table states, by power at the density of an 8 U server."""
    if node.rack_units is not None:
        return node.rack_units
    return max(1, ceil(node_power(catalog, node).planned_w / ASSUMED_W_PER_UNIT))


def weight_kg(catalog: Catalog, node: Node) -> float:
    """Weight by height: servers full of heat sinks, or racks with their manifolds."""
    kind = "a liquid-cooled rack" if is_liquid_cooled(catalog, node) else "an air-cooled server"
    return height(catalog, node) * figure(catalog, "rack", f"weight of {kind}").value


@dataclass(frozen=True, slots=True)
class _Footprint:
    """What one server of a list takes of a rack."""

    wanted: NodeList
    fill: RackFill
    load: RackLoad


def _footprint(catalog: Catalog, wanted: NodeList, limits: RackLimits) -> _Footprint:
    node, power = wanted.node, node_power(catalog, wanted.node)
    drawn = training_w(catalog, power) if wanted.use == "training" else serving_w(catalog, power)
    units, ports = height(catalog, node), network_cards(node)[0]
    load = RackLoad(power.planned_w, drawn.value, units, ports, weight_kg(catalog, node))
    return _Footprint(wanted, nodes_per_rack(catalog, node, limits), load)


def _spread(kinds: Sequence[_Footprint], limits: RackLimits) -> NDArray[np.int64]:
    """Servers by rack and kind: each in turn into the coolest rack with room, a new rack where none has."""
    loads = [kind.load for kind in kinds]
    needs = [(each.planned_w, each.rack_units, each.ports, each.weight_kg) for each in loads]
    most_w = min(limits.cooling_w, limits.power_w)
    room = [part * (1 + 1e-9) for part in (most_w, limits.rack_units, limits.ports, limits.weight_kg)]
    own = [is_rack_scale(kind.wanted.node) for kind in kinds]
    shared = sum(
        k.wanted.count / k.fill.nodes_per_rack for k, alone in zip(kinds, own, strict=True) if not alone
    )
    # As many rows as could ever be needed; those past the fullest packing open one by one.
    most = sum(kind.wanted.count for kind in kinds)
    counts, used = np.zeros((most, len(kinds)), np.int64), [(0.0, 0.0, 0.0, 0.0)] * most
    opened, closed = ceil(shared - 1e-9), 0
    for number, kind in enumerate(kinds):
        if own[number]:
            closed += kind.wanted.count
            counts[most - closed : most - closed + kind.wanted.count, number] = 1
            continue
        # A rack that has no room for one more of a kind has none for the next either: it leaves the heap.
        coolest = [(used[index][0], index) for index in range(opened)]
        heapify(coolest)
        for _ in range(kind.wanted.count):
            while coolest and any(map(gt, map(add, used[coolest[0][1]], needs[number]), room)):
                heappop(coolest)
            if not coolest:
                heappush(coolest, (0.0, opened))
                opened += 1
            index = coolest[0][1]
            counts[index, number] += 1
            power, units, ports, weight = map(add, used[index], needs[number])
            used[index] = power, units, ports, weight
            heapreplace(coolest, (power, index))
    return counts


def _rack(held: Sequence[tuple[_Footprint, int]], limits: RackLimits) -> Rack:
    load = RackLoad(  # of all servers together
        *(sum(count * getattr(kind.load, part.name) for kind, count in held) for part in fields(RackLoad))
    )
    if len(held) == 1:  # what stops one more of the same
        binding = held[0][0].fill.binding
    else:
        shares: dict[Limit, float] = {
            "cooling": load.planned_w / limits.cooling_w,
            "power": load.planned_w / limits.power_w,
            "rack units": load.rack_units / limits.rack_units,
            "ports": load.ports / limits.ports,
            "weight": load.weight_kg / limits.weight_kg,
        }
        binding = max(shares, key=lambda name: shares[name])
    holds = tuple((kind.wanted.name, count) for kind, count in held)
    return Rack(holds, load, binding)
