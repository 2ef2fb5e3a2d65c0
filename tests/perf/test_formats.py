"""Bytes with their scales, and what runs when the matrix units do not know a format."""

from collections.abc import Callable

import pytest

from twofold.core import UnknownNameError
from twofold.perf import FORMAT_BYTES, Device, bytes_per_weight, compute_format


@pytest.mark.parametrize(
    ("name", "bits"), [("nvfp4", 4.5), ("mxfp4", 4.25), ("int4", 4.25), ("mxfp8", 8.25), ("bf16", 16)]
)
def test_scales_are_counted(name: str, bits: float) -> None:
    assert bytes_per_weight(name) * 8 == bits


def test_a_block_of_fp8_carries_one_scale() -> None:
    assert bytes_per_weight("fp8_block") * 128 * 128 == 128 * 128 + 4


def test_an_unknown_format_is_a_users_mistake_with_a_hint() -> None:
    with pytest.raises(UnknownNameError, match="formats: "):
        bytes_per_weight("fp7")


@pytest.mark.parametrize(
    ("part", "weights", "activations", "runs", "fallback"),
    [
        ("H100-SXM5-80GB", "fp8", "fp8", "fp8", False),
        ("H100-SXM5-80GB", "int4", "bf16", "bf16", False),
        ("H100-SXM5-80GB", "mxfp4", "bf16", "bf16", False),
        ("H100-SXM5-80GB", "nvfp4", "nvfp4", "bf16", True),
        ("A100-SXM4-80GB", "fp8", "fp8", "bf16", True),
        ("A100-SXM4-80GB", "int8", "int8", "int8", False),
        ("B200-SXM-180GB", "nvfp4", "nvfp4", "nvfp4", False),
        ("B200-SXM-180GB", "mxfp4", "mxfp8", "mxfp8", False),
        ("V100-SXM2-32GB", "bf16", "bf16", "fp16", True),
    ],
)
def test_the_format_that_runs(
    make_device: Callable[[str], Device], part: str, weights: str, activations: str, runs: str, fallback: bool
) -> None:
    found = compute_format(make_device(part), weights, activations)
    assert (found.format, found.fallback) == (runs, fallback)
    assert bool(found.reason) == fallback


def test_every_pair_runs_somehow_on_every_kind(make_device: Callable[[str], Device]) -> None:
    for part in ("T4", "A100-SXM4-80GB", "MI300X", "TPU-v5e", "CPU-8-core-AVX2"):
        one = make_device(part)
        for weights in FORMAT_BYTES:
            for activations in FORMAT_BYTES:
                assert compute_format(one, weights, activations).format in one.gemm_efficiency_fraction
