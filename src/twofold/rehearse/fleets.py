"""`plan --rehearse`: a plan's fleet on the twin, at the peak and without its spares; what holds instead."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import TypeVar

import numpy as np

from twofold.answer.context import Context, model_of
from twofold.answer.serving_choice import ServingChoice, with_fleet
from twofold.answer.serving_pools import goals_of_pools, latency_with
from twofold.contracts.goals import METRICS, QUANTILES, metric_text
from twofold.contracts.results import serving, simulated
from twofold.contracts.results.serving import Rehearsal, ServicePlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.scenario import Scenario
from twofold.inference.fleet import TARGET_UTILISATION, ReplicaCount
from twofold.inference.search import Fleet, PoolChoice
from twofold.perf.types import one
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import RehearsalSettings, pool_tasks, tallied_run
from twofold.rehearse.simulation import simulation_of
from twofold.rehearse.workers import Tell, Workers, run_calls, standing_workers

# Of a class and point: more than the 2,000 that a p95 is judged by, and more where these leave it open.
FINISHED_COUNTS = (2500, 10_000)
GROWN_RATIOS = (1.15, 1.35, 1.6, 2.0)  # of the replicas of pools that do not hold, tried in turn
LATENCIES = {f"{metric}_{quantile}" for metric in METRICS for quantile in QUANTILES}
WORKERS = Workers(2)
SPEED_TOLD_BY = ("tpot", "e2e", "finish", "ttft")  # the nearest to a step first
# As `simulate` at the peak, but nothing but the fleet itself answers: what a closed form predicts.
PLAIN = {
    "name": "peak",
    "fleet": {"spares": "0"},
    "policies": {"canary": "off", "zones": "off", "outliers": "off"},
}
T = TypeVar("T")
Planned = Callable[[ServingChoice], ServicePlan]


@dataclass(frozen=True, slots=True)
class Trial:
    """One fleet with what the twin says of it."""

    choice: ServingChoice
    plan: ServicePlan
    classes: tuple[ClassFigures, ...]
    grown_from: "Trial | None" = None  # what the search asked for, which missed

    @property
    def missed(self) -> tuple[ClassFigures, ...]:
        """The classes that miss a goal."""
        return tuple(each for each in self.classes if each.missed)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Of each pool the replicas that it needs, without spares, and accelerators of one."""
        return [
            (pool.count.needed, round(one(pool.replica.accelerator_count)))
            for pool in self.choice.fleet.pools
        ]

    @property
    def name(self) -> str:
        """Such as `3 × 8 + 1 × 4 H100`."""
        sizes = " + ".join(f"{count} × {size}" for count, size in self.sizes)
        return f"{sizes} {self.plan.machine.accelerator}"


def rehearsed_service(
    choice: ServingChoice, planned: Planned, context: Context, tell: Tell
) -> tuple[ServingChoice, ServicePlan]:
    """The fleet as it was chosen where it holds on the twin, else the cheapest that does, and what was tried.

    Where it does not hold it grows by the replicas that it lacks, and is weighed against the runner-up by
    what their plans cost a year, then by accelerators. Where nothing holds the plan keeps it, and says so.
    """
    with standing_workers(WORKERS.process_count) as workers:
        return _rehearsed(choice, planned, context, tell, workers)


