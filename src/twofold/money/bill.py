"""The bill of the first year: rent by run and service, and what rent does not hold."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

from twofold.answer import Context
from twofold.building import (
    COLLECTED,
    OF_RENT,
    OwnYear,
    electricity,
    is_owned,
    own_place,
    own_year_lines,
    own_years,
)
from twofold.catalog import Storage, economic_by_provider
from twofold.contracts.results import (
    Compliance,
    LineItem,
    Plan,
    PriceUsed,
    ServicePlan,
    TrainingPlan,
    UnitCost,
    line_item,
    total_usd,
)
from twofold.contracts.spec import TrainingRun
from twofold.core import DAY_S, YEAR_H, YEAR_S, format_usd
from twofold.money.economics import energy_usd
from twofold.money.terms import cited, price_instead
from twofold.portfolio import moved_weights_tb

MONTH_S = YEAR_S / 12
TB, TIB = 1e12, 2.0**40
YEARLY = "year"  # how an item of the rules recurs
LEAST_USD = 0.005  # what rounds to nothing is no line


def bill_lines(plan: Plan, context: Context, *, later: bool = False) -> tuple[LineItem, ...]:
    """Every line of the first year, each with its offer and date; discount and tax stand on the lines.

    `later`: of a year after it, in which only the runs that repeat are paid for; own machines of the others
    still stand, and draw what they draw at rest.

    Formula  rent = accelerator-hours · list price; support = share of the rent; egress = bytes · price;
             storage = TB-months · price; energy of owned machines = kWh · tariff + demand charge, at work
             and at rest, as the building has them; what rules ask for, as the part about rules has it,
             without the dearer rent that the rent lines hold already
    Why      What a quote for machines leaves out is what a first bill surprises with.
    """
    lines: list[LineItem] = []
    over = [each.name for each in context.spec.training if later and not each.repeats_every_s]
    own = own_years(plan, context, dict.fromkeys(over, 0.0))
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        if run.name not in over:
            lines += _run_lines(run, entry, own.get(run.name), context)
        elif run.name in own:
            lines += own_year_lines(own[run.name], context.spec.supply.economics.tax_fraction)
    for service in plan.serving:
        lines += _service_lines(service, own.get(service.name), context)
    if plan.compliance:
        lines += _rule_lines(plan.compliance, later)
    return tuple(line for line in lines if abs(line.total_usd) >= LEAST_USD)


def _rule_lines(rules: Compliance, later: bool) -> Iterator[LineItem]:
    """What the rules ask for beside dearer rent; what is paid once, in the first year alone."""
    for item in rules.items:
        if item.category not in OF_RENT and (item.recurs == YEARLY or not later):
            yield item.line


def rented_lines(plan: Plan, context: Context, *, later: bool = False) -> tuple[LineItem, ...]:
    """The bill of the same plan if nothing were owned: own machines are rented on the same terms as others.

    Rent at the shop's best price of the same part, with that provider's support, egress and storage. What
    the rules ask for is left out: it is asked of owned machines as of rented ones.
    """
    rented = replace(
        plan,
        compliance=None,
        training=tuple(replace(run, **_if_rented(run, context)) for run in plan.training),
        serving=tuple(replace(each, **_if_rented(each, context)) for each in plan.serving),
    )
    lines = bill_lines(rented, context, later=later)
    return tuple(line for line in lines if line.category != "energy")


def _if_rented(half: TrainingPlan | ServicePlan, context: Context) -> dict[str, Any]:
    """The machine with a price and the cost that follows; nothing to change where it has one, or none has."""
    if half.machine.price is not None or (price := price_instead(half.machine, context)) is None:
        return {}
    machine, each = replace(half.machine, price=price), price.usd_per_accelerator_h
    if isinstance(half, TrainingPlan):
        return {"machine": machine, "cost_usd": each.times(half.run.accelerator_h.value, "USD")}
    return {"machine": machine, "cost_usd_per_year": each.times(machine.accelerator_count * YEAR_H, "USD")}


def first_year_difference(lines: tuple[LineItem, ...], first_year_usd: float | None) -> str:
    """Why the bill is not the plan's first year, in words; empty where both are the same to the cent."""
    total = total_usd(lines)
    if first_year_usd is not None and abs(total - first_year_usd) < 0.01 * max(1, len(lines)):
        return ""
    parts: dict[str, float] = {}
    for line in lines:
        if line.category != "rent":
            parts[line.category] = parts.get(line.category, 0.0) + line.total_usd - line.tax_usd
    discount = sum(line.discount_usd for line in lines if line.category == "rent")
    tax = sum(line.tax_usd for line in lines)
    if first_year_usd is None:
        asked = " and what the rules ask for" if "compliance" in parts else ""
        return f"nothing is rented: what your own machines take{asked}"
    words = [f"+ {format_usd(usd)} {name}" for name, usd in parts.items()]
    words += [f"− {format_usd(discount)} discount"] if discount else []
    words += [f"+ {format_usd(tax)} tax"] if tax else []
    rent = format_usd(first_year_usd)
    return f"rent at list price {rent} {' '.join(words)} = {format_usd(total)}"


