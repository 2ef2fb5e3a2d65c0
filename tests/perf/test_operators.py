"""Laws of products, experts and passes: monotone, bounded, scaling, right at both ends."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.perf.formats import bytes_per_weight
from twofold.perf.operators import elementwise_s, experts_touched, gemm_s, grouped_gemm_s, quantise_s
from twofold.perf.types import Device

sizes = st.integers(1, 65536)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
FORMATS = ("bf16", "fp8", "fp8_block", "int8")


@pytest.mark.parametrize("fmt", FORMATS)
@shared
@given(m=sizes, n=sizes, k=sizes, factor=st.integers(2, 8))
def test_a_larger_product_is_never_faster(
    h100: Device, fmt: str, m: int, n: int, k: int, factor: int
) -> None:
    base = gemm_s(h100, m, n, k, fmt)
    assert gemm_s(h100, m * factor, n, k, fmt) >= base
    assert gemm_s(h100, m, n * factor, k, fmt) >= base
    assert gemm_s(h100, m, n, k * factor, fmt) >= base


@shared
@given(m=sizes, n=sizes, k=sizes, gain=st.floats(1.0, 4.0))
def test_a_better_part_is_never_slower(h100: Device, m: int, n: int, k: int, gain: float) -> None:
    faster_memory = replace(h100, memory_bytes_per_s=h100.memory_bytes_per_s * gain)
    faster_maths = replace(h100, peak_flops_per_s={f: p * gain for f, p in h100.peak_flops_per_s.items()})
    base = gemm_s(h100, m, n, k, "bf16")
    assert gemm_s(faster_memory, m, n, k, "bf16") <= base
    assert gemm_s(faster_maths, m, n, k, "bf16") <= base


@shared
@given(m=sizes, n=sizes, k=sizes)
def test_no_product_beats_the_roofline(h100: Device, m: int, n: int, k: int) -> None:
    seconds = gemm_s(h100, m, n, k, "bf16")
    assert seconds >= 2.0 * m * n * k / h100.peak_flops_per_s["bf16"]
    assert seconds >= 2.0 * (m * k + k * n + m * n) / h100.memory_bytes_per_s


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_huge_product_runs_at_its_efficiency_of_peak(h100: Device, fmt: str) -> None:
    size = 1_000_000
    reached = 2.0 * size**3 / gemm_s(h100, size, size, size, fmt)
    assert reached == pytest.approx(
        h100.peak_flops_per_s[fmt[:4].rstrip("_")] * h100.gemm_efficiency_fraction[fmt], rel=0.01
    )


def test_a_tiny_product_takes_the_floor(h100: Device) -> None:
    assert gemm_s(h100, 1, 1, 1, "bf16") == pytest.approx(h100.kernel_floor_s, rel=0.05)


def test_one_row_reads_its_weights(h100: Device) -> None:
    bandwidth = h100.memory_bytes_per_s * h100.gemm_memory_efficiency_fraction["bf16"]
    assert gemm_s(h100, 1, 65536, 65536, "bf16") == pytest.approx(2.0 * 65536**2 / bandwidth, rel=0.02)


def test_narrow_weights_alone_speed_up_decode_and_not_prefill(h100: Device) -> None:
    assert gemm_s(h100, 1, 28672, 8192, "bf16", weight_fmt="int4") < gemm_s(h100, 1, 28672, 8192, "bf16")
    assert gemm_s(h100, 8192, 28672, 8192, "bf16", weight_fmt="int4") >= gemm_s(
        h100, 8192, 28672, 8192, "bf16"
    )


def test_doubling_every_rate_and_every_size_in_time_keeps_time_units(h100: Device) -> None:
    """Seconds scale as 1/rate: a part with all rates × c and all floors ÷ c takes 1/c of the time."""
    c = 7.0
    scaled = replace(
        h100,
        memory_bytes_per_s=h100.memory_bytes_per_s * c,
        peak_flops_per_s={f: p * c for f, p in h100.peak_flops_per_s.items()},
        kernel_floor_s=h100.kernel_floor_s / c,
    )
    shapes = np.array([1.0, 77.0, 4096.0])
    np.testing.assert_allclose(
        gemm_s(scaled, shapes, 512, 4096, "bf16") * c, gemm_s(h100, shapes, 512, 4096, "bf16")
    )


def test_draws_broadcast_over_candidates(h100: Device) -> None:
    draws = np.array([[0.9], [1.0], [1.1]])
    drawn = replace(h100, memory_bytes_per_s=h100.memory_bytes_per_s * draws)
    assert np.shape(gemm_s(drawn, np.arange(1.0, 6.0), 4096, 4096, "bf16")) == (3, 5)


@given(tokens=st.integers(0, 10**6), experts=st.integers(1, 512), topk=st.integers(1, 16))
def test_touched_experts_lie_between_one_tokens_and_all(tokens: int, experts: int, topk: int) -> None:
    touched = float(experts_touched(tokens, experts, topk))
    assert (min(topk, experts) if tokens else 0) - 1e-9 <= touched <= experts + 1e-9
    assert experts_touched(tokens + 1, experts, topk) >= touched - 1e-9


def test_touched_experts_agree_with_drawn_routing() -> None:
    generator = np.random.default_rng(1)
    drawn = [
        len({one for _ in range(20) for one in generator.choice(64, 4, replace=False)}) for _ in range(400)
    ]
    assert float(experts_touched(20, 64, 4)) == pytest.approx(np.mean(drawn), rel=0.02)


@shared
@given(tokens=st.integers(1, 10**5), experts_local=st.sampled_from([8, 16, 32, 64]))
def test_more_tokens_experts_or_imbalance_are_never_faster(
    h100: Device, tokens: int, experts_local: int
) -> None:
    def seconds(tokens: int, local: int, imbalance: float) -> float:
        return float(grouped_gemm_s(h100, tokens, 64, 4, local, 4096, 1536, "bf16", imbalance=imbalance))

    base = seconds(tokens, experts_local, 1.0)
    assert seconds(tokens * 2, experts_local, 1.0) >= base
    assert seconds(tokens, experts_local, 1.2) >= base
    assert seconds(tokens, experts_local // 2, 1.0) <= base


def test_experts_without_tokens_cost_their_launch(h100: Device) -> None:
    assert grouped_gemm_s(h100, 0, 64, 4, 64, 4096, 1536, "bf16") == pytest.approx(h100.grouped_floor_s)


def test_few_tokens_read_only_the_experts_they_touch(h100: Device) -> None:
    bandwidth = h100.memory_bytes_per_s * h100.grouped_memory_efficiency_fraction["bf16"]
    read_s = float(grouped_gemm_s(h100, 1, 64, 4, 64, 8192, 8192, "bf16")) - float(h100.grouped_floor_s)
    assert read_s == pytest.approx(4 * 3 * 8192**2 * 2.0 / bandwidth, rel=0.02)


def test_passes_add_up(h100: Device) -> None:
    bandwidth = h100.memory_bytes_per_s * h100.memory_efficiency_fraction
    assert elementwise_s(h100, 1e9, 3) == pytest.approx(1e9 / bandwidth + 3 * h100.kernel_floor_s)
    assert quantise_s(h100, 4096, 8192) == elementwise_s(h100, 4096 * 8192 * (2 + bytes_per_weight("fp8")), 1)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("A100-SXM4-80GB", 0.76, 0.86),
        ("H100-SXM5-80GB", 0.70, 0.80),
        ("B200-SXM-180GB", 0.58, 0.70),
        ("GB200-186GB", 0.54, 0.64),
    ],
)
def test_large_products_reach_the_published_share_of_peak(
    make_device: Callable[[str], Device], name: str, low: float, high: float
) -> None:
    assert low <= float(make_device(name).gemm_efficiency_fraction["bf16"]) <= high
