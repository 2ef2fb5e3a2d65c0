"""Quantities of what training must hold: states, activations, checkpoints, and where a run fits."""

from dataclasses import fields, replace
from typing import Literal

import numpy as np

from twofold.answer import TrainingSite, training_site
from twofold.core import InfeasibleError
from twofold.perf import one
from twofold.training import (
    RECOMPUTE,
    Layouts,
    Limits,
    Recompute,
    Workload,
    checkpoint_bytes,
    layouts_of,
    load_stack,
    memory,
    trained_parameters,
    workload,
)
from twofold.verdicts.machines import machines
from twofold.verdicts.quantities_training import job_of
from twofold.verdicts.quantity import one_of
from twofold.verdicts.world import World


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
    return checkpoint_bytes(_shape(world, model))


def training_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of weights, gradients and optimiser states, activations not counted."""
    shape = _shape(world, model, optimizer, kind)
    trained = float(np.max(trained_parameters(shape)))
    frozen = max(float(np.max(shape.parameters)) - trained, 0.0) if kind == "lora" else 0.0
    held = float(np.max(shape.weight_bytes))
    return trained * (held + 4.0 + float(np.max(shape.optimizer_bytes))) + frozen * held


def optimizer_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of master weights and moments."""
    shape = _shape(world, model, optimizer, kind)
    return float(np.max(trained_parameters(shape))) * float(np.max(shape.optimizer_bytes))


def _shape(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> Workload:
    one_of(optimizer, ("adam", "sgd"), "optimiser")
    which: Literal["adam", "sgd"] = "sgd" if optimizer == "sgd" else "adam"
    plain = job_of(world, model, kind=kind)
    return workload(replace(plain, optimizer=which))


def activations(world: World, model: str, sequence: int, batch: int = 1, recompute: str = "none") -> float:
    """Bytes of activations of one micro-batch on one accelerator, nothing sharded."""
    job = job_of(world, model, batch, sequence)
    mode = RECOMPUTE[one_of(recompute, RECOMPUTE, "way to recompute")]
    sizes = {f.name: 1 for f in fields(Layouts)} | {
        "zero_stage": 0, "micro_batch": batch, "recompute": mode, "sequence_parallel": 0,
    }  # fmt: skip
    stack = load_stack(world.constants, job.framework, job.precision, "hopper")
    return one(memory(job, layouts_of([list(sizes.values())]), stack).activations_bytes)
