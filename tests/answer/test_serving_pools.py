from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.context import Context
from twofold.answer.ranges import Drawn
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_pools import (
    LEAST_CARRIED_FRACTION,
    carried_ratios,
    drawn_fleet,
    goal_figures,
    missing_fraction,
)
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.perf.constants import Constants

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


def test_more_of_the_same_replicas_keep_their_curves_and_get_what_they_would_get_anew(
    catalog: Catalog, constants: Constants
) -> None:
    spec = parse_spec(EDGE.replace("3.4 ms", "20 ms"), "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 40, 0), None)
    choice = choose_serving(spec.services[0], context)
    before = drawn_fleet(choice, context)
    goal_figures(before)
    more = tuple(
        replace(each, count=replace(each.count, needed=each.count.needed + 1)) for each in choice.fleet.pools
    )
    grown = replace(choice, fleet=replace(choice.fleet, pools=more))
    kept, anew = drawn_fleet(grown, context, before), drawn_fleet(grown, context)
    figures = goal_figures(anew)
    for goal, (figure, limit_s) in goal_figures(kept).items():
        assert figures[goal][1] == limit_s
        np.testing.assert_array_equal(figure.samples, figures[goal][0].samples)
    assert [each.curves is old.curves for each, old in zip(kept, before, strict=True)] == [True]
