"""Measured kernels as parts of the evidence: those above 50 µs, on configurations that no fit saw."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from twofold.measure.facets import Facets
from twofold.measure.kernel_scores import KernelError, kernel_errors
from twofold.measure.scores import Values
from twofold.measure.validation import Column, Figure, Part
from twofold.perf import Constants

LEAST_S = 50e-6  # shorter kernels are launch and clock


def kernel_parts(folder: Path, constants: Constants) -> list[Part]:
    """One part for each table of kernels; the class of a kernel stands as its source."""
    found = [
        error for error in kernel_errors(folder, constants) if error.held_out and error.measured_s > LEAST_S
    ]
    tables = dict.fromkeys(error.table for error in found)
    return [_part(table, [error for error in found if error.table == table]) for table in tables]


def _part(table: str, errors: Sequence[KernelError]) -> Part:
    measured = np.array([error.measured_s for error in errors])
    predicted = np.array([error.predicted_s for error in errors])
    none = np.full(len(errors), np.nan)
    return Part(
        figure=Figure("kernels", table, f"{table} kernels above 50 µs", ()),
        rows=tuple({"id": str(place)} for place in range(len(errors))),
        facets=tuple(_facets(error) for error in errors),
        assumed=np.zeros(len(errors), bool),
        answers={Column.SEEN: Values(measured, predicted, none, none, none, none)},
    )


def _facets(error: KernelError) -> Facets:
    return Facets(
        source=error.title,
        gpu=error.accelerator,
        framework="",
        arch="",
        phase=error.phase,
        precision=error.format,
        recompute="",
        known="yes",
    )
