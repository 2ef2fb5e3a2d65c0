"""Factors from gaps: recovered where the model is right, unmoved without rows, surer with more."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.measure.calibration_solve import (
    NOISE_LOG,
    Belief,
    Gaps,
    calibrated,
    left_out_gaps,
    prior_covariance,
    repeat_noise,
    solve,
    spread_after,
    student_quantile,
)

FACTOR_COUNT = 3
BELIEF = Belief(prior_covariance([0.05, 0.1, 0.2], [0.1] * FACTOR_COUNT), {"step": 0.2}, NOISE_LOG)


def gaps_of(log_factors: np.ndarray, rows: int, seed: int = 0, noise: float = 0.0) -> Gaps:
    """Rows whose time is made of three parts, each sped up by its factor."""
    generator = np.random.default_rng(seed)
    slopes = -generator.dirichlet(np.ones(FACTOR_COUNT), rows)
    gap = slopes @ log_factors + noise * generator.standard_normal(rows)
    return Gaps(slopes, gap, np.full(rows, "step"), np.arange(rows))


@given(st.lists(st.floats(-0.15, 0.15), min_size=3, max_size=3), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_factors_of_a_true_model_are_recovered_within_their_doubt(told: list[float], seed: int) -> None:
    truth = np.array(told)
    solved = solve(gaps_of(truth, 12, seed), BELIEF)
    off = solved.log_factors - truth
    assert off @ np.linalg.solve(solved.log_covariance, off) < 16.3  # 0.999 of chi² with 3 degrees
    assert np.abs(gaps_of(truth, 12, seed).slopes @ off).max() < NOISE_LOG


def test_without_rows_nothing_moves_and_nothing_is_surer() -> None:
    solved = solve(gaps_of(np.zeros(FACTOR_COUNT), 0), BELIEF)
    assert np.all(solved.log_factors == 0)
    assert np.array_equal(solved.log_covariance, BELIEF.log_covariance)


def test_one_row_moves_the_answer_by_less_than_its_gap() -> None:
    gaps = gaps_of(np.full(FACTOR_COUNT, 0.3), 1)
    moved = float((gaps.slopes @ solve(gaps, BELIEF).log_factors)[0])
    assert 0 < moved / float(gaps.log_gap[0]) < 0.7


@given(st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_more_rows_leave_less_doubt(seed: int) -> None:
    truth = np.array([0.05, -0.05, 0.1])
    doubts, widths = [], []
    for rows in (1, 4, 16, 64):
        gaps = gaps_of(truth, rows, seed)
        doubts.append(np.linalg.det(solve(gaps, BELIEF).log_covariance))
        widths.append(spread_after(calibrated(gaps, BELIEF)[1], 0.2, NOISE_LOG))
    assert all(more < fewer for fewer, more in pairwise(doubts))
    # Errors of a few rows left out may be small by chance: a tenth is allowed for that.
    assert all(more < 1.1 * fewer for fewer, more in pairwise(widths))
    assert widths[-1] < widths[0] / 2


@given(st.permutations(range(9)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    gaps = gaps_of(np.array([0.1, 0.0, -0.1]), 9, noise=0.05)
    shuffled = Gaps(gaps.slopes[order], gaps.log_gap[order], gaps.metric[order], gaps.row[order])
    one, other = calibrated(gaps, BELIEF)[0], calibrated(shuffled, BELIEF)[0]
    assert one.log_factors == pytest.approx(other.log_factors, abs=1e-9)


def test_a_row_far_off_counts_little() -> None:
    truth = np.array([0.1, 0.1, 0.1])
    clean = gaps_of(truth, 10)
    wild = Gaps(clean.slopes, clean.log_gap + np.where(np.arange(10) == 3, 2.0, 0.0), clean.metric, clean.row)
    steps = [clean.slopes @ solve(gaps, BELIEF).log_factors for gaps in (clean, wild)]
    assert np.abs(steps[1] - steps[0]).max() < 0.1


def test_rows_that_no_factor_explains_leave_the_factors_near_their_prior() -> None:
    generator = np.random.default_rng(1)
    slopes = -generator.dirichlet(np.ones(FACTOR_COUNT), 10)
    scattered = Gaps(slopes, np.where(np.arange(10) % 2, 0.8, -0.8), np.full(10, "step"), np.arange(10))
    kept, left_out = calibrated(scattered, BELIEF)
    assert np.abs(slopes @ kept.log_factors).max() < 0.1
    assert spread_after(left_out, 0.2, NOISE_LOG) > 1.28 * 0.2  # worse than believed: less sure, not surer


def test_rows_left_out_are_predicted_as_by_a_fit_without_them() -> None:
    gaps = gaps_of(np.array([0.1, 0.1, 0.1]), 8, noise=0.02)
    pairs = Gaps(gaps.slopes, gaps.log_gap, gaps.metric, np.arange(8) // 2)  # two figures a row
    solved = solve(pairs, BELIEF)
    left_out = left_out_gaps(pairs, BELIEF, solved)
    kept = pairs.row != 1
    told = pairs.slopes[kept] / solved.figure_noise_log[kept, np.newaxis] ** 2
    precision = told.T @ pairs.slopes[kept] + np.linalg.inv(BELIEF.log_covariance)
    without = np.linalg.solve(precision, told.T @ pairs.log_gap[kept])
    assert left_out[~kept] == pytest.approx((pairs.log_gap - pairs.slopes @ without)[~kept], abs=1e-12)


def test_the_range_is_never_narrower_than_a_measurement() -> None:
    assert spread_after(np.zeros(1000), 0.2, NOISE_LOG) >= 1.28 * NOISE_LOG


def test_students_quantiles_are_those_of_the_tables() -> None:
    for degrees, table in ((3, 1.638), (5, 1.476), (9, 1.383), (30, 1.310)):
        assert student_quantile(0.9, degrees) == pytest.approx(table, rel=0.01)


def test_noise_is_what_repeats_show() -> None:
    assert repeat_noise([np.array([1.0]), np.array([2.0])]) is None
    assert repeat_noise([np.array([0.0, 0.2]), np.array([5.0])]) == pytest.approx(0.1 * np.sqrt(2))
