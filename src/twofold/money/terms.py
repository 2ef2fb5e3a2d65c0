"""The terms of money of a spec, with what the catalogue assumes where the spec says nothing."""

from collections.abc import Iterable
from dataclasses import replace

from twofold.answer.context import Context
from twofold.building.entries import electricity, is_owned, place_of
from twofold.catalog.capacity import row_of
from twofold.catalog.places import best_price
from twofold.catalog.types import EconomicFigure, Region
from twofold.contracts.results.ledger import UnitCost
from twofold.contracts.results.parts import Machine, PriceUsed
from twofold.core.errors import UnknownNameError
from twofold.core.estimate import Estimate, Source
from twofold.money.bought import OwningTerms

W_PER_MW = 1e6
ASSUMED = "assumed: "  # how a line's source begins that nobody lists
LISTED = ("vendor", "measured")


def downtime(context: Context) -> UnitCost:
    """The spec's cost of an hour down, else the catalogue's, marked as assumed."""
    stated = context.spec.supply.economics.downtime_usd_per_h
    if stated is not None:
        return UnitCost(stated, "spec supply.economics.downtime_cost")
    row = context.catalog.economic("hour of outage")
    return UnitCost(row.value, f"{cited(row)}, {row.low:g} to {row.high:g} $/h")


def cited(figure: EconomicFigure) -> str:
    """How a line names a row of the table of economics, and whether anybody lists that price."""
    row = f"economics.csv {figure.item}"
    return row if figure.confidence in LISTED else f"{ASSUMED}{row}"


def cost_of(figure: EconomicFigure, provider: str = "") -> UnitCost:
    """A row of the table of economics as a price, of one provider where it is said."""
    source = f"{cited(figure)}, {provider}" if provider else cited(figure)
    return UnitCost(figure.value, source, figure.date)


def listed_cost(price: PriceUsed) -> UnitCost:
    """An accelerator-hour at a list price."""
    source = row_of(price.provider, price.instance, price.region, price.term)
    return UnitCost(price.usd_per_accelerator_h.value, source, price.date)


def rent_of(machine: Machine, context: Context) -> UnitCost | None:
    """What an hour of one of a machine's accelerators is rented for: its leases' mean, or the shop's best."""
    used = machine.price or price_instead(machine, context)
    if used is None or machine.price is None:
        return listed_cost(used) if used else None
    return replace(listed_cost(used), usd=machine.usd_per_accelerator_h)


def price_instead(machine: Machine, context: Context) -> PriceUsed | None:
    """The shop's best price of the parts that owned machines have; None where they are not owned."""
    if not is_owned(machine, context):
        return None
    shop = context.spec.supply.shop
    others = {row.provider for row in context.catalog.prices()} - set(shop.providers)
    best = best_price(
        context.catalog,
        machine.accelerator,
        shop.terms,
        regions=shop.regions,
        exclude_providers=(*shop.exclude, *(others if shop.providers else ())),
    )
    if best is None:
        return None
    usd = best.usd_per_accelerator_h
    each = Estimate(usd, usd, usd, "USD/h", Source.VENDOR)
    return PriceUsed(best.provider, best.instance, best.region, best.term, best.date, each)


def pue_ratio(machine: Machine, context: Context) -> float:
    """The PUE that the plan's energy was counted with at the place of rented machines."""
    region = place_of(machine, context) if machine.price else None
    return region.pue if region else context.constants.get("pue_ratio")


def facility_value(category: str, item: str, context: Context) -> float:
    """A cell of the table of buildings, in the table's own unit."""
    for row in context.catalog.facility(category):
        if row.item == item:
            return row.value
    raise UnknownNameError(f"`{category}: {item}` is not a row of the table facility")


def owning_terms(
    provisioned_w: float, accelerator_count: int, places: Iterable[Region | None], context: Context
) -> OwningTerms:
    """What owning costs beside the machines, from the spec where it says so.

    Formula  people = those of the building, by its power + platform engineers, by accelerators
    """
    keys, catalog = context.spec.supply.economics, context.catalog
    capital, upkeep = catalog.economic("cost of capital"), catalog.economic("maintenance of hardware")
    hall, cooling = "wholesale colocation rent", "modern air with containment and economiser"
    if keys.staff_count is None:
        least, per_thousand = (
            catalog.economic(f"platform engineers{each}").value
            for each in (", at least", " per 1,000 accelerators")
        )
        people = facility_value("opex", "staff per MW", context) * provisioned_w / W_PER_MW
        people += max(least, per_thousand * accelerator_count / 1000.0)
    salary = cost_of(catalog.economic("engineer"))
    if keys.salary_usd is not None:
        salary = UnitCost(keys.salary_usd, "spec supply.economics.salary", "")
    stated = keys.cost_of_capital_fraction
    return OwningTerms(
        years=keys.years,
        life_years=facility_value("depreciation", "AI server useful life (accounting)", context),
        cost_of_capital_fraction=capital.value if stated is None else stated,
        electricity=electricity(places, context),
        pue_ratio=facility_value("pue", cooling, context),
        pue_source=f"facility.csv pue {cooling}",
        hall=UnitCost(facility_value("colo", hall, context), f"facility.csv {hall}", "2025"),
        maintenance_fraction=upkeep.value,
        maintenance_source=cited(upkeep),
        staff_count=people if keys.staff_count is None else float(keys.staff_count),
        salary=salary,
        tax_fraction=keys.tax_fraction,
        figures_date=capital.date,
    )


def inverted(numerator: float, estimate: Estimate, unit: str) -> Estimate:
    """An exact number over the estimate: its ends change places. Energy is an assumption, so is this."""
    low, value, high = (numerator / part for part in (estimate.high, estimate.value, estimate.low))
    return Estimate(value, low, high, unit, Source.ASSUMED)
