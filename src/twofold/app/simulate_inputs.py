"""What `simulate` takes and writes: a spec or a plan, words on traces and scenarios, tables of what ran."""

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from twofold.answer.context import model_of
from twofold.app.kinds import schema_of
from twofold.app.local_tables import local_tables
from twofold.app.planning import (
    Ready,
    feasible,
    made_with,
    plan_digest,
    plan_value,
    read_plan,
    ready,
    spec_beside,
    spec_changed,
)
from twofold.app.sources import (
    SpecSource,
    calibration_file,
    device_folder,
    starts_file,
    whole_file,
)
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.types import Model
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.supply import Supply
from twofold.core.errors import (
    InfeasibleError,
    UnknownNameError,
    UsageError,
    ValueRefusedError,
)
from twofold.gating.build import overflow_settings
from twofold.perf.constants import Constants
from twofold.rehearse.pools import RehearsalTables, measured_services
from twofold.rehearse.rehearsals import RehearsalRuns
from twofold.twin.cluster import cluster_types
from twofold.twin.serving import fleet_types

OTHER_CONSTANTS = "the plan was made with other constants than these: its figures and the twin's differ"
Row = TypeVar("Row", fleet_types.RequestRecord, cluster_types.JobRecord)


@dataclass(frozen=True, slots=True)
class Rehearsable:
    """A plan, and what its replicas and runs are built from again."""

    plan: Plan
    digest: str
    tables: RehearsalTables
    notes: tuple[str, ...]
    saved: bool = False  # as data, which somebody may have changed
    changed: tuple[str, ...] = ()  # that its spec is another one by now


@contextmanager
def as_saved(given: Rehearsable) -> Iterator[None]:
    """What breaks while worlds are made of a saved plan is a figure that somebody changed, no bug of ours.

    What is refused of a plan whose spec is another one by now says so too.
    """
    try:
        yield
    except ValueRefusedError as error:
        if not given.changed:
            raise
        why = given.changed[0].partition(";")[0]  # which may be what makes it unable
        raise ValueRefusedError(f"{error.message}; {why}", hint=error.hint) from error
    except (AssertionError, ArithmeticError) as error:
        if not given.saved:
            raise
        hint = "write it again with `twofold plan SPEC --out FILE`"
        raise ValueRefusedError("a figure of this plan is none that a plan has", hint=hint) from error


def opened(source: SpecSource | Plan, today: date | None) -> Ready | Rehearsable:
    """A spec, read but not planned yet; a plan, its data or its file as it is."""
    return _of_plan(source) if isinstance(source, Plan) or _is_plan(source) else ready(source, today)


def class_names(given: Ready | Rehearsable) -> list[str]:
    """The latency classes that a scenario may name."""
    if isinstance(given, Ready):
        return [name for service in given.spec.services for name in service.classes]
    return [each.name for service in given.plan.serving for each in service.classes]


def rehearsable(own: Ready | Rehearsable) -> Rehearsable:
    """A spec that was read is planned. Raises what `plan` raises for one."""
    return own if isinstance(own, Rehearsable) else _rehearsable(own, own.planned().plan)


def of_what_is_met(own: Ready | Rehearsable) -> tuple[Rehearsable, InfeasibleError | None]:
    """The same without the runs and services that nothing meets; the plan names them, as the error does.

    Raises it where nothing is left.
    """
    if isinstance(own, Rehearsable):
        return own, None
    made, refused = feasible(own)
    if not refused:
        return _rehearsable(own, made.plan), None
    refused[0].others = tuple(refused[1:])
    return _rehearsable(own, made.plan.without(refused)), refused[0]


def _rehearsable(own: Ready, plan: Plan) -> Rehearsable:
    rows, notes = measured_services(own.spec.services)
    found: dict[str, Model] = {}  # by the names that a plan of this spec uses
    for service in own.spec.services:
        references: list[ModelReference] = [service.model, *(each.model for each in service.variants)]
        models = [model_of(reference, own.catalog) for reference in references if not reference.measured]
        found |= {model.name: model for model in models}
    hosted = {service.name: overflow_settings(service) for service in own.spec.services}
    policies = {service.name: service.policies for service in own.spec.services}
    known = own.catalog, own.constants, own.spec.supply, found.__getitem__, rows
    made_of = RehearsalTables(*known, hosted, policies)
    return Rehearsable(plan, plan_digest(plan), made_of, (*notes, *_of_valleys(plan)))


