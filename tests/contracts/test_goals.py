"""Goals in words, and as other languages spell them."""

import pytest

from twofold.contracts import METRICS, QUANTILES, metric_text
from twofold.contracts.goals import stated_goal


def test_a_goal_reads_the_same_in_a_plan_and_in_a_reason() -> None:
    assert metric_text("ttft_p95") == metric_text("ttft_s_p95") == "TTFT p95"


@pytest.mark.parametrize("goal", [f"{metric}_{which}" for metric in METRICS for which in QUANTILES])
def test_a_stated_goal_reads_as_the_goal_itself(goal: str) -> None:
    assert metric_text(stated_goal(goal)) == metric_text(goal)
