"""A framework's name tells its family; a named factor scales what it names of it, and nothing else."""

from dataclasses import fields

import pytest

from twofold.perf.constants import load_constants
from twofold.training.stack import Stack, load_stack, software_family


@pytest.mark.parametrize(
    ("framework", "precision", "family"),
    [
        ("Megatron-Core 0.13+", "bf16", "megatron"),
        ("NeMo 25", "fp8", "megatron"),
        ("NeMo (recipe v25.02.02)", "fp8", "megatron"),
        ("Megatron-Bridge 26", "fp4", "megatron"),
        ("Megatron-LM", "fp16", "megatron-legacy"),
        ("Megatron-LM", "bf16", "megatron"),
        ("Megatron-LM 0.14", "bf16", "megatron"),
        ("megatron-lm-2022", "bf16", "megatron-legacy"),
        ("Megatron-LM 2025", "bf16", "megatron"),
        ("Megatron-DeepSpeed", "bf16", "megatron-legacy"),
        ("DeepSpeed ZeRO-3", "fp16", "deepspeed"),
        ("llm-foundry/Composer FSDP", "bf16", "fsdp"),
        ("fms-fsdp", "bf16", "fsdp"),
        ("torchtitan", "fp8", "fsdp"),
        ("nanotron", "bf16", "nanotron"),
        ("MaxText", "bf16", "jax"),
        ("InternEvo 0", "bf16", "internevo"),
        ("something else", "bf16", "other"),
        ("", "bf16", "other"),
    ],
)
def test_a_name_tells_the_family(framework: str, precision: str, family: str) -> None:
    assert software_family(framework, precision) == family


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load_stack(load_constants(), "megatron-core", "bf16", "hopper")


def changed(old: Stack, new: Stack) -> set[str]:
    return {f.name for f in fields(Stack) if getattr(old, f.name) != getattr(new, f.name)}


def test_no_factor_changes_nothing(stack: Stack) -> None:
    assert stack.scaled({"compute": 2.0}) == stack


def test_a_faster_host_shortens_launches_alone(stack: Stack) -> None:
    faster = stack.scaled({"host": 2.0})
    assert faster.host_layer_s == stack.host_layer_s / 2
    assert all("host" in name and name.endswith("_s") for name in changed(stack, faster))


def test_no_share_of_exposed_traffic_is_more_than_all_of_it(stack: Stack) -> None:
    assert stack.scaled({"overlap": 1e6}).tp_exposed_fraction == 1.0


def test_use_of_memory_scales_what_is_held_beside_the_states(stack: Stack) -> None:
    more = stack.scaled({"memory_use": 1.1})
    assert more.activation_factor == pytest.approx(1.1 * stack.activation_factor)
    assert "gradient_memory_bytes" not in changed(stack, more)
