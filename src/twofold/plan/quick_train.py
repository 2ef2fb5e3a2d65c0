"""One training question without a spec: a model on given machines, its step, memory, layouts and run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from twofold.contracts import Bound, Count, Layout, Machine, Part
from twofold.core import Estimate, Source, ValueRefusedError
from twofold.perf import Constants, Floats
from twofold.plan.given import Given, check_units
from twofold.plan.quick_refusal import nothing_trains
from twofold.plan.quick_run import QuickRun, quick_run
from twofold.plan.ranges import Drawn, drawn, drawn_cluster, drawn_stack, step_spread
from twofold.plan.uncertainty import Draws, draw_factors, scale_cluster
from twofold.training import (
    Candidate,
    Layouts,
    Limits,
    Memory,
    Priced,
    Recompute,
    Stack,
    StepTime,
    TrainingJob,
    candidate,
    load_stack,
    memory,
    model_flops_per_token,
    model_flops_utilisation,
    price_layouts,
    step_time,
    workload,
)

SCHEMA = "twofold/estimate-train/1"
CHOICES = ("zero_stage", "recompute", "sequence_parallel")  # of a layout, where 0 means none
RELIEF = 1.2  # how much more of a resource `bounds` tries
RELIEVED = {  # as a plan names it -> as `scale_cluster` and `drawn_stack` do
    "compute": "compute",
    "memory bandwidth": "memory_bandwidth",
    "link": "link",
    "fabric": "fabric",
    "host": "host",
}
STEP_PARTS = {  # what a screen calls the parts of a step
    "compute": ("gemm_s", "attention_s", "experts_s", "elementwise_s"),
    "recompute": ("recompute_s",),
    "TP": ("tp_s",),
    "CP": ("cp_s",),
    "EP": ("ep_s",),
    "PP": ("pp_s",),
    "DP": ("dp_s",),
    "host": ("host_s",),
    "head": ("head_s",),
    "bubble": ("bubble_s",),
    "optimiser": ("optimizer_s",),
    "data": ("data_s",),
    "jitter": ("jitter_s",),
}


@dataclass(frozen=True, slots=True)
class TrainingQuestion:
    """What is trained where. `stated` fixes sizes by field of `Layouts`; the rest is searched."""

    job: TrainingJob
    machines: Given
    stated: Mapping[str, int] = field(default_factory=dict)
    tokens: float | None = None  # of the whole run
    write_within_s: float = 60.0
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


@dataclass(frozen=True, slots=True)
class Answered:
    """A chosen layout with its step under every draw: what other questions build on."""

    chosen: Candidate
    step: Drawn
    draws: Draws


def estimate_training(question: TrainingQuestion, constants: Constants) -> TrainingEstimate:
    """Choose the fastest layout that fits, and tell everything about its step, memory and run.

    Raises InfeasibleError when no layout fits, ValueRefusedError for a stated layout that is none.
    """
    job, machines = question.job, question.machines
    check_units(machines.cluster.device, job.precision)
    stack = load_stack(constants, job.framework, job.precision, machines.accelerator.family)
    priced = priced_layouts(question, stack)
    fits = priced.high_bytes <= machines.cluster.device.memory_bytes
    if not fits.any():
        raise nothing_trains(job, machines, priced, stack)
    best = candidate(
        job,
        priced.layouts.row(int(np.argmin(np.where(fits, priced.step_s, np.inf)))),
        machines.cluster,
        stack,
    )
    draws = draw_factors(constants)
    answered = answer(job, machines, stack, best, draws, constants)
    run = (
        quick_run(
            question.job,
            machines,
            answered.step,
            draws,
            question.tokens,
            question.write_within_s,
            question.headroom,
        )
        if question.tokens
        else None
    )
    return _estimate(question, stack, priced, fits, answered, constants, run)


def answer(
    job: TrainingJob, machines: Given, stack: Stack, chosen: Candidate, draws: Draws, constants: Constants
) -> Answered:
    """The chosen layout's step under every draw, stretched to what left-out runs showed."""
    under_draws = step_time(
        job, chosen.layouts, drawn_cluster(machines.cluster, draws), drawn_stack(stack, draws)
    )
    spread = step_spread(constants, job.model, job.framework, job.precision, machines.accelerator.family)
    return Answered(chosen, drawn(chosen.step_s, under_draws.total_s, spread), draws)


