"""Fit each kind of kernel of the public tables by itself: what one engine's own implementation reaches.

The device's constants (`kernels`) stand for the kernels of all engines together, because a plan names no
kernel. A row of the tables does, so `validate kernels` scores it with the constants of its kernel's class
(`vllm marlin`, `sglang triton`), at most a dozen physical ones per class and format, pooled over accelerators
as all kernel constants are. They ship as `measure/kernel_classes.csv`; running the module with the folder of
tables rewrites it. Neither fit sees the held-out rows.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fits.kernels import (
    DECODE,
    DECODE_FP8,
    ENGINE_LINKS,
    GEMM,
    LINKS,
    MOE,
    MOE_BENCH,
    MOE_SHAPE,
    PREFILL,
    PREFILL_FP8,
)
from fits.pooled import Prior, fit_pooled
from twofold.measure.kernel_scores import FILE, KernelClass, class_slices
from twofold.measure.kernel_tables import GEMM_FORMATS, families
from twofold.perf.constants import Constants, load_constants

THROTTLE = (
    Prior("throttle_fraction", 0.2, 0.7, 0.01, 0.7),
    Prior("throttle_half_s", 2e-3, 0.7, 1e-4, 2e-2),
)
GEMM_CLASS = (
    *GEMM,
    Prior("gemm_half_k", 100.0, 1.0, 5.0, 1000.0),
    Prior("kernel_floor_s", 2.9e-6, 0.5, 1e-6, 2e-5),
    Prior("gemm_ramp_ratio", 1.8, 1.0, 0.1, 100.0),
    Prior("gemm_ramp_half_k", 1500.0, 1.5, 100.0, 1e6),
    Prior("gemm_tile_fraction", 0.2, 1.0, 0.005, 1.0),
    *THROTTLE,
)
QUANTISE = Prior("quantise_ratio", 1.0, 0.7, 0.02, 8.0)
MOE_CLASS = (*MOE, *MOE_SHAPE, Prior("gemm_half_k", 100.0, 1.0, 1.0, 2000.0), *MOE_BENCH, *THROTTLE)


@dataclass(frozen=True, slots=True)
class ClassConstants:
    """The constants of one class of kernels on one accelerator."""

    kernel: str
    accelerator: str
    rows: int
    values: Mapping[str, float]


def priors_of(one: KernelClass) -> tuple[Prior, ...]:
    """What is fitted of one class."""
    if one.table == "gemm":
        return GEMM_CLASS if GEMM_FORMATS[one.format][0] == "bf16" else (*GEMM_CLASS, QUANTISE)
    if one.table == "attention":
        return _attention(one.title.partition(" ")[0], one.format)
    if one.table == "moe":
        return MOE_CLASS
    return LINKS if one.title == "collectives nccl" else ENGINE_LINKS


def _attention(phase: str, dtype: str) -> tuple[Prior, ...]:
    priors = PREFILL if phase == "prefill" else DECODE
    if dtype != "fp8":
        return priors
    narrow = PREFILL_FP8 if phase == "prefill" else DECODE_FP8
    return (*narrow, *priors[1:])


def fit_classes(truth: Path, constants: Constants) -> Iterator[ClassConstants]:
    """Fit all classes under `truth`, each with a pool of its own over the accelerators that have rows."""
    for one, rows in class_slices(truth, constants):
        priors = priors_of(one)
        pooled = fit_pooled(rows, priors, families(), rows.fitted)
        for leaf in sorted(set(rows.leaf)):
            values = {prior.name: pooled.values[prior.name, leaf] for prior in priors}
            yield ClassConstants(one.title, leaf, int((rows.leaf == leaf).sum()), values)


def write_classes(found: Iterable[ClassConstants], path: Path = FILE) -> None:
    """Write the table: a line per class and accelerator, a column per constant, four significant digits."""
    found = list(found)
    names = sorted({name for one in found for name in one.values})
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["kernel", "accelerator", "rows", *names])
        for one in found:
            cells = (f"{one.values[name]:.4g}" if name in one.values else "" for name in names)
            writer.writerow([one.kernel, one.accelerator, one.rows, *cells])


if __name__ == "__main__":
    write_classes(fit_classes(Path(sys.argv[1]), load_constants()))
