"""Hedges, budgets and queues, one step at a time."""

import pytest

from twofold.policy import (
    Beliefs,
    Cancel,
    Cause,
    ClassSettings,
    ClientLeft,
    Effect,
    Gate,
    GateSettings,
    GiveUp,
    HedgeSettings,
    Hold,
    OpenCircuit,
    QueueSettings,
    RefusalReason,
    Refuse,
    ReplicaAdded,
    ReplicaRemoved,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    RetryBudgetSettings,
    Send,
    Woke,
)

BELIEFS = Beliefs(0.001, 0.01)
ASKED = RequestArrived(5, 5)


def hedging(**more: object) -> tuple[Gate, int]:
    """A gate with two replicas that knows what is late, one request in flight, and that request's id."""
    gate = Gate(GateSettings(hedge=HedgeSettings(attempts_fraction=0.5), **more), BELIEFS)  # type: ignore[arg-type]
    for name in "ab":
        gate.handle(ReplicaAdded(name, 2), 0.0)
    for number in range(1, 31):
        gate.handle(ASKED, float(number))
        gate.handle(ResponseStarted(number), number + 0.1)
        gate.handle(ResponseEnded(number, 5), number + 0.2)
    gate.handle(Woke(), 99.9)
    assert gate.handle(ASKED, 100.0) == [Send(31, "a", 1)]
    return gate, 31


def woken(gate: Gate, now_s: float) -> list[Effect]:
    return [effect for effect in gate.handle(Woke(), now_s) if type(effect).__name__ != "Probe"]


def in_flight(gate: Gate) -> dict[str, int]:
    return {name: replica.in_flight_count for name, replica in gate.view.replicas.items()}


def test_a_late_attempt_gets_a_second_one_elsewhere_and_the_faster_cancels_the_slower() -> None:
    gate, request_id = hedging()
    due_s = gate.wake_at_s()
    assert due_s is not None and 100.1 <= due_s < 100.15
    assert woken(gate, due_s) == [Send(request_id, "b", 2)]
    assert in_flight(gate) == {"a": 1, "b": 1} and len(gate.view.requests) == 1
    assert gate.handle(ResponseStarted(request_id, 1), 100.2) == [Cancel(request_id, "b", 2)]
    assert in_flight(gate) == {"a": 1, "b": 0}
    assert gate.handle(ResponseFailed(request_id, Cause.BROKEN, 2), 100.3) == []
    assert gate.handle(ResponseEnded(request_id, 5, None, 1), 100.4) == []
    assert in_flight(gate) == {"a": 0, "b": 0} and gate.view.counts.finished == 31
    assert all(r.unread_input_tokens == r.output_limit_tokens == 0 for r in gate.view.replicas.values())


def test_of_two_attempts_one_may_fail_and_the_other_goes_on() -> None:
    gate, request_id = hedging()
    woken(gate, 100.2)
    assert gate.handle(ResponseFailed(request_id, Cause.TIMEOUT, 1), 100.3) == []
    assert in_flight(gate) == {"a": 0, "b": 1}
    assert gate.handle(ResponseStarted(request_id), 100.4) == []
    assert gate.handle(ResponseEnded(request_id, 5), 100.5) == [] and not gate.view.requests


def test_when_both_attempts_fail_the_request_is_given_up() -> None:
    gate, request_id = hedging()
    woken(gate, 100.2)
    assert gate.handle(ResponseFailed(request_id, Cause.ERROR, 2), 100.3) == []
    assert gate.handle(ResponseFailed(request_id, Cause.ERROR, 1), 100.4) == [GiveUp(request_id, Cause.ERROR)]
    assert in_flight(gate) == {"a": 0, "b": 0}


def test_a_client_that_leaves_frees_both_places() -> None:
    gate, request_id = hedging()
    woken(gate, 100.2)
    assert gate.handle(ClientLeft(request_id), 100.3) == []
    assert in_flight(gate) == {"a": 0, "b": 0} and gate.view.counts.left == 1


def test_a_request_that_was_sent_as_often_as_it_may_is_not_hedged() -> None:
    gate, _ = hedging(attempt_limit=1)
    assert woken(gate, 100.2) == []


