"""The bill of the first year: rent by run and service, and what rent does not hold."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from twofold.answer.context import Context
from twofold.answer.hosted_overflow import hosted_shares
from twofold.building.compliance_costs import OF_RENT
from twofold.building.entries import COLLECTED, electricity, is_owned, own_place
from twofold.building.own import OwnYear, billed, own_year_lines, own_years
from twofold.catalog.figures import economic_by_provider
from twofold.catalog.file_system import file_system
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item, total_usd
from twofold.contracts.results.parts import PriceUsed
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_usd
from twofold.core.quantity import DAY_S, YEAR_H, YEAR_S
from twofold.money.economics import energy_usd
from twofold.money.terms import cost_of, listed_cost, price_instead
from twofold.portfolio.capacity import moved_weights_tb

MONTH_S = YEAR_S / 12
TB, TIB = 1e12, 2.0**40
YEARLY = "year"  # how an item of the rules recurs
LEAST_USD = 0.005  # what rounds to nothing is no line


def bill_lines(plan: Plan, context: Context, *, later: bool = False) -> tuple[LineItem, ...]:
    """Every line of the first year, each with its offer and date; discount and tax stand on the lines.

    `later`: of a year after it, in which only the runs that repeat are paid for.

    Formula  rent = accelerator-hours · list price; support = share of the rent; egress = bytes · price;
             storage = TB-months · price; energy of owned machines = kWh · tariff + demand charge, for the
             time that each has them, as the building has it; what rules ask for, as the part about rules
             has it, without the dearer rent that the rent lines hold already; a hosted API = requests that
             are late here · price
    Why      What a quote for machines leaves out is what a first bill surprises with.
    """
    lines: list[LineItem] = []
    over = [each.name for each in context.spec.training if later and not each.repeats_every_s]
    own = billed(own_years(plan, context), over)
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        if run.name not in over:
            lines += _run_lines(run, entry, own.get(run.name), context)
    for service in plan.serving:
        lines += _service_lines(service, own.get(service.name), context)
    lines += [
        item.line
        for item in (plan.compliance.items if plan.compliance else ())
        # Dearer rent stands in the lines of rent; what is paid once, in the first year alone.
        if item.category not in OF_RENT and (item.recurs == YEARLY or not later)
    ]
    return tuple(line for line in lines if abs(line.total_usd) >= LEAST_USD)


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


def _machine_lines(
    half: TrainingPlan | ServicePlan,
    list_usd: float | None,
    energy_j: float,
    words: tuple[str, str],  # how long, of what is rented and of what is owned
    own: OwnYear | None,
    context: Context,
) -> Iterator[LineItem]:
    """Accelerator-hours at the list price and the provider's support; of machines of one's own, energy."""
    machine, keys = half.machine, context.spec.supply.economics
    size = f"{machine.hourly_count} × {machine.accelerator}"
    if list_usd is not None and machine.price:
        base_usd = 0.0
        if base := machine.base_price:
            count = machine.accelerator_count - machine.hourly_count
            base_usd = count * YEAR_H * base.usd_per_accelerator_h.value
            held = f"{half.name}: {count} × {machine.accelerator} of them, held all year"
            yield from _rent_lines(held, base, base_usd, context)
        yield from _rent_lines(
            f"{half.name}: {size}, {words[0]}", machine.price, list_usd - base_usd, context
        )
    elif own:
        yield from own_year_lines(own, keys.tax_fraction)
    elif is_owned(machine, context):
        yield energy_line(f"{half.name}: energy of {size}{words[1]}", energy_j, machine.accelerator, context)


def _rent_lines(what: str, price: PriceUsed, list_usd: float, context: Context) -> Iterator[LineItem]:
    """Accelerator-hours of one lease at its list price, and the provider's support."""
    keys, hour = context.spec.supply.economics, listed_cost(price)
    off = keys.discount_fraction if price.discount_fraction is None else price.discount_fraction
    hours, tax = list_usd / hour.usd, keys.tax_fraction
    yield line_item(what, "rent", hours, "accelerator-h", hour, discount_fraction=off, tax_fraction=tax)
    known = economic_by_provider("support by", price.provider, context.catalog)
    share = known.value if price.support_fraction is None else price.support_fraction
    paid = replace(cost_of(known, price.provider), usd=list_usd * (1.0 - off))
    name = what.partition(":")[0]
    yield line_item(f"{name}: support", "support", share, "of the rent", paid, tax_fraction=tax)


def _egress_line(what: str, terabytes: float, price: PriceUsed, context: Context) -> LineItem:
    asked = cost_of(economic_by_provider("egress from", price.provider, context.catalog), price.provider)
    if price.egress_usd_per_tb is not None:
        asked = replace(asked, usd=price.egress_usd_per_tb)
    tax = context.spec.supply.economics.tax_fraction
    return line_item(what, "egress", terabytes, "TB", asked, tax_fraction=tax)


