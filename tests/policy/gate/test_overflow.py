"""A hosted API behind the gate: it takes what would be refused for want of room or time, and nothing else."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate import events
from twofold.policy.gate.events import RefusalReason, Refuse, Send
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    AnswerCacheSettings,
    Beliefs,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    OverflowSettings,
    QueueSettings,
    Rate,
)
from twofold.policy.machine import Woke

HOSTED = OverflowSettings(in_flight_limit=3, first_token_s=0.5, output_token_s=0.01)
ALL = GateSettings(overflow=HOSTED)
BELIEFS = Beliefs(0.001, 0.01)
OURS = {RefusalReason.RATE, RefusalReason.RETRY, RefusalReason.POISON}  # no room of anybody's would help
CHAT = ClassSettings("chat", ttft_slo_s=2.0, wait_s_max=5.0, queue_limit_count=3)
BULK = ClassSettings("bulk", kind=ClassKind.BULK, wait_s_max=5.0, queue_limit_count=3)


def gate_of(settings: GateSettings, replicas: int = 1, places: int = 1) -> Gate:
    gate = Gate(settings, BELIEFS)
    for number in range(replicas):
        gate.handle(events.ReplicaAdded(f"r{number}", places), 0.0)
    return gate


def arrive(gate: Gate, now_s: float, class_name: str = "", tenant: str = "") -> events.Effect:
    [*_, last] = gate.handle(events.RequestArrived(100, 10, tenant, class_name), now_s)
    return last


def sent_to(effect: object) -> str:
    assert isinstance(effect, Send), effect
    return effect.replica_id


def test_it_takes_what_finds_no_place_and_up_to_its_own_limit() -> None:
    gate = gate_of(ALL)
    assert [sent_to(arrive(gate, 0.0)) for _ in range(4)] == ["r0", *["overflow"] * 3]
    full = arrive(gate, 0.0)
    assert isinstance(full, Refuse) and full.reason is RefusalReason.FULL
    gate.handle(events.ResponseEnded(2, 5), 1.0)
    assert sent_to(arrive(gate, 1.0)) == "overflow"
    gate.handle(events.ResponseEnded(1, 5), 1.5)
    assert sent_to(arrive(gate, 1.5)) == "r0", "the fleet comes first"
    assert gate.view.counts.overflowed == 4


def test_what_it_answers_is_given_again_to_nobody() -> None:
    asked = events.RequestArrived(100, 10, answer_key="k")
    for where, kept in (("r0", 1), ("overflow", 0)):
        gate = gate_of(replace(ALL, answer_cache=AnswerCacheSettings()))
        if where == "overflow":
            arrive(gate, 0.0)
        [*_, sent] = gate.handle(asked, 0.0)
        assert sent_to(sent) == where
        effects = gate.handle(events.ResponseEnded(sent.request_id, 5, answer_bytes=100), 1.0)
        assert sum(isinstance(each, events.KeepAnswer) for each in effects) == kept


def test_it_takes_everything_while_no_replica_is_ready_even_where_others_would_wait() -> None:
    for settings in (ALL, replace(ALL, queue=QueueSettings(), classes=(CHAT,))):
        assert sent_to(arrive(gate_of(settings, replicas=0), 0.0)) == "overflow"
        dead = gate_of(settings)
        asked = arrive(dead, 0.0)
        assert sent_to(asked) == "r0"
        again = dead.handle(events.ResponseFailed(1, events.Cause.REFUSED), 0.1)
        assert [sent_to(each) for each in again if isinstance(each, Send)] == ["overflow"], (
            "nor is it given up"
        )
        assert sent_to(arrive(dead, 0.2)) == "overflow"


def test_who_waits_is_sent_there_while_it_is_still_in_time() -> None:
    gate = gate_of(replace(ALL, queue=QueueSettings(), classes=(CHAT,)))
    arrive(gate, 0.0)
    assert isinstance(arrive(gate, 0.0), events.Hold)
    due_s = gate.wake_at_s()
    sent = []
    while not sent:
        assert due_s is not None and due_s <= 1.5 + 1e-9, "2 s are promised, and it takes half of one"
        sent = [each for each in gate.handle(Woke(), due_s) if isinstance(each, Send)]
        at_s, due_s = due_s, gate.wake_at_s()
    assert sent_to(sent[0]) == "overflow" and at_s == pytest.approx(1.5)


def test_what_it_could_not_do_in_time_is_refused_as_before() -> None:
    slow = replace(HOSTED, first_token_s=3.0)
    gate = gate_of(GateSettings(overflow=slow, classes=(CHAT, BULK)))
    arrive(gate, 0.0)
    assert isinstance(arrive(gate, 0.0, "chat"), Refuse)
    assert sent_to(arrive(gate, 0.0, "bulk")) == "overflow"
    [late] = gate.handle(events.RequestArrived(100, 100, deadline_s=3.5, class_name="bulk"), 0.0)
    assert isinstance(late, Refuse)


def test_only_named_classes_go_there_and_no_limit_of_a_tenant_is_gone_round() -> None:
    limits = LimitSettings(tenant=Rate(requests_per_s=0.001))
    settings = GateSettings(
        overflow=replace(HOSTED, class_names=("chat",)), classes=(CHAT, BULK), limits=limits
    )
    gate = gate_of(settings)
    arrive(gate, 0.0, "chat", "a")
    assert isinstance(arrive(gate, 0.0, "bulk", "b"), Refuse)
    assert sent_to(arrive(gate, 0.0, "chat", "c")) == "overflow"
    again = arrive(gate, 0.0, "chat", "c")
    assert isinstance(again, Refuse) and again.reason is RefusalReason.RATE


def test_its_failures_open_its_circuit_alone_and_a_probe_closes_it() -> None:
    gate = gate_of(replace(ALL, failure_limit=2, open_s=1.0))
    arrive(gate, 0.0)
    for number in (2, 3):
        assert sent_to(arrive(gate, 0.0)) == "overflow"
        told = gate.handle(events.ResponseFailed(number, events.Cause.ERROR), 0.1)
    assert [each.replica_id for each in told if isinstance(each, events.OpenCircuit)] == ["overflow"]
    assert isinstance(arrive(gate, 0.2), Refuse) and gate.view.replicas["r0"].healthy
    gate.handle(events.ReplicaRemoved("r0"), 0.3)
    probes: list[events.Probe] = []
    while not probes or probes[-1].replica_id != "overflow":
        at_s = gate.wake_at_s()
        assert at_s is not None and at_s < 5.0, "it is asked even where no replica is left"
        probes += [each for each in gate.handle(Woke(), max(at_s, 1.2)) if isinstance(each, events.Probe)]
    closed = gate.handle(events.ProbeAnswered("overflow", probes[-1].number), 1.3)
    assert events.CloseCircuit("overflow") in closed
    assert sent_to(arrive(gate, 1.4)) == "overflow"


def test_how_it_answers_says_nothing_of_the_fleet() -> None:
    """Its slow tokens lower no replica's places, and teach neither the pace nor the hedges."""
    kinds = (replace(CHAT, tpot_slo_s=0.001),)
    gate = gate_of(replace(ALL, classes=kinds, admission=AdmissionSettings(), hedge=HedgeSettings()))
    arrive(gate, 0.0)
    pace = gate._path.pace
    assert pace is not None and sent_to(arrive(gate, 0.0)) == "overflow"
    before = pace.begin_s(BELIEFS, 1000)
    gate.handle(events.ResponseStarted(2), 1.9)
    gate.handle(events.ResponseEnded(2, 10), 60.0)
    assert pace.begin_s(BELIEFS, 1000) == before
    assert gate.view.overflow is not None and gate.view.overflow.in_flight_limit == HOSTED.in_flight_limit
    assert gate.view.beliefs_of(gate.view.overflow) == Beliefs(0.0, 0.01, 0.5)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["arrive", "arrive", "start", "end", "fail", "refuse", "leave", "wake", "add", "remove"]
        ),
        st.integers(0, 7),
        st.floats(0.0, 1.5),
    ),
    max_size=60,
)
POLICIES = st.sampled_from(
    [
        ALL,
        replace(ALL, queue=QueueSettings(), classes=(CHAT, BULK)),
        replace(ALL, queue=QueueSettings(), classes=(CHAT, BULK), admission=AdmissionSettings()),
        replace(ALL, classes=(CHAT, BULK), degradation=DegradationSettings(raise_after_s=0.5)),
        replace(ALL, queue=QueueSettings(), classes=(CHAT, BULK), hedge=HedgeSettings()),
    ]
)


