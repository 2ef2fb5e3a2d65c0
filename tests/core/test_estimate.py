"""How probably a number stays below a limit, where its range is all that is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.estimate import Estimate, exact

ends = st.floats(1.001, 50.0)


def test_an_estimate_is_a_number_by_its_middle() -> None:
    assert float(Estimate(2.0, 1.0, 3.0, "s")) == 2.0


@given(value=st.floats(1e-6, 1e9), below=ends, above=ends)
def test_the_ends_of_a_range_hold_with_a_tenth_and_nine_tenths(
    value: float, below: float, above: float
) -> None:
    figure = Estimate(value, value / below, value * above, "s")
    assert figure.probability_within(figure.high) == pytest.approx(0.9)
    assert figure.probability_within(value) == pytest.approx(0.5)
    assert figure.probability_within(figure.low) == pytest.approx(0.1)


@given(
    value=st.floats(1e-6, 1e9),
    below=st.floats(1.0, 50.0),
    above=st.floats(1.0, 50.0),
    ratios=st.lists(st.floats(0.0, 1e3), min_size=2),
)
def test_more_room_never_makes_it_less_probable(
    value: float, below: float, above: float, ratios: list[float]
) -> None:
    figure = Estimate(value, value / below, value * above, "s")
    found = [figure.probability_within(value * ratio) for ratio in sorted(ratios)]
    assert found == sorted(found) and all(0 <= each <= 1 for each in found)


def test_what_is_exact_holds_or_does_not() -> None:
    assert [exact(2.0, "s").probability_within(limit) for limit in (0.0, 1.9, 2.0, 2.1)] == [0, 0, 1, 1]
    free = Estimate(2.0, 0.0, 3.0, "USD")
    assert free.probability_within(-1.0) == free.probability_within(0.0) == 0.0
    assert 0.1 < free.probability_within(1.0) < 0.5
