from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.ranges import Drawn
from twofold.answer.serving_pools import LEAST_CARRIED_FRACTION, carried_ratios, missing_fraction
from twofold.contracts.results.plan import Plan

EDGE = """
name: edge
serving:
  model: llama-2-13b
  quantisation: [fp8]
  classes:
    chat:
      traffic: {rate: 8 /s, peak: 2x, input: {mean: 700 tok}, output: {mean: 250 tok}}
      slo: {ttft_p95: 600 ms, tpot_p95: 3.4 ms}
"""


def test_a_goal_at_the_edge_of_physics_does_not_multiply_the_cost_without_end(
    planned: Callable[[str], Plan],
) -> None:
    (service,) = planned(EDGE).serving
    cost, (chat,) = service.cost_usd_per_year, service.classes
    assert cost and cost.high > 2 * cost.value  # many draws miss the goal, and the range says so
    assert cost.high < 15 * cost.value
    assert chat.holds_until_per_s.low > chat.holds_until_per_s.value / 15
    (edge,) = [warning for warning in service.warnings if "at the edge" in warning]
    assert edge.startswith("`chat`") and "10 times" in edge


@given(misses=st.integers(0, 200), own=st.floats(0.1, 1e4), most=st.floats(1.0, 1.5))
def test_a_replica_never_carries_far_more_than_the_middle_because_most_draws_miss(
    misses: int, own: float, most: float
) -> None:
    """Where most draws miss a goal outright the median is 0, and over it every other draw was infinite."""
    under = np.where(np.arange(200) < misses, 0.0, own * most)
    ratios = carried_ratios(under, np.array([own]))
    assert ratios.min() >= LEAST_CARRIED_FRACTION and ratios.max() <= 2 * most
    assert (ratios <= LEAST_CARRIED_FRACTION).sum() == misses


def test_what_usually_holds_is_the_median_of_the_draws() -> None:
    under = np.array([1.0, 2.0, 3.0])
    assert carried_ratios(under, np.array([3.0])) == pytest.approx([0.5, 1.0, 1.5])
    assert carried_ratios(under, np.array([100.0])) == pytest.approx([0.1, 0.1, 0.1])  # far below the middle


def test_draws_that_carry_the_least_that_is_counted_are_told() -> None:
    assert missing_fraction(Drawn(10.0, np.array([0.5, 1.0, 5.0, 10.0]))) == 0.5
