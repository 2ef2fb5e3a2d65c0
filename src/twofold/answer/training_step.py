"""A training step on given machines: the layouts that it may take, and every figure of the chosen one."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import run_scope
from twofold.answer.question import Given
from twofold.answer.ranges import Drawn, drawn, step_spread, under_draws
from twofold.answer.stacks import stack_on
from twofold.answer.uncertainty import Draws
from twofold.contracts.results import training
from twofold.contracts.results.parts import Bound, Part
from twofold.core import record
from twofold.core.estimate import Estimate, Source
from twofold.perf.constants import Constants
from twofold.perf.types import Cluster, Floats, one
from twofold.training.job import TrainingJob
from twofold.training.layouts import Layouts, Limits, Recompute
from twofold.training.memory import Memory
from twofold.training.recompute import repeated_flops_per_token
from twofold.training.search import Candidate, Priced, candidate, price_layouts
from twofold.training.stack import Stack
from twofold.training.step import model_flops_utilisation, step_time

RELIEF = 1.2  # how much more of a resource `bounds` tries
RELIEVED = (
    "compute",
    "memory_bandwidth",
    "link",
    "fabric",
    "host",
)  # as `Cluster.scaled` and `scale_stack` do


STEP_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(  # by name on screens: fields of `StepTime`
    {
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
)
MEMORY_PARTS: Mapping[str, str] = MappingProxyType(  # by name on screens: fields of `Memory`
    {
        "weights": "weights_bytes",
        "gradients": "gradients_bytes",
        "optimiser": "optimizer_bytes",
        "activations": "activations_bytes",
        "logits": "logits_bytes",
        "buffers": "buffers_bytes",
    }
)
OF_PEAK = (
    "model FLOPs / (step × accelerators × peak)",
    *("model_flops", "batch", "step_s", "accelerators"),
)
STATES = ("weights", "gradients", "optimiser")  # counted exactly; the rest carries the doubt


@dataclass(frozen=True, slots=True)
class TrainingSite:
    """A job on machines under its software, and every layout that it may take there."""

    job: TrainingJob
    machines: Given
    stack: Stack
    priced: Priced

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which layouts fit at the upper end of their memory."""
        return self.priced.high_bytes <= self.machines.cluster.device.memory_bytes

    def agreeing(self, stated: Mapping[str, int]) -> "TrainingSite":
        """The same site with the layouts that have the stated sizes, by field of `Layouts`."""
        priced = self.priced
        agrees = np.ones(len(priced.layouts), bool)
        for name, value in stated.items():
            agrees &= getattr(priced.layouts, name) == value
        kept = Priced(
            priced.layouts.take(agrees), priced.step_s[agrees], priced.high_bytes[agrees], priced.refused
        )
        return replace(self, priced=kept)

    def fastest(self) -> Candidate | None:
        """The fastest layout that fits, in full."""
        if not self.fits.any():
            return None
        return self.candidates(np.argmin(np.where(self.fits, self.priced.step_s, np.inf)))

    def candidates(self, places: NDArray[np.intp] | np.intp) -> Candidate:
        """One of the layouts, or several in that order, with everything that is known of them."""
        job, layouts = self.job, self.priced.layouts.take(np.atleast_1d(places))
        return candidate(job.workload, job.precision, layouts, self.machines.cluster, self.stack)


def training_site(
    job: TrainingJob, machines: Given, constants: Constants, limits: Limits | None = None
) -> TrainingSite:
    """Every layout of a job on machines, hardware and software as calibrated."""
    cluster, stack = stack_on(machines.cluster, job.framework, job.precision, constants)
    priced = price_layouts(job, cluster, stack, limits or Limits())
    return TrainingSite(job, replace(machines, cluster=cluster), stack, priced)


