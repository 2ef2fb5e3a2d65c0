"""Statistics by their laws; on the same file they are those of the score that unseen rows will get."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.measure.scores import (
    Array,
    Values,
    bias,
    coverage,
    log_errors,
    mean_error,
    median_error,
    ranks,
    regret,
    regrets,
    score,
    share_above,
    share_within,
    spearman,
    width,
)

OFFICIAL = Path(__file__).parents[3] / "shared" / "tools" / "score.py"
POSITIVE = st.floats(1e-3, 1e3)
PAIRS = st.lists(
    st.tuples(POSITIVE, POSITIVE, st.floats(1.0, 3.0), st.floats(1.0, 3.0)), min_size=3, max_size=12
)


def values(rows: list[tuple[float, float, float, float]]) -> Values:
    """Rows of measured, predicted, and how far the ends of the range lie from the middle."""
    measured, predicted, below, above = np.array(rows, float).T
    low, high = predicted / below, predicted * above
    return Values(measured, predicted, low, high, low / 2.0, high * 2.0)


@given(PAIRS, st.floats(1e-3, 1e3))
def test_a_change_of_unit_changes_no_score(
    rows: list[tuple[float, float, float, float]], unit: float
) -> None:
    once, again = values(rows), values([(m * unit, p * unit, low, high) for m, p, low, high in rows])
    assert mean_error(again) == pytest.approx(mean_error(once))
    assert median_error(again) == pytest.approx(median_error(once))
    assert bias(again) == pytest.approx(bias(once), abs=1e-9)


@given(PAIRS)
def test_log_errors_are_symmetric_in_what_is_too_much_and_too_little(
    rows: list[tuple[float, float, float, float]],
) -> None:
    turned = values([(p, m, low, high) for m, p, low, high in rows])
    assert log_errors(turned) == pytest.approx(-log_errors(values(rows)))


@given(PAIRS)
def test_errors_are_not_negative_and_shares_are_shares(
    rows: list[tuple[float, float, float, float]],
) -> None:
    found = score(values(rows))
    assert found.rows == len(rows)
    assert found.mean_error is not None and found.mean_error >= 0.0
    assert found.bias is not None and found.bias > -1.0
    assert found.within_10 is not None and found.within_20 is not None and found.within_30 is not None
    assert 0.0 <= found.within_10 <= found.within_20 <= found.within_30 <= 1.0
    assert found.coverage_80 is not None and found.coverage_95 is not None and found.above_80 is not None
    assert 0.0 <= found.coverage_80 <= found.coverage_95 <= 1.0
    assert 0.0 <= found.above_80 <= 1.0 - found.coverage_80 + 1e-9
    assert found.width_80 is not None and found.width_95 is not None
    assert 1.0 <= found.width_80 <= found.width_95


@given(PAIRS)
def test_a_prediction_that_is_the_measurement_is_perfect(
    rows: list[tuple[float, float, float, float]],
) -> None:
    found = score(values([(m, m, low, high) for m, _, low, high in rows]))
    assert (found.mean_error, found.bias, found.within_10, found.coverage_80) == (0.0, 0.0, 1.0, 1.0)


@given(st.lists(st.floats(-50.0, 50.0), min_size=3, unique_by=lambda x: round(x, 2)))
def test_a_rising_map_keeps_ranks_and_a_falling_one_turns_them(numbers: list[float]) -> None:
    x = np.round(np.array(numbers), 2)
    assert spearman(x, np.exp(x / 10.0)) == pytest.approx(1.0)
    assert spearman(x, -(x**3) - x) == pytest.approx(-1.0)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_ranks_of_ties_are_their_mean_and_sum_as_if_there_were_none(numbers: list[int]) -> None:
    found = ranks(np.array(numbers, float))
    assert found.sum() == pytest.approx(len(numbers) * (len(numbers) + 1) / 2)
    for number in set(numbers):
        assert len(set(found[np.array(numbers) == number])) == 1


def test_what_too_few_rows_tell_is_none() -> None:
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert spearman(np.ones(4), np.arange(4.0)) is None
    empty = score(values([(1.0, 1.0, 1.0, 1.0)]).where(np.array([False])))
    assert (empty.rows, empty.mean_error, empty.coverage_80, empty.width_80) == (0, None, None, None)


def test_rows_without_an_answer_or_a_range_count_where_they_can() -> None:
    nan = float("nan")
    measured, predicted = np.ones(3), np.array([1.1, nan, 1.3])
    end, none = np.array([nan, nan, 1.2]), np.full(3, nan)
    held = Values(measured, predicted, end, end, none, none)
    found = score(held)
    assert found.rows == 2
    assert found.mean_error == pytest.approx(0.2)
    assert (found.coverage_80, found.coverage_95) == (0.0, None)


def test_figures_of_rows_that_can_be_worked_out_by_hand() -> None:
    held = values([(10.0, 11.0, 1.2, 1.2), (10.0, 5.0, 1.25, 1.2), (20.0, 20.0, 2.0, 2.0)])
    assert mean_error(held) == pytest.approx((0.1 + 0.5 + 0.0) / 3)
    assert median_error(held) == pytest.approx(0.1)
    assert bias(held) == pytest.approx((1.1 * 0.5) ** (1 / 3) - 1)
    assert share_within(held, 0.2) == pytest.approx(2 / 3)
    assert coverage(held.measured, held.low_80, held.high_80) == pytest.approx(2 / 3)
    assert width(held.low_80, held.high_80) == pytest.approx(1.5)
    assert share_above(held.measured, held.high_80) == pytest.approx(1 / 3)


TIMES = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=12)


@given(TIMES)
def test_regret_is_never_negative_and_none_where_the_order_is_right(pairs: list[tuple[float, float]]) -> None:
    measured, predicted = np.array(pairs).T
    assert regret(measured, predicted) >= 0.0
    assert regret(measured, 3.0 * measured) == 0.0


@given(TIMES, st.floats(0.1, 10.0))
def test_regret_has_no_unit(pairs: list[tuple[float, float]], unit: float) -> None:
    measured, predicted = np.array(pairs).T
    assert regret(unit * measured, predicted) == pytest.approx(regret(measured, predicted), abs=1e-9)


def test_only_sets_of_two_layouts_or_more_have_a_choice() -> None:
    measured, predicted = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 1.0, 2.0])
    found = regrets(["a", "a", "b", "b"], ["tp1", "tp2", "tp4", "tp4"], measured, predicted)
    assert found == {"a": 1.0}


def official() -> ModuleType:
    if not OFFICIAL.exists():
        pytest.skip("the score for unseen rows is not beside this checkout: ../shared/tools/score.py")
    spec = importlib.util.spec_from_file_location("official_score", OFFICIAL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_scores_are_those_that_unseen_rows_will_get() -> None:
    theirs = official()
    random = np.random.default_rng(5)
    measured: Array = np.round(np.exp(random.normal(0.0, 1.0, 200)), 1) + 0.1  # rounded: with ties
    predicted: Array = np.round(measured * np.exp(random.normal(0.05, 0.3, 200)), 1) + 0.1
    held = Values(measured, predicted, *((predicted / 1.3, predicted * 1.4) * 2))
    ours = score(held)
    pairs = list(zip(measured, predicted, held.low_80, held.high_80, strict=True))
    their = theirs.stats(pairs)
    assert (ours.rows, ours.mean_error, ours.median_error) == pytest.approx(
        (their["n"], their["mape"], their["median"])
    )
    assert (ours.bias, ours.spearman) == pytest.approx((their["bias"], their["spearman"]))
    assert (ours.coverage_80, ours.width_80) == pytest.approx((their["cover"], their["width"]))
