"""Products of matrices that were timed on a part, to hold against its roofline."""

import csv
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from twofold.perf.operators import gemm_flops_per_byte
from twofold.perf.types import one

COLUMNS = ("accelerator", "format", "m", "n", "k", "time_us", "source", "licence")


@dataclass(frozen=True, slots=True)
class MeasuredProduct:
    """One product of an m × k by a k × n matrix, as somebody timed it."""

    m: int
    n: int
    k: int
    flops_per_byte: float
    flops_per_s: float
    source: str


def measured_products(accelerator: str, fmt: str) -> tuple[MeasuredProduct, ...]:
    """Those of one part in one number format, by intensity; none where nobody measured it."""
    found = []
    for row in csv.DictReader(products_path().read_text(encoding="utf-8").splitlines()):
        if (row["accelerator"], row["format"]) != (accelerator, fmt):
            continue
        m, n, k = (int(row[name]) for name in "mnk")
        rate = 2.0 * m * n * k / (float(row["time_us"]) * 1e-6)
        found.append(MeasuredProduct(m, n, k, one(gemm_flops_per_byte(m, n, k, fmt)), rate, row["source"]))
    return tuple(sorted(found, key=lambda each: each.flops_per_byte))


def products_path() -> Path:
    """Where the table lies."""
    return Path(str(files("twofold.perf") / "measured_products.csv"))
