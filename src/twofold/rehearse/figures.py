"""From what a twin's run came to, to the figures of `twofold/simulation/1`, beside what the plan says."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import sqrt

from twofold.contracts.goals import QUANTILES, SuccessGoal, metric_text
from twofold.contracts.results import simulated
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.scenario import Scenario
from twofold.core.display import format_seconds
from twofold.core.quantity import YEAR_S
from twofold.rehearse.pools import PoolWorld
from twofold.rehearse.tenants import DECIDED
from twofold.twin.serving import fault_types, fleet_types
from twofold.twin.serving.faults import fault_span_s

POWER_S = 30.0  # over which power is averaged: what a meter of a hall sees
RECOVERED_FRACTION = 0.9  # of what was answered in time before
BEYOND_FRACTION = {name: round(1.0 - share, 6) for name, share in QUANTILES.items()}  # of requests
RECOVERY_S = 10.0  # over which that is judged


def class_figures(
    planned: ClassPlan,
    counted: ClassFigures,
    scenario: Scenario,
    result: fleet_types.FleetResult,
    world: fleet_types.FleetWorld,
) -> ClassFigures:
    """One class of a run, its goals judged by the middle of what was seen."""
    kept = []
    for slo in planned.slos:
        metric, _, which = slo.metric.rpartition("_")
        latency = getattr(counted, f"{metric}_s", None)
        if slo.metric == "finish_within":
            seen_s = _done_s(slo.limit_s, result, world)
        else:
            seen_s = latency.asked[which] if latency else None
        met: bool | None = seen_s is not None and seen_s <= slo.limit_s
        if metric == "tpot" and latency is None:  # answers came whole: no token follows another
            late = counted.arrived_count - counted.finished_count
            met = False if late > BEYOND_FRACTION[which] * counted.arrived_count + 1e-9 else None
        if not counted.arrived_count or (met is False and _may_wait(planned, scenario)):
            met = None
        expected_s = slo.predicted.value if slo.predicted else None
        kept.append(simulated.SloKept(slo.metric, slo.limit_s, seen_s, expected_s, met))
    return replace(counted, slos=tuple(kept), success=success_kept(planned, counted, scenario))


def _may_wait(planned: ClassPlan, scenario: Scenario) -> bool:
    """Whether a class may be late here: a zone is lost, and it is to wait for that."""
    return not planned.outlasts_zone and any(fault.kind == "zone-loss" for fault in scenario.faults)


def success_kept(planned: ClassPlan, counted: ClassFigures, scenario: Scenario) -> simulated.SuccessKept:
    """Whether enough requests got their whole answer, in this run and over the year of which it is a part.

    Formula  of the year: failed / (mean rate · time between two such runs)
    Why      A fault that fails 1 % of ten minutes twice a year hardly counts; the same every hour does.
    """
    of_plan = SuccessGoal(planned.success.goal_fraction)
    goal = SuccessGoal(scenario.success_fraction or of_plan.fraction)
    if scenario.is_disturbed:
        goal = of_plan.disturbed(scenario.success_fraction)
    asked, failed = counted.arrived_count, counted.arrived_count - counted.finished_count
    met, allowed, of_year = goal.met(failed, asked), 1.0 - of_plan.fraction, None
    if scenario.once_every_s is not None:
        of_year = min(failed / (planned.rate_per_s * min(scenario.once_every_s, YEAR_S)), 1.0)
        met = False if of_year > allowed else met
    seen = 1.0 - failed / asked if asked else None
    return simulated.SuccessKept(goal.fraction, seen, failed, of_year, allowed, met)


def _done_s(window_s: float, result: fleet_types.FleetResult, world: fleet_types.FleetWorld) -> float | None:
    """How long a day's work takes at the rate at which answers came while requests did.

    Formula  window · arrived / finished, at least the window; both from the warm-up to the horizon
    Why      Requests come at the rate that fills the window exactly; a pool that keeps up is done with it.
    """
    rows = [
        row for row in result.timeline if world.warm_up_s <= row.from_s and row.until_s <= world.horizon_s
    ]
    arrived = sum(row.arrived_count for row in rows)
    finished = sum(row.finished_count for row in rows)
    if not finished:
        return None
    # What is under way at both ends is no backlog: only what noise of counting cannot explain counts.
    behind: float = max(0.0, arrived - finished - 3.0 * sqrt(arrived))
    return window_s * arrived / (arrived - behind)


def fleet_figures(
    service: ServicePlan,
    pool: PoolWorld,
    result: fleet_types.FleetResult,
    world: fleet_types.FleetWorld,
    classes: Sequence[ClassFigures],
) -> simulated.FleetFigures:
    """One pool over the whole run; if no limit was seen to break, a missed goal broke first."""
    watts = power_w(result, pool.model)
    most_w = max(watts, default=0.0)
    ramp_limit_w_per_s = pool.ramp_w_per_s
    if ramp_limit_w_per_s is None:
        ramp_limit_w_per_s = pool.ramp_fraction_per_s * most_w or None
    own = [each for each in classes if (each.service, each.pool) == (service.name, pool.pool.name)]
    count, needed = result.figures.replica_count, pool.pool.replica_count - pool.pool.spare_count
    held_per_s = pool.pool.rate_per_replica_per_s * count
    own_figures, has_tokens = result.figures, pool.pool.replica.weights_format is not None
    if not has_tokens:
        own_figures = replace(own_figures, usd_per_1k_output_tokens=None, output_tokens_per_j=None)
    return replace(
        own_figures,
        has_tokens=has_tokens,
        load_fraction=sum(each.rate_per_s for each in own) / held_per_s if held_per_s else None,
        service=service.name,
        pool=pool.pool.name,
        accelerator=service.machine.accelerator,
        broke_first=result.figures.broke_first or missed_goal(own, world) or _missed_tier(result, world),
        power_w_max=most_w,
        power_ramp_w_per_s=max((abs(b - a) / POWER_S for a, b in pairwise(watts)), default=0.0),
        after_fault=after_fault(result, world),
        power_ramp_limit_w_per_s=ramp_limit_w_per_s,
        replica_text=pool.replica_text,
        spare_count=max(0, count - needed),
    )


def missed_goal(
    classes: Sequence[ClassFigures], world: fleet_types.FleetWorld
) -> simulated.BrokeFirst | None:
    """The first goal of a pool's classes that was missed, for a run in which no limit was seen to break.

    Why      limits are judged over spans with enough requests, goals over the whole run: few requests, and
             those that had not ended when the run was stopped, show in the goals alone.
    """
    for each in classes:
        for slo in each.slos:
            if slo.met is False and slo.simulated_s is not None:
                within = slo.metric == "finish_within"
                name = f"slo {each.name} {slo.metric if within else slo.metric.rpartition('_')[0]}"
                seen, limit = format_seconds(slo.simulated_s), format_seconds(slo.limit_s)
                text = (
                    f"{metric_text(slo.metric)} of {each.name} was {seen} over the whole run, above {limit}"
                )
                return simulated.BrokeFirst(world.warm_up_s, name, slo.simulated_s, slo.limit_s, text)
        if each.missed and each.success is not None:
            goal, failed = each.missed[-1], each.success.failed_count  # `success` where it is missed too
            most = BEYOND_FRACTION.get(goal[-3:], 1.0 - each.success.goal_fraction)
            text = f"{failed:,} of {each.arrived_count:,} requests of {each.name} had no whole answer"
            text += f", more than {metric_text(goal)} leaves over" if goal[-3:] in BEYOND_FRACTION else ""
            name, part = f"slo {each.name} {goal}", failed / max(each.arrived_count, 1)
            return simulated.BrokeFirst(world.warm_up_s, name, part, most, text)
    return None


def _missed_tier(
    result: fleet_types.FleetResult, world: fleet_types.FleetWorld
) -> simulated.BrokeFirst | None:
    """The first CPU tier whose own goal was missed, where no class's was."""
    for each in result.figures.tiers:
        if each.met is False and each.goal_s is not None:
            seen, limit = format_seconds(each.p95_s), format_seconds(each.goal_s)
            text = f"p95 of CPU tier {each.name} was {seen} over the whole run, above {limit}"
            return simulated.BrokeFirst(world.warm_up_s, f"tier {each.name}", each.p95_s, each.goal_s, text)
    return None


