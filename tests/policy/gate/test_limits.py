import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate import LimitSettings, Rate
from twofold.policy.gate.limits import Limiter

REQUESTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.01, 0.5, 3.0, 1e6]), st.integers(0, 400)), min_size=1, max_size=80
)


@given(REQUESTS)
def test_no_more_than_rate_and_burst_goes_out_over_any_time(requests: list[tuple[float, int]]) -> None:
    rate = Rate(requests_per_s=2.0, tokens_per_s=100.0, burst_s=3.0)
    limiter, now_s, gone = Limiter(LimitSettings(tenant=rate)), 0.0, []
    for gap_s, tokens in requests:
        now_s += gap_s
        if limiter.take_or_wait_s("a", "", tokens, now_s) == 0.0:
            gone.append((now_s, tokens))
    for first, (from_s, _) in enumerate(gone):
        for last in range(first, len(gone)):
            while_s = gone[last][0] - from_s + 3.0
            assert last + 1 - first <= 2.0 * while_s + 1e-6
            before_the_last = sum(tokens for _, tokens in gone[first:last])
            assert before_the_last <= 100.0 * while_s + 1e-6


@given(REQUESTS)
def test_who_waits_as_long_as_was_said_is_let_in(requests: list[tuple[float, int]]) -> None:
    limiter, now_s = Limiter(LimitSettings(tenant=Rate(0.7, 90.0, 2.0))), 0.0
    for gap_s, tokens in requests:
        now_s += min(gap_s, 10.0)
        wait_s = limiter.take_or_wait_s("a", "", tokens, now_s)
        if wait_s > 0.0:
            assert wait_s < math.inf
            now_s += wait_s * (1 + 1e-9) + 1e-9
            assert limiter.take_or_wait_s("a", "", tokens, now_s) == 0.0


def test_tokens_that_were_not_written_may_be_asked_for_again() -> None:
    limiter = Limiter(LimitSettings(tenant=Rate(tokens_per_s=10.0, burst_s=10.0)))
    assert limiter.take_or_wait_s("a", "", 100, 0.0) == 0.0
    assert limiter.take_or_wait_s("a", "", 50, 0.0) == pytest.approx(5.0)
    limiter.give_back("a", "", 50)
    assert limiter.take_or_wait_s("a", "", 50, 0.0) == 0.0


def test_a_request_larger_than_the_burst_goes_when_all_is_saved_and_leaves_a_debt() -> None:
    limiter = Limiter(LimitSettings(tenant=Rate(tokens_per_s=10.0, burst_s=1.0)))
    assert limiter.take_or_wait_s("a", "", 100, 0.0) == 0.0
    assert limiter.take_or_wait_s("a", "", 1, 0.0) == pytest.approx(9.1)


def test_a_named_tenant_has_its_own_rate_and_all_share_their_classs() -> None:
    rates = (("big", Rate(requests_per_s=4.0, burst_s=1.0)),)
    classes = (("chat", Rate(requests_per_s=5.0, burst_s=1.0)),)
    limiter = Limiter(LimitSettings(Rate(requests_per_s=2.0, burst_s=1.0), rates, classes))
    let_in = [
        name for name in ("big", "a") for _ in range(6) if not limiter.take_or_wait_s(name, "chat", 1, 0.0)
    ]
    assert let_in == ["big"] * 4 + ["a"]
    assert [limiter.take_or_wait_s("b", "other", 1, 0.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_what_one_limit_refuses_costs_nothing_at_the_other() -> None:
    limiter = Limiter(LimitSettings(Rate(1.0, burst_s=1.0), classes=(("chat", Rate(1.0, burst_s=1.0)),)))
    assert limiter.take_or_wait_s("a", "chat", 1, 0.0) == 0.0
    assert limiter.take_or_wait_s("b", "chat", 1, 0.0) == 1.0
    assert limiter.take_or_wait_s("b", "", 1, 0.0) == 0.0


def test_without_a_rate_anything_goes_and_nothing_is_remembered() -> None:
    limiter = Limiter(LimitSettings(tenants=(("a", Rate(1.0)),)))
    assert all(limiter.take_or_wait_s(f"tenant {n}", "", 10**9, 0.0) == 0.0 for n in range(1000))
    assert not limiter._tenants


def test_names_without_number_are_no_way_around_the_limit() -> None:  # S8
    limiter = Limiter(LimitSettings(tenant=Rate(requests_per_s=1.0, burst_s=5.0), tenant_count_max=10))
    let_in = sum(not limiter.take_or_wait_s(f"tenant {n}", "", 1, 0.0) for n in range(1000))
    assert let_in == 10 + 5 and len(limiter._tenants) == 10


def test_names_without_number_take_no_named_tenant_its_own_limit() -> None:
    named = (("big", Rate(requests_per_s=1000.0, burst_s=1.0)),)
    limiter = Limiter(LimitSettings(Rate(requests_per_s=0.01, burst_s=100.0), named, tenant_count_max=3))
    for number in range(50):
        limiter.take_or_wait_s(f"tenant {number}", "", 1, 0.0)
    assert [limiter.take_or_wait_s("big", "", 1, 0.0) for _ in range(1000)] == [0.0] * 1000
    assert limiter.take_or_wait_s("big", "", 1, 0.0) == pytest.approx(0.001)
    limiter.give_back_all("big", "", 1)
    assert limiter.take_or_wait_s("big", "", 1, 0.0) == 0.0 and len(limiter._tenants) == 3


@given(REQUESTS)
def test_what_is_given_back_whole_leaves_the_buckets_as_they_were(requests: list[tuple[float, int]]) -> None:
    rate, now_s = Rate(requests_per_s=2.0, tokens_per_s=100.0, burst_s=3.0), 0.0
    plain, busy = (Limiter(LimitSettings(rate, classes=(("", rate),))) for _ in range(2))
    for gap_s, tokens in requests:
        now_s += gap_s
        if busy.take_or_wait_s("a", "", tokens + 1, now_s) == 0.0:
            busy.give_back_all("a", "", tokens + 1)
        waits_s = [limiter.take_or_wait_s("a", "", tokens, now_s) for limiter in (plain, busy)]
        assert waits_s[0] == pytest.approx(waits_s[1], abs=1e-6)


def test_what_is_given_back_late_is_never_more_than_the_burst() -> None:
    limiter = Limiter(LimitSettings(Rate(2.0, 20.0, burst_s=2.0)))
    for now_s in (0.0, 0.0, 100.0):
        assert limiter.take_or_wait_s("a", "", 10, now_s) == 0.0
    for _ in range(2):
        limiter.give_back_all("a", "", 10)
    assert [limiter.take_or_wait_s("a", "", 1, 100.0) for _ in range(5)] == [0.0] * 4 + [0.5]


def test_a_tenant_that_was_silent_for_long_makes_place_for_another() -> None:
    limiter = Limiter(LimitSettings(tenant=Rate(requests_per_s=1.0, burst_s=5.0), tenant_count_max=2))
    for now_s, tenant in ((0.0, "a"), (0.0, "b"), (10.0, "c"), (10.0, "d")):
        assert limiter.take_or_wait_s(tenant, "", 1, now_s) == 0.0
    assert list(limiter._tenants) == ["c", "d"]


@pytest.mark.parametrize("wrong", [{"requests_per_s": 0.0}, {"tokens_per_s": -1.0}, {"burst_s": 0.0}])
def test_a_rate_that_lets_nothing_through_is_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        Rate(**wrong)
