"""A plan's servers in racks: cooling, fill, heat by rack, and what each server draws."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import cast

from twofold.answer.context import Context
from twofold.building import filling
from twofold.building.cooling import KINDS, Climate, CoolingKind, capex_usd_per_w, climate_of, pue
from twofold.building.entries import Entry, electricity
from twofold.building.node_power import node_power, resting_w, serving_w, training_w
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Node
from twofold.contracts.results import premises
from twofold.core import record
from twofold.core.estimate import Estimate
from twofold.core.quantity import YEAR_H

W_PER_KW = 1e3
# A year that is cheaper by less is within the tables' own ranges: no reason for more plumbing.
TIE_RATIO = 1.03
# Take servers or power of their own: chosen where asked for, or where nothing else does.
ON_REQUEST: tuple[CoolingKind, ...] = ("immersion", "liquid_800_v")


def placed(found: Sequence[Entry], context: Context) -> tuple[premises.Racks, tuple[str, ...]]:
    """Racks of every run, alike and on their own; services share theirs, those cooled alike together.

    And which servers no rack holds, in words.
    """
    catalog, told = context.catalog, context.spec.facility
    limits = {
        kind: filling.rack_limits(
            catalog, kind, power_w=told.rack_power_w, rack_units=told.rack_units, ports=told.rack_ports
        )
        for kind in KINDS
    }
    ways: dict[str, tuple[premises.CoolingWay, ...]] = {}
    for entry in found:
        node, count, usd = entry.servers.node, entry.servers.count, electricity([entry.region], context).usd
        ways[entry.name] = cooling_options(catalog, node, count, usd, climate(entry, context), limits)
    kinds = {name: told.cooling or cast(CoolingKind, options[0].kind) for name, options in ways.items()}
    # Each run's own, and all services'.
    own = [
        filling.training_racks(catalog, entry.servers, limits[kinds[entry.name]])
        for entry in found
        if entry.servers.use == "training"
    ]
    serving = [each for each in found if each.servers.use == "serving"]
    services: list[filling.Rack] = []
    for kind in dict.fromkeys(kinds[each.name] for each in serving):
        alike = [each.servers for each in serving if kinds[each.name] == kind]
        services += filling.serving_racks(catalog, alike, limits[kind])
    ratios, over = zip(*(filling.unevenness(racks) for racks in (*own, services)), strict=True)
    hot = [each for racks in over for each in racks]
    racks = [rack for racks in (*own, services) for rack in racks]
    heat = tuple(
        premises.RackHeat(index, dict(rack.holds), load.planned_w, load.heat_w, rack.binding, hot[index])
        for index, (rack, load) in enumerate((rack, rack.load) for rack in racks)
    )
    groups, warnings = [], []
    for entry in found:
        chosen = next(way for way in ways[entry.name] if way.kind == kinds[entry.name])
        groups.append(_group(entry, heat, limits[kinds[entry.name]], chosen.why, catalog))
        if not chosen.feasible:
            able = [way.kind.replace("_", " ") for way in ways[entry.name] if way.feasible]
            would = f"; would: {', '.join(able)}" if able else ""
            warnings.append(f"{entry.name}: no rack holds {entry.servers.node.name} with {chosen.why}{would}")
    made = premises.Racks(
        tuple(groups),
        heat,
        max(ratios[:-1]) if any(own) else None,
        ratios[-1] if services else None,
        tuple(premises.CoolingChoice(name, options) for name, options in ways.items()),
    )
    return made, tuple(warnings)


def climate(entry: Entry, context: Context) -> Climate:
    """The spec's, or by the latitude of where the servers stand."""
    if told := context.spec.facility.climate:
        return told
    return climate_of(entry.region.latitude_deg) if entry.region else "temperate"


def in_use_w(entry: Entry, context: Context) -> Estimate:
    """What one of an entry's servers draws while it works: in training, or at the service's mean load."""
    training = entry.servers.use == "training"
    draws = (
        training_w(context.catalog, entry.power)
        if training
        else serving_w(context.catalog, entry.power, entry.busy_fraction)
    )
    said = "(accelerators × share + host × share + fans by the cube of their speed) / efficiency"
    used = ("accelerators", "share", "host", "host_share", "fans", "efficiency")
    own = (f"{entry.name}.{each}" for each in used)
    return record.note(f"draw.a server of {entry.name}", draws, said, *own)


