"""Pictures of a live run: every row that has both sides is there, as the page's own numbers."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.test_loop_page import LOAD, PAGE
from tests.charts.test_marks import PLACE, SVG, _fitted, _number
from twofold.app.loop_page import LoopShown
from twofold.charts.chart import Bars, Chart, Curves
from twofold.charts.of_loop import SideBySide, charts_of_loop, side_by_side
from twofold.charts.svg import svg_of
from twofold.charts.text import text_of
from twofold.contracts.results import loop
from twofold.core.estimate import Estimate


def test_each_row_with_both_sides_is_measured_over_planned_with_the_plan_s_range() -> None:
    found = {each.key: each for each in charts_of_loop(PAGE)}
    for half in ("training", "serving"):
        chart = found[f"measured.{half}"]
        assert isinstance(chart, Bars)
        rows = [row for row in PAGE.rows if row.half == half and row.planned and row.measured is not None]
        planned, measured = chart.bars[::2], chart.bars[1::2]
        assert len(planned) == len(measured) == len(rows) > 0
        for row, plan, live in zip(rows, planned, measured, strict=True):
            assert row.planned is not None and row.measured is not None
            assert live.pieces[0].value == row.measured / row.planned.value
            assert (plan.low, plan.high) == (
                row.planned.low / row.planned.value,
                row.planned.high / row.planned.value,
            )
            assert ("outside" in live.name) == (row.inside is False)


def _bars_read(chart: Bars) -> list[tuple[str, float, list[float]]]:
    """Name of each row, where its bar ends and where its whisker does, read off the picture by its ticks."""
    root = ElementTree.fromstring(svg_of(chart))
    texts = list(root.iter(f"{SVG}text"))
    ticks = [each for each in texts if each.attrib.get("text-anchor") == "middle"]
    x = _fitted(
        [
            (float(each.attrib["x"]), _number(each.text or ""))
            for each in ticks
            if each.text != chart.axis.label
        ]
    )
    names = [
        title.text if (title := each.find(f"{SVG}title")) is not None else each.text
        for each in texts
        if each.attrib.get("text-anchor") == "end"
    ]
    groups = [each for each in root.iter(f"{SVG}g") if each.find(f"{SVG}rect") is not None]
    ends = []
    for group in groups:
        box = group.find(f"{SVG}rect")
        assert box is not None
        ends.append(x(float(box.attrib["x"]) + float(box.attrib["width"])))
    whiskers = {}
    for path in root.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None and ": 80 % range" in (title.text or ""):
            whiskers[(title.text or "").partition(": 80 %")[0]] = [
                x(float(place)) for place, _ in PLACE.findall(path.attrib["d"])[::2]
            ]
    return [(name or "", end, whiskers.get(name or "", [])) for name, end in zip(names, ends, strict=True)]


def test_plan_twin_and_live_stand_side_by_side_where_the_json_has_them() -> None:
    data = json.loads(LoopShown(PAGE).json)
    (chart,) = [each for each in charts_of_loop(PAGE) if each.key == "sides.serving"]
    assert isinstance(chart, Bars)
    read = _bars_read(chart)
    (row,) = [each for each in data["rows"] if each["twin"]]
    base = row["planned"]["value"]
    assert [name.partition(" ")[0] for name, _, _ in read[1:]] == ["twin", "live"]
    assert read[0][0].startswith(row["name"])
    for (_, end, whisker), told in zip(read, (row["planned"], row["twin"]), strict=False):
        assert end == pytest.approx(told["value"] / base, rel=0.02)
        assert whisker == pytest.approx([told["low"] / base, told["high"] / base], rel=0.02)
    assert read[2][1] == pytest.approx(row["measured"] / base, rel=0.02) and read[2][2] == []


ESTIMATES = st.tuples(st.floats(1e-3, 1e3), st.floats(1.0, 3.0)).map(
    lambda drawn: Estimate(drawn[0], drawn[0] / drawn[1], drawn[0] * drawn[1], "s")
)


@given(
    st.none() | ESTIMATES,
    st.none() | ESTIMATES,
    st.lists(st.floats(1e-3, 1e3), max_size=3),
)
def test_what_one_side_alone_says_is_not_drawn_and_all_else_is(
    plan: Estimate | None, twin: Estimate | None, live: list[float]
) -> None:
    charts = side_by_side("k", [SideBySide("TTFT", "s", plan, twin, tuple(live))])
    base = plan or twin
    if base is None or ((plan is None or twin is None) and not live):
        assert charts == ()
        return
    (chart,) = charts
    assert isinstance(chart, Bars)
    wanted = [each.value / base.value for each in (plan, twin) if each] + [each / base.value for each in live]
    assert [bar.pieces[0].value for bar in chart.bars] == wanted
    assert sum(bar.name.startswith("TTFT, ") for bar in chart.bars) == 1


def test_the_parts_of_a_measured_step_stand_one_behind_the_other() -> None:
    (chart,) = [each for each in charts_of_loop(PAGE) if each.key == "step.measured"]
    assert isinstance(chart, Bars)
    at = 0.0
    for bar in chart.bars[:-1]:
        assert bar.pieces[0].start == at
        at += bar.pieces[0].value
    run = PAGE.training[0]
    assert (chart.bars[-1].low, chart.bars[-1].high) == (run.step_s_p10, run.step_s_p90)


def test_loads_are_a_curve_over_what_was_finished_and_lone_ones_are_points() -> None:
    more = replace(LOAD, name="closed-8", concurrency=8, requests_per_s=5.0)
    opened = replace(LOAD, name="open-2.0", concurrency=None, rate_per_s=2.0, requests_per_s=2.0)
    page = replace(PAGE, serving=(replace(PAGE.serving[0], loads=(more, LOAD, opened)),))
    (chart,) = [each for each in charts_of_loop(page) if each.key == "loads"]
    assert isinstance(chart, Curves)
    assert [line.x for line in chart.lines] == [(3.2, 5.0)] * 2
    assert [points.x for points in chart.points] == [(2.0,)] * 2
    assert all(len(line) <= 100 for each in charts_of_loop(page) for line in text_of(each))


def test_a_run_of_which_nothing_was_measured_has_no_pictures() -> None:
    assert charts_of_loop(replace(PAGE, rows=(), training=(), serving=())) == ()


def _spans_read(svg: str) -> list[tuple[str, str, float, float]]:
    """Row, tooltip, start and end of each block, read off the picture by its ticks and the rows' labels."""
    root = ElementTree.fromstring(svg)
    texts = list(root.iter(f"{SVG}text"))
    ticks = [
        (float(each.attrib["x"]), _number(each.text or ""))
        for each in texts
        if each.attrib.get("text-anchor") == "middle" and re.match(r"-?\d", each.text or "")
    ]
    rows = {
        float(each.attrib["y"]): each.text or "" for each in texts if each.attrib.get("text-anchor") == "end"
    }
    x, found = _fitted(ticks), []
    for group in root.iter(f"{SVG}g"):
        box, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert box is not None and title is not None
        left, top = float(box.attrib["x"]), float(box.attrib["y"])
        row = rows[min(rows, key=lambda y: abs(y - top - 12.0))]
        found.append((row, title.text or "", x(left), x(left + float(box.attrib["width"]))))
    return found


