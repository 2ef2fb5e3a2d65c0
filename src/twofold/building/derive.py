"""Where estimates of building and rules come from, down to rows of the tables of servers and facilities."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twofold.answer.derivation import Noted, assumed_leaf, figures_of, spec_leaf
from twofold.building.entries import Entry, electricity, grid_gco2_per_kwh
from twofold.building.power import BESIDE, Housed, beside_w, efficiency
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import ComplianceFigure, FacilityFigure
from twofold.contracts.results import compliance, premises
from twofold.contracts.results.plan import Derivation, Input
from twofold.core import record
from twofold.core.display import format_si, format_usd
from twofold.core.estimate import Source

SWING = "daily swing of a grid with much solar"
DRAWN = {  # rows of power_fraction, by use
    "training": ("GPU, LLM training steady (of TDP)",),
    "serving": ("GPU, inference token phase (of TDP)", "GPU, idle with context (of TDP)"),
}


def building_derivations(
    building: premises.Building, housed: Housed, book: record.Book
) -> Iterator[Derivation]:
    """Where a building's estimates come from: what was noted of each run and service, and its leaves."""
    known: dict[str, Input | Sequence[Input]] = {"daily swing": _facility("carbon", SWING, housed)}
    shown: dict[str, str] = {}
    for host in housed.entries:
        shown.setdefault(host.servers.node.name, f"draw.a server of {host.name}")
        known |= _of_place(host, housed)
        for entry in (host, *host.guests):
            leaves = _of_entry(entry, host, housed)
            known |= {f"{entry.name}.{name}": each for name, each in leaves.items()}
    places = {shown[node.node]: f"nodes.{index}.in_use_w" for index, node in enumerate(building.nodes)}
    yield from Noted("building", book, figures_of(building), known, places).rows()


def _of_entry(entry: Entry, host: Entry, housed: Housed) -> dict[str, Input | Sequence[Input]]:
    """What the draw of a run's or service's servers and their year rest on, by the names that notes use."""
    power, node = entry.power, entry.servers.node
    own, busy = efficiency(host, housed), f"{100 * entry.busy_fraction:.3g} %"
    at_rest = f"accelerators.csv {entry.machine.accelerator} idle_w, or their share of the power limit"
    shares = [_facility("power_fraction", item, housed) for item in DRAWN[entry.servers.use]]
    in_year = assumed_leaf("share of a year", "100 %", "services run all year")
    if entry.servers.use == "training":
        in_year = assumed_leaf("share of a year", busy, "runs as often as they repeat")
    else:
        shares.append(assumed_leaf("busy", busy, "mean over peak of the traffic, without spares"))
    fleet, used = "the fleet as planned", entry.machine.accelerator_count / node.accelerator_count
    watts = format_si(power.accelerators_w, "W")
    return {
        "servers": assumed_leaf("servers", f"{entry.servers.count:,} × {node.name}", fleet),
        "servers_used": assumed_leaf("servers in use", f"{used:,.4g}", fleet),
        "accelerators": Input("accelerators", watts, "", Source.VENDOR.value, f"nodes.csv {node.name}"),
        "share": shares,
        "host": assumed_leaf("host", format_si(power.host_w, "W"), "by its parts: facility.csv node_part"),
        "host_share": _facility("node_part", "host under load (of its maximum)", housed),
        "fans": assumed_leaf("fans", format_si(power.fans_w, "W"), "facility.csv node_part: fans"),
        "efficiency": _facility("efficiency", "server PSU titanium at half load", housed),
        "idle": assumed_leaf("accelerators at rest", format_si(power.accelerators_idle_w, "W"), at_rest),
        "host_idle": _facility("node_part", "host idle (of its maximum)", housed),
        "beside": assumed_leaf(
            "networks and storage",
            format_si(beside_w(entry, housed), "W"),
            f"as built, at least facility.csv power_fraction: {BESIDE}",
        ),
        "in_year": in_year,
        "pue": assumed_leaf("PUE", f"{own.pue_ratio:.3g}", f"facility.csv pue, or regions.csv: {own.source}"),
    }


def _of_place(entry: Entry, housed: Housed) -> dict[str, Input]:
    """What a year's energy costs and emits where an entry stands."""
    tariff = electricity([entry.region], housed.context)
    grid = f"{grid_gco2_per_kwh(entry.region, housed.context):.3g} g/kWh"
    where = f"regions.csv {entry.place}" if entry.place else "regions.csv, the middle of all"
    return {
        f"tariff.{entry.place}": assumed_leaf("tariff", f"{tariff.usd:.3g} $/kWh", tariff.source),
        f"grid.{entry.place}": assumed_leaf("grid", grid, where),
    }


def _facility(category: str, item: str, housed: Housed) -> Input:
    rows = housed.context.catalog.facility(category)
    return _figure(next(row for row in rows if row.item == item), f"facility.csv {category}")


def _figure(row: ComplianceFigure | FacilityFigure, reference: str) -> Input:
    spread = f" [{row.low:,.4g}–{row.high:,.4g}]" if row.low is not None and row.high is not None else ""
    letter = Source.VENDOR if row.confidence == "vendor" else Source.ASSUMED
    return Input(row.item, f"{row.value:,.6g} {row.unit}{spread}", "", letter.value, reference)


def compliance_derivations(
    rules: compliance.Compliance, book: record.Book, catalog: Catalog
) -> Iterator[Derivation]:
    """Where the estimates of the rules come from: the bill, its uplift at each size, the logs."""
    logs, where = rules.logs, f"regimes {rules.regime}, or spec compliance.retention"
    days = {"online": logs.online_days, "archive": logs.retention_days - logs.online_days}
    known: dict[str, Input | Sequence[Input]] = {
        name: assumed_leaf("days", f"{each:,.4g} d", where) for name, each in days.items()
    }
    known["requests"] = spec_leaf("requests", format_si(logs.requests_per_s, "1/s"), "traffic")
    for row in catalog.rows(ComplianceFigure):
        known[row.item] = _figure(row, f"compliance_figures {row.category}: {row.item}")
    for name, note in book.items():
        match name.rpartition(".")[2], note.value:
            case "lines" | "recurring lines", list() | tuple() as items:
                known[name] = [_line(item) for item in items]
            case "base_usd", float() as usd:
                known[name] = Input("machines", format_usd(usd), "", "v", "prices of the same provider")
            case ("nodes" | "tokens") as label, (int() | float()) as count:
                known[name] = assumed_leaf(label, f"{count:,.0f}", "the fleets as planned, spec traffic")
    figures = figures_of(replace(rules, items=(), controls=(), mandates=(), permitted=(), refused=()))
    yield from Noted("compliance", book, figures, known).rows()


def _line(item: compliance.ComplianceItem) -> Input:
    line = item.line
    text = f"{format_usd(line.total_usd)} = {line.quantity:,.6g} {line.unit} × {line.unit_usd:,.6g} $"
    letter = Source.VENDOR if item.confidence == "high" else Source.ASSUMED
    return Input(line.what, text, "", letter.value, line.source)
