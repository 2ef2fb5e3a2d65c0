"""`simulate`: a plan in the twin, under its own traffic or a trace, and under what goes wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from twofold import __version__
from twofold.app import simulate_inputs
from twofold.app.sources import SpecSource
from twofold.contracts.results import simulated, sweeps
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.scenario import Scenario, find_scenario
from twofold.core.errors import UnknownNameError, UsageError, ValueRefusedError
from twofold.rehearse.rehearsals import RehearsalRuns, fleet_rehearsal, rehearsed, training_rehearsal
from twofold.rehearse.simulation import compared
from twofold.rehearse.sweep import swept
from twofold.rehearse.workers import WorkEngine, Workers
from twofold.report.answers import Held
from twofold.report.simulate import simulation_lines
from twofold.twin.cluster import cluster_types
from twofold.twin.serving import fleet_types

WRITTEN = ("requests", "timeline", "jobs")  # tables of one run
AS_PLANNED = "as-planned"
SEED_MAX = 2**32 - 1
PAIRED_SEEDS = 5  # that two scenarios are compared over
SWEPT_SEEDS = 3  # that each value of a sweep runs under
OnProgress = Callable[[str], None]
Rehearsal = TypeVar("Rehearsal", simulated.Simulation, sweeps.Sweep)
MISSED = 3  # exit code
VALUES_MAX = 24
HINT = "write for example `--sweep traffic.scale=0.5x,1x,1.5x`"


@dataclass(frozen=True, slots=True)
class Simulated(Held[Rehearsal]):
    """A rehearsal, or a sweep of them, that shows itself."""

    charted: bool = False  # with pictures of text last

    @property
    def lines(self) -> tuple[str, ...]:
        """At most 100 columns each."""
        data: simulated.Simulation | sweeps.Sweep = self.data
        drawn: list[str] = _drawn(data) if self.charted and isinstance(data, simulated.Simulation) else []
        return (*simulation_lines(data), *drawn)

    @property
    def exit_code(self) -> int:
        """Whether its goals are met; of a sweep, at any value."""
        runs = self.data.points if isinstance(self.data, sweeps.Sweep) else (self.data,)
        return 0 if any(run.slos_met for run in runs) else MISSED


def _drawn(made: simulated.Simulation) -> list[str]:
    """Its pictures as text, one below the other."""
    from twofold.charts.of_simulation import charts_of_simulation  # rarely asked for
    from twofold.charts.text import text_of

    return [line for chart in charts_of_simulation(made) for line in ("", *text_of(chart))]


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
    engine: str = "processes"  # what the runs happen on: these, or `ray`


def simulate(
    source: SpecSource | Plan,
    options: SimulateOptions = SimulateOptions(),
    today: date | None = None,
    tell: OnProgress = lambda _: None,
    process_count: int = 1,
) -> Simulated[simulated.Simulation]:
    """Rehearse a spec, which is planned first, or a plan: the twin under a scenario.

    Raises InputError for what cannot be rehearsed as it is given, InfeasibleError where a spec has no plan.
    """
    workers = _workers(options, process_count)
    read = simulate_inputs.opened(source, today)
    classes = simulate_inputs.class_names(read)
    scenario, *others = (  # what is wrong with them is told before a plan is made
        named if isinstance(named, Scenario) else find_scenario(named, classes)
        for named in options.compare or (options.scenario,)
    )
    given = simulate_inputs.rehearsable(read)
    for second in others:
        return Simulated(_comparison(given, options, scenario, second, tell, workers))
    if scenario.cluster is not None:  # in this process, each job told as it ends
        with simulate_inputs.table_of(cluster_types.JobRecord, options.jobs) as note:
            (made,) = rehearsed([_rehearsal_runs(given, scenario, options, note)], tell)
        return Simulated(_signed(made.simulation, given))
    if options.jobs:
        what = f"`{scenario.name}` is of serving: no job is submitted there"
        hint = "leave `--jobs` out, or name a scenario of a cluster, such as training-week"
        raise ValueRefusedError(what, hint=hint)
    runs = _rehearsal_runs(given, scenario, options).with_beliefs()
    with simulate_inputs.table_of(fleet_types.RequestRecord, options.requests) as record:
        (made,) = rehearsed([runs], tell, workers, record)
    if options.timeline:
        simulate_inputs.timeline_table(options.timeline, runs, made.results)
    return Simulated(_signed(made.simulation, given))


def simulate_or_sweep(
    source: Path,
    traces: tuple[str, ...],
    compare: str | None,
    sweep: str | None,
    today: date,
    tell: OnProgress,
    chart: bool = False,
    **options: Any,  # fields of SimulateOptions, under their own names
) -> Simulated[simulated.Simulation] | Simulated[sweeps.Sweep]:
    """A rehearsal, or one for each value of a sweep, from the words of a command line."""
    if sweep and (compare or any(options[name] for name in WRITTEN)):
        hint = "leave --compare, --requests, --timeline and --jobs out"
        raise UsageError("a sweep has many runs", hint=hint)
    chosen = SimulateOptions(
        traces=simulate_inputs.traces_by_class(traces),
        compare=simulate_inputs.scenario_pair(compare),
        **options,
    )
    if sweep and chart:
        raise UsageError("a sweep has no pictures of text", hint="leave `--chart` out, or rehearse one value")
    if sweep:
        return simulate_sweep(source, *parse_sweep(sweep), chosen, today, tell, simulate_inputs.core_count())
    made = simulate(source, chosen, today, tell, simulate_inputs.core_count())
    return replace(made, charted=chart)


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """The key and the texts of `key=value,value,…`. Raises UsageError with what to write instead."""
    key, _, listed = text.partition("=")
    values = tuple(value.strip() for value in listed.split(","))
    if not key.strip() or len(values) < 2 or not all(values):
        raise UsageError(f"`--sweep {text}` names no key with two values or more", hint=HINT)
    if len(values) > VALUES_MAX:
        raise UsageError(f"{len(values)} values are too many for one sweep", hint=f"at most {VALUES_MAX}")
    if len(set(values)) < len(values):
        raise UsageError(f"`--sweep {text}` names a value twice", hint=HINT)
    return key.strip(), values


def _workers(options: SimulateOptions, process_count: int) -> Workers:
    """On what the runs happen. Raises ValueRefusedError for a seed that is none, UnknownNameError."""
    if not 0 <= options.seed <= SEED_MAX:
        hint = f"write a whole number from 0 to {SEED_MAX}"
        raise ValueRefusedError(f"a seed of {options.seed}", hint=hint)
    known = [engine.value for engine in WorkEngine]
    if options.engine not in known:
        raise UnknownNameError(f"`{options.engine}` runs no rehearsals", hint=f"engines: {', '.join(known)}")
    return Workers(process_count, WorkEngine(options.engine))


def simulate_sweep(
    source: SpecSource | Plan,
    key: str,
    values: Sequence[str],
    options: SimulateOptions = SimulateOptions(),
    today: date | None = None,
    tell: OnProgress = lambda _: None,
    process_count: int = 1,
) -> Simulated[sweeps.Sweep]:
    """One key of a packaged scenario or a file at several values, each under the same seeds.

    Raises as `simulate`, and for a key or value that a scenario cannot have.
    """
    workers = _workers(options, process_count)
    if isinstance(options.scenario, Scenario):
        raise ValueRefusedError("a sweep needs a scenario's name or file", hint="write its file's path")
    read = simulate_inputs.opened(source, today)
    classes = simulate_inputs.class_names(read)
    scenarios = {value: find_scenario(options.scenario, classes, ((key, value),)) for value in values}
    given = simulate_inputs.rehearsable(read)
    seeds = tuple(options.seed + index for index in range(SWEPT_SEEDS))
    runs = [(scenarios[value], seed) for value in values for seed in seeds]
    made = _all(given, runs, options, tell, workers)
    by_value = [made[index : index + len(seeds)] for index in range(0, len(made), len(seeds))]
    sweep, signed = swept(key, values, by_value), made[0]
    return Simulated(replace(sweep, twofold=__version__, plan_digest=signed.plan_digest, notes=signed.notes))


def _rehearsal_runs(
    given: simulate_inputs.Rehearsable,
    scenario: Scenario,
    options: SimulateOptions,
    note: Callable[[cluster_types.JobRecord], None] | None = None,
) -> RehearsalRuns:
    """One rehearsal with perfect beliefs, of the fleet or of the cluster, whose jobs `note` hears of."""
    plan, tables, seed = given.plan, given.tables, options.seed
    if scenario.cluster is not None:
        if options.traces or options.only or options.requests or options.timeline:
            what = f"`{scenario.name}` is of a training cluster: no request is sent there"
            hint = "leave `--trace`, `--only`, `--requests` and `--timeline` out, or rehearse serving"
            raise ValueRefusedError(what, hint=hint)
        with simulate_inputs.as_saved(given):
            return training_rehearsal(plan.name, scenario, seed, plan.training, tables, note)
    # A replayed trace is the same under every seed: what is compared over seeds gets halves of it.
    halved, traces, only = options.compare is not None, options.traces or {}, options.only
    asked = plan.name, scenario, seed, plan.serving, tables, traces
    with simulate_inputs.as_saved(given):
        return fleet_rehearsal(*asked, only=only, halved=halved)


def _all(
    given: simulate_inputs.Rehearsable,
    runs: Sequence[tuple[Scenario, int]],
    options: SimulateOptions,
    tell: OnProgress,
    workers: Workers,
) -> list[simulated.Simulation]:
    """Scenarios each under a seed, all runs of all of them side by side."""
    prepared = [_rehearsal_runs(given, scenario, replace(options, seed=seed)) for scenario, seed in runs]
    made = rehearsed(prepared, tell, workers)
    return [_signed(one.simulation, given) for one in made]


def _comparison(
    given: simulate_inputs.Rehearsable,
    options: SimulateOptions,
    first: Scenario,
    second: Scenario,
    tell: OnProgress,
    workers: Workers,
) -> simulated.Simulation:
    """Both scenarios under the same seeds; the first one's run with the first seed is the one shown."""
    if (first.cluster is None) != (second.cluster is None):
        what = f"`{first.name}` and `{second.name}`: one is of serving, the other of a training cluster"
        hint = "compare two of one kind, such as zone-loss,zone-loss-no-spares"
        raise ValueRefusedError(what, hint=hint)
    seeds = tuple(options.seed + index for index in range(PAIRED_SEEDS))
    runs = [(scenario, seed) for scenario in (first, second) for seed in seeds]
    made = _all(given, runs, options, tell, workers)
    return replace(made[0], comparison=compared(made[: len(seeds)], made[len(seeds) :]))


def _signed(simulation: simulated.Simulation, given: simulate_inputs.Rehearsable) -> simulated.Simulation:
    """With the plan's digest, and what to know."""
    notes = (*given.notes, *simulation.notes)
    return replace(simulation, twofold=__version__, plan_digest=given.digest, notes=notes)
