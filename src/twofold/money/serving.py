"""A service's money: what its tokens cost, what a hosted interface asks, and what its outages are worth."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from twofold.answer import Context, may_host
from twofold.building import electricity, place_of
from twofold.catalog import ApiPrice
from twofold.contracts.results import LineItem, Plan, ServicePlan, ledger, serving, total_usd
from twofold.core import YEAR_H, YEAR_S, InputError, record
from twofold.money.economics import (
    Failing,
    OwnCost,
    break_even_months,
    break_even_mtok_per_month,
    cheapest_redundancy,
    energy_usd,
    nines,
    redundancy_steps,
    usd_per_mtok,
)
from twofold.money.terms import downtime
from twofold.money.units import class_money, least_fraction, tokens_per_w
from twofold.portfolio import api_offers, usd_per_request

MTOK, MONTHS_PER_YEAR = 1e6, 12.0


def service_money(
    service: ServicePlan, plan: Plan, bill: Sequence[LineItem], context: Context
) -> ledger.ServiceMoney:
    """Everything about one service's money."""
    classes = []
    for one in service.classes:
        with record.noting(f"classes.{one.name}"):
            classes.append(class_money(service, one))
    hour, tariff = downtime(context), electricity([place_of(service.machine, context)], context)
    # Energy of machines of one's own as billed, at rest too; else what is in the rent.
    own = [line for line in bill if line.what.startswith(f"{service.name}:") and line.unit == "kWh"]
    drawn_usd = sum(line.quantity * line.unit_usd for line in own)
    # Spares are weighed of the largest pool that somebody waits for: work of a day has no outage of an hour.
    batch = {one.name for one in service.classes if all(slo.metric == "finish_within" for slo in one.slos)}
    waited = [each for each in service.pools if not set(each.classes) <= batch]
    pool = max(waited, key=lambda each: each.replica_count, default=None)
    return ledger.ServiceMoney(
        name=service.name,
        classes=tuple(each for each in classes if each),
        output_tokens_per_s_per_w=tokens_per_w(service),
        energy_usd_per_year=drawn_usd if own else energy_usd(service.energy_j_per_year.value, tariff.usd),
        api=_api(service, plan, bill, context),
        downtime_usd_per_h=hour.usd,
        downtime_source=hour.source,
        spares=_spares(service, pool, hour.usd, context),
        nines=nines(hour.usd),
        # Where others of the service have spares of their own.
        spares_of=" and ".join(pool.classes) if pool and len(service.pools) > 1 else "",
    )


def _api(
    service: ServicePlan, plan: Plan, bill: Sequence[LineItem], context: Context
) -> ledger.ApiComparison | None:
    """The cheapest hosted interface for this mix, and from which volume the own fleet is cheaper (R-109).

    Both with tax; the own side with every line of its bill: rent, support, egress.
    """
    counted = all(one.input_tokens is not None for one in service.classes)
    try:
        model = context.catalog.model(service.model)
    except InputError:
        return None  # a config file of one's own, or measured rows
    if service.cost_usd_per_year is None or not counted:
        return None

    def usd_per_year(price: ApiPrice) -> float:
        return YEAR_S * sum(
            one.rate_per_s
            * usd_per_request(
                price, one.input_tokens or 0.0, one.output_tokens or 0.0, one.shared_prefix_fraction
            )
            for one in service.classes
        )

    offers = [each for each in api_offers(model, context.catalog) if may_host(each.price.provider, context)]
    if not offers:
        return None
    best = min(offers, key=lambda each: (usd_per_year(each.price), each.price.provider))
    price, taxed = best.price, 1.0 + context.spec.supply.economics.tax_fraction
    asked = taxed * usd_per_year(price)
    tokens = YEAR_S * sum(
        one.rate_per_s * ((one.input_tokens or 0.0) + (one.output_tokens or 0.0)) for one in service.classes
    )
    own = _own_cost(service, tokens / MTOK, plan, bill, context)
    hosted = usd_per_mtok(asked, tokens)
    volume = tokens / MTOK / MONTHS_PER_YEAR
    months = break_even_months(own, hosted, volume)
    day = ""
    if months is not None and context.today is not None and months < 1200:
        day = (context.today + timedelta(days=months * 365 / 12)).isoformat()
    return ledger.ApiComparison(
        provider=price.provider,
        model=best.model,
        same_model=best.same_model,
        input_usd_per_mtok=price.input_usd_per_mtok,
        output_usd_per_mtok=price.output_usd_per_mtok,
        date=price.date,
        source=price.source,
        usd_per_mtok=hosted,
        api_usd_per_year=asked,
        own_usd_per_year=own.usd_per_mtok * tokens / MTOK,
        least_own_usd_per_month=own.least_usd_per_month,
        once_usd=own.once_usd,
        break_even_mtok_per_month=break_even_mtok_per_month(own, hosted),
        mtok_per_month=volume,
        pays_back_months=months,
        pays_back_date=day,
    )


def _own_cost(
    service: ServicePlan, mtok_per_year: float, plan: Plan, bill: Sequence[LineItem], context: Context
) -> OwnCost:
    """The fleet as a floor and a slope, by the lines of its bill; the run that makes its model is once."""
    yearly = _billed(service.name, bill)
    once = [
        _billed(run.name, bill) / entry.runs_per_year
        for run, entry in zip(plan.training, context.spec.training, strict=True)
        if run.cost_usd and run.model == service.model
    ]
    return OwnCost(
        least_usd_per_month=yearly * min(1.0, least_fraction(service)) / MONTHS_PER_YEAR,
        usd_per_mtok=yearly / mtok_per_year if mtok_per_year else 0.0,
        once_usd=sum(once),
        months=MONTHS_PER_YEAR * context.spec.supply.economics.years,
    )


def _billed(name: str, bill: Sequence[LineItem]) -> float:
    """All lines of one run or service."""
    return total_usd(line for line in bill if line.what.startswith(f"{name}:"))


def _spares(
    service: ServicePlan, pool: serving.Pool | None, usd_per_h: float, context: Context
) -> tuple[ledger.SpareStep, ...]:
    """Spares of a pool beside what its outages cost (R-134)."""
    price = service.machine.price
    if price is None or pool is None:
        return ()
    keys = context.spec.supply.economics
    needed = pool.replica_count - pool.spare_count
    paid = price.usd_per_accelerator_h.value * (1.0 - keys.discount_fraction)
    per_replica = pool.replica.accelerator_count * paid * YEAR_H
    catalog = context.catalog
    up, zone_up = (catalog.economic(each).value for each in ("replica available", "zone available"))
    failing = Failing(up, zone_up, service.zones)
    best = cheapest_redundancy(needed, per_replica, usd_per_h, failing).spare_count
    shown = {0, 1, 2, best, pool.spare_count, best + 1, *({best - 1} if best else ())}
    steps = redundancy_steps(needed, per_replica, usd_per_h, failing, sorted(shown))
    return tuple(
        replace(step, planned=step.spare_count == pool.spare_count, best=step.spare_count == best)
        for step in steps
    )
