"""One training question without a spec: the layouts it allows, and the figures of the chosen one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from twofold.answer.question import Given
from twofold.answer.quick_refusal import nothing_divides
from twofold.answer.ranges import Drawn, drawn, drawn_run, drawn_stack, step_spread
from twofold.answer.uncertainty import Draws
from twofold.contracts.results import Bound, Layout, Part
from twofold.core import Estimate, Source, ValueRefusedError
from twofold.perf import Constants, Floats, one, scale_cluster
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
    model_flops_per_token,
    price_layouts,
    step_time,
    workload,
)

CHOICES = ("zero_stage", "recompute", "sequence_parallel")  # of a layout, where 0 means none
RELIEF = 1.2  # how much more of a resource `bounds` tries
RELIEVED = {  # as a plan names it -> as `scale_cluster` and `drawn_stack` do
    "compute": "compute",
    "memory bandwidth": "memory_bandwidth",
    "link": "link",
    "fabric": "fabric",
    "host": "host",
}
STATES = ("weights", "gradients", "optimizer")
MEMORY_PARTS = {  # of `Memory`, and what they are called
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimiser",
    "activations": "activations",
    "logits": "logits",
    "buffers": "buffers",
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
class Answered:
    """A chosen layout with its step under every draw: what other questions build on."""

    chosen: Candidate
    step: Drawn
    draws: Draws


def answer(
    job: TrainingJob, machines: Given, stack: Stack, chosen: Candidate, draws: Draws, constants: Constants
) -> Answered:
    """The chosen layout's step under every draw, stretched to what left-out runs showed."""
    under_draws = step_time(job, chosen.layouts, *drawn_run(machines.cluster, stack, job, draws))
    spread = step_spread(constants, job, machines.accelerator)
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
        zero_stages=(stated["zero_stage"],) if "zero_stage" in stated else None,
        recompute=recompute,
    )
    priced = price_layouts(job, cluster, stack, limits)
    if not len(priced.layouts):
        raise nothing_divides(job, question.machines, priced.refused)
    agrees = np.ones(len(priced.layouts), bool)
    for name, value in stated.items():
        agrees &= getattr(priced.layouts, name) == value
    if not agrees.any():
        raise ValueRefusedError(
            f"none of {len(priced.layouts):,} valid layouts agrees with what is stated",
            hint="state less, and the rest is searched; `--layouts 20` lists what is valid",
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
    middle = {name: sum(one(getattr(step, each)) for each in held) for name, held in STEP_PARTS.items()}
    return tuple(
        Part(name, total.times(value / total.middle).estimate("s"), value / total.middle)
        for name, value in middle.items()
        if value > 0
    )


def memory_estimate(held: Memory) -> Estimate:
    """The whole of it, with the range that decides whether it fits."""
    return Estimate(one(held.total_bytes), one(held.low_bytes), one(held.high_bytes), "B", Source.FITTED)


def memory_parts(held: Memory) -> tuple[Part, ...]:
    """Weights, gradients, optimiser, activations, logits and buffers of the fullest accelerator."""
    return _memory_shares(held, MEMORY_PARTS)


def memory_by_format(job: TrainingJob, held: Memory, stack: Stack) -> tuple[Part, ...]:
    """The same bytes by number format: what is computed in, what sums and states are kept in, scratch."""
    half = "fp32" if job.precision == "fp32" else "fp16" if job.precision == "fp16" else "bf16"
    gradient = "fp32" if one(stack.gradient_bytes) >= 4 else half
    # 16-bit logits are copied to fp32 for the loss, and its gradient kept
    formats = (half, gradient, "fp32", half, "fp32", "any")
    return _memory_shares(held, dict(zip(MEMORY_PARTS, formats, strict=True)))


def _memory_shares(held: Memory, names: Mapping[str, str]) -> tuple[Part, ...]:
    """The parts by the names that each goes under. States are counted, the rest carries the doubt."""
    spread, total = one(held.spread_factor), one(held.total_bytes)
    kept: dict[str, tuple[float, float]] = {}
    for part, name in names.items():
        value = one(getattr(held, f"{part}_bytes"))
        counted, rest = kept.get(name, (0.0, 0.0))
        kept[name] = (counted + value, rest) if part in STATES else (counted, rest + value)
    return tuple(
        Part(
            name,
            Estimate(counted + rest, counted + rest / spread, counted + rest * spread, "B"),
            (counted + rest) / total,
        )
        for name, (counted, rest) in kept.items()
        if counted + rest > 0
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
    repeated = {Recompute.NONE: 0.0, Recompute.SELECTIVE: one(stack.selective_fraction), Recompute.FULL: 1.0}
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
        gains[name] = 1 - one(relieved.total_s) / chosen.step_s
    roomier = priced.high_bytes <= machines.cluster.device.memory_bytes * RELIEF
    gains["memory capacity"] = 1 - float(np.min(priced.step_s[roomier])) / chosen.step_s
    ordered = sorted(gains.items(), key=lambda item: -item[1])
    return tuple(Bound(name, max(gain, 0.0)) for name, gain in ordered)
