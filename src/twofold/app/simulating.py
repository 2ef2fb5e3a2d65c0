"""`simulate`: a plan in the twin, under its own traffic or a trace, and under what goes wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from twofold import __version__
from twofold.app.screen_simulate import simulation_lines
from twofold.app.shown import as_html
from twofold.app.simulate_inputs import Rehearsable, rehearsable
from twofold.app.simulate_tables import Record, job_table, request_table, timeline_table
from twofold.app.sources import SpecSource
from twofold.app.sweeping import SweepAsked, Swept, sweep_of
from twofold.contracts import Plan, Scenario, Simulation, find_scenario, simulation_to_json
from twofold.core import EmptyError, UnknownNameError, ValueRefusedError
from twofold.plan import (
    Asked,
    PoolTask,
    TenantTally,
    compared,
    policies_on,
    pool_tasks,
    rehearse_training,
    run_pools,
    simulation_of,
)
from twofold.twin import RequestRecord

AS_PLANNED = "as-planned"
SEED_MAX = 2**32 - 1
PAIRED_SEEDS = 5  # that two scenarios are compared over
SWEPT_SEEDS = 3  # that each value of a sweep runs under
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A rehearsal that shows itself."""

    data: Simulation

    @property
    def lines(self) -> tuple[str, ...]:
        """At most 100 columns each."""
        return tuple(simulation_lines(self.data))

    @property
    def json(self) -> str:
        """Schema `twofold/simulation/1`."""
        return simulation_to_json(self.data)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return as_html(self.lines)


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What a rehearsal may be told besides its plan."""

    scenario: str | Scenario = AS_PLANNED  # a name, a file, or a Scenario
    traces: Mapping[str, Path] | None = None  # by class; "" for the first one
    only: str | None = None
    seed: int = 0
    compare: tuple[str, str] | None = None  # two scenarios, instead of one
    requests: Path | None = None  # a CSV of every request is written here
    timeline: Path | None = None  # a CSV of the run over time
    jobs: Path | None = None  # a CSV of every job of a training cluster


def simulate(
    source: SpecSource | Plan,
    options: SimulateOptions = SimulateOptions(),
    today: date | None = None,
    tell: Tell = lambda _: None,
    process_count: int = 1,
) -> Simulated:
    """Rehearse a spec, which is planned first, or a plan: the twin under a scenario.

    Raises InputError for what cannot be rehearsed as it is given, InfeasibleError where a spec has no plan.
    """
    given = _rehearsable(source, options, today)
    classes = _class_names(given.plan)
    if options.compare:
        first, second = (_scenario(name, classes) for name in options.compare)
        return Simulated(_comparison(given, options, first, second, tell, process_count))
    scenario = _scenario(options.scenario, classes)
    if scenario.cluster is not None:
        return Simulated(_training(given, scenario, options, tell))
    if options.jobs:
        raise ValueRefusedError(
            f"`{scenario.name}` is of serving: no job is submitted there",
            hint="leave `--jobs` out, or name a scenario of a cluster, such as training-week",
        )
    tasks = _tasks(given, scenario, options)
    error = scenario.beliefs.error_fraction
    factors = (1.0, *((1.0 - error, 1.0 + error) if error else ()))
    tally = _tally(scenario, tasks)
    with request_table(options.requests) as record:
        runs = run_pools(tasks, factors, tell, process_count, _both(record, tally))
    if options.timeline:
        timeline_table(options.timeline, tasks, runs[0])
    made = simulation_of(
        given.plan.name, scenario, options.seed, tasks, dict(zip(factors, runs, strict=True))
    )
    return Simulated(_signed(_with_tenants(made, tally), given, scenario))


def _tally(scenario: Scenario, tasks: Sequence[PoolTask]) -> TenantTally | None:
    """Counts by tenant where the scenario names some."""
    if not scenario.traffic.tenants or not tasks:
        return None
    return TenantTally(max(task.world.warm_up_s for task in tasks))


def _both(record: Record | None, tally: TenantTally | None) -> Record | None:
    """Whatever wants to know of each request."""
    if record is None or tally is None:
        return record or (tally.record if tally else None)
    given, counted = record, tally.record

    def tell_both(request: RequestRecord) -> None:
        given(request)
        counted(request)

    return tell_both


def _with_tenants(simulation: Simulation, tally: TenantTally | None) -> Simulation:
    return replace(simulation, tenants=tally.figures()) if tally else simulation


def _rehearsable(source: SpecSource | Plan, options: SimulateOptions, today: date | None) -> Rehearsable:
    if not 0 <= options.seed <= SEED_MAX:
        raise ValueRefusedError(
            f"a seed of {options.seed}", hint=f"write a whole number from 0 to {SEED_MAX}"
        )
    return rehearsable(source, today)


def _class_names(plan: Plan) -> list[str]:
    return [each.name for service in plan.serving for each in service.classes]


def _scenario(text: str | Scenario, classes: Sequence[str]) -> Scenario:
    return text if isinstance(text, Scenario) else find_scenario(text, classes)


def _tasks(given: Rehearsable, scenario: Scenario, options: SimulateOptions) -> tuple[PoolTask, ...]:
    """What is to be run. A trace without a class is the first class's of the first service."""
    services = given.plan.serving
    if not services:
        raise EmptyError(
            "the plan serves nothing, so no request can be sent",
            hint="write `serving:`, or rehearse its training: `--scenario training-week`",
        )
    traces = dict(options.traces or {})
    for name in (*traces, *([options.only] if options.only else [])):
        _check_class(name, given.plan)
    known = tuple(each.name for service in services for each in service.classes)
    asked = Asked(scenario, options.seed, known=known, only=options.only)
    tasks: list[PoolTask] = []
    for service in services:
        names = [each.name for each in service.classes]
        if options.only is not None and options.only not in names:
            continue
        named = {name or known[0]: path for name, path in traces.items()}
        tasks += pool_tasks(service, replace(asked, traces=named), given.tables)
    return tuple(tasks)