def limits_of(stated: Mapping[str, int]) -> Limits:
    """What a search has to try so that it finds the stated sizes."""
    usual = Limits()
    return Limits(
        tp_max=stated.get("tp"),
        cp_max=stated.get("cp"),
        pp_max=stated.get("pp", usual.pp_max),
        vpp_max=stated.get("vpp", usual.vpp_max),
        micro_batch_max=stated.get("micro_batch", usual.micro_batch_max),
        zero_stages=(stated["zero_stage"],) if "zero_stage" in stated else None,
        recompute=(Recompute(stated["recompute"]),) if "recompute" in stated else usual.recompute,
    )


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """A chosen layout with its step under every draw: what plans, estimates and ladders build on."""

    job: TrainingJob
    machines: Given
    stack: Stack
    chosen: Candidate
    step: Drawn
    draws: Draws

    @property
    def communication_exposed_fraction(self) -> float:
        """Share of the step that exposed communication takes."""
        return float(np.max(self.chosen.step.communication_s)) / self.chosen.step_s

    def figures(self) -> dict[str, Any]:
        """What plans and estimates say of a step and its memory, under the names that they give it."""
        job, best, cluster = self.job, self.chosen, self.machines.cluster
        utilisation = one(model_flops_utilisation(job.workload, best.layouts, cluster, best.step_s))
        middle = self.step.middle
        layout: dict[str, Any] = {f.name: int(getattr(best.layouts, f.name)[0]) for f in fields(Layouts)}
        layout["recompute"] = Recompute(layout["recompute"]).name.lower()
        layout["sequence_parallel"] = bool(layout["sequence_parallel"])
        seconds = {
            name: sum(one(getattr(best.step, field)) for field in held) for name, held in STEP_PARTS.items()
        }
        # What is computed in, what sums and states are kept in.
        half = job.precision if job.precision in ("fp32", "fp16") else "bf16"
        # 16-bit logits are copied to fp32 for the loss, and its gradient kept
        formats = dict(zip(MEMORY_PARTS, (half, half, "fp32", half, "fp32", "any"), strict=True))
        by_format = _memory_shares(best.memory, formats)
        for part in by_format:
            held = [MEMORY_PARTS[name] for name, kept_in in formats.items() if kept_in == part.name]
            record.note(f"memory_by_format.{part.name}.value", part.value, "", *held)
        mfu = self.step.inverse(utilisation * best.step_s).estimate("fraction")
        record.note("mfu_fraction", mfu, *OF_PEAK, "half_peak")
        return {
            "model": job.model.name,
            "parameters": job.model.parameters,
            "kind": job.kind,
            "precision": job.precision,
            "framework": job.framework,
            "machine": self.machines.machine,
            "layout": training.Layout(**layout, text=best.describe()),
            "step_s": self.step.estimate("s"),
            "step_parts": tuple(
                Part(name, self.step.times(value / middle).estimate("s"), value / middle)
                for name, value in seconds.items()
                if value > 0
            ),
            "communication_exposed_fraction": self.communication_exposed_fraction,
            "mfu_fraction": mfu,
            "memory_bytes": memory_estimate(best.memory),
            "memory_parts": _memory_shares(best.memory, {name: name for name in MEMORY_PARTS}),
            "memory_by_format": by_format,
            "memory_capacity_bytes": cluster.device.memory_bytes,
        }

    def model_flops(self) -> float:
        """FLOPs of one step that the model needs."""
        return float(np.max(self.job.workload.model_flops_per_token)) * self.job.tokens_per_step

    def hardware_flops(self) -> float:
        """FLOPs of one step that the hardware does: the model's, and the layers' forward pass again.

        Formula  model + what the backward pass repeats; the head is not recomputed
        """
        work = self.job.workload
        repeated = one(repeated_flops_per_token(work, self.chosen.layouts, self.stack))
        return (float(np.max(work.model_flops_per_token)) + repeated) * self.job.tokens_per_step

    def bounds(self, priced: Priced) -> tuple[Bound, ...]:
        """What 20 % more of each resource would take off the step; of memory, by the layout it allows."""
        by_resource = resource_gains(self.job, self.machines, self.stack, self.chosen)
        gains = {name.replace("_", " "): gain for name, gain in by_resource.items()}
        roomier = priced.high_bytes <= self.machines.cluster.device.memory_bytes * RELIEF
        gains["memory capacity"] = 1 - float(np.min(priced.step_s[roomier])) / self.chosen.step_s
        ordered = sorted(gains.items(), key=lambda item: -item[1])
        return tuple(Bound(name, max(gain, 0.0)) for name, gain in ordered)


def trained_step(
    job: TrainingJob, machines: Given, stack: Stack, chosen: Candidate, draws: Draws, constants: Constants
) -> TrainedStep:
    """The chosen layout's step under every draw, stretched to what left-out runs showed."""
    samples = step_samples(job, chosen.layouts, machines.cluster, stack, draws)
    spread = step_spread(constants, job, machines.accelerator)
    step = drawn(chosen.step_s, samples, spread).within(least_step_s(job, machines.cluster))
    return TrainedStep(job, machines, stack, chosen, step, draws)


def least_step_s(job: TrainingJob, cluster: Cluster) -> Floats:
    """Seconds that no step of a job stays below on a cluster: its FLOPs over the whole peak."""
    return job.workload.least_step_s(cluster.device, job.precision, cluster.accelerator_count)


def step_samples(
    job: TrainingJob, layouts: Layouts, cluster: Cluster, stack: Stack, draws: Draws
) -> NDArray[np.float64]:
    """Step seconds of layouts under every draw, (draws, layouts)."""
    machine = under_draws(cluster, stack, run_scope(cluster.device.name, job), draws)
    return np.asarray(step_time(job.workload, job.precision, layouts, *machine).total_s, float)


def resource_gains(job: TrainingJob, machines: Given, stack: Stack, chosen: Candidate) -> dict[str, float]:
    """Share of a step that 20 % more of each resource saves, by its name in `RELIEVED`."""
    gains = {}
    for resource in RELIEVED:
        factors: dict[str, Floats] = {resource: RELIEF}
        relieved = machines.cluster.scaled(factors), stack.scaled(factors)
        step_s = one(step_time(job.workload, job.precision, chosen.layouts, *relieved).total_s)
        gains[resource] = 1 - step_s / chosen.step_s
    return gains


def memory_estimate(held: Memory, unit: str = "B") -> Estimate:
    """The whole of it, with the range that decides whether it fits."""
    return Estimate(one(held.total_bytes), one(held.low_bytes), one(held.high_bytes), unit, Source.FITTED)


def _memory_shares(held: Memory, names: Mapping[str, str]) -> tuple[Part, ...]:
    """The parts by the names that each goes under."""
    spread, total = one(held.spread_factor), one(held.total_bytes)
    kept: dict[str, tuple[float, float]] = {}
    for part, name in names.items():
        value = one(getattr(held, MEMORY_PARTS[part]))
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
