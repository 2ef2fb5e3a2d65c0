"""Where the numbers of a measured run come from, down to the lines of the file that holds its rows."""

from collections.abc import Iterator, Sequence

from twofold.answer.context import Context
from twofold.answer.derivation import Leaves, assumed_leaf, derived, path_input, spec_leaf
from twofold.answer.derive_training import money_derivations, run_derivations
from twofold.answer.measured_choice import MeasuredChoice
from twofold.contracts.results import Derivation, Input, TrainingPlan
from twofold.contracts.rows import StepRow
from twofold.core import Source, format_memory, format_si
from twofold.training import Basis, Bounded, MeasuredSteps

ROWS_SHOWN = 8


def measured_training_derivations(
    choice: MeasuredChoice, plan: TrainingPlan, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a measured run, down to the rows of its file."""
    at, chosen = f"training.{plan.name}", choice.chosen
    rows, steps = chosen.measured.rows, chosen.measured.steps
    spread = _spread_leaf(steps)
    near = _near(rows, chosen.cluster.accelerator_count)
    yield derived(f"{at}.step_s", _formula(chosen.step), *_row_inputs(choice, near), spread)
    if plan.memory_bytes and chosen.memory:
        held = tuple(row for row in rows if row.memory_bytes is not None)
        near = _near(held, chosen.cluster.accelerator_count)
        inputs = [_row_input(row, format_memory(row.memory_bytes or 0.0)) for row in near]
        yield derived(f"{at}.memory_bytes", _formula(chosen.memory), *inputs)
    samples = spec_leaf("samples", f"{choice.entry.sample_count:,.0f}", _amount_path(choice, at))
    batch = Input("samples per step", f"{plan.batch_samples:,}", "", "m", f"{choice.entry.model.measured}")
    yield from run_derivations(plan, at, choice.entry, (samples, batch))
    scope = {"family": chosen.offer.accelerator.family, "accelerator": chosen.offer.accelerator.name}
    yield from money_derivations(plan, at, Leaves(context.constants, tuple(scope.items())))
    for point in plan.scaling:
        path = f"{at}.scaling.{point.accelerator_count}"
        same = [row for row in rows if row.accelerator_count == point.accelerator_count]
        yield derived(f"{path}.step_s", "median of its rows", *_row_inputs(choice, same), spread)
        own = path_input("step", point.step_s, f"{path}.step_s")
        first = path_input("step", plan.scaling[0].step_s, f"{at}.scaling.{steps.counts[0]}.step_s")
        text = f"samples/s per accelerator over that of {steps.counts[0]:,}"
        yield derived(f"{path}.efficiency_fraction", text, *((own,) if own == first else (own, first)))


def _amount_path(choice: MeasuredChoice, at: str) -> str:
    amounts = ("tokens", "samples", "steps")
    return f"{at}.{next(name for name in amounts if getattr(choice.entry, name) is not None)}"


def _formula(found: Bounded) -> str:
    return {
        Basis.MEASURED: "median of its rows",
        Basis.BETWEEN: "a straight line in log–log between the measured counts beside it",
        Basis.BEYOND: "the slope of the last two counts, between no gain and a perfect one",
    }[found.basis]


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
    place = row.place
    label = f"{row.accelerator_count:,} accelerators"
    return Input(label, text, "", Source.MEASURED.value, f"{place.file} line {place.line}")


def _spread_leaf(steps: MeasuredSteps) -> Input:
    text = f"×{steps.spread_factor:.3f}"
    if steps.repeats_count:
        why = f"{steps.repeats_count} repeated rows, Student's t"
        return Input("spread of a further run", text, "", Source.MEASURED.value, why)
    return assumed_leaf(
        "spread of a further run", text, "equal accelerators of one cluster, Sinha et al. 2022"
    )
