"""Where every number of a plan comes from: one derivation per estimate, each ending in leaves."""

from collections.abc import Iterator, Sequence

from twofold.answer.context import Context
from twofold.answer.derivation import assumed_leaf, derived, path_input, spec_leaf
from twofold.answer.derive_measured import measured_training_derivations
from twofold.answer.derive_serving import serving_derivations
from twofold.answer.derive_training import training_derivations
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.measured_serving import measured_derivations
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.training_choice import TrainingChoice
from twofold.contracts.results import CrossCell, Derivation, Input, ServicePlan, TrainingPlan
from twofold.contracts.spec import TrainingRun
from twofold.core import DAY_S, Estimate

Runs = Sequence[tuple[TrainingChoice, TrainingPlan]]
MeasuredRuns = Sequence[tuple[MeasuredChoice, TrainingPlan]]
Services = Sequence[tuple[ServingChoice, ServicePlan]]


def derivations(
    runs: Runs,
    measured: MeasuredRuns,
    modelled: Services,
    services: Sequence[ServicePlan],
    cross: Sequence[CrossCell],
    first_year: Estimate | None,
    context: Context,
) -> tuple[Derivation, ...]:
    """The derivations of a whole plan; `modelled` are those of its services that are not measured."""
    found = [row for choice, plan in runs for row in training_derivations(choice, plan, context)]
    found += [row for rows, plan in measured for row in measured_training_derivations(rows, plan, context)]
    found += [row for choice, plan in modelled for row in serving_derivations(choice, plan, context)]
    for service, entry in zip(services, context.spec.services, strict=True):
        if entry.model.measured:
            found += measured_derivations(entry, service)
    found += [row for cell in cross for row in _cell(cell)]
    if first_year:
        planned = [(choice.entry, plan) for choice, plan in runs]
        planned += [(rows.entry, plan) for rows, plan in measured]
        found.append(_first_year(planned, services, context))
    return tuple(found)


def _cell(cell: CrossCell) -> Iterator[Derivation]:
    """A cell on its own fleet is the plan's figure; on the other fleet the search was run there."""
    own = {
        "wall_s": f"training.{cell.name}.run.total_s",
        "cost_usd": f"training.{cell.name}.cost_usd"
        if cell.half == "training"
        else f"serving.{cell.name}.cost_usd_per_year",
        "latency_s": f"serving.{cell.name}",
    }
    path = f"cross.{cell.half}.{cell.name}.{cell.fleet}"
    searched = assumed_leaf("search", cell.text, f"the same search on the {cell.fleet} fleet")
    for name, reference in own.items():
        value = getattr(cell, name)
        if value is None:
            continue
        if cell.fleet == cell.half and name != "latency_s":
            yield derived(f"{path}.{name}", "as planned", path_input(name, value, reference))
        else:
            yield derived(f"{path}.{name}", "the same model, on that fleet's machines", searched)


def _first_year(
    runs: Sequence[tuple[TrainingRun, TrainingPlan]], services: Sequence[ServicePlan], context: Context
) -> Derivation:
    inputs: list[Input] = []
    for entry, plan in runs:
        if plan.cost_usd:
            inputs.append(path_input(plan.name, plan.cost_usd, f"training.{plan.name}.cost_usd"))
        if entry.repeats_every_s:
            days = entry.repeats_every_s / DAY_S
            inputs.append(spec_leaf("repeats", f"every {days:g} d", f"training.{plan.name}.repeats"))
    for service in services:
        if service.cost_usd_per_year:
            path = f"serving.{service.name}.cost_usd_per_year"
            inputs.append(path_input(service.name, service.cost_usd_per_year, path))
    return derived("first_year_usd", f"the runs and a year of services of {context.spec.name}", *inputs)
