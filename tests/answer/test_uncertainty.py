from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.calibrated import calibration_rows
from twofold.answer.uncertainty import (
    DRAW_COUNT,
    FACTORS,
    Spread,
    draw_factors,
    draws_between,
    draws_in,
    estimate_of,
    factor_ends,
    flip_fraction,
    stretch,
)
from twofold.contracts.rows.calibrations import CalibratedFactor, CalibratedStack, Calibration
from twofold.perf.constants import Constants, load_constants

CONSTANTS = load_constants()
DRAWS = draw_factors(CONSTANTS)


def log_width(samples: np.ndarray) -> float:
    low, high = np.percentile(samples, (10, 90))
    return float(np.log(high / low))


@pytest.mark.parametrize("name", FACTORS)
def test_draws_have_median_one_and_the_stated_range(name: str) -> None:
    low, high = factor_ends(CONSTANTS, name)
    assert DRAWS[name].shape == (DRAW_COUNT, 1)
    assert np.median(DRAWS[name]) == pytest.approx(1.0, rel=1e-4)
    assert log_width(DRAWS[name]) == pytest.approx(np.log(high / low), rel=0.03)


def test_the_same_seed_gives_the_same_draws() -> None:
    again, other = draw_factors(CONSTANTS), draw_factors(CONSTANTS, seed=1)
    assert all(np.array_equal(DRAWS[name], again[name]) for name in FACTORS)
    assert not np.array_equal(DRAWS["compute"], other["compute"])


def test_factors_are_nearly_independent() -> None:
    logs = np.log(np.hstack([DRAWS[name] for name in FACTORS]))
    correlation = np.corrcoef(logs.T) - np.eye(len(FACTORS))
    assert np.abs(correlation).max() < 0.25


@given(
    middle=st.floats(1e-3, 1e6),
    sigma=st.just(0.0) | st.floats(1e-3, 0.5),
    low=st.floats(0.3, 0.99),
    high=st.floats(1.01, 3.0),
)
def test_a_range_is_at_least_what_left_out_sources_showed(
    middle: float, sigma: float, low: float, high: float
) -> None:
    samples = np.exp(np.random.default_rng(3).normal(0, sigma, DRAW_COUNT))
    wide = stretch(middle, samples, Spread(low, high, "interval"))
    assert log_width(wide) >= min(log_width(samples), np.log(high / low)) * 0.999
    low_end, high_end = np.percentile(wide, (10, 90))
    assert low_end <= middle * low * 1.02 and high_end >= middle * high * 0.98
    assert np.array_equal(np.argsort(samples, kind="stable"), np.argsort(wide, kind="stable")) or sigma < 1e-6


def test_samples_wider_than_the_spread_stay_as_they_are() -> None:
    samples = np.exp(np.random.default_rng(0).normal(0, 0.5, DRAW_COUNT))
    assert stretch(2.0, samples, Spread(0.99, 1.01, "")) == pytest.approx(2.0 * samples / np.median(samples))


@given(st.floats(1.0, 3.0))
def test_draws_that_vary_on_one_side_are_widened_on_both(reach: float) -> None:
    samples = np.where(np.arange(200) < 150, 1.0, reach)
    low, high = np.percentile(stretch(1.0, samples, Spread(0.8, 1.25, "interval")), (10, 90))
    assert low == pytest.approx(0.8, rel=0.01)
    assert high == pytest.approx(max(1.25, reach), rel=0.02)


def test_an_estimate_is_the_middle_and_the_deciles() -> None:
    estimate = estimate_of(5.0, np.linspace(0, 10, 101), "s")
    assert (estimate.value, estimate.low, estimate.high) == (5.0, 1.0, 9.0)


def test_a_choice_flips_where_another_wins() -> None:
    chosen = np.array([1.0, 1.0, 1.0, 1.0])
    others = np.array([[0.9, 2.0], [2.0, 0.5], [1.5, 1.5], [2.0, 2.0]])
    assert flip_fraction(chosen, others) == 0.5
    assert flip_fraction(chosen, np.empty((4, 0))) == 0.0


@given(middle=st.floats(1e-6, 1e6), below=st.floats(1.0, 3.0), above=st.floats(1.0, 3.0))
def test_draws_of_a_measured_figure_have_its_median_and_its_deciles(
    middle: float, below: float, above: float
) -> None:
    samples = draws_between(middle, middle / below, middle * above, 200, 0)
    found = estimate_of(middle, samples, "s")
    assert (found.low, found.high) == (
        pytest.approx(middle / below, rel=0.02),
        pytest.approx(middle * above, rel=0.02),
    )
    assert np.median(samples) == pytest.approx(middle, rel=0.02)


def test_two_measured_figures_are_drawn_independently() -> None:
    first, second = (draws_between(1.0, 0.5, 2.0, 200, stream) for stream in (0, 1))
    assert sorted(first) == sorted(second)
    assert abs(float(np.corrcoef(np.log(first), np.log(second))[0, 1])) < 0.2


SCOPE = {"half": "inference", "accelerator": "B200", "software": "vllm", "era": "0.12+", "kind": "dense"}
COVARIANCE = ((0.0004, 0.0003, 0.0), (0.0003, 0.0009, 0.0), (0.0, 0.0, 0.01))
NAMES = ("compute", "host", "prefill")


@pytest.fixture(scope="module")
def constants() -> Constants:
    factors = tuple(CalibratedFactor(name, 1.1, 1.0, 1.2, 0.9, 1.1) for name in NAMES)
    stack = CalibratedStack(
        "inference", "B200", "vllm", "0.12+", "0.15", ("dense",), 5, factors, COVARIANCE, ()
    )
    found = Calibration("rows.csv", date(2026, 11, 1), 1, "", (stack,), ())
    return load_constants().with_rows(calibration_rows(found, Path("calibration.json")))


def test_a_stack_draws_with_the_covariance_after_its_rows(constants: Constants) -> None:
    own = draws_in(draw_factors(constants, 2000), SCOPE)
    logs = np.log([np.ravel(own[name]) for name in NAMES])
    assert np.cov(logs) == pytest.approx(np.array(COVARIANCE), abs=1e-4 + 0.06 * 0.01)
    assert np.abs(np.median(logs, axis=1)).max() < 0.01  # medians are scaled elsewhere


def test_a_lucky_draw_stays_lucky(constants: Constants) -> None:
    draws = draw_factors(constants)
    for name in ("compute", "host"):
        pair = np.log([np.ravel(draws[name]), np.ravel(draws_in(draws, SCOPE)[name])])
        assert np.corrcoef(pair)[0, 1] > 0.8


def test_other_stacks_and_other_factors_keep_the_common_draws(constants: Constants) -> None:
    draws, plain = draw_factors(constants), draw_factors(load_constants())
    elsewhere = draws_in(draws, SCOPE | {"accelerator": "H100"})
    for name in FACTORS:
        assert np.array_equal(elsewhere[name], plain[name])
    assert np.array_equal(draws_in(draws, SCOPE)["overlap"], plain["overlap"])
    assert "prefill" not in elsewhere
