"""CPU tiers before the fleet: places, lines, circuits, and which of them is named as the bottleneck."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate import events
from twofold.policy.gate.events import Cause, RefusalReason
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AnswerCacheSettings,
    Beliefs,
    ClassSettings,
    GateSettings,
    LimitSettings,
    QueueSettings,
    Rate,
    TierSettings,
)
from twofold.policy.gate.tiers import TierSpan, bottleneck, replica_ids
from twofold.policy.machine import Woke

LOOKUP = TierSettings("lookup", ("a", "b"), 1, queue_limit_count=2, wait_s_max=5.0)
RERANK = TierSettings("rerank", ("c",), 2, queue_limit_count=1, wait_s_max=5.0)
BOTH = GateSettings(tiers=(LOOKUP, RERANK))
ASKED = events.RequestArrived(100, 10)


def gate_of(settings: GateSettings = BOTH, places: int = 100) -> Gate:
    gate = Gate(settings, Beliefs(0.001, 0.01))
    gate.handle(events.ReplicaAdded("r", places), 0.0)
    return gate


def asks(effects: list[events.Effect]) -> Iterator[events.AskTier]:
    return (each for each in effects if isinstance(each, events.AskTier))


def answered(gate: Gate, ask: events.AskTier, now_s: float) -> list[events.Effect]:
    return gate.handle(events.TierAnswered(ask.request_id, ask.tier, ask.attempt), now_s)


def failed(gate: Gate, ask: events.AskTier, cause: Cause, now_s: float) -> list[events.Effect]:
    return gate.handle(events.TierFailed(ask.request_id, ask.tier, ask.attempt, cause), now_s)


def test_a_request_passes_the_tiers_in_their_order_and_then_is_sent() -> None:
    gate = gate_of()
    held, first = gate.handle(ASKED, 1.0)
    assert held == events.Hold(1) and first == events.AskTier(1, "lookup", "a", 1)
    passed, second = answered(gate, first, 1.5)
    assert passed == events.TierPassed(1, "lookup", 0.0, 0.5)
    assert second == events.AskTier(1, "rerank", "c", 1)
    passed, sent = answered(gate, second, 1.75)
    assert passed == events.TierPassed(1, "rerank", 0.0, 0.25) and sent == events.Send(1, "r", 1)
    assert not gate.view.tiered and gate.view.requests[1].arrived_s == 1.0


def test_who_finds_no_place_waits_in_line_and_a_full_line_refuses() -> None:
    gate = gate_of()
    effects = [gate.handle(ASKED, 0.1 * number) for number in range(5)]
    assert [[*asks(each)] != [] for each in effects] == [True, True, False, False, False]
    [refused] = effects[4]
    assert isinstance(refused, events.Refuse) and refused.reason is RefusalReason.TIER_FULL
    assert refused.status == 429 and refused.retry_after_s == pytest.approx(0.2)
    told = answered(gate, next(asks(effects[0])), 1.0)
    assert events.AskTier(3, "lookup", "a", 1) in told, "the first of the line has the place"
    told = answered(gate, events.AskTier(3, "lookup", "a", 1), 2.0)
    assert events.TierPassed(3, "lookup", pytest.approx(0.8), pytest.approx(1.8)) in told
    [lookup, _] = gate.tiers
    assert lookup.passed_count == 2 and lookup.refused_count == 1


def test_who_waits_for_too_long_is_refused_when_the_time_is_up() -> None:
    gate = gate_of()
    for number in range(3):
        gate.handle(ASKED, float(number))
    assert gate.wake_at_s() is not None
    told: list[events.Effect] = []
    while not told:
        wake_s = gate.wake_at_s()
        assert wake_s is not None and wake_s <= 7.0
        told = [each for each in gate.handle(Woke(), wake_s) if isinstance(each, events.Refuse)]
    assert told == [events.Refuse(3, RefusalReason.TIER_LATE, 503, 5.0)]


def test_a_failed_request_is_asked_once_more_elsewhere_and_a_failing_server_is_spared() -> None:
    gate = gate_of()
    [_, ask] = gate.handle(ASKED, 0.0)
    [again] = failed(gate, ask, Cause.REFUSED, 0.1)
    assert again == events.AskTier(1, "lookup", "b", 2)
    assert [*asks(gate.handle(ASKED, 0.2))] == [], "nothing listens at the other, and this one is taken"
    told = failed(gate, again, Cause.ERROR, 0.3)
    assert events.GiveUp(1, Cause.ERROR) in told and events.AskTier(2, "lookup", "b", 1) in told
    assert gate.view.counts.gave_up == 1
    gate.handle(ASKED, 0.4)
    [tried] = asks(gate.handle(Woke(), 1.2))
    assert tried == events.AskTier(3, "lookup", "a", 1), "its circuit has been open for long enough"
    assert [*asks(gate.handle(ASKED, 1.3))] == []
    told = answered(gate, tried, 1.4)
    assert events.AskTier(4, "lookup", "a", 1) in told, "it answered, and is trusted again"


def test_who_leaves_frees_its_place_for_the_next() -> None:
    gate = gate_of()
    for number in range(4):
        gate.handle(ASKED, 0.1 * number)
    assert gate.handle(events.ClientLeft(3), 1.0) == [events.Cancel(3, "", 0)]
    left = gate.handle(events.ClientLeft(1), 1.1)
    assert left == [events.Cancel(1, "a", 1), events.AskTier(4, "lookup", "a", 1)]
    assert answered(gate, events.AskTier(1, "lookup", "a", 1), 1.2) == [], "nobody waits for that any more"
    assert gate.view.counts.left == 2 and gate.view.counts.ignored == 1


def test_what_is_refused_or_kept_asks_no_tier() -> None:
    limited = LimitSettings(tenant=Rate(requests_per_s=1e-9))
    gate = gate_of(replace(BOTH, limits=limited, answer_cache=AnswerCacheSettings()))
    [_, ask] = gate.handle(replace(ASKED, answer_key="k"), 0.0)
    [refused] = gate.handle(ASKED, 0.1)
    assert isinstance(refused, events.Refuse) and refused.reason is RefusalReason.RATE
    sent = answered(gate, answered(gate, ask, 0.2)[-1], 0.3)[-1]
    assert isinstance(sent, events.Send)
    gate.handle(events.ResponseEnded(1, 5, answer_bytes=10), 1.0)
    gate = gate_of(replace(BOTH, answer_cache=AnswerCacheSettings()))
    asked = replace(ASKED, answer_key="k")
    answered(gate, answered(gate, gate.handle(asked, 0.0)[-1], 0.2)[-1], 0.3)
    gate.handle(events.ResponseEnded(1, 5, answer_bytes=10), 1.0)
    [again] = gate.handle(asked, 2.0)
    assert isinstance(again, events.GiveAgain)


def test_a_request_that_passed_may_be_held_for_a_replica_and_is_held_once() -> None:
    kind = ClassSettings("chat", wait_s_max=5.0)
    gate = gate_of(replace(BOTH, queue=QueueSettings(), classes=(kind,)), places=1)
    told: list[events.Effect] = []
    for number in range(2):
        [hold, ask] = gate.handle(ASKED, float(number))
        assert isinstance(hold, events.Hold)
        told += answered(gate, answered(gate, ask, number + 0.1)[-1], number + 0.2)
    assert sum(isinstance(each, events.Send) for each in told) == 1
    assert not any(isinstance(each, events.Hold) for each in told) and list(gate.view.held) == [2]
    assert events.Send(2, "r", 1) in gate.handle(events.ResponseEnded(1, 5), 3.0)


@given(
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    limits=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    line=st.integers(0, 3),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=80),
)
def test_no_tier_has_more_than_its_places_and_no_request_is_lost(
    counts: tuple[int, int], limits: tuple[int, int], line: int, steps: list[tuple[int, int]]
) -> None:  # INV-13
    tiers = tuple(
        TierSettings(name, replica_ids(name, count), limit, line, wait_s_max=3.0)
        for name, count, limit in zip(("x", "y"), counts, limits, strict=True)
    )
    gate = gate_of(GateSettings(tiers=tiers), places=2)
    open_asks: list[events.AskTier] = []
    decided: dict[int, int] = {}
    now_s = 0.0
    for what, which in steps:
        now_s += 0.25
        if what in (0, 1) or not (open_asks or gate.view.tiered):
            told = gate.handle(ASKED, now_s)
        elif what == 2 and open_asks:
            told = answered(gate, open_asks.pop(which % len(open_asks)), now_s)
        elif what == 3 and open_asks:
            cause = [*Cause][which % len(Cause)]
            told = failed(gate, open_asks.pop(which % len(open_asks)), cause, now_s)
        elif gate.view.tiered:
            gone = [*gate.view.tiered][which % len(gate.view.tiered)]
            open_asks = [each for each in open_asks if each.request_id != gone]
            told = gate.handle(events.ClientLeft(gone), now_s)
        else:
            told = gate.handle(Woke(), now_s)
        for due_s in (gate.wake_at_s(),):
            if due_s is not None and due_s <= now_s:
                told += gate.handle(Woke(), now_s)
        open_asks += asks(told)
        for each in told:
            if isinstance(each, events.Send | events.Refuse | events.GiveUp):
                decided[each.request_id] = decided.get(each.request_id, 0) + 1
        for tier in gate.tiers:
            at_work = [server.in_flight_count for server in tier.servers]
            assert max(at_work) <= tier.settings.in_flight_limit and min(at_work) >= 0
            own = sum(each.tier == tier.settings.name for each in open_asks)
            assert sum(at_work) == tier.working_count == own
            assert len(tier.waiting) <= tier.settings.queue_limit_count
        seen = gate.view.counts
        ended = seen.finished + seen.refused + seen.gave_up + seen.left
        assert seen.arrived == ended + len(gate.view.requests) + len(gate.view.held) + len(gate.view.tiered)
    assert all(count == 1 for count in decided.values()), "one decision each"


@given(
    waits=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=4),
    held=st.floats(0.0, 5.0),
)
def test_the_bottleneck_is_a_saturated_tier_and_where_most_time_goes(waits: list[float], held: float) -> None:
    spans = [TierSpan(str(n), 10, wait, 0.1, wait + 0.3, wait / 0.1) for n, wait in enumerate(waits)]
    named = bottleneck(spans, held)
    late = [each for each in spans if each.wait_s_mean > 0.1 and each.waiting_count >= max(held, 1.0)]
    assert (named is None) == (not late)
    assert named is None or named.wait_s_mean == max(each.wait_s_mean for each in late)


def test_slow_work_without_a_line_is_named_by_its_goal_and_a_full_gate_is_not() -> None:
    slow = TierSpan("lookup", 10, 0.0, 0.4, 0.9, 0.0, slo_s=0.2)
    assert bottleneck([slow], 0.0) is slow and bottleneck([replace(slow, slo_s=None)], 0.0) is None
    assert bottleneck([replace(slow, slo_s=1.0)], 0.0) is None
    full = TierSpan("lookup", 10, 1.0, 0.1, 1.5, 5.0)
    assert bottleneck([full], 4.0) is full and bottleneck([full], 6.0) is None, "more wait for replicas"
