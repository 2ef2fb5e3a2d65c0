"""A plan's servers in racks: cooling, fill, heat by rack, and what each server draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import cast

from twofold.answer import Context
from twofold.building.cooling import KINDS, Climate, CoolingKind, capex_usd_per_w, climate_of, pue
from twofold.building.entries import Entry, usd_per_kwh
from twofold.building.filling import (
    HeatMap,
    Rack,
    RackFill,
    RackLimits,
    band,
    band_verdict,
    heat_map,
    nodes_per_rack,
    rack_limits,
    serving_racks,
    training_racks,
)
from twofold.building.node_power import idle_w, node_power, planned_w, serving_w, training_w
from twofold.catalog import Catalog, Node, figure
from twofold.contracts.results import premises
from twofold.core import YEAR_H, Estimate


@dataclass(frozen=True, slots=True)
class Placed:
    """Everything about racks that the rest of a building is computed from."""

    groups: tuple[premises.RackGroup, ...]
    heat: tuple[premises.RackHeat, ...]
    racks: tuple[Rack, ...]
    cooling: tuple[premises.CoolingChoice, ...]
    kinds: dict[str, CoolingKind]  # chosen, by entry
    training_imbalance_ratio: float | None
    serving_imbalance_ratio: float | None
    warnings: tuple[str, ...]


def placed(found: Sequence[Entry], context: Context) -> Placed:
    """Racks of every run, alike and on their own; services share theirs, those cooled alike together."""
    ways = {entry.name: _ways(entry, context) for entry in found}
    told = context.spec.facility.cooling
    kinds = {name: told or cast(CoolingKind, options[0].kind) for name, options in ways.items()}
    limits = {kind: _limits(kind, context) for kind in kinds.values()}
    of_runs: list[Rack] = []
    maps: list[tuple[Sequence[Rack], HeatMap]] = []  # each run's own, and all services'
    for entry in (each for each in found if each.servers.use == "training"):
        racks = training_racks(context.catalog, entry.servers, limits[kinds[entry.name]])
        own = [replace(rack, index=len(of_runs) + rack.index) for rack in racks]
        of_runs += own
        maps.append((own, heat_map(own)))
    of_services: list[Rack] = []
    serving = [each for each in found if each.servers.use == "serving"]
    for kind in dict.fromkeys(kinds[each.name] for each in serving):
        alike = [each.servers for each in serving if kinds[each.name] == kind]
        first = len(of_runs) + len(of_services)
        of_services += serving_racks(context.catalog, alike, limits[kind], first)
    training = max((heat.imbalance_ratio for _, heat in maps), default=1.0)
    services = heat_map(of_services)
    maps.append((of_services, services))
    hot = {own[index].index for own, heat in maps for index in heat.hot_racks}
    racks = (*of_runs, *of_services)
    return Placed(
        tuple(_group(entry, racks, limits[kinds[entry.name]], context) for entry in found),
        tuple(
            premises.RackHeat(
                rack.index,
                dict(rack.holds),
                rack.load.planned_w,
                rack.load.heat_w,
                rack.binding,
                rack.index in hot,
            )
            for rack in racks
        ),
        racks,
        tuple(premises.CoolingChoice(name, options) for name, options in ways.items()),
        kinds,
        training if of_runs else None,
        services.imbalance_ratio if of_services else None,
        tuple(_misfits(found, ways, kinds)),
    )


def climate(entry: Entry, context: Context) -> Climate:
    """The spec's, or by the latitude of where the servers stand."""
    told = context.spec.facility.climate
    if told is not None:
        return told
    return climate_of(entry.region.latitude_deg) if entry.region else "temperate"


def in_use_w(entry: Entry, context: Context) -> Estimate:
    """What one of an entry's servers draws while it works: in training, or at the service's mean load."""
    if entry.servers.use == "training":
        return training_w(context.catalog, entry.power)
    return serving_w(context.catalog, entry.power, entry.busy_fraction)


def node_draws(found: Sequence[Entry], context: Context) -> tuple[premises.NodeDraw, ...]:
    """Each server type once."""
    by_node = {entry.servers.node.name: entry for entry in reversed(found)}
    return tuple(
        premises.NodeDraw(
            name,
            entry.power.stated_w,
            entry.power.nameplate_w,
            in_use_w(entry, context),
            idle_w(context.catalog, entry.power),
            {part.name: part.power_w for part in entry.power.parts},
        )
        for name, entry in reversed(by_node.items())
    )


def _ways(entry: Entry, context: Context) -> tuple[premises.CoolingWay, ...]:
    return cooling_options(
        context.catalog,
        entry.servers.node,
        entry.servers.count,
        usd_per_kwh(entry.region, context),
        climate(entry, context),
        rack_power_w=context.spec.facility.rack_power_w,
        rack_units=context.spec.facility.rack_units,
        ports=context.spec.facility.rack_ports,
    )


def _limits(kind: CoolingKind, context: Context) -> RackLimits:
    told = context.spec.facility
    return rack_limits(
        context.catalog,
        kind,
        power_w=told.rack_power_w,
        rack_units=told.rack_units,
        ports=told.rack_ports,
    )


