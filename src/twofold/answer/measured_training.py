"""The figures of a training run whose steps were measured: what the rows say with ranges, null elsewhere."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context, price_warnings
from twofold.answer.delivery import delivery
from twofold.answer.measured_choice import MeasuredChoice, choose_run
from twofold.answer.measured_steps import Basis, Bounded, MeasuredSteps
from twofold.answer.ranges import GROWN_MOST, SURE_ROUNDS, Drawn, short_of
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_plan import machine_figures, training_plan
from twofold.answer.training_run import run_figures, runs_under
from twofold.answer.training_step import trained_step
from twofold.answer.training_trials import cheaper_fraction, losers, rivals
from twofold.answer.uncertainty import draws_between, flip_warning
from twofold.contracts.results.parts import Loser, ScalingPoint
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate, Source
from twofold.training.run import run_work

# Beyond the measured counts a figure follows from a law, not from a measurement.
SOURCES = {Basis.MEASURED: Source.MEASURED, Basis.BETWEEN: Source.MEASURED, Basis.BEYOND: Source.ASSUMED}


def figures_of_run(choice: TrainingChoice | MeasuredChoice, context: Context) -> TrainingPlan:
    """Everything about a run on its chosen machines."""
    if isinstance(choice, MeasuredChoice):
        return measured_training_plan(choice, context)
    return training_plan(choice, context)


def run_total(choice: TrainingChoice | MeasuredChoice, context: Context) -> Drawn:
    """Seconds until the run on its chosen machines is over, under every draw."""
    if isinstance(choice, MeasuredChoice):
        measured = choice.chosen.step
        work, step = choice.work, Drawn(measured.value, _samples(measured, context, 0))
    else:
        chosen, saving = choice.chosen, choice.entry.checkpoint
        work = run_work(choice.job, choice.entry.token_count, saving.write_within_s, saving.stall_s)
        assert chosen.found.best
        given = choice.job, chosen.machines(context), chosen.stack, chosen.found.best
        step = trained_step(*given, context.draws, context.constants).step
    cluster, shares = choice.chosen.cluster, choice.entry.headroom.shares
    middle, runs = runs_under(work, step, cluster, context.draws, shares)
    total = Drawn(middle.total_s, np.array([each.total_s for each in runs]))
    return choice.calendar.dated(total) if choice.calendar else total


def sure_run(entry: TrainingRun, context: Context) -> TrainingChoice | MeasuredChoice:
    """The cheapest machines on which a run ends in time with the spec's confidence; without, its middle does.

    How      As `sure_serving`: the middle is asked for as much sooner as the run's quantile lies behind it.
    Why      A date that is almost sure enough has time to spare in its middle: only what takes that off it
             finds other machines. What your own machines do not reach is no reason to rent others.
    """
    asked, limit_s = context.spec.margin_fraction, entry.time_limit_s
    choice = usual = choose_run(entry, context)
    margin = 1.0
    for searched in range(SURE_ROUNDS + 1):
        ratio = short_of(run_total(choice, context), limit_s, asked) if limit_s and asked else 1.0
        if ratio == 1.0:
            return replace(choice, margin_ratio=margin)
        if searched == SURE_ROUNDS:
            break
        margin = ratio * max(margin, (limit_s or 0.0) / choice.chosen.total_s)
        sooner = {"deadline_s": (limit_s or 0.0) / margin, "window": None}
        told = {"deadline_s": entry.deadline_s, "window": entry.window}
        try:
            choice = choose_run(entry.model_copy(update=sooner), context)
        except InfeasibleError:
            break
        choice = replace(choice, entry=choice.entry.model_copy(update=told))
        own = choice.chosen.offer.owned
        if own != usual.chosen.offer.owned or choice.chosen.cost > GROWN_MOST * usual.chosen.cost:
            break
    return usual


def measured_training_plan(choice: MeasuredChoice, context: Context) -> TrainingPlan:
    """Everything that the rows say of the chosen machines; what they do not say is None."""
    chosen, entry = choice.chosen, choice.entry
    machines = chosen.machines(context)
    # Over the draws of failures, power and price, and over what the rows leave open of the step.
    step = Drawn(chosen.step.value, _samples(chosen.step, context, 0))
    shares = entry.headroom.shares
    letter = SOURCES[chosen.step.basis]
    step_s, memory_bytes = _estimate(chosen.step, "s"), None
    record.note("step_s", step_s, chosen.step.basis, "rows", "step_spread")
    if chosen.memory:
        memory_bytes, said = _estimate(chosen.memory, "B"), chosen.memory.basis.replace("median", "most")
        record.note("memory_bytes", memory_bytes, said, "memory_rows")
    record.note("run.steps_count", choice.work.steps_count, "samples / samples per step", "tokens", "batch")
    limit_s = entry.time_limit_s
    ends = limit_s, choice.calendar
    run = run_figures(choice.work, machines, step, context.draws, shares, ends, letter)
    own, *costs = (
        trial.cost * _samples(trial.step, context, stream) / trial.step.value
        for stream, trial in enumerate((chosen, *rivals(choice)))
    )
    flips = cheaper_fraction(own, costs)
    # The same nodes from somebody else, or on another network, are not told apart.
    others = tuple(trial for trial in choice.others if trial.text != chosen.text)
    lost = losers(replace(choice, others=others), lambda trial: trial.text)
    return TrainingPlan(
        **machine_figures(choice, run, context),
        model=entry.model.label,
        parameters=None,
        kind=entry.kind,
        precision=None,
        framework=None,
        machine=machines.machine,
        layout=None,
        step_s=step_s,
        step_parts=(),
        communication_exposed_fraction=None,
        mfu_fraction=None,
        peak_ratio=None,
        memory_bytes=memory_bytes,
        memory_parts=(),
        memory_by_format=(),
        memory_capacity_bytes=chosen.cluster.device.memory_bytes,
        bounds=(),
        tried=1 + len(choice.others),
        rejected=(),
        losers=(*lost, Loser("other machines and sizes", "not measured")),
        scaling=_scaling(chosen.measured.steps),
        flip_fraction=flips,
        warnings=(
            *_row_warnings(choice),
            *price_warnings(chosen.offer, context, machine=machines.machine),
            *flip_warning(flips, "a runner-up wins"),
        ),
        tokens=entry.tokens,
        batch_tokens=entry.batch_tokens if entry.tokens is not None else None,
        delivery=delivery(entry, None, run.ends_s, context.constants),
    )


def _samples(step: Bounded, context: Context, stream: int) -> NDArray[np.float64]:
    count = context.draws["price"].shape[0]
    return draws_between(step.value, step.low, step.high, count, stream)


def _estimate(found: Bounded, unit: str) -> Estimate:
    return Estimate(found.value, found.low, found.high, unit, SOURCES[found.basis])


def _scaling(steps: MeasuredSteps) -> tuple[ScalingPoint, ...]:
    """The measured counts at one batch: throughput per accelerator over that of the fewest."""
    fewest, first = steps.counts[0], steps.counts[0] * steps.step_s[0]
    said, points = f"samples/s per accelerator over that of {fewest:,}", []
    for count, seconds in zip(steps.counts, steps.step_s, strict=True):
        factor, ratio = steps.spread_factor, first / (count * seconds)
        both = 1.0 if count == fewest else factor**2  # two runs, each with its own spread
        step_s = Estimate(seconds, seconds / factor, seconds * factor, "s", Source.MEASURED)
        share = Estimate(ratio, ratio / both, ratio * both, "fraction", Source.MEASURED)
        points.append(ScalingPoint(count, step_s, share))
        own, least = (f"scaling.{each}.step_s" for each in (count, fewest))
        record.note(own, step_s, "median of its rows", f"rows.{count}", "step_spread")
        record.note(f"scaling.{count}.efficiency_fraction", share, said, *dict.fromkeys((own, least)))
    return tuple(points)


def _row_warnings(choice: MeasuredChoice) -> Iterator[str]:
    """What the rows do not hold, and how the step was drawn from them."""
    chosen, work = choice.chosen, choice.work
    steps, count = chosen.measured.steps, chosen.cluster.accelerator_count
    if chosen.step.basis is Basis.BETWEEN:
        yield f"{count:,} accelerators were not measured: the step lies between its neighbours"
    if chosen.step.basis is Basis.BEYOND:
        yield f"{count:,} accelerators are beyond the rows: from no gain to a perfect one is assumed"
    if not steps.repeats_count:
        percent = 100 * (steps.spread_factor - 1)
        yield f"one row per count: ±{percent:.0f} % between runs is assumed, repeated rows would tell"
    if chosen.node_count > 1 and not choice.entry.on:
        fabric = chosen.offer.node.fabric
        yield f"the network of the rows is not known: planned on nodes with {fabric}, `on:` names others"
    unknown = {
        "memory (`memory_gib`)": chosen.memory is None,
        "checkpoint size (`checkpoint_gb`)": work.checkpoint_bytes is None,
        "data rate (`sample_kb`)": work.data_bytes_per_step is None,
    }
    absent = [name for name, is_absent in unknown.items() if is_absent]
    if absent:
        yield f"not measured, so not planned: {', '.join(absent)}"
