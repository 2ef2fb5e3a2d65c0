"""A named factor scales what it names of a serving engine, and nothing else."""

from dataclasses import fields

import pytest

from twofold.inference import Engine, engine, scale_engine
from twofold.perf import load_constants


@pytest.fixture(scope="module")
def vllm() -> Engine:
    return engine(load_constants(), "vllm", "0.15.0", family="hopper")


def changed(old: Engine, new: Engine) -> set[str]:
    return {f.name for f in fields(Engine) if getattr(old, f.name) != getattr(new, f.name)}


def test_no_factor_changes_nothing(vllm: Engine) -> None:
    assert scale_engine(vllm, {"compute": 2.0}) == vllm


def test_a_faster_host_shortens_the_engines_own_times_alone(vllm: Engine) -> None:
    faster = scale_engine(vllm, {"host": 2.0})
    assert faster.host_step_s == vllm.host_step_s / 2
    assert all(name.endswith("_s") for name in changed(vllm, faster))


def test_a_faster_prefill_leaves_decoding_alone(vllm: Engine) -> None:
    faster = scale_engine(vllm, {"prefill": 1.1})
    assert faster.prefill_factor == pytest.approx(vllm.prefill_factor / 1.1)
    assert changed(vllm, faster) == {"prefill_factor", "prefill_layer_s"}


def test_faster_communication_is_that_alone(vllm: Engine) -> None:
    assert changed(vllm, scale_engine(vllm, {"communication": 2.0})) == {"communication_factor"}
