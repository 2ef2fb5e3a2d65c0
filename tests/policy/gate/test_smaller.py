"""Who may be answered by a smaller model: in need, whoever finds it free; nobody else."""

from dataclasses import replace

from twofold.policy.gate.events import Hold, KeepAnswer, ReplicaAdded, RequestArrived, ResponseEnded, Send
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AnswerCacheSettings,
    Beliefs,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    PoolRules,
    QueueSettings,
    RoutingSettings,
)
from twofold.policy.machine import Woke

SMALL = GateSettings(
    classes=(ClassSettings("chat", smaller_model="mini"), ClassSettings("night", smaller_model="mini")),
    queue=QueueSettings(),
    degradation=DegradationSettings(0.05, 0.7, raise_after_s=1.0, lower_after_s=5.0),
)


def pressed(gate: Gate, now_s: float = 1.0) -> float:
    """Requests come until the ladder is at its top; when that is."""
    while not gate.view.in_need:
        gate.handle(RequestArrived(10, 10, class_name="chat"), now_s)
        now_s += 0.5
        gate.handle(Woke(), now_s)
        assert now_s < 60.0
    return now_s


def sent(effects: object) -> list[Send]:
    assert isinstance(effects, list)
    return [each for each in effects if isinstance(each, Send)]


def test_in_need_the_smaller_model_answers_while_it_has_room_and_then_whoever_has() -> None:
    gate = Gate(SMALL, Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("own", 1), 0.0)
    gate.handle(ReplicaAdded("mini", 2, model="mini"), 0.0)
    first = gate.handle(RequestArrived(10, 10, class_name="chat"), 0.5)
    assert first == [Send(1, "own", 1)] and gate.view.place_count == 1
    assert isinstance(gate.handle(RequestArrived(10, 10, class_name="chat"), 0.6)[0], Hold)
    now_s = pressed(gate)
    assert gate.view.place_count == 3 and gate.view.counts.smaller == 2  # those that were held
    assert {each.attempt.replica.replica_id for each in gate.view.requests.values()} == {"own", "mini"}
    # Its places are taken: who has the service's own model takes the next, and says nothing of a smaller one.
    [freed] = sent(gate.handle(ResponseEnded(1, 10), now_s + 0.1))
    assert (freed.replica_id, freed.model) == ("own", "")
    busy = next(id_ for id_, each in gate.view.requests.items() if each.attempt.replica.replica_id == "mini")
    [freed] = sent(gate.handle(ResponseEnded(busy, 10), now_s + 0.2))
    assert (freed.replica_id, freed.model) == ("mini", "mini")


def test_what_it_answers_is_not_kept_for_repeats_and_nothing_is_learnt_from_it() -> None:
    gate = Gate(replace(SMALL, answer_cache=AnswerCacheSettings()), Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("own", 1), 0.0)
    gate.handle(ReplicaAdded("mini", 64, model="mini"), 0.0)
    now_s = pressed(gate)
    [told] = sent(gate.handle(RequestArrived(10, 10, class_name="chat", answer_key="k"), now_s))
    assert told.replica_id == "mini"
    effects = gate.handle(ResponseEnded(told.request_id, 10, answer_bytes=9), now_s + 0.1)
    assert not any(isinstance(each, KeepAnswer) for each in effects)
    while gate.view.requests or gate.view.in_need:  # until nobody asks and need is over
        now_s += 0.5
        for request_id in [*gate.view.requests]:
            gate.handle(ResponseEnded(request_id, 10), now_s)
        gate.handle(Woke(), now_s)
        assert now_s < 120.0
    [told] = sent(gate.handle(RequestArrived(10, 10, class_name="chat", answer_key="k"), now_s + 0.1))
    effects = gate.handle(ResponseEnded(told.request_id, 10, answer_bytes=9), now_s + 0.2)
    assert told.replica_id == "own" and any(isinstance(each, KeepAnswer) for each in effects)


def test_it_is_of_no_pool_and_helps_each() -> None:
    rules = PoolRules("talk", "nights", ("night",))
    gate = Gate(replace(SMALL, routes=RoutingSettings(pools=rules)), Beliefs(1e-3, 1e-2))
    gate.handle(ReplicaAdded("a", 1, pool="talk"), 0.0)
    gate.handle(ReplicaAdded("b", 1, pool="nights"), 0.0)
    gate.handle(ReplicaAdded("mini", 64, model="mini"), 0.0)
    assert [each.replica_id for each in gate.view.members("")] == ["a", "b"]
    now_s = pressed(gate)
    for name in ("chat", "night"):
        [told] = sent(gate.handle(RequestArrived(10, 10, class_name=name), now_s + 0.1))
        assert (told.replica_id, told.model) == ("mini", "mini")
