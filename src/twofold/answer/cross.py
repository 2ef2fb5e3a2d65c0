"""The 2×2: what each half costs, and how it fares, on its own fleet and on the other half's."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from twofold.answer.context import Context
from twofold.answer.offers import Offer, bought_near, in_regions, run_terms
from twofold.answer.serving_choice import ClassLoad, ServingChoice, busy_hours, search_fleet
from twofold.answer.supply_rules import asked_regions
from twofold.answer.training_choice import TrainingChoice, trial_of_size
from twofold.catalog.capacity import CONTRACT
from twofold.contracts.results.plan import CrossCell
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core import record
from twofold.core.display import format_seconds, format_usd
from twofold.core.estimate import Estimate, Source, exact
from twofold.core.quantity import YEAR_H
from twofold.inference.search import Fleet

PLANNED, ELSEWHERE = "as planned", "the same model, on that fleet's machines"


def cross_cells(
    runs: Sequence[tuple[TrainingChoice, TrainingPlan]],
    services: Sequence[tuple[ServingChoice, ServicePlan]],
    context: Context,
) -> tuple[CrossCell, ...]:
    """Each run and each service on its own fleet, and on the largest fleet of the other half.

    Ranges on the other fleet are those of the own one, moved with its middle. Half a plan has no cells.
    """
    if not runs or not services:
        return ()
    training_offer = max(runs, key=lambda pair: pair[0].chosen.cluster.accelerator_count)[0].chosen.offer
    serving_choice = max(services, key=lambda pair: pair[0].fleet.accelerators)[0]
    cells: list[CrossCell] = []
    for choice, plan in runs:
        wall_s, cost, at = plan.run.total_s, plan.cost_usd, f"training.{plan.name}"
        text = f"{format_seconds(wall_s.value)}{f', {format_usd(cost.value)}' if cost else ''}"
        own = CrossCell("training", plan.name, "training", text, True, wall_s, cost, None)
        both = own, _run_elsewhere(choice, plan, serving_choice, context)
        _note(both, wall_s=f"{at}.run.total_s", cost_usd=f"{at}.cost_usd")
        cells += both
    for served, service in services:
        tpot, cost = _tightest(service, served), service.cost_usd_per_year
        priced = f"{format_usd(cost.value)}/y" if cost else "your own" if served.offer.owned else "no price"
        text = f"TPOT {format_seconds(tpot.value)}, {priced}"
        own = CrossCell("serving", service.name, "serving", text, True, None, cost, tpot)
        both = own, _service_elsewhere(served, service, training_offer, context)
        at = f"serving.{service.name}"
        latency = f"{at}.classes.{_tightest_class(served)}.percentiles.tpot_p95"
        _note(both, cost_usd=f"{at}.cost_usd_per_year", latency_s=latency)
        cells += both
    return tuple(cells)


def _note(cells: Sequence[CrossCell], **planned: str) -> None:
    """Figures at home are the plan's; on the other fleet as searched, and as uncertain as at home."""
    for cell in cells:
        at = f"{cell.half}.{cell.name}.{cell.fleet}"
        for name, path in planned.items():
            if cell.fleet == cell.half:
                record.note(f"{at}.{name}", getattr(cell, name), PLANNED, path)
            elif getattr(cells[0], name) is None:
                record.note(f"{at}.{name}", getattr(cell, name), ELSEWHERE, f"{at}.search")
            else:
                said = f"{ELSEWHERE}; the range of its own fleet's figure"
                record.note(f"{at}.{name}", getattr(cell, name), said, f"{at}.search", path)


