"""The gate that a rehearsal runs: a scenario's policies with settings that follow from the plan.

And which pools of a service stand behind one gate: the plan's, one for all classes, or two.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

from twofold.contracts.goals import QUANTILES
from twofold.contracts.results import serving
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.contracts.spec.scenario import Scenario
from twofold.contracts.spec.scenario_parts import FleetChange
from twofold.contracts.spec.scenario_policies import Policies
from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import settings
from twofold.rehearse.faults import BASE_VERSION, WorldPool

# Pools that one gate serves from, and by which rules it chooses between two.
PoolGroup = tuple[tuple[serving.Pool, ...], settings.PoolRules | None]


def pool_groups(
    service: ServicePlan, pools: Sequence[serving.Pool], change: FleetChange
) -> tuple[PoolGroup, ...]:
    """The plan's pools, put together as a scenario wants them.

    `shared` and `priority` make one pool of all replicas; its replicas are those of the first pool that
    answers somebody who waits. `split` has that one and one for bulk work, which the gate lets help each
    other. Raises ValueRefusedError where pools are of different replicas, or nothing can be parted.
    """
    if change.pools == "planned":
        return tuple(((pool,), None) for pool in pools)
    bulk_names = tuple(each.name for each in service.classes if not each.is_waited_for)
    waited = [pool for pool in pools if not set(pool.classes) <= set(bulk_names)]
    bulk = [pool for pool in pools if pool not in waited]
    if change.pools == "split" and not (waited and bulk):
        raise ValueRefusedError(
            f"`{service.name}` has no pool for bulk work beside one for answers that somebody waits for",
            hint="split classes that only promise a day's end, `finish_within`, from others",
        )
    # Replicas of one could serve the other's classes: equal but for how many sequences they take.
    bare = [(pool.model, replace(pool.replica, max_batch=0, chunk_tokens=None, text="")) for pool in pools]
    if any(each != bare[0] for each in bare):
        raise ValueRefusedError(
            f"the pools of `{service.name}` are of different replicas: no gate can send the same request to"
            " both",
            hint="leave `pools` out of `fleet`: then each pool of the plan is rehearsed behind a gate of its"
            " own",
        )
    if change.pools != "split":
        return (((_joined([*waited, *bulk]),), None),)
    latency_pool, bulk_pool = _joined(waited), _joined(bulk)
    rules = settings.PoolRules(latency_pool.name, bulk_pool.name, bulk_names, change.borrow_fraction)
    return (((latency_pool, bulk_pool), rules),)


def _joined(pools: Sequence[serving.Pool]) -> serving.Pool:
    """Pools of equal replicas as one; the rate of a replica is what keeps all of them within their goals."""
    whole = pools[0]
    for other in pools[1:]:
        needed = [pool.replica_count - pool.spare_count for pool in (whole, other)]
        rates = [pool.rate_per_replica_per_s for pool in (whole, other)]
        fewest = min(whole.replica.max_batch, other.replica.max_batch)  # the longest requests fill a cache
        whole = replace(
            whole,
            replica=replace(whole.replica, max_batch=fewest),
            classes=(*whole.classes, *other.classes),
            replica_count=whole.replica_count + other.replica_count,
            spare_count=whole.spare_count + other.spare_count,
            rate_per_replica_per_s=sum(map(mul, needed, rates)) / max(sum(needed), 1),
        )
    return whole


LIMIT_RATIO = 2.0  # of a tenant's fair share of the peak: what its limit lets through by default
SCALED_RATIO = 2  # of the planned replicas: the most that scaling may start by default
STAGE_S = 60.0  # that one stage of a release takes, where traffic is thin …
SHARE_MAX = 0.5  # … with at most this share of it
BULK_WAIT_S = 3600.0  # that a request waits at most, where only a day's end is promised


@dataclass(frozen=True, slots=True)
class GateScope:
    """What a gate's settings follow from, besides the scenario."""

    pools: tuple[WorldPool, ...]
    classes: tuple[ClassPlan, ...]
    start_s: float  # from a decision to a ready replica, as planned
    routes: settings.RoutingSettings


def gate_settings(scenario: Scenario, gated: GateScope) -> settings.GateSettings:
    """What is on, with the promises of the pools' classes and limits from their peak."""
    policies = scenario.policies
    on = {name: made(scenario, gated) for name, made in SETTINGS.items() if getattr(policies, name).is_on}
    return settings.GateSettings(
        routing=settings.Routing(policies.routing),
        routes=gated.routes,
        classes=tuple(
            _class_settings(each, policies, alike=scenario.fleet.pools == "shared") for each in gated.classes
        ),
        rollout=settings.RolloutSettings() if policies.canary.is_on else None,
        **on,
    )


def live_gate_settings(policies: Policies, classes: Sequence[ClassPlan]) -> settings.GateSettings:
    """The same for a gateway in front of one pool on this machine: who waits, in what order, who may repeat.

    Limits   what would refuse by a limit or a prediction, shorten, move or double requests is left out: `up`
             measures what it sends. A queue that is full, and repeats beyond their budget, are still refused.
    """
    return settings.GateSettings(
        routing=settings.Routing(policies.routing),
        classes=tuple(_class_settings(each, policies, alike=False) for each in classes),
        queue=settings.QueueSettings() if policies.queue.is_on else None,
        retry_budget=_retry_budget(policies) if policies.retry_budget.is_on else None,
    )


