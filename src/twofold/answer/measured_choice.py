"""Which machines run a training whose steps were measured: the cheapest measured ones that meet the spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.answer import training_trials
from twofold.answer.context import Context
from twofold.answer.measured_steps import (
    MEASURED_REACH,
    Bounded,
    MeasuredSteps,
    figure_at,
    measured_steps,
    step_at,
)
from twofold.answer.offers import Offer, cluster_of, fixed_offer, own_offers, run_terms, training_offers
from twofold.answer.training_choice import TrainingChoice, choose_training
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.parts import Loser
from twofold.contracts.rows.measured_rows import StepRow, read_step_rows
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_enough, format_memory, format_seconds
from twofold.core.errors import InfeasibleError, TableError, UnknownNameError, ValueRefusedError
from twofold.training.run import RunWork


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """The rows of one accelerator at the run's batch, and the curves drawn through them."""

    accelerator: str  # the catalogue's name
    rows: tuple[StepRow, ...]
    steps: MeasuredSteps

    def memory_at(self, accelerator_count: int) -> Bounded | None:
        """Bytes of the fullest accelerator; None where memory was not measured, or too far away."""
        held: dict[int, float] = {}
        for row in self.rows:
            if row.memory_bytes is not None:
                held[row.accelerator_count] = max(held.get(row.accelerator_count, 0.0), row.memory_bytes)
        counts = sorted(held)
        return figure_at(counts, [held[count] for count in counts], accelerator_count) if counts else None


@dataclass(frozen=True, slots=True)
class MeasuredTrial(training_trials.MachineTrial):
    """A trial whose step the rows tell."""

    measured: MeasuredRows
    step: Bounded
    memory: Bounded | None


@dataclass(frozen=True, slots=True)
class MeasuredChoice(training_trials.MachineChoice[MeasuredTrial]):
    """The machines of a measured run; its entry has the batch of the rows."""

    work: RunWork


def choose_run(entry: TrainingRun, context: Context) -> TrainingChoice | MeasuredChoice:
    """The machines of a run, by its model or by its measured rows. Raises InfeasibleError."""
    return choose_measured(entry, context) if entry.model.measured else choose_training(entry, context)


def choose_measured(entry: TrainingRun, context: Context) -> MeasuredChoice:
    """Try the machines that were measured at their measured sizes, or those that the spec names.

    Raises TableError or UnknownNameError for rows that cannot be, ValueRefusedError for machines or a batch
    that the rows say nothing of, InfeasibleError with the closest misses.
    """
    path = entry.model.measured
    assert path
    rows = read_step_rows(Path(path))
    entry = _with_batch(entry, rows)
    at_batch = [row for row in rows if row.global_batch_samples == entry.global_batch_sequences]
    by_name: dict[str, list[StepRow]] = {}  # the catalogue's, and no other: its parts are told apart
    for row in at_batch:
        by_name.setdefault(_accelerator_of(row, context.catalog), []).append(row)
    measured = {
        name: MeasuredRows(
            name, tuple(own), measured_steps([(row.accelerator_count, row.step_s) for row in own])
        )
        for name, own in by_name.items()
    }
    # The largest checkpoint and sample that any row names; None where none does.
    sizes = [row.checkpoint_bytes for row in at_batch if row.checkpoint_bytes is not None]
    samples = [row.sample_bytes for row in at_batch if row.sample_bytes is not None]
    read_bytes = max(samples) * entry.global_batch_sequences if samples else None
    saving = entry.checkpoint.write_within_s, entry.checkpoint.stall_s
    work = RunWork(entry.step_count, max(sizes, default=None), read_bytes, *saving)
    if entry.on:
        return _on_given(entry, measured, work, context)
    offers, left_out = _offers(measured, context)
    trials = [
        _trial(entry, offer, count, measured[offer.accelerator.name], work, context)
        for offer in offers
        for count in _node_counts(offer, measured[offer.accelerator.name].steps.counts)
    ]
    if not trials:
        lines = tuple((loser.what, loser.why) for loser in left_out[: training_trials.SHOWN_MISSES])
        hint = f"`{path}` measures {_sizes_text(measured)}: write one of these as `on:`"
        raise InfeasibleError(f"no machine on offer was measured for `{entry.name}`", lines=lines, hint=hint)
    found = training_trials.preferred(trials, entry.time_value_usd_per_d or 0.0)
    if found is None:
        raise _refusal(entry, trials)
    return MeasuredChoice(entry, *found, left_out, work)


