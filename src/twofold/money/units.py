"""What a query, a token and a joule cost in a plan."""

from collections.abc import Sequence
from datetime import timedelta

from twofold.answer import Context
from twofold.contracts import metric_text
from twofold.contracts.results import ClassPlan, ServicePlan, TrainingPlan, ledger
from twofold.contracts.spec import TrainingRun
from twofold.core import DAY_S, YEAR_S, Estimate, format_seconds, record
from twofold.money.economics import lifetime_curve
from twofold.money.terms import inverted
from twofold.portfolio import first_day

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
        day = (begins + timedelta(seconds=run.run.total_s.value, days=crossing)).isoformat()
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
    steps = lifetime_curve(
        run.cost_usd.value, yearly / 365 / daily, [daily * ratio for ratio in CURVE_RATIOS], least_daily
    )
    return steps, run.cost_usd.value * 365 / yearly if yearly > 0 else None


def least_fraction(service: ServicePlan) -> float:
    """The smallest fleet that answers at all over the planned one: one replica, and its spares.

    With several zones the loss of one leaves a replica; else what the availability asks for is one spare.
    """
    least = max(service.zones, 1 + (1 if service.spare_count else 0))
    return least / max(service.replica_count, 1)
