"""Charts as lines of text for a terminal: bars of blocks, curves of dots, spans of bars."""

from collections.abc import Iterator
from textwrap import wrap

from twofold.charts.chart import Bars, Chart, Curves, Span, Spans, drawable, extents, is_empty, numbers_of
from twofold.charts.scales import Scale, scale_to

WIDE = 100  # columns of a terminal
WIDTH = 60  # characters of the picture itself
HEIGHT = 12  # rows of a curve
NAMES = 24  # characters of a row's name
EIGHTHS = " ▏▎▍▌▋▊▉█"
SHADES = "█▓▒░▚▞▤"  # parts of a stack, in turn
DOTS = "●○◆◇▲△"  # curves and points, in turn


def text_of(chart: Chart) -> list[str]:
    """The chart on at most 100 columns; nothing to show says so."""
    if is_empty(chart):
        return [chart.title, "  no data: nothing of this was computed"]
    lines = {Curves: _curves, Bars: _bars, Spans: _spans}[type(chart)](chart)  # type: ignore[operator]
    return [chart.title, *lines, *wrap(chart.note, WIDE, initial_indent="  ", subsequent_indent="  ")]


def _bars(chart: Bars) -> Iterator[str]:
    xs, _ = numbers_of(chart)
    scale = scale_to(chart.axis, xs, 0.0, float(WIDTH))
    kinds = list(dict.fromkeys(piece.name for bar in chart.bars for piece in bar.pieces))
    stacked = any(len(bar.pieces) > 1 for bar in chart.bars)
    for bar in chart.bars:
        ends = [each for each in extents(bar) if drawable(*each[1:])]
        row = _stack(ends, scale, kinds) if stacked else _blocks(ends, scale)
        value = sum(end - start for _, start, end in ends)
        yield f"  {_name(bar.name)}{row.rstrip():<{WIDTH}} {scale.text(value)}"
    if stacked:
        yield "  " + "  ".join(f"{SHADES[at % len(SHADES)]} {name}" for at, name in enumerate(kinds))
    yield from (f"  {rule.name}: {scale.text(rule.at)}" for rule in chart.rules)


def _blocks(ends: list[tuple[str, float, float]], scale: Scale) -> str:
    """One bar, to an eighth of a character at its end."""
    if not ends:
        return ""
    start, end = scale.place(ends[0][1]), scale.place(ends[-1][2])
    whole = int(end)
    return " " * int(start) + "█" * max(whole - int(start), 0) + EIGHTHS[int(8 * (end - whole))].strip()


def _stack(ends: list[tuple[str, float, float]], scale: Scale, kinds: list[str]) -> str:
    """Parts in a row, each in a shade of its own."""
    return "".join(
        SHADES[kinds.index(name) % len(SHADES)] * (round(scale.place(end)) - round(scale.place(start)))
        for name, start, end in ends
    )


def _spans(chart: Spans) -> Iterator[str]:
    xs, _ = numbers_of(chart)
    scale = scale_to(chart.axis, xs, 0.0, float(WIDTH))
    for row in dict.fromkeys(each.row for each in chart.spans):
        own = [each for each in chart.spans if each.row == row and drawable(each.start, each.end)]
        cells = [" "] * (WIDTH + 1)
        for each in own:
            start, end = int(scale.place(each.start)), int(scale.place(each.end))
            cells[start : max(end, start + 1)] = "█" * (max(end, start + 1) - start)
        if own:
            yield f"  {_name(row)}{''.join(cells).rstrip()}"
        kinds: dict[str, list[Span]] = {}
        for each in own:
            kinds.setdefault(each.name, []).append(each)
        for name, spans in kinds.items():
            first = f"{name}, {scale.text(spans[0].start)} to {scale.text(spans[0].end)}"
            again = f", and {len(spans) - 1} more until {scale.text(spans[-1].end)}" if spans[1:] else ""
            yield f"  {_name('')}{first}{again}"


def _curves(chart: Curves) -> Iterator[str]:
    xs, ys = numbers_of(chart)
    x, y = scale_to(chart.x, xs, 0.0, WIDTH - 1.0), scale_to(chart.y, ys, HEIGHT - 1.0, 0.0)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for number, mark in enumerate(chart.marks):
        for at_x, at_y in zip(mark.x, mark.y, strict=True):
            if drawable(at_x, at_y):
                grid[round(y.place(at_y))][round(x.place(at_x))] = DOTS[number % len(DOTS)]
    for row, cells in enumerate(grid):
        label = y.text(y.high if row == 0 else y.low) if row in (0, HEIGHT - 1) else ""
        yield f"  {label:>10} │{''.join(cells).rstrip()}"
    yield f"  {'':>10} └{'─' * WIDTH}"
    ends = f"  {'':>10}  {x.text(x.low)}{x.text(x.high):>{WIDTH - len(x.text(x.low))}}"
    beside = f"{ends}  {chart.x.label}"
    yield from [beside] if len(beside) <= WIDE else [ends, f"  {'':>10}  {chart.x.label}"]
    yield "  " + "  ".join(f"{DOTS[at % len(DOTS)]} {mark.name}" for at, mark in enumerate(chart.marks))
    yield from (f"  {rule.name}: {(x if rule.upright else y).text(rule.at)}" for rule in chart.rules)


def _name(name: str) -> str:
    short = name if len(name) < NAMES else f"{name[: NAMES - 2]}…"
    return short.ljust(NAMES)