def priced_layouts(question: TrainingQuestion, stack: Stack) -> Priced:
    """Every valid layout that agrees with what is stated, with its time and memory."""
    job, cluster = question.job, question.machines.cluster
    stated = question.stated
    _check_stated(question)
    recompute = tuple(
        Recompute(mode) for mode in ((stated["recompute"],) if "recompute" in stated else (0, 1, 2))
    )
    limits = Limits(
        tp_max=stated.get("tp"),
        cp_max=stated.get("cp"),
        pp_max=stated.get("pp", Limits().pp_max),
        vpp_max=stated.get("vpp", Limits().vpp_max),
        micro_batch_max=stated.get("micro_batch", Limits().micro_batch_max),
        zero_stages=(stated["zero_stage"],) if "zero_stage" in stated else Limits().zero_stages,
        recompute=recompute,
    )
    priced = price_layouts(job, cluster, stack, limits)
    agrees = np.ones(len(priced.layouts), bool)
    for name, value in stated.items():
        agrees &= getattr(priced.layouts, name) == value
    if not agrees.any():
        broken = ", ".join(f"{count:,} for {reason}" for reason, count in priced.refused.items())
        raise ValueRefusedError(
            f"no valid layout on {cluster.accelerator_count:,} accelerators agrees with what is stated",
            hint=f"combinations refused: {broken or 'none'}; state less, and the rest is searched",
        )
    return Priced(
        priced.layouts.take(agrees), priced.step_s[agrees], priced.high_bytes[agrees], priced.refused
    )


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
        raise ValueRefusedError(f"{job.model.heads} attention heads do not divide by tp={stated['tp']}")
    per_step = stated.get("dp", 1) * stated.get("micro_batch", 1)
    if job.global_batch_sequences % per_step:
        raise ValueRefusedError(
            f"{job.global_batch_sequences} sequences do not divide by dp × micro-batch = {per_step}"
        )


def _estimate(
    question: TrainingQuestion,
    stack: Stack,
    priced: Priced,
    fits: NDArray[np.bool_],
    answered: Answered,
    constants: Constants,
    run: QuickRun | None,
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
        run=run,
        warnings=machines.warnings,
    )


def layout_of(layouts: Layouts, index: int = 0) -> Layout:
    """One candidate as the plan's schema writes it."""
    at = {f.name: int(getattr(layouts, f.name)[index]) for f in fields(Layouts)}
    return Layout(
        **{name: at[name] for name in ("tp", "cp", "ep", "pp", "vpp", "dp", "zero_stage", "micro_batch")},
        recompute=Recompute(at["recompute"]).name.lower(),
        sequence_parallel=bool(at["sequence_parallel"]),
        text=layouts.describe(index),
    )


def step_parts(step: StepTime, total: Drawn) -> tuple[Part, ...]:
    """The parts of a step, those that are not there left out; they add up to the total."""
    middle = {name: sum(_one(getattr(step, each)) for each in held) for name, held in STEP_PARTS.items()}
    return tuple(
        Part(name, total.times(value / total.middle).estimate("s"), value / total.middle)
        for name, value in middle.items()
        if value > 0
    )


def memory_estimate(held: Memory) -> Estimate:
    """The whole of it, with the range that decides whether it fits."""
    return Estimate(_one(held.total_bytes), _one(held.low_bytes), _one(held.high_bytes), "B", Source.FITTED)


