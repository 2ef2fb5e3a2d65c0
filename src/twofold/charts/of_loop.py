"""The charts of a live run: what was measured beside what was planned, each from the page's rows alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Span, Spans
from twofold.contracts.results import loop
from twofold.core.display import format_si
from twofold.core.estimate import Estimate

FAILURES = "failures"
ROWS = MappingProxyType(  # of a run's picture: where each kind of stretch stands
    {
        **dict.fromkeys(("starting", "training"), "workers"),
        **dict.fromkeys(("checkpoint", "not saved"), "checkpoints"),
        **dict.fromkeys(("killed", "died", "stopped", "launched again"), FAILURES),
    }
)


def charts_of_loop(page: loop.LoopPage) -> tuple[Chart, ...]:
    """Predicted against measured of each half, where a step's and a run's time went, what each load got."""
    found: list[Chart] = []
    for half in dict.fromkeys(row.half for row in page.rows):
        own = [row for row in page.rows if row.half == half]
        found += _ratios(half, own)
        told = [
            SideBySide(_name(row), row.unit, row.planned, row.twin, (row.measured,))
            for row in own
            if row.twin is not None and row.measured is not None
        ]
        found += side_by_side(f"sides.{half}", told)
    for number, run in enumerate(page.training):
        found += [*_parts(run), *_course(number, run)]
    for service in page.serving:
        found += [*_latencies(service), *_outcomes(service)]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One figure as it was planned, as it was rehearsed, and each time that it happened."""

    name: str
    unit: str
    plan: Estimate | None
    twin: Estimate | None
    live: tuple[float, ...]


def side_by_side(
    key: str, figures: Iterable[SideBySide], title: str = "plan, twin and live side by side"
) -> tuple[Chart, ...]:
    """Per figure a row each for the plan, the twin and every time that it happened.

    All are over the plan's middle, or over the twin's where the plan has none; whiskers are their ranges. A
    figure that one side alone has is left out; where all are there is no picture.
    """
    bars: list[Bar] = []
    for each in figures:
        said = [(name, told) for name, told in (("plan", each.plan), ("twin", each.twin)) if told is not None]
        if not said or said[0][1].value <= 0.0 or len(said) + bool(each.live) < 2:
            continue
        base, rows = said[0][1].value, []
        for name, told in said:
            ends = (told.low / base, told.high / base) if told.low < told.high else (None, None)
            text = f"{name} {format_si(told.value, each.unit)}"
            rows.append(Bar(text, (Piece(name, told.value / base),), *ends))
        for value in each.live:
            rows.append(Bar(f"live {format_si(value, each.unit)}", (Piece("live", value / base),)))
        bars += [replace(rows[0], name=f"{each.name}, {rows[0].name}"), *rows[1:]]
    axis = Axis("of the plan's middle, or of the twin's", "fraction")
    return (Bars(key, title, axis, tuple(bars), note="whiskers: 80 % ranges"),) if bars else ()


def _name(row: loop.Row) -> str:
    return row.name.removeprefix("· ")


def _ratios(half: str, rows: Sequence[loop.Row]) -> Iterator[Chart]:
    """Each row over its planned middle: the plan's range as a whisker around 1, the measured as a mark.

    Both have their own row, so that the range and what was measured are seen apart.
    """
    bars = []
    for row in rows:
        planned = row.planned
        if planned is None or row.measured is None or planned.value <= 0.0:
            continue
        low, high = planned.low / planned.value, planned.high / planned.value
        where = "" if row.inside is not False else " (outside)"
        measured, middle = format_si(row.measured, row.unit), format_si(planned.value, row.unit)
        bars.append(Bar(f"{_name(row)}, plan {middle}", (Piece("planned", 1.0),), low, high))
        bars.append(Bar(f"live {measured}{where}", (Piece("measured", row.measured / planned.value),)))
    if bars:
        title, axis = f"{half}: measured over planned", Axis("of what was planned", "fraction")
        yield Bars(f"measured.{half}", title, axis, tuple(bars), note="whiskers: the plan's 80 % range")


def _parts(run: loop.TrainingMeasured) -> Iterator[Chart]:
    """One measured step as a waterfall."""
    bars, at = [], 0.0
    for name in ("data", "forward", "backward", "communication", "optimiser", "checkpoint", "other"):
        seconds: float = getattr(run.parts, f"{name}_s")
        bars.append(Bar(name, (Piece(name, seconds, at),)))
        at += seconds
    whole = Bar(
        "step, 10 to 90 of 100", (Piece("step", run.step_s_p50, 0.0),), run.step_s_p10, run.step_s_p90
    )
    yield Bars("step.measured", "one measured step", Axis("time", "s"), (*bars, whole))


def _course(number: int, run: loop.TrainingMeasured) -> Iterator[Chart]:
    """The run over time: its workers, what they saved, and what befell them until the next step was done."""
    course = run.course
    if course is None:
        return
    spans = tuple(
        Span(row, each.what, each.from_s, each.until_s, _told(each))
        for row in dict.fromkeys(ROWS.values())
        for each in course.stretches
        if ROWS.get(each.what, FAILURES) == row
    )
    every = course.checkpoint_every
    notes = [f"1 of {every:,} checkpoints is shown, of {run.checkpoint_count:,}"] if every > 1 else []
    notes += [f"{course.left_out_count:,} further stretches are not kept"] if course.left_out_count else []
    axis = Axis("worked since the first launch", "s")
    yield Spans(f"run.{number}", "the run: failures and checkpoints", axis, spans, "; ".join(notes))


def _told(each: loop.Stretch) -> str:
    """What the tooltip says beside its name and times."""
    step = "" if each.step is None else f"step {each.step:,}"
    return ", ".join(filter(None, [each.text, step]))


def _latencies(service: loop.ServingMeasured) -> Iterator[Chart]:
    """The first token against load, closed loads in their order of clients, open ones as points."""
    closed = sorted(
        (each for each in service.loads if each.concurrency and each.ttft),
        key=lambda each: each.requests_per_s,
    )
    opened = [each for each in service.loads if not each.concurrency and each.ttft]
    if len(closed) + len(opened) < 2:
        return
    x = tuple(each.requests_per_s for each in closed)
    lines = [
        Line(f"closed, {name}", x, tuple(getattr(each.ttft, f"{name}_s") for each in closed))
        for name in ("p50", "p95")
        if len(closed) > 1
    ]
    single = opened if len(closed) > 1 else [*closed, *opened]
    points = [
        Points(
            f"{'open' if len(closed) > 1 else 'loads'}, {name}",
            tuple(each.requests_per_s for each in single),
            tuple(getattr(each.ttft, f"{name}_s") for each in single),
            tuple(f"{each.name} {name}" for each in single),
        )
        for name in ("p50", "p95")
        if single
    ]
    axes = Axis("finished requests", "1/s"), Axis("TTFT", "s", log=True)
    yield Curves("loads", "first token against load", *axes, tuple(lines), tuple(points))


def _outcomes(service: loop.ServingMeasured) -> Iterator[Chart]:
    """What became of each load's requests."""
    bars = tuple(
        Bar(
            each.name,
            tuple(
                Piece(name, float(getattr(each, name)))
                for name in ("finished", "refused", "failed")
                if getattr(each, name)
            ),
        )
        for each in service.loads
    )
    if bars:
        yield Bars("outcomes", "what became of requests", Axis("requests", ""), bars)
