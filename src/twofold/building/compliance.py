"""Rules over a system: one `Compliance` from its parts."""

from collections import Counter
from collections.abc import Iterable, Sequence

from twofold.building.compliance_costs import SIZES, Rent, bill_of, totals_of, uncharged, uplift_at, uplift_of
from twofold.building.compliance_evidence import cited_notes, controls_of, families_of, register_of
from twofold.building.compliance_records import keys_of, logs_of
from twofold.building.compliance_system import RuledSystem, differences_of, enclaves_of, transfer_of
from twofold.catalog import Catalog, Price, Regime, permits, refusal_reason
from twofold.contracts.results import Compliance, Permitted, Refusal
from twofold.contracts.spec import ComplianceSpec
from twofold.core import DAY_S


def compliance_of(
    spec: ComplianceSpec,
    system: RuledSystem,
    rents: Sequence[Rent],
    base_usd: float | None,
    catalog: Catalog,
    today: str | None,
    tax_fraction: float = 0.0,
) -> Compliance:
    """Everything that a regime changes.

    `catalog` holds all prices, those that are refused too. `base_usd` is a year of the machines at the same
    providers' prices without the rules; None: some have no price. Tax is on every line but wages.
    `today` is 2026-11-22, or None where no day is judged.
    Raises UnknownNameError for a mandate that `cites` names and the register does not have.
    """
    regime = system.regime
    enclaves = enclaves_of(system)
    keys = keys_of(system, enclaves, catalog)
    kept_days = spec.retention_s / DAY_S if spec.retention_s else None
    logs = logs_of(system, spec.recorded, kept_days, catalog)
    items = bill_of(system, enclaves, keys, logs, rents, catalog, tax_fraction)
    first, rent_usd, later = totals_of(items)
    largest = max(rents, key=lambda rent: rent.accelerator_h, default=None)
    transfer = transfer_of(system, catalog)
    controls = controls_of(catalog, regime, any(fleet.rented for fleet in system.fleets))
    register = register_of(catalog, today)
    accelerators = sum(fleet.accelerator_count for fleet in system.fleets)
    return Compliance(
        regime=regime.name,
        title=regime.title,
        baseline=regime.baseline,
        offers_in_all=len(catalog.prices()),
        permitted=permitted_places(catalog.prices(), catalog, regime),
        refused=refused_places(catalog.prices(), catalog, regime),
        enclaves=enclaves,
        keys=keys,
        transfer=transfer,
        logs=logs,
        items=items,
        first_year_usd=first,
        rent_usd=rent_usd,
        later_year_usd=later,
        uplift=uplift_of(accelerators, base_usd, items, catalog) if base_usd else None,
        sizes=tuple(uplift_at(size, system, spec, largest, catalog) for size in SIZES) if largest else (),
        differences=differences_of(system, transfer, catalog),
        families=families_of(controls),
        controls=controls,
        mandates=register,
        notes=(*_notes(system), *uncharged(system, catalog), *cited_notes(register, spec.cites)),
    )


def _notes(system: RuledSystem) -> tuple[str, ...]:
    """What figures cannot say."""
    notes = ["an authorised region is not an authorised service: compare the provider's list of services"]
    if system.regime.notes:
        notes.append(f"{system.regime.title}: {system.regime.notes}")
    if any(not fleet.rented for fleet in system.fleets):
        notes.append("machines without a price count as your own site: nothing is inherited there")
    return tuple(notes)


def permitted_places(prices: Iterable[Price], catalog: Catalog, regime: Regime) -> tuple[Permitted, ...]:
    """The authorised places that have prices, most prices first."""
    may = permits(catalog, regime)
    counts = Counter((price.provider.lower(), price.region.lower()) for price in prices if may(price))
    rows = {(row.provider.lower(), row.region.lower()): row for row in catalog.authorisations(regime.name)}
    return tuple(
        Permitted(f"{place[0]}:{place[1]}", count, row.since, row.conditions, row.confidence)
        for place, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if (row := rows[place])
    )


def refused_places(prices: Iterable[Price], catalog: Catalog, regime: Regime) -> tuple[Refusal, ...]:
    """The places that a regime forbids, with the reason, most prices first."""
    may = permits(catalog, regime)
    counts = Counter((price.provider.lower(), price.region.lower()) for price in prices if not may(price))
    rows = catalog.authorisations(regime.name)
    return tuple(
        Refusal(f"{provider}:{region}", count, refusal_reason(provider, region, regime, rows))
        for (provider, region), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
