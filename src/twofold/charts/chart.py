"""Charts as data: what is shown in which unit. How it looks is decided where it is drawn.

Every number is in the SI unit of its axis, as results have it; drawing writes it through the one formatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis counts; `unit` is one of those that `core.display` writes."""

    label: str
    unit: str
    log: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, with the range around it where there is one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Points:
    """Single answers, each with its name; those in `chosen` are marked, since they were taken."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    labels: tuple[str, ...] = ()
    chosen: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across: a goal, a limit, the load that is planned for."""

    name: str
    at: float
    upright: bool = False  # at a value of x


@dataclass(frozen=True, slots=True)
class Curves:
    """Two quantities against each other."""

    key: str
    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    points: tuple[Points, ...] = ()
    rules: tuple[Rule, ...] = ()
    note: str = ""

    @property
    def marks(self) -> "tuple[Line | Points, ...]":
        """Lines, then points, in the order of their colours."""
        return (*self.lines, *self.points)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar, from `start` on where it is given; else it stands on the part before it."""

    name: str
    value: float
    start: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of bars: parts in a row, and the range of their end."""

    name: str
    pieces: tuple[Piece, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that lie one below the other: stacks, waterfalls, tornados."""

    key: str
    title: str
    axis: Axis
    bars: tuple[Bar, ...]
    rules: tuple[Rule, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in a row."""

    row: str
    name: str
    start: float
    end: float
    text: str = ""  # beside its name, in the tooltip


@dataclass(frozen=True, slots=True)
class Spans:
    """Who holds what, from when to when."""

    key: str
    title: str
    axis: Axis
    spans: tuple[Span, ...]
    note: str = ""


Chart = Curves | Bars | Spans


def numbers_of(chart: Chart) -> tuple[list[float], list[float]]:
    """All numbers along x and along y that a chart has to show; those that are none are left out.

    Bars and spans have theirs along x alone. A stack begins at 0.
    """
    if isinstance(chart, Spans):
        return finite([end for each in chart.spans for end in (each.start, each.end)]), []
    if isinstance(chart, Bars):
        ends = [end for bar in chart.bars for piece in extents(bar) for end in piece[1:]]
        ends += [end for bar in chart.bars for end in (bar.low, bar.high) if end is not None]
        return finite([0.0, *ends, *(rule.at for rule in chart.rules)]), []
    x = [value for each in chart.marks for value in each.x]
    y = [value for each in chart.marks for value in each.y]
    y += [value for line in chart.lines for value in (*line.low, *line.high)]
    x += [rule.at for rule in chart.rules if rule.upright]
    y += [rule.at for rule in chart.rules if not rule.upright]
    return finite(x), finite(y)


def extents(bar: Bar) -> list[tuple[str, float, float]]:
    """Name, left and right end of each part of a bar."""
    found, at = [], 0.0
    for piece in bar.pieces:
        start = at if piece.start is None else piece.start
        at = start + piece.value
        found.append((piece.name, min(start, at), max(start, at)))
    return found


def finite(values: Sequence[float]) -> list[float]:
    """Those that can be drawn."""
    return [value for value in values if drawable(value)]


def drawable(*values: float) -> bool:
    """Whether all are numbers, and of a size that any result has: a picture of 10³⁰⁰ tells nothing."""
    return all(isfinite(value) and abs(value) < LARGEST for value in values)


def is_empty(chart: Chart) -> bool:
    """Whether nothing of a chart can be drawn."""
    if isinstance(chart, Curves):
        return not any(finite(each.x) and finite(each.y) for each in chart.marks)
    if isinstance(chart, Bars):
        return not any(finite([piece.value for piece in bar.pieces]) for bar in chart.bars)
    return not any(drawable(each.start, each.end) for each in chart.spans)
