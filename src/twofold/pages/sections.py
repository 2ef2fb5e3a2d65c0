"""The page of an answer as plain data that HTML and Markdown are made of: titles, tables and pictures."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from twofold.charts.chart import Chart
from twofold.pages.html import element, link, page, pictures, table, text

MARKS = re.compile(r"[\\`*_\[\]<>|#&]")  # what Markdown reads as more than itself
NOTES = "notes"
FIGURE = re.compile(r"(?<![\w.-])[-+~<>]?\d")  # a number, and no part of a name such as p95 or H100-80GB


@dataclass(frozen=True, slots=True)
class Linked:
    """A number that leads to how it was found, further down the same page."""

    text: str
    path: str


Cell = str | Linked


def led(path: str, *cells: Cell) -> tuple[Cell, ...]:
    """Cells of which those with a number lead to how it was found.

    >>> led("here", "p95", "12 s", "–")
    ('p95', Linked(text='12 s', path='here'), '–')
    """
    return tuple(
        Linked(each, path) if isinstance(each, str) and FIGURE.search(each) else each for each in cells
    )


def range_of(first: int, after: int) -> tuple[int, ...]:
    """Columns that hold numbers."""
    return tuple(range(first, after))


@dataclass(frozen=True, slots=True)
class Derived:
    """Where one number comes from, or those of one row."""

    path: str
    how: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A title, sentences, and a table below them; one without rows and sentences is left out."""

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    numbers: tuple[int, ...] = ()  # columns that are set right
    sentences: tuple[Cell, ...] = ()
    derived: tuple[Derived, ...] = ()  # what its numbers lead to


def notes_section(notes: Sequence[str], how: str) -> Section:
    """What is to be known beside the figures; `how` says where those in the notes come from."""
    known = (Derived(NOTES, how),) if notes else ()
    return Section("Worth knowing", sentences=led(NOTES, *notes), derived=known)


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page of one answer shows, in its order."""

    title: str  # of the file
    head: str
    intro: Cell
    first: tuple[Section, ...]  # above the pictures
    made_by: str = ""
    charts: tuple[Chart, ...] | None = None  # None: the page has no part for them
    rest: tuple[Section, ...] = ()
    screen: tuple[str, ...] = ()  # lines of a terminal
    derived: tuple[Derived, ...] = ()  # of the intro, and what several sections lead to

    @property
    def html(self) -> str:
        """The page, one file without script."""
        return page(
            self.title,
            element("h1", text(self.head)),
            element("p", _cell(self.intro)),
            *([element("p", text(self.made_by), cls="soft")] if self.made_by else []),
            *_html_sections(self.first),
            *([element("h2", "Pictures"), pictures(self.charts)] if self.charts is not None else []),
            *_html_sections(self.rest),
            *self._html_screen(),
            *_html_derived([*self.derived, *(one for each in self._sections for one in each.derived)]),
        )

    @property
    def _sections(self) -> tuple[Section, ...]:
        return (*self.first, *self.rest)

    def _html_screen(self) -> Iterator[str]:
        if self.screen:
            yield element("h2", "As a terminal shows it")
            yield element("div", element("pre", text("\n".join(self.screen))), cls="wide")

    @property
    def markdown(self) -> str:
        """The same without pictures, for a pull request."""
        lines = [f"# {plain(self.head)}", "", plain(_text(self.intro))]
        lines += _markdown_sections(self._sections)
        lines += ["", plain(self.made_by)] if self.made_by else []
        return "\n".join(lines) + "\n"


def _html_sections(sections: Iterable[Section]) -> Iterator[str]:
    """As elements; what is missed (`✗`) stands out."""
    for each in sections:
        if not each.rows and not each.sentences:
            continue
        yield element("h2", text(each.title))
        if each.sentences:
            yield element("ul", *(element("li", _cell(said)) for said in each.sentences))
        if each.rows:
            rows = [tuple(map(_cell, row)) for row in each.rows]
            yield table(tuple(map(text, each.heads)), rows, each.numbers)


def _html_derived(derived: Sequence[Derived]) -> Iterator[str]:
    """Every number's own entry, which links lead to."""
    if derived:
        yield element("h2", "Where the numbers come from")
        entries = (
            element("dt", text(f"{each.path}: {each.how}"), id=each.path)
            + element(
                "dd", element("ul", *(element("li", text(part)) for part in each.parts)) if each.parts else ""
            )
            for each in derived
        )
        yield element("dl", *entries)


def _markdown_sections(sections: Iterable[Section]) -> list[str]:
    """As lines; links are left out, since a pull request has no page below it."""
    lines: list[str] = []
    for each in sections:
        if not each.rows and not each.sentences:
            continue
        lines += ["", f"## {plain(each.title)}", ""]
        lines += [f"- {plain(_text(said))}" for said in each.sentences]
        if each.rows:
            lines += [""] if each.sentences else []
            lines += markdown_table(each.heads, [tuple(map(_text, row)) for row in each.rows])
    return lines


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of texts as lines; nothing of no rows."""
    body = [f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *body] if body else []


def plain(said: str) -> str:
    """A text that is itself where it stands: no mark-up, no element, no end of its line or cell."""
    return MARKS.sub(r"\\\g<0>", " ".join(said.split()))


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Linked) else cell


def _cell(cell: Cell) -> str:
    return link(cell.text, cell.path) if isinstance(cell, Linked) else _marked(cell)


def _marked(said: str) -> str:
    return element("span", text(said), cls="bad") if said.startswith("✗") else text(said)
