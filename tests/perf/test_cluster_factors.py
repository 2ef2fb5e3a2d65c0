"""A named factor scales what it names, and nothing else."""

from dataclasses import fields

import numpy as np
import pytest

from twofold.catalog import load_catalog
from twofold.perf import Cluster, calibrate_cluster, device, gemm_s, load_constants, network, scale_cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    accelerator, constants = load_catalog().accelerator("H100-SXM5-80GB"), load_constants()
    return Cluster(device(accelerator, constants), network(accelerator, 8, 50e9, "infiniband", constants), 16)


def test_no_factor_changes_nothing(cluster: Cluster) -> None:
    assert scale_cluster(cluster, {}) == cluster


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
    scaled = scale_cluster(cluster, {name: 1.25})
    pairs = [(cluster.device, scaled.device), (cluster.network, scaled.network)]
    differing = {
        field.name
        for old, new in pairs
        for field in fields(old)
        if getattr(old, field.name) != getattr(new, field.name)
    }
    assert differing == changed


def test_a_factor_above_one_makes_hardware_better(cluster: Cluster) -> None:
    scaled = scale_cluster(cluster, {"memory_bandwidth": 2.0, "host": 2.0, "fabric": 2.0})
    assert scaled.device.memory_bytes_per_s == 2 * cluster.device.memory_bytes_per_s
    assert scaled.device.kernel_floor_s == cluster.device.kernel_floor_s / 2
    assert scaled.network.nic_bytes_per_s == 2 * cluster.network.nic_bytes_per_s


def test_a_calibrated_cluster_is_as_fast_as_a_scaled_one_and_keeps_its_datasheet(cluster: Cluster) -> None:
    factors = {"compute": 0.8, "memory_bandwidth": 1.1, "host": 0.7}
    scaled, calibrated = scale_cluster(cluster, factors), calibrate_cluster(cluster, factors)
    for rows in (16.0, 512.0, 65536.0):
        both = [float(np.max(gemm_s(each.device, rows, 4096, 8192, "bf16"))) for each in (scaled, calibrated)]
        assert both[0] == pytest.approx(both[1], rel=1e-12)
    assert calibrated.device.peak_flops_per_s == cluster.device.peak_flops_per_s
    assert calibrated.network == scaled.network
