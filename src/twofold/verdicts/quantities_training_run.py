"""Quantities of whole runs: accelerators for a time, wall time, failures, checkpoints and cost."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold.core import DAY_S, ValueRefusedError
from twofold.training import RunPlan, model_flops_per_token, run_plan, workload
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.quantities_training import job_of, step_once
from twofold.verdicts.quantity import CommandOf, options
from twofold.verdicts.world import World


def gpus_in_time(
    world: World, model: str, gpu: str, tokens: float, days: float, mfu: float | None = None
) -> float:
    """Accelerators that train a model on so many tokens in so many days, at the MFU that 64 nodes reach."""
    shape = workload(job_of(world, model))
    flops = float(np.max(model_flops_per_token(shape))) * tokens
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
    plan: RunPlan = run_plan(job, step.step_s, found.cluster, tokens, checkpoint_write_s=write_s)
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
    return f"twofold estimate train {arguments['model']}" + options(told, {n: f"--{n}" for n in told})


COMMANDS: Mapping[str, CommandOf] = {
    "run": _shown_run,
}
