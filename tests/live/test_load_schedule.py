"""Schedules are functions of their seed, and what they claim to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import ValueRefusedError
from twofold.live.loads.loader import bare_endpoint, closed_loop
from twofold.live.loads.loads import ARRIVAL_LIMIT_COUNT, poisson_arrivals_s, shuffled


@given(rate_per_s=st.floats(0.1, 50.0), duration_s=st.floats(0.1, 20.0), seed=st.integers(0, 2**31))
def test_arrivals_ascend_within_the_duration_and_follow_the_seed(
    rate_per_s: float, duration_s: float, seed: int
) -> None:
    times = poisson_arrivals_s(rate_per_s, duration_s, seed)
    assert times == sorted(times) and all(0 < each < duration_s for each in times)
    assert times == poisson_arrivals_s(rate_per_s, duration_s, seed)
    longer = poisson_arrivals_s(rate_per_s, duration_s * 2, seed)
    assert longer[: len(times)] == times


def test_arrivals_are_a_poisson_stream() -> None:
    """Count and gaps: mean 1/rate, and the variance of a count equals its mean (six sigma)."""
    times = np.array(poisson_arrivals_s(20.0, 2000.0, seed=3))
    assert abs(len(times) - 40_000) < 6 * 200
    gaps_s = np.diff(times)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.03)
    counts = np.bincount(times.astype(int), minlength=2000)
    assert counts.var() == pytest.approx(counts.mean(), rel=0.2)


def test_nonsense_and_endless_loads_are_refused() -> None:
    for rate_per_s, duration_s in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ValueRefusedError, match="above zero"):
            poisson_arrivals_s(rate_per_s, duration_s, 0)
    with pytest.raises(ValueRefusedError, match="more than"):
        poisson_arrivals_s(ARRIVAL_LIMIT_COUNT, 1.1, 0)


@given(items=st.lists(st.integers(), min_size=1, max_size=9, unique=True), seed=st.integers(0, 99))
def test_every_item_comes_once_before_any_comes_twice(items: list[int], seed: int) -> None:
    row, again = shuffled(items, seed), shuffled(items, seed)
    first = [next(row) for _ in items]
    assert sorted(first) == sorted(items) == sorted(next(row) for _ in items)
    assert first == [next(again) for _ in items]


def test_a_row_of_nothing_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match="at least one prompt"):
        closed_loop(bare_endpoint("http://localhost"), (), 1, max_tokens=1, seed=0, request_count=1)
