"""Quantities of buildings and rules: racks, power, fabrics, energy; what is in force and what it adds."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Sequence
from typing import cast, get_args

from twofold.building.compliance import cluster_rules
from twofold.building.cooling import CoolingKind, capex_usd_per_w
from twofold.building.filling import RackFill, mixed_imbalance, nodes_per_rack, rack_limits
from twofold.building.node_power import network_cards, node_power, training_w
from twofold.catalog.regimes import find_regime
from twofold.catalog.types import HardwarePrice, MandateRow, NetworkPart, Regime
from twofold.core.errors import InfeasibleError, UnknownNameError, ValueRefusedError
from twofold.core.quantity import J_PER_KWH
from twofold.perf.topology import fabric_parts
from twofold.verdicts.world import MissingFigure, World, one_of

MANY = 1000


def rack(world: World, name: str, cooling: str = "air", power_w: float | None = None) -> RackFill:
    """What one rack holds of a node, by cooling and feed."""
    limits = rack_limits(world.catalog, _cooling(cooling), power_w=power_w)
    return nodes_per_rack(world.catalog, world.catalog.node(name), limits)


def _cooling(name: str) -> CoolingKind:
    kinds = get_args(CoolingKind)
    if name not in kinds:
        raise UnknownNameError(f"`{name}` is no way to cool", hint="write one of: " + ", ".join(kinds))
    return cast(CoolingKind, name)


def node_draw(world: World, name: str) -> float:
    """Watts that a rack provides for a node: the vendor's maximum, or by its parts."""
    return node_power(world.catalog, world.catalog.node(name)).planned_w


def needs_liquid(world: World, name: str) -> bool:
    """Whether a rack unit of a node gives off more heat than air carries."""
    return node_power(world.catalog, world.catalog.node(name)).liquid


def heat_imbalance(world: World, names: Sequence[str], each: int = 16) -> float:
    """The hottest rack over the mean where so many of each node are spread over racks as evenly as can be."""
    if not 0 < each <= MANY:
        raise ValueRefusedError(f"1 to {MANY:,} of each node are spread")
    return mixed_imbalance(world.catalog, [world.catalog.node(name) for name in names], each)


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
    return size * replica_count / bytes_per_s


def in_force(world: World, name: str) -> bool:
    """Whether a law, order or memorandum stands: neither it nor what it rests on was revoked."""
    rows = world.catalog.named(MandateRow)
    row = rows[one_of(name, rows, "mandate")]
    rests = row.rests_on in rows and not in_force(world, row.rests_on)
    return not row.revoked_on and not rests


def asks_for(world: World, name: str, word: str) -> bool:
    """Whether a mandate bears on something, in the register's own words."""
    rows = world.catalog.named(MandateRow)
    return word in rows[one_of(name, rows, "mandate")].bears_on


def regime(world: World, name: str) -> Regime:
    """One regime's row."""
    return find_regime(world.catalog, name)


def control_count(world: World, name: str) -> int:
    """Controls of NIST SP 800-53 in a regime's baseline."""
    return len(cluster_rules(world.catalog, name, 64).controls)


def key_modules(world: World, name: str, accelerators: int) -> int:
    """Hardware security modules that a regime asks of a training cluster."""
    return cluster_rules(world.catalog, name, accelerators).keys.module_count


def rules_uplift(world: World, name: str, accelerators: int) -> float:
    """What a regime adds to a year of H100 at list price: its items, and the premium of its regions.

    What is paid once is spread over the years that it serves; a premium is over the same provider's price.
    """
    uplift = cluster_rules(world.catalog, name, accelerators).uplift
    if uplift is None:
        raise MissingFigure(f"no list price of H100-SXM5-80GB under {name}")
    return uplift.uplift_fraction.value


def log_wait_s(world: World, name: str, how: str) -> float:
    """Seconds that an answer of 200 tokens waits for its attributions' record, `synchronous` or not."""
    one_of(how, ("synchronous", "asynchronous"), "way to write a log")
    logs = cluster_rules(world.catalog, name, 8, requests_per_s=1.0, recorded="attribution").logs
    waits = logs.synchronous_s if how == "synchronous" else logs.asynchronous_s
    if waits is None:
        raise InfeasibleError("nothing is served")
    return waits.value
