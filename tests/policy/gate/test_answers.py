"""Hedges, budgets and queues, one step at a time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.answers import LEAST_FRACTION, learn
from twofold.policy.gate.events import (
    Cancel,
    Cause,
    ClientLeft,
    Effect,
    Event,
    GiveUp,
    Hold,
    OpenCircuit,
    RefusalReason,
    Refuse,
    ReleaseOffered,
    ReplicaAdded,
    ReplicaRemoved,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    RollBackRelease,
    Send,
    StageRelease,
)
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    CanarySettings,
    ClassSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    Routing,
    Stage,
)
from twofold.policy.machine import Woke

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


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_in_one_piece_is_not_taken_for_a_late_first_token(streamed: bool) -> None:
    settings = GateSettings(classes=(ClassSettings(ttft_slo_s=1.0),), admission=AdmissionSettings())
    gate = Gate(settings, Beliefs(0.0001, 0.01, 0.05))
    for number in range(4):
        gate.handle(ReplicaAdded(f"r{number}", 16), 0.0)
    for number in range(1, 301):  # five a second, each answered in 3 s: 15 of 64 places
        now_s = 0.2 * number
        ended = number - 15
        if ended > 0:
            gate.handle(ResponseEnded(ended, 280), now_s)
        if streamed and number > 1:
            gate.handle(ResponseStarted(number - 1), now_s)
        sent, *_ = gate.handle(RequestArrived(1000, 300), now_s)
        assert isinstance(sent, Send) and sent.request_id == number


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


def test_a_late_attempt_that_nobody_else_can_take_goes_on_alone() -> None:
    gate, request_id = hedging()
    gate.handle(ReplicaRemoved("b"), 100.1)
    assert woken(gate, 100.2) == [] and in_flight(gate) == {"a": 1}
    assert gate.handle(ResponseEnded(request_id, 5), 100.3) == []


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_attempts_each_is_left_with_what_its_own_replica_had_to_read(first: int) -> None:
    gate, _ = hedging(routing=Routing.PREFIX)
    gate.handle(ClientLeft(31), 100.0)
    asked = RequestArrived(1000, 5, prefix_blocks=tuple(range(20)))
    assert gate.handle(asked, 101.0) == [Send(32, "a", 1)]
    gate.handle(ResponseEnded(32, 5), 101.1)
    assert gate.handle(asked, 102.0) == [Send(33, "a", 1)]
    assert 0 < gate.view.replicas["a"].unread_input_tokens < 1000
    assert woken(gate, 103.0) == [Send(33, "b", 2)]
    assert gate.view.replicas["b"].unread_input_tokens == 1000
    gate.handle(ResponseStarted(33, first), 103.1)
    assert [replica.unread_input_tokens for replica in gate.view.replicas.values()] == [0, 0]


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


@pytest.mark.parametrize("leaves", ["the queue", "its replica"])
def test_two_tenants_are_served_alike_however_much_one_of_them_asks_for_and_cancels(leaves: str) -> None:
    classes = (ClassSettings("", wait_s_max=1e6),)
    gate = Gate(GateSettings(queue=QueueSettings(kept_fraction=0.0), classes=classes), BELIEFS)
    gate.handle(ReplicaAdded("r", 1), 0.0)
    tenants: list[str] = []
    ended: Counter[str] = Counter()
    sent: list[int] = []

    def tell(event: Event) -> None:
        if isinstance(event, RequestArrived):
            tenants.append(event.tenant)
        sent.extend(e.request_id for e in gate.handle(event, 1.0 * ended.total()) if isinstance(e, Send))

    for tenant in "abab":
        tell(RequestArrived(5, 5, tenant))
    while ended.total() < 200:
        request_id = sent[-1]
        tenant = tenants[request_id - 1]
        ended[tenant] += 1
        if leaves == "its replica" and tenant == "a":
            tell(ResponseStarted(request_id))
            tell(ClientLeft(request_id))
        else:
            tell(ResponseEnded(request_id, 5))
        tell(RequestArrived(5, 5, tenant))
        if leaves == "the queue" and tenant == "a":
            tell(RequestArrived(5, 5, "a"))
            tell(ClientLeft(len(tenants)))
    assert abs(ended["a"] - ended["b"]) <= 2


def test_a_new_replica_takes_all_who_wait(full: Gate) -> None:
    assert full.handle(ReplicaAdded("b", 5), 3.0) == [Send(2, "b", 1), Send(3, "b", 1)]


def test_with_nobody_to_wait_for_nobody_is_held(full: Gate) -> None:
    full.handle(ReplicaRemoved("a"), 3.0)
    full.handle(ResponseEnded(1, 5), 3.0)
    [refusal] = full.handle(ASKED, 3.0)
    assert isinstance(refusal, Refuse) and refusal.reason is RefusalReason.NO_REPLICA


# --- clients that leave before they were answered ---


def left_by_clients(after_s: float, where: str) -> tuple[Counter[str], list[Effect]]:
    """Who was sent how much, and what became of a release whose clients leave so soon at this replica."""
    canary = CanarySettings(stages=(Stage(0.5, 100), Stage(0.5, 100)))
    gate = Gate(GateSettings(canary=canary), Beliefs(0.001, 0.01, first_token_s=0.1))
    for name, version in (("old", "1"), ("new", "2")):
        gate.handle(ReplicaAdded(name, 1000, version=version), 0.0)
    told = gate.handle(ReleaseOffered("2"), 0.0)
    sent: Counter[str] = Counter()
    for number in range(1, 200):
        now_s = 10.0 * number
        [send] = gate.handle(RequestArrived(100, 5), now_s)
        assert isinstance(send, Send)
        sent[send.replica_id] += 1
        if where in ("both", send.replica_id):
            told += gate.handle(ClientLeft(number), now_s + after_s)
        else:
            told += gate.handle(ResponseStarted(number), now_s + 0.2)
            told += gate.handle(ResponseEnded(number, 5), now_s + 0.3)
        told += gate.handle(Woke(), now_s + 9.0)
    return sent, [e for e in told if isinstance(e, RollBackRelease)]


def test_a_release_that_hangs_until_its_clients_leave_is_rolled_back() -> None:
    sent, told = left_by_clients(9.0, "new")
    assert told == [RollBackRelease("2", "failures worse")] and sent["new"] < 50


@pytest.mark.parametrize(("after_s", "where"), [(0.15, "new"), (9.0, "both"), (9.0, "old")])
def test_who_leaves_sooner_than_an_answer_can_begin_or_leaves_all_alike_blames_no_release(
    after_s: float, where: str
) -> None:
    sent, told = left_by_clients(after_s, where)
    assert not told and sent["new"] > 50


def test_of_two_attempts_that_a_client_did_not_wait_for_the_one_that_had_longer_is_judged() -> None:
    gate, request_id = hedging(canary=CanarySettings(stages=(Stage(0.5, 100),)))
    gate.handle(ReplicaAdded("a", 2, version="2"), 100.0)
    assert gate.handle(ReleaseOffered("2"), 100.0) == [StageRelease("2", 0.5)]
    woken(gate, 100.2)
    assert in_flight(gate) == {"a": 1, "b": 1}
    gate.handle(ClientLeft(request_id), 109.0)
    assert gate._steering is not None and gate._steering.canary is not None
    assert gate._steering.canary.trials[""].block == [1, 1, 0, 0]


def test_what_nobody_began_to_write_may_be_asked_for_again_and_what_was_left_midway_may_not() -> None:
    limits = LimitSettings(Rate(tokens_per_s=1.0, burst_s=100.0))
    for events, back_tokens in (
        ((ClientLeft(1),), 70),
        ((ResponseFailed(1, Cause.ERROR),), 70),
        ((ResponseStarted(1), ClientLeft(1)), 0),
        ((ResponseStarted(1), ResponseFailed(1, Cause.BROKEN)), 0),
        ((ResponseStarted(1), ResponseEnded(1, 20)), 50),
    ):
        gate = Gate(GateSettings(attempt_limit=1, limits=limits), BELIEFS)
        gate.handle(ReplicaAdded("a", 9), 0.0)
        gate.handle(RequestArrived(30, 70), 0.0)
        for event in events:
            gate.handle(event, 0.0)
        again = [gate.handle(RequestArrived(0, tokens), 0.0)[0] for tokens in (back_tokens + 1, back_tokens)]
        assert [type(effect) for effect in again] == [Refuse, Send], events


def test_who_leaves_the_queue_gets_all_its_tokens_back() -> None:
    limits = LimitSettings(Rate(tokens_per_s=1.0, burst_s=100.0))
    gate = Gate(GateSettings(queue=QueueSettings(), limits=limits), BELIEFS)
    gate.handle(ReplicaAdded("a", 1), 0.0)
    gate.handle(RequestArrived(0, 0), 0.0)
    assert gate.handle(RequestArrived(30, 70), 0.0) == [Hold(2)]
    assert isinstance(gate.handle(RequestArrived(0, 1), 0.0)[0], Refuse)
    gate.handle(ClientLeft(2), 0.0)
    assert gate.handle(RequestArrived(30, 70), 0.0) == [Hold(4)]


SLO_S = 0.1


def one_replica(limit: int = 40) -> FleetView:
    view = FleetView(GateSettings(), Beliefs(1e-4, 0.05))
    view.add_replica(ReplicaAdded("a", limit))
    view.count_places()
    return view


@given(st.lists(st.floats(0.01, 0.5), max_size=300), st.integers(1, 100))
def test_places_stay_between_a_part_and_all_of_those_announced(times_s: list[float], limit: int) -> None:
    view = one_replica(limit)
    replica = view.replicas["a"]
    for tpot_s in times_s:
        learn(view, replica, tpot_s, SLO_S, 0.95)
        assert max(1, round(LEAST_FRACTION * limit)) <= replica.in_flight_limit <= limit
        assert view.place_count == replica.in_flight_limit


def test_places_settle_where_as_many_answers_are_in_time_as_was_promised() -> None:
    """A token takes 4 ms for each of those that share the steps: 25 of 40 places keep 100 ms."""
    view = one_replica(40)
    replica = view.replicas["a"]
    late = 0
    for number in range(4000):
        tpot_s = 0.004 * replica.in_flight_limit
        learn(view, replica, tpot_s, SLO_S, 0.95)
        late += number >= 2000 and tpot_s > SLO_S
    assert 23 <= replica.in_flight_limit <= 27
    assert late / 2000 < 0.08


def test_places_come_back_when_answers_are_in_time_again() -> None:
    view = one_replica(40)
    replica = view.replicas["a"]
    for _ in range(20):
        learn(view, replica, 0.2, SLO_S, 0.95)
    assert replica.in_flight_limit < 40
    for _ in range(600):
        learn(view, replica, 0.05, SLO_S, 0.95)
    assert replica.in_flight_limit == view.place_count == 40


def test_a_replica_that_announces_other_places_begins_anew() -> None:
    view = one_replica(40)
    replica = view.replicas["a"]
    for _ in range(20):
        learn(view, replica, 0.2, SLO_S, 0.95)
    lowered = replica.in_flight_limit
    view.add_replica(ReplicaAdded("a", 40))
    assert replica.in_flight_limit == lowered
    view.add_replica(ReplicaAdded("a", 20))
    assert replica.in_flight_limit == 20
