"""Pictures: every number is inside, places are monotone, labels apart, and what is missing is said."""

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Rule, Span, Spans
from twofold.charts.of_plan import charts_of_plan
from twofold.charts.scales import scale_to
from twofold.charts.svg import CHARACTER, WIDTH, svg_of
from twofold.charts.text import text_of
from twofold.contracts.results.plan import Plan

SVG = "{http://www.w3.org/2000/svg}"
ODD = st.one_of(st.floats(-1e15, 1e15), st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e-300, -0.0]))
NAMES = st.text(max_size=60)
UNITS = st.sampled_from(["s", "USD", "", "fraction", "memory B", "1/s"])
AXES = st.builds(Axis, NAMES, UNITS, st.booleans())


@st.composite
def curves(draw: st.DrawFn) -> Curves:
    count = draw(st.integers(0, 6))
    numbers = st.lists(ODD, min_size=count, max_size=count).map(tuple)
    lines = draw(st.lists(st.builds(Line, NAMES, numbers, numbers, numbers, numbers), max_size=3))
    points = draw(st.lists(st.builds(Points, NAMES, numbers, numbers), max_size=2))
    rules = draw(st.lists(st.builds(Rule, NAMES, ODD, st.booleans()), max_size=2))
    axes = draw(AXES), draw(AXES)
    return Curves("k", draw(NAMES), *axes, tuple(lines), tuple(points), tuple(rules), draw(NAMES))


PIECES = st.lists(st.builds(Piece, NAMES, ODD, st.none() | ODD), max_size=4).map(tuple)
BARS = st.builds(
    Bars, st.just("k"), NAMES, AXES, st.lists(st.builds(Bar, NAMES, PIECES), max_size=5).map(tuple)
)
SPANS = st.builds(
    Spans, st.just("k"), NAMES, AXES, st.lists(st.builds(Span, NAMES, NAMES, ODD, ODD), max_size=5).map(tuple)
)
CHARTS = st.one_of(curves(), BARS, SPANS)


@given(CHARTS)
def test_any_chart_is_a_well_formed_picture_inside_its_frame(chart: Chart) -> None:
    root = ElementTree.fromstring(svg_of(chart))
    height = float(root.attrib["viewBox"].split()[3])
    for each in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            if name in each.attrib:
                assert 0.0 <= float(each.attrib[name]) <= WIDTH
        if each.tag == f"{SVG}rect" and "x" in each.attrib:
            assert float(each.attrib["x"]) + float(each.attrib["width"]) <= WIDTH
        for name in ("y", "y1", "y2", "cy"):
            if name in each.attrib:
                assert 0.0 <= float(each.attrib[name]) <= height


def _words(chart: Chart) -> list[str]:
    """Names that a legend, an axis or a span writes out: theirs is the width."""
    if isinstance(chart, Curves):
        return [chart.x.label, *(each.name for each in chart.marks)]
    if isinstance(chart, Bars):
        return [piece.name for bar in chart.bars for piece in bar.pieces]
    return [each.name for each in chart.spans]


@given(CHARTS)
def test_a_terminal_shows_any_chart_on_a_hundred_columns_but_for_its_own_words(chart: Chart) -> None:
    said = [chart.title, chart.note, *(rule.name for rule in getattr(chart, "rules", ()))]
    longest = max(map(len, said)) + sum(len(each) + 4 for each in _words(chart))
    # Numbers that no result has, such as 10¹⁵ %, are written out.
    assert all(len(line) <= max(140, 60 + longest) for line in text_of(chart))


@given(st.lists(st.floats(1e-6, 1e12), min_size=2, max_size=8, unique=True), st.booleans(), UNITS)
def test_places_keep_the_order_of_numbers_and_ticks_lie_inside(
    values: list[float], log: bool, unit: str
) -> None:
    scale = scale_to(Axis("", unit, log), values, 0.0, 500.0)
    places = [scale.place(each) for each in sorted(values)]
    assert places == sorted(places)
    assert len(set(values)) == len(values) and places[-1] - places[0] > 0.0  # clamped nowhere, so apart
    assert places[-1] < 500.0 and (places[0] > 0.0 or min(values) < 0.1 * max(values))
    ticks = scale.ticks(6)
    assert 1 <= len(ticks) <= 6 and ticks == sorted(ticks)
    assert all(scale.low * (1 - 1e-9) <= each <= scale.high * (1 + 1e-9) for each in ticks)


@pytest.mark.parametrize(
    ("values", "unit", "labels"),
    [
        ([10_400.0, 12_700.0], "USD", ["11 k$", "12 k$"]),  # and not 10.5, 11 and 11.5 as 10, 11 and 12
        ([0.0, 2.0], "", ["0", "1", "2"]),  # machines
        ([0.0, 1.5], "", ["0", "0.5", "1", "1.5"]),
        ([0.0, 86_400.0 * 365], "s", ["0 s", "100 d", "200 d", "300 d"]),
    ],
)
def test_a_tick_is_labelled_with_what_it_is(values: list[float], unit: str, labels: list[str]) -> None:
    scale = scale_to(Axis("", unit), values, 0.0, 500.0)
    assert [scale.text(each) for each in scale.ticks(6)] == labels


