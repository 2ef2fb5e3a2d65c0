"""A named factor scales what it names of training software, and nothing else."""

from dataclasses import fields

import pytest

from twofold.perf import load_constants
from twofold.training import Stack, load_stack, scale_stack


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load_stack(load_constants(), "megatron-core", "bf16", "hopper")


def changed(old: Stack, new: Stack) -> set[str]:
    return {f.name for f in fields(Stack) if getattr(old, f.name) != getattr(new, f.name)}


def test_no_factor_changes_nothing(stack: Stack) -> None:
    assert scale_stack(stack, {"compute": 2.0}) == stack


def test_a_faster_host_shortens_launches_alone(stack: Stack) -> None:
    faster = scale_stack(stack, {"host": 2.0})
    assert faster.host_layer_s == stack.host_layer_s / 2
    assert all("host" in name and name.endswith("_s") for name in changed(stack, faster))


def test_no_share_of_exposed_traffic_is_more_than_all_of_it(stack: Stack) -> None:
    assert scale_stack(stack, {"overlap": 1e6}).tp_exposed_fraction == 1.0


def test_use_of_memory_scales_what_is_held_beside_the_states(stack: Stack) -> None:
    more = scale_stack(stack, {"memory_use": 1.1})
    assert more.activation_factor == pytest.approx(1.1 * stack.activation_factor)
    assert "gradient_memory_bytes" not in changed(stack, more)
