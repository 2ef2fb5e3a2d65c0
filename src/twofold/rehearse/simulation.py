"""Runs of all pools put together: one simulation, its beliefs beside each other, and two scenarios paired."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose, sqrt
from statistics import fmean, stdev

from twofold.contracts.goals import METRICS, SuccessGoal, metric_text
from twofold.contracts.results import simulated
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.scenario import Scenario
from twofold.rehearse.figure_table import flat_figures
from twofold.rehearse.figures import class_figures, fleet_figures
from twofold.rehearse.run import PoolTask
from twofold.twin.serving import fleet_types

Results = Sequence[fleet_types.FleetResult]


def simulation_of(
    name: str, scenario: Scenario, seed: int, tasks: Sequence[PoolTask], runs: Mapping[float, Results]
) -> simulated.Simulation:
    """The figures of runs by belief factor; those with perfect beliefs are the ones in front."""
    results = runs[1.0]
    classes = _classes(tasks, scenario, results)
    fleets = tuple(
        fleet_figures(task.service, task.pool, result, task.world, classes)
        for task, result in zip(tasks, results, strict=True)
    )
    broken = [fleet.broke_first for fleet in fleets if fleet.broke_first is not None]
    return simulated.Simulation(
        schema=simulated.SIMULATION_SCHEMA,
        name=name,
        twofold="",
        plan_digest="",
        scenario=scenario.name,
        about=scenario.about,
        seed=seed,
        horizon_s=max((task.world.horizon_s for task in tasks), default=0.0),
        warm_up_s=max((task.world.warm_up_s for task in tasks), default=0.0),
        traffic={each: origin for task in tasks for each, origin in task.origins.items()},
        policies=tuple(dict.fromkeys(name for task in tasks for name in task.policies)),
        classes=classes,
        fleets=fleets,
        beliefs=tuple(_belief_run(*run, tasks, scenario) for run in runs.items()) if tasks else (),
        training=None,
        slos_met=_met(classes) and all(tier.met is not False for each in fleets for tier in each.tiers),
        broke_first=min(broken, key=lambda one: one.at_s).text if broken else None,
        event_count=sum(fleet.event_count for fleet in fleets),
        decision_count=sum(fleet.decision_count for fleet in fleets),
        gate_digests={_named(task): task.gate.digest for task in tasks},
        notes=(*dict.fromkeys(note for task in tasks for note in task.notes), *_notes(classes)),
        courses=tuple(
            replace(result.course, service=fleet.service, pool=fleet.pool)
            for fleet, result in zip(fleets, results, strict=True)
        ),
    )


def _named(task: PoolTask) -> str:
    return f"{task.service.name}/{task.pool.pool.name}"


def _classes(tasks: Sequence[PoolTask], scenario: Scenario, results: Results) -> tuple[ClassFigures, ...]:
    return tuple(
        replace(
            class_figures(planned, counted, scenario, result, task.world),
            service=task.service.name,
            pool=task.pool.pool.name,
        )
        for task, result in zip(tasks, results, strict=True)
        for planned, counted in zip(task.classes, result.classes, strict=True)
    )


def _met(classes: Sequence[ClassFigures]) -> bool:
    """Whether no goal is missed, and one at least was judged where there are any: no evidence is no proof."""
    verdicts = {slo.met for each in classes for slo in each.slos}
    verdicts |= {each.success.met for each in classes if each.success}
    return False not in verdicts and verdicts != {None}


def _unjudged_notes(each: ClassFigures) -> Iterator[str]:
    """Why nothing is said of goals of a class."""
    unjudged = [slo for slo in each.slos if slo.met is None]
    if unjudged and not each.arrived_count:
        yield f"no request of {each.name} came after the warm-up: not judged"
        return
    for slo in unjudged:
        what = f"{metric_text(slo.metric)} of {each.name} is not judged"
        if slo.simulated_s is None:
            yield f"{what}: no answer has two tokens"
        else:
            yield f"{what}: under `on_zone_loss: degrade` it may wait for the zone's return"


def _notes(classes: Sequence[ClassFigures]) -> tuple[str, ...]:
    """Of which classes nothing was measured, and which p95 the run is too short for."""
    notes = [note for each in classes for note in _unjudged_notes(each)]
    vague = []
    for each in classes:
        promised = {slo.metric for slo in each.slos}
        for metric in METRICS:
            latency = getattr(each, f"{metric}_s")
            if f"{metric}_p95" in promised and latency is not None and not latency.resolved:
                vague.append(f"{metric.upper()} of {each.name}")
    for each in classes:
        if each.arrived_count and each.success and each.success.met is None:
            goal = SuccessGoal(each.success.goal_fraction)
            notes.append(
                f"success of {each.name} not resolved: {each.success.failed_count} of {each.arrived_count:,}"
                f" failed; {100 * goal.fraction:.6g} % needs {goal.least_count:,.0f}, so a longer `horizon`"
            )
        lost = [metric_text(slo.metric) for slo in each.slos if slo.met is False and slo.simulated_s is None]
        if lost:
            part = 100 * (1.0 - each.finished_count / each.arrived_count)
            notes.append(
                f"{part:.3g} % of {each.name} got no whole answer: too many for {' and '.join(lost)}"
            )
    if vague:
        notes.append(f"not resolved to 10 %: p95 of {', '.join(vague)}; a longer `horizon` narrows it")
    return tuple(notes)


def _belief_run(
    factor: float, results: Results, tasks: Sequence[PoolTask], scenario: Scenario
) -> simulated.BeliefRun:
    classes = _classes(tasks, scenario, results)
    arrived = sum(each.arrived_count for each in classes)
    within = sum(each.goodput_fraction * each.arrived_count for each in classes)
    ttft_s, tpot_s, e2e_s = (
        {each.name: latency.p95 if (latency := getattr(each, f"{metric}_s")) else None for each in classes}
        for metric in METRICS
    )
    fraction = within / arrived if arrived else 0.0
    return simulated.BeliefRun(factor, fraction, ttft_s, tpot_s, e2e_s, _met(classes))


# Student's t at 97.5 %, by degrees of freedom; what is beyond is taken at the last.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
ROUNDING = 1e-9  # of a figure: what sums in another order differ by


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % confidence interval; of one value, the value alone.

    Formula  mean ± t(n−1, 97.5 %)·s/√n
    """
    middle = fmean(values)
    if len(values) < 2:
        return middle, middle, middle
    half = STUDENT_T[min(len(values) - 1, len(STUDENT_T)) - 1] * stdev(values) / sqrt(len(values))
    return middle, middle - half, middle + half


def compared(
    first: Sequence[simulated.Simulation], second: Sequence[simulated.Simulation]
) -> simulated.Comparison:
    """Figures of two scenarios over the same seeds, with intervals of the paired differences B − A.

    Why      Both see the same requests and the same chance, so that what they share cancels.
    """
    a, b = [flat_figures(each) for each in first], [flat_figures(each) for each in second]
    differences = []
    for name in a[0]:
        known = [(x[name], y[name]) for x, y in zip(a, b, strict=True) if name in x and name in y]
        if len(known) < min(2, len(a)):
            continue
        gaps = mean_interval([0.0 if isclose(x, y, rel_tol=ROUNDING) else y - x for x, y in known])
        differences.append(
            simulated.Difference(name, fmean(x for x, _ in known), fmean(y for _, y in known), *gaps)
        )
    seeds = tuple(each.seed for each in first)
    return simulated.Comparison(first[0].scenario, second[0].scenario, seeds, tuple(differences))