def limits_of(planned: ClassPlan) -> Mapping[str, float]:
    """The seconds within which a class's answers are to be, by metric: its p95 goal, else the nearest."""
    found: dict[str, float] = {}
    for which in sorted(QUANTILES, key=lambda quantile: -abs(int(quantile[1:]) - 95)):
        found |= {
            slo.metric.removesuffix(f"_{which}"): slo.limit_s
            for slo in planned.slos
            if slo.metric.endswith(f"_{which}")
        }
    return found


def policies_on(policies: Policies) -> tuple[str, ...]:
    """The names of what is on, the way to route first; circuit breakers and probes always are."""
    switched = {name: getattr(policies, name) for name in type(policies).model_fields if name != "routing"}
    named = [name.replace("_", " ") for name, policy in switched.items() if policy.is_on]
    return (f"{policies.routing} routing", "breaker", *named)


def _class_settings(planned: ClassPlan, policies: Policies, *, alike: bool) -> settings.ClassSettings:
    """A class's promises and its place in the queue; `alike`: the gate tells no bulk work from the rest."""
    limits, bulk = limits_of(planned), not planned.is_waited_for
    later = bulk and not alike
    shortest = policies.degradation.shortest_fraction if policies.degradation.is_on else 1.0
    return settings.ClassSettings(
        name=planned.name,
        kind=settings.ClassKind.BULK if later else settings.ClassKind.LATENCY,
        priority=1 if later else 0,
        ttft_slo_s=limits.get("ttft"),
        e2e_slo_s=limits.get("e2e"),
        tpot_slo_s=limits.get("tpot"),
        wait_s_max=BULK_WAIT_S if bulk else policies.queue.wait_s,
        queue_limit_count=policies.queue.depth,
        output_fraction_min=max(shortest, 0.01),
    )


def _retry_budget(policies: Policies) -> settings.RetryBudgetSettings:
    return settings.RetryBudgetSettings(attempts_fraction=policies.retry_budget.fraction)


def _limits(scenario: Scenario, gated: GateScope) -> settings.LimitSettings:
    """What is stated; where nothing is, a tenant may ask for twice its fair share of the peak."""
    stated = scenario.policies.limits
    known = {each.name for each in gated.classes}
    by_class = tuple(
        (each.class_name, settings.Rate(each.requests_per_s, each.tokens_per_s))
        for each in stated.classes
        if each.class_name in known
    )
    if stated.requests_per_s is None and stated.tokens_per_s is None and not stated.classes:
        peak_per_s = sum(each.peak_per_s for each in gated.classes) * scenario.traffic.scale_ratio
        sharing = max(1, len(scenario.traffic.tenants))
        return settings.LimitSettings(tenant=settings.Rate(requests_per_s=LIMIT_RATIO * peak_per_s / sharing))
    rates = stated.requests_per_s, stated.tokens_per_s
    tenant = None if rates == (None, None) else settings.Rate(*rates)
    return settings.LimitSettings(tenant=tenant, classes=by_class)


def _scaling(scenario: Scenario, gated: GateScope) -> settings.ScalingSettings:
    """Bounds around the planned replicas; starts take as long as the plan says."""
    scaling, traffic = scenario.policies.scaling, scenario.traffic
    season_s = traffic.day_s if traffic.arrivals == "diurnal" else settings.ForecastSettings().season_s
    forecast = settings.ForecastSettings(season_s=season_s, bin_s=min(60.0, season_s / 24))
    pools = []
    for pool in gated.pools:
        most = scaling.most or SCALED_RATIO * pool.replica_count
        least, zones = min(scaling.least, most), tuple(group.order.zone for group in pool.groups)
        pools.append(
            settings.PoolScaling(pool.name, least, most, "", BASE_VERSION, zones, pool.in_flight_limit)
        )
    return settings.ScalingSettings(
        pools=tuple(pools),
        start_s=gated.start_s,
        forecast=forecast if scaling.kind == "predictive" else None,
    )


def _canary(scenario: Scenario, gated: GateScope) -> settings.CanarySettings:
    """Stages as shared as they must be for their requests to come within `STAGE_S` each."""
    usual = settings.CanarySettings()
    rate = sum(each.peak_per_s for each in gated.classes) * scenario.traffic.scale_ratio
    stages = []
    for stage in usual.stages:
        needed = min(SHARE_MAX, stage.requests_count / (rate * STAGE_S))
        stages.append(replace(stage, share_fraction=max(stage.share_fraction, needed)))
    return replace(usual, stages=tuple(sorted(stages, key=lambda stage: stage.share_fraction)))


def _warm(scenario: Scenario, _: GateScope) -> settings.WarmSettings:
    count, usual = scenario.policies.warm.replicas, settings.WarmSettings()
    return usual if count is None else replace(usual, max_count=count, min_count=count)


def _zones(_: Scenario, gated: GateScope) -> settings.ZoneSettings | None:
    """Only where there is another zone to go to."""
    has_zones = any(len(pool.groups) > 1 for pool in gated.pools)
    return settings.ZoneSettings(spare_zones_count=1) if has_zones else None


# What each policy of a scenario comes to where it is on, by its name there and in `GateSettings`.
SETTINGS: Mapping[str, Callable[[Scenario, GateScope], Any]] = {
    "limits": _limits,
    "admission": lambda *_: settings.AdmissionSettings(),
    "queue": lambda *_: settings.QueueSettings(),
    "degradation": lambda *_: settings.DegradationSettings(),
    "retry_budget": lambda scenario, _: _retry_budget(scenario.policies),
    "hedge": lambda *_: settings.HedgeSettings(),
    "outliers": lambda *_: settings.OutlierSettings(),
    "zones": _zones,
    "scaling": _scaling,
    "warm": _warm,
    "canary": _canary,
}
