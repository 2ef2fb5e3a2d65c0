"""Air or liquid: every way to cool so many servers, with the racks and the year that it costs."""

from math import ceil

from twofold.catalog import Catalog, Node
from twofold.contracts.results import CoolingWay
from twofold.core import YEAR_H
from twofold.facility.cooling import KINDS, Climate, CoolingKind, capex_usd_per_w, pue
from twofold.facility.figures import figure
from twofold.facility.node_power import node_power, planned_w
from twofold.facility.racks import RackFill, RackLimits, nodes_per_rack, rack_limits

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
) -> tuple[CoolingWay, ...]:
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

    def order(option: CoolingWay) -> tuple[bool, bool, bool, float]:
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
) -> CoolingWay:
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
    return CoolingWay(kind, per_rack > 0, per_rack, racks, ratio, year_usd, why)


def _why(node: Node, node_w: float, kind: CoolingKind, limit_w: float, fill: RackFill) -> str:
    """`contained air: 3 nodes of 14.3 kW in a rack of at most 45 kW, bound by cooling`."""
    words, kw = kind.replace("_", " "), f"{node_w / W_PER_KW:.4g} kW"
    if fill.nodes_per_rack == 0 and limit_w >= node_w:
        return f"{words}: {node.rack_units} U with {kw} is too dense for it"
    nodes = f"{fill.nodes_per_rack} node{'s' if fill.nodes_per_rack != 1 else ''} of {kw}"
    return f"{words}: {nodes} in a rack of at most {limit_w / W_PER_KW:.4g} kW, bound by {fill.binding}"
