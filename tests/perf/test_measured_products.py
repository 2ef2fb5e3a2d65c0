"""Measured products: they lie under the vendor's roof, and a part that nobody measured has none."""

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.perf.measured_products import measured_products

MEASURED = [
    (part, fmt)
    for part in (
        "A100-SXM4-80GB",
        "B200-SXM-180GB",
        "GB200-186GB",
        "H100-SXM5-80GB",
        "H200-SXM5-141GB",
        "L40S",
    )
    for fmt in ("bf16", "fp8", "int8", "fp4")
    if measured_products(part, fmt)
]


def test_every_measured_part_has_16_bit_products() -> None:
    assert {part for part, fmt in MEASURED if fmt == "bf16"} == {part for part, _ in MEASURED}
    assert len({part for part, _ in MEASURED}) == 6
    assert measured_products("MI300X", "bf16") == ()


@pytest.mark.parametrize(("part", "fmt"), MEASURED)
def test_products_span_both_sides_of_the_ridge_and_none_beats_the_vendor(part: str, fmt: str) -> None:
    accelerator = load_catalog().accelerator(part)
    peak, bandwidth = getattr(accelerator, f"{fmt}_flops_per_s"), accelerator.memory_bytes_per_s
    found = measured_products(part, fmt)
    intensities = [product.flops_per_byte for product in found]
    assert intensities == sorted(intensities)
    assert intensities[0] < peak / bandwidth < intensities[-1]
    for product in found:
        assert product.flops_per_s <= min(peak, product.flops_per_byte * bandwidth)
        assert product.source
