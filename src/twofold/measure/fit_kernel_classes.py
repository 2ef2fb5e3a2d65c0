"""Fit each kind of kernel of the public tables by itself: what one engine's own implementation reaches.

The device's constants (`fit_kernels`) stand for the kernels of all engines together, because a plan names no
kernel. A row of the tables does, so `validate kernels` scores it with the constants of its kernel's class
(`vllm marlin`, `sglang triton`), at most a dozen physical ones per class and format, pooled over accelerators
as all kernel constants are. They lie in `kernel_classes.csv` beside this file; running the module with the
folder of tables rewrites it. Neither fit sees the held-out rows.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.measure.fit_kernels import (
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
from twofold.measure.kernel_tables import (
    GEMM_FORMATS,
    MOE_FORMATS,
    Kernels,
    attention_rows,
    comm_rows,
    families,
    gemm_rows,
    kernel_class,
    moe_rows,
    table,
)
from twofold.measure.pooled import Prior, Rows, fit_pooled
from twofold.measure.truth import Row, read_rows
from twofold.perf import Constants, load_constants

FILE = Path(__file__).parent / "kernel_classes.csv"
KEYS = {"kernel", "accelerator", "rows"}
TABLES = ("gemm", "attention", "comm", "moe")
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
class ClassSlice:
    """One class of kernels in one part of a table, and its rows."""

    table: str  # gemm attention collective moe
    title: str
    format: str
    priors: tuple[Prior, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class ClassConstants:
    """The constants of one class of kernels on one accelerator."""

    kernel: str
    accelerator: str
    rows: int
    values: Mapping[str, float]


def class_slices(truth: Path, constants: Constants) -> Iterator[ClassSlice]:
    """Every class of every table with its rows, in the order of the tables."""
    tables = {name: table(truth, name) for name in TABLES}
    for dtype in GEMM_FORMATS:
        narrow = (QUANTISE,) if GEMM_FORMATS[dtype][0] != "bf16" else ()
        for kind, rows in _classes(tables["gemm"], {"dtype": dtype}):
            built = gemm_rows(rows, dtype, constants)
            yield _slice("gemm", f"gemm {dtype} {kind}", dtype, built, (*GEMM_CLASS, *narrow))
    for phase, column in (("prefill", "dtype"), ("decode", "kv_dtype")):
        for dtype in ("bfloat16", "fp8"):
            for kind, rows in _classes(tables["attention"], {"phase": phase, column: dtype}):
                built = attention_rows(rows, phase, dtype, constants, Kernels.ALL)
                yield _slice("attention", f"{phase} {dtype} {kind}", dtype, built, _attention(phase, dtype))
    for dtype in MOE_FORMATS:
        for kind, rows in _classes(tables["moe"], {"dtype": dtype}):
            built = moe_rows(rows, dtype, constants, Kernels.ALL)
            yield _slice("moe", f"experts {dtype} {kind}", dtype, built, MOE_CLASS)
    for kind, rows in _classes([row for row in tables["comm"] if row["gpu"] != "l40s"], {}):
        library = "nccl" if kind == "nccl" else "engine"
        built = comm_rows(rows, library, constants, Kernels.ALL)
        priors = LINKS if library == "nccl" else ENGINE_LINKS
        yield _slice("collective", f"collectives {kind}", "", built, priors)


def _classes(rows: Sequence[Row], where: Mapping[str, str]) -> Iterator[tuple[str, list[Row]]]:
    """The rows in which columns hold what `where` says, by kernel class."""
    chosen = [row for row in rows if all(row[name] == text for name, text in where.items())]
    by_class: dict[str, list[Row]] = {}
    for row in chosen:
        by_class.setdefault(kernel_class(row), []).append(row)
    yield from sorted(by_class.items())


def _attention(phase: str, dtype: str) -> tuple[Prior, ...]:
    priors = PREFILL if phase == "prefill" else DECODE
    if dtype != "fp8":
        return priors
    narrow = PREFILL_FP8 if phase == "prefill" else DECODE_FP8
    return (*narrow, *priors[1:])


def _slice(name: str, title: str, dtype: str, rows: Rows, priors: tuple[Prior, ...]) -> ClassSlice:
    return ClassSlice(name, title, dtype, priors, rows)


def fit_classes(truth: Path, constants: Constants) -> Iterator[ClassConstants]:
    """Fit all classes under `truth`, each with a pool of its own over the accelerators that have rows."""
    for one in class_slices(truth, constants):
        pooled = fit_pooled(one.rows, one.priors, families(), one.rows.fitted)
        for leaf in sorted(set(one.rows.leaf)):
            values = {prior.name: pooled.values[prior.name, leaf] for prior in one.priors}
            yield ClassConstants(one.title, leaf, int((one.rows.leaf == leaf).sum()), values)


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


def read_classes(path: Path = FILE) -> dict[tuple[str, str], ClassConstants]:
    """The table by class and accelerator."""
    found = {}
    for row in read_rows(path):
        values = {name: float(row[name]) for name in row.keys() - KEYS if row[name]}
        key = (row["kernel"], row["accelerator"])
        found[key] = ClassConstants(*key, int(row["rows"]), values)
    return found


if __name__ == "__main__":
    write_classes(fit_classes(Path(sys.argv[1]), load_constants()))