def _rehearsed(
    choice: ServingChoice, planned: Planned, context: Context, tell: Tell, workers: Workers
) -> tuple[ServingChoice, ServicePlan]:
    trials = [_trial(choice, planned, context, tell, workers)]
    if trials[0].missed:
        leased = choice.held and not choice.offer.owned
        others = [each.fleet for each in choice.rivals] if leased else choice.result.alternatives
        instead = (with_fleet(choice, each, context) for each in others[:1])
        beside: list[Callable[[], Trial | None]] = [
            partial(_trial, each, planned, context, tell, workers) for each in instead
        ]
        beside.append(partial(_grown_trial, trials[0], planned, context, tell, workers))
        trials += [each for each in _at_once(beside) if each]
    holding = [trial for trial in trials if not trial.missed]
    best = min(holding, key=_year_usd, default=trials[0])
    plan = _with_rehearsals(best, trials)
    if slow := max(slow_ratios(best.choice, context).values(), default=1.0) - 1.0:
        sure = f"{100 * context.spec.confidence_fraction:.3g} %"
        world = (
            f"rehearsed in the world of {sure}: steps take up to {100 * slow:.0f} % longer than in the middle"
        )
        plan = replace(plan, warnings=(*plan.warnings, world))
    if not best.missed:
        sought = [
            partial(_replica_need, best, place, context, tell, workers)
            for place in range(len(best.choice.fleet.pools))
        ]
        plan = replace(plan, replica_needs=tuple(need for need in _at_once(sought) if need))
    return best.choice, plan


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What calls return that wait for the twin in other processes, each in a thread."""
    if len(calls) <= 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result() for each in [threads.submit(call) for call in calls]]


def _trial(choice: ServingChoice, planned: Planned, context: Context, tell: Tell, workers: Workers) -> Trial:
    """A fleet of a service with what the twin says of it."""
    tell(f"rehearsing {choice.entry.name} on {choice.offer.accelerator.name}")
    plan = planned(choice)
    tables = tables_of(choice, context)
    pools = _at_once([partial(on_twin, plan, tables, {each.name}, workers) for each in plan.pools])
    return Trial(choice, plan, tuple(each for classes in pools for each in classes))


def _year_usd(trial: Trial) -> tuple[float, int]:
    """What a fleet costs a year, where it has a price, and its accelerators."""
    cost = trial.plan.cost_usd_per_year
    return cost.value if cost else 0.0, trial.choice.fleet.accelerators


def _grown_trial(
    first: Trial, planned: Planned, context: Context, tell: Tell, workers: Workers
) -> Trial | None:
    """The best fleet with more replicas in the pools that miss, until it holds."""
    missed = {each.pool for each in first.missed}
    tables = tables_of(first.choice, context)
    for ratio in GROWN_RATIOS:
        tell(f"rehearsing {first.choice.entry.name} with {100 * (ratio - 1):.0f} % more replicas")
        needed = {pool.classes[0]: pool.count.needed for pool in first.choice.fleet.pools}
        larger_counts = {name: max(needed[name] + 1, round(needed[name] * ratio)) for name in missed}
        grown = _resized(first.choice, larger_counts, context)
        counts = {pool.classes[0]: pool.count for pool in grown.fleet.pools}
        larger = tuple(
            replace(pool, replica_count=counts[pool.name].total, spare_count=counts[pool.name].spare)
            for pool in first.plan.pools
        )
        again = {
            each.name: each for each in on_twin(replace(first.plan, pools=larger), tables, missed, workers)
        }
        classes = tuple(again.get(each.name, each) for each in first.classes)
        if not any(each.missed for each in classes):
            return Trial(grown, planned(grown), classes, first)
    return None


def _replica_need(
    best: Trial, place: int, context: Context, tell: Tell, workers: Workers
) -> serving.ReplicaNeed | None:
    """Of a pool with limits on latencies how few replicas hold on the twin, and what explains the gap."""
    pool, searched = (each.choice.fleet.pools[place] for each in (best, best.grown_from or best))
    name = pool.classes[0]
    if not any(slo.metric in LATENCIES for each in _of_pool(best, name) for slo in each.slos):
        return None
    tell(f"rehearsing {best.choice.entry.name} with fewer replicas for {name}")
    seen = _seen_with_fewer(best, name, searched.count.needed, pool.count.needed, context, workers)
    holds = min(count for count, classes in seen.items() if not _missed(classes))
    misses = max((count for count, classes in seen.items() if _missed(classes)), default=None)
    class_name, metric = next(iter(_missed(seen[misses])), ("", "")) if misses else ("", "")
    goals = {(each.name, slo.metric): slo.simulated_s for each in seen[holds] for slo in each.slos}
    asked = metric in LATENCIES
    return serving.ReplicaNeed(
        pool=name,
        closed_form_count=searched.count.needed,
        full_load_count=ceil(pool.peak_per_s / pool.limit_per_s - 1e-9),
        holding_count=holds,
        missing_count=misses,
        class_name=class_name,
        metric=metric,
        predicted_s=latency_with(best.choice, pool, holds, class_name, metric) if asked else None,
        simulated_s=goals.get((class_name, metric)),
    )


def _seen_with_fewer(
    best: Trial, name: str, searched_count: int, planned_count: int, context: Context, workers: Workers
) -> dict[int, tuple[ClassFigures, ...]]:
    """By replicas of a pool what the twin says, down to the fewest that hold.

    Where two fewer than planned miss, the search agrees with the twin, and one fewer is not asked.
    """
    seen = {planned_count: _of_pool(best, name)}
    tables, holds, misses, step = tables_of(best.choice, context), planned_count, 0, 2
    if best.grown_from and searched_count < planned_count:
        misses, seen[searched_count] = searched_count, _of_pool(best.grown_from, name)
    while holds - misses > 1:
        count = (holds + misses) // 2 if misses else max(holds - step, 1)
        pools = (
            replace(pool, replica_count=count, spare_count=0) if pool.name == name else pool
            for pool in best.plan.pools
        )
        seen[count] = on_twin(replace(best.plan, pools=tuple(pools)), tables, {name}, workers)
        if not _missed(seen[count]):
            holds, step = count, 2 * step
            continue
        misses = count
        if count == planned_count - 2:
            break
    return seen


def _of_pool(trial: Trial, name: str) -> tuple[ClassFigures, ...]:
    return tuple(each for each in trial.classes if each.pool == name)


def _missed(classes: Sequence[ClassFigures]) -> list[tuple[str, str]]:
    """Class and metric of each goal that is missed."""
    return [(each.name, goal) for each in classes for goal in each.missed]


def _resized(choice: ServingChoice, counts: Mapping[str, int], context: Context) -> ServingChoice:
    """The choice with so many replicas, without spares, in the pools that are named by their first class."""
    grown = []
    for pool in choice.fleet.pools:
        if pool.classes[0] not in counts:
            grown.append(pool)
            continue
        needed = counts[pool.classes[0]]
        count = ReplicaCount.of(
            pool.peak_per_s,
            pool.peak_per_s / TARGET_UTILISATION / needed,
            zones=pool.count.zones,
            availability_fraction=choice.entry.availability_fraction,
        )
        usd_per_h = None if pool.usd_per_h is None else pool.usd_per_h * count.total / pool.count.total
        grown.append(replace(pool, count=count, usd_per_h=usd_per_h))
    prices = [pool.usd_per_h for pool in grown]
    fleet: Fleet = replace(
        choice.fleet,
        pools=tuple(grown),
        usd_per_h=None if None in prices else sum(price or 0.0 for price in prices),
        accelerators=sum(pool.accelerators for pool in grown),
    )
    return with_fleet(choice, fleet, context)


def on_twin(
    plan: ServicePlan,
    tables: RehearsalTables,
    only: Collection[str] = (),
    workers: Workers = WORKERS,
) -> tuple[ClassFigures, ...]:
    """The classes of a service at their peak; those that few requests leave open, with more of them.

    `only` names the pools that are run; none: all.
    """
    scenario, found = Scenario.model_validate(PLAIN), dict[str, ClassFigures]()
    for count in FINISHED_COUNTS:
        tasks = [
            task
            for task in pool_tasks(plan, RehearsalSettings(scenario, finished_count=count), tables)
            if not only or task.pool.pool.name in only
        ]
        calls = [partial(tallied_run, task.world, task.traffic, 1.0) for task in tasks]
        results = [result for result, *_ in run_calls(calls, lambda _: None, workers)]
        classes = simulation_of("", scenario, 0, tasks, {1.0: results}).classes
        found |= {each.name: each for each in classes}
        only = {each.pool for each in found.values() if not _decided(each)}
        if not only:
            break
    return tuple(found.values())


def tables_of(choice: ServingChoice, context: Context) -> RehearsalTables:
    """What a service's worlds are made from."""
    references = [choice.entry.model, *(each.model for each in choice.entry.variants)]
    models = {model.name: model for model in (model_of(each, context.catalog) for each in references)}
    given = context.catalog, context.constants, context.spec.supply, models.__getitem__
    return RehearsalTables(*given, slow_ratios=slow_ratios(choice, context))


