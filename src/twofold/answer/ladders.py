"""One thing at a time: a spec along one axis, and how far each unknown alone moves a plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from twofold.answer import ladder_serving, ladder_training
from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_pools import drawn_pool
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_step import step_samples
from twofold.answer.uncertainty import FACTORS, HIGH_PERCENTILE, LOW_PERCENTILE, factor_ends
from twofold.contracts.results.plan import Factor
from twofold.core.errors import UnknownNameError, ValueRefusedError

SCHEMA = "twofold/ladder/1"
OfRun = Callable[[ladder_training.PlannedRun, Context], tuple[ladder_training.Ladder, ...]]
OfService = Callable[[ladder_serving.ServingSite, Context], tuple[ladder_training.Ladder, ...]]

OF_RUNS: Mapping[str, OfRun] = MappingProxyType(
    {
        "fabric": ladder_training.fabric_of_run,
        "nodes": ladder_training.nodes_of_run,
        "context": ladder_training.context_of_run,
        "tenancy": ladder_training.tenancy_of_run,
    }
)
OF_SERVICES: Mapping[str, OfService] = MappingProxyType(
    {
        "context": ladder_serving.context_of_service,
        "size": ladder_serving.size_of_classes,
        "format": ladder_serving.format_of_service,
        "tenancy": ladder_serving.tenancy_of_service,
    }
)
AXES = ("fabric", "nodes", "context", "size", "format", "tenancy")


@dataclass(frozen=True, slots=True)
class Ladders:
    """All tables of one axis, schema `twofold/ladder/1`."""

    schema: str
    name: str  # of the spec
    axis: str
    ladders: tuple[ladder_training.Ladder, ...]
    warnings: tuple[str, ...]


def compare_along(
    axis: str,
    runs_of: Mapping[str, TrainingChoice],
    services_of: Mapping[str, ServingChoice],
    context: Context,
) -> Ladders:
    """The axis for every run and service of the spec that it applies to, each on what its plan recommends.

    `runs_of` and `services_of` are the plan's choices by name. Measured rows hold no model whose machines or
    formats could be varied: such runs and services have no choice, and are named in the warnings. Raises
    ValueRefusedError where all of them are measured, UnknownNameError for another axis.
    """
    if axis not in AXES:
        raise UnknownNameError(f"`{axis}` is no ladder", hint="write one of: " + ", ".join(AXES))
    tables: list[ladder_training.Ladder] = []
    spec = context.spec
    runs = spec.training if axis in OF_RUNS else ()
    services = spec.services if axis in OF_SERVICES else ()
    for run in runs:
        if run.name in runs_of:
            tables += OF_RUNS[axis](ladder_training.planned_run_of(runs_of[run.name], context), context)
    for service in services:
        if service.name in services_of:
            site = ladder_serving.serving_site(services_of[service.name], context)
            tables += OF_SERVICES[axis](site, context)
    rows_alone = [run.name for run in runs if run.model.measured]
    rows_alone += [service.name for service in services if service.model.measured]
    measured = ", ".join(rows_alone)
    half, what = ("serving", "service") if axis in OF_SERVICES else ("training", "run")
    if measured and not tables:
        what = "run or service" if axis in OF_RUNS and axis in OF_SERVICES else what
        raise ValueRefusedError(
            f"the ladder `{axis}` needs a {what} with a model; measured rows have none: {measured}",
            hint="`twofold plan` shows the sizes that were measured; name a model to vary it",
        )
    warnings = () if tables else (f"`{axis}` compares {half}, and this spec has none",)
    if measured:
        warnings = (f"not in these tables: {measured}, measured rows without a model to vary",)
    return Ladders(SCHEMA, spec.name, axis, tuple(tables), warnings)


def factor_swings(
    runs: Sequence[TrainingChoice], services: Sequence[ServingChoice], context: Context
) -> tuple[Factor, ...]:
    """Every factor with its range, and the width that it alone gives the first step and the first TPOT."""
    # Three draws per factor: its low end, its middle, its high end; all others at 1.
    draws = {name: np.ones((3 * len(FACTORS), 1)) for name in FACTORS}
    for index, name in enumerate(FACTORS):
        ends = np.percentile(context.draws[name], (LOW_PERCENTILE, 50.0, HIGH_PERCENTILE))
        draws[name][3 * index : 3 * index + 3, 0] = ends

    def swings(figure: NDArray[np.float64]) -> dict[str, float]:
        low, middle, high = np.ravel(np.asarray(figure, float)).reshape(len(FACTORS), 3).T
        return dict(zip(FACTORS, (np.abs(high - low) / middle).tolist(), strict=True))

    steps: dict[str, float] = {}
    tpots: dict[str, float] = {}
    if runs:
        job, chosen = runs[0].job, runs[0].chosen
        assert chosen.found.best
        steps = swings(step_samples(job, chosen.found.best.layouts, chosen.cluster, chosen.stack, draws))
    if services:
        pool = max(services[0].fleet.pools, key=lambda each: each.accelerators)
        own = drawn_pool(pool, services[0], replace(context, draws=draws))
        load = max(own.loads, key=lambda each: each.traffic.rate_per_s)
        tpots = swings(np.asarray(own.load(load).under_draws.tpot.p95_s))
    rows = [
        Factor(name, *factor_ends(context.constants, name), steps.get(name), tpots.get(name))
        for name in FACTORS
    ]
    widest = {row.name: max(row.step_swing_fraction or 0.0, row.tpot_swing_fraction or 0.0) for row in rows}
    return tuple(sorted(rows, key=lambda row: widest[row.name], reverse=True))
