"""The answer to a training question as data: the step, its memory, what binds it, layouts and the run."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import calibrated_run
from twofold.answer.question import Given, check_units
from twofold.answer.quick_refusal import nothing_trains
from twofold.answer.quick_run import QuickRun, quick_run
from twofold.answer.quick_train import (
    Answered,
    TrainingQuestion,
    answer,
    hardware_flops,
    layout_of,
    memory_by_format,
    memory_estimate,
    memory_parts,
    priced_layouts,
    step_bounds,
    step_parts,
)
from twofold.answer.ranges import drawn, drawn_run, step_spread
from twofold.answer.uncertainty import Draws, draw_factors
from twofold.contracts.results import Bound, Count, Layout, Machine, Part
from twofold.core import Estimate
from twofold.perf import Constants
from twofold.training import (
    Priced,
    Stack,
    TrainingJob,
    candidate,
    load_stack,
    memory,
    model_flops_per_token,
    model_flops_utilisation,
    step_time,
    workload,
)

SCHEMA = "twofold/estimate-train/1"


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
    layout: Layout
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
    run: QuickRun | None  # when tokens were given
    warnings: tuple[str, ...]


def estimate_training(question: TrainingQuestion, constants: Constants) -> TrainingEstimate:
    """Choose the fastest layout that fits, and tell everything about its step, memory and run.

    Raises InfeasibleError when no layout fits, ValueRefusedError for a stated layout that is none.
    """
    job, machines = question.job, question.machines
    check_units(machines.cluster.device, job.precision)
    stack = load_stack(constants, job.framework, job.precision, machines.accelerator.family)
    cluster, stack = calibrated_run(machines.cluster, stack, job, constants)
    machines = replace(machines, cluster=cluster)
    question = replace(question, machines=machines)
    priced = priced_layouts(question, stack)
    fits = priced.high_bytes <= machines.cluster.device.memory_bytes
    if not fits.any():
        raise nothing_trains(job, machines, priced, stack)
    fastest = int(np.argmin(np.where(fits, priced.step_s, np.inf)))
    best = candidate(job, priced.layouts.row(fastest), machines.cluster, stack)
    answered = answer(job, machines, stack, best, draw_factors(constants), constants)
    return _estimate(question, stack, priced, fits, answered, constants)


def _estimate(
    question: TrainingQuestion,
    stack: Stack,
    priced: Priced,
    fits: NDArray[np.bool_],
    answered: Answered,
    constants: Constants,
) -> TrainingEstimate:
    job, machines, best, step = question.job, question.machines, answered.chosen, answered.step
    work, cluster = workload(job), machines.cluster
    communication = float(np.max(best.step.communication_s)) / best.step_s
    utilisation = float(np.max(model_flops_utilisation(work, best.layouts, cluster, best.step_s)))
    flops = float(np.max(model_flops_per_token(work))) * job.tokens_per_step
    return TrainingEstimate(
        schema=SCHEMA,
        model=job.model.name,
        parameters=job.model.parameters,
        kind=job.kind,
        precision=job.precision,
        framework=job.framework,
        sequence_tokens=job.sequence_tokens,
        batch_sequences=job.global_batch_sequences,
        machine=machines.machine,
        layout=layout_of(best.layouts),
        step_s=step.estimate("s"),
        step_parts=step_parts(best.step, step),
        communication_exposed_s=step.times(communication).estimate("s"),
        communication_exposed_fraction=communication,
        tokens_per_s=step.inverse(float(job.tokens_per_step)).estimate("tok/s"),
        mfu_fraction=step.inverse(utilisation * best.step_s).estimate("fraction"),
        model_flops=flops,
        hardware_flops=hardware_flops(job, best.layouts, stack),
        memory_bytes=memory_estimate(best.memory),
        memory_parts=memory_parts(best.memory),
        memory_by_format=memory_by_format(job, best.memory, stack),
        memory_capacity_bytes=cluster.device.memory_bytes,
        fits=best.high_bytes <= cluster.device.memory_bytes,
        bounds=step_bounds(job, machines, stack, best, priced),
        valid_layouts=len(priced.layouts),
        rejected=_rejected(priced, fits),
        layouts=ranked_layouts(
            job, machines, stack, priced, fits, question.ranked, answered.draws, constants
        ),
        run=_run(question, answered),
        warnings=machines.warnings,
    )


def _run(question: TrainingQuestion, answered: Answered) -> QuickRun | None:
    if question.tokens is None:
        return None
    return quick_run(
        question.job,
        question.machines,
        answered.step,
        answered.draws,
        question.tokens,
        question.write_within_s,
        question.headroom,
    )


def ranked_layouts(
    job: TrainingJob,
    machines: Given,
    stack: Stack,
    priced: Priced,
    fits: NDArray[np.bool_],
    count: int,
    draws: Draws,
    constants: Constants,
) -> tuple[RankedLayout, ...]:
    """The fastest `count` layouts that fit, in order."""
    order = np.argsort(np.where(fits, priced.step_s, np.inf), kind="stable")[: min(count, int(fits.sum()))]
    if not len(order):
        return ()
    taken = priced.layouts.take(order)
    held, step = memory(job, taken, stack), step_time(job, taken, machines.cluster, stack)
    under_draws = step_time(job, taken, *drawn_run(machines.cluster, stack, job, draws)).total_s
    spread = step_spread(constants, job, machines.accelerator)
    rows = []
    for at in range(len(order)):
        total_s = float(np.asarray(step.total_s)[at])
        figure = drawn(total_s, np.asarray(under_draws)[:, at], spread)
        middle, low, high = (
            float(np.asarray(b)[at]) for b in (held.total_bytes, held.low_bytes, held.high_bytes)
        )
        exposed = float(np.asarray(step.communication_s)[at]) / total_s
        rows.append(
            RankedLayout(taken.describe(at), figure.estimate("s"), Estimate(middle, low, high, "B"), exposed)
        )
    return tuple(rows)


def _rejected(priced: Priced, fits: NDArray[np.bool_]) -> tuple[Count, ...]:
    memory_count, slower = int((~fits).sum()), int(fits.sum()) - 1
    late = {"memory": memory_count, "slower": slower}
    return tuple(Count(reason, count) for reason, count in (priced.refused | late).items() if count)
