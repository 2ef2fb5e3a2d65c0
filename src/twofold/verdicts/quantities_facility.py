"""Quantities of buildings: racks, server power, fabrics, energy, storms of loading."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Sequence

from twofold.catalog import HardwarePrice, NetworkPart
from twofold.core import J_PER_KWH, UnknownNameError, ValueRefusedError
from twofold.facility import (
    COOLING_KINDS,
    CoolingKind,
    NodeList,
    RackFill,
    capex_usd_per_w,
    fabric_parts,
    heat_map,
    is_liquid_cooled,
    network_cards,
    node_power,
    nodes_per_rack,
    planned_w,
    rack_limits,
    serving_racks,
    storm_s,
    training_w,
)
from twofold.verdicts.world import World

MANY = 1000


def rack(world: World, name: str, cooling: str = "air", power_w: float | None = None) -> RackFill:
    """What one rack holds of a node, by cooling and feed."""
    limits = rack_limits(world.catalog, _cooling(cooling), power_w=power_w)
    return nodes_per_rack(world.catalog, world.catalog.node(name), limits)


def _cooling(name: str) -> CoolingKind:
    if name not in COOLING_KINDS:
        raise UnknownNameError(
            f"`{name}` is no way to cool", hint="write one of: " + ", ".join(COOLING_KINDS)
        )
    return name


def node_draw(world: World, name: str) -> float:
    """Watts that a rack provides for a node: the vendor's maximum, or by its parts."""
    return planned_w(node_power(world.catalog, world.catalog.node(name)))


def needs_liquid(world: World, name: str) -> bool:
    """Whether a rack unit of a node gives off more heat than air carries."""
    return is_liquid_cooled(world.catalog, world.catalog.node(name))


def heat_imbalance(world: World, names: Sequence[str], each: int = 16) -> float:
    """The hottest rack over the mean where so many of each node are spread over racks as evenly as can be."""
    if not 0 < each <= MANY:
        raise ValueRefusedError(f"1 to {MANY:,} of each node are spread")
    kinds = [NodeList(name, "serving", world.catalog.node(name), each) for name in names]
    return heat_map(serving_racks(world.catalog, kinds, rack_limits(world.catalog, "air"))).imbalance_ratio


def fabric_usd(world: World, name: str, node_count: int) -> float | None:
    """Dollars per accelerator for network cards, and for switches and optics of a full fat tree of nodes."""
    row = world.catalog.node(name)
    cards, card_bytes_per_s = network_cards(row)
    parts = fabric_parts(world.catalog, row.fabric, cards * node_count, card_bytes_per_s)
    if parts is None or parts.usd is None:
        return None
    cables = {
        part.name: part for part in world.catalog.rows(NetworkPart) if part.kind == "transceiver" and part.usd
    }
    rate = min(cables.values(), key=lambda part: abs(part.port_bytes_per_s - card_bytes_per_s))
    own = [
        p
        for p in world.catalog.rows(NetworkPart)
        if p.kind == "nic" and p.port_bytes_per_s >= card_bytes_per_s and p.usd
    ]
    card_usd = min((part.usd or 0.0 for part in own), default=0.0)
    optics = 2.0 * parts.counts.cable_count * (rate.usd or 0.0) / rate.port_count
    return (parts.usd + optics + card_usd * cards * node_count) / (row.accelerator_count * node_count)


def bought_usd(world: World, name: str, node_count: int = 32) -> float | None:
    """Dollars per accelerator for servers, network, racks' power and cooling, all of it bought."""
    row = world.catalog.node(name)
    prices = {each.name: each.usd for each in world.catalog.rows(HardwarePrice)}
    network = fabric_usd(world, name, node_count)
    if name not in prices or network is None:
        return None
    hall = capex_usd_per_w(world.catalog, "air").value * node_draw(world, name)
    return (prices[name] + hall) / row.accelerator_count + network


def energy_usd_per_h(world: World, name: str, region: str) -> float:
    """Dollars of electricity for one accelerator-hour of training in a region, the building's share too."""
    node, place = world.catalog.node(name), world.catalog.region(region)
    watts = training_w(world.catalog, node_power(world.catalog, node)).value / node.accelerator_count
    return watts * 3600.0 / J_PER_KWH * place.pue * place.electricity_usd_per_kwh


def loading_s(world: World, size: float, replica_count: int, bytes_per_s: float) -> float:
    """Seconds until the last of so many replicas has read its weights from one store that they share."""
    if bytes_per_s <= 0:
        raise ValueRefusedError("a store that reads nothing")
    return storm_s(size, replica_count, bytes_per_s)
