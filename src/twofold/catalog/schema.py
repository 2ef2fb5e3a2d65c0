"""What every column of every table means: one table, from which loader, messages and pages follow."""

import csv
import datetime
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Cell = str | int | float | bool | None

DATA = Path(__file__).parent / "data"

# What one unit of a column is in SI. Units that are SI already, or ratios, are absent.
SI_FACTOR = {
    "GB": 1e9,
    "GiB": 2.0**30,
    "TB": 1e12,
    "MB": 1e6,
    "GB/s": 1e9,
    "Gbit/s": 1e9 / 8,
    "TFLOP/s": 1e12,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}
# A type that names a table holds the names of its rows.
REFERENCES = {"accelerator": "accelerators", "fabric": "fabrics"}
LARGEST = 1e18  # no figure of a table is larger; NaN and infinity fail the comparison
DATE_PRECISION = {4: "year", 7: "month", 10: "day"}  # by the letters of a date
EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "flag": "0 or 1",
    "date": "a date such as 2026-07-20",
}
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one table, as schema.csv states it."""

    name: str
    field: str  # the name inside, in SI
    key: int  # 1: rows that agree in these override one another; 2: tells rows of one file apart
    type: str  # text int float flag date, the name of a table, or the allowed words between bars
    unit: str
    default: str  # "": the cell must be filled; "none": it may stay empty
    range: str
    meaning: str

    def read(self, text: str) -> Cell:
        """The cell as a number, flag or text, in the column's own unit. ValueError says what to write."""
        if text and self.type == "text":  # most cells
            return text
        if not text:
            if not self.default:
                raise ValueError(f"`{self.name}` is empty; write {self.expected()}")
            if self.default == "none":
                return "" if self.is_text() else None
            text = self.default
        match self.type:
            case "int" | "float":
                return self._number(text)
            case "flag":
                if text not in {"0", "1"}:
                    raise ValueError(f"`{text}` is not a flag; write {self.expected()}")
                return text == "1"
            case "date" if not _is_date(text):
                raise ValueError(f"`{text}` is not a date; write {self.expected()}")
        if "|" in self.type and text not in self.type.split("|"):
            raise ValueError(f"`{text}` is not one of its words; write {self.expected()}")
        return text

    def si(self, cell: Cell) -> Cell:
        """The number in SI; anything else as it is."""
        factor = SI_FACTOR.get(self.unit)
        return cell * factor if factor and isinstance(cell, (int, float)) else cell

    def is_text(self) -> bool:
        return self.type not in {"int", "float", "flag"}

    def expected(self) -> str:
        """What a good cell looks like, in words."""
        if "|" in self.type:
            return "one of " + ", ".join(self.type.split("|"))
        kind = "text"
        if self.type in REFERENCES:
            kind = f"a name of table {REFERENCES[self.type]}"
        words = EXPECTED.get(self.type, kind)
        unit = f" in {self.unit}" if self.unit else ""
        bounds = ""
        if ".." in self.range:
            bounds = ", from " + self.range.replace("..", " to ")
        elif self.range:
            at_least = self.range.startswith(">=")
            bounds = f", {self.range[2:]} or more" if at_least else f", above {self.range[1:]}"
        return f"{words}{unit}{bounds}"

    def _number(self, text: str) -> Cell:
        try:
            number = int(text) if self.type == "int" else float(text)
        except ValueError:
            raise ValueError(f"`{text}` is not {self.expected()}") from None
        low, high, low_is_outside = _limits(self.range) if self.range else (-LARGEST, LARGEST, False)
        is_inside = low <= number <= high and not (low_is_outside and number == low)
        if not -LARGEST <= number <= LARGEST or not is_inside:
            raise ValueError(f"`{text}` is out of range; write {self.expected()}")
        return number


@cache
def schema() -> dict[str, tuple[Column, ...]]:
    """The columns of every table, in the order of the files."""
    tables: dict[str, list[Column]] = {}
    with (DATA / "schema.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        for table, name, field, key, *rest in lines:
            tables.setdefault(table, []).append(Column(name, field, int(key or 0), *rest))
    return {table: tuple(columns) for table, columns in tables.items()}


def _is_date(text: str) -> bool:
    """A year, a month or a day that the calendar has."""
    try:
        datetime.date.fromisoformat(text + "-01-01"[len(text) - 4 :])
    except ValueError:
        return False
    return bool(_DATE.fullmatch(text))


@cache
def _limits(bounds: str) -> tuple[float, float, bool]:
    """Lowest and highest number of a range, and whether the lowest is outside of it."""
    if ".." in bounds:
        low, high = bounds.split("..")
        return float(low), float(high), False
    low = bounds.lstrip(">=") or "-inf"
    return float(low), math.inf, bounds.startswith(">") and not bounds.startswith(">=")
