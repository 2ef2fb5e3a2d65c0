"""Prompts that replicas die of."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate import events
from twofold.policy.gate.events import Cause
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings, LimitSettings, PoisonSettings, Rate

POISON = PoisonSettings(deaths_count=2, block_s=60.0)


def gate_of(replica_count: int, **settings: object) -> Gate:
    gate = Gate(GateSettings(attempt_limit=5, poison=POISON, **settings), Beliefs(0.001, 0.01))
    for number in range(replica_count):
        gate.handle(events.ReplicaAdded(f"r{number}", 8), 0.0)
    return gate


def asked(gate: Gate, now_s: float, digest: str = "bad") -> events.Decision:
    [effect] = gate.handle(events.RequestArrived(10, 10, prompt_digest=digest), now_s)
    assert isinstance(effect, events.Decision)
    return effect


def died(gate: Gate, request_id: int, now_s: float, cause: Cause = Cause.BROKEN) -> list[events.Effect]:
    return gate.handle(events.ResponseFailed(request_id, cause), now_s)


def kinds(effects: Sequence[events.Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_what_a_replica_died_of_is_repeated_once_and_then_blocked() -> None:
    gate = gate_of(4)
    first = asked(gate, 0.0)
    assert kinds(died(gate, first.request_id, 1.0)) == ["Send"]
    blocked = died(gate, first.request_id, 2.0)
    assert kinds(blocked) == ["BlockPrompt", "GiveUp"], "a third replica is not given to it"
    refused = asked(gate, 3.0)
    assert isinstance(refused, events.Refuse)
    assert (refused.reason, refused.status) == (events.RefusalReason.POISON, 422)
    assert isinstance(asked(gate, 3.0, "another"), events.Send)
    assert isinstance(asked(gate, 3.0, ""), events.Send)
    assert isinstance(asked(gate, 2.0 + POISON.block_s, "bad"), events.Send), "a block ends"


@pytest.mark.parametrize("replica_count", [1, 2])
def test_the_last_ready_replica_is_never_risked(replica_count: int) -> None:
    gate = gate_of(replica_count)
    effects = died(gate, asked(gate, 0.0).request_id, 1.0)
    assert kinds(effects) == ["GiveUp"]


def test_who_never_had_the_request_did_not_die_of_it() -> None:
    gate = gate_of(2)
    sent = asked(gate, 0.0)
    assert kinds(died(gate, sent.request_id, 1.0, Cause.REFUSED)) == ["OpenCircuit", "Send"]


def test_a_prompt_that_was_answered_is_no_suspect() -> None:
    gate = gate_of(3)
    gate.handle(events.ResponseEnded(asked(gate, 0.0).request_id, 5), 1.0)
    for turn in range(6):
        sent = asked(gate, 2.0 + turn)
        assert isinstance(sent, events.Send)
        assert "BlockPrompt" not in kinds(died(gate, sent.request_id, 2.5 + turn))


@pytest.mark.parametrize("name", ["r0", "r1"])
def test_one_replica_that_dies_of_it_twice_is_two_deaths(name: str) -> None:
    """Whether it is back under its own name or under another."""
    gate = gate_of(1)
    died(gate, asked(gate, 0.0).request_id, 1.0)
    gate.handle(events.ReplicaRemoved("r0"), 1.0)
    gate.handle(events.ReplicaAdded(name, 8), 2.0)
    assert kinds(died(gate, asked(gate, 3.0).request_id, 4.0)) == ["BlockPrompt", "GiveUp"]


@given(st.lists(st.sampled_from(["ask a", "ask b", "die", "end"]), max_size=60))
def test_a_prompt_is_refused_when_replicas_died_of_it_and_it_was_never_answered(steps: list[str]) -> None:
    """INV-37, beside a count of its own."""
    gate, now_s = gate_of(3), 0.0
    running: list[tuple[int, str]] = []
    deaths, answered = {"a": 0, "b": 0}, set()
    for step in steps:
        now_s += POISON.block_s / 1000
        kind, _, digest = step.partition(" ")
        if kind == "ask":
            decided = asked(gate, now_s, digest)
            is_blocked = deaths[digest] >= POISON.deaths_count and digest not in answered
            # The same life of a replica counts once, so that more deaths may be needed than are counted here.
            assert isinstance(decided, events.Send) or is_blocked
            if isinstance(decided, events.Send):
                running.append((decided.request_id, digest))
        elif kind == "die" and running:
            request_id, digest = running[0]
            deaths[digest] += 1
            effects = died(gate, request_id, now_s)
            if "Send" not in kinds(effects):
                running.pop(0)
            if "BlockPrompt" in kinds(effects):
                assert isinstance(asked(gate, now_s, digest), events.Refuse)
        elif kind == "end" and running:
            request_id, digest = running.pop(0)
            gate.handle(events.ResponseEnded(request_id, 3), now_s)
            answered.add(digest)


def test_a_tenant_pays_for_what_it_used_beyond_what_it_said() -> None:
    limits = LimitSettings(tenant=Rate(tokens_per_s=10.0, burst_s=10.0))
    gate = gate_of(1, limits=limits)
    [sent] = gate.handle(events.RequestArrived(10, 10, "t"), 0.0)
    assert isinstance(sent, events.Send)
    gate.handle(events.ResponseEnded(sent.request_id, 500, input_tokens=90), 0.0)
    [refused] = gate.handle(events.RequestArrived(10, 10, "t"), 20.0)
    assert isinstance(refused, events.Refuse), "of 100 tokens 590 were used: 49 s of debt"
    [later] = gate.handle(events.RequestArrived(10, 10, "t"), 52.0)
    assert isinstance(later, events.Send)
