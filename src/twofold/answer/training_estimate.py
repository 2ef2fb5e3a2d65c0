"""The answer to a training question as data: the step, its memory, what binds it, layouts and the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from twofold.answer.calibrated import calibration_notes, run_scope, with_letters
from twofold.answer.question import Given, check_units
from twofold.answer.ranges import drawn, step_spread
from twofold.answer.refusals import need_links, nothing_divides, nothing_trains
from twofold.answer.training_run import RunEstimate, estimate_run
from twofold.answer.training_step import (
    TrainingSite,
    least_step_s,
    limits_of,
    step_samples,
    trained_step,
    training_site,
)
from twofold.answer.uncertainty import Draws, draw_factors
from twofold.contracts.results import training
from twofold.contracts.results.parts import Bound, Count, Machine, Part
from twofold.core.errors import ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf.constants import Constants
from twofold.training.job import TrainingJob

SCHEMA = "twofold/estimate-train/1"
CHOICES = ("zero_stage", "recompute", "sequence_parallel")  # of a layout, where 0 means none


@dataclass(frozen=True, slots=True)
class TrainingQuestion:
    """What is trained where. `stated` fixes sizes by field of `Layouts`; the rest is searched."""

    job: TrainingJob
    machines: Given
    stated: Mapping[str, int] = field(default_factory=dict)
    tokens: float | None = None  # of the whole run
    write_within_s: float = 60.0
    stall_s: float | None = None  # of a write training stops; None: as the framework does
    headroom: Mapping[str, float] = field(default_factory=dict)  # shares of the run, by cause
    ranked: int = 0  # layouts to list


@dataclass(frozen=True, slots=True)
class RankedLayout:
    """One of the fastest layouts that fit."""

    text: str  # on one line
    step_s: Estimate  # s
    memory_bytes: Estimate  # of the fullest accelerator
    communication_exposed_fraction: float  # of the step


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """The answer, schema `twofold/estimate-train/1`."""

    schema: str
    model: str
    parameters: int
    kind: str
    precision: str
    framework: str
    sequence_tokens: int
    batch_sequences: int
    machine: Machine
    layout: training.Layout
    step_s: Estimate  # one optimiser step
    step_parts: tuple[Part, ...]
    communication_exposed_s: Estimate
    communication_exposed_fraction: float  # of the step
    tokens_per_s: Estimate
    mfu_fraction: Estimate  # model FLOPs over the 16-bit peak, recomputation not counted
    model_flops: float  # of one step
    hardware_flops: float  # of one step, recomputation counted
    memory_bytes: Estimate  # of the fullest accelerator
    memory_parts: tuple[Part, ...]
    memory_by_format: tuple[Part, ...]
    memory_capacity_bytes: float  # of one accelerator
    fits: bool  # the upper end of the range fits
    bounds: tuple[Bound, ...]  # strongest first
    valid_layouts: int
    rejected: tuple[Count, ...]
    layouts: tuple[RankedLayout, ...]  # fastest first, when asked for
    run: RunEstimate | None  # when tokens were given
    warnings: tuple[str, ...]


def estimate_training(question: TrainingQuestion, constants: Constants) -> TrainingEstimate:
    """Choose the fastest layout that fits, and tell everything about its step, memory and run.

    Raises InfeasibleError when no layout fits, ValueRefusedError for a stated layout that is none.
    """
    site = _site(question, constants)
    chosen = site.fastest()
    if chosen is None:
        raise nothing_trains(site)
    draws = draw_factors(constants)
    trained = trained_step(site.job, site.machines, site.stack, chosen, draws, constants)
    accelerator = site.machines.accelerator.name
    scope = run_scope(accelerator, site.job)
    fitting = int(site.fits.sum())
    late = {"memory": len(site.priced.layouts) - fitting, "slower": fitting - 1}
    run = None
    if question.tokens is not None:
        saving = question.write_within_s, question.stall_s
        run = estimate_run(trained, question.tokens, question.headroom, *saving)
    job, step, communication = site.job, trained.step, trained.communication_exposed_fraction
    estimate = TrainingEstimate(
        **trained.figures(),
        schema=SCHEMA,
        sequence_tokens=job.sequence_tokens,
        batch_sequences=job.global_batch_sequences,
        communication_exposed_s=step.times(communication).estimate("s"),
        tokens_per_s=step.inverse(float(job.tokens_per_step)).estimate("tok/s"),
        model_flops=trained.model_flops(),
        hardware_flops=trained.hardware_flops(),
        fits=chosen.high_bytes <= site.machines.cluster.device.memory_bytes,
        bounds=trained.bounds(site.priced),
        valid_layouts=len(site.priced.layouts),
        rejected=tuple(Count(why, count) for why, count in (site.priced.refused | late).items() if count),
        layouts=ranked_layouts(site, question.ranked, draws, constants),
        run=run,
        warnings=(*site.machines.warnings, *calibration_notes(constants, {"this": scope})),
    )
    return with_letters(estimate, accelerator, constants, scope)


def _site(question: TrainingQuestion, constants: Constants) -> TrainingSite:
    """Every valid layout that agrees with what is stated."""
    job, machines = question.job, question.machines
    check_units(machines.cluster.device, job.precision)
    need_links(machines.accelerator, machines.accelerator_count)
    _check_stated(question)
    valid = training_site(job, machines, constants, limits_of(question.stated))
    if not len(valid.priced.layouts):
        raise nothing_divides(job, machines, valid.priced.refused)
    site = valid.agreeing(question.stated)
    if not len(site.priced.layouts):
        raise ValueRefusedError(
            f"none of {len(valid.priced.layouts):,} valid layouts agrees with what is stated",
            hint="state less, and the rest is searched; `--layouts 20` lists what is valid",
        )
    return site


def _check_stated(question: TrainingQuestion) -> None:
    """Stated sizes that cannot hold, each with what to write."""
    stated, job, count = question.stated, question.job, question.machines.accelerator_count
    sizes = [stated.get(name, 1) for name in ("tp", "cp", "pp", "dp")]
    product = int(np.prod(sizes))
    counted = [size for name, size in stated.items() if name not in CHOICES]
    if min(counted, default=1) < 1:
        raise ValueRefusedError("a size of the layout is below 1", hint="write for example `tp=8,pp=4`")
    if count % product or (len({"tp", "cp", "pp", "dp"} & stated.keys()) == 4 and product != count):
        raise ValueRefusedError(
            f"tp × cp × pp × dp = {product:,} does not divide {count:,} accelerators",
            hint="state sizes whose product divides them, and leave one out to be searched",
        )
    if job.model.heads % stated.get("tp", 1):
        what = f"{job.model.heads} attention heads do not divide by tp={stated['tp']}"
        raise ValueRefusedError(what, hint="write a tp that divides them, or leave it out")
    per_step = stated.get("dp", 1) * stated.get("micro_batch", 1)
    if job.global_batch_sequences % per_step:
        raise ValueRefusedError(
            f"{job.global_batch_sequences} sequences do not divide by dp × micro-batch = {per_step}",
            hint=f"write a batch of `{per_step * max(1, job.global_batch_sequences // per_step)} seq`",
        )


def ranked_layouts(
    site: TrainingSite, count: int, draws: Draws, constants: Constants
) -> tuple[RankedLayout, ...]:
    """The fastest `count` layouts that fit, in order."""
    fits, job, cluster, stack = site.fits, site.job, site.machines.cluster, site.stack
    order = np.argsort(np.where(fits, site.priced.step_s, np.inf), kind="stable")
    best = order[: min(count, int(fits.sum()))]
    if not len(best):
        return ()
    found = site.candidates(best)
    taken, step, held = found.layouts, found.step, found.memory
    under_draws = step_samples(job, taken, cluster, stack, draws)
    spread, least_s = step_spread(constants, job, site.machines.accelerator), least_step_s(job, cluster)
    rows = []
    for at in range(len(taken)):
        figures = step.total_s, step.communication_s, held.total_bytes, held.low_bytes, held.high_bytes
        total_s, exposed_s, middle, low, high = (float(np.asarray(figure)[at]) for figure in figures)
        exposed = exposed_s / total_s
        own = drawn(total_s, under_draws[:, at], spread).within(least_s).estimate("s")
        rows.append(RankedLayout(taken.describe(at), own, Estimate(middle, low, high, "B"), exposed))
    return tuple(rows)
