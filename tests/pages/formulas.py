"""The formulas of a workbook worked out by rules of our own, from the XML of the file alone."""

import re
import zipfile
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from io import BytesIO
from xml.etree import ElementTree

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
TOKEN = re.compile(r"(?:(?P<sheet>\w+)!)?(?P<cell>[A-Z]\d+)(?::(?P<end>[A-Z]\d+))?|(?P<word>ROUND|SUM)\(")


@dataclass
class Book:
    """Every cell of a file: text, number or `=formula`, by sheet and address; and the values that it kept."""

    cells: dict[tuple[str, str], str | float] = field(default_factory=dict)
    kept: dict[tuple[str, str], float] = field(default_factory=dict)
    worked_out: dict[tuple[str, str], float] = field(default_factory=dict)

    def value(self, sheet: str, cell: str) -> float:
        """What a cell comes to."""
        if (sheet, cell) not in self.worked_out:
            held = self.cells.get((sheet, cell), 0.0)
            if isinstance(held, str):
                assert held.startswith("="), (sheet, cell, held)
                held = self._evaluated(held[1:], sheet)
            self.worked_out[sheet, cell] = held
        return self.worked_out[sheet, cell]

    def change(self, sheet: str, cell: str, value: float) -> None:
        """What a person writes into a cell."""
        assert isinstance(self.cells[sheet, cell], float)
        self.cells[sheet, cell] = value
        self.worked_out.clear()

    def column(self, sheet: str, letter: str) -> list[str | float]:
        """What stands below a head, from above."""
        rows = sorted(int(cell[1:]) for name, cell in self.cells if name == sheet and cell[0] == letter)
        return [self.cells[sheet, f"{letter}{row}"] for row in rows if row > 1]

    def _evaluated(self, text: str, sheet: str) -> float:
        def called(found: re.Match[str]) -> str:
            if found["word"]:
                return f"{found['word']}("
            name, first, end = found["sheet"] or sheet, found["cell"], found["end"]
            if not end:
                return f"at({name!r}, {first!r})"
            rows = range(int(first[1:]), int(end[1:]) + 1)
            return ", ".join(f"at({name!r}, {first[0] + str(row)!r})" for row in rows)

        python = TOKEN.sub(called, text)
        names = {"__builtins__": {}, "at": self.value, "ROUND": half_up, "SUM": lambda *parts: sum(parts)}
        return float(eval(python, names))


def half_up(value: float, decimals: int) -> float:
    """As spreadsheets round: what is half of a cent to fifteen digits goes up, away from zero."""
    shown = Decimal(f"{value:.15g}")
    return float(shown.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))


def read_book(data: bytes) -> Book:
    """The file as its XML has it."""
    book = Book()
    with zipfile.ZipFile(BytesIO(data)) as parts:
        shared = [
            "".join(each.text or "" for each in entry.iter(f"{MAIN}t"))
            for entry in ElementTree.fromstring(parts.read("xl/sharedStrings.xml"))
        ]
        names = [
            each.get("name", "")
            for each in ElementTree.fromstring(parts.read("xl/workbook.xml")).iter(f"{MAIN}sheet")
        ]
        for number, name in enumerate(names, 1):
            for cell in ElementTree.fromstring(parts.read(f"xl/worksheets/sheet{number}.xml")).iter(
                f"{MAIN}c"
            ):
                _read_cell(book, name, cell, shared)
    return book


def _read_cell(book: Book, sheet: str, cell: ElementTree.Element, shared: list[str]) -> None:
    place = (sheet, cell.get("r", ""))
    formula, value = cell.find(f"{MAIN}f"), cell.find(f"{MAIN}v")
    if formula is not None:
        book.cells[place] = f"={formula.text}"
        book.kept[place] = float(value.text or "nan") if value is not None else float("nan")
    elif value is not None:
        text = value.text or ""
        book.cells[place] = shared[int(text)] if cell.get("t") == "s" else float(text)
