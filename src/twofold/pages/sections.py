"""The page of an answer as plain data that HTML and Markdown are made of: titles, tables and pictures."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from twofold.charts.chart import Chart
from twofold.pages.html import element, page, pictures, table, text

MARKS = re.compile(r"[\\`*_\[\]<>|#&]")  # what Markdown reads as more than itself


@dataclass(frozen=True, slots=True)
class Linked:
    """A number that leads to how it was found, further down the same page."""

    text: str
    path: str


Cell = str | Linked


@dataclass(frozen=True, slots=True)
class Section:
    """A title, sentences, and a table below them; one without rows and sentences is left out."""

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    numbers: tuple[int, ...] = ()  # columns that are set right
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived:
    """Where one number comes from."""

    path: str
    how: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page of one answer shows, in its order."""

    title: str  # of the file
    head: str
    intro: str
    first: tuple[Section, ...]  # above the pictures
    made_by: str = ""
    charts: tuple[Chart, ...] | None = None  # None: the page has no part for them
    rest: tuple[Section, ...] = ()
    screen: tuple[str, ...] = ()  # lines of a terminal
    derived: tuple[Derived, ...] = ()

    @property
    def html(self) -> str:
        """The page, one file without script."""
        return page(
            self.title,
            element("h1", text(self.head)),
            element("p", text(self.intro)),
            *([element("p", text(self.made_by), cls="soft")] if self.made_by else []),
            *_html_sections(self.first),
            *([element("h2", "Pictures"), pictures(self.charts)] if self.charts is not None else []),
            *_html_sections(self.rest),
            *self._html_screen(),
            *_html_derived(self.derived),
        )

    def _html_screen(self) -> Iterator[str]:
        if self.screen:
            yield element("h2", "As a terminal shows it")
            yield element("div", element("pre", text("\n".join(self.screen))), cls="wide")

    @property
    def markdown(self) -> str:
        """The same without pictures, for a pull request."""
        lines = [f"# {plain(self.head)}", "", plain(self.intro)]
        lines += _markdown_sections((*self.first, *self.rest))
        lines += ["", plain(self.made_by)] if self.made_by else []
        return "\n".join(lines) + "\n"


def _html_sections(sections: Iterable[Section]) -> Iterator[str]:
    """As elements; what is missed (`✗`) stands out."""
    for each in sections:
        if not each.rows and not each.sentences:
            continue
        yield element("h2", text(each.title))
        if each.sentences:
            yield element("ul", *(element("li", _marked(said)) for said in each.sentences))
        if each.rows:
            rows = [tuple(map(_cell, row)) for row in each.rows]
            yield table(tuple(map(text, each.heads)), rows, each.numbers)


def _html_derived(derived: Sequence[Derived]) -> Iterator[str]:
    """Every number's own entry, which links lead to."""
    if derived:
        yield element("h2", "Where the numbers come from")
        entries = (
            element("dt", text(f"{each.path}: {each.how}"), id=each.path)
            + element("dd", element("ul", *(element("li", text(part)) for part in each.parts)))
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
        lines += [f"- {plain(said)}" for said in each.sentences]
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
    if isinstance(cell, Linked):
        return element("a", text(cell.text), href=f"#{cell.path}")
    return _marked(cell)


def _marked(said: str) -> str:
    return element("span", text(said), cls="bad") if said.startswith("✗") else text(said)
