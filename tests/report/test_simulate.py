"""The screen of a rehearsal claims no more certainty than its runs have."""

import pytest

from twofold.contracts.results.simulated import Comparison, Difference
from twofold.report.simulate import _comparison_lines, _plain


@pytest.mark.parametrize(("half_s", "marked"), [(0.0, False), (0.1, True), (2.0, False)])
def test_a_difference_is_beyond_chance_only_where_chance_was_at_work(half_s: float, marked: bool) -> None:
    gap = Difference("chat.ttft_p95_s", 1.0, 2.0, 1.0, 1.0 - half_s, 1.0 + half_s)
    lines = _comparison_lines(Comparison("a", "b", (0, 1), (gap,)))
    assert lines[1].endswith("*") == marked
    assert ("nothing is drawn" in lines[-1]) == (half_s == 0.0)


@pytest.mark.parametrize(
    ("number", "text"),
    [(100.0, "100"), (0.00231, "0.0023"), (3e-8, "0.00000003"), (0.0, "0"), (1e-5, "0.00001")],
)
def test_shares_of_a_year_have_no_exponent(number: float, text: str) -> None:
    assert _plain(number) == text
