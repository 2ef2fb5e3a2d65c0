"""Where every number of a plan comes from: one derivation per estimate, each ending in leaves."""

from collections.abc import Iterator, Mapping, Sequence

from twofold.answer.context import Context
from twofold.answer.derivation import Leaves, Noted, assumed_leaf, derived, figures_of, path_input, spec_leaf
from twofold.answer.derive_serving import serving_derivations
from twofold.answer.derive_training import PLACES, run_leaves, training_derivations
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.measured_serving import measured_derivations
from twofold.answer.measured_steps import Basis
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.training_choice import TrainingChoice
from twofold.contracts.results import CrossCell, Derivation, Input, ServicePlan, TrainingPlan
from twofold.contracts.rows import StepRow
from twofold.core import DAY_S, Estimate, Source, format_memory, format_si, record

Runs = Sequence[tuple[TrainingChoice | MeasuredChoice, TrainingPlan]]
Services = Sequence[tuple[ServingChoice, ServicePlan]]


def derivations(
    runs: Runs,
    modelled: Services,
    services: Sequence[ServicePlan],
    cross: Sequence[CrossCell],
    first_year: Estimate | None,
    books: Mapping[str, record.Book],
    context: Context,
) -> tuple[Derivation, ...]:
    """The derivations of a whole plan; `modelled` are those of its services that are not measured.

    `books` hold what was noted while its figures were computed, by their path.
    """
    runs = sorted(runs, key=lambda run: isinstance(run[0], MeasuredChoice))  # those with a model first
    found: list[Derivation] = []
    for choice, plan in runs:
        book = books[f"training.{plan.name}"]
        if isinstance(choice, MeasuredChoice):
            found += measured_training_derivations(choice, plan, book, context)
        else:
            found += training_derivations(choice, plan, book, context)
    found += [
        row
        for own, served in modelled
        for row in serving_derivations(own, served, books[f"serving.{served.name}"], context)
    ]
    for service, entry in zip(services, context.spec.services, strict=True):
        if entry.model.measured:
            found += measured_derivations(entry, service)
    found += [row for cell in cross for row in _cell(cell)]
    if first_year:
        found.append(_first_year(runs, services, context))
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


def _first_year(runs: Runs, services: Sequence[ServicePlan], context: Context) -> Derivation:
    inputs: list[Input] = []
    for choice, plan in runs:
        if plan.cost_usd:
            inputs.append(path_input(plan.name, plan.cost_usd, f"training.{plan.name}.cost_usd"))
        if choice.entry.repeats_every_s:
            days = choice.entry.repeats_every_s / DAY_S
            inputs.append(spec_leaf("repeats", f"every {days:g} d", f"training.{plan.name}.repeats"))
    for service in services:
        if service.cost_usd_per_year:
            path = f"serving.{service.name}.cost_usd_per_year"
            inputs.append(path_input(service.name, service.cost_usd_per_year, path))
    return derived("first_year_usd", f"the runs and a year of services of {context.spec.name}", *inputs)


ROWS_SHOWN = 8
FORMULAS = {
    Basis.MEASURED: "median of its rows",
    Basis.BETWEEN: "a straight line in log–log between the measured counts beside it",
    Basis.BEYOND: "the slope of the last two counts, between no gain and a perfect one",
}


def measured_training_derivations(
    choice: MeasuredChoice, plan: TrainingPlan, book: record.Book, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a measured run, down to the rows of its file."""
    at, chosen = f"training.{plan.name}", choice.chosen
    rows, steps = chosen.measured.rows, chosen.measured.steps
    factor, repeats = f"×{steps.spread_factor:.3f}", f"{steps.repeats_count} repeated rows, Student's t"
    if steps.repeats_count:
        spread = Input("spread of a further run", factor, "", Source.MEASURED.value, repeats)
    else:
        why = "equal accelerators of one cluster, Sinha et al. 2022"
        spread = assumed_leaf("spread of a further run", factor, why)
    near = _near(rows, chosen.cluster.accelerator_count)
    yield derived(f"{at}.step_s", FORMULAS[chosen.step.basis], *_row_inputs(choice, near), spread)
    if plan.memory_bytes and chosen.memory:
        held = tuple(row for row in rows if row.memory_bytes is not None)
        near = _near(held, chosen.cluster.accelerator_count)
        inputs = [_row_input(row, format_memory(row.memory_bytes or 0.0)) for row in near]
        yield derived(f"{at}.memory_bytes", FORMULAS[chosen.memory.basis], *inputs)
    amounts = ("tokens", "samples", "steps")
    amount = next(name for name in amounts if getattr(choice.entry, name) is not None)
    offer = chosen.offer
    scope = {"family": offer.accelerator.family, "accelerator": offer.accelerator.name}
    leaves = Leaves(context.constants, tuple(scope.items()))
    known = dict(run_leaves(plan, at, choice, leaves, context)) | {
        "tokens": spec_leaf("samples", f"{choice.entry.sample_count:,.0f}", f"{at}.{amount}"),
        "batch": Input(
            "samples per step", f"{plan.batch_samples:,}", "", "m", f"{choice.entry.model.measured}"
        ),
        "step_s": path_input("step", plan.step_s, f"{at}.step_s"),
    }
    yield from Noted(at, book, figures_of(plan), known, PLACES).rows()
    for point in plan.scaling:
        path = f"{at}.scaling.{point.accelerator_count}"
        same = [row for row in rows if row.accelerator_count == point.accelerator_count]
        yield derived(f"{path}.step_s", "median of its rows", *_row_inputs(choice, same), spread)
        own = path_input("step", point.step_s, f"{path}.step_s")
        first = path_input("step", plan.scaling[0].step_s, f"{at}.scaling.{steps.counts[0]}.step_s")
        text = f"samples/s per accelerator over that of {steps.counts[0]:,}"
        yield derived(f"{path}.efficiency_fraction", text, *dict.fromkeys((own, first)))


def _near(rows: Sequence[StepRow], count: int) -> list[StepRow]:
    """The rows that a figure at a count follows from: its own, else those of the nearest counts."""
    counts = sorted({row.accelerator_count for row in rows})
    if count in counts:
        used = {count}
    elif counts[0] < count < counts[-1]:
        used = {max(n for n in counts if n < count), min(n for n in counts if n > count)}
    else:
        used = set(counts[:2] if count < counts[0] else counts[-2:])
    return [row for row in rows if row.accelerator_count in used]


def _row_inputs(choice: MeasuredChoice, rows: list[StepRow]) -> list[Input]:
    shown = [_row_input(row, format_si(row.step_s, "s")) for row in rows[:ROWS_SHOWN]]
    more = len(rows) - ROWS_SHOWN
    if more > 0:
        shown.append(Input(f"{more} more rows", "", "", "m", f"{choice.entry.model.measured}"))
    return shown


def _row_input(row: StepRow, text: str) -> Input:
    place = f"{row.place.file} line {row.place.line}"
    return Input(f"{row.accelerator_count:,} accelerators", text, "", Source.MEASURED.value, place)
