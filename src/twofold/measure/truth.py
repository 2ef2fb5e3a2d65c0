"""Rows of a truth table, as text and as numbers. What a row leaves blank is None, never 0."""

import csv
import math
from pathlib import Path

from twofold.core import InputError

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """Every row of a CSV file as text by column name; a short row's missing cells are blank."""
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle, restval="", strict=True)
            rows = [{key: value or "" for key, value in row.items() if key} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path.name}' cannot be read as a CSV table: {error}") from error
    if not rows:
        raise InputError(f"'{path.name}' holds no rows", hint="the first line names the columns")
    return rows


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
