import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.serving.fleet_state import Purpose, score, unit


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 9))
def test_chance_is_a_fraction_and_the_same_again(seed: int, number: int, turn: int) -> None:
    drawn = unit(seed, Purpose.ERROR, number, turn)
    assert 0.0 < drawn < 1.0 and drawn == unit(seed, Purpose.ERROR, number, turn)


@pytest.mark.parametrize(("mean", "spread"), [(0.8, 0.4), (0.75, 0.3), (0.75, 0.05), (1.0, 0.0)])
def test_scores_have_the_mean_and_the_spread_that_are_asked_for(mean: float, spread: float) -> None:
    scores = [score(4, number, mean, spread) for number in range(20_000)]
    assert float(np.mean(scores)) == pytest.approx(mean, abs=0.008)
    assert float(np.std(scores)) == pytest.approx(spread, abs=0.01)
    assert min(scores) >= 0.0 and max(scores) <= 1.0
