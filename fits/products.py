"""Measured products of matrices that a roofline is drawn with: `python -m fits.products TRUTH` writes them.

Of each accelerator and number format one product in each octave of intensity, the one whose share of the
roof is the middle of its octave; products that take little more than their launch are left out.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from fits.kernels import LAUNCHES_S
from twofold.measure.kernel_tables import column, device_of_rows, leaves, table
from twofold.perf.constants import load_constants
from twofold.perf.formats import peak_format
from twofold.perf.measured_products import COLUMNS, products_path
from twofold.perf.operators import gemm_flops_per_byte

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "sq": "int8", "nvfp4": "nvfp4"}  # dtypes of the table
SOURCE = "aiconfigurator-core 0.12.0, kernel tables"
LICENCE = "Apache-2.0"


def middle_products(truth: Path) -> list[dict[str, str]]:
    """The rows to write, by accelerator, format and intensity."""
    every, constants = table(truth, "gemm"), load_constants()
    octaves: dict[tuple[str, str, int], list[tuple[float, dict[str, str]]]] = defaultdict(list)
    for dtype, fmt in FORMATS.items():
        rows = [row for row in every if row["dtype"] == dtype and float(row["time_us"]) * 1e-6 > LAUNCHES_S]
        base = device_of_rows(leaves(rows), constants)
        m, n, k, time_us = (column(rows, name) for name in ("m", "n", "k", "time_us"))
        intensity = np.asarray(gemm_flops_per_byte(m, n, k, fmt))
        roof = np.minimum(base.peak_flops_per_s[peak_format(fmt)], intensity * base.memory_bytes_per_s)
        share = 2.0 * m * n * k / (time_us * 1e-6) / roof
        octave = np.floor(np.log2(intensity))
        for row, leaf, one, part in zip(rows, leaves(rows), octave, share, strict=True):
            if part <= 1.0:  # a small matrix that stays in a cache beats the memory's roof
                shape = {name: row[name] for name in ("m", "n", "k", "time_us")}
                kept = {"accelerator": str(leaf), "format": peak_format(fmt), **shape}
                octaves[str(leaf), fmt, int(one)].append((float(part), kept))
    middles = (
        sorted(found, key=lambda each: each[0])[len(found) // 2][1] for _, found in sorted(octaves.items())
    )
    return [{**row, "source": SOURCE, "licence": LICENCE} for row in middles]


def main(arguments: list[str]) -> int:
    """Write the table that ships."""
    if len(arguments) != 1:
        print("usage: python -m fits.products TRUTH_FOLDER", file=sys.stderr)
        return 2
    rows = middle_products(Path(arguments[0]))
    with products_path().open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
