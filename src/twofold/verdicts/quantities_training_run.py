"""Quantities of what a run must hold and of whole runs: states, where it fits, wall time, failures, cost."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from twofold.answer.stacks import stack_on
from twofold.answer.training_step import TrainingSite, training_site
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.perf.types import one
from twofold.training.job import Workload
from twofold.training.layouts import RECOMPUTE, Layouts, Limits, Recompute, layouts_of
from twofold.training.run import RunPlan, run_plan, run_work
from twofold.training.search import candidate
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.quantities_training import job_of, step_once
from twofold.verdicts.world import CommandOf, World, one_of, options


def gpus_to_train(world: World, model: str, gpu: str) -> int:
    """The fewest accelerators, in nodes of eight beyond one node, whose memory holds a training run."""
    for count in (1, 2, 4, 8, *(8 * n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))):
        on = f"1x{count}x{gpu}" if count <= 8 else f"{count // 8}x8x{gpu}"
        if ask_trains(world, model, on):
            return count
    raise InfeasibleError(f"{model} does not fit 1,024 {gpu}")


def least_training_memory(world: World, model: str, on: str) -> float:
    """Bytes of the fullest accelerator in the layout that takes least, of a small batch."""
    lean = Limits(micro_batch_max=1, vpp_max=1, recompute=(Recompute.FULL,))
    return float(np.min(_small_batch(world, model, on, lean).priced.high_bytes))


def ask_trains(world: World, model: str, on: str) -> bool:
    """`trains` of a small batch that every count divides, computed once."""
    lean = Limits(micro_batch_max=1, vpp_max=1, pp_max=16, recompute=(Recompute.FULL,))
    return world.once(("fits", model, on), lambda: bool(_small_batch(world, model, on, lean).fits.any()))


def _small_batch(world: World, model: str, on: str, limits: Limits) -> TrainingSite:
    """A run whose batch every count of accelerators divides."""
    job = job_of(world, model, batch=1536, sequence=4096)
    return training_site(job, machines(world, on), world.constants, limits)


def checkpoint(world: World, model: str) -> float:
    """Bytes of one checkpoint of mixed-precision training with Adam."""
    return _shape(world, model).checkpoint_bytes


def training_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of weights, gradients and optimiser states, activations not counted."""
    shape = _shape(world, model, optimizer, kind)
    trained = float(np.max(shape.trained_parameters))
    frozen = max(float(np.max(shape.parameters_count)) - trained, 0.0) if kind == "lora" else 0.0
    held = float(np.max(shape.weight_bytes))
    return trained * (held + 4.0 + float(np.max(shape.optimizer_bytes))) + frozen * held


def optimizer_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of master weights and moments."""
    shape = _shape(world, model, optimizer, kind)
    return float(np.max(shape.trained_parameters)) * float(np.max(shape.optimizer_bytes))


def _shape(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> Workload:
    one_of(optimizer, ("adam", "sgd"), "optimiser")
    which: Literal["adam", "sgd"] = "sgd" if optimizer == "sgd" else "adam"
    plain = job_of(world, model, kind=kind)
    return replace(plain, optimizer=which).workload


def activations(world: World, model: str, sequence: int, batch: int = 1, recompute: str = "none") -> float:
    """Bytes of activations of one micro-batch on one accelerator, nothing sharded."""
    job = job_of(world, model, batch, sequence)
    mode = RECOMPUTE[one_of(recompute, RECOMPUTE, "way to recompute")]
    sizes = {f.name: 1 for f in fields(Layouts)} | {
        "zero_stage": 0, "micro_batch": batch, "recompute": mode, "sequence_parallel": 0,
    }  # fmt: skip
    system = stack_on(machines(world, "1xH100-SXM").cluster, job.framework, job.precision, world.constants)
    found = candidate(job.workload, job.precision, layouts_of([list(sizes.values())]), *system)
    return one(found.memory.activations_bytes)


def gpus_in_time(
    world: World, model: str, gpu: str, tokens: float, days: float, mfu: float | None = None
) -> float:
    """Accelerators that train a model on so many tokens in so many days, at the MFU that 64 nodes reach."""
    shape = job_of(world, model).workload
    flops = float(np.max(shape.model_flops_per_token)) * tokens
    reached = mfu or step_once(world, model, f"64x8x{gpu}", 2048).mfu
    return gpus_for_flops(world, flops, gpu, days, reached)


def gpus_for_flops(world: World, flops: float, gpu: str, days: float, mfu: float) -> float:
    """Accelerators that do so many FLOPs in so many days at a share of their 16-bit peak."""
    return flops / (_peak(world, gpu) * mfu * days * DAY_S)


def time_for_flops(world: World, flops: float, gpu: str, count: float, mfu: float) -> float:
    """Seconds that so many accelerators take for so many FLOPs."""
    return flops / (_peak(world, gpu) * mfu * count)


def _peak(world: World, gpu: str) -> float:
    accelerator = world.catalog.accelerator(gpu)
    peak = accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s
    if peak is None:
        raise ValueRefusedError(f"{gpu} has no 16-bit units")
    return peak


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run beyond its step."""

    wall_s: float
    goodput_fraction: float
    failures: float
    lost_work_s: float  # per failure
    checkpoint_interval_s: float
    checkpoint_bytes: float
    checkpoint_write_bytes_per_s: float
    ingest_bytes_per_s: float
    needed_bytes_per_s: float
    headroom_fraction: float  # paid hours beyond those of steps that count
    accelerator_h: float
    cost_usd: float | None
    energy_j: float


def run(world: World, model: str, on: str, tokens: float, batch: int = 512, write_s: float = 60.0) -> Run:
    """A run of so many tokens with its failures and checkpoints, each written in `write_s`."""
    step = step_once(world, model, on, batch)
    found = machines(world, on)
    job = job_of(world, model, batch)
    plan: RunPlan = run_plan(run_work(job, tokens, write_s, write_s), step.step_s, found.cluster)
    price = price_usd_per_h(found)
    return Run(
        plan.wall_s,
        plan.goodput_fraction,
        plan.failures_count,
        plan.lost_work_s,
        plan.checkpoint_interval_s,
        plan.checkpoint_bytes or 0.0,
        plan.storage.checkpoint_write_bytes_per_s or 0.0,
        plan.storage.ingest_bytes_per_s or 0.0,
        plan.storage.needed_bytes_per_s or 0.0,
        plan.wall_s / plan.compute_s - 1.0,
        plan.base_accelerator_h,
        None if price is None else price * plan.base_accelerator_h,
        plan.energy_j,
    )


def _shown_run(arguments: Mapping[str, Any], asked: str) -> str:
    told = {
        "on": arguments["on"], "batch": f"{arguments['batch']} seq",
        "tokens": f"{arguments['tokens']:.12g} tok",
        "write-within": f"{arguments['write_s']:g} s",
    }  # fmt: skip
    return f"twofold estimate train {arguments['model']}{options(told, told)}"


COMMANDS: Mapping[str, CommandOf] = {"run": _shown_run}
