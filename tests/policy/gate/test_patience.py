"""How long an attempt may be silent follows from what was promised and what is believed."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.events import BeliefsChanged, ReplicaAdded, RequestArrived, Send
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.patience import LEAST_S, Patience, patience_of
from twofold.policy.gate.settings import Beliefs, ClassSettings, GateSettings

BELIEFS = Beliefs(input_token_s=1e-3, output_token_s=0.01, first_token_s=0.05)
CHAT = ClassSettings("chat", ttft_slo_s=1.0, tpot_slo_s=0.2)


def patience(kind: ClassSettings, beliefs: Beliefs = BELIEFS, input_tokens: int = 100) -> Patience:
    gate = Gate(GateSettings(classes=(kind,)), beliefs)
    gate.handle(ReplicaAdded("a", 8), 0.0)
    [sent] = gate.handle(RequestArrived(input_tokens, 50), 0.0)
    assert isinstance(sent, Send)
    return patience_of(gate.view.requests[sent.request_id], gate.view.beliefs)


def test_a_second_that_was_promised_is_waited_for_three_times() -> None:
    assert patience(CHAT) == Patience(3.0, pytest.approx(10 * 0.2 + 3 * 0.1), pytest.approx(3 * (1.0 + 10.0)))
    assert patience(replace(CHAT, e2e_slo_s=20.0)).whole_s == pytest.approx(60.0)


def test_what_is_promised_nothing_has_no_time_of_its_own() -> None:
    assert patience(ClassSettings("night")) == Patience(math.inf, math.inf, math.inf)


SOME = st.sampled_from([0.01, 0.3, 1.0, 5.0, 60.0])


@given(ttft_s=SOME, tpot_s=SOME, tokens=st.sampled_from([1, 1000, 100_000]))
def test_a_looser_promise_and_a_longer_prompt_are_never_waited_for_less(
    ttft_s: float, tpot_s: float, tokens: int
) -> None:
    kind = ClassSettings("c", ttft_slo_s=ttft_s, tpot_slo_s=tpot_s)
    usual = patience(kind, input_tokens=tokens)
    assert min(usual.first_s, usual.between_s) >= LEAST_S and usual.whole_s >= usual.first_s >= 3 * ttft_s
    assert usual.between_s >= 10 * tpot_s
    looser = replace(kind, ttft_slo_s=2 * ttft_s, tpot_slo_s=2 * tpot_s)
    for more in (patience(looser, input_tokens=tokens), patience(kind, input_tokens=2 * tokens)):
        assert more.first_s >= usual.first_s and more.between_s >= usual.between_s
        assert more.whole_s >= usual.whole_s


def test_beliefs_that_change_price_what_is_there_anew() -> None:
    gate = Gate(GateSettings(), BELIEFS)
    gate.handle(ReplicaAdded("a", 8), 0.0)
    gate.handle(RequestArrived(100, 50), 0.0)
    [replica] = gate.view.replicas.values()
    before_s = replica.work_s(gate.view.beliefs)
    assert gate.handle(BeliefsChanged(2e-3, 0.02), 1.0) == []
    assert replica.work_s(gate.view.beliefs) == pytest.approx(2 * before_s)
