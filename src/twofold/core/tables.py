"""One shape for every table of figures, and its ways out: CSV for a spreadsheet, a frame for a notebook."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from twofold.core.errors import UnknownNameError

Cell = str | int | float | bool | None
# What a spreadsheet would take a text for a formula by; a number is none, whatever its sign.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class Head(NamedTuple):
    """What stands above a column."""

    name: str
    unit: str = ""  # SI, as `Estimate.unit` writes it; "" where the column has none, or several


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of unrounded values, as many in each as there are heads."""

    name: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def csv(self) -> str:
        """A line of names, then the rows; absent is empty, and no text is a formula."""
        if not self.heads:
            return ""
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow([harmless(head.name) for head in self.heads])
        writer.writerows([_written(cell) for cell in row] for row in self.rows)
        return sink.getvalue()

    def to_frame(self) -> Any:
        """A pandas DataFrame; `attrs["units"]` has the units of its columns. Raises ImportError."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("`to_frame` needs pandas: pip install pandas") from error
        frame = pandas.DataFrame(self.rows, columns=[head.name for head in self.heads])
        frame.attrs = {"name": self.name, "units": {name: unit for name, unit in self.heads if unit}}
        return frame


def table_of(name: str, rows: Iterable[Mapping[str, Cell]], units: Mapping[str, str]) -> Table:
    """Rows by column as a table: a column stands where a row has it first.

    >>> table_of("bill", [{"what": "rent", "usd": 2.5}, {"what": "=1+1"}], {"usd": "USD"}).csv
    "what,usd\\nrent,2.5\\n'=1+1,\\n"
    """
    held = list(rows)
    names = list(dict.fromkeys(name for row in held for name in row))
    cells = tuple(tuple(row.get(name) for name in names) for row in held)
    return Table(name, tuple(Head(name, units.get(name, "")) for name in names), cells)


def table_named(tables: Sequence[Table], name: str) -> Table:
    """The table of a name, the main one without. Raises UnknownNameError with those that there are."""
    by_name = {table.name: table for table in tables}
    if name and name not in by_name:
        near = get_close_matches(name, by_name, n=1)
        meant = f"did you mean `{near[0]}`? " if near else ""
        raise UnknownNameError(f"there is no table `{name}`", hint=f"{meant}tables: {', '.join(by_name)}")
    return by_name[name] if name else tables[0]


def harmless(text: str) -> str:
    """A text that no spreadsheet runs: behind an apostrophe where it would be a formula.

    >>> harmless("=HYPERLINK(A1)"), harmless("llama-3.1")
    ("'=HYPERLINK(A1)", 'llama-3.1')
    """
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _written(cell: Cell) -> Cell:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return harmless(cell) if isinstance(cell, str) else cell


def joined(cells: Sequence[Any]) -> str:
    """A list in one cell.

    >>> joined(["us-east", 3, None])
    'us-east; 3; '
    """
    return "; ".join("" if cell is None else str(_written(cell)) for cell in cells)
