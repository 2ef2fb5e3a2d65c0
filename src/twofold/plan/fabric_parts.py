"""What a leaf-spine network is built of: switches and cables of the catalogue for so many network cards."""

from dataclasses import dataclass
from math import ceil

from twofold.catalog import Catalog, NetworkPart

SWITCH_KINDS = {"infiniband": "switch_ib"}  # any other fabric is built of Ethernet switches


@dataclass(frozen=True, slots=True)
class FabricParts:
    """A network between nodes: its switch, how many of them, and cables from cards and between switches."""

    switch: str
    port_count: int  # of one switch at the rate asked
    switch_count: int
    cable_count: int
    tier_count: int
    usd: float | None  # switches alone; None where the catalogue has no price
    power_w: float | None  # of the switches, typical


def fabric_parts(
    catalog: Catalog,
    fabric: str,
    card_count: int,
    card_bytes_per_s: float,
    oversubscription_ratio: float = 1.0,
) -> FabricParts | None:
    """Switches and cables that join `card_count` cards, at full bisection or oversubscribed at the leaves.

    Formula  a leaf of k ports has u = ⌊k/(1+o)⌋ uplinks and k − u cards; leaves = ⌈n/(k − u)⌉; up to k leaves
             share ⌈leaves·u/k⌉ spines, more of them u networks of `leaves` ends each, not oversubscribed
    Why      Every leaf reaches every spine, so that at most k leaves share one tier of spines.
    Units    counts; rates in B/s, one direction.
    Source   Clos networks (Leiserson's fat tree, 1985), as vendors' reference designs count them.
    Limits   n ≤ k: one switch. None when no switch of the catalogue has ports of that rate.
    """
    switch = _switch(catalog, fabric, card_bytes_per_s)
    if switch is None:
        return None
    ports = _ports(switch, card_bytes_per_s)
    switches, cables, tiers = _clos(card_count, ports, oversubscription_ratio)
    return FabricParts(
        switch=switch.name,
        port_count=ports,
        switch_count=switches,
        cable_count=cables,
        tier_count=tiers,
        usd=None if switch.usd is None else switch.usd * switches,
        power_w=None if switch.power_w is None else switch.power_w * switches,
    )


def _clos(ends: int, ports: int, oversubscription: float) -> tuple[int, int, int]:
    """(switches, cables, tiers) that join so many ends. Past one tier of spines, each plane of uplinks is a
    network of its own, one end per leaf."""
    if ends <= ports:
        return 1, ends, 1
    up = max(1, int(ports / (1 + oversubscription)))
    leaves = ceil(ends / (ports - up))
    if leaves <= ports:
        return leaves + ceil(leaves * up / ports), ends + leaves * up, 2
    switches, cables, tiers = _clos(leaves, ports, 1.0)
    return leaves + up * switches, ends + up * cables, tiers + 1


def _switch(catalog: Catalog, fabric: str, card_bytes_per_s: float) -> NetworkPart | None:
    """Ports of just this rate before faster ones that are split; of those the cheapest per port."""
    kind = SWITCH_KINDS.get(fabric, "switch_eth")
    able = [p for p in catalog.network() if p.kind == kind and p.port_bytes_per_s >= card_bytes_per_s * 0.999]

    def order(part: NetworkPart) -> tuple[bool, float]:
        split = part.port_bytes_per_s > card_bytes_per_s * 1.001
        return split, (part.usd or float("inf")) / _ports(part, card_bytes_per_s)

    return min(able, key=order, default=None)


def _ports(switch: NetworkPart, card_bytes_per_s: float) -> int:
    """Ports of one switch, faster ones split into as many as the rate goes into."""
    return switch.port_count * max(1, int(switch.port_bytes_per_s / card_bytes_per_s * 1.001))
