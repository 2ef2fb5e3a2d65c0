"""A clock that leaps, as after a process was stopped, or that is set back: the gate goes on where it was."""

import math
import time

import pytest

from twofold.policy.gate import events
from twofold.policy.gate import settings as gates
from twofold.policy.gate.gate import Gate
from twofold.policy.machine import Woke

EVERYTHING = gates.GateSettings(
    classes=(gates.ClassSettings("chat", ttft_slo_s=2.0, e2e_slo_s=30.0, tpot_slo_s=0.5),),
    limits=gates.LimitSettings(gates.Rate(1e6, 1e9)),
    admission=gates.AdmissionSettings(),
    queue=gates.QueueSettings(),
    degradation=gates.DegradationSettings(),
    poison=gates.PoisonSettings(),
    retry_budget=gates.RetryBudgetSettings(),
    hedge=gates.HedgeSettings(),
    outliers=gates.OutlierSettings(),
    scaling=gates.ScalingSettings((gates.PoolScaling(min_count=2, max_count=4, in_flight_limit_count=4),)),
)


def gate_at_work() -> tuple[Gate, list[int]]:
    """Two replicas at work for a minute; ids of requests that are under way."""
    gate, sent = Gate(EVERYTHING, gates.Beliefs(1e-5, 0.01, 0.1)), list[int]()
    for number in range(2):
        gate.handle(events.ReplicaAdded(f"r{number}", 4), 0.0)
    for second in range(60):
        woke(gate, float(second))
        effects = gate.handle(events.RequestArrived(10, 10), second + 0.2)
        sent = [effect.request_id for effect in effects if isinstance(effect, events.Send)]
        if second < 59:
            gate.handle(events.ResponseStarted(sent[0]), second + 0.3)
            gate.handle(events.ResponseEnded(sent[0], 10), second + 0.4)
    return gate, sent


def woke(gate: Gate, now_s: float) -> list[events.Effect]:
    """One turn, with an answer to each probe."""
    effects = gate.handle(Woke(), now_s)
    for effect in effects:
        if isinstance(effect, events.Probe):
            gate.handle(events.ProbeAnswered(effect.replica_id, effect.number), now_s)
    return effects


@pytest.mark.parametrize("gap_s", [5.0, 3600.0, 1e6, 1e9])
def test_after_a_gap_nothing_is_lost_nobody_is_blamed_and_the_next_is_served(gap_s: float) -> None:
    gate, [under_way] = gate_at_work()
    began_s = time.process_time()
    woke(gate, 60.0 + gap_s)
    gate.handle(events.ResponseStarted(under_way), 60.1 + gap_s)
    gate.handle(events.ResponseEnded(under_way, 10), 60.2 + gap_s)
    for number in range(5):
        effects = gate.handle(events.RequestArrived(10, 10), 61.0 + gap_s + number)
        assert [type(each) for each in effects] == [events.Send]
        gate.handle(events.ResponseEnded(effects[0].request_id, 10), 61.1 + gap_s + number)
    counts, view = gate.view.counts, gate.view
    assert (counts.arrived, counts.finished, len(view.requests), len(view.held)) == (65, 65, 0, 0)
    assert all(replica.healthy for replica in view.replicas.values())
    assert time.process_time() - began_s < 2.0


@pytest.mark.parametrize("now_s", [0.0, -1e9, math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_or_lies_behind_counts_as_now(now_s: float) -> None:
    gate, [under_way] = gate_at_work()
    gate.handle(events.ResponseEnded(under_way, 10), now_s)
    assert [type(each) for each in gate.handle(events.RequestArrived(10, 10), now_s)] == [events.Send]
    woke(gate, now_s)
    assert gate.view.counts.finished == 60
    assert (gate.wake_at_s() or 0.0) < 120.0
