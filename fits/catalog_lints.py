"""What must be true of the catalogue's tables. exceptions.csv lists the rows that are right nevertheless."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from twofold.catalog.catalog import Catalog
from twofold.catalog.model_config import count_parameters
from twofold.catalog.schema import DATE_PRECISION, REFERENCES
from twofold.catalog.types import (
    Accelerator,
    ComplianceFigure,
    ControlRow,
    CostItem,
    KeyPoint,
    MandateRow,
    Model,
    Node,
    Regime,
)

CUSTOM = "custom"
SHOWN_BY_PRODUCT = frozenset({"whole", "partial"})
LACKING = frozenset({"partial", "gap"})

Fault = tuple[str, str, str]  # table, row, message
# Terms under which figures may be passed on with ours; another word needs a decision here.
LICENCES = {
    "Apache-2.0",
    "Apache-2.0 and facts (vendor figures)",
    "BSD-3-Clause",
    "CC-BY-4.0",
    "MIT",
    "MPL-2.0",
    "MPL-2.0 and Apache-2.0",
    "facts (publication)",
    "facts (vendor figures)",
    "own estimate",
    "user",
}
PARAMETER_TOLERANCE = 0.02


def compliance_faults(catalog: Catalog) -> Iterator[Fault]:
    """Every fault of the seven tables."""
    yield from _unknown_regimes(catalog)
    yield from _ranges(catalog)
    yield from _controls(catalog)
    yield from _mandates(catalog)


def _unknown_regimes(catalog: Catalog) -> Iterator[Fault]:
    known = {*catalog.named(Regime), CUSTOM}
    named = [("compliance_items", item.name, item.regimes) for item in catalog.rows(CostItem)]
    named += [("key_uses", point.name, point.regimes) for point in catalog.rows(KeyPoint)]
    for table, name, regimes in named:
        unknown = sorted(set(regimes.split()) - known)
        if unknown:
            yield table, name, f"no such regime: {', '.join(unknown)}"


def _ranges(catalog: Catalog) -> Iterator[Fault]:
    for item in catalog.rows(CostItem):
        if not item.usd_low <= item.usd <= item.usd_high:
            yield "compliance_items", item.name, "the middle price is outside its range"
    for row in catalog.rows(ComplianceFigure):
        low, high = row.low, row.high
        if (low is not None and low > row.value) or (high is not None and high < row.value):
            yield "compliance_figures", row.item, "the figure is outside its range"
    for regime in catalog.named(Regime).values():
        if regime.online_months > regime.retention_months:
            yield "regimes", regime.name, "logs are searchable longer than they are kept"


def _controls(catalog: Catalog) -> Iterator[Fault]:
    """What the product says it does has evidence, what it lacks has words, and what others do has neither."""
    for row in catalog.rows(ControlRow):
        by_product = row.implementer == "product"
        if by_product != (row.status not in {"inherited", "yours"}):
            yield "controls", row.id, f"{row.implementer} cannot be {row.status}"
        if bool(row.evidence) != (row.status in SHOWN_BY_PRODUCT):
            yield "controls", row.id, f"evidence `{row.evidence}` does not go with {row.status}"
        if bool(row.gap) != (row.status in LACKING):
            yield "controls", row.id, f"gap `{row.gap}` does not go with {row.status}"


def _mandates(catalog: Catalog) -> Iterator[Fault]:
    """A mandate that ends says when and by what; others that it names are in the register, and are older."""
    rows = catalog.named(MandateRow)
    for row in rows.values():
        if bool(row.revoked_on) != bool(row.revoked_by):
            yield "mandates", row.name, "a revocation has a day and an author"
        if row.revoked_on and row.revoked_on < row.date:
            yield "mandates", row.name, "revoked before it was issued"
        for name in (row.revoked_by, row.replaced_by, row.rests_on):
            if name and name not in rows:
                yield "mandates", row.name, f"no such mandate: {name}"
        if row.rests_on in rows and rows[row.rests_on].date > row.date:
            yield "mandates", row.name, f"rests on {row.rests_on}, which is younger"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row that breaks a lint, and how."""

    lint: str
    table: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.table}: {self.name}: {self.message} [{self.lint}]"


def lint(catalog: Catalog) -> tuple[Finding, ...]:
    """All findings that exceptions.csv does not explain, and its rows that explain nothing."""
    found = [finding for check in LINTS.values() for finding in check(catalog)]
    excepted = {(str(row["lint"]), str(row["name"])) for row in catalog.table("exceptions").rows}
    used = {(finding.lint, finding.name) for finding in found}
    stale = sorted(excepted - used)
    return (
        *(finding for finding in found if (finding.lint, finding.name) not in excepted),
        *(Finding("exceptions", "exceptions", name, f"nothing to except from `{of}`") for of, name in stale),
    )


