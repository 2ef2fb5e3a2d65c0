"""One axis at a time: how a spec's runs and services fare when only fabric, nodes, context, … change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twofold.catalog import Catalog
from twofold.contracts import Spec
from twofold.core import UnknownNameError
from twofold.perf import Constants
from twofold.plan.context import Context
from twofold.plan.ladder_serving import (
    ServingSite,
    context_of_service,
    format_of_service,
    serving_site,
    size_of_classes,
    tenancy_of_service,
)
from twofold.plan.ladder_training import (
    TrainingSite,
    context_of_run,
    fabric_of_run,
    nodes_of_run,
    tenancy_of_run,
    training_site,
)
from twofold.plan.rungs import Ladder
from twofold.plan.uncertainty import draw_factors

SCHEMA = "twofold/ladder/1"
OfRun = Callable[[TrainingSite, Context], tuple[Ladder, ...]]
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

    Raises InfeasibleError when a run or service has no plan to vary, UnknownNameError for another axis.
    """
    if axis not in AXES:
        raise UnknownNameError(f"`{axis}` is no ladder", hint="write one of: " + ", ".join(AXES))
    context = Context(spec, catalog, constants, draw_factors(constants), None)
    tables: list[Ladder] = []
    if axis in OF_RUNS:
        for run in spec.training:
            tables += OF_RUNS[axis](training_site(run, context), context)
    if axis in OF_SERVICES:
        for service in spec.services:
            tables += OF_SERVICES[axis](serving_site(service, context), context)
    half = "training" if axis in OF_RUNS and axis not in OF_SERVICES else "serving"
    warnings = () if tables else (f"`{axis}` compares {half}, and this spec has none",)
    return Ladders(SCHEMA, spec.name, axis, tuple(tables), warnings)
