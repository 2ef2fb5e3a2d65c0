"""Quantities of the tables: devices, nodes, networks, storage, prices, distances, figures of buildings."""

from collections.abc import Mapping
from typing import Any

from twofold.catalog.figures import figure
from twofold.catalog.geography import distance_m
from twofold.catalog.partitions import legal_partitions
from twofold.catalog.places import best_price
from twofold.catalog.schema import schema
from twofold.catalog.types import Accelerator, Fabric, HardwarePrice, NetworkPart, Node, Storage
from twofold.core.errors import UnknownNameError
from twofold.perf.device import device
from twofold.verdicts.world import CommandOf, MissingFigure, World, one_of


def catalog(world: World, name: str) -> Accelerator:
    """One accelerator's row."""
    return world.catalog.accelerator(name)


def node(world: World, name: str) -> Node:
    """One server's or instance's row."""
    return world.catalog.node(name)


def fabric(world: World, name: str) -> Fabric:
    """One class of network between nodes."""
    return world.catalog.fabric(name)


def storage(world: World, name: str) -> Storage:
    """One storage product's row."""
    rows = {row.name: row for row in world.catalog.rows(Storage)}
    return rows[one_of(name, rows, "storage")]


def listed(world: World, name: str) -> bool:
    """Whether the catalogue knows a released accelerator of that name."""
    try:
        return world.catalog.accelerator(name).released
    except UnknownNameError:
        return False


def multiplies(world: World, name: str, number_format: str) -> bool:
    """Whether a device multiplies numbers of a format in units of their own, not in wider ones."""
    parts = device(world.catalog.accelerator(name), world.constants)
    return not parts.compute_format(number_format, number_format).fallback


def partitions(world: World, name: str) -> int:
    """Instances that a device can be cut into at most; 1 where it cannot be cut."""
    return max((len(cut) for cut in legal_partitions(world.catalog, name)), default=1)


def list_price(world: World, name: str) -> float:
    """Dollars per accelerator-hour, the cheapest list price on demand; not known without one."""
    found = best_price(world.catalog, world.catalog.accelerator(name).name, ("on_demand",))
    if found is None:
        raise MissingFigure(f"no list price of {name}")
    return found.usd_per_accelerator_h


def hardware_price(world: World, name: str) -> float:
    """Dollars that one device, server or rack costs to buy, the middle of what was reported."""
    prices = world.once("hardware", lambda: {row.name: row.usd for row in world.catalog.rows(HardwarePrice)})
    return prices[one_of(name, prices, "device, server or rack with a price")]


def part_price(world: World, name: str) -> float:
    """Dollars that a switch, network card, transceiver or cable costs."""
    rows = {part.name: part.usd for part in world.catalog.rows(NetworkPart)}
    found = rows[one_of(name, rows, "part of networks")]
    if found is None:
        raise MissingFigure(f"no price of {name}")
    return found


def facility(world: World, category: str, item: str) -> float:
    """One figure about buildings, in SI units."""
    return figure(world.catalog, category, item).value


def rtt(world: World, from_region: str, to_region: str) -> float:
    """Seconds of a round trip between two regions."""
    return world.catalog.rtt_s(from_region, to_region)


def distance(world: World, from_region: str, to_region: str) -> float:
    """Metres between two regions along the great circle."""
    return distance_m(world.catalog.region(from_region), world.catalog.region(to_region))


def nearer_is_faster(world: World, farther: float) -> float:
    """Share of users and two regions, one `farther` metres farther away, of which the nearer answers first.

    Users stand in every region from which round trips were measured; only measured ones count.
    """

    def compute() -> float:
        rows = world.catalog.table("rtt").rows
        ends: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            one, other = str(row["from"]), str(row["to"])
            if one != other:
                trip = (distance(world, one, other), rtt(world, one, other))
                ends.setdefault(one, []).append(trip)
        pairs = [
            near[1] < far[1]
            for found in ends.values()
            for near in found
            for far in found
            if far[0] - near[0] >= max(farther, 1.0)
        ]
        if not pairs:
            raise MissingFigure("no two regions so far apart")
        return sum(pairs) / len(pairs)

    return world.once(("nearer is faster", farther), compute)


def parameters(world: World, name: str) -> int:
    """Parameters of a model."""
    return world.catalog.model(name).parameters


def _row(table: str) -> CommandOf:
    """The command that prints one row of a table, with the column that holds the field asked."""

    def command(arguments: Mapping[str, Any], asked: str) -> str:
        names = {column.field: column.name for column in schema()[table]}
        if asked not in names:
            return ""
        return (
            f"twofold catalog {table} --where \"name == '{arguments['name']}'\" --columns name,{names[asked]}"
        )

    return command


COMMANDS: Mapping[str, CommandOf] = {
    "catalog": _row("accelerators"),
    "node": _row("nodes"),
    "fabric": _row("fabrics"),
    "storage": _row("storage"),
    "partitions": lambda arguments, _: f"twofold catalog partitions {arguments['name']}",
}
