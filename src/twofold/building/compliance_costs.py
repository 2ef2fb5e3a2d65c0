"""What rules cost: a bill of items, each bought for nodes, enclaves, users or terabytes; no percentage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twofold.building.compliance_system import (
    STAGING,
    RuledSystem,
    administrators,
    asks,
    clusters_of,
    enclaves_of,
    keys_of,
    logs_of,
    spare_nodes,
)
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure_of
from twofold.catalog.types import CostItem, HardwarePrice
from twofold.contracts.results import compliance
from twofold.contracts.results.ledger import UnitCost, cents, line_item, total_usd
from twofold.contracts.spec.supply import ComplianceSpec
from twofold.core import record
from twofold.core.estimate import Estimate, Source, exact, half_common
from twofold.core.quantity import DAY_S, YEAR_H

B_PER_TB = 1e12
CLAIM = (0.2, 0.4)  # the uplift that circulates: 20–40 % of the total
SIZES = (64, 512, 4096)  # accelerators
SPREAD = "half of each line's spread is common to all, half is its own"
YEAR, REGION, PROVIDER, STAFF = "year", "region", "provider", "staff"
OF_RENT = frozenset({REGION, PROVIDER})


@dataclass(frozen=True, slots=True)
class Rent:
    """Hours of a run or service: as paid, at the same provider without the rules, and in the open shop."""

    name: str  # of the run or service
    accelerator_h: float  # of the first year
    paid_usd_per_h: float
    provider_usd_per_h: float  # the same provider without the rules
    open_usd_per_h: float  # the cheapest of the same accelerator without the rules
    paid: str  # each price's row, in words
    provider: str
    open: str
    date: str
    support_fraction: float = 0.0  # of the rent, at the provider
    open_support_fraction: float = 0.0  # of the rent, at the cheapest
    discount_fraction: float = 0.0  # off list prices, wherever one rents
    tax_fraction: float = 0.0

    @property
    def base_usd(self) -> float:
        """A year of the hours at the same provider without the rules: with support, discount and tax."""
        kept = (1.0 - self.discount_fraction) * (1.0 + self.tax_fraction) * (1.0 + self.support_fraction)
        return self.accelerator_h * self.provider_usd_per_h * kept


def bill_of(
    system: RuledSystem,
    keys: compliance.KeyPlan,
    logs: compliance.LogPlan,
    rents: Sequence[Rent],
    catalog: Catalog,
    tax_fraction: float = 0.0,
) -> tuple[compliance.ComplianceItem, ...]:
    """Every line of the first year: dearer rent first, then the table's items that apply.

    On the terms of the plan's bill: with support, discount and tax. Staff are paid wages, on which no tax
    of sales is due. An item that one provider charges counts for those of the regions that are rented of it.

    Formula  quantity = count × driver (nodes, enclaves, users, modules, TB of logs …)
    Why      Assessors and staff come once per system, agents and patches per node, logs per byte: a share of
             the total would be wrong at every size but one.
    Source   table compliance_items.
    """
    counts = quantities_of(system, keys, logs, catalog)
    lines = [line for rent in rents for line in _rent_lines(rent) if line.line.total_usd]
    for item in _asked(system, catalog):
        charged = 1.0
        if item.provider:
            all_of = system.providers
            charged = all_of.count(item.provider) / len(all_of) if all_of else 0.0
        quantity = counts[item.driver, item.place].times(item.count).times(charged)
        if quantity.value > 0:
            lines.append(_line(_priced(item, system, catalog), quantity, tax_fraction))
    return tuple(lines)


def _asked(system: RuledSystem, catalog: Catalog) -> list[CostItem]:
    """What a regime makes one pay for."""
    return [item for item in catalog.rows(CostItem) if asks(system.regime) & set(item.regimes.split())]


def uncharged(system: RuledSystem, catalog: Catalog) -> tuple[str, ...]:
    """What the rules ask of rented machines and only other providers have a price for, in words."""
    return tuple(
        f"{item.name}: {item.provider} lists {item.usd:,.0f} $ a {item.unit} and {item.recurs}; "
        f"what {', '.join(others)} asks for it is in no table"
        for item in _asked(system, catalog)
        if item.provider
        and (others := [name for name in dict.fromkeys(system.providers) if name != item.provider])
    )


def quantities_of(
    system: RuledSystem, keys: compliance.KeyPlan, logs: compliance.LogPlan, catalog: Catalog
) -> dict[tuple[str, str], Estimate]:
    """How many of each driver a system has, for machines that are rented, owned, or any."""
    clusters, enclaves = clusters_of(system), enclaves_of(system)
    whole = system.nodes_count()
    found: dict[tuple[str, str], Estimate] = {}
    for place in ("any", "rented", "owned"):
        nodes = system.nodes_count(place)
        own = [part for part in enclaves if place in ("any", part.place) and part.name != STAGING]
        share = nodes / whole if whole else 0.0
        modules = sum(place in ("any", each) for each in clusters) * keys.module_count / len(clusters)
        counts = {
            "system": 1.0 if own else 0.0,
            "site": float(system.site_count) if own else 0.0,
            "enclave": float(len(own)),
            "node": float(nodes),
            "spare_node": float(spare_nodes(system, catalog)) if place != "rented" else 0.0,
            "user": float(system.users_count),
            "admin": float(administrators(system, catalog)),
            "hsm": modules,
            "offline_hsm": float(keys.offline_count),
        }
        found |= {(driver, place): exact(count, "count") for driver, count in counts.items()}
        found |= {
            ("tb_log", place): logs.bytes_per_year.times(share / B_PER_TB),
            ("tb_online", place): logs.online_bytes.times(share / B_PER_TB),
            ("tb_archive", place): logs.archive_bytes.times(share / B_PER_TB),
        }
    return found


def totals_of(items: Sequence[compliance.ComplianceItem]) -> tuple[Estimate, float, Estimate]:
    """USD of the first year, what of it is dearer rent, and USD of each later year.

    The middles are the sums of the lines, to the cent.
    """
    rent_usd = total_usd(item.line for item in items if item.category in OF_RENT)
    first = record.note("first_year_usd", _sum(items), f"sum of the lines; {SPREAD}", "lines")
    again = record.note("recurring lines", [item for item in items if item.recurs == YEAR], "")
    later = record.note(
        "later_year_usd", _sum(again), f"sum of the lines that are paid again; {SPREAD}", "recurring lines"
    )
    record.note("lines", items, "")
    return first, rent_usd, later


def uplift_of(
    accelerators: int, base_usd: float, items: Sequence[compliance.ComplianceItem], catalog: Catalog
) -> compliance.Uplift:
    """A year of the items over a year of the machines, and where that stands against the claim.

    Formula  (yearly items + items paid once / years) / machines
    Why      An authorisation and its devices serve for years: their first year alone would overstate them.
             Another provider is another product: its line is in the bill, not in the uplift.
    """
    once = "years that what is paid once serves"
    years = figure_of(catalog, "spread", once).value
    counted = record.note("lines", [item for item in items if item.category != PROVIDER], "")
    total = _sum([item if item.recurs == YEAR else _spread(item, years) for item in counted])
    said = "lines at this size: those of each year, and those paid once over their years; no other provider"
    record.note("items_usd", total, said, once, "lines")
    record.note("base_usd", base_usd, "")
    middle, low, high = (end / base_usd for end in (total.value, total.low, total.high))
    fraction = Estimate(middle, low, high, "fraction", total.source)
    said = "a year of the bill / a year of the machines without the rules"
    record.note("uplift_fraction", fraction, said, "items_usd", "base_usd")
    low, high = CLAIM
    claim = "below" if fraction.value < low else "above" if fraction.value > high else "within"
    return compliance.Uplift(accelerators, base_usd, total, fraction, claim)


def uplift_at(
    size: int, system: RuledSystem, spec: ComplianceSpec, rent: Rent, catalog: Catalog
) -> compliance.Uplift:
    """The same system with so many accelerators in use all year: nodes and requests grow, people do not."""
    factor = size / sum(fleet.accelerator_count for fleet in system.fleets)
    fleets = tuple(
        replace(
            fleet,
            node_count=max(1, round(fleet.node_count * factor)),
            accelerator_count=round(fleet.accelerator_count * factor),
        )
        for fleet in system.fleets
    )
    mean, peak = system.requests_per_s * factor, system.peak_requests_per_s * factor
    grown = replace(system, fleets=fleets, requests_per_s=mean, peak_requests_per_s=peak)
    there = replace(rent, accelerator_h=size * YEAR_H)
    kept_days = (spec.retention_s or 0.0) / DAY_S
    keys, logs = keys_of(grown, catalog), logs_of(grown, spec.recorded, kept_days, catalog)
    items = bill_of(grown, keys, logs, [there], catalog, rent.tax_fraction)
    with record.noting(f"sizes.{size}"):
        return uplift_of(size, there.base_usd, items, catalog)


def _priced(item: CostItem, system: RuledSystem, catalog: Catalog) -> CostItem:
    """A spare node at the price of the node itself, where the catalogue knows it."""
    if item.driver != "spare_node":
        return item
    used = {fleet.node for fleet in system.fleets if not fleet.rented}
    known = [row for row in catalog.rows(HardwarePrice) if row.name in used]
    if not known:
        return item
    row = max(known, key=lambda each: each.usd)
    source = f"hardware_prices: {row.name}, {row.source}"
    return replace(
        item, usd_low=row.usd_low, usd=row.usd, usd_high=row.usd_high, date=row.date, source=source
    )


def _line(item: CostItem, quantity: Estimate, tax_fraction: float) -> compliance.ComplianceItem:
    tax = 0.0 if item.category == STAFF else tax_fraction
    cost = UnitCost(item.usd, f"compliance_items: {item.name} ({item.source})", item.date)
    line = line_item(item.name, "compliance", quantity.value, item.unit, cost, tax_fraction=tax)
    low_usd = min((1.0 + tax) * quantity.low * item.usd_low, line.total_usd)
    high_usd = max((1.0 + tax) * quantity.high * item.usd_high, line.total_usd)
    return compliance.ComplianceItem(
        item.name, item.category, item.recurs, line, low_usd, high_usd, item.confidence
    )


def _rent_lines(rent: Rent) -> Iterator[compliance.ComplianceItem]:
    """What the same machines cost more: at an authorised provider, then in its authorised region.

    Each with the support that is paid on it.
    """
    paid, there, anywhere = rent.paid_usd_per_h, rent.provider_usd_per_h, rent.open_usd_per_h
    elsewhere = there * rent.support_fraction - anywhere * rent.open_support_fraction
    here = paid * rent.support_fraction - there * rent.support_fraction
    support = "economics.csv support"
    for category, kind, usd_per_h, source in (
        (PROVIDER, "", there - anywhere, f"prices: {rent.provider} against {rent.open}"),
        (PROVIDER, "support: ", elsewhere, support),
        (REGION, "", paid - there, f"prices: {rent.paid} against {rent.provider}"),
        (REGION, "support: ", here, support),
    ):
        line = line_item(
            f"authorised {category}: {kind}{rent.name}",
            "compliance",
            rent.accelerator_h,
            "accelerator-h",
            UnitCost(usd_per_h, source, rent.date),
            discount_fraction=rent.discount_fraction,
            tax_fraction=rent.tax_fraction,
        )
        name = f"{category} of {kind}{rent.name}"
        yield compliance.ComplianceItem(name, category, YEAR, line, line.total_usd, line.total_usd, "high")


def _sum(items: Sequence[compliance.ComplianceItem]) -> Estimate:
    """The lines' sum; half of each line's spread is common to all of them, half is its own."""
    middle = total_usd(item.line for item in items)
    below = half_common([item.line.total_usd - item.low_usd for item in items])
    above = half_common([item.high_usd - item.line.total_usd for item in items])
    return Estimate(middle, middle - below, middle + above, "USD", Source.ASSUMED)


def _spread(item: compliance.ComplianceItem, years: float) -> compliance.ComplianceItem:
    line = replace(item.line, total_usd=cents(item.line.total_usd / years))
    return replace(item, line=line, low_usd=item.low_usd / years, high_usd=item.high_usd / years)
