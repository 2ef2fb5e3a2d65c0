"""A derivation cites the constants that its number is computed with, and no other."""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest

from twofold.answer.training_step import MEMORY_PARTS, STEP_PARTS
from twofold.catalog import load_catalog
from twofold.perf import Cluster, device, load_constants, network
from twofold.training import Layouts, Stack, TrainingJob, layouts_of, load_stack, step_time
from twofold.training.memory import memory

LAYOUTS = ((2, 1, 1, 2, 1, 16, 1, 1, 1, 1), (4, 2, 1, 4, 2, 2, 1, 1, 2, 1), (1, 1, 8, 1, 1, 64, 1, 1, 0, 0))
SOFTWARE = (("megatron-core", "bf16"), ("nanotron", "bf16"), ("torchtitan", "fp8"), ("megatron", "fp16"))
SWITCHES = {"stage_cost_factor", "softmax_passes_factor"}  # which formula holds, not a number in it
PARTS = MappingProxyType(
    {
        **{f"memory {name}": part.constants.split() for name, part in MEMORY_PARTS.items()},
        **{f"step {name}": part.constants.split() for name, part in STEP_PARTS.items()},
    }
)


def figures(job: TrainingJob, layouts: Layouts, cluster: Cluster, stack: Stack) -> dict[str, float]:
    """Every part of memory and step, by its place in `PARTS`."""
    held = memory(job.workload, layouts, stack)
    step = step_time(job.workload, job.precision, layouts, cluster, stack)
    found = {f"memory {name}": getattr(held, f"{part.field}_bytes") for name, part in MEMORY_PARTS.items()}
    for name, part in STEP_PARTS.items():
        found[f"step {name}"] = sum(getattr(step, f"{each}_s") for each in part.fields.split())
    return {name: float(np.ravel(value)[0]) for name, value in found.items()}


def worlds() -> Iterator[tuple[TrainingJob, Layouts, Cluster, Stack]]:
    """Dense and expert models under four kinds of software, in layouts that use every exchange."""
    catalog, constants = load_catalog(), load_constants()
    part = catalog.accelerator("H100-SXM5-80GB")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 64)
    for model in ("llama-3.1-8b", "mixtral-8x7b"):
        for framework, precision in SOFTWARE:
            job = TrainingJob(
                catalog.model(model), "pretrain", 8192, 256, precision=precision, framework=framework
            )
            stack = load_stack(constants, framework, precision, "hopper")
            for row in LAYOUTS:
                yield job, layouts_of([row]), cluster, stack


@cache
def moved_by() -> dict[str, set[str]]:
    """By part, the constants of the software that move it somewhere."""
    found: dict[str, set[str]] = {name: set() for name in PARTS}
    for job, layouts, cluster, stack in worlds():
        before = figures(job, layouts, cluster, stack)
        for field in fields(Stack):
            value = getattr(stack, field.name)
            changed = replace(stack, **{field.name: 1.2 * value if value else 0.3})
            after = figures(job, layouts, cluster, changed)
            for name in PARTS:
                if after[name] != pytest.approx(before[name], rel=1e-9, abs=1e-15):
                    found[name].add(field.name)
    return found


@pytest.mark.parametrize("name", [name for name, cited in PARTS.items() if cited])
def test_every_constant_that_a_part_cites_moves_it(name: str) -> None:
    assert set(PARTS[name]) <= moved_by()[name]


@pytest.mark.parametrize("name", ["weights", "gradients", "optimiser", "activations", "logits"])
def test_every_constant_that_moves_a_part_of_memory_is_cited(name: str) -> None:
    """But for buffers, the larger of which may pass while others are held."""
    assert moved_by()[f"memory {name}"] - SWITCHES <= set(PARTS[f"memory {name}"])
