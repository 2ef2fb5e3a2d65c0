"""The gate of a service: a scenario's policies with settings that follow from the plan, and their digest.

The twin and live are both told what `build_gate` made: nobody else decides what a gate is set to.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twofold.contracts.goals import QUANTILES
from twofold.contracts.results.serving import ClassPlan, TierPlan
from twofold.contracts.spec.scenario import BASE_VERSION, Scenario
from twofold.contracts.spec.scenario_policies import Policies
from twofold.contracts.spec.service import Service
from twofold.core.data import to_data
from twofold.policy.gate import settings as gates
from twofold.policy.gate import tiers as gate_tiers
from twofold.policy.gate.small_trial import small_trial

LIMIT_RATIO = 2.0  # of a tenant's fair share of the peak: what its limit lets through by default
SCALED_RATIO = 2  # of the planned replicas: the most that scaling may start by default
STAGE_S = 60.0  # that one stage of a release takes, where traffic is thin …
SHARE_MAX = 0.5  # … with at most this share of it
RELEASE_S = 75.0  # that a trial takes where it is too thin for that: with a start it ends within two minutes
TIER_PATIENCE = 10.0  # times a tier's goal: what one of its servers may take for a request …
TIER_S_MIN, TIER_S_MAX = 1.0, 60.0  # … within these
BULK_WAIT_S = 3600.0  # that a request waits at most, where only a day's end is promised


@dataclass(frozen=True, slots=True)
class GatedPool:
    """One pool behind the gate."""

    name: str  # "" where it is the only one
    replica_count: int
    zones: tuple[str, ...]  # that its replicas are spread over, one of each that has any
    in_flight_limit: int  # of a replica


@dataclass(frozen=True, slots=True)
class GateScope:
    """What a gate is made from, besides the scenario."""

    pools: tuple[GatedPool, ...]
    classes: tuple[ClassPlan, ...]
    start_s: float  # from a decision to a ready replica, as planned
    routes: gates.RoutingSettings
    beliefs: gates.Beliefs  # at the load that the plan expects
    overflow: gates.OverflowSettings | None = None  # the spec's hosted API
    tiers: tuple[TierPlan, ...] = ()  # CPU servers before its replicas


@dataclass(frozen=True, slots=True)
class BuiltGate:
    """All that a gate is told at its start: what a rehearsal and a gateway must have alike."""

    settings: gates.GateSettings
    beliefs: gates.Beliefs
    in_flight_limits: tuple[tuple[str, int], ...]  # requests that a replica may have at once, by pool

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of all of it as JSON: equal for gates that decide alike.

        Numbers count to nine digits: the last bits, which differ between processors, decide nothing.
        """
        data = to_data(self)
        if not self.settings.tiers:  # gates without any are what they were before there were tiers
            del data["settings"]["tiers"]
        text = json.dumps(_rounded(data), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _rounded(data: Any) -> Any:
    if isinstance(data, float):
        return float(f"{data:.9g}")
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    return [_rounded(value) for value in data] if isinstance(data, list) else data


def build_gate(scenario: Scenario, gated: GateScope) -> BuiltGate:
    """The one gate of a service, for the twin and for live."""
    limits = tuple((pool.name, pool.in_flight_limit) for pool in gated.pools)
    return BuiltGate(gate_settings(scenario, gated), gated.beliefs, limits)


def gate_settings(scenario: Scenario, gated: GateScope) -> gates.GateSettings:
    """What is on, with the promises of the pools' classes and limits from their peak."""
    policies = scenario.policies
    on = {name: made(scenario, gated) for name, made in SETTINGS.items() if getattr(policies, name).is_on}
    return gates.GateSettings(
        routing=gates.Routing(policies.routing),
        routes=gated.routes,
        classes=tuple(
            _class_settings(each, policies, alike=policies.pools.kind == "shared") for each in gated.classes
        ),
        rollout=gates.RolloutSettings() if policies.canary.is_on else None,
        poison=gates.PoisonSettings(),
        overflow=gated.overflow,
        tiers=tuple(_tier_settings(each, policies, gated.classes) for each in gated.tiers),
        **on,
    )


def _tier_settings(
    planned: TierPlan, policies: Policies, classes: tuple[ClassPlan, ...]
) -> gates.TierSettings:
    """A tier's places and its line; who waits there waits no longer than for a replica."""
    bulk = not any(each.is_waited_for for each in classes)
    patience_s = min(max(TIER_PATIENCE * planned.goal_s, TIER_S_MIN), TIER_S_MAX)
    return gates.TierSettings(
        name=planned.name,
        replica_ids=gate_tiers.replica_ids(planned.name, planned.replica_count),
        in_flight_limit=planned.in_flight_limit,
        queue_limit_count=planned.queue_limit_count,
        wait_s_max=BULK_WAIT_S if bulk else policies.queue.wait_s,
        timeout_s=patience_s,
        p95_slo_s=planned.goal_s,
    )


def overflow_settings(service: Service) -> gates.OverflowSettings | None:
    """The hosted API that a spec names beside a service, as the gate is told of it."""
    told = service.overflow
    if told is None:
        return None
    return gates.OverflowSettings(
        in_flight_limit=told.in_flight_count,
        first_token_s=told.ttft_s,
        output_token_s=told.tpot_s,
        usd_per_input_mtok=told.input_price_usd,
        usd_per_output_mtok=told.output_price_usd,
        class_names=told.classes,
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
    if smaller := policies.smaller:
        named[named.index("degradation")] = f"degradation to {smaller.replicas} x {smaller.label}"
    return (f"{policies.routing} routing", "breaker", *named)


def _class_settings(planned: ClassPlan, policies: Policies, *, alike: bool) -> gates.ClassSettings:
    """A class's promises and its place in the queue; `alike`: the gate tells no bulk work from the rest."""
    limits, bulk = limits_of(planned), not planned.is_waited_for
    later = bulk and not alike
    shortest = policies.degradation.shortest_fraction if policies.degradation.is_on else 1.0
    smaller = policies.smaller
    return gates.ClassSettings(
        name=planned.name,
        kind=gates.ClassKind.BULK if later else gates.ClassKind.LATENCY,
        priority=1 if later else 0,
        ttft_slo_s=limits.get("ttft"),
        e2e_slo_s=limits.get("e2e"),
        tpot_slo_s=limits.get("tpot"),
        wait_s_max=BULK_WAIT_S if bulk else policies.queue.wait_s,
        queue_limit_count=policies.queue.depth,
        output_fraction_min=max(shortest, 0.01),
        smaller_model=smaller.label if smaller else "",
    )


def _retry_budget(policies: Policies) -> gates.RetryBudgetSettings:
    return gates.RetryBudgetSettings(attempts_fraction=policies.retry_budget.fraction)


def _answer_cache(policies: Policies) -> gates.AnswerCacheSettings:
    cache = policies.answer_cache
    return gates.AnswerCacheSettings(max(1, round(cache.size_bytes)), cache.age_s)


def _limits(scenario: Scenario, gated: GateScope) -> gates.LimitSettings:
    """What is stated; where nothing is, a tenant may ask for twice its fair share of the peak."""
    stated = scenario.policies.limits
    known = {each.name for each in gated.classes}
    by_class = tuple(
        (each.class_name, gates.Rate(each.requests_per_s, each.tokens_per_s))
        for each in stated.classes
        if each.class_name in known
    )
    if stated.requests_per_s is None and stated.tokens_per_s is None and not stated.classes:
        peak_per_s = sum(each.peak_per_s for each in gated.classes) * scenario.traffic.scale_ratio
        sharing = max(1, len(scenario.traffic.tenants))
        return gates.LimitSettings(tenant=gates.Rate(requests_per_s=LIMIT_RATIO * peak_per_s / sharing))
    rates = stated.requests_per_s, stated.tokens_per_s
    tenant = None if rates == (None, None) else gates.Rate(*rates)
    return gates.LimitSettings(tenant=tenant, classes=by_class)


def _scaling(scenario: Scenario, gated: GateScope) -> gates.ScalingSettings:
    """Bounds around the planned replicas; starts take as long as the plan says."""
    scaling, traffic = scenario.policies.scaling, scenario.traffic
    season_s = traffic.day_s if traffic.arrivals == "diurnal" else gates.ForecastSettings().season_s
    forecast = gates.ForecastSettings(season_s=season_s, bin_s=min(60.0, season_s / 24))
    pools = []
    for pool in gated.pools:
        most = scaling.most or SCALED_RATIO * pool.replica_count
        least, limit = min(scaling.least, most), pool.in_flight_limit
        pools.append(gates.PoolScaling(pool.name, least, most, "", BASE_VERSION, pool.zones, limit))
    return gates.ScalingSettings(
        pools=tuple(pools),
        start_s=gated.start_s,
        forecast=forecast if scaling.kind == "predictive" else None,
    )


def _canary(scenario: Scenario, gated: GateScope) -> gates.CanarySettings:
    """Stages as shared as they must be for their requests to come within `STAGE_S` each; where half of the
    traffic is too little for that, a small trial."""
    usual = gates.CanarySettings()
    rate = sum(each.peak_per_s for each in gated.classes) * scenario.traffic.scale_ratio
    if sum(stage.requests_count for stage in usual.stages) > SHARE_MAX * rate * len(usual.stages) * STAGE_S:
        return small_trial(rate, RELEASE_S)
    stages = []
    for stage in usual.stages:
        needed = min(SHARE_MAX, stage.requests_count / (rate * STAGE_S))
        stages.append(replace(stage, share_fraction=max(stage.share_fraction, needed)))
    return replace(usual, stages=tuple(sorted(stages, key=lambda stage: stage.share_fraction)))


def _warm(scenario: Scenario, _: GateScope) -> gates.WarmSettings:
    count, usual = scenario.policies.warm.replicas, gates.WarmSettings()
    return usual if count is None else replace(usual, max_count=count, min_count=count)


def _zones(_: Scenario, gated: GateScope) -> gates.ZoneSettings | None:
    """Only where there is another zone to go to."""
    has_zones = any(len(pool.zones) > 1 for pool in gated.pools)
    return gates.ZoneSettings(spare_zones_count=1) if has_zones else None


# What each policy of a scenario comes to where it is on, by its name there and in `GateSettings`.
SETTINGS: Mapping[str, Callable[[Scenario, GateScope], Any]] = {
    "limits": _limits,
    "admission": lambda *_: gates.AdmissionSettings(),
    "queue": lambda *_: gates.QueueSettings(),
    "degradation": lambda *_: gates.DegradationSettings(),
    "answer_cache": lambda scenario, _: _answer_cache(scenario.policies),
    "retry_budget": lambda scenario, _: _retry_budget(scenario.policies),
    "hedge": lambda *_: gates.HedgeSettings(),
    "outliers": lambda *_: gates.OutlierSettings(),
    "zones": _zones,
    "scaling": _scaling,
    "warm": _warm,
    "canary": _canary,
}
