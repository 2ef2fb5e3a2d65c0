"""An accelerator that does not exist: its cases are fitted as a processor's are, its row says what it is."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.device.cases import ACCELERATOR, Sample, suite_for
from twofold.device.figures import power_figures
from twofold.device.files import Identity
from twofold.device.fit import FittedPart, fit_kernels
from twofold.device.measuring import Measured
from twofold.device.rows import fit_device
from twofold.perf.attention import attention_decode_s, attention_prefill_s
from twofold.perf.constants import load_constants
from twofold.perf.device import device
from twofold.perf.operators import gemm_s

PEAKS = {"bf16": 780e12, "fp32": 50e12, "fp8": 1450e12}
MEMORY_BYTES_PER_S, FLOOR_S = 4.3e12, 1.5e-6
PART = replace(
    load_catalog().accelerator("H200-SXM5-141GB"),
    name="this-machine",
    memory_bytes_per_s=MEMORY_BYTES_PER_S,
    **{f"{fmt}_flops_per_s": peak for fmt, peak in PEAKS.items()},
)


def _same(group: str, sizes: dict[str, float | int | str], seconds: object) -> Sample:
    return Sample(group, sizes, (float(np.max(np.asarray(seconds))),) * 3)


def samples() -> list[Sample]:
    """Of a part that reaches its peaks, by the operators themselves."""
    part, suite = device(PART, load_constants()), ACCELERATOR
    whole = MappingProxyType(dict.fromkeys(part.gemm_efficiency_fraction, 1.0))
    part = replace(
        part,
        kernel_floor_s=FLOOR_S,
        memory_efficiency_fraction=1.0,
        gemm_efficiency_fraction=whole,
        gemm_memory_efficiency_fraction=whole,
        attention_efficiency_fraction=0.6,
        attention_memory_efficiency_fraction=1.0,
        decode_efficiency_fraction=0.8,
    )
    found = [_same("launch", {"kind": "add"}, FLOOR_S), _same("launch", {"kind": "host"}, 9e-6)]
    found += [_same(name, {"bytes": 2**30}, 2**30 / MEMORY_BYTES_PER_S) for name in ("copy", "triad", "read")]
    for fmt in suite.formats:
        for m, n, k in suite.products if fmt == suite.format else suite.few:
            out = "bf16" if fmt == "fp8" else fmt
            sizes: dict[str, float | int | str] = {"m": m, "n": n, "k": k, "format": fmt, "cold": 1}
            found.append(_same("gemm", sizes, gemm_s(part, m, n, k, fmt, out)))
    for sequences, tokens, heads in suite.prefills:
        seconds = attention_prefill_s(part, sequences, tokens, 0.0, heads, heads, suite.head_dim, "bf16")
        found.append(_same("prefill", {"sequences": sequences, "tokens": tokens, "heads": heads}, seconds))
    for sequences, context in suite.decodes:
        shape = suite.heads, suite.kv_heads, suite.head_dim
        seconds = attention_decode_s(part, sequences, context, *shape, "bf16")
        found.append(_same("decode", {"sequences": sequences, "context": context}, seconds))
    return found


@pytest.fixture(scope="module")
def parts() -> dict[str, FittedPart]:
    return {part.error.group: part for part in fit_kernels(samples(), PART, load_constants())}


def test_every_format_of_an_accelerator_is_fitted_in_its_own(parts: dict[str, FittedPart]) -> None:
    assert {"products bf16", "products fp32", "products fp8"} <= parts.keys()
    for group, part in parts.items():
        assert part.error.median_fraction < 0.05, group
    halves = [row for row in parts["products fp8"].rows if row.name == "gemm_efficiency_fraction"]
    assert [row.scope.endswith("format=fp8") for row in halves] == [True]


def test_constants_of_attention_are_found_again(parts: dict[str, FittedPart]) -> None:
    found = {row.name: row.value for part in parts.values() for row in part.rows}
    assert found["attention_efficiency_fraction"] == pytest.approx(0.6, rel=0.15)
    assert found["decode_efficiency_fraction"] == pytest.approx(0.8, rel=0.15)


def test_a_row_has_the_formats_the_limit_and_the_rest_that_were_told() -> None:
    measured = Measured(
        tuple(samples()), 1, 16, "torch 9", "NVIDIA H200", 150e9, 132, 1.0, 0, 0.0, 650.0, 80.0
    )
    fitted = fit_device(measured, Identity("a processor", 16, 2**37, "NVIDIA H200"), 2026)
    row = fitted.accelerator
    assert (row.family, row.sm_count, row.tdp_w, row.idle_w) == ("hopper", 132, 650.0, 80.0)
    assert row.fp8_flops_per_s > row.bf16_flops_per_s > row.fp32_flops_per_s
    assert "assumed" not in fitted.tables["accelerators.csv"]


def test_a_driver_that_tells_no_power_leaves_it_assumed() -> None:
    measured = Measured(tuple(samples()), 1, 16, "torch 9", "NVIDIA H200", 150e9, 132, 1.0, 0, 0.0)
    fitted = fit_device(measured, Identity("a processor", 16, 2**37, "NVIDIA H200"), 2026)
    assert "the power is assumed" in fitted.tables["accelerators.csv"]
    assert power_figures(None, None) == ()
    assert [each.name for each in power_figures(80.0, 690.0)] == ["at rest", "multiplying bf16"]


def test_processors_and_accelerators_have_cases_of_their_own() -> None:
    assert suite_for("cpu").format == "fp32"
    assert suite_for("hopper") is ACCELERATOR
