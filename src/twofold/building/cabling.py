"""Cables with their lengths from the rows of racks, the medium for each, and what the whole network costs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from twofold.catalog import Catalog, NetworkPart, figure
from twofold.contracts.results import premises
from twofold.core import UnknownNameError
from twofold.perf import FabricParts

# Reach of optics by the letters that IEEE 802.3 gives them, in m: short, datacentre and far reach.
REACH_M = MappingProxyType({"SR": 50.0, "DR": 500.0, "FR": 2000.0})
TRUNK_M = 30.0  # length that the catalogue's fibre is priced at
LEAST_FIBRE_SHARE = 0.5  # of a trunk's price: plugs and making


@dataclass(frozen=True, slots=True)
class Hall:
    """How racks stand: so many in a row, rows behind one another."""

    racks_per_row: int
    rack_width_m: float
    row_pitch_m: float
    inside_rack_m: float  # of a cable, at both ends together
    slack_fraction: float


@dataclass(frozen=True, slots=True)
class CableRun:
    """Cables of one kind between the same places."""

    tier: int  # 0: card to leaf, 1: leaf to spine …
    count: int
    length_m: float


@dataclass(frozen=True, slots=True)
class FabricBill:
    """A network's parts, priced, with the cables' lengths."""

    items: tuple[premises.BuiltPart, ...]
    runs: tuple[CableRun, ...]
    cable_count: int
    length_m: float  # all cables together
    longest_m: float
    transceiver_count: int
    usd: float | None  # None where a part has no price
    power_w: float


def hall(catalog: Catalog) -> Hall:
    """The usual hall, from `facility: rack`."""

    def row(item: str) -> float:
        return figure(catalog, "rack", item).value

    return Hall(
        int(row("racks in a row")),
        row("width of one rack"),
        row("pitch of rows"),
        row("cable inside a rack, both ends"),
        row("cable slack"),
    )


def distance_m(place: Hall, one: float, other: float) -> float:
    """Cable between two racks by their numbers, along rows and aisles, with both ends and slack.

    >>> round(distance_m(Hall(16, 0.6, 2.7, 4.0, 0.1), 0, 0), 3)
    4.4
    """
    row, column = divmod(one, place.racks_per_row)
    other_row, other_column = divmod(other, place.racks_per_row)
    across = abs(row - other_row) * place.row_pitch_m + abs(column - other_column) * place.rack_width_m
    return (across + place.inside_rack_m) * (1 + place.slack_fraction)


def cable_runs(
    parts: FabricParts, nodes_by_rack: Sequence[int], cards_per_node: int, place: Hall, nodes_per_unit: int
) -> tuple[CableRun, ...]:
    """Every cable by its tier and length.

    Formula  card to leaf: rack to the middle of its unit; leaf to spine: the unit's middle to the hall's;
             higher tiers stay beside the spines
    Why      Leaves stand amid the nodes they serve, spines in the middle, so that cables are short.
    Units    m.
    Limits   Card cables of a fabric manager are counted at the length of the last unit.
    """
    unit_of: list[int] = []  # by rack: that of its first node
    before = 0
    for nodes in nodes_by_rack:
        unit_of.append(before // nodes_per_unit)
        before += nodes
    racks_of: dict[int, list[int]] = {}
    for rack, unit in enumerate(unit_of):
        racks_of.setdefault(unit, []).append(rack)
    middles = {unit: racks[len(racks) // 2] for unit, racks in racks_of.items()}
    lengths: Counter[tuple[int, float]] = Counter()
    for rack, nodes in enumerate(nodes_by_rack):
        length = distance_m(place, rack, middles[unit_of[rack]])
        lengths[0, round(length, 1)] += nodes * cards_per_node
    counts = parts.counts
    if counts.end_cables > sum(lengths.values()) and lengths:
        lengths[max(lengths)] += counts.end_cables - sum(lengths.values())
    lengths.update(_between_switches(parts, middles, len(nodes_by_rack), place))
    return tuple(CableRun(tier, count, length) for (tier, length), count in sorted(lengths.items()))


def fabric_bill(
    catalog: Catalog, parts: FabricParts, card_bytes_per_s: float, runs: Sequence[CableRun]
) -> FabricBill:
    """Switches, transceivers and cables by name with prices and power.

    Why      Copper where a cable reaches, else two transceivers and fibre; of what reaches, the cheapest.
    Units    USD, W at the vendor's typical figure.
    Source   catalogue: `network`; reaches by IEEE 802.3's letters SR, DR, FR.
    Limits   A price that is missing makes the sum None. Fibre is priced by its length.
    """
    counted: Counter[str] = Counter({parts.switch.name: parts.counts.switch_count})
    by_name = {part.name: part for part in catalog.rows(NetworkPart)}
    fibre_share = 0.0  # of the price of a 30 m trunk
    fibre_count = 0
    for run in runs:
        copper = _copper(catalog, card_bytes_per_s, run.length_m)
        if copper:
            counted[copper.name] += run.count
            continue
        card_end, switch_end = _optics(catalog, parts.switch, card_bytes_per_s, run.length_m)
        for end in (card_end if run.tier == 0 else switch_end, switch_end):
            counted[end.name] += ceil(run.count / end.port_count)
        fibre_count += run.count
        fibre_share += run.count * max(run.length_m / TRUNK_M, LEAST_FIBRE_SHARE)
    items = [_item(by_name[name], count) for name, count in counted.items()]
    if fibre_count:
        items.append(_fibre(catalog, fibre_count, fibre_share / fibre_count))
    priced = [item.unit_usd * item.count for item in items if item.unit_usd is not None]
    return FabricBill(
        tuple(items),
        tuple(runs),
        sum(run.count for run in runs),
        sum(run.count * run.length_m for run in runs),
        max((run.length_m for run in runs), default=0.0),
        sum(item.count for item in items if item.kind == "transceiver"),
        sum(priced) if len(priced) == len(items) else None,
        sum((by_name[name].power_w or 0.0) * count for name, count in counted.items()),
    )


def _between_switches(
    parts: FabricParts, middles: Mapping[int, int], rack_count: int, place: Hall
) -> Counter[tuple[int, float]]:
    lengths: Counter[tuple[int, float]] = Counter()
    if not parts.counts.tier_cables:
        return lengths
    first, *higher = parts.counts.tier_cables
    share, rest = divmod(first, len(middles))
    for index, rack in enumerate(middles.values()):
        length = distance_m(place, rack, rack_count // 2)
        lengths[1, round(length, 1)] += share + (index < rest)
    beside = round(distance_m(place, 0, 1), 1)
    for tier, count in enumerate(higher, 2):
        lengths[tier, beside] += count
    return lengths


def _copper(catalog: Catalog, rate_bytes_per_s: float, length_m: float) -> NetworkPart | None:
    """The cheapest passive or active copper cable with one port at each end that reaches."""
    able = [
        part
        for part in catalog.rows(NetworkPart)
        if part.kind == "cable"
        and part.port_count == 1
        and 0.999 * rate_bytes_per_s <= part.port_bytes_per_s <= 1.001 * rate_bytes_per_s
        and (said := re.search(r"\b(DAC|ACC|AEC|AOC) (\d+) m", part.name))
        and float(said[2]) >= length_m
    ]
    return min(able, key=lambda part: part.usd or float("inf"), default=None)


def _optics(
    catalog: Catalog, switch: NetworkPart, rate_bytes_per_s: float, length_m: float
) -> tuple[NetworkPart, NetworkPart]:
    """(at a card, at a switch): of the shortest reach that does, the cheapest per port.

    Switches take modules of two ports where their cages do: InfiniBand's, and ports that are split.
    """
    reaching = [
        part
        for part in catalog.rows(NetworkPart)
        if part.kind == "transceiver"
        and part.port_bytes_per_s >= 0.999 * rate_bytes_per_s
        and _reach_m(part) >= length_m
    ]
    if not reaching:
        raise UnknownNameError(
            f"no transceiver of {rate_bytes_per_s * 8 / 1e9:.0f} Gb/s reaches {length_m:.0f} m",
            hint="add one to a table `network.csv` beside the spec",
        )
    slowest = min(part.port_bytes_per_s for part in reaching)
    able = [part for part in reaching if part.port_bytes_per_s == slowest]

    def order(part: NetworkPart) -> tuple[float, float]:
        return _reach_m(part), (part.usd or float("inf")) / part.port_count

    single = min((part for part in able if part.port_count == 1), key=order, default=None)
    twins = [part for part in able if part.port_count > 1]
    if switch.kind != "switch_ib" and switch.port_bytes_per_s < 1.9 * rate_bytes_per_s:
        twins = []
    twin = min(twins, key=order, default=None)
    if single and twin and _reach_m(single) != _reach_m(twin):
        twin = single
    return single or twin or able[0], twin or single or able[0]


def _reach_m(part: NetworkPart) -> float:
    said = re.search(r"(SR|DR|FR)\d", part.name)
    return REACH_M[said[1]] if said else 0.0


def _item(part: NetworkPart, count: int) -> premises.BuiltPart:
    kind = "switch" if part.kind.startswith("switch") else part.kind
    return premises.BuiltPart(part.name, kind, count, part.usd)


def _fibre(catalog: Catalog, count: int, price_share: float) -> premises.BuiltPart:
    """Fibre at its mean price: by length, the catalogue's is of a 30 m trunk."""
    part = next(part for part in catalog.rows(NetworkPart) if part.name.startswith("MPO-12 fibre trunk"))
    usd = None if part.usd is None else part.usd * price_share
    return premises.BuiltPart(part.name, "cable", count, usd)
