"""How a source fares that the fit never saw: written by the fits, shown on the accuracy page.

The fits leave each source out in turn, from a cold start; what they then get wrong is the honest error of an
unseen source. Those errors also make the ranges, so coverage is not repeated here.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.measure.blind import BlindRow
from twofold.perf import ConstantRow, Seen

FILE = Path(__file__).parent / "left_out.csv"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors on one source of a fit that never saw it; fractions of the measured value."""

    half: str  # training or inference
    figure: str
    source: str
    kind: str  # dense moe mla
    rows: int
    mean_error: float
    median_error: float
    bias: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a fit gives: the rows it owns, how left-out sources fared, its constants without each."""

    rows: list[ConstantRow]
    left_out: tuple[LeftOut, ...] = ()
    blind: tuple[BlindRow, ...] = ()
    seen: tuple[Seen, ...] = ()


def left_out_errors(
    half: str, figure: str, log_errors: Mapping[tuple[str, str], NDArray[np.float64]]
) -> tuple[LeftOut, ...]:
    """One line per (source, kind) of log(predicted / measured)."""
    found = []
    for (source, kind), log_error in sorted(log_errors.items()):
        error = np.abs(np.expm1(log_error))
        means = (float(error.mean()), float(np.median(error)), float(np.expm1(np.mean(log_error))))
        found.append(LeftOut(half, figure, source, kind, error.size, *means))
    return tuple(found)


def read_left_out(path: Path = FILE) -> tuple[LeftOut, ...]:
    """The lines of all fits."""
    with path.open(newline="", encoding="utf-8") as handle:
        return tuple(
            LeftOut(
                row["half"],
                row["figure"],
                row["source"],
                row["kind"],
                int(row["rows"]),
                *(float(row[name]) for name in ("mean_error", "median_error", "bias")),
            )
            for row in csv.DictReader(handle)
        )


def write_left_out(half: str, lines: Iterable[LeftOut], path: Path = FILE) -> None:
    """Replace the lines of one half."""
    kept = [line for line in read_left_out(path) if line.half != half] if path.exists() else []
    names = [field.name for field in fields(LeftOut)]
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(names)
        for line in sorted([*kept, *lines], key=attrgetter("half", "figure", "source", "kind")):
            cells = (getattr(line, name) for name in names)
            writer.writerow([f"{cell:.4f}" if isinstance(cell, float) else cell for cell in cells])
