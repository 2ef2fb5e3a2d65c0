"""Where a building's estimates come from, down to rows of the tables of servers, regions and facilities."""

from collections.abc import Iterator

from twofold.answer import derived, path_input
from twofold.contracts.results import Building, Derivation, Input
from twofold.core import Source

AT = "building"


def building_derivations(building: Building) -> Iterator[Derivation]:
    """One derivation for each estimate of the building."""
    uses = {group.node: group.use for group in building.racks}
    for index, node in enumerate(building.nodes):
        row = (
            "GPU, LLM training steady (of TDP)"
            if uses.get(node.node) == "training"
            else "GPU, inference token phase (of TDP)"
        )
        yield derived(
            f"{AT}.nodes.{index}.in_use_w",
            "(accelerators × share + host × share + fans by the cube of their speed) / efficiency",
            _leaf("accelerators", f"{node.parts['accelerators']:,.0f} W", f"nodes.csv {node.node}", "v"),
            _leaf("share of TDP", "as fleets measured it", f"facility.csv power_fraction {row}", "v"),
            _leaf("host", "by its parts", "facility.csv node_part", "a"),
        )
    counts = {node.node: 0 for node in building.nodes}
    for group in building.racks:
        counts[group.node] += group.node_count
    yield derived(
        f"{AT}.power.in_use_w",
        "servers × what each draws",
        *(
            path_input(f"{counts[node.node]:,} × {node.node}", node.in_use_w, f"{AT}.nodes.{index}.in_use_w")
            for index, node in enumerate(building.nodes)
        ),
    )
    yield from _year(building)


def _year(building: Building) -> Iterator[Derivation]:
    year, power = building.year, building.power
    meter = path_input("at the meter", year.meter_j, f"{AT}.year.meter_j")
    yield derived(
        f"{AT}.year.meter_j",
        "what is drawn × share of a year × PUE, networks and rest besides",
        path_input("drawn in use", power.in_use_w, f"{AT}.power.in_use_w"),
        _leaf("PUE", f"{power.pue_ratio:.3g}", f"facility.csv pue, or regions.csv: {power.pue_source}", "a"),
    )
    tariff, grid = f"{year.electricity_usd_per_kwh:.3g} $/kWh", f"{year.grid_gco2_per_kwh:.3g} g/kWh"
    yield derived(
        f"{AT}.year.energy_usd",
        "energy × tariff",
        meter,
        _leaf("tariff", tariff, f"regions.csv {year.place}", "a"),
    )
    yield derived(
        f"{AT}.year.carbon_gco2",
        "energy × grid, hour by hour",
        meter,
        _leaf("grid", grid, f"regions.csv {year.place}", "a"),
        _leaf("daily swing", "assumed", "facility.csv carbon daily swing", "a"),
    )


def _leaf(label: str, text: str, reference: str, letter: str) -> Input:
    return Input(label, text, "", Source(letter).value, reference)
