"""Pictures of a live run: every row that has both sides is there, as the page's own numbers."""

from dataclasses import replace

from tests.app.test_loop_page import LOAD, PAGE
from twofold.charts.chart import Bars, Curves
from twofold.charts.of_loop import charts_of_loop
from twofold.charts.text import text_of


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
