"""What must be true of the tables about rules: names that exist, ranges in order, gaps that are told."""

from collections.abc import Iterator

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import ComplianceFigure, ControlRow, CostItem, KeyPoint, MandateRow, Regime

CUSTOM = "custom"
SHOWN_BY_PRODUCT = frozenset({"whole", "partial"})
LACKING = frozenset({"partial", "gap"})

Fault = tuple[str, str, str]  # table, row, message


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
