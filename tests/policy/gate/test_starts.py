"""Starts that fail are repeated ever later, and what is awaited for too long has failed."""

from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.settings import RolloutSettings
from twofold.policy.gate.starts import Starts

SETTINGS = RolloutSettings(start_backoff_s=10.0, start_backoff_s_max=100.0, start_s_max=60.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 200.0)), max_size=20))
def test_pauses_double_with_each_failure_in_a_row_up_to_the_most(steps: list[tuple[bool, float]]) -> None:
    starts, now_s, in_a_row = Starts(SETTINGS), 0.0, 0
    for number, (comes, gap_s) in enumerate(steps):
        now_s += gap_s
        starts.asked(f"r{number}", now_s, "zone")
        if comes:
            assert starts.came(f"r{number}") == now_s
            in_a_row = 0
        else:
            assert starts.failed(f"r{number}", now_s)
            assert starts.not_before_s == now_s + min(10.0 * 2**in_a_row, 100.0)
            in_a_row += 1
        assert starts.failed_count == in_a_row and not starts.pending


def test_what_is_silent_for_too_long_has_failed_once() -> None:
    starts = Starts(SETTINGS)
    starts.asked("early", 0.0, "a")
    starts.asked("late", 30.0, "a")
    starts.given_up(60.0)
    assert list(starts.pending) == ["early", "late"] and not starts.failed_count
    starts.given_up(61.0)
    assert list(starts.pending) == ["late"] and starts.not_before_s == 71.0
    assert not starts.failed("early", 62.0) and starts.came("early") is None
    assert starts.failed_count == 1 and starts.not_before_s == 71.0


def test_what_is_forgotten_neither_came_nor_failed() -> None:
    starts = Starts(SETTINGS)
    starts.asked("new", 0.0, "2")
    starts.asked("old", 0.0, "1")
    starts.forget(["new"])
    assert list(starts.pending) == ["old"] and starts.came("new") is None and not starts.failed("new", 1.0)
