"""Sheets of values and formulas as data, and the one writer that makes an xlsx file of them.

The file is a function of its sheets: the same bytes whenever it is written. Each formula keeps the value that
it has, so that what does not compute (a preview, a reader of data) shows it as well.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple

from twofold.core.extras import require_extra
from twofold.core.tables import Cell, Head, Table

WIDEST = 60  # characters of a column; longer texts wrap
NARROWEST = 10
MADE = datetime(2000, 1, 1)  # a file of the same plan has the same bytes
LONGEST_NAME = 31  # of a sheet
NOT_IN_NAMES = str.maketrans(dict.fromkeys("[]:*?/\\'", "_"))
FORMATS = {"money": "#,##0.00", "price": "#,##0.00####", "share": "0.00%", "count": "#,##0.######"}


class Formula(NamedTuple):
    """A cell that follows from others, with what it comes to now."""

    text: str  # without its `=`
    value: float


class Input(NamedTuple):
    """A cell that is meant to be changed."""

    value: float


SheetCell = Cell | Formula | Input


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows below heads. `formats` has the kind of number of a column where it is not a plain one."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[SheetCell, ...], ...]
    formats: tuple[str, ...] = ()  # `money`, `price`, `share`, `count` or "", by column
    bold_rows: frozenset[int] = frozenset()  # totals, counted from 0


def sheet_of(table: Table, name: str = "") -> Sheet:
    """A table as it is, with the units of its columns above them."""
    return Sheet((name or table.name).translate(NOT_IN_NAMES)[:LONGEST_NAME], _heads(table.heads), table.rows)


def _heads(heads: Iterable[Head]) -> tuple[str, ...]:
    return tuple(f"{head.name} ({head.unit})" if head.unit else head.name for head in heads)


def address(row: int, column: int, sheet: str = "") -> str:
    """How formulas call a cell of a row below the heads, both counted from 0.

    >>> address(0, 4), address(2, 1, "Prices")
    ('E2', 'Prices!B4')
    """
    assert column < 26, column
    return f"{sheet}!" * bool(sheet) + f"{chr(ord('A') + column)}{row + 2}"


def written(sheets: Sequence[Sheet], title: str) -> bytes:
    """The xlsx file. Raises MissingExtraError without XlsxWriter."""
    require_extra("xlsx")
    import xlsxwriter

    sink = BytesIO()
    book = xlsxwriter.Workbook(sink, {"in_memory": True})
    book.set_properties({"title": title, "created": MADE})
    styles = _Styles(book)
    for sheet in sheets:
        _write(book.add_worksheet(sheet.name), sheet, styles)
    book.close()
    return sink.getvalue()


class _Styles:
    """Formats of one book, each made once. Mutable: a book hands out its own."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._made: dict[tuple[str, bool, bool], Any] = {}

    def of(self, kind: str, bold: bool = False, to_change: bool = False) -> Any:
        """A kind of number; bold in a total, on a ground of its own where it is to be changed."""
        key = (kind, bold, to_change)
        if key not in self._made:
            said: dict[str, Any] = {"valign": "top", "bold": bold, "text_wrap": kind == "text"}
            said |= {"num_format": FORMATS[kind]} if kind in FORMATS else {}
            said |= {"bg_color": "#FFF2CC"} if to_change else {}
            self._made[key] = self._book.add_format(said)
        return self._made[key]


def _write(page: Any, sheet: Sheet, styles: _Styles) -> None:
    page.freeze_panes(1, 0)
    for column, head in enumerate(sheet.heads):
        texts = [str(row[column]) for row in sheet.rows if isinstance(row[column], str)]
        width = min(max(NARROWEST, len(head), *map(len, texts), 0), WIDEST) + 2
        page.set_column(column, column, width)
        page.write_string(0, column, head, styles.of("text", bold=True))
    for at, row in enumerate(sheet.rows, 1):
        for column, cell in enumerate(row):
            kind = sheet.formats[column] if sheet.formats else ""
            _write_cell(page, (at, column), cell, kind, styles, at - 1 in sheet.bold_rows)


def _write_cell(
    page: Any, place: tuple[int, int], cell: SheetCell, kind: str, styles: _Styles, bold: bool
) -> None:
    if isinstance(cell, Formula):
        page.write_formula(*place, f"={cell.text}", styles.of(kind, bold), cell.value)
    elif isinstance(cell, Input):
        page.write_number(*place, cell.value, styles.of(kind, bold, to_change=True))
    elif isinstance(cell, bool):
        page.write_boolean(*place, cell, styles.of("", bold))
    elif isinstance(cell, int | float):
        page.write_number(*place, cell, styles.of(kind, bold))
    elif cell:
        page.write_string(*place, cell, styles.of("text", bold))  # a string, whatever it begins with