def _rent(what: str, usd: float, price: PriceUsed, context: Context, support: str) -> Iterator[LineItem]:
    """Accelerator-hours at the list price, and the provider's support on them."""
    keys = context.spec.supply.economics
    listed = price.usd_per_accelerator_h.value
    offer = f"prices.csv {price.provider} {price.instance} {price.region} {price.term}"
    yield line_item(
        what,
        "rent",
        usd / listed,
        "accelerator-h",
        UnitCost(listed, offer, price.date),
        discount_fraction=keys.discount_fraction,
        tax_fraction=keys.tax_fraction,
    )
    share = economic_by_provider("support by", price.provider, context.catalog)
    yield line_item(
        support,
        "support",
        share.value,
        "of the rent",
        UnitCost(usd * (1.0 - keys.discount_fraction), f"{cited(share)}, {price.provider}", share.date),
        tax_fraction=keys.tax_fraction,
    )


def _run_lines(
    run: TrainingPlan, entry: TrainingRun, own: OwnYear | None, context: Context
) -> Iterator[LineItem]:
    times, keys = entry.runs_per_year, context.spec.supply.economics
    price = run.machine.price
    size = f"{run.machine.accelerator_count} × {run.machine.accelerator}"
    repeated = f", {times:.3g} times" if times != 1 else ""
    if run.cost_usd and price:
        days = run.run.total_s.value / DAY_S
        what = f"{run.name}: {size}, {days:.1f} d{repeated}"
        yield from _rent(what, run.cost_usd.value * times, price, context, f"{run.name}: support")
    elif own:
        yield from own_year_lines(own, keys.tax_fraction)
    elif is_owned(run.machine, context):
        what = f"{run.name}: energy of {size}{repeated}"
        yield energy_line(what, run.run.energy_j.value * times, run.machine.accelerator, context)
    if price is None:
        return
    yield from kept_lines(run, entry, price.provider, context)
    asked = economic_by_provider("egress from", price.provider, context.catalog)
    yield line_item(
        f"{run.name}: weights moved out of {price.provider}",
        "egress",
        moved_weights_tb(run.parameters or 0.0, entry.kind) * times,
        "TB",
        UnitCost(asked.value, f"{cited(asked)}, {price.provider}", asked.date),
        tax_fraction=keys.tax_fraction,
    )


def kept_lines(run: TrainingPlan, entry: TrainingRun, provider: str, context: Context) -> Iterator[LineItem]:
    """What a run's checkpoints cost, wherever it is rented: where they are written, and where they are kept.

    Formula  kept = size · checkpoints kept · months of object storage, once however often a run repeats:
             those of the next run take their place
    """
    checkpoint = run.run.checkpoints
    if checkpoint.size_bytes is None:
        return
    if line := file_system_line(run, entry, provider, context):
        yield line
    kept = context.catalog.economic("checkpoints kept").value
    held, price = (context.catalog.economic(each) for each in ("months of object storage", "object storage"))
    yield line_item(
        f"{run.name}: {kept:.0f} checkpoints kept {held.value:.0f} months",
        "storage",
        checkpoint.size_bytes * kept / TB * held.value,
        "TB-month",
        UnitCost(price.value, cited(price), price.date),
        tax_fraction=context.spec.supply.economics.tax_fraction,
    )


