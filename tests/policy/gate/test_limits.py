"""The last places are kept from who had more than its share, and from nobody else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.events import Hold, Refuse, ReplicaAdded, RequestArrived, ResponseEnded, Send
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.limits import LEVEL_S, WINDOW_S, Limiter, Reserve, fair_level
from twofold.policy.gate.settings import (
    Beliefs,
    ClassSettings,
    GateSettings,
    LimitSettings,
    QueueSettings,
    Rate,
)
from twofold.policy.machine import Woke

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
    limiter.give_back("big", "", 1, 1)
    assert limiter.take_or_wait_s("big", "", 1, 0.0) == 0.0 and len(limiter._tenants) == 3


@given(REQUESTS)
def test_what_is_given_back_whole_leaves_the_buckets_as_they_were(requests: list[tuple[float, int]]) -> None:
    rate, now_s = Rate(requests_per_s=2.0, tokens_per_s=100.0, burst_s=3.0), 0.0
    plain, busy = (Limiter(LimitSettings(rate, classes=(("", rate),))) for _ in range(2))
    for gap_s, tokens in requests:
        now_s += gap_s
        if busy.take_or_wait_s("a", "", tokens + 1, now_s) == 0.0:
            busy.give_back("a", "", tokens + 1, 1)
        waits_s = [limiter.take_or_wait_s("a", "", tokens, now_s) for limiter in (plain, busy)]
        assert waits_s[0] == pytest.approx(waits_s[1], abs=1e-6)


def test_what_is_given_back_late_is_never_more_than_the_burst() -> None:
    limiter = Limiter(LimitSettings(Rate(2.0, 20.0, burst_s=2.0)))
    for now_s in (0.0, 0.0, 100.0):
        assert limiter.take_or_wait_s("a", "", 10, now_s) == 0.0
    for _ in range(2):
        limiter.give_back("a", "", 10, 1)
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


STEP = st.tuples(st.sampled_from("abc"), st.integers(1, 1000), st.floats(0.0, 40.0), st.booleans())
TENANTS = st.lists(STEP, max_size=60)
AMOUNTS = st.lists(st.floats(0.0, 1e6), max_size=20)

PLACES = 10


def told(steps: list[tuple[str, int, float, bool]]) -> Reserve:
    reserve, now_s = Reserve(0.03, 1000), 0.0
    for tenant, tokens, gap_s, is_sent in steps:
        now_s += gap_s
        reserve.asked(tenant, tokens, now_s)
        reserve.sent(tenant, tokens if is_sent else 0)
    return reserve


@given(TENANTS)
def test_there_is_always_somebody_for_whom_the_last_places_are(
    steps: list[tuple[str, int, float, bool]],
) -> None:
    reserve = told(steps)
    assert not all(reserve.is_kept_from(tenant, 1, 100) for tenant in "abc")


@given(AMOUNTS, st.floats(0.0, 1.0))
def test_a_fair_level_hands_out_all_there_is_and_no_more(asked: list[float], part: float) -> None:
    total = part * sum(asked)
    level = fair_level(asked, total)
    assert level >= 0.0
    if level < math.inf:
        assert sum(min(each, level) for each in asked) == pytest.approx(total, rel=1e-9, abs=1e-9)
    else:
        assert total == pytest.approx(sum(asked))


@given(TENANTS)
def test_nothing_is_kept_where_everybody_had_what_was_asked(
    steps: list[tuple[str, int, float, bool]],
) -> None:
    reserve = told([(tenant, tokens, gap_s, True) for tenant, tokens, gap_s, _ in steps])
    assert not any(reserve.is_kept_from(tenant, 1, 100) for tenant in "abc")


def test_tenants_that_asked_once_take_no_share_from_those_that_ask_for_all() -> None:
    """Fifty others change nothing for two that are equal; a third that gets nothing does."""
    reserve = told([(f"once-{number}", 1, 0.0, True) for number in range(50)])
    for tenant, sent_tokens in (("x", 1000), ("y", 1000)):
        reserve.asked(tenant, 2000, 0.0)
        reserve.sent(tenant, sent_tokens)
    assert not reserve.is_kept_from("x", 1, 100) and not reserve.is_kept_from("y", 1, 100)
    reserve.asked("z", 2000, LEVEL_S)
    assert reserve.is_kept_from("x", 1, 100) and not reserve.is_kept_from("z", 1, 100)


def test_who_waited_over_the_turn_of_a_window_is_counted_when_it_is_sent() -> None:
    reserve = Reserve(0.03, 1000)
    reserve.asked("waits", 2000, 0.0)
    reserve.asked("others", 2000, WINDOW_S)  # the turn
    reserve.sent("waits", 2000)
    assert reserve.is_kept_from("waits", 1, 100) and not reserve.is_kept_from("others", 1, 100)


@given(TENANTS, st.integers(0, 8), st.sampled_from([1, 7, 8, 40, 100, 1000]))
def test_nothing_is_kept_while_enough_is_free_nor_of_a_few_places(
    steps: list[tuple[str, int, float, bool]], beyond_count: int, place_count: int
) -> None:
    reserve, kept_count = told(steps), -(-place_count * 3 // 100)
    free_count = kept_count + 1 + beyond_count
    assert not any(reserve.is_kept_from(tenant, free_count, place_count) for tenant in "abc")
    if place_count < 8:
        assert not any(reserve.is_kept_from(tenant, 1, place_count) for tenant in "abc")


@given(TENANTS, st.integers(0, 8), st.sampled_from([8, 40, 100]))
def test_what_is_left_is_for_a_tenant_or_kept_from_it_or_enough(
    steps: list[tuple[str, int, float, bool]], free_count: int, place_count: int
) -> None:
    reserve = told(steps)
    kept = [reserve.is_kept_from(tenant, free_count, place_count) for tenant in "abc"]
    theirs = [reserve.is_for(tenant, free_count, place_count) for tenant in "abc"]
    assert not any(a and b for a, b in zip(kept, theirs, strict=True))
    assert {a or b for a, b in zip(kept, theirs, strict=True)} in ({True}, {False})


STEPS = st.lists(
    st.tuples(st.sampled_from("aaaabc"), st.integers(1, 300), st.booleans()), min_size=20, max_size=60
)


@settings(max_examples=40)
@given(STEPS)
def test_no_place_is_left_idle_but_by_those_it_is_kept_from(steps: list[tuple[str, int, bool]]) -> None:
    """Behind whomever they wait: from the next turn on, at the latest."""
    gate = Gate(GateSettings(queue=QueueSettings()), Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("r", PLACES), 0.0)
    now_s = 0.0
    for tenant, tokens, ends in steps:
        gate.handle(RequestArrived(tokens, 10, tenant), now_s)
        if ends:
            gate.handle(ResponseEnded(next(iter(gate.view.requests)), 5), now_s)
        now_s = gate.wake_at_s() or now_s
        gate.handle(Woke(), now_s)
        reserve, free_count = gate._path._reserves[""], PLACES - len(gate.view.requests)
        waiting = {request.arrival.tenant for request in gate.view.held.values()}
        assert not free_count or all(reserve.is_kept_from(name, free_count, PLACES) for name in waiting)


def test_who_had_less_does_not_wait_behind_those_that_places_are_kept_from() -> None:
    kind = ClassSettings(wait_s_max=0.5)
    gate = Gate(GateSettings(classes=(kind,), queue=QueueSettings()), Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("r", PLACES), 0.0)
    for tenant in (*["greedy"] * PLACES, *["modest"] * 3):
        gate.handle(RequestArrived(100, 10, tenant), 0.0)
    refused = [effect for effect in gate.handle(Woke(), 0.6) if isinstance(effect, Refuse)]
    assert len(refused) == 3 and not gate.view.held  # who waited too long
    for _ in range(2):
        assert isinstance(gate.handle(RequestArrived(100, 10, "greedy"), LEVEL_S)[0], Hold)
    assert gate.handle(ResponseEnded(1, 10), LEVEL_S) == []  # one place is free, and kept from greedy
    [sent] = gate.handle(RequestArrived(100, 10, "modest"), LEVEL_S)
    assert isinstance(sent, Send) and len(gate.view.held) == 2
    [held] = gate.handle(RequestArrived(100, 10, "modest"), LEVEL_S)
    [ended] = gate.handle(ResponseEnded(2, 10), LEVEL_S)
    assert isinstance(held, Hold) and isinstance(ended, Send) and ended.request_id == held.request_id


def test_a_tenant_that_asks_alone_has_every_place_again_after_a_while() -> None:
    reserve = told([("greedy", 900, 0.0, True), ("modest", 100, 1.0, True), ("modest", 900, 1.0, False)])
    assert reserve.is_kept_from("greedy", 1, 100) and not reserve.is_kept_from("modest", 1, 100)
    for step in range(6):
        reserve.asked("greedy", 900, 3.0 + step * 0.6 * WINDOW_S)
        reserve.sent("greedy", 900)
    assert not reserve.is_kept_from("greedy", 1, 100)


def test_no_more_tenants_are_told_apart_than_may_be() -> None:
    reserve = Reserve(0.03, 2)
    for name in "abcd":
        reserve.asked(name, 20, 1.0)
        reserve.sent(name, 10)
    assert len(reserve._asked) == 2 and not reserve.is_kept_from("d", 1, 100)
