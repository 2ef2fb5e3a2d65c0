"""Lengths as their mean and 95th percentile say, cut where no trace goes on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.inference.spreads import LONGEST_RATIO, NORMAL_P95, cut_spread, p95_ratio_of, spread_of


@given(st.floats(1.001, 3.8))
def test_a_spread_says_its_percentile_again(ratio: float) -> None:
    assert p95_ratio_of(spread_of(ratio)) == pytest.approx(ratio, rel=1e-6)


@given(st.floats(0.0, NORMAL_P95), st.floats(0.0, NORMAL_P95))
def test_wider_logarithms_spread_wider(one: float, other: float) -> None:
    assert cut_spread(min(one, other)) <= cut_spread(max(one, other)) + 1e-9


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.5])
def test_the_spread_is_that_of_drawn_lengths_that_are_cut(sigma: float) -> None:
    drawn = np.exp(np.random.default_rng(0).normal(-(sigma**2) / 2.0, sigma, 400_000))
    longest = LONGEST_RATIO * np.exp(NORMAL_P95 * sigma - sigma**2 / 2.0)
    cut = np.minimum(drawn, longest)
    assert cut_spread(sigma) == pytest.approx(float(np.std(cut) / np.mean(cut)), rel=0.02)


def test_narrow_lengths_are_hardly_cut_and_equal_ones_have_no_spread() -> None:
    assert cut_spread(0.2) == pytest.approx(float(np.sqrt(np.expm1(0.04))), rel=1e-6)
    assert spread_of(1.0) == 0.0 and p95_ratio_of(0.0) == 1.0