def _with_batch(entry: TrainingRun, rows: Sequence[StepRow]) -> TrainingRun:
    """The run at the batch that was measured: the spec's, else the only one that the rows have."""
    batches = sorted({row.global_batch_samples for row in rows})
    said = ", ".join(f"{batch:,}" for batch in batches)
    if "global_batch_sequences" in entry.model_fields_set:
        if entry.global_batch_sequences not in batches:
            raise ValueRefusedError(
                f"`{entry.name}` has a global batch of {entry.global_batch_sequences:,}; "
                f"`{entry.model.measured}` measured {said}",
                hint=f"measure that batch, or write `global_batch: {batches[0]} seq`",
            )
        return entry
    if len(batches) > 1:
        raise ValueRefusedError(
            f"`{entry.model.measured}` measured global batches of {said}: `{entry.name}` does not say which",
            hint=f"write `global_batch: {batches[-1]} seq`",
        )
    return entry.model_copy(update={"global_batch_sequences": batches[0]})


def _accelerator_of(row: StepRow, catalog: Catalog) -> str:
    """The catalogue's name; a row that holds more than the part's memory was measured on another part."""
    try:
        accelerator = catalog.accelerator(row.accelerator)
    except UnknownNameError as error:
        raise UnknownNameError(error.message, place=row.place, hint=error.hint) from error
    if row.memory_bytes is not None and row.memory_bytes > accelerator.memory_bytes:
        have = format_memory(accelerator.memory_bytes)
        raise TableError(
            f"{format_memory(row.memory_bytes)} were measured on {accelerator.name}, which has {have}",
            place=row.place,
            hint="write the peak of one accelerator in GiB, or the part that it was measured on",
        )
    return accelerator.name


