"""Where a building's estimates come from, down to rows of the tables of servers, regions and facilities."""

from collections.abc import Iterator

from twofold.answer import derived, path_input
from twofold.catalog import Catalog, ComplianceFigure
from twofold.contracts.results import Compliance, Derivation, Input, compliance, premises
from twofold.core import Source, format_si, format_usd

AT = "building"


def building_derivations(building: premises.Building) -> Iterator[Derivation]:
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


ROOT = "compliance"
LOGS = ("audit record", "text of one token", "attribution of one output token", "envelope")


def compliance_derivations(rules: Compliance, catalog: Catalog) -> Iterator[Derivation]:
    """Every estimate of the part: the bill, its uplift at each size, the logs."""
    once = [item for item in rules.items if item.recurs == "once"]
    yield derived(
        f"{ROOT}.first_year_usd",
        "sum of the lines; half of each line's spread is common to all, half is its own",
        *map(_line, rules.items),
    )
    yield derived(
        f"{ROOT}.later_year_usd",
        "the first year without what is paid once",
        path_input("first year", rules.first_year_usd, f"{ROOT}.first_year_usd"),
        *map(_line, once),
    )
    uplifts = [(rules.uplift, f"{ROOT}.uplift")] if rules.uplift else []
    uplifts += [(uplift, f"{ROOT}.sizes.{uplift.accelerator_count}") for uplift in rules.sizes]
    for uplift, path in uplifts:
        yield from _uplift(uplift, path, rules, catalog)
    yield from _logs(rules, catalog)


def _uplift(
    uplift: compliance.Uplift, path: str, rules: Compliance, catalog: Catalog
) -> Iterator[Derivation]:
    years = _figure("spread", "years that what is paid once serves", catalog)
    yield derived(
        f"{path}.items_usd",
        "lines at this size: those of each year, and those paid once over their years; no other provider",
        years,
        *(_line(item) for item in rules.items if item.category != "provider"),
    )
    yield derived(
        f"{path}.uplift_fraction",
        "a year of the bill / a year of the machines without the rules",
        path_input("bill", uplift.items_usd, f"{path}.items_usd"),
        Input("machines", format_usd(uplift.base_usd), "", "v", "prices of the same provider"),
    )


def _logs(rules: Compliance, catalog: Catalog) -> Iterator[Derivation]:
    """A year of records, what is kept of it, and what a request waits."""
    at, logs = f"{ROOT}.logs", rules.logs
    record = [_figure("log", item, catalog) for item in LOGS]
    yield derived(
        f"{at}.bytes_per_year",
        "a year of requests × (audit + tokens × text + output × attribution) × envelope + nodes × host logs",
        Input("requests", format_si(logs.requests_per_s, "1/s"), "", "a", "spec traffic"),
        *record,
        _figure("log", "host logs of a node in a day", catalog),
    )
    for name, days in (
        ("online_bytes", logs.online_days),
        ("archive_bytes", logs.retention_days - logs.online_days),
    ):
        yield derived(
            f"{at}.{name}",
            "a year of records / 365 × days",
            path_input("a year", logs.bytes_per_year, f"{at}.bytes_per_year"),
            Input("days", f"{days:,.4g} d", "", "a", f"regimes {rules.regime}, or spec compliance.retention"),
        )
    if logs.synchronous_s is not None:
        append, rate = (
            _figure("latency", item, catalog) for item in ("durable append", "write rate of one writer")
        )
        yield derived(f"{at}.synchronous_s", "durable append + record / write rate", append, rate, *record)
    if logs.asynchronous_s is not None:
        yield derived(
            f"{at}.asynchronous_s", "append in memory", _figure("latency", "append in memory", catalog)
        )


def _line(item: compliance.ComplianceItem) -> Input:
    line = item.line
    text = f"{format_usd(line.total_usd)} = {line.quantity:,.6g} {line.unit} × {line.unit_usd:,.6g} $"
    letter = Source.VENDOR if item.confidence == "high" else Source.ASSUMED
    return Input(line.what, text, "", letter.value, line.source)


def _figure(category: str, item: str, catalog: Catalog) -> Input:
    row = next(row for row in catalog.rows(ComplianceFigure) if (row.category, row.item) == (category, item))
    spread = f" [{row.low:,.4g}–{row.high:,.4g}]" if row.low is not None and row.high is not None else ""
    letter = Source.VENDOR if row.confidence == "vendor" else Source.ASSUMED
    return Input(
        item,
        f"{row.value:,.6g} {row.unit}{spread}",
        "",
        letter.value,
        f"compliance_figures {category}: {item}",
    )