def _run_chart(page: loop.LoopPage) -> Chart:
    (chart,) = [each for each in charts_of_loop(page) if each.key == "run.0"]
    return chart


def test_failures_and_checkpoints_of_a_run_stand_where_the_json_has_them() -> None:
    rows = {"starting": "workers", "training": "workers", "checkpoint": "checkpoints"}
    rows |= {"not saved": "checkpoints", "killed": "failures"}
    told = json.loads(LoopShown(PAGE).json)["training"][0]["course"]["stretches"]
    end_s = max(each["until_s"] for each in told)
    read = _spans_read(svg_of(_run_chart(PAGE)))
    assert len(read) == len(told) == 7
    for each in told:
        (found,) = [
            one
            for one in read
            if one[1].startswith(f"{each['what']}: ")
            and one[2] == pytest.approx(each["from_s"], abs=0.01 * end_s)
        ]
        row, said, _, until_s = found
        assert row == rows[each["what"]]
        assert until_s == pytest.approx(each["until_s"], abs=0.01 * end_s)
        assert f"step {each['step']}" in said and each["text"] in said
    assert all(len(line) <= 100 for line in text_of(_run_chart(PAGE)))


def test_a_run_without_a_course_has_no_such_picture_and_one_without_numbers_says_so() -> None:
    def page(course: loop.RunCourse | None) -> loop.LoopPage:
        return replace(PAGE, training=(replace(PAGE.training[0], course=course),))

    assert not [each for each in charts_of_loop(page(None)) if each.key == "run.0"]
    nan = loop.Stretch("training", math.nan, math.nan)
    for stretches in ((), (nan,)):
        assert "no data" in svg_of(_run_chart(page(loop.RunCourse(stretches))))
    known = replace(nan, from_s=1.0, until_s=2.0)
    odd = replace(known, what="something of another version")
    svg = svg_of(_run_chart(page(loop.RunCourse((nan, known, odd), 3, 4))))
    assert [row for row, *_ in _spans_read(svg)] == ["workers", "failures"]
    assert "1 of 3 checkpoints is shown, of 8; 4 further stretches are not kept" in svg