def _on_given(
    entry: TrainingRun, measured: Mapping[str, MeasuredRows], work: RunWork, context: Context
) -> MeasuredChoice:
    """The machines that the spec names; their other measured sizes stand beside them for comparison."""
    assert entry.on
    supply = context.spec.supply
    offer = fixed_offer(entry.on, context.catalog, supply, run_terms(supply.shop))
    name, nodes = offer.accelerator.name, entry.on.count
    if name not in measured:
        raise ValueRefusedError(
            f"`{entry.name}` is measured on {_sizes_text(measured)}, not on {name}",
            hint=f"measure it there, or write `on:` with {' or '.join(measured)}",
        )
    rows, size = measured[name], offer.node.accelerator_count
    if step_at(rows.steps, count := nodes * size) is None:
        counts, reach = rows.steps.counts, int(MEASURED_REACH)
        fewest, most = -(-counts[0] // reach), counts[-1] * reach
        raise ValueRefusedError(
            f"`{entry.name}` is measured on {_counts_text(counts)} {name}: that says nothing of {count:,}",
            hint=f"measure nearer to {count:,}, or write `on:` with {fewest:,} to {most:,}",
        )
    chosen = _trial(entry, offer, nodes, rows, work, context)
    if chosen.misses:
        raise _refusal(entry, [chosen])
    beside = [each for each in _node_counts(offer, rows.steps.counts) if each != nodes]
    others = tuple(_trial(entry, offer, each, rows, work, context) for each in beside)
    return MeasuredChoice(entry, chosen, others, (), work)


def _offers(
    measured: Mapping[str, MeasuredRows], context: Context
) -> tuple[tuple[Offer, ...], tuple[Loser, ...]]:
    """Own and rentable machines of the parts that were measured, and why others are not considered."""
    supply, catalog = context.spec.supply, context.catalog
    named = {catalog.accelerator(name).name for name in supply.shop.accelerators}
    wanted = tuple(name for name in measured if not named or name in named)
    rented: tuple[Offer, ...] = ()
    left_out: tuple[Loser, ...] = ()
    if wanted:
        shop = supply.shop.model_copy(update={"accelerators": wanted})
        found = training_offers(catalog, supply.model_copy(update={"shop": shop}))
        rented, left_out = found.offers, found.left_out
    own = tuple(offer for offer in own_offers(catalog, supply) if offer.accelerator.name in measured)
    offers = (*own, *rented)
    fit = [each for each in offers if _node_counts(each, measured[each.accelerator.name].steps.counts)]
    why = f"no whole number of nodes between the {_sizes_text(measured)} measured"
    unfit = (each for each in offers if each not in fit)
    left_out += tuple(
        Loser(f"{each.node.accelerator_count} × {each.accelerator.name}", why) for each in unfit
    )
    return tuple(fit), left_out


def _node_counts(offer: Offer, counts: Sequence[int]) -> list[int]:
    """Whole nodes within the measured counts: those measured, and powers of two between them."""
    size = offer.node.accelerator_count
    sizes = {count for count in counts if count % size == 0}
    sizes |= {size * 2**power for power in range(20) if counts[0] <= size * 2**power <= counts[-1]}
    most = offer.node_count_max or counts[-1]
    return sorted(count // size for count in sizes if count // size <= most and offer.is_had(count // size))


def _trial(
    entry: TrainingRun,
    offer: Offer,
    node_count: int,
    rows: MeasuredRows,
    work: RunWork,
    context: Context,
) -> MeasuredTrial:
    """The run on some nodes, through the same failures, checkpoints and hours as any other."""
    supply = context.spec.supply
    cluster = cluster_of(offer, node_count, context.constants, context.catalog, supply)
    count = cluster.accelerator_count
    step, memory = step_at(rows.steps, count), rows.memory_at(count)
    assert step
    run, cost_usd, misses, beside_usd = training_trials.run_on(
        entry, work, step.value, offer, cluster, context.catalog, supply.budget_usd
    )
    if memory and memory.high > cluster.device.memory_bytes:
        have = format_memory(cluster.device.memory_bytes)
        misses = f"up to {format_memory(memory.high)} of memory by the rows exceed {have}"
    return MeasuredTrial(offer, node_count, cluster, run, cost_usd, misses, beside_usd, rows, step, memory)


def _refusal(entry: TrainingRun, trials: Sequence[MeasuredTrial]) -> InfeasibleError:
    """What is needed, what was tried, and what would fit: nothing beyond the rows is promised."""
    fastest_s = min(trial.total_s for trial in trials)
    if entry.time_limit_s is not None and fastest_s > entry.time_limit_s:
        what = f"the deadline of {format_seconds(entry.time_limit_s)}"
        fits = f"a deadline of {format_seconds(fastest_s)} · rows of more accelerators"
    else:
        what, fits = "memory and budget", "fewer samples"
        costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
        fits = f"a budget of {format_enough(min(costs), 'USD')} · {fits}" if costs else fits
    lines = (*training_trials.closest_misses(trials), ("would fit", fits))
    return InfeasibleError(f"no measured machine trains `{entry.name}` within {what}", lines=lines)


def _sizes_text(measured: Mapping[str, MeasuredRows]) -> str:
    """`8 and 16 H100-SXM5-80GB, 4 L40S`."""
    return ", ".join(f"{_counts_text(rows.steps.counts)} {name}" for name, rows in measured.items())


def _counts_text(counts: Sequence[int]) -> str:
    """`8, 16 and 64`."""
    texts = [f"{count:,}" for count in counts]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
