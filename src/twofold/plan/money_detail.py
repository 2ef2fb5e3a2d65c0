"""What `--money` adds to a plan: levers in order, smaller shapes, and how sure the first year is."""

from collections.abc import Iterable
from dataclasses import replace

from twofold.catalog import Catalog
from twofold.contracts import LeverRow, MoneyDetail, Plan, Shape, Spec
from twofold.perf import Constants
from twofold.plan.build import PlanOptions
from twofold.plan.compliance_supply import authorised
from twofold.plan.context import Context
from twofold.plan.money_draws import (
    Priced,
    measuring,
    monte_carlo,
    priced_parts,
    residuals,
    swings,
)
from twofold.plan.money_levers import service_levers, sourcing
from twofold.plan.money_run_levers import run_levers
from twofold.plan.money_shapes import shapes
from twofold.plan.serving_choice import ServingChoice, choose_serving
from twofold.plan.training_choice import TrainingChoice, choose_training
from twofold.plan.uncertainty import draw_factors
from twofold.supply import Lever, ranked


def with_money_detail(
    plan: Plan, spec: Spec, catalog: Catalog, constants: Constants, options: PlanOptions
) -> Plan:
    """The plan whose money has its details; unchanged where nothing has a price.

    Every lever is planned again, so that this takes as long as a few plans.
    """
    if plan.money is None:
        return plan
    draws = draw_factors(constants, options.draw_count, options.seed)
    context = Context(spec, authorised(spec, catalog), constants, draws, options.today)
    runs = {each.name: choose_training(each, context) for each in spec.training if not each.model.measured}
    services = {each.name: choose_serving(each, context) for each in spec.services if not each.model.measured}
    priced = priced_parts(plan, runs, services, context)
    given = shapes(plan, runs, services, context)
    if not priced.runs and not priced.services:
        return replace(plan, money=replace(plan.money, detail=_of_shapes(given)))
    left = residuals(priced, context)
    found, count = monte_carlo(priced, left, context, spec.supply.budget_usd)
    detail = MoneyDetail(
        levers=tuple(_row(lever) for lever in ranked(_levers(priced, context))),
        shapes=given,
        swings=swings(priced, left, context),
        draw_count=count,
        mean_usd=found.mean,
        low_usd=found.low,
        median_usd=found.median,
        high_usd=found.high,
        over_budget_fraction=found.over_limit_fraction,
        measuring=measuring(priced, left, context),
    )
    return replace(plan, money=replace(plan.money, detail=detail))


def _of_shapes(found: tuple[Shape, ...]) -> MoneyDetail:
    """Nothing is rented: no lever saves money and no price is drawn; machines may still be too many."""
    return MoneyDetail((), found, (), 0, 0.0, 0.0, 0.0, 0.0, None, ())


def _levers(priced: Priced, context: Context) -> Iterable[Lever]:
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


def _row(lever: Lever) -> LeverRow:
    return LeverRow(
        name=lever.name,
        of=lever.of,
        pulled=lever.pulled.value,
        saves_usd_per_year=lever.saving_usd_per_year,
        saves_fraction=lever.saving_fraction,
        how=lever.how,
    )
