"""What a query, a token and a joule cost in a plan, what a hosted API asks, what outages are worth."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from twofold.answer.context import Context
from twofold.answer.supply_rules import may_host
from twofold.building.entries import electricity, place_of
from twofold.catalog.types import ApiPrice, Model
from twofold.contracts.goals import metric_text
from twofold.contracts.results import ledger, serving
from twofold.contracts.results.ledger import LineItem, total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.display import format_seconds
from twofold.core.errors import InputError
from twofold.core.estimate import Estimate
from twofold.core.quantity import DAY_S, YEAR_H, YEAR_S
from twofold.money import economics
from twofold.money.terms import downtime, inverted
from twofold.portfolio.demand import first_day
from twofold.portfolio.hosted import api_offers, published, usd_per_request

CURVE_RATIOS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)  # times the plan's own requests a day


def class_money(service: ServicePlan, one: ClassPlan) -> ledger.ClassMoney | None:
    """A class per query and per token; None without a price.

    Formula  per query = per 1k output tokens · output tokens / 1000; of measured rows, which count no
             tokens, the service's year over its queries
    """
    per_query = _per_query(service, one)
    if per_query is None:
        return None
    per_1k = per_mtok = tokens = None
    if one.input_tokens is not None and one.output_tokens is not None:
        tokens = one.input_tokens + one.output_tokens
        said = f"over {tokens:,.0f} tokens in and out of a query"
        per_1k, per_mtok = (
            record.note(name, per_query.times(count / tokens, "USD"), said, "usd_per_query")
            for name, count in (("usd_per_1k_tokens", 1e3), ("usd_per_mtok", 1e6))
        )
    promise = " · ".join(f"{metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}" for slo in one.slos)
    return ledger.ClassMoney(
        name=one.name,
        slo=promise,
        usd_per_query=per_query,
        usd_per_1k_tokens=per_1k,
        usd_per_mtok=per_mtok,
        queries_per_day=one.rate_per_s * DAY_S,
        tokens_per_day=None if tokens is None else one.rate_per_s * DAY_S * tokens,
    )


def _per_query(service: ServicePlan, one: ClassPlan) -> Estimate | None:
    """USD of one query; None without a price."""
    base = f"serving.{service.name}"
    per_1k = one.usd_per_1k_output_tokens
    if per_1k is not None and one.output_tokens:
        usd, said = per_1k.times(one.output_tokens / 1e3, "USD"), f"{one.output_tokens:,.0f} output tokens"
        at = f"{base}.classes.{one.name}.usd_per_1k_output_tokens"
        return record.note("usd_per_query", usd, said, at)
    cost, rate = service.cost_usd_per_year, sum(each.rate_per_s for each in service.classes)
    if cost is None or rate <= 0:
        return None
    queries = rate * YEAR_S
    usd, said = cost.times(1 / queries, "USD"), f"a year over {queries:,.0f} queries"
    return record.note("usd_per_query", usd, said, f"{base}.cost_usd_per_year")


def tokens_per_w(service: ServicePlan) -> Estimate | None:
    """Output tokens/s per watt at the meter, over a year: tokens per joule."""
    if any(one.output_tokens is None for one in service.classes) or service.energy_j_per_year.low <= 0:
        return None
    tokens = YEAR_S * sum((one.output_tokens or 0.0) * one.rate_per_s for one in service.classes)
    per_j, said = inverted(tokens, service.energy_j_per_year, "tok/J"), "Gtok of a year over its energy"
    used = f"serving.{service.name}.energy_j_per_year"
    return record.note("output_tokens_per_s_per_w", per_j, f"{tokens / 1e9:,.1f} {said}", used)


def run_money(
    run: TrainingPlan, entry: TrainingRun, services: Sequence[ServicePlan], context: Context
) -> ledger.RunMoney:
    """A run per token and joule, and the days of serving that cost as much (R-132)."""
    at = f"training.{run.name}"
    per_mtok = per_w = None
    if run.cost_usd and run.tokens:
        per_mtok = run.cost_usd.times(1e6 / run.tokens, "USD")
        record.note("usd_per_mtok", per_mtok, f"over {run.tokens / 1e6:,.0f} Mtok", f"{at}.cost_usd")
    if run.tokens and run.run.energy_j.low > 0:
        per_w, said = inverted(run.tokens, run.run.energy_j, "tok/J"), "Gtok over their energy"
        record.note("tokens_per_s_per_w", per_w, f"{run.tokens / 1e9:,.1f} {said}", f"{at}.run.energy_j")
    # The dearest priced service of the run's model; of a run of measured rows, any.
    same = [each for each in services if each.model == run.model or run.parameters is None]
    costs = [(each, each.cost_usd_per_year) for each in same]
    served = max(((each, cost) for each, cost in costs if cost), key=lambda each: each[1].value, default=None)
    curve, crossing = _lifetime(run, *served) if served else ((), None)
    day = ""
    if crossing is not None and crossing < 36500 and context.today is not None:
        # From the run's own first day, else the plan's; from today where neither is stated or both are past.
        begins = max(entry.first_day or first_day(context.spec) or context.today, context.today)
        day = (begins + timedelta(seconds=run.run.ends_s.value, days=crossing)).isoformat()
    return ledger.RunMoney(
        name=run.name,
        usd_per_mtok=per_mtok,
        tokens_per_s_per_w=per_w,
        runs_per_year=entry.runs_per_year,
        served_by=served[0].name if served else "",
        crossing_days=crossing,
        crossing_date=day,
        curve=curve,
    )


def _lifetime(
    run: TrainingPlan, service: ServicePlan, cost: Estimate
) -> tuple[tuple[ledger.LifetimeStep, ...], float | None]:
    if run.cost_usd is None:
        return (), None
    daily = sum(one.rate_per_s for one in service.classes) * DAY_S
    yearly = cost.value
    least_daily = yearly / 365 * min(1.0, least_fraction(service))
    steps = economics.lifetime_curve(
        run.cost_usd.value, yearly / 365 / daily, [daily * ratio for ratio in CURVE_RATIOS], least_daily
    )
    return steps, run.cost_usd.value * 365 / yearly if yearly > 0 else None


def least_fraction(service: ServicePlan) -> float:
    """The smallest fleet that answers at all over the planned one: one replica, and its spares.

    With several zones the loss of one leaves a replica; else what the availability asks for is one spare.
    """
    least = max(service.zones, 1 + (1 if service.spare_count else 0))
    return least / max(service.replica_count, 1)


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
    batch = {one.name for one in service.classes if not one.is_waited_for}
    waited = [each for each in service.pools if not set(each.classes) <= batch]
    pool = max(waited, key=lambda each: each.replica_count, default=None)
    return ledger.ServiceMoney(
        name=service.name,
        classes=tuple(each for each in classes if each),
        output_tokens_per_s_per_w=tokens_per_w(service),
        energy_usd_per_year=drawn_usd
        if own
        else economics.energy_usd(service.energy_j_per_year.value, tariff.usd),
        api=_api(service, plan, bill, context),
        downtime_usd_per_h=hour.usd,
        downtime_source=hour.source,
        spares=_spares(service, pool, hour.usd, context),
        nines=economics.nines(hour.usd),
        # Where others of the service have spares of their own.
        spares_of=" and ".join(pool.classes) if pool and len(service.pools) > 1 else "",
    )


def _api(
    service: ServicePlan, plan: Plan, bill: Sequence[LineItem], context: Context
) -> ledger.ApiComparison | None:
    """The cheapest hosted API for this mix, and from which volume the own fleet is cheaper (R-109).

    Both with tax; the own side with every line of its bill: rent, support, egress.
    """
    counted = all(one.input_tokens is not None for one in service.classes)
    model = _published(service, plan, context)
    never = context.spec.supply.shop.hosted == "never"
    if model is None or service.cost_usd_per_year is None or not counted or never:
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
    hosted = economics.usd_per_mtok(asked, tokens)
    volume = tokens / MTOK / MONTHS_PER_YEAR
    months = economics.break_even_months(own, hosted, volume)
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
        break_even_mtok_per_month=economics.break_even_mtok_per_month(own, hosted),
        mtok_per_month=volume,
        pays_back_months=months,
        pays_back_date=day,
    )


def _published(service: ServicePlan, plan: Plan, context: Context) -> Model | None:
    """The catalogue's model that a service serves, by its name or by the config.json of one's own."""
    own = next((each for each in plan.models if each.name == service.model), None)
    try:
        return published(own or context.catalog.model(service.model), context.catalog)
    except InputError:
        return None  # measured rows


def _own_cost(
    service: ServicePlan, mtok_per_year: float, plan: Plan, bill: Sequence[LineItem], context: Context
) -> economics.OwnCost:
    """The fleet as a floor and a slope, by the lines of its bill; the run that makes its model is once."""
    yearly = _billed(service.name, bill)
    once = [
        _billed(run.name, bill) / entry.runs_per_year
        for run, entry in zip(plan.training, context.spec.training, strict=True)
        if run.cost_usd and run.model == service.model
    ]
    return economics.OwnCost(
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
    paid = service.machine.usd_per_accelerator_h * (1.0 - keys.discount_fraction)
    per_replica = pool.replica.accelerator_count * paid * YEAR_H * service.machine.held_fraction
    catalog = context.catalog
    up, zone_up = (catalog.economic(each).value for each in ("replica available", "zone available"))
    outlasts = any(each.outlasts_zone for each in service.classes if each.name in pool.classes)
    failing = economics.Failing(up, zone_up, service.zones if outlasts else 1)
    best = economics.cheapest_redundancy(needed, per_replica, usd_per_h, failing).spare_count
    shown = {0, 1, 2, best, pool.spare_count, best + 1, *({best - 1} if best else ())}
    steps = economics.redundancy_steps(needed, per_replica, usd_per_h, failing, sorted(shown))
    return tuple(
        replace(step, planned=step.spare_count == pool.spare_count, best=step.spare_count == best)
        for step in steps
    )
