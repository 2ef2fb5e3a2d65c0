"""What a query, a token and a joule cost in a plan, each with its derivation."""

from collections.abc import Sequence
from datetime import timedelta

from twofold.answer import Context, derived, path_input
from twofold.contracts import metric_text
from twofold.contracts.results import ClassPlan, Derivation, Input, ServicePlan, TrainingPlan, ledger
from twofold.contracts.spec import TrainingRun
from twofold.core import DAY_S, YEAR_S, Estimate, format_seconds
from twofold.money.economics import lifetime_curve
from twofold.money.terms import inverted
from twofold.portfolio import first_day

CURVE_RATIOS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)  # times the plan's own requests a day


def class_money(service: ServicePlan, one: ClassPlan) -> tuple[ledger.ClassMoney | None, list[Derivation]]:
    """A class per query and per token; None without a price.

    Formula  per query = per 1k output tokens · output tokens / 1000; of measured rows, which count no
             tokens, the service's year over its queries
    """
    following = _per_query(service, one)
    if following is None:
        return None, []
    per_query, formula, source = following
    at = f"money.services.{service.name}.classes.{one.name}"
    found = [derived(f"{at}.usd_per_query", formula, source)]
    per_1k = per_mtok = None
    tokens = None
    if one.input_tokens is not None and one.output_tokens is not None:
        tokens = one.input_tokens + one.output_tokens
        per_1k, per_mtok = (per_query.times(count / tokens, "USD") for count in (1e3, 1e6))
        query = path_input("per query", per_query, f"{at}.usd_per_query")
        for name in ("usd_per_1k_tokens", "usd_per_mtok"):
            found.append(derived(f"{at}.{name}", f"over {tokens:,.0f} tokens in and out of a query", query))
    promise = " · ".join(f"{metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}" for slo in one.slos)
    return (
        ledger.ClassMoney(
            name=one.name,
            slo=promise,
            usd_per_query=per_query,
            usd_per_1k_tokens=per_1k,
            usd_per_mtok=per_mtok,
            queries_per_day=one.rate_per_s * DAY_S,
            tokens_per_day=None if tokens is None else one.rate_per_s * DAY_S * tokens,
        ),
        found,
    )


def _per_query(service: ServicePlan, one: ClassPlan) -> tuple[Estimate, str, Input] | None:
    """USD of one query, and how it follows from what; None without a price."""
    base = f"serving.{service.name}"
    per_1k = one.usd_per_1k_output_tokens
    if per_1k is not None and one.output_tokens:
        usd = per_1k.times(one.output_tokens / 1e3, "USD")
        path = f"{base}.classes.{one.name}.usd_per_1k_output_tokens"
        return usd, f"{one.output_tokens:,.0f} output tokens", path_input("per 1k", per_1k, path)
    cost, rate = service.cost_usd_per_year, sum(each.rate_per_s for each in service.classes)
    if cost is None or rate <= 0:
        return None
    queries = rate * YEAR_S
    source = path_input("a year", cost, f"{base}.cost_usd_per_year")
    return cost.times(1 / queries, "USD"), f"a year over {queries:,.0f} queries", source


def tokens_per_w(service: ServicePlan) -> tuple[Estimate | None, list[Derivation]]:
    """Output tokens/s per watt at the meter, over a year: tokens per joule."""
    if any(one.output_tokens is None for one in service.classes) or service.energy_j_per_year.low <= 0:
        return None, []
    tokens = YEAR_S * sum((one.output_tokens or 0.0) * one.rate_per_s for one in service.classes)
    energy = path_input("energy", service.energy_j_per_year, f"serving.{service.name}.energy_j_per_year")
    at = f"money.services.{service.name}.output_tokens_per_s_per_w"
    row = derived(at, f"{tokens / 1e9:,.1f} Gtok of a year over its energy", energy)
    return inverted(tokens, service.energy_j_per_year, "tok/J"), [row]


def run_money(
    run: TrainingPlan, entry: TrainingRun, services: Sequence[ServicePlan], context: Context
) -> tuple[ledger.RunMoney, list[Derivation]]:
    """A run per token and joule, and the days of serving that cost as much (R-132)."""
    at, found = f"money.runs.{run.name}", []
    per_mtok = per_w = None
    if run.cost_usd and run.tokens:
        per_mtok = run.cost_usd.times(1e6 / run.tokens, "USD")
        cost = path_input("cost", run.cost_usd, f"training.{run.name}.cost_usd")
        found.append(derived(f"{at}.usd_per_mtok", f"over {run.tokens / 1e6:,.0f} Mtok", cost))
    if run.tokens and run.run.energy_j.low > 0:
        per_w = inverted(run.tokens, run.run.energy_j, "tok/J")
        energy = path_input("energy", run.run.energy_j, f"training.{run.name}.run.energy_j")
        found.append(
            derived(f"{at}.tokens_per_s_per_w", f"{run.tokens / 1e9:,.1f} Gtok over their energy", energy)
        )
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
    return (
        ledger.RunMoney(
            name=run.name,
            usd_per_mtok=per_mtok,
            tokens_per_s_per_w=per_w,
            runs_per_year=entry.runs_per_year,
            served_by=served[0].name if served else "",
            crossing_days=crossing,
            crossing_date=day,
            curve=curve,
        ),
        found,
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
