"""How far measured kernels lie from what the fitted constants say, row by row.

`held_out` rows (every fifth configuration, by a hash) were seen by no fit: their errors are the honest ones.
A row is predicted with the constants of its own kernel's class, since the tables name the kernel. Left out,
because nothing here predicts them: rows that caches flattered, rows faster than the roofline allows
(`impossible_rows`), and collectives of the card whose links were measured without peer access.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.measure.fit_kernel_classes import ClassSlice, class_slices, read_classes
from twofold.measure.pooled import Array
from twofold.perf import Constants


@dataclass(frozen=True, slots=True)
class KernelError:
    """One measured kernel and its prediction."""

    table: str  # gemm attention collective moe
    title: str  # part of the table and class of kernel: `gemm fp8 vllm cutlass`
    accelerator: str
    format: str  # of the products, or of the cache in decode; blank for collectives
    phase: str  # prefill, decode, a collective's operation, a way of routing; blank for products
    measured_s: float
    predicted_s: float
    held_out: bool


def kernel_errors(truth: Path, constants: Constants) -> list[KernelError]:
    """All scored rows of the kernel tables under `truth`, with shipped constants."""
    known = read_classes()
    found: list[KernelError] = []
    for one in class_slices(truth, constants):
        values = {
            prior.name: np.array([known[one.title, leaf].values[prior.name] for leaf in one.rows.leaf])
            for prior in one.priors
        }
        found += _errors(one, one.rows.predict(values))
    return found


def impossible_rows(truth: Path, constants: Constants) -> dict[str, int]:
    """How many rows of each table took less time than the peaks allow; no fit and no score uses them."""
    found: dict[str, int] = {}
    for one in class_slices(truth, constants):
        found[one.table] = found.get(one.table, 0) + int((~one.rows.possible).sum())
    return found


def _errors(one: ClassSlice, predicted_s: Array) -> list[KernelError]:
    rows = one.rows
    phases = rows.group if one.table != "gemm" else [""] * rows.leaf.size
    columns = zip(rows.leaf, phases, rows.measured_s, predicted_s, rows.held_out, rows.possible, strict=True)
    return [
        KernelError(
            one.table,
            one.title,
            str(leaf),
            one.format,
            str(phase),
            float(measured_s),
            float(predicted),
            bool(held_out),
        )
        for leaf, phase, measured_s, predicted, held_out, possible in columns
        if possible
    ]