def _is_plan(source: object) -> bool:
    """Whether data or a file says that it is a plan; files that cannot be read are left to who reads them."""
    if isinstance(source, Mapping):
        return str(source.get("schema", "")).startswith("twofold/plan/")
    if isinstance(source, str) and ("\n" in source or ": " in source):
        return False
    return schema_of(Path(str(source))).startswith("twofold/plan/")


def _of_plan(source: Any) -> Rehearsable:
    file = Path(source) if isinstance(source, (str, Path)) else None
    data = source if file is None else read_plan(file)
    plan = plan_value(data)
    changed = () if file is None else spec_changed(data, file)
    saved = not isinstance(source, Plan)
    if file and not changed and (spec := spec_beside(data, file)):  # with its policies and measured rows
        own = ready(spec, None)
        made = _rehearsable(own, plan)
        return replace(made, notes=(*_of_others(plan, own.constants), *made.notes), saved=saved)
    beside = Path.cwd() if file is None else file.parent
    tables = local_tables(device_folder(beside), calibration_file(beside), None, starts_file(beside))
    catalog = load_catalog()
    made_of = RehearsalTables(catalog, tables.constants, Supply(), partial(_named, catalog, plan.models))
    notes = (*changed, *_of_others(plan, tables.constants), *_of_valleys(plan))
    return Rehearsable(plan, plan_digest(plan), made_of, notes, saved, changed)


def _of_others(plan: Plan, constants: Constants) -> tuple[str, ...]:
    return () if plan.digests.constants == constants.digest else (OTHER_CONSTANTS,)


def _of_valleys(plan: Plan) -> tuple[str, ...]:
    """Work of quiet hours is rehearsed at once with the rest: on more replicas than stand there together."""
    return tuple(
        f"{' and '.join(each.in_valleys)} of {each.name} runs in the others' valleys, on the "
        f"{each.machine.accelerator_count:,} accelerators of all: here beside them, on replicas of its own"
        for each in plan.serving
        if each.in_valleys
    )


def _named(catalog: Catalog, own: Sequence[Model], name: str) -> Model:
    if carried := next((model for model in own if model.name == name), None):
        return carried
    try:
        return catalog.model(name)
    except UnknownNameError as error:
        what = f"the plan's model `{name}` is neither in the catalogue nor in the plan"
        hint = "rehearse the spec instead: `twofold simulate SPEC`"
        raise ValueRefusedError(what, hint=hint) from error


def core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def traces_by_class(traces: tuple[str, ...]) -> dict[str, Path]:
    """`chat=a.csv` by class; a file alone stands for the first class."""
    found: dict[str, Path] = {}
    for text in traces:
        name, sign, path = text.partition("=")
        if not sign or "/" in name or Path(text).exists():  # a path, which may hold the sign
            name, path = "", text
        if name in found:
            whose = f"`{name}`" if name else "the first class"
            raise UsageError(f"two traces for {whose}", hint="give each class one trace")
        found[name] = Path(path)
    return found


def scenario_pair(compare: str | None) -> tuple[str, str] | None:
    """`a,b` as two names."""
    if compare is None:
        return None
    names = [name.strip() for name in compare.split(",")]
    if len(names) != 2 or not all(names):
        hint = "write for example `--compare zone-loss,zone-loss-no-spares`"
        raise UsageError(f"`--compare {compare}` names no two scenarios", hint=hint)
    return names[0], names[1]


@contextmanager
def table_of(kind: type[Row], path: Path | None) -> Iterator[Callable[[Row], None] | None]:
    """A function that writes a request or a job as it ends; None where no table is wanted."""
    if path is None:
        yield None
        return
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(field.name for field in fields(kind))

        def write(value: Row) -> None:
            writer.writerow("" if each is None else each for each in astuple(value))

        yield write


def timeline_table(path: Path, runs: RehearsalRuns, results: Sequence[fleet_types.FleetResult]) -> None:
    """The run over time, every pool one after the other."""
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["service", "pool", *(field.name for field in fields(fleet_types.TimelineRow))])
        for task, result in zip(runs.tasks, results, strict=True):
            where = [task.service.name, task.pool.pool.name]
            writer.writerows([*where, *astuple(row)] for row in result.timeline)


def staleness(ready: Rehearsable) -> tuple[str, ...]:
    """What to know of a saved plan whose figures a new one would not have; it is written as it stands."""
    if not ready.saved:
        return ()
    plan, tables = ready.plan, ready.tables
    digests = plan.digests.catalog, plan.digests.constants
    return (*ready.changed, *made_with(*digests, plan.twofold, tables.catalog, tables.constants))
