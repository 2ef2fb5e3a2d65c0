"""Puts the money of a plan together: the bill, what tokens cost, owning against renting."""

from dataclasses import replace

from twofold.answer import Context, may_host
from twofold.catalog import ApiPrice
from twofold.contracts.results import Derivation, Money, Plan, cents, total_usd
from twofold.money.bill import bill_lines, first_year_difference, rented_lines
from twofold.money.first_year import with_first_year
from twofold.money.owning import owning, ratios
from twofold.money.portfolio import portfolio_bill
from twofold.money.serving import service_money
from twofold.money.units import run_money


def with_money(plan: Plan, context: Context) -> Plan:
    """The plan with its money; the same plan where nothing in it has a price to rent or to buy."""
    keys = context.spec.supply.economics
    lines = bill_lines(plan, context)
    rented, later = (rented_lines(plan, context, later=each) for each in (False, True))
    bought = owning(plan, rented, later, context)
    rent = plan.first_year_usd
    if not lines and bought is None:
        return plan if rent is None else with_first_year(plan, rent, lines)
    derivations: list[Derivation] = []
    services, runs = [], []
    for service in plan.serving:
        found, rows = service_money(service, plan, lines, context)
        services.append(found)
        derivations += rows
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        spent, rows = run_money(run, entry, plan.serving, context)
        runs.append(spent)
        derivations += rows
    money = Money(
        currency=keys.currency,
        exchange_ratio=keys.exchange_ratio,
        discount_fraction=keys.discount_fraction,
        tax_fraction=keys.tax_fraction,
        lines=lines,
        total_usd=total_usd(lines),
        difference=first_year_difference(lines, rent.value if rent else None),
        services=tuple(services),
        runs=tuple(runs),
        ratios=ratios(plan, context),
        owning=bought,
        notes=_notes(plan, context),
        portfolio=portfolio_bill(plan, lines, context),
    )
    plan = replace(plan, money=money, derivations=(*plan.derivations, *derivations))
    if not lines and rent is None:
        return plan  # nothing has a price
    if plan.compliance:
        without = cents(money.total_usd - plan.compliance.first_year_usd.value)
        plan = replace(plan, compliance=replace(plan.compliance, without_usd=without))
    return with_first_year(plan, rent, lines)


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
        and not any(may_host(price.provider, context) for price in context.catalog.rows(ApiPrice))
    ):
        regime = context.spec.compliance.regime
        notes.append(f"no hosted interface is compared: none of a provider authorised for {regime} is known")
    return tuple(notes)
