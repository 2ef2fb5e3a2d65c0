"""Rows of a truth table, as text and as numbers. What a row leaves blank is None, never 0."""

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from twofold.core import InputError, Place

Row = dict[str, str]

METRICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "training": ("step_time_s", "peak_mem_gib"),
        "inference": (
            "ttft_mean_ms", "ttft_p50_ms", "tpot_mean_ms", "tpot_p50_ms",
            "output_tok_s", "e2e_p50_ms", "e2e_p99_ms",
        ),
    }
)  # fmt: skip
"""What is measured of a row and predicted as `pred_…`."""


def read_rows(path: Path) -> list[Row]:
    """Every row of a CSV file as text by column name; a short row's missing cells are blank.

    Raises InputError where a column stands twice, a row has more cells than the header, or commas separate
    nothing: each would put figures under the wrong name without a word.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            lines = csv.reader(handle, strict=True)
            header = next(lines, [])
            _check_header(path, header)
            rows = [_row(path, header, cells, lines.line_num) for cells in lines if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path.name}' cannot be read as a CSV table: {error}") from error
    if not rows:
        raise InputError(f"'{path.name}' holds no rows", hint="the first line names the columns")
    return rows


def _check_header(path: Path, header: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise InputError(
            f"'{path.name}' has two columns `{twice[0]}`",
            place=Place(path.name, 1, 1),
            hint="remove one, or give it a name of its own",
        )
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(
            f"'{path.name}' separates its columns by other than commas",
            place=Place(path.name, 1, 1),
            hint="save it as comma-separated values",
        )


def _row(path: Path, header: Sequence[str], cells: Sequence[str], line: int) -> Row:
    if any(cells[len(header) :]):
        raise InputError(
            f"{len(cells)} cells where the header has {len(header)}",
            place=Place(path.name, line, 1),
            hint="put a cell that holds a comma in quotes",
        )
    padded = [*cells, *[""] * (len(header) - len(cells))]
    return {name: cell for name, cell in zip(header, padded, strict=False) if name}


def number(row: Row, column: str) -> float | None:
    """The positive finite number in `column`, or None where it is blank or no such number."""
    value = signed_number(row, column)
    return value if value is not None and value > 0 else None


def signed_number(row: Row, column: str) -> float | None:
    """As `number`, zero and negatives included."""
    try:
        value = float(row.get(column, "") or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def count(row: Row, column: str, default: int) -> int:
    """The whole number in `column`, or `default` where it is blank or less than one."""
    value = number(row, column)
    return default if value is None else max(1, round(value))


def text(row: Row, column: str) -> str:
    """The cell without surrounding space; blank where the column is missing."""
    return (row.get(column) or "").strip()


def measured_figures(half: str, row: Row) -> list[tuple[str, float]]:
    """(predicted metric, measured value) of a row. A benchmark of ten requests per slot reports means."""
    figures: list[tuple[str, float | None]] = []
    if half == "training":
        figures = [(name, number(row, name)) for name in METRICS[half]]
        return [(name, value) for name, value in figures if value]
    closed = "uniform" in row.get("isl_dist", "") and row.get("mode") != "online"
    for metric in ("ttft", "tpot"):
        mean, middle = number(row, f"{metric}_mean_ms"), number(row, f"{metric}_p50_ms")
        if mean or middle:
            as_mean = mean or (middle if closed else None)
            figures.append((f"{metric}_mean_ms", as_mean) if as_mean else (f"{metric}_p50_ms", middle))
    throughput = number(row, "output_tok_s")
    paced = row.get("request_rate_rps")  # there the rate that was asked for is what comes out
    if throughput and not paced:
        figures.append(("output_tok_s", throughput))
    return [(name, value) for name, value in figures if value]
