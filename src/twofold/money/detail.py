"""What `--money` adds to a plan: levers in order, smaller shapes, and how sure the first year is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from twofold.answer import Context, ServingChoice, TrainingChoice
from twofold.contracts.results import LeverRow, Money, MoneyDetail, Plan, Shape, total_usd
from twofold.money.draws import PricedHalves, measuring, monte_carlo, priced_parts, residuals, swings
from twofold.money.first_year import FOLLOWS_RENT
from twofold.money.levers import service_levers, sourcing
from twofold.money.run_levers import ranked, run_levers
from twofold.money.shapes import shapes


def detailed_money(
    plan: Plan,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> Plan:
    """The plan whose money has its details; unchanged where nothing has a price.

    Every lever is planned again, so that this takes as long as a few plans.
    """
    if plan.money is None:
        return plan
    priced = priced_parts(plan, runs, services, context)
    given = shapes(plan, runs, services, context)
    if not priced.runs and not priced.services:
        return replace(plan, money=replace(plan.money, detail=_of_shapes(given)))
    left, terms = residuals(priced, context), _terms(plan.money, priced)
    budget = context.spec.supply.budget_usd
    found, count = monte_carlo(priced, left, context, None if budget is None else terms.listed(budget))
    detail = MoneyDetail(
        levers=ranked(_levers(priced, context)),
        shapes=given,
        swings=tuple(
            replace(row, at_low_usd=terms.billed(row.at_low_usd), at_high_usd=terms.billed(row.at_high_usd))
            for row in swings(priced, left, context)
        ),
        draw_count=count,
        mean_usd=terms.billed(found.mean),
        low_usd=terms.billed(found.low),
        median_usd=terms.billed(found.median),
        high_usd=terms.billed(found.high),
        over_budget_fraction=found.over_limit_fraction,
        measuring=tuple(
            replace(
                row,
                before_usd=row.before_usd * terms.rent_factor,
                after_usd=row.after_usd * terms.rent_factor,
            )
            for row in measuring(priced, left, context)
        ),
    )
    return replace(plan, money=replace(plan.money, detail=detail))


@dataclass(frozen=True, slots=True)
class Billed:
    """How a bill follows from rent at list price: what grows with it, and what does not."""

    rent_factor: float
    fixed_usd: float

    def billed(self, rent_usd: float) -> float:
        """The first year's total with this rent at list price."""
        return self.fixed_usd + self.rent_factor * rent_usd

    def listed(self, billed_usd: float) -> float:
        """Rent at list price with which the first year costs this; any, or none, where rent is free."""
        left_usd = billed_usd - self.fixed_usd
        if self.rent_factor <= 0:
            return inf if left_usd >= 0 else -inf
        return left_usd / self.rent_factor


def _terms(money: Money, priced: PricedHalves) -> Billed:
    """Draws are of rent at list price; the total of the plan is the bill's.

    Formula  total = fixed + factor · rent; factor = (rent lines + support) / rent at list price
    """
    listed = sum(run.cost_usd.value * times for run, _, times in priced.runs if run.cost_usd)
    listed += sum(each.cost_usd_per_year.value for each, _ in priced.services if each.cost_usd_per_year)
    names = {run.name for run, *_ in priced.runs} | {each.name for each, _ in priced.services}
    follows = total_usd(
        line for line in money.lines if line.category in FOLLOWS_RENT and line.what.partition(":")[0] in names
    )
    return Billed(follows / listed if listed else 0.0, money.total_usd - follows)


def _of_shapes(found: tuple[Shape, ...]) -> MoneyDetail:
    """Nothing is rented: no lever saves money and no price is drawn; machines may still be too many."""
    return MoneyDetail((), found, (), 0, 0.0, 0.0, 0.0, 0.0, None, ())


def _levers(priced: PricedHalves, context: Context) -> Iterable[LeverRow]:
    spec = context.spec
    runs = {each.name: each for each in spec.training}
    services = {each.name: each for each in spec.services}
    for run, trained, times in priced.runs:
        if isinstance(trained, TrainingChoice):
            yield from run_levers(trained, run, times, context)
        assert run.cost_usd
        price = run.machine.price
        if price:
            paid, yearly = price.usd_per_accelerator_h.value, run.cost_usd.value * times
            yield from sourcing(runs[run.name], run.machine.accelerator, paid, yearly, context)
    for service, served in priced.services:
        if isinstance(served, ServingChoice):
            yield from service_levers(served, service, context)
        assert service.cost_usd_per_year
        price = service.machine.price
        if price:
            paid, yearly = price.usd_per_accelerator_h.value, service.cost_usd_per_year.value
            yield from sourcing(services[service.name], service.machine.accelerator, paid, yearly, context)