def file_system_line(
    run: TrainingPlan, entry: TrainingRun, provider: str, context: Context
) -> LineItem | None:
    """The file system that a run's checkpoints are written to; None where adapters alone are saved."""
    checkpoint = run.run.checkpoints
    if checkpoint.size_bytes is None or entry.kind == "lora":
        return None
    held_tb = checkpoint.size_bytes * context.catalog.economic("checkpoints kept").value / TB
    needed = checkpoint.storage_bytes_per_s or 0.0
    store = cheapest_file_system(held_tb, needed, provider, context)
    if store is None:
        return None
    row, terabytes = store
    others = "" if _is_of(row, provider) else f"; {provider} has none here: {row.name}"
    return line_item(
        f"{run.name}: file system of {terabytes:.0f} TB for {needed / 1e9:.1f} GB/s{others}",
        "storage",
        terabytes * run.run.total_s.value / MONTH_S * entry.runs_per_year,
        "TB-month",
        UnitCost(row.usd_per_tb_month or 0.0, f"storage.csv {row.name}", COLLECTED),
        tax_fraction=context.spec.supply.economics.tax_fraction,
    )


def cheapest_file_system(
    held_tb: float, bytes_per_s: float, provider: str, context: Context
) -> tuple[Storage, float] | None:
    """The file system that costs least for a size and a write rate, with the TB to rent.

    Of the provider that the machines are rented from; of any where the table has none of that one's.

    Formula  TB = max(held, rate / rate per TiB), times its price; the least product
    Why      File systems are sold by the TiB, and each TiB brings its rate: fast ones are smaller and dearer.
             Machines write at that rate only to what stands in the same halls.
    """
    found = []
    for row in context.catalog.rows(Storage):
        rate, price = row.write_bytes_per_s_per_unit, row.usd_per_tb_month
        if row.kind == "parallel_fs" and row.unit == "TiB" and rate and price:
            units = ceil(max(held_tb * TB / TIB, bytes_per_s / rate, 1.0))
            usd = units * TIB / TB * price
            found.append((not _is_of(row, provider), usd, row.name, row, units * TIB / TB))
    if not found:
        return None
    *_, row, terabytes = min(found, key=lambda each: each[:3])
    return row, terabytes


def _is_of(row: Storage, provider: str) -> bool:
    """Whether a row of the table of storage is the provider's: its name begins with it."""
    return row.name.lower().startswith(f"{provider.lower()} ")


def _service_lines(service: ServicePlan, own: OwnYear | None, context: Context) -> Iterator[LineItem]:
    keys, price = context.spec.supply.economics, service.machine.price
    size = f"{service.machine.accelerator_count} × {service.machine.accelerator}"
    if service.cost_usd_per_year and price:
        what = f"{service.name}: {size}, a year"
        yield from _rent(what, service.cost_usd_per_year.value, price, context, f"{service.name}: support")
    elif own:
        yield from own_year_lines(own, keys.tax_fraction)
    elif is_owned(service.machine, context):
        what = f"{service.name}: energy of {size}, a year"
        yield energy_line(what, service.energy_j_per_year.value, service.machine.accelerator, context)
    if price is None:
        return
    out = sum((one.output_tokens or 0.0) * one.rate_per_s for one in service.classes) * YEAR_S
    streamed = context.catalog.economic("bytes of a streamed token")
    asked = economic_by_provider("egress from", price.provider, context.catalog)
    yield line_item(
        f"{service.name}: {out / 1e9:,.1f} Gtok answered, {streamed.value:g} B each on the wire",
        "egress",
        out * streamed.value / TB,
        "TB",
        UnitCost(asked.value, f"{cited(asked)}, {price.provider}", asked.date),
        tax_fraction=keys.tax_fraction,
    )


def energy_line(what: str, energy_j: float, accelerator: str, context: Context) -> LineItem:
    """Energy of machines of one's own that stand in no building, at the meter: while they work alone."""
    tariff = electricity([own_place(accelerator, context)], context)
    kwh = energy_usd(energy_j, 1.0)
    return line_item(
        what,
        "energy",
        kwh,
        "kWh",
        tariff,
        tax_fraction=context.spec.supply.economics.tax_fraction,
    )