def power_w(result: fleet_types.FleetResult, model: fleet_types.ReplicaModel) -> list[float]:
    """What all ready machines draw together, in the mean of each span of `POWER_S`, the last part left out.

    Formula  ready replicas · (idle + busy fraction · (busy − idle))
    """
    spans: dict[int, list[tuple[float, float]]] = {}
    for row in result.timeline:
        watts = row.ready_replica_count * (model.idle_w + row.busy_fraction * (model.busy_w - model.idle_w))
        spans.setdefault(int(row.from_s / POWER_S), []).append((row.until_s - row.from_s, watts))
    whole = [parts for number, parts in spans.items() if (number + 1) * POWER_S <= result.figures.duration_s]
    return [sum(s * w for s, w in parts) / max(sum(s for s, _ in parts), 1e-9) for parts in whole]


def after_fault(
    result: fleet_types.FleetResult, world: fleet_types.FleetWorld
) -> simulated.AfterFault | None:
    """What the gate did from the first fault on; None where there was none, or it came by chance."""
    starts = [
        fault_span_s(fault)[0] for fault in world.faults if not isinstance(fault, fault_types.RandomCrashes)
    ]
    if not starts:
        return None
    at_s, last_s = min(starts), result.missent_last_s
    versions = {fault.version for fault in world.faults if isinstance(fault, fault_types.Release)}
    decided = any(name in result.first_effects_s for name in DECIDED)
    sent = sum(result.sent_counts.values())
    tried = sum(count for version, count in result.sent_counts.items() if version in versions)
    canary, stage_fraction = world.gate.canary, None
    if canary is not None and versions:
        # What the last stage that began was to get of the requests; where none did, the first.
        begun = max(1, result.figures.effects.get("StageRelease", 0))
        stage_fraction = canary.stages[min(begun, len(canary.stages)) - 1].share_fraction
    return simulated.AfterFault(
        at_s=at_s,
        first_effects_s={name: when_s - at_s for name, when_s in result.first_effects_s.items()},
        missent_count=result.missent_count,
        missent_s=None if last_s is None else last_s - at_s,
        recovered_s=_recovered_s(result.timeline, at_s, world),
        affected_fraction=tried / sent if sent and decided else None,
        stage_fraction=stage_fraction,
    )


def _recovered_s(
    rows: Sequence[fleet_types.TimelineRow], at_s: float, world: fleet_types.FleetWorld
) -> float | None:
    """From the fault until what is answered in time is back, judged over three spans in a row.

    Formula  the first span from which on Σ in time ≥ 90 % · (the share in time before) · Σ arrived over three
    """
    kept = [row for row in rows if row.until_s <= world.horizon_s]
    before = [row for row in kept if world.warm_up_s <= row.from_s and row.until_s <= at_s]
    arrived = sum(row.arrived_count for row in before)
    usual = sum(row.within_slo_count for row in before) / arrived if arrived else 1.0
    spans: dict[int, tuple[int, int]] = {}
    for row in kept:
        if row.from_s >= at_s:
            number = int((row.from_s - at_s) / RECOVERY_S)
            within, asked = spans.get(number, (0, 0))
            spans[number] = within + row.within_slo_count, asked + row.arrived_count
    for number in range(len(spans) - 2):
        parts = [spans.get(number + more, (0, 0)) for more in range(3)]
        if sum(w for w, _ in parts) >= RECOVERED_FRACTION * usual * sum(asked for _, asked in parts):
            return number * RECOVERY_S
    return None
