"""CSV tables that people write: lines with their cells, and where in the file each cell stands."""

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

from twofold.core.errors import InputError, Place


class CsvLine(NamedTuple):
    """A line that is not empty."""

    file: str
    number: int  # where it starts, from 1
    text: str  # as written, up to its first line break
    cells: list[str]  # without the blanks around them

    def place(self, index: int = 0) -> Place:
        """Where a cell starts; the line's start for one that stands behind a line break inside quotes."""
        if not index:  # without a search: every row of the catalogue is asked for its own
            return Place(self.file, self.number, 1)
        starts, quoted = [0], False
        for position, letter in enumerate(self.text, 1):
            if letter == '"' == self.text[starts[-1]]:  # elsewhere than first it opens nothing
                quoted = not quoted
            if letter == "," and not quoted:
                starts.append(position)
        start = starts[index] if index < len(starts) else 0
        cell = self.text[start:]
        return Place(self.file, self.number, 1 + start + len(cell) - len(cell.lstrip()))


def csv_lines(data: bytes, file: str, limit_bytes: int, error: type[InputError]) -> Iterator[CsvLine]:
    """Every line of a table. Raises `error`, with its place, for what is too large, not UTF-8 or no CSV."""
    hint = "save the table as CSV in UTF-8"
    if len(data) > limit_bytes:
        raise error(f"the file is larger than {limit_bytes >> 20} MiB", place=Place(file, 1, 1))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        place = Place(file, data.count(b"\n", 0, wrong.start) + 1, 1)
        raise error("this is not UTF-8 text", place=place, hint=hint) from None
    if "\0" in text:
        raise error("this is not text", place=Place(file, 1, 1), hint=hint)
    written = list(io.StringIO(text, newline=""))
    reader, number = csv.reader(written, strict=True), 1
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield CsvLine(file, number, written[number - 1].rstrip("\r\n"), cells)
            number = reader.line_num + 1
    except csv.Error as wrong:
        raise error(f"not readable as CSV: {wrong}", place=Place(file, number, 1)) from None