def test_the_replica_of_a_slower_attempt_may_go_meanwhile() -> None:
    gate, request_id = hedging()
    woken(gate, 100.2)
    gate.handle(ReplicaRemoved("a"), 100.25)
    assert gate.handle(ResponseStarted(request_id), 100.3) == [Cancel(request_id, "a", 1)]
    assert list(gate.view.replicas) == ["b"]


def test_without_budget_nothing_is_repeated() -> None:
    gate = Gate(GateSettings(retry_budget=RetryBudgetSettings(0.0, 0.0, burst_count=1)), BELIEFS)
    for name in "ab":
        gate.handle(ReplicaAdded(name, 9), 0.0)
    gate.handle(ASKED, 1.0)
    assert gate.handle(ResponseFailed(1, Cause.ERROR), 1.1) == [Send(1, "b", 2)]
    gate.handle(ASKED, 1.2)
    assert gate.handle(ResponseFailed(2, Cause.ERROR), 1.3) == [GiveUp(2, Cause.ERROR)]


# --- in the queue ---


@pytest.fixture
def full() -> Gate:
    """One place, taken by request 1; 2 and 3 wait, up to 10 s."""
    classes = (ClassSettings("", wait_s_max=10.0, queue_limit_count=2),)
    gate = Gate(GateSettings(queue=QueueSettings(), classes=classes), BELIEFS)
    gate.handle(ReplicaAdded("a", 1), 0.0)
    assert gate.handle(ASKED, 1.0) == [Send(1, "a", 1)]
    assert gate.handle(ASKED, 1.0) == [Hold(2)]
    assert gate.handle(ASKED, 2.0) == [Hold(3)]
    gate.handle(Woke(), 2.0)
    return gate


def test_who_waits_is_sent_when_a_place_is_free_in_order(full: Gate) -> None:
    assert full.handle(ResponseEnded(1, 5), 3.0) == [Send(2, "a", 1)]
    assert full.handle(ClientLeft(2), 3.5) == [Send(3, "a", 1)]
    assert full.handle(ResponseFailed(3, Cause.REFUSED), 4.0) == [
        OpenCircuit("a", 5.0),
        GiveUp(3, Cause.REFUSED),
    ]
    assert not full.view.held and not full.view.requests


def test_the_queue_is_bounded_and_who_waits_too_long_is_refused(full: Gate) -> None:
    [refusal] = full.handle(ASKED, 2.0)
    assert isinstance(refusal, Refuse) and (refusal.reason, refusal.status) == (RefusalReason.QUEUE_FULL, 429)
    full.handle(Woke(), 10.9)
    assert full.wake_at_s() == 11.0
    [expired] = woken(full, 11.0)
    assert isinstance(expired, Refuse)
    assert (expired.request_id, expired.reason, expired.status) == (2, RefusalReason.EXPIRED, 503)
    assert list(full.view.held) == [3]


def test_a_full_queue_gives_a_newcomer_the_place_of_the_tenant_with_most(full: Gate) -> None:
    displaced, held = full.handle(RequestArrived(5, 5, tenant="new"), 2.0)
    assert isinstance(displaced, Refuse) and displaced.request_id == 3
    assert displaced.reason is RefusalReason.QUEUE_FULL and held == Hold(4)


def test_a_client_that_leaves_the_queue_is_cancelled_there(full: Gate) -> None:
    assert full.handle(ClientLeft(2), 3.0) == [Cancel(2, "", 0)]
    assert full.handle(ClientLeft(2), 3.0) == []
    assert full.handle(ResponseEnded(1, 5), 4.0) == [Send(3, "a", 1)]


def test_a_new_replica_takes_all_who_wait(full: Gate) -> None:
    assert full.handle(ReplicaAdded("b", 5), 3.0) == [Send(2, "b", 1), Send(3, "b", 1)]


def test_with_nobody_to_wait_for_nobody_is_held(full: Gate) -> None:
    full.handle(ReplicaRemoved("a"), 3.0)
    full.handle(ResponseEnded(1, 5), 3.0)
    [refusal] = full.handle(ASKED, 3.0)
    assert isinstance(refusal, Refuse) and refusal.reason is RefusalReason.NO_REPLICA
