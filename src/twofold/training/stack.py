"""The software that drives a training step, as a dozen fitted constants per family of frameworks.

Overlap, fusion and host time belong to the software, not to the device; a framework without measurements
takes the constants of all.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from twofold.perf.constants import Constants
from twofold.perf.types import Floats

HELD_BESIDE_STATES = ("activation_factor", "fragmentation_fraction", "logits_bytes", "workspace_bytes")
SOFTWARE = {
    "megatron": "megatron nemo primus megascale bridge meta te transformer-engine dualpipe",
    "fsdp": "fsdp torchtitan composer foundry accelerate huggingface torchtune axolotl pytorch",
    "deepspeed": "deepspeed zero colossalai colossal",
    "nanotron": "nanotron",
    "internevo": "internevo internlm",
    "jax": "maxtext paxml pax jax t5x levanter axlearn",
}
"""Families of training software and the words in a framework's name that tell them."""
WRITES_BEHIND = ("megatron", "fsdp", "jax")
"""Families whose recipes write checkpoints while training goes on: Megatron-Core's asynchronous save, Orbax,
PyTorch's distributed checkpoint. Others stop for the whole write, as do those never heard of."""
# Fused attention came by default with Megatron-Core 0.5, in 2024.
UNFUSED_YEARS = re.compile(r"\b(20[01]\d|202[0-3])\b")
RECIPES = {"nemo": "nemo", "bridge": "bridge", "dualpipe": "dualpipe", "overlap": "overlap", "lm": "lm"}
"""Within a family, software whose recipes set what others leave as it is, and the words that tell it."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One family's constants. Every field may carry a leading draw axis, or one entry per candidate."""

    host_layer_s: Floats  # host time to launch one layer forward and backward
    host_moe_layer_s: Floats  # what routing adds to it
    host_step_s: Floats  # once per optimiser step
    pipeline_tensor_host_s: Floats  # per tensor rank and layer when a pipeline crosses nodes
    spread_tensor_host_s: Floats  # per tensor rank and layer when a tensor group leaves its domain
    kernel_factor: Floats  # of every kernel: what a step loses against a kernel alone
    wide_factor: Floats  # of products in 16 bits or more: what the power limit costs them beyond that
    quantise_factor: Floats  # of the passes to narrow formats that other kernels do not absorb
    elementwise_factor: Floats  # of the unfused passes counted
    scan_passes_factor: Floats  # passes over a linear mixer's channels: convolution, scan, gate
    softmax_passes_factor: Floats  # passes over the score matrix; 0 with flash attention
    attention_factor: Floats  # score pairs computed over those that causality needs
    misaligned_factor: Floats  # of attention whose head size is no multiple of 8
    tp_exposed_fraction: Floats
    cp_exposed_fraction: Floats
    ep_exposed_fraction: Floats
    bubble_fraction: Floats  # of the bubble that one forward and one backward at a time leaves
    dp_overlap_fraction: Floats  # of gradient and weight traffic that may hide behind compute
    sharded_dp_factor: Floats  # of ZeRO-3 traffic time
    handoff_s: Floats  # per pipeline hand-off, beside the wire
    head_exposed_fraction: Floats  # of the head's time beyond an equal share of the stages
    expert_factor: Floats  # of the experts' products: grouping, padding, permutation
    routing_imbalance_ratio: Floats  # busiest expert rank over the mean
    optimizer_bytes_factor: Floats  # bytes moved per updated parameter
    host_optimizer_bytes_per_s: Floats  # per accelerator, where states live in host memory
    straggler_sigma: Floats  # spread of one rank's step over its mean
    data_stall_fraction: Floats
    gradient_bytes: Floats  # sent per parameter
    dispatch_bytes: Floats  # of a value sent to its expert where training is in 8 bits
    bucket_bytes: Floats  # of gradients or weights that travel in one collective
    stage_cost_factor: Floats  # 1: pipeline stages are filled by cost, the head too; 0: by count of layers
    stage_copies_count: Floats  # of weights and gradients in a pipeline: one, or a second stage's beside it
    optimizer_fraction: Floats  # held of its 32-bit states: two thirds with both moments in 16 bits
    gradient_memory_bytes: Floats  # held per parameter, with whatever copies the optimiser keeps
    activation_factor: Floats  # held over counted
    selective_products_fraction: Floats  # selective recomputation: 1 every second product, 0 attention alone
    logits_bytes: Floats  # held per token and vocabulary entry
    workspace_bytes: Floats  # context, communication buffers, kernels' scratch
    fragmentation_fraction: Floats  # of everything held
    memory_spread_factor: Floats  # of what is no state: upper end of the 80 % range over the middle

    def scaled(self, factors: Mapping[str, Floats]) -> Self:
        """Software with launch times divided by `host`, exposed shares multiplied by `overlap`, and what
        memory holds beside the states, whose bytes are known, multiplied by `memory_use`; the rest stays.
        """
        host, overlap = factors.get("host", 1.0), factors.get("overlap", 1.0)
        timed = [f.name for f in fields(self) if "host" in f.name and f.name.endswith("_s")]
        shares = [f.name for f in fields(self) if f.name.endswith("_exposed_fraction")]
        changed = {name: getattr(self, name) / host for name in timed}
        changed |= {name: np.minimum(getattr(self, name) * overlap, 1.0) for name in shares}
        if "memory_use" in factors:
            changed |= {name: getattr(self, name) * factors["memory_use"] for name in HELD_BESIDE_STATES}
        return replace(self, **changed)


def software_family(framework: str, precision: str = "bf16") -> str:
    """The family whose constants fit a framework's name; `other` for one never heard of.

    Megatron-DeepSpeed and Megatron until 2023, told by a year in its name or by fp16, did not fuse attention
    by default, nor overlap what it sends: their own family.

    >>> software_family("Megatron-LM 2022"), software_family("Megatron-LM 0.14")
    ('megatron-legacy', 'megatron')
    """
    words = set(re.split(r"[^a-z]+", framework.lower())) | {framework.lower()}
    old = precision == "fp16" and "core" not in words
    if "megatron" in words and ("deepspeed" in words or old or UNFUSED_YEARS.search(framework)):
        return "megatron-legacy"
    return next((family for family, known in SOFTWARE.items() if words & set(known.split())), "other")


def stack_scope(framework: str, precision: str, accelerator_family: str) -> dict[str, str]:
    """What the constants of a stack depend on."""
    words = set(re.split(r"[^a-z]+", framework.lower()))
    recipe = next((recipe for recipe, known in RECIPES.items() if words & set(known.split())), "")
    software = software_family(framework, precision)
    return {"software": software, "family": accelerator_family, "recipe": recipe}


def load_stack(
    constants: Constants,
    framework: str,
    precision: str = "bf16",
    accelerator_family: str = "",
    accelerator: str = "",
) -> Stack:
    """The constants of a framework, from the narrowest rows that fit it on a device and its family."""
    scope = stack_scope(framework, precision, accelerator_family) | {"accelerator": accelerator}
    return Stack(**{f.name: constants.get(f"training_{f.name}", **scope) for f in fields(Stack)})