class Told:
    """A gate and what a driver knows of it: which requests are where."""

    def __init__(self, settings: GateSettings) -> None:
        self.gate, self.now_s, self.open = gate_of(settings, 2, 2), 0.0, dict[int, str]()
        self.log: list[events.Effect] = []

    def tell(self, event: events.Event) -> list[events.Effect]:
        effects = self.gate.handle(event, self.now_s)
        self.log += effects
        for effect in effects:
            if isinstance(effect, Send):
                self.open[effect.request_id] = effect.replica_id
            elif isinstance(effect, Refuse | events.GiveUp):
                self.open.pop(effect.request_id, None)
        return effects

    def step(self, what: str, number: int, later_s: float) -> list[events.Effect]:
        self.now_s += later_s
        sent = sorted(self.open)
        if what == "arrive":
            return self.tell(events.RequestArrived(50, 10, f"t{number % 3}", ("chat", "bulk")[number % 2]))
        if what == "wake":
            return self.tell(Woke())
        if what == "add":
            return self.tell(events.ReplicaAdded(f"r{number % 3}", 2))
        if what == "remove":
            return self.tell(events.ReplicaRemoved(f"r{number % 3}"))
        if not sent:
            return []
        request_id = sent[number % len(sent)]
        if what == "start":
            return self.tell(events.ResponseStarted(request_id))
        if what in ("fail", "refuse"):
            cause = events.Cause.REFUSED if what == "refuse" else events.Cause.BROKEN
            self.open.pop(request_id)
            return self.tell(events.ResponseFailed(request_id, cause))
        self.open.pop(request_id)
        end = events.ResponseEnded(request_id, 5) if what == "end" else events.ClientLeft(request_id)
        return self.tell(end)


