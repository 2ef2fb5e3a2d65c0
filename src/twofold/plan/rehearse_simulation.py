"""Runs of all pools put together: one simulation, its beliefs beside each other, and two scenarios paired."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import sqrt
from statistics import fmean, stdev

from twofold.contracts import SIMULATION_SCHEMA as SCHEMA
from twofold.contracts import (
    BeliefRun,
    BrokeFirst,
    ClassFigures,
    Comparison,
    Difference,
    Scenario,
    Simulation,
)
from twofold.plan.rehearse_figures import class_figures, fleet_figures
from twofold.plan.rehearse_gate import policies_on
from twofold.plan.rehearse_run import PoolTask, Tell, recorded_run, run_all
from twofold.twin import FleetResult, RequestRecord

# Student's t at 97.5 %, by degrees of freedom; what is beyond is taken at the last.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
METRICS = ("ttft", "tpot", "e2e")
Record = Callable[[RequestRecord], None]
Results = Sequence[FleetResult]


def run_pools(
    tasks: Sequence[PoolTask],
    factors: Sequence[float],
    tell: Tell,
    process_count: int,
    record: Record | None = None,
) -> list[Results]:
    """The results of all tasks for each belief factor. With `record`, the first factor's runs are told."""
    if record is None:
        pairs = [(task, factor) for factor, task in product(factors, tasks)]
        flat = run_all(pairs, tell, process_count)
        return [flat[index : index + len(tasks)] for index in range(0, len(flat), max(1, len(tasks)))]
    tell("rehearsing, every request recorded")
    first = [recorded_run(task, factors[0], record) for task in tasks]
    return [first, *run_pools(tasks, factors[1:], tell, process_count)] if factors[1:] else [first]


def simulation_of(
    name: str,
    scenario: Scenario,
    seed: int,
    tasks: Sequence[PoolTask],
    runs: Mapping[float, Results],
) -> Simulation:
    """The figures of runs by belief factor; those with perfect beliefs are the ones in front."""
    results = runs[1.0]
    classes = _classes(tasks, results)
    fleets = tuple(
        fleet_figures(task.service.name, task.service.machine.accelerator, task.pool, result, task.world)
        for task, result in zip(tasks, results, strict=True)
    )
    broken = [fleet.broke_first for fleet in fleets if fleet.broke_first is not None]
    return Simulation(
        schema=SCHEMA,
        name=name,
        twofold="",
        plan_digest="",
        scenario=scenario.name,
        about=scenario.about,
        seed=seed,
        horizon_s=max((task.world.horizon_s for task in tasks), default=0.0),
        warm_up_s=max((task.world.warm_up_s for task in tasks), default=0.0),
        traffic={each: origin for task in tasks for each, origin in task.origins.items()},
        policies=policies_on(scenario.policies) if tasks else (),
        classes=classes,
        fleets=fleets,
        beliefs=tuple(_belief_run(factor, tasks, found) for factor, found in runs.items()) if tasks else (),
        training=None,
        slos_met=_met(classes),
        broke_first=_first(broken),
        event_count=sum(fleet.event_count for fleet in fleets),
        decision_count=sum(fleet.decision_count for fleet in fleets),
        notes=_notes(classes),
    )


def _classes(tasks: Sequence[PoolTask], results: Results) -> tuple[ClassFigures, ...]:
    return tuple(
        class_figures(planned, counted, task.service.name, task.pool.pool.name, result, task.world)
        for task, result in zip(tasks, results, strict=True)
        for planned, counted in zip(task.classes, result.classes, strict=True)
    )


def _met(classes: Sequence[ClassFigures]) -> bool:
    return all(slo.met is not False for each in classes for slo in each.slos)


def _first(broken: Sequence[BrokeFirst]) -> str | None:
    return min(broken, key=lambda one: one.at_s).text if broken else None


def _notes(classes: Sequence[ClassFigures]) -> tuple[str, ...]:
    """Which p95 the run is too short for."""
    open_ones = [
        f"{metric.upper()} of {each.name}"
        for each in classes
        for metric in METRICS
        if any(slo.metric == f"{metric}_p95" for slo in each.slos)
        and (figures := getattr(each, f"{metric}_s")) is not None
        and not figures.resolved
    ]
    if not open_ones:
        return ()
    return (f"not resolved to 10 %: p95 of {', '.join(open_ones)}; a longer `horizon` narrows it",)


def _belief_run(factor: float, tasks: Sequence[PoolTask], results: Results) -> BeliefRun:
    classes = _classes(tasks, results)
    arrived = sum(each.arrived_count for each in classes)
    within = sum(each.goodput_fraction * each.arrived_count for each in classes)

    def p95_s(metric: str) -> dict[str, float | None]:
        found = {each.name: getattr(each, f"{metric}_s") for each in classes}
        return {name: figures.p95 if figures else None for name, figures in found.items()}

    return BeliefRun(
        factor,
        within / arrived if arrived else 0.0,
        p95_s("ttft"),
        p95_s("tpot"),
        p95_s("e2e"),
        _met(classes),
    )


def compared(first: Sequence[Simulation], second: Sequence[Simulation]) -> Comparison:
    """Figures of two scenarios over the same seeds, with intervals of the paired differences.

    Formula  mean ± t(n−1, 97.5 %)·s/√n of the differences B − A, seed by seed
    Why      Both see the same requests and the same chance, so that what they share cancels.
    """
    differences = []
    for name, of in _compared_figures(first[0]).items():
        pairs = [(of(a), of(b)) for a, b in zip(first, second, strict=True)]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) < 2:
            continue
        gaps = [b - a for a, b in known]
        half = STUDENT_T[min(len(gaps) - 1, len(STUDENT_T)) - 1] * stdev(gaps) / sqrt(len(gaps))
        middle = fmean(gaps)
        means = fmean(a for a, _ in known), fmean(b for _, b in known)
        differences.append(Difference(name, *means, middle, middle - half, middle + half))
    seeds = tuple(each.seed for each in first)
    return Comparison(first[0].scenario, second[0].scenario, seeds, tuple(differences))


Figure = Callable[[Simulation], float | None]


def _compared_figures(simulation: Simulation) -> dict[str, Figure]:
    """What is compared, by name: of each class its goals' metrics and goodput, of the whole its cost."""
    figures: dict[str, Figure] = {}
    for index, each in enumerate(simulation.classes):
        wanted = {slo.metric.split("_")[0] for slo in each.slos} & set(METRICS)
        for metric in (one for one in METRICS if one in wanted or not wanted):
            figures[f"{each.name}.{metric}_p95_s"] = _p95_of(index, metric)
        figures[f"{each.name}.goodput_fraction"] = _goodput_of(index)
    figures["retries"] = lambda one: float(sum(fleet.retry_count for fleet in one.fleets))
    figures["cost_usd"] = _cost
    return figures


def _p95_of(index: int, metric: str) -> Figure:
    def figure(simulation: Simulation) -> float | None:
        found = getattr(simulation.classes[index], f"{metric}_s")
        return found.p95 if found else None

    return figure


def _goodput_of(index: int) -> Figure:
    return lambda simulation: simulation.classes[index].goodput_fraction


def _cost(simulation: Simulation) -> float | None:
    costs = [fleet.cost_usd for fleet in simulation.fleets]
    return None if None in costs else sum(cost or 0.0 for cost in costs)
