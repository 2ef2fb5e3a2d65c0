"""Cables with their lengths from the rows of racks, the medium for each, and what the whole network costs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import NetworkPart
from twofold.contracts.results import premises
from twofold.perf.topology import FabricParts

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
    racks_of: dict[int, list[int]] = {}  # by unit; a rack is of that of its first node
    before = 0
    for rack, nodes in enumerate(nodes_by_rack):
        racks_of.setdefault(before // nodes_per_unit, []).append(rack)
        before += nodes
    middles = {unit: racks[len(racks) // 2] for unit, racks in racks_of.items()}
    lengths: Counter[tuple[int, float]] = Counter()
    for unit, racks in racks_of.items():
        for rack in racks:
            length = distance_m(place, rack, middles[unit])
            lengths[0, round(length, 1)] += nodes_by_rack[rack] * cards_per_node
    counts = parts.counts
    if counts.end_cables > sum(lengths.values()) and lengths:
        lengths[max(lengths)] += counts.end_cables - sum(lengths.values())
    if counts.tier_cables:
        first, *higher = counts.tier_cables
        share, rest = divmod(first, len(middles))
        for index, rack in enumerate(middles.values()):
            length = distance_m(place, rack, len(nodes_by_rack) // 2)
            lengths[1, round(length, 1)] += share + (index < rest)
        for tier, count in enumerate(higher, 2):
            lengths[tier, round(distance_m(place, 0, 1), 1)] += count
    return tuple(CableRun(tier, count, length) for (tier, length), count in sorted(lengths.items()))


def fabric_bill(
    catalog: Catalog,
    parts: FabricParts,
    card_bytes_per_s: float,
    runs: Sequence[CableRun],
    *,
    name: str,
    fabric: str,
    shape: str,
    oversubscription_ratio: float,
    survives: str,
    note: str,
) -> premises.BuiltNetwork:
    """Switches, transceivers and cables by name with prices and power; unbuilt where no optic reaches.

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
        copper = _copper(by_name.values(), card_bytes_per_s, run.length_m)
        if copper:
            counted[copper.name] += run.count
            continue
        optics = _optics(by_name.values(), parts.switch, card_bytes_per_s, run.length_m)
        if optics is None:
            return unbuilt(name, fabric, card_bytes_per_s)
        card_end, switch_end = optics
        for end in (card_end if run.tier == 0 else switch_end, switch_end):
            counted[end.name] += ceil(run.count / end.port_count)
        fibre_count += run.count
        fibre_share += run.count * max(run.length_m / TRUNK_M, LEAST_FIBRE_SHARE)
    items = []
    for part, count in ((by_name[each], count) for each, count in counted.items()):
        kind = "switch" if part.kind.startswith("switch") else part.kind
        items.append(premises.BuiltPart(part.name, kind, count, part.usd))
    if fibre_count:  # at its mean price: by length, the catalogue's is of a 30 m trunk
        trunk = next(part for part in by_name.values() if part.name.startswith("MPO-12 fibre trunk"))
        usd = None if trunk.usd is None else trunk.usd * (fibre_share / fibre_count)
        items.append(premises.BuiltPart(trunk.name, "cable", fibre_count, usd))
    priced = [item.unit_usd * item.count for item in items if item.unit_usd is not None]
    cables = sum(run.count for run in runs)
    return premises.BuiltNetwork(
        name,
        shape,
        parts.switch.name,
        parts.counts.switches,
        parts.port_count,
        card_bytes_per_s,
        cables,
        sum(item.count for item in items if item.kind == "transceiver"),
        sum(run.count * run.length_m for run in runs) / cables,
        max(run.length_m for run in runs),
        oversubscription_ratio,
        survives,
        sum(priced) if len(priced) == len(items) else None,
        sum((by_name[each].power_w or 0.0) * count for each, count in counted.items()),
        tuple(items),
        note,
    )


def unbuilt(name: str, fabric: str, rate: float) -> premises.BuiltNetwork:
    """The network of a run or service of whose rate the catalogue has no switch, or no optic that reaches."""
    note = f"no switch or optic of the catalogue has {rate * 8 / 1e9:.0f} Gb/s for {fabric}"
    return premises.BuiltNetwork(
        name, "not known", "", (), 0, rate, 0, 0, 0.0, 0.0, 1.0, "", None, 0.0, (), note
    )


def _copper(known: Iterable[NetworkPart], rate_bytes_per_s: float, length_m: float) -> NetworkPart | None:
    """The cheapest passive or active copper cable with one port at each end that reaches."""
    able = [
        part
        for part in known
        if part.kind == "cable"
        and part.port_count == 1
        and 0.999 * rate_bytes_per_s <= part.port_bytes_per_s <= 1.001 * rate_bytes_per_s
        and (said := re.search(r"\b(DAC|ACC|AEC|AOC) (\d+) m", part.name))
        and float(said[2]) >= length_m
    ]
    return min(able, key=lambda part: part.usd or float("inf"), default=None)


def _optics(
    known: Iterable[NetworkPart], switch: NetworkPart, rate_bytes_per_s: float, length_m: float
) -> tuple[NetworkPart, NetworkPart] | None:
    """(at a card, at a switch): of the shortest reach that does, the cheapest per port; None: none does.

    Switches take modules of two ports where their cages do: InfiniBand's, and ports that are split.
    """
    reaching = [
        part
        for part in known
        if part.kind == "transceiver"
        and part.port_bytes_per_s >= 0.999 * rate_bytes_per_s
        and _reach_m(part) >= length_m
    ]
    if not reaching:
        return None
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