def _group(entry: Entry, racks: Sequence[Rack], limits: RackLimits, context: Context) -> premises.RackGroup:
    own = [rack for rack in racks if entry.name in dict(rack.holds)]
    fill = nodes_per_rack(context.catalog, entry.servers.node, limits)
    use = entry.servers.use
    fullest_w = max((rack.load.planned_w for rack in own), default=0.0)
    low_w, high_w = band(context.catalog, use)
    return premises.RackGroup(
        entry.name,
        use,
        entry.servers.node.name,
        entry.servers.count,
        entry.owned,
        len(own),
        max((dict(rack.holds)[entry.name] for rack in own), default=0),
        fill.binding,
        tuple(premises.RackLimit(limit, nodes) for limit, nodes in fill.by_limit),
        fullest_w,
        band_verdict(context.catalog, use, fullest_w),
        low_w,
        high_w,
        limits.cooling,
        limits.cooling_w,
        next(option.why for option in _ways(entry, context) if option.kind == limits.cooling),
    )


def _misfits(
    found: Sequence[Entry],
    ways: dict[str, tuple[premises.CoolingWay, ...]],
    kinds: dict[str, CoolingKind],
) -> list[str]:
    """Servers that no rack holds as it is cooled, with what would hold them."""
    lines = []
    for entry in found:
        chosen = next(option for option in ways[entry.name] if option.kind == kinds[entry.name])
        if not chosen.feasible:
            able = [option.kind.replace("_", " ") for option in ways[entry.name] if option.feasible]
            would = f"; would: {', '.join(able)}" if able else ""
            lines.append(f"{entry.name}: no rack holds {entry.servers.node.name} with {chosen.why}{would}")
    return lines


W_PER_KW = 1e3
# A year that is cheaper by less is within the tables' own ranges: no reason for more plumbing.
TIE_RATIO = 1.03
# Take servers or power of their own: chosen where asked for, or where nothing else does.
ON_REQUEST: tuple[CoolingKind, ...] = ("immersion", "liquid_800_v")


def cooling_options(
    catalog: Catalog,
    node: Node,
    node_count: int,
    usd_per_kwh: float,
    climate: Climate = "temperate",
    *,
    rack_power_w: float | None = None,
    rack_units: int | None = None,
    ports: int | None = None,
) -> tuple[premises.CoolingWay, ...]:
    """Every way to cool these nodes: feasible ones first, the cheapest year first, new kinds behind them.

    Of years that differ by less than 3 % the simplest way comes first.

    Formula  year = E·PUE·price + (capex + racks · rack)/life
    Why      Denser cooling saves racks and energy, and costs more to build.
    Units    USD a year; E is the energy of a year at the vendor's maximum.
    Source   `facility: rack_kw, pue, capex_facility, depreciation, rack`.
    Limits   Direct-to-chip takes the liquid-cooled variant of a server, whose power is taken to be the same.
    """
    options = [
        _option(
            catalog,
            node,
            node_count,
            usd_per_kwh,
            climate,
            rack_limits(catalog, kind, power_w=rack_power_w, rack_units=rack_units, ports=ports),
        )
        for kind in KINDS
    ]
    usual = [each.usd_per_year for each in options if each.feasible and each.kind not in ON_REQUEST]
    best_usd = min(usual, default=0.0)

    def order(option: premises.CoolingWay) -> tuple[bool, bool, bool, float]:
        ties = option.usd_per_year <= TIE_RATIO * best_usd
        return (
            not option.feasible,
            option.kind in ON_REQUEST,
            not ties,
            list[str](KINDS).index(option.kind) if ties else option.usd_per_year,
        )

    return tuple(sorted(options, key=order))


def _option(
    catalog: Catalog,
    node: Node,
    node_count: int,
    usd_per_kwh: float,
    climate: Climate,
    limits: RackLimits,
) -> premises.CoolingWay:
    kind = limits.cooling
    fill = nodes_per_rack(catalog, node, limits)
    node_w, per_rack = planned_w(node_power(catalog, node)), fill.nodes_per_rack
    racks = ceil(node_count / per_rack) if per_rack else 0
    ratio = pue(catalog, kind, climate)
    energy_usd = node_count * node_w / W_PER_KW * YEAR_H * ratio * usd_per_kwh
    built_usd = node_count * node_w * capex_usd_per_w(catalog, kind).value
    racks_usd = racks * figure(catalog, "rack", "rack with power strips").value
    years = figure(catalog, "depreciation", "facility useful life").value
    year_usd = energy_usd + (built_usd + racks_usd) / years
    why = _why(node, node_w, kind, limits.cooling_w, fill)
    return premises.CoolingWay(kind, per_rack > 0, per_rack, racks, ratio, year_usd, why)


def _why(node: Node, node_w: float, kind: CoolingKind, limit_w: float, fill: RackFill) -> str:
    """`contained air: 3 nodes of 14.3 kW in a rack of at most 45 kW, bound by cooling`."""
    words, kw = kind.replace("_", " "), f"{node_w / W_PER_KW:.4g} kW"
    if fill.nodes_per_rack == 0 and limit_w >= node_w:
        return f"{words}: {node.rack_units} U with {kw} is too dense for it"
    nodes = f"{fill.nodes_per_rack} node{'s' if fill.nodes_per_rack != 1 else ''} of {kw}"
    return f"{words}: {nodes} in a rack of at most {limit_w / W_PER_KW:.4g} kW, bound by {fill.binding}"
