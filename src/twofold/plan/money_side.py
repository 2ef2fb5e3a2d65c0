"""Puts the money of a plan together: the bill, what tokens cost, owning against renting."""

from dataclasses import replace

from twofold.contracts import Derivation, Money, Plan, total_usd
from twofold.plan.context import Context
from twofold.plan.money_bill import bill_lines, first_year_difference, rented_lines
from twofold.plan.money_owning import owning, ratios
from twofold.plan.money_serving import may_host, service_money
from twofold.plan.money_units import run_money


def with_money(plan: Plan, context: Context) -> Plan:
    """The plan with its money; the same plan where nothing in it has a price to rent or to buy."""
    keys = context.spec.supply.economics
    lines = bill_lines(plan, context)
    rented = rented_lines(plan, lines, context)
    later = rented_lines(plan, bill_lines(plan, context, later=True), context, later=True)
    bought = owning(plan, rented, later, context)
    if not lines and bought is None:
        return plan
    derivations: list[Derivation] = []
    services, runs = [], []
    for service in plan.serving:
        found, rows = service_money(service, plan, context)
        services.append(found)
        derivations += rows
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        spent, rows = run_money(run, entry, plan.serving, context)
        runs.append(spent)
        derivations += rows
    first_year = plan.first_year_usd.value if plan.first_year_usd else None
    money = Money(
        currency=keys.currency,
        exchange_ratio=keys.exchange_ratio,
        discount_fraction=keys.discount_fraction,
        tax_fraction=keys.tax_fraction,
        lines=lines,
        total_usd=total_usd(lines),
        difference=first_year_difference(lines, first_year),
        services=tuple(services),
        runs=tuple(runs),
        ratios=ratios(plan, context),
        owning=bought,
        notes=_notes(plan, context),
    )
    return replace(plan, money=money, derivations=(*plan.derivations, *derivations))


def _notes(plan: Plan, context: Context) -> tuple[str, ...]:
    """What the money rests on that nobody stated."""
    notes = []
    keys = context.spec.supply.economics
    if plan.serving and keys.downtime_usd_per_h is None:
        notes.append("the cost of an hour down is assumed: `supply.economics.downtime_cost` states yours")
    machines = [*(run.machine for run in plan.training), *(each.machine for each in plan.serving)]
    if any(machine.price for machine in machines):
        notes.append("egress, support and storage are list prices of economics.csv, which you may replace")
    if (
        plan.serving
        and context.spec.compliance
        and not any(may_host(price.provider, context) for price in context.catalog.api_prices())
    ):
        regime = context.spec.compliance.regime
        notes.append(f"no hosted interface is compared: none of a provider authorised for {regime} is known")
    return tuple(notes)