def slow_ratios(choice: ServingChoice, context: Context) -> dict[str, float]:
    """How many times as long as in the middle true steps take, by pool, at the confidence of the spec.

    Formula  r with r · t(λ·r) = t_q: t the middle of a figure of the pool by its load, t_q its quantile at
             the load λ; of its time per token where it promises one, else of whole answers, of a day's
             work, of first tokens
    Why      Where steps take r times as long, all goes as under r times the load in a world whose clock
             runs r times slower. So a slow world has fuller batches, which make it slower still; t_q has
             both in it, and steps alone are slowed by less. What holds there holds as surely as the plan
             is asked to. All replicas of a pool err alike: one speed is slow and not a draw for each.
    Limits   none where the spec asks for the middle.
    """
    asked = context.spec.margin_fraction
    found: dict[str, float] = {}
    for pool, goals in zip(choice.fleet.pools, goals_of_pools(choice, context), strict=True):
        own = goals(pool.count.needed) if asked else {}
        nearest = min(own, key=lambda goal: SPEED_TOLD_BY.index(goal[1].split("_")[0]), default=None)
        if asked and nearest:
            figure = own[nearest][0]
            late = float(np.quantile(figure.samples, asked, method="inverted_cdf")) / figure.middle
            found[pool.classes[0]] = _slower_steps(choice, pool, nearest, max(1.0, late))
    return found