def test_no_two_ticks_of_an_example_are_written_alike(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        for chart in charts_of_plan(plan):
            root = ElementTree.fromstring(svg_of(chart))
            soft = [each for each in root.iter(f"{SVG}text") if each.attrib.get("class") == "s"]
            for anchor in ("middle", "end"):
                said = [each.text for each in soft if each.attrib.get("text-anchor") == anchor]
                assert len(said) == len(set(said)), (plan.name, chart.key, said)


@pytest.mark.parametrize(
    "chart", [Curves("k", "t", Axis("", ""), Axis("", "")), Bars("k", "t", Axis("", ""), ())]
)
def test_what_has_no_data_says_so(chart: Chart) -> None:
    assert "no data" in svg_of(chart) and "no data" in "\n".join(text_of(chart))


def test_marks_stand_where_the_plan_s_numbers_are(examples: dict[str, Plan]) -> None:
    """The bars of a memory stack, measured on the drawing alone, are the parts of the plan's own list."""
    for plan in examples.values():
        for half in plan.halves:
            found = [each for each in charts_of_plan(plan) if each.key == f"memory.{half.name}"]
            if not found:
                continue
            root = ElementTree.fromstring(svg_of(found[0]))
            blocks = [float(group.find(f"{SVG}rect").attrib["width"]) for group in root.iter(f"{SVG}g")]  # type: ignore[union-attr]
            parts = [part.value.value for part in half.memory_parts]
            assert len(blocks) == len(parts)
            # The narrowest are drawn a pixel wide, to be seen.
            scale = max(blocks) / max(parts)
            for width, value in zip(blocks, parts, strict=True):
                assert width == pytest.approx(max(value * scale, 1.0), abs=0.11)


def test_a_bar_says_the_number_that_the_terminal_says(examples: dict[str, Plan]) -> None:
    compared = 0
    for plan in examples.values():
        for chart in charts_of_plan(plan):
            if isinstance(chart, Bars):
                root = ElementTree.fromstring(svg_of(chart))
                drawn = [each.text for each in root.iter(f"{SVG}text") if each.attrib.get("class") == "v"]
                lines = text_of(chart)[1 : 1 + len(chart.bars)]
                assert len(drawn) == len(lines)
                assert all(line.endswith(f" {text}") for line, text in zip(lines, drawn, strict=True))
                compared += len(drawn)
    assert compared > 50


def test_no_two_labels_of_an_example_cross(examples: dict[str, Plan]) -> None:
    drawn = 0
    for plan in examples.values():
        for chart in charts_of_plan(plan):
            root = ElementTree.fromstring(svg_of(chart))
            boxes = []
            for each in root.iter(f"{SVG}text"):
                wide = len(each.text or "") * CHARACTER * 0.92
                shift = {"middle": 0.5, "end": 1.0}.get(each.attrib.get("text-anchor", ""), 0.0)
                left, base = float(each.attrib["x"]) - shift * wide, float(each.attrib["y"])
                boxes.append((left, left + wide, base - 9.0, base + 1.0, each.text))
            for at, one in enumerate(boxes):
                for other in boxes[at + 1 :]:
                    apart = (
                        one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
                    )
                    assert apart, (plan.name, chart.key, one[4], other[4])
            drawn += 1
    assert drawn > 40


def test_the_way_that_was_taken_is_marked_once(examples: dict[str, Plan]) -> None:
    fronts = [
        chart
        for plan in examples.values()
        for chart in charts_of_plan(plan)
        if chart.key.startswith("front.")
    ]
    assert fronts
    for chart in fronts:
        assert isinstance(chart, Curves)
        assert len(chart.points[0].chosen) == 1, chart.title


def test_pictures_of_examples_fit_a_terminal(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        for chart in charts_of_plan(plan):
            assert all(len(line) <= 100 for line in text_of(chart)), (plan.name, chart.key)


OWN = """
name: own
model: llama-3.1-8b
training: {kind: finetune, tokens: 100 Gtok, deadline: 60 d}
serving: {classes: {chat: {traffic: {rate: 4 /s}, slo: {ttft_p95: 800 ms}}}}
supply: {own: [{node: DGX-H100, count: 4}]}
"""


def test_the_way_taken_on_machines_of_ones_own_is_drawn_and_ringed(planned: Callable[[str], Plan]) -> None:
    """Only rented ways have a price, so what the plan does was in no picture."""
    plan = planned(OWN)
    charts = {chart.key: chart for chart in charts_of_plan(plan)}
    front = charts["front.finetune"]
    assert isinstance(front, Curves)
    (points,) = front.points
    (taken,) = points.chosen
    run = plan.training[0]
    assert (points.x[taken], points.y[taken]) == (run.run.total_s.value, plan.own_usd("finetune"))
    assert points.labels[taken].endswith("your own")


def test_what_is_held_is_as_many_as_the_decision_says(planned: Callable[[str], Plan]) -> None:
    plan = planned(OWN)
    calendar = charts_of_plan(plan)[0]
    assert isinstance(calendar, Spans)
    for each in (action for action in plan.actions if action.kind == "use"):
        kinds = [span.name for span in calendar.spans if span.row == each.name]
        assert kinds and each.text.replace(" bf16", "").startswith(f"{kinds[0]},"), each.text


def test_an_axis_has_two_numbers_at_least() -> None:
    """A mean day between 15.6 and 16.4 kW had one, which tells no length."""
    for low, high in ((15.6e3, 16.4e3), (19.1e3, 20.2e3), (101.0, 101.5)):
        assert len(scale_to(Axis("power", "W"), [low, high], 0.0, 200.0).ticks(6)) >= 2
