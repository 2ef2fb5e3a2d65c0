"""Rehearsals before they happen: the runs that each needs, all of them at once, and what they make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from twofold.contracts.results import simulated
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.scenario import Scenario
from twofold.core.errors import EmptyError, UnknownNameError, ValueRefusedError
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import (
    PoolTask,
    RehearsalSettings,
    TalliedRun,
    belief_factors,
    pool_tasks,
    tallied_run,
)
from twofold.rehearse.simulation import simulation_of
from twofold.rehearse.training import HORIZON_S, left_out, rehearse_training
from twofold.rehearse.training_figures import OnJob
from twofold.rehearse.workers import HERE, Call, Tell, Workers, run_calls
from twofold.twin.serving import fleet_types

Record = Callable[[fleet_types.RequestRecord], None]


@dataclass(frozen=True, slots=True)
class RehearsalRuns:
    """One rehearsal of a fleet or of a cluster: everything that its runs need."""

    name: str  # of the plan
    scenario: Scenario
    seed: int
    tasks: tuple[PoolTask, ...] = ()
    factors: tuple[float, ...] = (1.0,)  # of the gate's beliefs; the first is of perfect ones
    cluster: Call | None = None  # its run, instead of tasks
    notes: tuple[str, ...] = ()  # what to know of it

    def calls(self) -> tuple[Call, ...]:
        """Its runs: of every task for each belief, or of the cluster."""
        if self.cluster is not None:
            return (self.cluster,)
        from_s = None
        if self.scenario.traffic.tenants:  # they are told apart after the warm-up
            from_s = max((task.world.warm_up_s for task in self.tasks), default=0.0)
        return tuple(
            partial(tallied_run, task.world, task.traffic, factor, None if number else from_s)
            for number, factor in enumerate(self.factors)
            for task in self.tasks
        )

    def with_beliefs(self) -> "RehearsalRuns":
        """Also under the beliefs that the scenario puts off."""
        return replace(self, factors=belief_factors(self.scenario, self.tasks))


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """What came of a rehearsal."""

    simulation: simulated.Simulation
    results: tuple[fleet_types.FleetResult, ...]  # with perfect beliefs, by task


def fleet_rehearsal(
    name: str,
    scenario: Scenario,
    seed: int,
    services: Sequence[ServicePlan],
    tables: RehearsalTables,
    traces: Mapping[str, Path],
    *,
    only: str | None,
    halved: bool,
) -> RehearsalRuns:
    """A rehearsal of services with perfect beliefs. A trace without a class is of the first service's first.

    `only`: the one class that sends requests; `halved`: of each trace a half, drawn anew for each seed.
    """
    if not services:
        raise EmptyError(
            "the plan serves nothing, so no request can be sent",
            hint="write `serving:`, or rehearse its training: `--scenario training-week`",
        )
    known = tuple(each.name for service in services for each in service.classes)
    for each in (*traces, only):
        if each and each not in known:
            what = f"`{each}` is not a class of the plan"
            raise UnknownNameError(what, hint=f"classes: {', '.join(known)}")
    tiers = {tier.name for service in services for tier in service.tiers}
    for event in scenario.faults:
        if event.tier is not None and event.tier not in tiers:
            hint = f"tiers: {', '.join(sorted(tiers)) or 'none; a service names them as `before`'}"
            raise UnknownNameError(f"`{event.tier}` is no CPU tier of the plan", hint=hint)
    if "" in traces and known[0] in traces:
        raise ValueRefusedError(
            f"two traces for class {known[0]}: `{traces[''].name}`, as no class is named, and"
            f" `{traces[known[0]].name}`",
            hint="give each class one trace",
        )
    by_class = {each or known[0]: path for each, path in traces.items()}
    settings = RehearsalSettings(scenario, seed, by_class, known, only, halved)
    tasks = [
        task
        for service in services
        if only is None or only in {each.name for each in service.classes}
        for task in pool_tasks(service, settings, tables)
    ]
    return RehearsalRuns(name, scenario, seed, tuple(tasks))


def training_rehearsal(
    name: str,
    scenario: Scenario,
    seed: int,
    runs: Sequence[TrainingPlan],
    tables: RehearsalTables,
    on_job: OnJob | None = None,
) -> RehearsalRuns:
    """A rehearsal of the cluster. With `on_job` it can only happen in this process."""
    call = partial(rehearse_training, runs, scenario, seed, tables.catalog, tables.constants, on_job)
    assert scenario.cluster is not None
    return RehearsalRuns(name, scenario, seed, cluster=call, notes=left_out(runs, scenario.cluster))


def rehearsed(
    staged: Sequence[RehearsalRuns], tell: Tell, workers: Workers = HERE, record: Record | None = None
) -> list[RehearsalOutcome]:
    """All of them, in their order: every run of every one may happen beside every other.

    With `record` the first one's runs with perfect beliefs happen here, and each request is told.
    """
    calls = [call for one in staged for call in one.calls()]
    told = len(staged[0].tasks) if record is not None else 0
    if told:
        tell("rehearsing, every request recorded")
    first = [call(record=record) for call in calls[:told]]  # type: ignore[call-arg]  # partial of tallied_run
    results = [*first, *run_calls(calls[told:], tell, workers)]
    made, begin = [], 0
    for one in staged:
        end = begin + len(one.calls())
        made.append(_outcome(one, results[begin:end]))
        begin = end
    return made


def _outcome(one: RehearsalRuns, results: Sequence[Any]) -> RehearsalOutcome:
    if one.cluster is not None:
        figures: simulated.TrainingFigures = results[0]
        made = simulation_of(one.name, one.scenario, one.seed, (), {1.0: ()})
        return RehearsalOutcome(
            replace(
                made,
                training=figures,
                horizon_s=one.scenario.horizon_s or HORIZON_S,
                slos_met=not figures.missed,
                event_count=figures.event_count,
                decision_count=figures.decision_count,
                policies=("cluster brain",),
                broke_first=next(iter((*figures.missed, *figures.alarms)), None),
                notes=(*one.notes, *made.notes),
            ),
            (),
        )
    count, runs = len(one.tasks), list[TalliedRun](results)
    found = [result for result, _, _ in runs]
    by_factor = {
        factor: found[index * count : (index + 1) * count] for index, factor in enumerate(one.factors)
    }
    made = simulation_of(one.name, one.scenario, one.seed, one.tasks, by_factor)
    fleets = []
    for fleet, (_, _, release_p95_s) in zip(made.fleets, runs[:count], strict=True):
        after = fleet.after_fault and replace(fleet.after_fault, release_p95_s=dict(release_p95_s))
        fleets.append(replace(fleet, after_fault=after))
    tallies = [tenants for _, tenants, _ in runs[:count] if tenants is not None]
    for tally in tallies[1:]:  # of all pools together
        tallies[0].add(tally)
    tenants = tallies[0].figures() if tallies else ()
    return RehearsalOutcome(replace(made, fleets=tuple(fleets), tenants=tenants), tuple(found[:count]))