def dense_rates(catalog: Catalog) -> Iterator[Finding]:
    """Rates are dense: half the format, twice the rate. A sparse figure breaks one of these ratios."""
    rungs = (
        ("tf32", "bf16", 1.9, 2.1),
        ("bf16", "fp16", 0.95, 1.05),
        ("bf16", "fp8", 1.9, 2.1),
        ("fp8", "int8", 0.95, 1.05),
        ("fp8", "fp4", 1.9, 2.1),
        ("fp16", "int8", 1.9, 2.1),
    )
    for accelerator in catalog.rows(Accelerator):
        for lower, higher, least, most in rungs:
            base, rate = rate_flops_per_s(accelerator, lower), rate_flops_per_s(accelerator, higher)
            if base and rate and not least <= rate / base <= most:
                message = f"{higher} is {rate / base:.2f} × {lower}, not {least} to {most}: dense or sparse?"
                yield Finding("dense_rates", "accelerators", accelerator.name, message)


def family_rates(catalog: Catalog) -> Iterator[Finding]:
    """A core of one family does about as much as its siblings: a row that is sparse throughout stands out."""
    per_core: dict[str, dict[str, float]] = defaultdict(dict)
    for accelerator in catalog.rows(Accelerator):
        if accelerator.bf16_flops_per_s and accelerator.sm_count and accelerator.family != "cpu":
            rate = accelerator.bf16_flops_per_s / accelerator.sm_count
            per_core[accelerator.family][accelerator.name] = rate
    for family, rates in per_core.items():
        usual = median(rates.values())
        for name, rate in rates.items():
            if len(rates) >= 3 and not 0.45 <= rate / usual <= 1.8:
                message = f"bf16 per core is {rate / usual:.2f} × the middle of {family}: dense or sparse?"
                yield Finding("family_rates", "accelerators", name, message)


def links(catalog: Catalog) -> Iterator[Finding]:
    """Links are one direction: half of what vendors print. No link, no rate."""
    for row in catalog.table("accelerators").rows:
        one_way, both_ways = float(row["link_gb_s"] or 0), float(row["link_both_ways_gb_s"] or 0)
        name = str(row["name"])
        if abs(both_ways - 2 * one_way) > 0.01 * both_ways:
            message = f"both directions are {both_ways:g} GB/s, one is {one_way:g}: not twice"
            yield Finding("links", "accelerators", name, message)
        if (row["link_name"] == "none") != (one_way == 0):
            yield Finding(
                "links", "accelerators", name, f"link `{row['link_name']}` carries {one_way:g} GB/s"
            )


def rooflines(catalog: Catalog) -> Iterator[Finding]:
    """FLOPs per byte, FLOPs per watt and idle power lie where hardware can be."""
    for accelerator in catalog.rows(Accelerator):
        rate = accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s
        if rate:
            ratio, low = rate / accelerator.memory_bytes_per_s, 20 if accelerator.family == "cpu" else 60
            if not low <= ratio <= (1000 if accelerator.family == "cpu" else 600):
                message = f"{ratio:.0f} FLOPs per byte of memory bandwidth"
                yield Finding("rooflines", "accelerators", accelerator.name, message)
            per_w = rate / 1e12 / accelerator.tdp_w
            if not 0.03 <= per_w <= 4:
                yield Finding("rooflines", "accelerators", accelerator.name, f"{per_w:.2f} TFLOP/s per watt")
        if accelerator.idle_w and not 0.04 <= accelerator.idle_w / accelerator.tdp_w <= 0.5:
            share = accelerator.idle_w / accelerator.tdp_w
            yield Finding("rooflines", "accelerators", accelerator.name, f"idles at {share:.0%} of its TDP")
        if not 0.88 <= accelerator.memory_bytes / accelerator.memory_nominal_bytes <= 1.08:
            message = "what software sees is far from the nominal memory: GB or GiB?"
            yield Finding("rooflines", "accelerators", accelerator.name, message)


def node_power(catalog: Catalog) -> Iterator[Finding]:
    """A node takes what its accelerators take, and a host on top."""
    for node in catalog.rows(Node):
        if node.power_w_max:
            ratio = node.power_w_max / (node.accelerator_count * catalog.accelerator(node.accelerator).tdp_w)
            if not 0.85 <= ratio <= 4:
                yield Finding("node_power", "nodes", node.name, f"takes {ratio:.2f} × its accelerators' TDP")


def prices(catalog: Catalog) -> Iterator[Finding]:
    """Spot is below on demand, dates are as exact as said, counts match the node."""
    on_demand = {
        (price.provider, price.instance, price.accelerator_count, price.region): price.usd_per_h
        for price in catalog.prices()
        if price.term == "on_demand"
    }
    counts = {(node.provider, node.name): node.accelerator_count for node in catalog.rows(Node)}
    for price in catalog.prices():
        count = price.accelerator_count
        wrong = {
            f"spot {price.usd_per_h} $/h is above on demand": (
                price.term == "spot"
                and price.usd_per_h
                > on_demand.get((price.provider, price.instance, count, price.region), price.usd_per_h)
            ),
            f"date {price.date} is not known to the {price.date_precision}": (
                DATE_PRECISION[len(price.date)] != price.date_precision
            ),
            f"the node does not have {count} accelerators": (
                counts.get((price.provider, price.instance), count) != count
            ),
        }
        name = f"{price.provider} {price.instance} {price.region} {price.term}"
        yield from (Finding("prices", "prices", name, message) for message, is_so in wrong.items() if is_so)


