"""The last places are kept from who had more than its share, and from nobody else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy import (
    Beliefs,
    Gate,
    GateSettings,
    Hold,
    QueueSettings,
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    Send,
    Woke,
)
from twofold.policy.reserve import WINDOW_S, Reserve

TENANTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000), st.floats(0.0, 40.0)), max_size=60)

PLACES = 10


def told(steps: list[tuple[str, int, float]]) -> Reserve:
    reserve, now_s = Reserve(0.03, 1000), 0.0
    for tenant, tokens, gap_s in steps:
        now_s += gap_s
        reserve.asked(tenant, now_s)
        reserve.sent(tenant, tokens)
    return reserve


@given(TENANTS)
def test_there_is_always_somebody_for_whom_the_last_places_are(steps: list[tuple[str, int, float]]) -> None:
    reserve = told(steps)
    assert not all(reserve.is_kept_from(tenant, 1, 100) for tenant in "abc")


@given(TENANTS, st.integers(1, 3))
def test_who_shares_is_counted_as_if_all_were_counted_anew(
    steps: list[tuple[str, int, float]], tenant_count_max: int
) -> None:
    reserve, now_s = Reserve(0.03, tenant_count_max), 0.0
    for tenant, tokens, gap_s in steps:
        now_s += gap_s
        reserve.asked(tenant, now_s)
        reserve.sent(tenant, tokens)
        assert reserve._sharing_count == len({*reserve._tokens, *reserve._earlier})


@given(TENANTS, st.integers(0, 8), st.sampled_from([1, 7, 8, 40, 100, 1000]))
def test_nothing_is_kept_while_enough_is_free_nor_of_a_few_places(
    steps: list[tuple[str, int, float]], beyond_count: int, place_count: int
) -> None:
    reserve, kept_count = told(steps), -(-place_count * 3 // 100)
    free_count = kept_count + 1 + beyond_count
    assert not any(reserve.is_kept_from(tenant, free_count, place_count) for tenant in "abc")
    if place_count < 8:
        assert not any(reserve.is_kept_from(tenant, 1, place_count) for tenant in "abc")


@given(TENANTS, st.integers(0, 8), st.sampled_from([8, 40, 100]))
def test_what_is_left_is_for_a_tenant_or_kept_from_it_or_enough(
    steps: list[tuple[str, int, float]], free_count: int, place_count: int
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
        waiting = {request.tenant for request in gate.view.held.values()}
        assert not free_count or all(reserve.is_kept_from(name, free_count, PLACES) for name in waiting)


def test_who_had_less_does_not_wait_behind_those_that_places_are_kept_from() -> None:
    gate = Gate(GateSettings(queue=QueueSettings()), Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("r", PLACES), 0.0)
    for tenant in ("modest", *["greedy"] * (PLACES + 2)):
        gate.handle(RequestArrived(100, 10, tenant), 0.0)
    assert len(gate.view.requests) == PLACES - 1 and len(gate.view.held) == 4
    last, *none = gate.handle(RequestArrived(100, 10, "modest"), 0.1)
    assert isinstance(last, Send) and not none
    assert gate.handle(RequestArrived(100, 10, "modest"), 0.1) == [Hold(last.request_id + 1)]
    [ended] = gate.handle(ResponseEnded(2, 10), 0.2)  # of greedy: one place is free, and kept from it
    assert isinstance(ended, Send) and ended.request_id == last.request_id + 1


def test_a_tenant_that_asks_alone_has_every_place_again_after_a_while() -> None:
    reserve = told([("greedy", 900, 0.0), ("modest", 100, 1.0)])
    assert reserve.is_kept_from("greedy", 1, 100) and not reserve.is_kept_from("modest", 1, 100)
    for step in range(6):
        reserve.asked("greedy", 2.0 + step * 0.6 * WINDOW_S)
        reserve.sent("greedy", 900)
    assert not reserve.is_kept_from("greedy", 1, 100)


def test_no_more_tenants_are_told_apart_than_may_be() -> None:
    reserve = Reserve(0.03, 2)
    for name in "abcd":
        reserve.asked(name, 1.0)
        reserve.sent(name, 10)
    assert len(reserve._tokens) == 2 and not reserve.is_kept_from("d", 1, 100)
