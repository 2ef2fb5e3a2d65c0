"""From the seconds of a machine with known constants, the fit finds them again; no efficiency exceeds 1."""

from dataclasses import replace
from types import ModuleType

import pytest

from twofold.core.errors import RunError
from twofold.core.estimate import Source
from twofold.device.cases import Sample
from twofold.device.fit import FittedPart, fit_kernels, fit_links, peaks, usual_s
from twofold.perf.constants import load_constants
from twofold.perf.device import network


@pytest.fixture(scope="module")
def kernels(known: ModuleType) -> dict[str, FittedPart]:
    parts = fit_kernels(known.kernel_samples(), known.accelerator(), load_constants())
    return {part.error.group: part for part in parts}


def value_of(part: FittedPart, name: str) -> float:
    return next(row.value for row in part.rows if row.name == name)


def test_peaks_are_the_best_rates_seen(known: ModuleType) -> None:
    found = peaks([*known.kernel_samples(), *known.link_samples()], known.RANKS)
    assert found.memory_bytes_per_s == pytest.approx(known.MEMORY_BYTES_PER_S, rel=0.1)
    assert 0.8 * known.FLOPS_PER_S < found.flops_per_s["fp32"] <= known.FLOPS_PER_S
    assert "bf16" not in found.flops_per_s, "16 bits are slower here: no peak of its own"
    assert 0.5 * known.LINK_BYTES_PER_S < found.link_bytes_per_s <= known.LINK_BYTES_PER_S


def test_a_faster_16_bit_format_has_a_peak_of_its_own(known: ModuleType) -> None:
    faster = [
        replace(each, seconds=tuple(s / 10 for s in each.seconds))
        if each.sizes.get("format") == "bf16"
        else each
        for each in known.kernel_samples()
    ]
    assert peaks(faster, 1).flops_per_s["bf16"] > known.FLOPS_PER_S


def test_nothing_measured_has_no_peaks() -> None:
    with pytest.raises(RunError):
        peaks([Sample("gemm", {"m": 1, "n": 1, "k": 1, "format": "fp32", "cold": 1}, (1.0,))], 1)


def test_operators_give_their_seconds_back(kernels: dict[str, FittedPart]) -> None:
    for group, part in kernels.items():
        assert part.error.median_fraction < 0.05, group
        assert part.error.worst_fraction < 0.25, group


def test_constants_are_found_again(kernels: dict[str, FittedPart], known: ModuleType) -> None:
    assert value_of(kernels["launch"], "kernel_floor_s") == pytest.approx(known.FLOOR_S)
    assert value_of(kernels["memory"], "memory_efficiency_fraction") == pytest.approx(1.0, rel=0.05)
    assert value_of(kernels["products fp32"], "gemm_efficiency_fraction") == pytest.approx(1.0, rel=0.1)
    half = known.HALF_FLOPS_PER_S / known.FLOPS_PER_S
    assert value_of(kernels["products bf16"], "gemm_efficiency_fraction") == pytest.approx(half, rel=0.1)
    assert value_of(kernels["attention, decode"], "decode_efficiency_fraction") == pytest.approx(0.7, rel=0.2)


def test_every_row_is_measured_inside_its_range_and_no_efficiency_exceeds_one(
    kernels: dict[str, FittedPart],
) -> None:
    for part in kernels.values():
        for row in part.rows:
            assert row.source == Source.MEASURED
            assert row.low <= row.value <= row.high
            assert not row.name.endswith("efficiency_fraction") or row.high <= 1.0


def test_a_machine_twice_as_slow_has_the_same_efficiencies(known: ModuleType) -> None:
    slow = [replace(each, seconds=tuple(2 * s for s in each.seconds)) for each in known.kernel_samples()]
    part = known.accelerator()
    half = replace(
        part, memory_bytes_per_s=part.memory_bytes_per_s / 2, fp32_flops_per_s=known.FLOPS_PER_S / 2
    )
    fast = fit_kernels(known.kernel_samples(), part, load_constants())
    for one, other in zip(fast, fit_kernels(slow, half, load_constants()), strict=True):
        for row, twin in zip(one.rows, other.rows, strict=True):
            if row.name.endswith("efficiency_fraction"):
                assert twin.value == pytest.approx(row.value, rel=0.35), row.name


def test_collectives_are_found_again_and_one_rank_has_none(known: ModuleType) -> None:
    links = network(known.accelerator(), known.RANKS, 6e7, "ethernet", load_constants())
    part = fit_links(known.link_samples(), known.accelerator(), links, known.RANKS)
    assert part is not None
    assert part.error.median_fraction < 0.05
    assert value_of(part, "link_efficiency_fraction") == pytest.approx(1.0, rel=0.1)
    assert fit_links(known.kernel_samples(), known.accelerator(), links, 1) is None


def test_what_others_add_to_a_few_repeats_does_not_count() -> None:
    quiet, disturbed = Sample("copy", {}, (1.0,) * 8), Sample("copy", {}, (1.0,) * 4 + (9.0,) * 4)
    assert usual_s(disturbed) == usual_s(quiet) == 1.0
