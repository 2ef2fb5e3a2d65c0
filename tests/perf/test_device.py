"""Every part of the catalogue becomes a device and a network that price work within physics.

A kernel is native where part and engine agree, else a fallback with its measured cost, or there is none.
"""

from collections.abc import Callable

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.perf import collectives
from twofold.perf.attention import attention_decode_s, attention_prefill_s
from twofold.perf.constants import Constants, load_constants
from twofold.perf.device import kernel_support, network
from twofold.perf.operators import gemm_s, grouped_gemm_s
from twofold.perf.types import Device

PARTS = [part.name for part in load_catalog().rows(Accelerator)]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_prices_every_operator(
    make_device: Callable[[str], Device], constants: Constants, name: str
) -> None:
    one = make_device(name)
    links = network(load_catalog().accelerator(name), 8, 25e9, "ethernet", constants)
    seconds = [
        gemm_s(one, 512, 4096, 4096, "bf16"),
        gemm_s(one, 512, 4096, 4096, "bf16", weight_fmt="int4"),
        grouped_gemm_s(one, 64, 64, 4, 64, 2048, 1024, "bf16"),
        attention_prefill_s(one, 1, 2048, 0, 32, 8, 128, "fp8"),
        attention_decode_s(one, 8, 2048, 32, 8, 128, "fp8"),
        collectives.all_reduce_s(links, 1e6, 16),
    ]
    assert np.all(np.isfinite(seconds)) and min(seconds) > 0
    assert one.idle_w < one.tdp_w
    for efficiency in (one.gemm_efficiency_fraction, one.grouped_memory_efficiency_fraction):
        assert all(0 < float(value) <= 1 for value in efficiency.values())


def test_a_power_limit_slows_the_clock_but_never_speeds_it(make_device: Callable[[str], Device]) -> None:
    """The 500 W H100 of one public benchmark reaches .62 of peak where the 700 W part reaches .73."""
    limited = float(make_device("H100-SXM5-96GB-500W").gemm_efficiency_fraction["bf16"])
    full = float(make_device("H100-SXM5-80GB").gemm_efficiency_fraction["bf16"])
    assert limited / full == pytest.approx(0.62 / 0.73, rel=0.08)


def test_domains_follow_the_part_and_the_node(constants: Constants) -> None:
    def domain(name: str, node_size: int) -> int:
        return network(load_catalog().accelerator(name), node_size, 25e9, "infiniband", constants).domain_size

    assert domain("H100-SXM5-80GB", 8) == 8
    assert domain("H100-SXM5-80GB", 4) == 4
    assert domain("GB200-186GB", 4) == 72
    assert domain("H200-NVL-141GB", 8) == 4
    assert domain("L40S", 8) == 1


def test_oversubscription_and_a_poor_fabric_slow_what_leaves_the_node(constants: Constants) -> None:
    part = load_catalog().accelerator("H100-SXM5-80GB")
    good = network(part, 8, 50e9, "infiniband", constants)
    thin = network(part, 8, 50e9, "infiniband", constants, oversubscription=3.0)
    assert float(thin.nic_bytes_per_s) == pytest.approx(float(good.nic_bytes_per_s) / 3)
    assert float(network(part, 8, 50e9, "ethernet", constants).nic_bytes_per_s) < float(good.nic_bytes_per_s)
    assert thin.link_bytes_per_s == good.link_bytes_per_s


def test_a_fabric_of_the_catalogue_speaks_for_itself(constants: Constants) -> None:
    part, fabric = load_catalog().accelerator("H100-SXM5-80GB"), load_catalog().fabric("roce")
    links = network(part, 8, 50e9, fabric, constants)
    assert float(links.nic_bytes_per_s) == pytest.approx(50e9 * fabric.efficiency_fraction)
    assert links.jitter_fraction == fabric.jitter_fraction


def support(one: Device, engine: str, operation: str, name: str) -> tuple[str, float | None]:
    rows = kernel_support(one, load_constants())
    found = next(row for row in rows if (row.engine, row.operation, row.format) == (engine, operation, name))
    return found.support, found.slowdown and found.slowdown.value


def test_fp8_products_are_native_from_ada_on_and_fall_back_before(
    make_device: Callable[[str], Device],
) -> None:
    assert support(make_device("H100-SXM5-80GB"), "vllm", "gemm", "fp8") == ("native", None)
    kind, slowdown = support(make_device("A100-SXM4-80GB"), "vllm", "gemm", "fp8")
    assert kind == "fallback" and slowdown is not None and 0.8 <= slowdown < 2.0


def test_what_an_engine_lacks_has_no_time(make_device: Callable[[str], Device]) -> None:
    assert support(make_device("MI300X"), "trtllm", "gemm", "bf16") == ("missing", None)


def test_every_engine_answers_for_attention_products_and_norms(h100: Device, constants: Constants) -> None:
    rows = kernel_support(h100, constants)
    works = {(row.engine, row.operation) for row in rows}
    assert len({engine for engine, _ in works}) * 3 == len(works)
    assert {operation for _, operation in works} == {"attention", "gemm", "norm"}
    assert all(row.source for row in rows)


def test_a_fallback_that_was_measured_on_no_part_of_a_family_says_on_which_others(
    make_device: Callable[[str], Device], constants: Constants
) -> None:
    def fallen(name: str) -> set[str]:
        rows = kernel_support(make_device(name), constants)
        return {row.measured_on for row in rows if (row.format, row.support) == ("int4", "fallback")}

    assert fallen("A100-SXM4-80GB") == fallen("MI300X") == {"A100-SXM4-80GB"}
    eight = [row for row in kernel_support(make_device("T4"), constants) if row.format == "fp8"]
    assert {row.measured_on for row in eight if row.operation == "gemm" and row.slowdown} == {
        "A100-SXM4-80GB H100-SXM5-80GB"
    }