def _check_class(name: str, plan: Plan) -> None:
    known = [each.name for service in plan.serving for each in service.classes]
    if name and name not in known:
        raise UnknownNameError(f"`{name}` is not a class of the plan", hint=f"classes: {', '.join(known)}")


def simulate_sweep(
    source: SpecSource | Plan,
    asked: SweepAsked,
    options: SimulateOptions = SimulateOptions(),
    today: date | None = None,
    tell: Tell = lambda _: None,
    process_count: int = 1,
) -> Swept:
    """One key of a packaged scenario or a file at several values, each under the same seeds.

    Raises as `simulate`, and for a key or value that a scenario cannot have.
    """
    given = _rehearsable(source, options, today)
    classes = _class_names(given.plan)
    if isinstance(options.scenario, Scenario):
        raise ValueRefusedError("a sweep needs a scenario's name or file", hint="write its file's path")
    scenarios = {
        value: find_scenario(options.scenario, classes, ((asked.key, value),)) for value in asked.values
    }

    def run(value: str, seed: int) -> Simulation:
        tell(f"sweeping {asked.key}, {value}")
        return _once(given, scenarios[value], replace(options, seed=seed), process_count)

    seeds = tuple(options.seed + index for index in range(SWEPT_SEEDS))
    return Swept(sweep_of(asked, seeds, run))


def _once(given: Rehearsable, scenario: Scenario, options: SimulateOptions, process_count: int) -> Simulation:
    """One run with perfect beliefs, of the fleet or of the cluster."""
    if scenario.cluster is not None:
        return _training(given, scenario, options, lambda _: None)
    tasks = _tasks(given, scenario, options)
    tally = _tally(scenario, tasks)
    (results,) = run_pools(tasks, (1.0,), lambda _: None, process_count, _both(None, tally))
    made = simulation_of(given.plan.name, scenario, options.seed, tasks, {1.0: results})
    return _signed(_with_tenants(made, tally), given, scenario)


def _comparison(
    given: Rehearsable,
    options: SimulateOptions,
    first: Scenario,
    second: Scenario,
    tell: Tell,
    process_count: int,
) -> Simulation:
    """Both scenarios under the same seeds; the first one's run with the first seed is the one shown."""
    if (first.cluster is None) != (second.cluster is None):
        raise ValueRefusedError(
            f"`{first.name}` and `{second.name}`: one is of serving, the other of a training cluster",
            hint="compare two of one kind, such as zone-loss,zone-loss-no-spares",
        )
    seeds = tuple(options.seed + index for index in range(PAIRED_SEEDS))
    made: list[list[Simulation]] = []
    for scenario in (first, second):
        runs: list[Simulation] = []
        for seed in seeds:
            tell(f"comparing, {scenario.name}, run {len(runs) + 1} of {len(seeds)}")
            runs.append(_once(given, scenario, replace(options, seed=seed), process_count))
        made.append(runs)
    return replace(made[0][0], comparison=compared(made[0], made[1]))


def _training(given: Rehearsable, scenario: Scenario, options: SimulateOptions, tell: Tell) -> Simulation:
    if options.traces or options.only:
        raise ValueRefusedError(
            f"`{scenario.name}` is of a training cluster: no request is sent there",
            hint="leave `--trace` and `--only` out, or name a scenario of serving",
        )
    tell("rehearsing the cluster")
    tables = given.tables
    with job_table(options.jobs) as note:
        figures = rehearse_training(
            given.plan.training, scenario, options.seed, tables.catalog, tables.constants, note
        )
    made = simulation_of(given.plan.name, scenario, options.seed, (), {1.0: ()})
    made = replace(
        made,
        training=figures,
        horizon_s=figures.duration_s,
        event_count=figures.event_count,
        decision_count=figures.decision_count,
        policies=("cluster brain",),
        broke_first=figures.alarms[0] if figures.alarms else None,
    )
    return _signed(made, given, scenario)


def _signed(simulation: Simulation, given: Rehearsable, scenario: Scenario) -> Simulation:
    """With the plan's digest, and what to know."""
    on = simulation.policies or policies_on(scenario.policies)
    notes = (*given.notes, *simulation.notes)
    return replace(simulation, twofold=__version__, plan_digest=given.digest, policies=on, notes=notes)