@given(POLICIES, STEPS)
def test_whatever_happens_it_is_within_its_limit_and_nothing_in_time_is_refused_beside_it(
    settings: GateSettings, steps: list[tuple[str, int, float]]
) -> None:
    told = Told(settings)
    view = told.gate.view
    hosted = view.overflow
    assert hosted is not None
    for step in steps:
        room = {name for name, each in view.replicas.items() if each.healthy and each.has_room}
        waiting = bool(view.held)
        effects = told.step(*step)
        at_it = sum(each.attempt.replica is hosted for each in view.requests.values())
        at_it += sum(
            each.rival is not None and each.rival.replica is hosted for each in view.requests.values()
        )
        assert hosted.in_flight_count == at_it <= HOSTED.in_flight_limit
        for effect in effects:
            if isinstance(effect, Refuse) and effect.reason not in OURS:
                was_full = hosted.in_flight_count == HOSTED.in_flight_limit
                assert was_full or not hosted.healthy or effect.reason is RefusalReason.EXPIRED, effect
            if isinstance(effect, Send) and effect.replica_id == "overflow" and step[0] == "arrive":
                plain = settings.admission is None and settings.degradation is None and not waiting
                assert not (plain and room), "a replica had a place"
        counts = view.counts
        ended = counts.finished + counts.refused + counts.gave_up + counts.left
        assert counts.arrived == ended + len(view.requests) + len(view.held)
    assert view.counts.overflowed == sum(isinstance(e, Send) and e.replica_id == "overflow" for e in told.log)


@given(POLICIES, STEPS)
def test_one_that_takes_no_class_changes_nothing(
    settings: GateSettings, steps: list[tuple[str, int, float]]
) -> None:
    nobody = Told(replace(settings, overflow=replace(HOSTED, class_names=("nobody",))))
    without = Told(replace(settings, overflow=None))
    for step in steps:
        assert nobody.step(*step) == without.step(*step)
        assert nobody.gate.wake_at_s() == without.gate.wake_at_s()


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_bill_is_linear_in_tokens(price_in: float, price_out: float, read: int, wrote: int) -> None:
    hosted = replace(HOSTED, usd_per_input_mtok=price_in, usd_per_output_mtok=price_out)
    parts = hosted.usd(read, 0) + hosted.usd(0, wrote)
    assert math.isclose(hosted.usd(read, wrote), parts, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(hosted.usd(1e6, 0), price_in, rel_tol=1e-9)
