"""The gate compares the same rows only, and fails when left-out errors got worse."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.measure.evidence import Evidence, gather
from twofold.measure.gate import LEAST_ROWS, OTHERS, GateFigure, compare, gate_figures, read_figures
from twofold.measure.results import Column
from twofold.measure.validation import read_data

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
FIGURE = GateFigure("truth", "training", "step_time", "dense", "a", 20, 20, "d1", 0.10, 0.08)


def figures(*errors: float, rows: int = LEAST_ROWS) -> list[GateFigure]:
    return [
        replace(FIGURE, source=f"s{number}", rows=rows, answered=rows, mean_error=error)
        for number, error in enumerate(errors)
    ]


def test_the_same_figures_hold() -> None:
    found = compare(figures(0.1, 0.2), figures(0.1, 0.2))
    assert (found.failure, found.moved, found.compared) == ("", (), 2)


def test_two_groups_a_little_worse_or_one_much_worse_fail() -> None:
    assert compare(figures(0.1, 0.1), figures(0.112, 0.1)).failure == ""
    assert "2 groups" in compare(figures(0.1, 0.1), figures(0.112, 0.112)).failure
    assert "s0" in compare(figures(0.1, 0.1), figures(0.131, 0.05)).failure


def test_groups_of_few_rows_are_shown_but_do_not_fail() -> None:
    found = compare(figures(0.1, 0.1, rows=19), figures(0.5, 0.5, rows=19))
    assert found.failure == "" and len(found.moved) == 2


@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=6), st.data())
def test_what_became_better_never_fails(before: list[float], data: st.DataObject) -> None:
    after = [error * data.draw(st.floats(0.0, 1.0)) for error in before]
    found = compare(figures(*before), figures(*after))
    assert found.failure == ""
    assert all(moved.points <= 0.0 for moved in found.moved)


def test_what_moved_most_for_the_worse_comes_first() -> None:
    found = compare(figures(0.1, 0.1, 0.1), figures(0.05, 0.105, 0.1))
    assert [moved.name.split(" · ")[-1] for moved in found.moved] == ["s1", "s0"]


def test_other_rows_are_never_compared() -> None:
    found = compare([FIGURE], [replace(FIGURE, digest="d2", mean_error=0.9)])
    assert (found.compared, found.moved) == (0, ())
    assert "other rows" in found.failure and found.unlike


def test_answering_fewer_rows_is_no_way_to_get_better() -> None:
    found = compare([FIGURE], [replace(FIGURE, answered=19, mean_error=0.01)])
    assert "1 rows fewer" in found.failure


def test_a_gate_without_committed_figures_fails() -> None:
    assert compare([], figures(0.1)).failure and compare([], []).failure


def test_small_sources_stand_together_and_no_row_is_lost_or_counted_twice(sample: Evidence) -> None:
    found = [each for each in gate_figures("sample", sample) if each.figure == "step_time"]
    assert sum(each.rows for each in found) == len(sample.parts["step_time"].rows)
    assert {each.source for each in found if each.rows < LEAST_ROWS} <= {OTHERS}


def test_predictions_of_the_sample_are_as_good_as_committed(sample: Evidence) -> None:
    found = compare(read_figures("sample", read_data(None).rows), gate_figures("sample", sample))
    assert found.failure == "", found.moved


def test_predictions_of_all_open_rows_are_as_good_as_committed() -> None:
    if not TRUTH.exists():
        pytest.skip("the open rows are not beside this checkout: ../shared/truth")
    data = read_data(TRUTH)
    evidence = gather(data, only=(Column.LEFT_OUT,))
    found = compare(read_figures("truth", data.rows), gate_figures("truth", evidence))
    assert found.failure == "", found.moved
