"""Ridges of known parts, and which side of them the operators of a model lie on."""

from collections.abc import Callable

import pytest

from twofold.perf import Device, gemm_flops_per_byte, ridge_flops_per_byte
from twofold.perf.roofline import decode_attention_flops_per_byte, prefill_attention_flops_per_byte


@pytest.mark.parametrize(("part", "ridge"), [("H100-SXM5-80GB", 295), ("H200-SXM5-141GB", 206)])
def test_ridges_are_the_published_ones(make_device: Callable[[str], Device], part: str, ridge: int) -> None:
    assert round(float(ridge_flops_per_byte(make_device(part)))) == ridge


def test_decode_lies_below_the_ridge_and_prefill_and_training_above(h100: Device) -> None:
    ridge = ridge_flops_per_byte(h100)
    assert decode_attention_flops_per_byte(64, 8) < ridge
    assert gemm_flops_per_byte(32, 8192, 8192) < ridge
    assert gemm_flops_per_byte(8192, 8192, 8192) > ridge
    assert prefill_attention_flops_per_byte(8192, 64, 8) > ridge


def test_one_row_does_one_flop_per_byte_of_its_weights() -> None:
    assert gemm_flops_per_byte(1, 8192, 8192) == pytest.approx(1.0, rel=0.001)
    assert decode_attention_flops_per_byte(8, 8) == 1.0