def _run_lines(
    run: TrainingPlan, entry: TrainingRun, own: OwnYear | None, context: Context
) -> Iterator[LineItem]:
    times, price = entry.runs_per_year, run.machine.price
    usd = run.cost_usd.value * times if run.cost_usd else None
    repeated = f", {times:.3g} times" if times != 1 else ""
    words = (f"{run.run.total_s.value / DAY_S:.1f} d{repeated}", repeated)
    yield from _machine_lines(run, usd, run.run.energy_j.value * times, words, own, context)
    if price:
        yield from kept_lines(run, entry, price.provider, context)
        moved_tb = moved_weights_tb(run.parameters or 0.0, entry.kind) * times
        what = f"{run.name}: weights moved out of {price.provider}"
        yield _egress_line(what, moved_tb, price, context)


def kept_lines(run: TrainingPlan, entry: TrainingRun, provider: str, context: Context) -> Iterator[LineItem]:
    """What a run's checkpoints cost, wherever it is rented: where they are written, and where they are kept.

    Formula  kept = size · checkpoints kept · months of object storage, once however often a run repeats:
             those of the next run take their place
    """
    checkpoint = run.run.checkpoints
    if checkpoint.size_bytes is None:
        return
    keys, catalog = context.spec.supply.economics, context.catalog
    kept, held = (catalog.economic(each).value for each in ("checkpoints kept", "months of object storage"))
    size_tb, needed = checkpoint.size_bytes * kept / TB, checkpoint.storage_bytes_per_s or 0.0
    store = file_system(checkpoint.size_bytes, needed, entry.kind, provider, catalog)
    if store:
        row = store.row
        others = "" if store.is_of_provider else f"; {provider} has none here: {row.name}"
        yield line_item(
            f"{run.name}: file system of {store.size_tb:.0f} TB for {needed / 1e9:.1f} GB/s{others}",
            "storage",
            store.tb_months(run.run.total_s.value) * entry.runs_per_year,
            "TB-month",
            UnitCost(row.usd_per_tb_month or 0.0, f"storage.csv {row.name}", COLLECTED),
            tax_fraction=keys.tax_fraction,
        )
    yield line_item(
        f"{run.name}: {kept:.0f} checkpoints kept {held:.0f} months",
        "storage",
        size_tb * held,
        "TB-month",
        cost_of(catalog.economic("object storage")),
        tax_fraction=keys.tax_fraction,
    )


def _service_lines(service: ServicePlan, own: OwnYear | None, context: Context) -> Iterator[LineItem]:
    cost, energy_j = service.cost_usd_per_year, service.energy_j_per_year.value
    usd = cost.value if cost else None
    machine, part = service.machine, ""
    if machine.held_fraction < 1.0:
        part = f", {machine.held_fraction * machine.node_count:.1f} of {machine.node_count} nodes on average"
    yield from _machine_lines(service, usd, energy_j, (f"a year{part}", ", a year"), own, context)
    for tier in service.tiers:
        if tier.usd_per_core_h is not None:
            source, _, day = tier.price_from.rpartition(", ")
            what = f"{service.name}: tier {tier.name}, {tier.replica_count} × {tier.cores} cores of"
            core_h = tier.replica_count * tier.cores * YEAR_H
            yield line_item(
                f"{what} {tier.accelerator}, a year",
                "rent",
                core_h,
                "core-h",
                UnitCost(tier.usd_per_core_h, source, day),
                tax_fraction=context.spec.supply.economics.tax_fraction,
            )
    if price := service.machine.price:
        out = sum((one.output_tokens or 0.0) * one.rate_per_s for one in service.classes) * YEAR_S
        sent_bytes = context.catalog.economic("bytes of a streamed token").value
        what = f"{service.name}: {out / 1e9:,.1f} Gtok answered, {sent_bytes:g} B each on the wire"
        sent_tb, share = out * sent_bytes / TB, machine.base_answered_fraction
        if machine.base_price:
            yield _egress_line(what, sent_tb * share, machine.base_price, context)
            sent_tb *= 1.0 - share
        yield _egress_line(what, sent_tb, price, context)
    yield from _hosted_lines(service, context)


def _hosted_lines(service: ServicePlan, context: Context) -> Iterator[LineItem]:
    """What the hosted API beside a service asks for what is late here."""
    entry = next((each for each in context.spec.services if each.name == service.name), None)
    for each in hosted_shares(entry, service.classes) if entry else ():
        share = f"{100 * (each.late_fraction or 0.0):.2g} % of {each.class_name} at the hosted API, at most"
        cost = UnitCost(each.usd_per_1k, "overflow: of the spec")
        tax = context.spec.supply.economics.tax_fraction
        thousands = each.requests_count_per_year / 1e3
        yield line_item(f"{service.name}: {share}", "hosted", thousands, "k requests", cost, tax_fraction=tax)


def energy_line(what: str, energy_j: float, accelerator: str, context: Context) -> LineItem:
    """Energy of machines of one's own that stand in no building, at the meter: while they work alone."""
    tariff = electricity([own_place(accelerator, context)], context)
    tax = context.spec.supply.economics.tax_fraction
    return line_item(what, "energy", energy_usd(energy_j, 1.0), "kWh", tariff, tax_fraction=tax)
