"""How far measured kernels lie from what the fitted constants say, row by row.

The device's constants stand for the kernels of all engines together, because a plan names no kernel. A row of
the tables does, so it is predicted with the constants of its own kernel's class (`vllm marlin`, `sglang
triton`), which `kernel_classes.csv` holds. `held_out` rows (every fifth configuration, by a hash) were seen
by no fit: their errors are the honest ones. Left out, because nothing here predicts them: rows that caches
flattered, rows faster than the roofline allows, and collectives of the card whose links were measured
without peer access.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.measure.kernel_tables import (
    GEMM_FORMATS,
    MOE_FORMATS,
    Rows,
    attention_rows,
    comm_rows,
    gemm_rows,
    kernel_class,
    moe_rows,
    table,
)
from twofold.measure.results import Column, Figure
from twofold.measure.scores import Values
from twofold.measure.truth import Facets, Row, read_rows
from twofold.measure.validation import Part
from twofold.perf.constants import Constants

FILE = Path(__file__).parent / "kernel_classes.csv"
KEYS = {"kernel", "accelerator", "rows"}
TABLES = ("gemm", "attention", "comm", "moe")
LEAST_S = 50e-6  # shorter kernels are launch and clock


@dataclass(frozen=True, slots=True)
class KernelClass:
    """Who made kernels and how, in one part of a table."""

    table: str  # gemm attention collective moe
    title: str  # part of the table and class of kernel: `gemm fp8 vllm cutlass`
    format: str  # of the products, or of the cache in decode; blank for collectives


@dataclass(frozen=True, slots=True)
class KernelError:
    """One measured kernel and its prediction."""

    table: str
    facets: Facets  # its class stands as its source
    measured_s: float
    predicted_s: float
    held_out: bool


def class_slices(truth: Path, constants: Constants) -> Iterator[tuple[KernelClass, Rows]]:
    """Every class of every table with its rows, in the order of the tables."""
    tables = {name: table(truth, name) for name in TABLES}
    for dtype in GEMM_FORMATS:
        for kind, rows in _classes(tables["gemm"], {"dtype": dtype}):
            yield KernelClass("gemm", f"gemm {dtype} {kind}", dtype), gemm_rows(rows, dtype, constants)
    for phase, column in (("prefill", "dtype"), ("decode", "kv_dtype")):
        for dtype in ("bfloat16", "fp8"):
            for kind, rows in _classes(tables["attention"], {"phase": phase, column: dtype}):
                built = attention_rows(rows, phase, dtype, constants)
                yield KernelClass("attention", f"{phase} {dtype} {kind}", dtype), built
    for dtype in MOE_FORMATS:
        for kind, rows in _classes(tables["moe"], {"dtype": dtype}):
            built = moe_rows(rows, dtype, constants)
            yield KernelClass("moe", f"experts {dtype} {kind}", dtype), built
    for kind, rows in _classes([row for row in tables["comm"] if row["gpu"] != "l40s"], {}):
        library = "nccl" if kind == "nccl" else "engine"
        built = comm_rows(rows, library, constants)
        yield KernelClass("collective", f"collectives {kind}", ""), built


def _classes(rows: Sequence[Row], where: Mapping[str, str]) -> Iterator[tuple[str, list[Row]]]:
    """The rows in which columns hold what `where` says, by kernel class."""
    chosen = [row for row in rows if all(row[name] == text for name, text in where.items())]
    by_class: dict[str, list[Row]] = {}
    for row in chosen:
        by_class.setdefault(kernel_class(row), []).append(row)
    yield from sorted(by_class.items())


def read_classes(path: Path = FILE) -> dict[tuple[str, str], Mapping[str, float]]:
    """The constants of each class of kernels on each accelerator."""
    return {
        (row["kernel"], row["accelerator"]): {
            name: float(row[name]) for name in row.keys() - KEYS if row[name]
        }
        for row in read_rows(path)
    }


def kernel_parts(folder: Path, constants: Constants) -> list[Part]:
    """One part for each table of kernels; the class of a kernel stands as its source."""
    by_table: dict[str, list[KernelError]] = {}
    for error in kernel_errors(folder, constants):
        if error.held_out and error.measured_s > LEAST_S:
            by_table.setdefault(error.table, []).append(error)
    parts = []
    for name, errors in by_table.items():
        measured, predicted = np.array([(error.measured_s, error.predicted_s) for error in errors]).T
        none = np.full(len(errors), np.nan)
        facets = tuple(error.facets for error in errors)
        figure = Figure("kernels", name, f"{name} kernels above 50 µs", ())
        rows = tuple({"id": str(place)} for place in range(len(errors)))
        answers = {Column.SEEN: Values(measured, predicted, none, none, none, none)}
        parts.append(Part(figure, rows, facets, np.zeros(len(errors), bool), answers))
    return parts


def kernel_errors(truth: Path, constants: Constants) -> list[KernelError]:
    """All scored rows of the kernel tables under `truth`, with shipped constants."""
    known = read_classes()
    found: list[KernelError] = []
    for kind, rows in class_slices(truth, constants):
        values = {
            name: np.array([known[kind.title, leaf][name] for leaf in rows.leaf])
            for name in known[kind.title, rows.leaf[0]]
        }
        predicted_s = rows.predict(values)
        for i in np.flatnonzero(rows.possible):
            phase = str(rows.group[i]) if kind.table != "gemm" else ""  # prefill, decode, an operation …
            facets = Facets(kind.title, str(rows.leaf[i]), phase=phase, precision=kind.format, known="yes")
            times_s = float(rows.measured_s[i]), float(predicted_s[i])
            found.append(KernelError(kind.table, facets, *times_s, bool(rows.held_out[i])))
    return found