def _run_elsewhere(
    choice: TrainingChoice, plan: TrainingPlan, serving: ServingChoice, context: Context
) -> CrossCell:
    """The run on the nodes of the serving fleet, as many as there are, at a price of the run's regions."""
    offer, supply, price = serving.offer, context.spec.supply, serving.offer.price
    regions, near = asked_regions(choice.entry, supply), serving.offer
    if price and not in_regions(context.catalog, price.provider, price.region, regions):
        sold = bought_near(offer, context.catalog, supply, regions, run_terms(supply.shop))
        if sold is None:
            return _misfit("training", plan.name, _not_sold(offer, regions))
        near = sold
    nodes = max(1, serving.fleet.accelerators // near.node.accelerator_count)
    # On the largest number of nodes that its batch divides over.
    for count in dict.fromkeys((nodes, 2 ** int(np.log2(nodes)))):
        found = trial_of_size(choice.entry, choice.job, near, count, context, supply.budget_usd)
        if found.run:
            break
    if found.run is None:
        return _misfit("training", plan.name, found.misses)
    wall_s = _moved(plan.run.total_s, found.run.total_s)
    cost = None if found.cost_usd is None else _cost_like(plan.cost_usd, found.cost_usd)
    # `99.7 d misses 30.0 d`: the cell has said the first part already.
    why = f", {found.misses.split(' ', 2)[-1]}" if found.misses else ""
    money = f", {format_usd(found.cost_usd)}" if found.cost_usd is not None else ""
    text = f"{format_seconds(found.run.total_s)}{money}{why}"
    return CrossCell("training", plan.name, "serving", text, not found.misses, wall_s, cost, None)


def _not_sold(offer: Offer, regions: tuple[str, ...]) -> str:
    return f"nobody sells {offer.accelerator.name} in {', '.join(regions)}"


def _misfit(half: str, name: str, why: str) -> CrossCell:
    other = "serving" if half == "training" else "training"
    return CrossCell(half, name, other, f"does not fit: {why}", False, None, None, None)


def _service_elsewhere(
    choice: ServingChoice, service: ServicePlan, offer: Offer, context: Context
) -> CrossCell:
    """The service on nodes of the training fleet, as many as it takes, bought in the service's regions."""
    name, supply = offer.accelerator.name, context.spec.supply
    regions, many = choice.entry.regions, choice.fleet.accelerators
    near = bought_near(offer, context.catalog, supply, regions, supply.shop.terms, many)
    if near is None:
        return _misfit("serving", service.name, _not_sold(offer, asked_regions(choice.entry, supply)))
    weighed = {rival.fleet.pools[0].offer: rival for rival in choice.rivals}
    rival, fleet = weighed.get(name), None
    if rival:
        fleet = rival.fleet
    else:
        unlimited = replace(near, node_count_max=None, fixed_count=None)
        result = search_fleet(choice.entry, (choice.variant,), choice.loads, {name: unlimited}, context)
        fleet = result.best
        if fleet is None:
            why = result.losers[0].detail if result.losers else result.binding
            return _misfit("serving", service.name, why)
    pool = next(pool for pool in fleet.pools if _tightest_class(choice) in pool.classes)
    latency = _moved(_tightest(service, choice), float(np.max(pool.served.tpot.p95_s)))
    year, cost = service.cost_usd_per_year, None
    money = ", your own" if near.owned else ", no price"
    usd = rival.usd_per_year if rival else _year_usd(fleet, near, choice, year)
    if usd is not None:
        cost = _cost_like(year, usd)
        more = f" ({100 * (cost.value / year.value - 1):+,.0f} %)" if year else ""
        money = f", {format_usd(cost.value)}/y{more}"
    text = f"TPOT {format_seconds(latency.value)}{money}"
    return CrossCell("serving", service.name, "training", text, True, None, cost, latency)


def _year_usd(fleet: Fleet, near: Offer, choice: ServingChoice, year: Estimate | None) -> float | None:
    """A year of a fleet that no lease was weighed for.

    Formula  price × 8760 h × (1 − rest · own rest over the year / own rest over a day), rest: the part of
             replicas that the hours of a day do not ask for
    Why      What is paid at home tells of weekends and seasons too. Few replicas cannot rest at all, and
             nobody takes back a contract at night.
    """
    if fleet.usd_per_h is None:
        return None
    usd, own = fleet.usd_per_h * YEAR_H, choice.fleet
    if year is None or not own.usd_per_h or (near.price and near.price.term == CONTRACT):
        return usd
    rest, at_home = (
        1.0 - float(busy_hours(each, choice.loads, choice.entry).mean()) / each.accelerators
        for each in (fleet, own)
    )
    unpaid = max(0.0, 1.0 - year.value / (own.usd_per_h * YEAR_H))
    return usd * (1.0 - unpaid * (min(1.0, rest / at_home) if at_home > 0.0 else 1.0))


def _tightest(service: ServicePlan, choice: ServingChoice) -> Estimate:
    """TPOT p95 of the class with the tightest promise."""
    name = _tightest_class(choice)
    return next(each.percentiles["tpot_p95"] for each in service.classes if each.name == name)


def _tightest_class(choice: ServingChoice) -> str:
    """The class with the shortest promised TPOT, else time to a first token, else end to end, else any."""

    def order(load: ClassLoad) -> tuple[float, ...]:
        targets = load.traffic.slo.latencies_s
        return tuple(
            min((limit for name, limit in targets.items() if name.startswith(metric)), default=inf)
            for metric in ("tpot", "ttft", "e2e")
        )

    return min(choice.loads, key=order).name


def _moved(like: Estimate, value: float) -> Estimate:
    """A range of the same width around another middle."""
    factor = value / like.value if like.value else 1.0
    return Estimate(value, like.low * factor, like.high * factor, like.unit, like.source)


def _cost_like(like: Estimate | None, value: float) -> Estimate:
    return _moved(like, value) if like else exact(value, "USD", Source.FITTED)