def _slower_steps(choice: ServingChoice, pool: PoolChoice, goal: tuple[str, str], late_ratio: float) -> float:
    """By what ratio steps are longer where a figure of a pool is by `late_ratio`, see `slow_ratios`."""
    if goal[1] == "finish_within":
        return late_ratio  # batches are full as it is

    def late(slow: float) -> float:
        seconds = latency_with(choice, pool, pool.count.needed / slow, *goal)
        return inf if seconds is None else slow * seconds

    usual, low, high = late(1.0), 1.0, late_ratio
    while high - low > 1e-3:
        middle = (low + high) / 2.0
        low, high = (middle, high) if late(middle) < late_ratio * usual else (low, middle)
    return high


def _decided(each: ClassFigures) -> bool:
    """Whether every p95 is known to 10 %, or misses its goal however it is read; and whole answers too."""
    if each.arrived_count and each.success is not None and each.success.met is None:
        return False
    return all(
        figure.resolved or (figure.low_s is not None and figure.low_s > slo.limit_s)
        for figure, slo in zip(_figures(each), each.slos, strict=True)
        if slo.metric.endswith("_p95")
    )


def _figures(each: ClassFigures) -> tuple[serving.RehearsedFigure, ...]:
    """Each goal of a class with its interval."""
    made = []
    for slo in each.slos:
        metric, _, which = slo.metric.rpartition("_")
        latency: simulated.LatencyFigures | None = getattr(each, f"{metric}_s", None)
        bounds = getattr(latency.interval, which) if latency else None
        low_s, high_s = bounds or (None, None)
        resolved = latency.resolved if latency else slo.simulated_s is not None
        made.append(serving.RehearsedFigure(slo.metric, slo.simulated_s, low_s, high_s, resolved, slo.met))
    return tuple(made)


def _with_rehearsals(best: Trial, trials: Sequence[Trial]) -> ServicePlan:
    """The best trial's plan, with what the twin says of it and of the others."""
    found = {each.name: each for each in best.classes}
    figures = {(each.name, figure.metric): figure for each in best.classes for figure in _figures(each)}
    classes = []
    for planned in best.plan.classes:
        slos = (replace(slo, rehearsed=figures.get((planned.name, slo.metric))) for slo in planned.slos)
        success, kept = planned.success, found[planned.name].success
        if kept is not None:
            success = replace(success, rehearsed_fraction=kept.simulated_fraction, rehearsed_met=kept.met)
        classes.append(replace(planned, slos=tuple(slos), success=success))
    return replace(
        best.plan,
        classes=tuple(classes),
        rehearsals=tuple(
            Rehearsal(
                name=trial.name,
                accelerator_count=sum(count * size for count, size in trial.sizes),
                chosen=trial is best,
                holds=not trial.missed,
                classes=tuple(_rehearsed_class(each) for each in trial.classes),
            )
            for trial in (best, *(trial for trial in trials if trial is not best))
        ),
        warnings=(*best.plan.warnings, *_warnings(best, trials)),
    )


def _rehearsed_class(each: ClassFigures) -> serving.RehearsedClass:
    kept = each.success
    seen = () if kept is None else (kept.simulated_fraction, kept.met)
    return serving.RehearsedClass(each.name, each.finished_count, _figures(each), *seen)


def _warnings(best: Trial, trials: Sequence[Trial]) -> tuple[str, ...]:
    """That the cheapest fleet did not hold and what is planned instead; and what is not known to 10 %."""
    warnings = []
    first = trials[0]
    if first.missed:
        goals = ", ".join(f"{each.name} {metric_text(goal)}" for each in first.missed for goal in each.missed)
        instead = "nothing that was tried does" if best is first else f"planned: {best.name}"
        warnings.append(f"rehearsed: {first.name} without spares misses {goals} at the peak; {instead}")
    vague = [
        f"{metric_text(figure.metric)} of {each.name}"
        for each in best.classes
        for figure in _figures(each)
        if not figure.resolved
    ]
    vague += [
        f"success of {each.name}"
        for each in best.classes
        if each.arrived_count and each.success and each.success.met is None
    ]
    if vague:
        warnings.append(
            f"rehearsed: unresolved, an interval wider than 10 % or too few requests: {', '.join(vague)}"
        )
    return tuple(warnings)
