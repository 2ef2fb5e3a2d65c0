"""A plan's servers in racks: cooling, fill, heat by rack, and what each server draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from twofold.answer import Context
from twofold.building.entries import Entry, usd_per_kwh
from twofold.contracts.results import CoolingChoice, CoolingWay, NodeDraw, RackGroup, RackHeat, RackLimit
from twofold.core import Estimate
from twofold.facility import (
    Climate,
    CoolingKind,
    HeatMap,
    Rack,
    RackLimits,
    band,
    band_verdict,
    climate_of,
    cooling_options,
    heat_map,
    idle_w,
    nodes_per_rack,
    rack_limits,
    serving_racks,
    serving_w,
    training_racks,
    training_w,
)


@dataclass(frozen=True, slots=True)
class Placed:
    """Everything about racks that the rest of a building is computed from."""

    groups: tuple[RackGroup, ...]
    heat: tuple[RackHeat, ...]
    racks: tuple[Rack, ...]
    cooling: tuple[CoolingChoice, ...]
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
            RackHeat(
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
        tuple(CoolingChoice(name, options) for name, options in ways.items()),
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


def node_draws(found: Sequence[Entry], context: Context) -> tuple[NodeDraw, ...]:
    """Each server type once."""
    by_node = {entry.servers.node.name: entry for entry in reversed(found)}
    return tuple(
        NodeDraw(
            name,
            entry.power.stated_w,
            entry.power.nameplate_w,
            in_use_w(entry, context),
            idle_w(context.catalog, entry.power),
            {part.name: part.power_w for part in entry.power.parts},
        )
        for name, entry in reversed(by_node.items())
    )


def _ways(entry: Entry, context: Context) -> tuple[CoolingWay, ...]:
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


def _group(entry: Entry, racks: Sequence[Rack], limits: RackLimits, context: Context) -> RackGroup:
    own = [rack for rack in racks if entry.name in dict(rack.holds)]
    fill = nodes_per_rack(context.catalog, entry.servers.node, limits)
    use = entry.servers.use
    fullest_w = max((rack.load.planned_w for rack in own), default=0.0)
    low_w, high_w = band(context.catalog, use)
    return RackGroup(
        entry.name,
        use,
        entry.servers.node.name,
        entry.servers.count,
        entry.owned,
        len(own),
        max((dict(rack.holds)[entry.name] for rack in own), default=0),
        fill.binding,
        tuple(RackLimit(limit, nodes) for limit, nodes in fill.by_limit),
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
    ways: dict[str, tuple[CoolingWay, ...]],
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
