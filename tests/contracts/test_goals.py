"""Goals in words, and as other languages spell them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.goals import METRICS, QUANTILES, SuccessGoal, metric_text, stated_goal


def test_a_goal_reads_the_same_in_a_plan_and_in_a_reason() -> None:
    assert metric_text("ttft_p95") == metric_text("ttft_s_p95") == "TTFT p95"


@pytest.mark.parametrize("goal", [f"{metric}_{which}" for metric in METRICS for which in QUANTILES])
def test_a_stated_goal_reads_as_the_goal_itself(goal: str) -> None:
    assert metric_text(stated_goal(goal)) == metric_text(goal)


@pytest.mark.parametrize(
    ("fraction", "failed", "asked", "met"),
    [
        (0.999, 0, 0, None),
        (0.999, 0, 2302, None),  # one failure in a thousand may well not have come yet
        (0.999, 0, 2303, True),
        (0.999, 5, 5000, True),
        (0.999, 6, 5000, False),
        (0.999, 4, 500, False),  # few, and yet too many for chance
        (0.999, 1, 500, None),
        (0.99, 1, 100, None),
        (0.99, 2, 300, True),
        (0.9999999, 3, 1000, False),
    ],
)
def test_whole_answers_are_judged_by_their_share_and_left_open_where_there_are_few(
    fraction: float, failed: int, asked: int, met: bool | None
) -> None:
    assert SuccessGoal(fraction).met(failed, asked) is met


@given(st.floats(0.5, 0.9999999), st.integers(0, 3000), st.data())
def test_one_more_failure_never_makes_it_better(fraction: float, asked: int, data: st.DataObject) -> None:
    fewer = data.draw(st.integers(0, asked))  # INV-36
    more = data.draw(st.integers(fewer, asked))
    rank = {False: 0, None: 1, True: 2}
    goal = SuccessGoal(fraction)
    assert rank[goal.met(more, asked)] <= rank[goal.met(fewer, asked)]


def test_while_something_goes_wrong_one_in_a_hundred_may_fail_unless_said_otherwise() -> None:
    assert SuccessGoal().disturbed(None).fraction == 0.99
    assert SuccessGoal(0.9).disturbed(None).fraction == 0.9
    assert SuccessGoal().disturbed(0.9995).fraction == 0.9995
