"""The screen of a rehearsal claims no more certainty than its runs have."""

import pytest

from twofold.contracts.results import ClassFigures
from twofold.contracts.results.simulated import Comparison, Difference, SloKept
from twofold.report.simulate import _comparison_lines, _is_unanswered


@pytest.mark.parametrize(("half_s", "marked"), [(0.0, False), (0.1, True), (2.0, False)])
def test_a_difference_is_beyond_chance_only_where_chance_was_at_work(half_s: float, marked: bool) -> None:
    gap = Difference("chat.ttft_p95_s", 1.0, 2.0, 1.0, 1.0 - half_s, 1.0 + half_s)
    lines = _comparison_lines(Comparison("a", "b", (0, 1), (gap,)))
    assert lines[1].endswith("*") == marked
    assert ("nothing is drawn" in lines[-1]) == (half_s == 0.0)


@pytest.mark.parametrize(
    ("seen_s", "met", "unanswered"), [(0.5, False, True), (0.5, True, False), (2.0, False, False)]
)
def test_a_goal_that_those_answered_kept_is_missed_for_those_who_were_not(
    seen_s: float, met: bool, unanswered: bool
) -> None:
    goal = SloKept("ttft_p95", 1.0, seen_s, None, met)
    one = ClassFigures(
        name="chat",
        service="s",
        pool="s",
        rate_per_s=1.0,
        arrived_count=100,
        finished_count=60,
        ttft_s=None,
        tpot_s=None,
        e2e_s=None,
        slos=(goal,),
        outcomes={},
        goodput_per_s=0.6,
        goodput_fraction=0.6,
        input_tokens=1,
        output_tokens=1,
    )
    assert _is_unanswered(one) == unanswered
