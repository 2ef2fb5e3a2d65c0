"""Beliefs are put off as a scenario says, else by 30 %, or as far as the plan's own range goes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.parts import Part
from twofold.contracts.results.serving import ClassPlan
from twofold.contracts.spec.scenario import Scenario
from twofold.core.estimate import Estimate
from twofold.rehearse.run import PoolTask, belief_factors

ONE = Estimate(1.0, 1.0, 1.0, "1/s")
CHAT = ClassPlan("chat", 20.0, 40.0, 500.0, 100.0, {}, (), 1, ONE, ONE, None, None, ())


def task(*times: Estimate) -> PoolTask:
    """A pool with a class for each time that its answers take."""
    classes = tuple(replace(CHAT, latency_budget=(Part("decode", each, 1.0),)) for each in times)
    return PoolTask(None, classes, None, None, None, None, {})  # type: ignore[arg-type]


def scenario(**beliefs: str) -> Scenario:
    return Scenario.model_validate({"beliefs": beliefs})


@given(low=st.floats(0.1, 1.0), high=st.floats(1.0, 9.0), scale=st.floats(0.01, 100.0))
def test_unsaid_they_are_at_the_ends_of_the_widest_range(low: float, high: float, scale: float) -> None:
    wide = Estimate(scale, low * scale, high * scale, "s")
    narrow = Estimate(1.0, (1 + low) / 2, (1 + high) / 2, "s")
    factors = belief_factors(scenario(), [task(narrow), task(narrow, wide)])
    assert factors == (1.0, pytest.approx(min(low, 0.7)), pytest.approx(max(high, 1.3)))


def test_what_is_said_goes_before_and_a_narrow_range_is_thirty_percent() -> None:
    known = task(Estimate(1.0, 0.8, 1.2, "s"))
    assert belief_factors(scenario(), [known]) == (1.0, 0.7, 1.3)
    assert belief_factors(scenario(error="20 %"), [known]) == (1.0, 0.8, 1.2)
    assert belief_factors(scenario(error="0 %"), [known]) == (1.0,)
    assert belief_factors(scenario(), [task(Estimate(1.0, 1.0, 1.0, "s"))]) == (1.0, 0.7, 1.3)
    assert belief_factors(scenario(), []) == (1.0, 0.7, 1.3)
