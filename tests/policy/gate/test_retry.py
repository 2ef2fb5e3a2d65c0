import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.retry import KNOWN_COUNT, TENANT_COUNT_MAX, ClientBudget, Hedger, RetryBudget
from twofold.policy.gate.settings import HedgeSettings, RetryBudgetSettings


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 5.0, 1e6])), max_size=200))
def test_no_more_attempts_are_made_than_the_law_says(steps: list[tuple[bool, float]]) -> None:
    settings = RetryBudgetSettings(attempts_fraction=0.2, least_per_s=0.5, burst_count=3)
    budget, now_s, arrived, taken = RetryBudget(settings), 0.0, 0, 0
    for arrives, gap_s in steps:
        now_s += gap_s
        if arrives:
            arrived += 1
            budget.arrived()
        taken += budget.take(now_s)
        assert taken <= 3 + 0.2 * arrived + 0.5 * now_s + 1e-6


def test_when_all_fail_repeats_come_down_to_their_share() -> None:
    budget = RetryBudget(RetryBudgetSettings(attempts_fraction=0.1, least_per_s=0.0))
    taken = 0
    for number in range(1000):
        budget.arrived()
        taken += budget.take(0.001 * number)
    assert taken == pytest.approx(0.1 * 1000 + 10, abs=1)


def test_a_quiet_service_may_still_repeat() -> None:
    budget = RetryBudget(RetryBudgetSettings(attempts_fraction=0.0, least_per_s=0.1, burst_count=1))
    assert [budget.take(float(now_s)) for now_s in range(25)].count(True) == 3


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from([0.0, 0.1, 5.0])), max_size=200)
)
def test_clients_repeat_no_more_in_sum_than_the_law_says(steps: list[tuple[bool, str, float]]) -> None:
    settings = RetryBudgetSettings(attempts_fraction=0.2, least_per_s=0.5, burst_count=3)
    budget, now_s, arrived, taken = ClientBudget(settings), 0.0, 0, 0
    for arrives, tenant, gap_s in steps:
        now_s += gap_s
        if arrives:
            arrived += 1
            budget.arrived(tenant)
        taken += budget.take(tenant, now_s)
        assert taken <= 3 + 0.2 * arrived + 0.5 * now_s + 1e-6


def test_what_one_tenant_repeats_takes_nobody_what_his_own_requests_earned() -> None:
    budget = ClientBudget(RetryBudgetSettings(attempts_fraction=0.1, least_per_s=0.0))
    told = []
    for number in range(1000):
        budget.take("greedy", 0.001 * number)
        if number % 20:
            budget.arrived("modest")
        else:
            told.append(budget.take("modest", 0.001 * number))
    assert all(told[1:])


def test_the_tenants_whose_repeats_are_counted_are_bounded() -> None:
    budget = ClientBudget(RetryBudgetSettings())
    for number in range(TENANT_COUNT_MAX + 5):
        budget.arrived(str(number))
    assert len(budget._earned) == TENANT_COUNT_MAX


@pytest.fixture
def hedger() -> Hedger:
    """One that knows that attempts begin after 0.1 s, and has hedges left."""
    hedger = Hedger(HedgeSettings(after_fraction=0.95, attempts_fraction=0.05))
    for number in range(1000):
        hedger.arrived()
        hedger.sent(number, 0.0)
        hedger.began(number, 0.1)
    return hedger


def test_an_attempt_is_late_when_it_takes_longer_than_almost_all(hedger: Hedger) -> None:
    hedger.sent(5000, 10.0)
    due_s = hedger.next_due_s()
    assert due_s is not None and due_s == pytest.approx(10.1, abs=0.02)
    assert hedger.take_due(due_s - 1e-6) is None
    assert hedger.take_due(due_s) == 5000 and hedger.take_due(1e9) is None and not hedger._sent_s


def test_as_long_as_little_is_known_nothing_is_late() -> None:
    hedger = Hedger(HedgeSettings())
    for number in range(KNOWN_COUNT):
        hedger.arrived()
        hedger.sent(number, 0.0)
        assert hedger.next_due_s() is None
        hedger.began(number, 0.1)


def test_what_began_failed_or_was_left_is_never_hedged(hedger: Hedger) -> None:
    hedger.sent(5000, 10.0)
    hedger.sent(5001, 10.0)
    hedger.began(5000, 10.05)
    hedger.ended(5001)
    assert hedger.take_due(1e9) is None and hedger.next_due_s() is None


def test_no_more_is_hedged_than_the_share_of_what_arrives(hedger: Hedger) -> None:
    hedged = 0
    for number in range(2000):  # a fleet that answers nothing at all any more
        hedger.arrived()
        hedger.sent(5000 + number, 20.0 + number)
        while hedger.take_due(20.0 + number) is not None:
            hedged += 1
    assert hedged <= 0.05 * 2000 + 10


def test_the_wait_before_a_hedge_is_never_shorter_than_its_least() -> None:
    hedger = Hedger(HedgeSettings(wait_s_min=0.5, attempts_fraction=0.5))
    for number in range(100):
        hedger.arrived()
        hedger.sent(number, 0.0)
        hedger.began(number, 0.0)
    hedger.sent(5000, 1.0)
    due_s = hedger.next_due_s()
    assert due_s is not None and due_s >= 1.5 - 1e-9 and not math.isinf(due_s)


def test_when_all_attempts_are_late_the_wait_before_a_hedge_grows(hedger: Hedger) -> None:
    waits_s = []
    for number in range(9):  # a fleet that answers ten times as slowly by now
        hedger.sent(5000 + number, 0.0)
        due_s = hedger.next_due_s()
        assert due_s is not None and hedger.take_due(due_s) == 5000 + number
        waits_s.append(due_s)
        hedger.began(5000 + number, 1.0)
    assert waits_s[8] > 1.4 * waits_s[0]
