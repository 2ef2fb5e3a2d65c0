"""The gate that a rehearsal runs: a scenario's policies with settings that follow from the plan."""

from collections.abc import Mapping, Sequence

from twofold.contracts import ClassPlan, Policies, Scenario
from twofold.policy import (
    AdmissionSettings,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    Routing,
    RoutingSettings,
)

LIMIT_RATIO = 2.0  # of a tenant's fair share of the peak: what its limit lets through by default


def gate_settings(
    scenario: Scenario, classes: Sequence[ClassPlan], peak_per_s: float, routes: RoutingSettings
) -> GateSettings:
    """What is on, with the promises of the pool's classes and limits from its peak."""
    policies = scenario.policies
    return GateSettings(
        routing=Routing(policies.routing),
        routes=routes,
        classes=tuple(_class_settings(each, policies) for each in classes),
        limits=_limits(scenario, peak_per_s) if policies.limits.is_on else None,
        admission=AdmissionSettings() if policies.admission.is_on else None,
        queue=QueueSettings() if policies.queue.is_on else None,
        degradation=DegradationSettings() if policies.degradation.is_on else None,
        retry_budget=(
            RetryBudgetSettings(attempts_fraction=policies.retry_budget.fraction)
            if policies.retry_budget.is_on
            else None
        ),
        hedge=HedgeSettings() if policies.hedge.is_on else None,
    )


def limits_of(planned: ClassPlan) -> Mapping[str, float]:
    """The seconds within which a class's answers are to be, by metric: its p95 goal, else p99, else p50."""
    found: dict[str, float] = {}
    for which in ("p50", "p99", "p95"):
        found |= {
            slo.metric.removesuffix(f"_{which}"): slo.limit_s
            for slo in planned.slos
            if slo.metric.endswith(f"_{which}")
        }
    return found


def is_bulk(planned: ClassPlan) -> bool:
    """Whether only a day's end is promised, not a request's."""
    return all(slo.metric == "finish_within" for slo in planned.slos)


def policies_on(policies: Policies) -> tuple[str, ...]:
    """The names of what is on, the way to route first; circuit breakers and probes always are."""
    switched = {name: getattr(policies, name) for name in type(policies).model_fields if name != "routing"}
    named = [name.replace("_", " ") for name, policy in switched.items() if policy.is_on]
    return (f"{policies.routing} routing", "breaker", *named)


def _class_settings(planned: ClassPlan, policies: Policies) -> ClassSettings:
    limits = limits_of(planned)
    bulk = is_bulk(planned)
    shortest = policies.degradation.shortest_fraction if policies.degradation.is_on else 1.0
    return ClassSettings(
        name=planned.name,
        kind=ClassKind.BULK if bulk else ClassKind.LATENCY,
        priority=1 if bulk else 0,
        ttft_slo_s=limits.get("ttft"),
        e2e_slo_s=limits.get("e2e"),
        wait_s_max=policies.queue.wait_s if not bulk else max(policies.queue.wait_s, 600.0),
        queue_limit_count=policies.queue.depth,
        output_fraction_min=max(shortest, 0.01),
    )


def _limits(scenario: Scenario, peak_per_s: float) -> LimitSettings:
    """By default a tenant may ask for twice its fair share of the peak."""
    stated = scenario.policies.limits.requests_per_s
    sharing = max(1, len(scenario.traffic.tenants))
    return LimitSettings(tenant=Rate(requests_per_s=stated or LIMIT_RATIO * peak_per_s / sharing))
