"""Charts as static SVG: no script, no font, no file of its own; it takes the colours of its page.

Colours are those of Okabe and Ito (2008), told apart by colour-blind people; lines differ in dashes and bars
in hatching too, so that they do in grey. Every mark has a `<title>`, which shows when it is pointed at.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape as escaped

from twofold.charts.chart import (
    Bar,
    Bars,
    Chart,
    Curves,
    Rule,
    Spans,
    drawable,
    extents,
    is_empty,
    numbers_of,
)
from twofold.charts.scales import Scale, scale_to

WIDTH, HEIGHT = 640.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 46.0, 40.0
LABELS = 12.0  # above the picture: what y counts, and the names of upright rules
ROW = 22.0  # height of a bar's or a span's row
NAME_MOST = 34  # characters of a row's name
CHARACTER = 6.2  # width of one, at the size that labels have
WORD_CHARACTER = 6.9  # of one in words, which have few narrow ones: as DejaVu Sans has them, the widest
VALUE = 56.0  # right of bars: room for the number that each stands for
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a7a7a")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2", "10 4", "4 4")
SHAPES = 4  # of points: circle, square, triangle, diamond
TICKS_X, TICKS_Y = 6, 6
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:var(--ink,#222)}"
    ".t{font-weight:600;font-size:13px}.s{fill:var(--soft,#666)}"
    ".v{paint-order:stroke;stroke:var(--paper,#fff);stroke-width:3px}"  # a halo, where a rule runs behind it
    ".g{stroke:var(--line,#ddd);stroke-width:1}.r{stroke:var(--ink,#222);stroke-dasharray:5 4}"
)


NO_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")  # what XML cannot hold


def escape(text: str) -> str:
    """A text as XML holds it, in elements and attributes."""
    return escaped(NO_XML.sub(" ", text), quote=True)


def svg_of(chart: Chart) -> str:
    """The chart as one `<svg>` element with its title, axes, marks and legend. Nothing to show says so."""
    if is_empty(chart):
        return _whole(chart, 90.0, [_text(LEFT, 60.0, "no data: nothing of this was computed", "s")])
    if isinstance(chart, Curves):
        return _whole(chart, HEIGHT + _legend_height(_names(chart)), list(_curves(chart)), chart.note)
    rows = (
        len(chart.bars) if isinstance(chart, Bars) else len(dict.fromkeys(each.row for each in chart.spans))
    )
    height = TOP + rows * ROW + BOTTOM + _legend_height(_names(chart))
    marks = _bars(chart) if isinstance(chart, Bars) else _spans(chart)
    return _whole(chart, height, list(marks), chart.note)


def _curves(chart: Curves) -> Iterator[str]:
    xs, ys = numbers_of(chart)
    y = scale_to(chart.y, ys, HEIGHT - BOTTOM, TOP)
    widest = max(len(y.text(each)) for each in y.ticks(TICKS_Y))
    x = scale_to(chart.x, xs, min(max(LEFT, 10.0 + widest * CHARACTER), WIDTH / 2), WIDTH - RIGHT)
    yield from _axes(x, y)
    for index, line in enumerate(chart.lines):
        if line.low and line.high:
            edge = [*zip(line.x, line.low, strict=True), *reversed([*zip(line.x, line.high, strict=True)])]
            said = f"<title>{escape(line.name)}: 80 % range</title>"
            yield f'<path d="{_path(edge, x, y)}Z" fill="{_colour(index)}" opacity=".18">{said}</path>'
        path = _path([*zip(line.x, line.y, strict=True)], x, y)
        yield f'<path d="{path}" {_stroke(index)}><title>{escape(line.name)}</title></path>'
    boxes: list[Box] = []  # where words stand already
    yield from _rules(chart.rules, x, y, boxes)
    yield from _points(chart, x, y, boxes)
    yield from _legend(chart, HEIGHT)


def _points(chart: Curves, x: Scale, y: Scale, boxes: "list[Box]") -> Iterator[str]:
    """Shapes of equal kind for equal kinds; what was chosen is ringed and named."""
    for index, points in enumerate(chart.points, start=len(chart.lines)):
        for number, (at_x, at_y) in enumerate(zip(points.x, points.y, strict=True)):
            if not (drawable(at_x, at_y)):
                continue
            label = points.labels[number] if points.labels else points.name
            said = f"{label}: {x.text(at_x)}, {y.text(at_y)}"
            taken = number in points.chosen
            ring = ' stroke="var(--ink,#222)" stroke-width="2"' if taken else ""
            place = x.place(at_x), y.place(at_y)
            path = _shape(*place, 6 if taken else 4, index - len(chart.lines))
            yield f'<path d="{path}" fill="{_colour(index)}"{ring}><title>{escape(said)}</title></path>'
            if taken:
                beside = [(place[0] + dx, place[1] + dy) for dy in (16.0, -10.0) for dx in (10.0, -60.0)]
                yield _label(_short(label), [each for each in beside if TOP < each[1] < y.start - 4], boxes)


def _bars(chart: Bars) -> Iterator[str]:
    xs, _ = numbers_of(chart)
    left = _left_of([bar.name for bar in chart.bars])
    x, bottom = scale_to(chart.axis, xs, left, WIDTH - RIGHT - VALUE), TOP + len(chart.bars) * ROW
    yield from _upright_grid(x, bottom)
    yield from _rules(chart.rules, x, None, [], bottom)
    names = _names(chart)
    for row, bar in enumerate(chart.bars):
        top = TOP + row * ROW
        yield _text(left - 6, top + 15, _short(bar.name), anchor="end", whole=bar.name)
        for name, start, end in extents(bar):
            if not drawable(start, end):
                continue
            index = names.index(name) if name in names else 0
            said = (
                f"{bar.name}, {name}: {x.text(end - start)}"
                if name != bar.name
                else f"{name}: {x.text(end - start)}"
            )
            yield _block(chart, x.place(start), x.place(end), top + 3, index, said)
        if bar.low is not None and bar.high is not None:
            yield from _whisker(x, bar.low, bar.high, top + ROW / 2, bar.name)
        yield from _value(bar, x, top + 15)
    yield from _legend(chart, bottom + BOTTOM)


def _value(bar: Bar, x: Scale, y: float) -> Iterator[str]:
    """The number that a bar stands for, behind its end and its range."""
    ends = [each for each in extents(bar) if drawable(*each[1:])]
    if ends:
        said = x.text(sum(end - start for _, start, end in ends))
        right = max(x.place(end) for end in (*(end for *_, end in ends), bar.high or 0.0) if drawable(end))
        yield _text(max(4.0, min(right + 5.0, WIDTH - 4.0 - len(said) * CHARACTER)), y, said, "v")


def _spans(chart: Spans) -> Iterator[str]:
    xs, _ = numbers_of(chart)
    rows = list(dict.fromkeys(each.row for each in chart.spans))
    left = _left_of(rows)
    x, bottom, names = scale_to(chart.axis, xs, left, WIDTH - RIGHT), TOP + len(rows) * ROW, _names(chart)
    yield from _upright_grid(x, bottom)
    for number, row in enumerate(rows):
        yield _text(left - 6, TOP + number * ROW + 15, _short(row), anchor="end", whole=row)
    for each in chart.spans:
        if drawable(each.start, each.end):
            top = TOP + rows.index(each.row) * ROW + 3
            said = [f"{each.name}: {x.text(each.start)} to {x.text(each.end)}", *filter(None, [each.text])]
            ends = x.place(each.start), x.place(each.end)
            yield _block(chart, *ends, top, names.index(each.name), ", ".join(said))
    yield from _legend(chart, bottom + BOTTOM)


def _names(chart: Chart) -> list[str]:
    """What the legend tells apart; nothing where there is one thing only."""
    if isinstance(chart, Curves):
        return [each.name for each in chart.marks]
    if isinstance(chart, Bars):
        stacked = any(len(bar.pieces) > 1 for bar in chart.bars)
        return (
            list(dict.fromkeys(piece.name for bar in chart.bars for piece in bar.pieces)) if stacked else []
        )
    return list(dict.fromkeys(each.name for each in chart.spans))


def _axes(x: Scale, y: Scale) -> Iterator[str]:
    for value in y.ticks(TICKS_Y):
        at = y.place(value)
        yield f'<line class="g" x1="{x.start:.1f}" x2="{x.end:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield _text(x.start - 6, at + 4, y.text(value), "s", "end")
    yield from _labels_below(x, y.start)
    yield _text(8.0, TOP - LABELS, y.axis.label, "s")


def _upright_grid(x: Scale, bottom: float) -> Iterator[str]:
    for value in x.ticks(TICKS_X):
        at = x.place(value)
        yield f'<line class="g" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP:.1f}" y2="{bottom:.1f}"/>'
    yield from _labels_below(x, bottom)


def _labels_below(x: Scale, bottom: float) -> Iterator[str]:
    """Numbers of the axis, as many as stand beside each other, and what they count."""
    free = x.start - 1.0
    for value in x.ticks(TICKS_X):
        text, at = x.text(value), x.place(value)
        half = len(text) * CHARACTER / 2
        if at - half > free and at + half <= WIDTH:
            yield _text(at, bottom + 15, text, "s", "middle")
            free = at + half + CHARACTER
    yield _text((x.start + x.end) / 2, bottom + 31, x.axis.label, "s", "middle")


def _rules(
    rules: Sequence[Rule], x: Scale, y: Scale | None, boxes: "list[Box]", bottom: float = HEIGHT - BOTTOM
) -> Iterator[str]:
    """Lines across with their names where these are free; else a name stands in the tooltip alone."""
    if y is not None:
        boxes.append(_box(8.0, TOP - LABELS, y.axis.label))
    for rule in rules:
        if not drawable(rule.at):
            continue
        upright = rule.upright or y is None
        scale = x if upright or y is None else y
        at, said = scale.place(rule.at), f"{rule.name}: {scale.text(rule.at)}"
        ends = (at, at, TOP, bottom) if upright else (x.start, x.end, at, at)
        x1, x2, y1, y2 = (f"{end:.1f}" for end in ends)
        yield f'<line class="r" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"><title>{escape(said)}</title></line>'
        wide = len(said) * CHARACTER
        if upright:
            sides = (at - wide / 2, at + 4 - wide, at - 4)
            beside = [left for left in (at - 4 - wide, at + 4) if left > x.start] if y is not None else []
            within = [(left, TOP + 10.0) for left in beside]
            yield _label(said, [*((left, TOP - LABELS) for left in sides), *within], boxes)
            continue
        sides = x.start + 6, x.end - wide, (x.start + x.end - wide) / 2
        places = [(left, at + dy) for left in sides for dy in (-4.0, 12.0)]
        yield _label(said, [each for each in places if TOP + 8 < each[1] < bottom - 2], boxes)


Box = tuple[float, float, float, float]  # left, right, top and bottom of words


def _box(left: float, base: float, text: str) -> Box:
    return left, left + len(text) * CHARACTER, base - 10.0, base + 2.0


def _label(text: str, places: Sequence[tuple[float, float]], boxes: list[Box]) -> str:
    """A label at the first place that is free, kept inside the picture; nothing where none is."""
    wide = len(text) * CHARACTER
    for left, base in places:
        left = max(4.0, min(left, WIDTH - 4.0 - wide))
        box = _box(left, base, text)
        if not any(
            box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]
            for other in boxes
        ):
            boxes.append(box)
            return _text(left, base, text)
    return ""


def _legend_height(names: Sequence[str]) -> float:
    return 0.0 if len(names) < 2 else 16.0 * len(_legend_rows(names)) + 6.0


def _legend_rows(names: Sequence[str]) -> list[list[str]]:
    """Names in rows that fit."""
    rows: list[list[str]] = [[]]
    for name in names:
        taken = sum(len(each) * CHARACTER + 34 for each in rows[-1])
        if rows[-1] and taken + len(name) * CHARACTER + 34 > WIDTH - LEFT:
            rows.append([])
        rows[-1].append(name)
    return rows


def _legend(chart: Chart, top: float) -> Iterator[str]:
    names = _names(chart)
    if len(names) < 2:
        return
    index = 0
    for number, row in enumerate(_legend_rows(names)):
        at = 24.0
        for name in row:
            y = top + 12 + 16 * number
            yield _sample(chart, at, y - 9, index)
            yield _text(at + 18, y, name)
            at, index = at + len(name) * CHARACTER + 34, index + 1


def _sample(chart: Chart, x: float, y: float, index: int) -> str:
    """What the legend shows of a name: the dash of a line, the shape of points, the hatching of a bar."""
    if isinstance(chart, Curves):
        if index < len(chart.lines):
            return f'<path d="M{x:.1f} {y + 5:.1f}h14" {_stroke(index)}/>'
        return f'<path d="{_shape(x + 6, y + 5, 4, index - len(chart.lines))}" fill="{_colour(index)}"/>'
    box = f'x="{x:.1f}" y="{y:.1f}" width="12" height="10"'
    return f'<rect {box} fill="{_colour(index)}"/><rect {box} fill="url(#{_hatch(chart, index)})"/>'


def _stroke(index: int) -> str:
    dash = DASHES[index % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{_colour(index)}" stroke-width="2"{dashed}'


def _shape(x: float, y: float, size: float, kind: int) -> str:
    """A closed path about a place: a circle, a square, a triangle or a diamond, told apart without colour."""
    if kind % SHAPES == 0:
        return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 {-2 * size} 0Z"
    if kind % SHAPES == 1:
        return f"M{x - size:.1f} {y - size:.1f}h{2 * size}v{2 * size}h{-2 * size}Z"
    if kind % SHAPES == 2:
        return f"M{x:.1f} {y - size:.1f}l{size} {2 * size}h{-2 * size}Z"
    return f"M{x:.1f} {y - size:.1f}l{size} {size}l{-size} {size}l{-size} {-size}Z"


def _block(chart: Chart, left: float, right: float, top: float, index: int, said: str) -> str:
    """A part of a bar, hatched over its colour; thin ones are still seen."""
    place = f'x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 1.0):.1f}" height="{ROW - 6:.0f}"'
    fill = f'<rect {place} fill="{_colour(index)}"/><rect {place} fill="url(#{_hatch(chart, index)})"/>'
    return f"<g>{fill}<title>{escape(said)}</title></g>"


def _whisker(x: Scale, low: float, high: float, at: float, name: str) -> Iterator[str]:
    left, right = x.place(low), x.place(high)
    said = f"{name}: 80 % range {x.text(low)} to {x.text(high)}"
    path = f"M{left:.1f} {at - 4:.1f}v8M{left:.1f} {at:.1f}H{right:.1f}M{right:.1f} {at - 4:.1f}v8"
    yield f'<path d="{path}" stroke="var(--ink,#222)" fill="none"><title>{escape(said)}</title></path>'


def _path(pairs: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """A line through what can be drawn; it breaks where a number is missing."""
    words, pen = [], "M"
    for at_x, at_y in pairs:
        if not (drawable(at_x, at_y)):
            pen = "M"
            continue
        words.append(f"{pen}{x.place(at_x):.1f} {y.place(at_y):.1f}")
        pen = "L"
    return "".join(words)


def _whole(chart: Chart, height: float, marks: Sequence[str], note: str = "") -> str:
    """The element around the marks."""
    low = height + (16.0 if note else 0.0)
    hatched = not isinstance(chart, Curves)
    patterns = "".join(_pattern(chart, index) for index in range(len(COLOURS)) if hatched)
    foot = _text(8.0, height + 8.0, note, "s") if note else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {low:.0f}" role="img"'
        f' aria-label="{escape(chart.title)}"><style>{STYLE}</style><defs>{patterns}</defs>'
        f"{_text(8.0, 16.0, chart.title, 't')}{''.join(marks)}{foot}</svg>"
    )


def _hatch(chart: Chart, index: int) -> str:
    """The name of a hatching, which no other chart of a page has: a page is one space of names."""
    key = re.sub("[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", chart.key)
    return f"hatch-{key}-{index % len(COLOURS)}"


def _pattern(chart: Chart, index: int) -> str:
    """Hatching that differs by index: slanted one way, the other, upright, lying, or none."""
    turn = (None, 45, 135, 90, 0, 20, 160)[index]
    line = "" if turn is None else '<path d="M0 3H6" stroke="#fff" stroke-opacity=".45" stroke-width="1.4"/>'
    return (
        f'<pattern id="{_hatch(chart, index)}" width="6" height="6" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate({turn or 0})">{line}</pattern>'
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "", whole: str = "") -> str:
    more = f"<title>{escape(whole)}</title>" if whole and whole != text else ""
    style = f' class="{kind}"' if kind else ""
    held = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}{held}>{escape(text)}{more}</text>'


def _left_of(names: Sequence[str]) -> float:
    return 14.0 + max((len(_short(name)) for name in names), default=0) * WORD_CHARACTER


def _short(name: str) -> str:
    return name if len(name) <= NAME_MOST else f"{name[: NAME_MOST - 1]}…"


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
