"""The last places are kept from who had more than its share, and from nobody else."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy import Woke
from twofold.policy.gate import Beliefs, ClassSettings, Gate, GateSettings, QueueSettings
from twofold.policy.gate.events import Hold, Refuse, ReplicaAdded, RequestArrived, ResponseEnded, Send
from twofold.policy.gate.reserve import LEVEL_S, WINDOW_S, Reserve, fair_level

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
