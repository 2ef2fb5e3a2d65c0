"""Answers that are kept for exact repeats: whose they are, how long and how many, and what empties them."""

from twofold.policy.gate import events
from twofold.policy.gate.answer_cache import ENTRY_BYTES
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AnswerCacheSettings,
    Beliefs,
    CanarySettings,
    DegradationSettings,
    GateSettings,
    LimitSettings,
    Rate,
    RolloutSettings,
)


def gate_of(cache: AnswerCacheSettings | None, **settings: object) -> Gate:
    gate = Gate(GateSettings(answer_cache=cache, **settings), Beliefs(0.001, 0.01))  # type: ignore[arg-type]
    for number in range(2):
        gate.handle(events.ReplicaAdded(f"r{number}", 8, version="one"), 0.0)
    return gate


def asked(gate: Gate, key: str, now_s: float, tenant: str = "") -> events.Effect:
    return gate.handle(events.RequestArrived(10, 10, tenant=tenant, answer_key=key), now_s)[-1]


def ended(gate: Gate, sent: events.Effect, now_s: float, size: int = 1000) -> list[events.Effect]:
    assert isinstance(sent, events.Send)
    return gate.handle(events.ResponseEnded(sent.request_id, 5, answer_bytes=size), now_s)


def answered(gate: Gate, key: str, now_s: float, tenant: str = "", size: int = 1000) -> list[events.Effect]:
    """Of a request that goes to a replica, what is done with its answer."""
    return ended(gate, asked(gate, key, now_s, tenant), now_s + 0.1, size)


def test_a_repeat_gets_what_was_kept_and_goes_to_no_replica() -> None:
    gate = gate_of(AnswerCacheSettings())
    assert answered(gate, "a", 0.0) == [events.KeepAnswer(1, 1)]
    assert asked(gate, "a", 1.0) == events.GiveAgain(2, 1)
    assert gate.view.requests == {} and gate.view.counts.finished == 2 and gate.view.counts.given_again == 1
    assert isinstance(asked(gate, "b", 1.0), events.Send)


def test_what_may_have_another_answer_each_time_is_not_kept() -> None:
    gate = gate_of(AnswerCacheSettings())
    assert answered(gate, "", 0.0) == []
    assert isinstance(asked(gate, "", 1.0), events.Send)
    assert answered(gate, "a", 0.0, size=0) == []  # its driver has no bytes of it: an error, or too many
    assert isinstance(asked(gate, "a", 1.0), events.Send)
    assert answered(gate_of(None), "a", 0.0) == []


def test_no_tenant_gets_what_another_was_answered() -> None:
    gate = gate_of(AnswerCacheSettings())
    answered(gate, "a", 0.0, tenant="anna")
    assert isinstance(asked(gate, "a", 1.0, tenant="bert"), events.Send)
    assert isinstance(asked(gate, "a", 1.0), events.Send)
    assert isinstance(asked(gate, "a", 1.0, tenant="anna"), events.GiveAgain)


def test_bytes_bound_it_and_the_oldest_go_first() -> None:
    gate = gate_of(AnswerCacheSettings(bytes_max=2 * (1000 + ENTRY_BYTES)))
    assert answered(gate, "a", 0.0) == [events.KeepAnswer(1, 1)]
    answered(gate, "b", 1.0)
    assert answered(gate, "c", 2.0) == [events.DropAnswers((1,)), events.KeepAnswer(3, 3)]
    assert isinstance(asked(gate, "b", 3.0), events.GiveAgain)
    assert isinstance(asked(gate, "a", 3.0), events.Send)
    assert answered(gate, "large", 4.0, size=3000) == []  # larger than all of it: nothing goes for it
    assert isinstance(asked(gate, "b", 5.0), events.GiveAgain)


def test_what_is_old_is_not_given_and_is_dropped_soon() -> None:
    gate = gate_of(AnswerCacheSettings(age_s=10.0))
    answered(gate, "a", 0.0)
    assert isinstance(asked(gate, "a", 10.0), events.GiveAgain)
    assert isinstance(asked(gate, "a", 10.2), events.Send)
    woken = gate.handle(events.Woke(), 10.5)
    assert events.DropAnswers((1,)) in woken


def test_a_release_empties_it_and_nothing_is_kept_while_two_versions_stand() -> None:
    gate = gate_of(AnswerCacheSettings(), canary=CanarySettings(), rollout=RolloutSettings())
    before = asked(gate, "late", 0.0)
    answered(gate, "a", 0.0)
    assert events.DropAnswers((1,)) in gate.handle(events.ReplicaAdded("n", 8, version="two"), 1.0)
    assert isinstance(asked(gate, "a", 2.0), events.Send)
    assert [e for e in ended(gate, before, 3.0) if isinstance(e, events.KeepAnswer)] == []
    during = asked(gate, "b", 4.0)
    for name in ("r0", "r1"):
        gate.handle(events.ReplicaRemoved(name), 5.0)
    assert not [e for e in ended(gate, during, 6.0) if isinstance(e, events.KeepAnswer)]
    assert any(isinstance(e, events.KeepAnswer) for e in answered(gate, "c", 7.0))
    assert events.DropAnswers((2,)) in gate.handle(events.ReleaseOffered("three"), 8.0)


def test_a_replica_that_comes_back_empties_nothing() -> None:
    gate = gate_of(AnswerCacheSettings())
    answered(gate, "a", 0.0)
    for name in ("r0", "r1"):
        gate.handle(events.ReplicaRemoved(name), 1.0)
    gate.handle(events.ReplicaAdded("r0", 8, version="one"), 2.0)
    assert isinstance(asked(gate, "a", 3.0), events.GiveAgain)


def test_a_hit_is_charged_a_request_and_no_tokens() -> None:
    rate = Rate(requests_per_s=1.0, tokens_per_s=2.0, burst_s=10.0)  # a request of 20 tokens, or ten of none
    gate = gate_of(AnswerCacheSettings(), limits=LimitSettings(tenant=rate))
    answered(gate, "a", 0.0)
    told = [asked(gate, "a", 10.0) for _ in range(12)]
    kinds = [type(each).__name__ for each in told]
    assert kinds[:10] == ["GiveAgain"] * 10 and kinds[-1] == "Refuse"


def test_an_answer_that_was_made_shorter_is_kept_for_nobody() -> None:
    gate = gate_of(AnswerCacheSettings(), degradation=DegradationSettings())
    sent = asked(gate, "a", 0.0)
    assert isinstance(sent, events.Send)
    gate.view.requests[sent.request_id].shortened_tokens = 5
    assert ended(gate, sent, 1.0) == []