def references(catalog: Catalog) -> Iterator[Finding]:
    """Every name that a row refers to exists, spelt as its own table spells it."""
    known = {
        table: {str(row["name"]) for row in catalog.table(table).rows}
        for table in ("accelerators", "fabrics", "models", "nodes")
    }
    known["regions"] = {f"{region.provider}:{region.name}" for region in catalog.regions()}
    targets = {kind: f"{kind}s" for kind in ("accelerator", "model", "node", "fabric", "region")}
    for table in catalog.table_names():
        for column in catalog.table(table).columns:
            if column.type in REFERENCES:
                for row in catalog.table(table).rows:
                    if row[column.name] not in known[REFERENCES[column.type]]:
                        yield Finding("references", table, str(row[column.name]), f"no such {column.type}")
    for row in catalog.table("aliases").rows:
        kind, name = str(row["kind"]), str(row["name"])
        fits = known[targets[kind]] if kind in targets else known["accelerators"] | known["models"]
        if kind != "framework" and name not in fits:
            yield Finding("references", "aliases", str(row["alias"]), f"no {kind} `{name}`")
    places = {f"{price.provider}:{price.region}" for price in catalog.prices()}
    clouds = {
        place for place in places if place.startswith(("aws:", "azure:", "gcp:")) and ":all" not in place
    }
    ends = {str(row[end]) for row in catalog.table("rtt").rows for end in ("from", "to")}
    for missing in sorted((clouds | ends) - known["regions"]):
        yield Finding("references", "regions", missing, "no such region")


def parameter_counts(catalog: Catalog) -> Iterator[Finding]:
    """Parameters counted from the shape are within 2 % of the row's."""
    for model in catalog.rows(Model):
        total, active = count_parameters(model)
        for kind, counted, stated in (
            ("all", total, model.parameters),
            ("active", active, model.parameters_active),
        ):
            if abs(counted / stated - 1) > PARAMETER_TOLERANCE:
                message = f"{kind} parameters: {counted:,} by shape, {stated:,} stated"
                yield Finding("parameter_counts", "models", model.name, message)


def provenance(catalog: Catalog) -> Iterator[Finding]:
    """Every row says where it is from and under which terms; the terms are ones that we pass on."""
    for table in catalog.table_names():
        for row in catalog.table(table).rows:
            name = str(next(iter(row.values())))
            if not str(row["source"]).strip() or not str(row["confidence"]).strip():
                yield Finding("provenance", table, name, "no source or confidence")
            if row["licence"] not in LICENCES:
                yield Finding(
                    "provenance", table, name, f"licence `{row['licence']}` is not one that we pass on"
                )


def released(catalog: Catalog) -> Iterator[Finding]:
    """What is only announced is marked so: no rate, no price, no year to come, no word of it in the notes."""
    newest = max(int(price.date[:4]) for price in catalog.prices())
    for accelerator in catalog.rows(Accelerator):
        rates = (accelerator.bf16_flops_per_s, accelerator.fp16_flops_per_s, accelerator.fp32_flops_per_s)
        marks = [
            word
            for word, true in (
                ("has no 16- or 32-bit rate", not any(rates)),
                (f"is of {accelerator.year}", accelerator.year > newest),
                ("is announced, by its notes", accelerator.notes.startswith("announced")),
            )
            if true
        ]
        if accelerator.released and marks:
            yield Finding("released", "accelerators", accelerator.name, f"{marks[0]}, yet marked released")
        if not accelerator.released and catalog.prices_for(accelerator.name):
            yield Finding(
                "released", "accelerators", accelerator.name, "has a price, yet is marked unreleased"
            )


def compliance(catalog: Catalog) -> Iterator[Finding]:
    """The tables about rules agree with themselves."""
    yield from (Finding("compliance", *fault) for fault in compliance_faults(catalog))


def rate_flops_per_s(accelerator: Accelerator, number_format: str) -> float | None:
    """The dense rate of one number format; None where the device has none."""
    rate: float | None = getattr(accelerator, f"{number_format}_flops_per_s")
    return rate


LINTS: Mapping[str, Callable[[Catalog], Iterator[Finding]]] = {
    check.__name__: check
    for check in (
        dense_rates,
        family_rates,
        links,
        rooflines,
        node_power,
        prices,
        references,
        parameter_counts,
        provenance,
        released,
        compliance,
    )
}
