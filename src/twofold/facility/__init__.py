"""The building: racks, cooling, power, fabric, storage, sites, and what rules ask of them."""

from twofold.facility.compliance import compliance_of
from twofold.facility.compliance_costs import Rent
from twofold.facility.compliance_regimes import find_regime, permits, places_in_words, refusal_reason
from twofold.facility.compliance_system import RuledFleet, RuledSystem
from twofold.facility.cooling import (
    KINDS,
    Climate,
    CoolingKind,
    capex_usd_per_w,
    climate_of,
    cooling_limit_w,
    pue,
    wue_l_per_kwh,
)
from twofold.facility.density import CoolingOption, cooling_options
from twofold.facility.fabric_graph import FabricGraph, build_fat_tree, build_rail_optimised
from twofold.facility.figures import figure
from twofold.facility.node_power import (
    NodePower,
    PowerPart,
    draw_w,
    idle_w,
    is_liquid_cooled,
    network_cards,
    node_power,
    planned_w,
    serving_w,
    training_peak_w,
    training_w,
)
from twofold.facility.racks import (
    HeatMap,
    NodeList,
    Rack,
    RackFill,
    RackLimits,
    band,
    band_verdict,
    even_counts,
    heat_map,
    nodes_per_rack,
    rack_limits,
    serving_racks,
    training_racks,
)
from twofold.facility.topology import (
    FabricCounts,
    FabricParts,
    fabric_parts,
    fat_tree,
    rail_optimised,
    rail_parts,
)

COOLING_KINDS = tuple(KINDS)

__all__ = [
    "COOLING_KINDS",
    "Climate",
    "CoolingKind",
    "CoolingOption",
    "FabricCounts",
    "FabricGraph",
    "FabricParts",
    "HeatMap",
    "NodeList",
    "NodePower",
    "PowerPart",
    "Rack",
    "RackFill",
    "RackLimits",
    "Rent",
    "RuledFleet",
    "RuledSystem",
    "band",
    "band_verdict",
    "build_fat_tree",
    "build_rail_optimised",
    "capex_usd_per_w",
    "climate_of",
    "compliance_of",
    "cooling_limit_w",
    "cooling_options",
    "draw_w",
    "even_counts",
    "fabric_parts",
    "fat_tree",
    "figure",
    "find_regime",
    "heat_map",
    "idle_w",
    "is_liquid_cooled",
    "network_cards",
    "node_power",
    "nodes_per_rack",
    "permits",
    "places_in_words",
    "planned_w",
    "pue",
    "rack_limits",
    "rail_optimised",
    "rail_parts",
    "refusal_reason",
    "serving_racks",
    "serving_w",
    "training_peak_w",
    "training_racks",
    "training_w",
    "wue_l_per_kwh",
]