def memory_parts(held: Memory) -> tuple[Part, ...]:
    """Weights, gradients, optimiser, activations, logits and buffers of the fullest accelerator."""
    named = {
        "weights": held.weights_bytes,
        "gradients": held.gradients_bytes,
        "optimiser": held.optimizer_bytes,
        "activations": held.activations_bytes,
        "logits": held.logits_bytes,
        "buffers": held.buffers_bytes,
    }
    return _memory_shares(held, {name: _one(value) for name, value in named.items()})


def memory_by_format(job: TrainingJob, held: Memory, stack: Stack) -> tuple[Part, ...]:
    """The same bytes by number format: what is computed in, what sums and states are kept in, scratch."""
    half = "fp32" if job.precision == "fp32" else "fp16" if job.precision == "fp16" else "bf16"
    gradient = "fp32" if _one(stack.gradient_bytes) >= 4 else half
    kept: dict[str, float] = {}
    for name, value in (
        (half, held.weights_bytes),
        (gradient, held.gradients_bytes),
        (half, held.activations_bytes),
        ("fp32", held.optimizer_bytes),
        ("fp32", held.logits_bytes),  # 16-bit logits are copied to fp32 for the loss, and its gradient kept
        ("any", held.buffers_bytes),
    ):
        kept[name] = kept.get(name, 0.0) + _one(value)
    return _memory_shares(held, kept)


def _memory_shares(held: Memory, kept: Mapping[str, float]) -> tuple[Part, ...]:
    spread, total = _one(held.spread_factor), _one(held.total_bytes)
    return tuple(
        Part(name, Estimate(value, value / spread, value * spread, "B"), value / total)
        for name, value in kept.items()
        if value > 0
    )


def hardware_flops(job: TrainingJob, layouts: Layouts, stack: Stack) -> float:
    """FLOPs of one step that the hardware does: the model's, and the layers' forward pass again.

    Formula  model + repeated share × (model / 3 − 2·vocab·hidden per token)
    Why      Forward is a third of the model's FLOPs; the head is not recomputed.
    Source   Korthikanti et al. 2022, section 5: a third more under full recomputation.
    """
    work = workload(job)
    model = float(np.max(model_flops_per_token(work)))
    forward = model / 3 - 2.0 * job.model.vocab * job.model.hidden
    repeated = {Recompute.NONE: 0.0, Recompute.SELECTIVE: _one(stack.selective_fraction), Recompute.FULL: 1.0}
    return (model + repeated[Recompute(int(layouts.recompute[0]))] * forward) * job.tokens_per_step


def step_bounds(
    job: TrainingJob, machines: Given, stack: Stack, chosen: Candidate, priced: Priced
) -> tuple[Bound, ...]:
    """What 20 % more of each resource would take off the step; of memory, by the layout it would allow."""
    gains = {}
    for name, scaled_name in RELIEVED.items():
        factors: dict[str, Floats] = {scaled_name: RELIEF}
        relieved = step_time(
            job, chosen.layouts, scale_cluster(machines.cluster, factors), drawn_stack(stack, factors)
        )
        gains[name] = 1 - _one(relieved.total_s) / chosen.step_s
    roomier = priced.high_bytes <= machines.cluster.device.memory_bytes * RELIEF
    gains["memory capacity"] = 1 - float(np.min(priced.step_s[roomier])) / chosen.step_s
    ordered = sorted(gains.items(), key=lambda item: -item[1])
    return tuple(Bound(name, max(gain, 0.0)) for name, gain in ordered)


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
    under_draws = step_time(
        job, taken, drawn_cluster(machines.cluster, draws), drawn_stack(stack, draws)
    ).total_s
    spread = step_spread(constants, job.model, job.framework, job.precision, machines.accelerator.family)
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


def _one(value: Floats) -> float:
    """The number of a single candidate."""
    return float(np.ravel(np.asarray(value, float))[0])
