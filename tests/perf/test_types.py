"""The smooth maximum, what a device runs and draws, and what a named factor scales."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.formats import FORMAT_BYTES
from twofold.perf.operators import gemm_flops_per_byte, gemm_s
from twofold.perf.types import Cluster, Device, smooth_max

costs = st.floats(0.0, 1e6)


@given(a=costs, b=costs, p=st.sampled_from([1.0, 2.0, 4.0, 8.0]))
def test_it_lies_between_the_larger_and_the_sum(a: float, b: float, p: float) -> None:
    found = float(smooth_max(a, b, p))
    assert max(a, b) * (1 - 1e-12) <= found <= (a + b) * (1 + 1e-12)
    assert found == float(smooth_max(b, a, p))


def test_it_is_the_p_norm() -> None:
    a, b = np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 0.0])
    for p in (2.0, 4.0, 6.0):
        assert smooth_max(a, b, p) == pytest.approx(np.linalg.norm(np.stack([a, b]), ord=p, axis=0))


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
    found = make_device(part).compute_format(weights, activations)
    assert (found.format, found.fallback) == (runs, fallback)
    assert bool(found.reason) == fallback


def test_every_pair_runs_somehow_on_every_kind(make_device: Callable[[str], Device]) -> None:
    for part in ("T4", "A100-SXM4-80GB", "MI300X", "TPU-v5e", "CPU-8-core-AVX2"):
        one = make_device(part)
        for weights in FORMAT_BYTES:
            for activations in FORMAT_BYTES:
                assert one.compute_format(weights, activations).format in one.gemm_efficiency_fraction


@pytest.mark.parametrize(("part", "ridge"), [("H100-SXM5-80GB", 295), ("H200-SXM5-141GB", 206)])
def test_ridges_are_the_published_ones(make_device: Callable[[str], Device], part: str, ridge: int) -> None:
    assert round(float(make_device(part).ridge_flops_per_byte())) == ridge


def test_a_small_batch_lies_below_the_ridge_and_a_large_one_above(h100: Device) -> None:
    ridge = h100.ridge_flops_per_byte()
    assert gemm_flops_per_byte(32, 8192, 8192) < ridge < gemm_flops_per_byte(8192, 8192, 8192)


def test_one_row_does_one_flop_per_byte_of_its_weights() -> None:
    assert gemm_flops_per_byte(1, 8192, 8192) == pytest.approx(1.0, rel=0.001)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0), more=st.floats(0.0, 1.0))
def test_power_rises_from_idle_to_the_limit(h100: Device, share: float, more: float) -> None:
    low, high = sorted((share, more))
    assert h100.idle_w <= h100.power_w(low) <= h100.power_w(high) <= h100.tdp_w


def test_power_at_the_limit_is_the_vendor_s(h100: Device) -> None:
    assert h100.power_w(1.0) == pytest.approx(700.0)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    accelerator, constants = load_catalog().accelerator("H100-SXM5-80GB"), load_constants()
    return Cluster(device(accelerator, constants), network(accelerator, 8, 50e9, "infiniband", constants), 16)


def test_no_factor_changes_nothing(cluster: Cluster) -> None:
    assert cluster.scaled({}) == cluster


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("compute", {"peak_flops_per_s"}),
        ("memory_bandwidth", {"memory_bytes_per_s"}),
        ("memory_capacity", {"memory_bytes"}),
        ("host", {"kernel_floor_s"}),
        ("link", {"link_bytes_per_s", "host_bytes_per_s"}),
        ("fabric", {"nic_bytes_per_s"}),
        ("price", set()),
    ],
)
def test_a_factor_changes_what_it_names_alone(cluster: Cluster, name: str, changed: set[str]) -> None:
    scaled = cluster.scaled({name: 1.25})
    pairs = [(cluster.device, scaled.device), (cluster.network, scaled.network)]
    differing = {
        field.name
        for old, new in pairs
        for field in fields(old)
        if getattr(old, field.name) != getattr(new, field.name)
    }
    assert differing == changed


def test_a_factor_above_one_makes_hardware_better(cluster: Cluster) -> None:
    scaled = cluster.scaled({"memory_bandwidth": 2.0, "host": 2.0, "fabric": 2.0})
    assert scaled.device.memory_bytes_per_s == 2 * cluster.device.memory_bytes_per_s
    assert scaled.device.kernel_floor_s == cluster.device.kernel_floor_s / 2
    assert scaled.network.nic_bytes_per_s == 2 * cluster.network.nic_bytes_per_s


def test_a_calibrated_cluster_is_as_fast_as_a_scaled_one_and_keeps_its_datasheet(cluster: Cluster) -> None:
    factors = {"compute": 0.8, "memory_bandwidth": 1.1, "host": 0.7}
    scaled, calibrated = cluster.scaled(factors), cluster.calibrated(factors)
    for rows in (16.0, 512.0, 65536.0):
        both = [float(np.max(gemm_s(each.device, rows, 4096, 8192, "bf16"))) for each in (scaled, calibrated)]
        assert both[0] == pytest.approx(both[1], rel=1e-12)
    assert calibrated.device.peak_flops_per_s == cluster.device.peak_flops_per_s
    assert calibrated.network == scaled.network
