"""What networks between servers are built of: switches by tier and cables, counted by formula.

tests/perf/test_fabric_graph.py builds the same networks cable by cable; `cabling` gives the cables their
lengths and prices.
"""

from dataclasses import dataclass
from math import ceil

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import NetworkPart

SWITCH_KINDS = {"infiniband": "switch_ib"}  # any other fabric is built of Ethernet switches


@dataclass(frozen=True, slots=True)
class FabricCounts:
    """Switches by tier from the leaves up, and cables: from ends to leaves, then between tiers."""

    switches: tuple[int, ...]
    end_cables: int
    tier_cables: tuple[int, ...]  # leaf to spine, spine to core …
    uplinks_per_leaf: int

    @property
    def switch_count(self) -> int:
        return sum(self.switches)

    @property
    def cable_count(self) -> int:
        return self.end_cables + sum(self.tier_cables)


@dataclass(frozen=True, slots=True)
class FabricParts:
    """A network between nodes: its switch, how many of them, and cables from cards and between switches."""

    switch: NetworkPart
    port_count: int  # of one switch at the rate asked
    counts: FabricCounts

    @property
    def usd(self) -> float | None:
        """Of the switches alone; None where the catalogue has no price."""
        return None if self.switch.usd is None else self.switch.usd * self.counts.switch_count

    @property
    def power_w(self) -> float | None:
        """Of the switches, typical."""
        return None if self.switch.power_w is None else self.switch.power_w * self.counts.switch_count


def fabric_parts(
    catalog: Catalog,
    fabric: str,
    card_count: int,
    card_bytes_per_s: float,
    oversubscription_ratio: float = 1.0,
    rails: int = 0,
) -> FabricParts | None:
    """Switches and cables that join `card_count` cards; None where no switch has the rate.

    As a fat tree; or, where nodes of `rails` cards each are joined, with a leaf for each card number.
    """
    switch = switch_for(catalog, fabric, card_bytes_per_s)
    if switch is None:
        return None
    ports = ports_at(switch, card_bytes_per_s)
    if rails:
        counts = rail_optimised(card_count // rails, rails, ports, oversubscription_ratio)
    else:
        counts = fat_tree(card_count, ports, oversubscription_ratio)
    return FabricParts(switch, ports, counts)


def fat_tree(end_count: int, port_count: int, oversubscription_ratio: float = 1.0) -> FabricCounts:
    """Switches and cables of a folded Clos network, at full bisection or oversubscribed at the leaves.

    Formula  a leaf of k ports has u = ⌊k/(1+o)⌋ uplinks and k − u ends; leaves = ⌈n/(k − u)⌉; spines = the
             least divisor s of u with leaves·u/s ≤ k; past k leaves, u planes of `leaves` ends, each a
             network of its own, not oversubscribed
    Why      Every leaf has as many cables to each spine, so that traffic spreads evenly: hence a divisor.
    Units    counts.
    Source   Leiserson 1985; NVIDIA DGX SuperPOD reference architectures (B200: 2 to 64 units of 32 nodes;
             B300: 1 to 18 units of 72 nodes), whose tables of switches and cables this reproduces exactly.
    Limits   n ≤ k: one switch. The last leaf may be part empty.

    >>> fat_tree(1024, 64).switches, fat_tree(4096, 64).switches
    ((32, 16), (128, 128, 64))
    """
    if end_count <= port_count:
        return FabricCounts((1,), end_count, (), 0)
    up = uplinks(port_count, oversubscription_ratio)
    return _above(ceil(end_count / (port_count - up)), end_count, up, port_count)


def rail_optimised(
    node_count: int,
    cards_per_node: int,
    port_count: int,
    oversubscription_ratio: float = 1.0,
    management_cables: int = 0,
) -> FabricCounts:
    """Switches and cables where card i of every node of a unit meets in leaf i: one hop between equal cards.

    Formula  a unit holds d = k − u nodes and as many leaves as a node has cards; few nodes share leaves,
             ⌊d/nodes⌋ cards to a leaf; tiers above as `fat_tree`
    Why      All-reduce runs between cards of one number, so that most of it stays below the spines.
    Units    counts; `management_cables` (a fabric manager's) take the place of one node.
    Source   NVIDIA DGX SuperPOD H100 reference architecture: 31, 63, 95 and 127 nodes in 1 to 4 units.
    Limits   All cards into one switch where they fit.

    >>> rail_optimised(127, 8, 64, management_cables=4).switches
    (32, 16)
    """
    ends = node_count * cards_per_node + management_cables
    if ends <= port_count:
        return FabricCounts((1,), ends, (), 0)
    up = uplinks(port_count, oversubscription_ratio)
    down = port_count - up
    places = node_count + (1 if management_cables else 0)
    units = ceil(places / down)
    per_leaf = down // places if units == 1 else 1
    return _above(units * ceil(cards_per_node / per_leaf), ends, up, port_count)


def uplinks(port_count: int, oversubscription_ratio: float) -> int:
    """Ports of a leaf that go up: the share 1/(1 + o), at least one."""
    return max(1, int(port_count / (1 + oversubscription_ratio)))


def switch_for(catalog: Catalog, fabric: str, card_bytes_per_s: float) -> NetworkPart | None:
    """Ports of just this rate before faster ones that are split; of those the cheapest per port."""
    kind = SWITCH_KINDS.get(fabric, "switch_eth")
    able = [
        p
        for p in catalog.rows(NetworkPart)
        if p.kind == kind and p.port_bytes_per_s >= card_bytes_per_s * 0.999
    ]

    def order(part: NetworkPart) -> tuple[bool, float]:
        split = part.port_bytes_per_s > card_bytes_per_s * 1.001
        return split, (part.usd or float("inf")) / ports_at(part, card_bytes_per_s)

    return min(able, key=order, default=None)


def ports_at(switch: NetworkPart, card_bytes_per_s: float) -> int:
    """Ports of one switch, faster ones split into as many as the rate goes into."""
    return switch.port_count * max(1, int(switch.port_bytes_per_s / card_bytes_per_s * 1.001))


def _above(leaves: int, end_count: int, up: int, port_count: int) -> FabricCounts:
    """The tiers above so many leaves with `up` uplinks each."""
    if leaves == 1:
        return FabricCounts((1,), end_count, (), 0)
    if leaves <= port_count:
        spines = next(s for s in range(1, up + 1) if up % s == 0 and leaves * up <= s * port_count)
        return FabricCounts((leaves, spines), end_count, (leaves * up,), up)
    plane = fat_tree(leaves, port_count)
    return FabricCounts(
        (leaves, *(up * count for count in plane.switches)),
        end_count,
        (up * plane.end_cables, *(up * count for count in plane.tier_cables)),
        up,
    )
