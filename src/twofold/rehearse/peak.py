"""A service's fleet on the twin at its peak, without its spares, in the world of the spec's confidence."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from twofold.answer.context import Context, model_of
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_pools import goals_of_pools, latency_with
from twofold.contracts.results import serving, simulated
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.scenario import Scenario
from twofold.inference.search import PoolChoice
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import RehearsalSettings, pool_tasks, tallied_run
from twofold.rehearse.simulation import simulation_of
from twofold.rehearse.workers import Workers, run_calls

# Of a class and point: more than the 2,000 that a p95 is judged by, and more where these leave it open.
FINISHED_COUNTS = (2500, 10_000)
WORKERS = Workers(2)
SPEED_TOLD_BY = ("tpot", "e2e", "finish", "ttft")  # the nearest to a step first
# As `simulate` at the peak, but nothing but the fleet itself answers: what a closed form predicts.
PLAIN = {
    "name": "peak",
    "fleet": {"spares": "0"},
    "policies": {"canary": "off", "zones": "off", "outliers": "off"},
}
Goals = Mapping[tuple[str, str], tuple[Any, float]]  # what is predicted and its limit, by class and goal


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
    for pool, goals in pools_with_goals(choice, context) if asked else ():
        own = goals(pool.count.needed)
        if nearest := told_by(own):
            figure = own[nearest][0]
            late = float(np.quantile(figure.samples, asked or 0.5, method="inverted_cdf")) / figure.middle
            found[pool.classes[0]] = _slower_steps(choice, pool, nearest, max(1.0, late))
    return found


def pools_with_goals(
    choice: ServingChoice, context: Context
) -> list[tuple[PoolChoice, Callable[[int], Goals]]]:
    """Every pool with what is predicted for its goals by its replicas."""
    return list(zip(choice.fleet.pools, goals_of_pools(choice, context), strict=True))


def told_by(goals: Goals) -> tuple[str, str] | None:
    """The goal, of all of a pool's, that tells most nearly how long steps take."""
    return min(goals, key=lambda goal: SPEED_TOLD_BY.index(goal[1].split("_")[0]), default=None)


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
        for figure, slo in zip(figures_of(each), each.slos, strict=True)
        if slo.metric.endswith("_p95")
    )


def figures_of(each: ClassFigures) -> tuple[serving.RehearsedFigure, ...]:
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


def missed_goals(classes: Sequence[ClassFigures]) -> tuple[serving.MissedGoal, ...]:
    """Each goal that is missed."""
    found: list[serving.MissedGoal] = []
    for each in classes:
        limits = {slo.metric: (slo.simulated_s, slo.limit_s) for slo in each.slos}
        if each.success:
            limits["success"] = each.success.simulated_fraction, each.success.goal_fraction
        found += [serving.MissedGoal(each.name, goal, *limits[goal]) for goal in each.missed]
    return tuple(found)
