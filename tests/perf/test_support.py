"""The kernel matrix: native where part and engine agree, else a fallback with its measured cost, or none."""

from collections.abc import Callable

import pytest

from twofold.core import UnknownNameError
from twofold.perf import Device, engines, kernel_support


def support(one: Device, engine: str, operation: str, name: str) -> tuple[str, float | None]:
    found = {(row.operation, row.format): row for row in kernel_support(one, engine)}[operation, name]
    return found.support, found.slowdown and found.slowdown.value


def test_fp8_products_are_native_from_ada_on_and_fall_back_before(
    make_device: Callable[[str], Device],
) -> None:
    assert support(make_device("H100-SXM5-80GB"), "vllm", "gemm", "fp8") == ("native", None)
    kind, slowdown = support(make_device("A100-SXM4-80GB"), "vllm", "gemm", "fp8")
    assert kind == "fallback" and slowdown is not None and 1.0 <= slowdown < 10.0


def test_what_an_engine_lacks_has_no_time(make_device: Callable[[str], Device]) -> None:
    assert support(make_device("MI300X"), "trtllm", "gemm", "bf16") == ("missing", None)


@pytest.mark.parametrize("engine", engines())
def test_every_engine_answers_for_attention_products_and_norms(
    make_device: Callable[[str], Device], engine: str
) -> None:
    rows = kernel_support(make_device("H100-SXM5-80GB"), engine)
    assert {row.operation for row in rows} == {"attention", "gemm", "norm"}
    assert all((row.slowdown is None or row.slowdown.value >= 1.0) and row.source for row in rows)


def test_an_unknown_engine_is_a_users_mistake(h100: Device) -> None:
    with pytest.raises(UnknownNameError, match="engines: "):
        kernel_support(h100, "abacus")
