"""Which machines run a training whose steps were measured: the cheapest measured ones that meet the spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from twofold.answer.training_trials import (
    SHOWN_MISSES,
    MachineChoice,
    MachineTrial,
    closest_misses,
    preferred,
    run_misses,
)
from twofold.catalog import Catalog
from twofold.contracts.results import Loser
from twofold.contracts.rows import StepRow, read_step_rows
from twofold.contracts.spec import TrainingRun
from twofold.core import (
    InfeasibleError,
    TableError,
    UnknownNameError,
    ValueRefusedError,
    format_enough,
    format_memory,
    format_seconds,
)
from twofold.training import RunWork, run_plan


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
class MeasuredTrial(MachineTrial):
    """A trial whose step the rows tell."""

    measured: MeasuredRows
    step: Bounded
    memory: Bounded | None


@dataclass(frozen=True, slots=True)
class MeasuredChoice(MachineChoice[MeasuredTrial]):
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
    measured = _by_accelerator(at_batch, context)
    work = _work(entry, at_batch)
    if entry.on:
        return _on_given(entry, measured, work, context)
    offers, left_out = _offers(measured, context)
    trials = [
        _trial(entry, offer, count, measured[offer.accelerator.name], work, context)
        for offer in offers
        for count in _node_counts(offer, measured[offer.accelerator.name].steps.counts)
    ]
    if not trials:
        lines = tuple((loser.what, loser.why) for loser in left_out[:SHOWN_MISSES])
        hint = f"`{path}` measures {_sizes_text(measured)}: write one of these as `on:`"
        raise InfeasibleError(f"no machine on offer was measured for `{entry.name}`", lines=lines, hint=hint)
    found = preferred(trials)
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


def _by_accelerator(rows: Sequence[StepRow], context: Context) -> dict[str, MeasuredRows]:
    """The rows of each accelerator by the catalogue's name for it."""
    found: dict[str, list[StepRow]] = {}
    for row in rows:
        found.setdefault(_accelerator_of(row, context.catalog), []).append(row)
    return {
        name: MeasuredRows(
            name,
            tuple(each),
            measured_steps([(row.accelerator_count, row.step_s) for row in each]),
        )
        for name, each in found.items()
    }


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


def _work(entry: TrainingRun, rows: Sequence[StepRow]) -> RunWork:
    """Steps, and the largest checkpoint and sample that any row names; None where none does."""
    checkpoints = [row.checkpoint_bytes for row in rows if row.checkpoint_bytes is not None]
    samples = [row.sample_bytes for row in rows if row.sample_bytes is not None]
    data_bytes = max(samples) * entry.global_batch_sequences if samples else None
    return RunWork(entry.step_count, max(checkpoints, default=None), data_bytes)


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
    if step_at(rows.steps, nodes * size) is None:
        raise _too_far(entry, rows, nodes * size)
    chosen = _trial(entry, offer, nodes, rows, work, context)
    if chosen.misses:
        raise _refusal(entry, [chosen])
    beside = [count for count in _node_counts(offer, rows.steps.counts) if count != nodes]
    others = tuple(_trial(entry, offer, count, rows, work, context) for count in beside)
    return MeasuredChoice(entry, chosen, others, (), work)


def _too_far(entry: TrainingRun, rows: MeasuredRows, count: int) -> ValueRefusedError:
    counts = rows.steps.counts
    fewest, most = -(-counts[0] // int(MEASURED_REACH)), counts[-1] * int(MEASURED_REACH)
    return ValueRefusedError(
        f"`{entry.name}` is measured on {_counts_text(counts)} {rows.accelerator}: "
        f"that says nothing of {count:,}",
        hint=f"measure nearer to {count:,}, or write `on:` with {fewest:,} to {most:,}",
    )


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
    unfit = [
        offer for offer in offers if not _node_counts(offer, measured[offer.accelerator.name].steps.counts)
    ]
    left_out += tuple(
        Loser(
            f"{offer.node.accelerator_count} × {offer.accelerator.name}",
            f"no whole number of nodes between the {_sizes_text(measured)} measured",
        )
        for offer in unfit
    )
    return tuple(offer for offer in offers if offer not in unfit), left_out


def _node_counts(offer: Offer, counts: Sequence[int]) -> list[int]:
    """Whole nodes within the measured counts: those measured, and powers of two between them."""
    size = offer.node.accelerator_count
    sizes = {count for count in counts if count % size == 0}
    sizes |= {size * 2**power for power in range(20) if counts[0] <= size * 2**power <= counts[-1]}
    most = offer.node_count_max or counts[-1]
    return sorted(count // size for count in sizes if count // size <= most)


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
    run = run_plan(
        work,
        step.value,
        cluster,
        entry.headroom.shares,
        checkpoint_write_s=entry.checkpoint.write_within_s,
    )
    price = offer.usd_per_accelerator_h
    cost_usd = None if price is None else run.total_accelerator_h * price
    misses = run_misses(entry, run, cost_usd, supply.budget_usd)
    if memory and memory.high > cluster.device.memory_bytes:
        have = format_memory(cluster.device.memory_bytes)
        misses = f"up to {format_memory(memory.high)} of memory by the rows exceed {have}"
    return MeasuredTrial(offer, node_count, cluster, run, cost_usd, misses, rows, step, memory)


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
    lines = (*closest_misses(trials), ("would fit", fits))
    return InfeasibleError(f"no measured machine trains `{entry.name}` within {what}", lines=lines)


def _sizes_text(measured: Mapping[str, MeasuredRows]) -> str:
    """`8 and 16 H100-SXM5-80GB, 4 L40S`."""
    return ", ".join(f"{_counts_text(rows.steps.counts)} {name}" for name, rows in measured.items())


def _counts_text(counts: Sequence[int]) -> str:
    """`8, 16 and 64`."""
    texts = [f"{count:,}" for count in counts]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