def node_draws(found: Sequence[Entry], context: Context) -> tuple[premises.NodeDraw, ...]:
    """Each server type once."""
    by_node = {entry.servers.node.name: entry for entry in reversed(found)}
    return tuple(
        premises.NodeDraw(
            name,
            entry.power.stated_w,
            entry.power.nameplate_w,
            in_use_w(entry, context),
            resting_w(context.catalog, entry.power).value,
            dict(entry.power.parts),
        )
        for name, entry in reversed(by_node.items())
    )


def _group(
    entry: Entry, heat: Sequence[premises.RackHeat], limits: filling.RackLimits, why: str, catalog: Catalog
) -> premises.RackGroup:
    own = [rack for rack in heat if entry.name in rack.holds]
    servers, use = entry.servers, entry.servers.use
    fill = filling.nodes_per_rack(catalog, servers.node, limits)
    fullest_w = max((rack.planned_w for rack in own), default=0.0)
    band = figure(catalog, "rack", f"{use} rack band")
    return premises.RackGroup(
        entry.name,
        use,
        servers.node.name,
        servers.count,
        entry.owned,
        len(own),
        max((rack.holds[entry.name] for rack in own), default=0),
        fill.binding,
        tuple(premises.RackLimit(limit, nodes) for limit, nodes in fill.by_limit),
        fullest_w,
        filling.band_verdict(catalog, use, fullest_w),
        band.low,
        band.high,
        limits.cooling,
        limits.cooling_w,
        why,
    )


def cooling_options(
    catalog: Catalog,
    node: Node,
    node_count: int,
    usd_per_kwh: float,
    climate: Climate,
    limits: Mapping[CoolingKind, filling.RackLimits],
) -> tuple[premises.CoolingWay, ...]:
    """Every way to cool these nodes: feasible ones first, the cheapest year first, new kinds behind them.

    Of years that differ by less than 3 % the simplest way comes first.

    Formula  year = E·PUE·price + (capex + racks · rack)/life
    Why      Denser cooling saves racks and energy, and costs more to build.
    Units    USD a year; E is the energy of a year at the vendor's maximum.
    Source   `facility: rack_kw, pue, capex_facility, depreciation, rack`.
    Limits   Direct-to-chip takes the liquid-cooled variant of a server, whose power is taken to be the same.
    """
    rack_usd = figure(catalog, "rack", "rack with power strips").value
    years = figure(catalog, "depreciation", "facility useful life").value
    node_w = node_power(catalog, node).planned_w
    options = []
    for kind in KINDS:
        fill = filling.nodes_per_rack(catalog, node, limits[kind])
        per_rack, ratio = fill.nodes_per_rack, pue(catalog, kind, climate)
        racks = ceil(node_count / per_rack) if per_rack else 0
        energy_usd = node_count * node_w / W_PER_KW * YEAR_H * ratio * usd_per_kwh
        built_usd = node_count * node_w * capex_usd_per_w(catalog, kind).value
        year_usd = energy_usd + (built_usd + racks * rack_usd) / years
        # `contained air: 3 nodes of 14.3 kW in a rack of at most 45 kW, bound by cooling`
        words, kw = kind.replace("_", " "), f"{node_w / W_PER_KW:.4g} kW"
        if not per_rack and limits[kind].cooling_w >= node_w:
            why = f"{words}: {node.rack_units} U with {kw} is too dense for it"
        else:
            nodes = f"{per_rack} node{'s' if per_rack != 1 else ''} of {kw}"
            most = f"{limits[kind].cooling_w / W_PER_KW:.4g} kW"
            why = f"{words}: {nodes} in a rack of at most {most}, bound by {fill.binding}"
        options.append(premises.CoolingWay(kind, per_rack > 0, per_rack, racks, ratio, year_usd, why))
    usual = [each.usd_per_year for each in options if each.feasible and each.kind not in ON_REQUEST]
    best_usd = min(usual, default=0.0)

    def order(option: premises.CoolingWay) -> tuple[bool, bool, bool, float]:
        ties = option.usd_per_year <= TIE_RATIO * best_usd
        place = list[str](KINDS).index(option.kind) if ties else option.usd_per_year
        return not option.feasible, option.kind in ON_REQUEST, not ties, place

    return tuple(sorted(options, key=order))
