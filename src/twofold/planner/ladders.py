"""One axis at a time: how a spec's runs and services fare when only fabric, nodes, context, … change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from twofold.answer import Context, authorised, draw_factors
from twofold.catalog import Catalog
from twofold.contracts.spec import Spec
from twofold.core import UnknownNameError, ValueRefusedError
from twofold.perf import Constants
from twofold.planner.ladder_serving import (
    ServingSite,
    context_of_service,
    format_of_service,
    serving_site,
    size_of_classes,
    tenancy_of_service,
)
from twofold.planner.ladder_training import (
    PlannedRun,
    context_of_run,
    fabric_of_run,
    nodes_of_run,
    planned_run_of,
    tenancy_of_run,
)
from twofold.planner.rungs import Ladder

SCHEMA = "twofold/ladder/1"
OfRun = Callable[[PlannedRun, Context], tuple[Ladder, ...]]
OfService = Callable[[ServingSite, Context], tuple[Ladder, ...]]

OF_RUNS: Mapping[str, OfRun] = MappingProxyType(
    {
        "fabric": fabric_of_run,
        "nodes": nodes_of_run,
        "context": context_of_run,
        "tenancy": tenancy_of_run,
    }
)
OF_SERVICES: Mapping[str, OfService] = MappingProxyType(
    {
        "context": context_of_service,
        "size": size_of_classes,
        "format": format_of_service,
        "tenancy": tenancy_of_service,
    }
)
AXES = ("fabric", "nodes", "context", "size", "format", "tenancy")


@dataclass(frozen=True, slots=True)
class Ladders:
    """All tables of one axis, schema `twofold/ladder/1`."""

    schema: str
    name: str  # of the spec
    axis: str
    ladders: tuple[Ladder, ...]
    warnings: tuple[str, ...]


def compare_along(axis: str, spec: Spec, catalog: Catalog, constants: Constants) -> Ladders:
    """The axis for every run and service of the spec that it applies to, each on the machines of its plan.

    Measured rows hold no model whose machines or formats could be varied: such runs and services are named in
    the warnings. Raises InfeasibleError when a run or service has no plan to vary, ValueRefusedError where
    all of them are measured, UnknownNameError for another axis.
    """
    if axis not in AXES:
        raise UnknownNameError(f"`{axis}` is no ladder", hint="write one of: " + ", ".join(AXES))
    context = Context(spec, authorised(spec, catalog), constants, draw_factors(constants), None)
    tables: list[Ladder] = []
    runs = spec.training if axis in OF_RUNS else ()
    services = spec.services if axis in OF_SERVICES else ()
    measured = [entry.name for entry in runs if entry.model.measured]
    measured += [entry.name for entry in services if entry.model.measured]
    for run in runs:
        if not run.model.measured:
            tables += OF_RUNS[axis](planned_run_of(run, context), context)
    for service in services:
        if not service.model.measured:
            tables += OF_SERVICES[axis](serving_site(service, context), context)
    return Ladders(SCHEMA, spec.name, axis, tuple(tables), _warnings(axis, tables, measured))


def _warnings(axis: str, tables: Sequence[Ladder], measured: Sequence[str]) -> tuple[str, ...]:
    """What is not in the tables. Raises ValueRefusedError where nothing is, because all of it is measured."""
    half, what = ("serving", "service") if axis in OF_SERVICES else ("training", "run")
    if measured and not tables:
        what = "run or service" if axis in OF_RUNS and axis in OF_SERVICES else what
        names = ", ".join(measured)
        raise ValueRefusedError(
            f"the ladder `{axis}` needs a {what} with a model; measured rows have none: {names}",
            hint="`twofold plan` shows the sizes that were measured; name a model to vary it",
        )
    if measured:
        return (f"not in these tables: {', '.join(measured)}, measured rows without a model to vary",)
    return () if tables else (f"`{axis}` compares {half}, and this spec has none",)
