"""Text on a screen of fixed width: fields that wrap between their pieces, and tables. No numbers here.

Tables alone may be wider, where nobody reads them on a screen: cells do not wrap then, and no column goes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from textwrap import wrap
from typing import TypeVar

WIDTH = 100
INDENT = 13  # where the text of a field begins
DOT = " · "
Row = TypeVar("Row")
TIED = "\N{NO-BREAK SPACE}"
ENDLESS = 1_000_000  # columns: wider than any table
_table_columns = ContextVar("table_columns", default=WIDTH)


@contextmanager
def tables_within(columns: int) -> Iterator[None]:
    """Tables that are made meanwhile may be so many columns wide."""
    before = _table_columns.set(columns)
    try:
        yield
    finally:
        _table_columns.reset(before)


def table_columns() -> int:
    """How wide a table may be."""
    return _table_columns.get()


def field(label: str, *pieces: str, separator: str = DOT) -> list[str]:
    """`  label      piece · piece`, broken between pieces; a piece wider than the screen at its spaces.

    Empty pieces are left out, and a field that has no others.

    >>> field("layout", "TP 8", "", "PP 4"), field("price", "")
    (['  layout     TP 8 · PP 4'], [])
    """
    return heading(f"  {label}", *pieces, separator=separator)


def heading(head: str, *pieces: str, separator: str = DOT) -> list[str]:
    """A field whose label stands at the margin."""
    room = WIDTH - INDENT
    lines: list[str] = []
    for part in (part for piece in pieces if piece for part in _fitting(piece, room)):
        joined = f"{lines[-1]}{separator}{part}" if lines else part
        lines = [*lines[:-1], joined] if len(joined) <= room else [*lines, part]
    if len(head) >= INDENT:
        return [head[:WIDTH], *(" " * INDENT + line for line in lines)]
    return [(head if number == 0 else "").ljust(INDENT) + line for number, line in enumerate(lines)]


def titled(label: str, title: str, rows: Sequence[str]) -> list[str]:
    """A heading above the rows of a table; nothing where there is only the table's head."""
    return [*heading(label, title), *rows] if len(rows) > 1 else []


def both_ends(left: str, right: str) -> list[str]:
    """One line with both ends filled; the right end goes below when they do not fit side by side."""
    if len(left) + 2 + len(right) <= WIDTH:
        return [left + right.rjust(WIDTH - len(left)) if right else left]
    lines = wrap(left, WIDTH, subsequent_indent=" " * 10)
    return [*lines, right.rjust(WIDTH)] if len(right) <= WIDTH else [*lines, *wrap(right, WIDTH)]


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()
) -> list[str]:
    """Columns as wide as what they hold, those in `numbers` set right; cells too wide for the screen wrap.

    >>> table(["part", "GiB"], [["weights", "4.1"], ["gradients", "12.0"]], numbers=[1])
    ['  part        GiB', '  weights     4.1', '  gradients  12.0']
    """
    cells = [list(headings), *(list(row) for row in rows)]
    columns = [[row[i] for row in cells] for i in range(len(headings))]
    widths = _narrowed(
        [max(map(len, column)) for column in columns],
        [max((len(word) for text in column for word in _words(text)), default=0) for column in columns],
    )
    lines = []
    for row in cells:
        parts = [_fitting(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for depth in range(max(map(len, parts), default=0)):
            texts = [part[depth] if depth < len(part) else "" for part in parts]
            line = "  ".join(
                text.rjust(width) if column in numbers else text.ljust(width)
                for column, (text, width) in enumerate(zip(texts, widths, strict=True))
            )
            lines.append(f"  {line}".rstrip())
    return lines


def listed(rows: Iterable[Row], *columns: tuple[str, Callable[[Row], str]]) -> list[str]:
    """A table of values: what heads each column, behind a `>` that sets it right, and how a row is written.

    >>> listed([("weights", 4.1)], ("part", lambda row: row[0]), (">GiB", lambda row: f"{row[1]:.1f}"))
    ['  part     GiB', '  weights  4.1']
    """
    heads = [head for head, _ in columns]
    return table(
        [head.removeprefix(">") for head in heads],
        [[write(row) for _, write in columns] for row in rows],
        numbers=[index for index, head in enumerate(heads) if head.startswith(">")],
    )


def stacked(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Blocks of lines below one another, an empty line between two; a block without lines is left out."""
    return "\n\n".join("\n".join(block) for block in blocks if block).split("\n")


def _narrowed(widths: list[int], least: list[int]) -> list[int]:
    """Takes from the widest column until the row fits: first from those that hold no word so wide.

    Words break only where all of them are too wide together, and no column falls below four characters.
    """
    room = table_columns() - 2 * len(widths)
    while sum(widths) > room and max(widths) > 4:
        spare = [width if width > floor else 0 for width, floor in zip(widths, least, strict=True)]
        widest = spare if any(spare) else widths
        widths[widest.index(max(widest))] -= 1
    return widths


def _words(text: str) -> list[str]:
    """What stays on one line: a range with its source letter, a count with what it counts, a percentage."""
    tied = text.replace("] ", f"]{TIED}").replace(" × ", f"{TIED}×{TIED}").replace(" %", f"{TIED}%")
    return [word for word in tied.split(" ") if word]


def _fitting(text: str, width: int) -> list[str]:
    """The text in pieces of at most `width`: whole where it fits, else broken at spaces, else anywhere.

    >>> _fitting("2.0 ktok/s [1.2–3.0] f", 20)
    ['2.0 ktok/s', '[1.2–3.0] f']
    """
    if len(text) <= width:
        return [text]
    pieces = wrap(" ".join(_words(text)), width, break_on_hyphens=False)
    return [piece.replace(TIED, " ") for piece in pieces]
