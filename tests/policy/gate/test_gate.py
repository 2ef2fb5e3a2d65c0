"""The laws of the gate: against a model that sees only its effects, and in a world that kills replicas."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twofold.live.gateway.replays import entry_from_line, first_difference
from twofold.policy.gate.events import (
    Cause,
    ClientLeft,
    CloseCircuit,
    Effect,
    Event,
    GiveUp,
    OpenCircuit,
    Probe,
    ProbeAnswered,
    ProbeFailed,
    RefusalReason,
    Refuse,
    ReplicaAdded,
    ReplicaRemoved,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    Send,
    to_line,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.policy.machine import Entry, Woke

SETTINGS = GateSettings(failure_limit=2, failure_window_s=5.0, open_s=1.0, open_s_max=4.0, attempt_limit=3)
BELIEFS = Beliefs(input_token_s=0.001, output_token_s=0.01)
NAMES = st.sampled_from("abc")
CAUSES = st.sampled_from(Cause)


@dataclass
class Seen:
    """A replica as an onlooker knows it from events and effects."""

    limit: int
    removed: bool = False
    until_s: float | None = None
    opened: int = 0


class GateAgainstModel(RuleBasedStateMachine):
    """Every order of events, late, twice and at odd times; the model never looks into the gate to predict."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.twin = Gate(SETTINGS, BELIEFS), Gate(SETTINGS, BELIEFS)
        self.lines: list[str] = []
        self.now_s = self.latest_s = 0.0
        self.seen: dict[str, Seen] = {}
        self.where: dict[int, str] = {}  # in flight
        self.attempts: Counter[int] = Counter()
        self.started: set[int] = set()
        self.probes: list[tuple[Probe, int]] = []  # unreported, and the openings of its replica when sent
        self.turn_count = 0
        self.ended: Counter[str] = Counter()
        self.given_ids = 0

    # --- what the world does ---

    @rule(name=NAMES, limit=st.integers(1, 3))
    def add(self, name: str, limit: int) -> None:
        seen = self.seen.get(name)
        if seen is None or seen.removed:
            self.seen[name] = Seen(limit, opened=seen.opened + 1 if seen else 0)
        else:
            seen.limit = limit
        assert self.feed(ReplicaAdded(name, limit)) == []

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.seen:
            self.seen[name].removed = True
        assert self.feed(ReplicaRemoved(name)) == []
        self.forget_drained()

    @rule(input_tokens=st.integers(0, 500), output_tokens=st.integers(0, 100))
    def arrive(self, input_tokens: int, output_tokens: int) -> None:
        healthy = [name for name, seen in self.seen.items() if self.is_healthy(seen)]
        room = [name for name in healthy if self.load(name) < self.seen[name].limit]
        [effect] = self.feed(RequestArrived(input_tokens, output_tokens))
        self.given_ids += 1
        assert isinstance(effect, Send if room else Refuse) and effect.request_id == self.given_ids
        if isinstance(effect, Refuse):
            reason = RefusalReason.FULL if healthy else RefusalReason.NO_REPLICA
            assert (effect.reason, effect.status) == (reason, 429 if healthy else 503)
            assert 0 <= effect.retry_after_s < math.inf
            self.ended["refused"] += 1

    @precondition(lambda self: self.given_ids)
    @rule(
        pick=st.integers(0, 10**6), cause=st.none() | CAUSES, data=st.sampled_from(["start", "end", "leave"])
    )
    def answer(self, pick: int, cause: Cause | None, data: str) -> None:
        """Something becomes of a request, most often one in flight, else one that is long over."""
        ids = sorted(self.where)
        request_id = ids[pick % len(ids)] if ids and pick % 5 else 1 + pick % self.given_ids
        live = request_id in self.where
        if cause:
            self.fail(request_id, cause)
            return
        kinds = {"start": ResponseStarted, "end": lambda r: ResponseEnded(r, 3), "leave": ClientLeft}
        here = self.where.get(request_id)
        proves = live and data != "leave" and request_id not in self.started and self.attempts[request_id] > 1
        if live and data == "start":
            self.started.add(request_id)
        elif live:
            del self.where[request_id]
            self.ended["finished" if data == "end" else "left"] += 1
        for effect in self.feed(kinds[data](request_id)):  # an answer accuses those who failed it before
            assert proves and isinstance(effect, OpenCircuit) and effect.replica_id != here
        self.forget_drained()

    def fail(self, request_id: int, cause: Cause) -> None:
        before = self.where.pop(request_id, None)
        effects = [e for e in self.feed(ResponseFailed(request_id, cause)) if not isinstance(e, OpenCircuit)]
        if before is None:
            assert effects == []
            return
        [effect] = effects
        elsewhere = [n for n, seen in self.seen.items() if n != before and self.is_healthy(seen)]
        if isinstance(effect, GiveUp):
            assert effect == GiveUp(request_id, cause)
            self.ended["gave_up"] += 1
            room = [n for n in elsewhere if self.load(n) < self.seen[n].limit]
            tried_all = self.attempts[request_id] == SETTINGS.attempt_limit
            assert tried_all or request_id in self.started or not room
        else:
            assert isinstance(effect, Send) and effect.request_id == request_id
            assert request_id not in self.started and (effect.replica_id != before or not elsewhere)
        self.forget_drained()

    @precondition(lambda self: self.probes)
    @rule(pick=st.integers(0, 100), cause=st.none() | CAUSES)
    def probe_ends(self, pick: int, cause: Cause | None) -> None:
        """Any unreported probe, in any order, reported once."""
        probe, opened = self.probes.pop(pick % len(self.probes))
        name = probe.replica_id
        seen = self.seen.get(name)
        was_open = seen is not None and seen.until_s is not None
        effects = self.feed(self.end_of(probe, cause))
        if seen is None or seen.removed or effects == []:
            assert effects == []
        elif cause is None:
            assert effects == [CloseCircuit(name)] and was_open and opened == seen.opened
        else:
            assert isinstance(effects[0], OpenCircuit) and opened + 1 == seen.opened

    @rule(name=NAMES, back=st.integers(-1, 9), cause=st.none() | CAUSES)
    def report_a_probe_that_nobody_waits_for(self, name: str, back: int, cause: Cause | None) -> None:
        """Never sent, reported before, or of a replica that is gone, though another has its name now."""
        probe = Probe(name, self.turn_count - back)
        if not any(probe == unreported for unreported, _ in self.probes):
            ignored = self.gate.view.counts.ignored
            assert self.feed(self.end_of(probe, cause)) == []
            assert self.gate.view.counts.ignored == ignored + 1

    def end_of(self, probe: Probe, cause: Cause | None) -> Event:
        of = probe.replica_id, probe.number
        return ProbeFailed(*of, cause) if cause else ProbeAnswered(*of)

    @rule()
    def wake_when_asked(self) -> None:
        wake_s = self.gate.wake_at_s()
        if wake_s is None:
            return
        self.now_s = max(self.now_s, wake_s)
        active = {name for name, seen in self.seen.items() if not seen.removed}
        effects = self.feed(Woke())
        self.turn_count += 1
        assert Counter(effects) == Counter(Probe(name, self.turn_count) for name in active)
        self.probes += [(Probe(name, self.turn_count), self.seen[name].opened) for name in active]
        again_s = self.gate.wake_at_s()
        assert again_s is not None and again_s > self.latest_s

    @rule(jump_s=st.sampled_from([0.01, 0.3, 1.0, 5.0, 1e6, -0.5, -1e5]))
    def let_time_pass_or_jump(self, jump_s: float) -> None:
        self.now_s += jump_s

    # --- what must hold of every effect (INV-14, INV-15) ---

    def feed(self, event: Event) -> list[Effect]:
        self.latest_s = max(self.latest_s, self.now_s)
        effects = self.gate.handle(event, self.now_s)
        assert self.twin.handle(event, self.now_s) == effects
        self.lines.append(to_line(Entry(self.now_s, event, tuple(effects))))
        for effect in effects:
            self.judge(effect)
        return effects

    def judge(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert self.is_healthy(self.seen[effect.replica_id])
            assert self.load(effect.replica_id) < self.seen[effect.replica_id].limit
            assert effect.request_id not in self.where
            self.attempts[effect.request_id] += 1
            assert effect.attempt == self.attempts[effect.request_id] <= SETTINGS.attempt_limit
            self.where[effect.request_id] = effect.replica_id
        elif isinstance(effect, OpenCircuit):
            seen = self.seen[effect.replica_id]
            assert seen.until_s is None or seen.until_s <= self.latest_s
            assert self.latest_s < effect.until_s <= self.latest_s + SETTINGS.open_s_max
            seen.until_s, seen.opened = effect.until_s, seen.opened + 1
        elif isinstance(effect, CloseCircuit):
            seen = self.seen[effect.replica_id]
            assert seen.until_s is not None and seen.until_s <= self.latest_s
            seen.until_s = None

    def is_healthy(self, seen: Seen) -> bool:
        return not seen.removed and seen.until_s is None

    def load(self, name: str) -> int:
        return sum(replica == name for replica in self.where.values())

    def forget_drained(self) -> None:
        """A drained replica takes its probes along: one that is added later is another one."""
        for name in [name for name, seen in self.seen.items() if seen.removed and not self.load(name)]:
            del self.seen[name]
            self.probes = [probe for probe in self.probes if probe[0].replica_id != name]

    # --- what must hold at every moment ---

    @invariant()
    def every_request_is_accounted_for(self) -> None:  # INV-13
        view = self.gate.view
        counts = {k: v for k, v in asdict(view.counts).items() if k not in ("arrived", "ignored")}
        assert view.counts.arrived == sum(counts.values()) + len(view.requests)
        assert counts == {name: self.ended[name] for name in counts}
        assert {r.request_id: r.attempt.replica.replica_id for r in view.requests.values()} == self.where

    @invariant()
    def nothing_is_kept_of_what_is_over(self) -> None:
        view = self.gate.view
        assert view.replicas.keys() == self.seen.keys()
        for name, replica in view.replicas.items():
            here = [
                request for request in view.requests.values() if request.attempt.replica.replica_id == name
            ]
            assert replica.in_flight_count == len(here) and replica.probe_eras.keys() == {
                probe.number for probe, _ in self.probes if probe.replica_id == name
            }
            assert replica.output_limit_tokens == sum(r.output_limit_tokens for r in here)
            assert replica.unread_input_tokens == sum(r.input_tokens for r in here if not r.started)

    @invariant()
    def it_wakes_only_for_replicas(self) -> None:
        assert (self.gate.wake_at_s() is None) == all(seen.removed for seen in self.seen.values())

    def teardown(self) -> None:
        assert first_difference(Gate(SETTINGS, BELIEFS), map(entry_from_line, self.lines)) is None  # INV-15


GateAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_the_gate_keeps_its_laws_whatever_happens = GateAgainstModel.TestCase


# --- in a world ---


EVERY_S = 0.25


def sends_after(entries: list[Entry], name: str, from_s: float, to_s: float) -> list[Send]:
    return [
        effect
        for entry in entries
        for effect in entry.effects
        if from_s <= entry.now_s < to_s and isinstance(effect, Send) and effect.replica_id == name
    ]


@settings(max_examples=40, deadline=None)
@given(
    died_s=st.floats(1.0, 4.0),
    back_s=st.none() | st.floats(5.0, 8.0),
    seed=st.integers(0, 1000),
    gap_s=st.sampled_from([0.01, 0.1, 0.7]),
)
def test_a_dead_replica_is_sent_nothing_after_one_probe_and_returns_after_it_is_back(
    make_world: Callable[..., Any],
    happens: Callable[..., Any],
    died_s: float,
    back_s: float | None,
    seed: int,
    gap_s: float,
) -> None:
    gate = Gate(GateSettings(probe_every_s=EVERY_S, open_s=0.5, open_s_max=1.0), BELIEFS)
    script = [happens(0.0, "add", name) for name in ("a", "b")] + [happens(died_s, "die", "a")]
    script += [happens(back_s, "recover", "a")] if back_s else []
    arrivals_s = [0.1 + gap_s * number for number in range(int(10.0 / gap_s))]
    entries = make_world(gate, seed=seed, limit=10).run(script, arrivals_s, end_s=10.0)
    seen_dead_s = died_s + EVERY_S + 0.01
    assert not sends_after(entries, "a", seen_dead_s, back_s or math.inf)
    if back_s:  # the longest opening, a probe's turn, and a few arrivals
        assert sends_after(entries, "a", back_s, back_s + 1.0 + 2 * EVERY_S + 5 * gap_s)
    given_up = {e.request_id for entry in entries for e in entry.effects if isinstance(e, GiveUp)}
    arrived_s = {
        e.request_id: x.now_s for x in entries for e in x.effects if isinstance(x.event, RequestArrived)
    }
    assert all(arrived_s[request_id] < seen_dead_s for request_id in given_up)


def test_a_replica_that_only_accepts_is_tried_ever_more_rarely(
    make_world: Callable[..., Any], happens: Callable[..., Any]
) -> None:
    gate = Gate(GateSettings(probe_every_s=EVERY_S, open_s=0.5, open_s_max=30.0), BELIEFS)
    script = [happens(0.0, "add", "a"), happens(0.0, "add", "b"), happens(0.5, "hang", "a")]
    world = make_world(gate, seed=1, limit=8)
    entries = world.run(script, [0.1 * number for number in range(600)], end_s=60.0)
    lasts_s = [e.until_s - x.now_s for x in entries for e in x.effects if isinstance(e, OpenCircuit)]
    assert lasts_s == pytest.approx([min(0.5 * 2**number, 30.0) for number in range(len(lasts_s))])
    assert 5 <= len(lasts_s) <= 7


@given(
    replica_count=st.integers(1, 4),
    attempt_limit=st.integers(1, 3),
    requests=st.lists(st.tuples(st.floats(0.0, 0.5), st.sampled_from([Cause.ERROR, None])), max_size=60),
)
def test_requests_that_fail_everywhere_open_no_circuit(
    replica_count: int, attempt_limit: int, requests: list[tuple[float, Cause | None]]
) -> None:  # INV-17
    gate = Gate(GateSettings(attempt_limit=attempt_limit, failure_limit=1), BELIEFS)
    for name in "abcd"[:replica_count]:
        gate.handle(ReplicaAdded(name, 2), 0.0)
    now_s = 0.0
    for gap_s, cause in requests:
        now_s += gap_s
        [effect] = gate.handle(RequestArrived(5, 5), now_s)
        while isinstance(effect, Send) and cause:
            [effect] = gate.handle(ResponseFailed(effect.request_id, cause), now_s)
        if cause is None:
            assert gate.handle(ResponseEnded(effect.request_id, 5), now_s) == []
    assert all(replica.healthy for replica in gate.view.replicas.values())


@given(sick=st.sets(st.sampled_from("abcd"), max_size=3), cause=CAUSES)
def test_sick_replicas_are_soon_avoided_as_long_as_one_is_sound(sick: set[str], cause: Cause) -> None:
    gate = Gate(GateSettings(failure_limit=3), BELIEFS)
    for name in "abcd":
        gate.handle(ReplicaAdded(name, 2), 0.0)
    answered = []
    for number in range(40):
        effects = gate.handle(RequestArrived(5, 5), 0.01 * number)
        while isinstance(send := effects[-1], Send) and send.replica_id in sick:
            effects = gate.handle(ResponseFailed(send.request_id, cause), 0.01 * number)
        answered.append(isinstance(send, Send))
        if isinstance(send, Send):
            gate.handle(ResponseEnded(send.request_id, 5), 0.01 * number)
    assert all(answered[20:])  # the first few may meet two sick replicas in a row
    assert {name for name, replica in gate.view.replicas.items() if not replica.healthy} <= sick


def test_a_replica_that_is_silent_and_alone_is_left_alone() -> None:
    gate = Gate(GateSettings(failure_limit=2), BELIEFS)
    gate.handle(ReplicaAdded("a", 4), 0.0)
    gate.handle(RequestArrived(5, 5), 1.0)
    assert gate.handle(ResponseFailed(1, Cause.TIMEOUT), 1.0) == [Send(1, "a", 2)]
    assert gate.handle(ResponseFailed(1, Cause.TIMEOUT), 2.0) == [
        OpenCircuit("a", 3.0),
        GiveUp(1, Cause.TIMEOUT),
    ]


def test_a_whole_day_leaves_nothing_behind(
    make_world: Callable[..., Any], happens: Callable[..., Any]
) -> None:
    gate = Gate(SETTINGS, BELIEFS)
    script = [happens(0.0, "add", "a"), happens(0.0, "add", "b"), happens(3.0, "die", "b")]
    make_world(gate, seed=2).run(script, [0.05 * number for number in range(100)], end_s=30.0)
    assert gate.view.requests == {} and gate.view.counts.arrived == 100
    assert all(r.in_flight_count == r.output_limit_tokens == 0 for r in gate.view.replicas.values())


# --- one at a time ---


@pytest.fixture
def gate() -> Gate:
    gate = Gate(GateSettings(), BELIEFS)
    gate.handle(ReplicaAdded("a", 2), 1.0)
    gate.handle(ReplicaAdded("b", 2), 1.0)
    return gate


def test_a_refused_attempt_opens_and_goes_elsewhere_in_one_step(gate: Gate) -> None:
    gate.handle(RequestArrived(5, 5), 1.0)
    effects = gate.handle(ResponseFailed(1, Cause.REFUSED), 1.1)
    assert effects == [OpenCircuit("a", 2.1), Send(1, "b", 2)]
    assert gate.handle(ResponseFailed(1, Cause.BROKEN), 1.2) == [GiveUp(1, Cause.BROKEN)]


def test_an_answer_that_has_begun_is_never_begun_again(gate: Gate) -> None:
    gate.handle(RequestArrived(5, 5), 1.0)
    gate.handle(ResponseStarted(1), 1.1)
    assert gate.handle(ResponseFailed(1, Cause.BROKEN), 1.2) == [GiveUp(1, Cause.BROKEN)]


def test_the_only_replica_is_tried_again_itself(gate: Gate) -> None:
    gate.handle(ReplicaRemoved("b"), 1.0)
    gate.handle(RequestArrived(5, 5), 1.0)
    assert gate.handle(ResponseFailed(1, Cause.BROKEN), 1.1) == [Send(1, "a", 2)]


def test_an_answer_to_a_probe_from_before_the_opening_does_not_close(gate: Gate) -> None:
    assert gate.handle(Woke(), 1.0) == [Probe("a", 1), Probe("b", 1)]
    gate.handle(RequestArrived(5, 5), 1.0)
    gate.handle(ResponseFailed(1, Cause.REFUSED), 1.0)
    assert gate.handle(ProbeAnswered("a", 1), 50.0) == []
    gate.handle(Woke(), 50.0)
    assert gate.handle(ProbeAnswered("a", 2), 50.1) == [CloseCircuit("a")]


def test_a_probe_that_times_out_after_a_newer_one_was_answered_is_not_taken_for_it(gate: Gate) -> None:
    gate.handle(Woke(), 1.0)
    gate.handle(RequestArrived(5, 5), 1.1)
    assert gate.handle(ResponseFailed(1, Cause.REFUSED), 1.1)[0] == OpenCircuit("a", 2.1)
    gate.handle(Woke(), 2.2)
    assert gate.handle(ProbeAnswered("a", 2), 2.2) == [CloseCircuit("a")]  # the first one still runs
    assert gate.handle(ProbeFailed("a", 1, Cause.REFUSED), 2.3) == []  # … and says how it was before


def test_of_a_driver_that_reports_no_probe_the_gate_keeps_little(gate: Gate) -> None:
    for number in range(200):
        gate.handle(Woke(), 1.0 + 0.25 * number)
    assert [len(replica.probe_eras) for replica in gate.view.replicas.values()] == [64, 64]
    assert gate.handle(ProbeFailed("a", 200, Cause.REFUSED), 60.0) == [OpenCircuit("a", 61.0)]


def test_probes_are_due_every_quarter_second_and_a_leap_of_the_clock_makes_no_burst(gate: Gate) -> None:
    assert gate.wake_at_s() == 1.0
    gate.handle(Woke(), 1.0)
    assert gate.wake_at_s() == 1.25
    assert gate.handle(Woke(), 1.2) == []
    assert len(gate.handle(Woke(), 1000.0)) == 2 and gate.handle(Woke(), 1000.0) == []
    assert gate.wake_at_s() == 1000.25


def test_a_replica_that_joins_waits_for_the_common_turn_of_probes(gate: Gate) -> None:
    gate.handle(Woke(), 1.0)
    gate.handle(ReplicaAdded("c", 2), 1.1)
    assert gate.wake_at_s() == 1.25
    assert gate.handle(Woke(), 1.25) == [Probe(name, 2) for name in "abc"]


def test_of_a_removed_replica_nothing_is_said_but_its_requests_move(gate: Gate) -> None:
    gate.handle(RequestArrived(5, 5), 1.0)
    gate.handle(ReplicaRemoved("a"), 1.0)
    assert gate.handle(ReplicaRemoved("a"), 1.0) == [] and gate.view.counts.ignored == 1
    assert gate.handle(Woke(), 1.0) == [Probe("b", 1)]
    assert gate.handle(ResponseFailed(1, Cause.REFUSED), 1.1) == [Send(1, "b", 2)]
    assert list(gate.view.replicas) == ["b"]


def test_openings_are_short_again_after_an_answer(gate: Gate) -> None:
    def opens_until_s(request_id: int, now_s: float) -> float:
        gate.handle(RequestArrived(5, 5), now_s)
        opened, _ = gate.handle(ResponseFailed(request_id, Cause.REFUSED), now_s)
        assert isinstance(opened, OpenCircuit) and opened.replica_id == "a"
        gate.handle(ClientLeft(request_id), now_s)
        [probe, _] = gate.handle(Woke(), opened.until_s)
        assert isinstance(probe, Probe)
        assert gate.handle(ProbeAnswered("a", probe.number), opened.until_s) == [CloseCircuit("a")]
        return opened.until_s

    assert opens_until_s(1, 10.0) == 11.0
    assert opens_until_s(2, 20.0) == 22.0
    gate.handle(RequestArrived(5, 5), 30.0)
    gate.handle(ResponseEnded(3, 5), 30.0)
    assert opens_until_s(4, 30.0) == 31.0


@pytest.mark.parametrize("odd_s", [-5.0, math.nan, math.inf, -math.inf])
def test_a_broken_clock_stands_still(gate: Gate, odd_s: float) -> None:
    gate.handle(RequestArrived(5, 5), 3.0)
    assert gate.handle(ResponseFailed(1, Cause.REFUSED), odd_s)[0] == OpenCircuit("a", 4.0)
    assert gate.wake_at_s() == 1.0


def test_what_comes_late_or_twice_is_counted_and_changes_nothing(gate: Gate) -> None:
    gate.handle(RequestArrived(5, 5), 1.0)
    gate.handle(ResponseStarted(1), 1.1)
    for number, (event, ends) in enumerate(
        [
            (ResponseStarted(1), ResponseEnded(1, 5)),
            (ResponseEnded(1, 5), None),
            (ResponseFailed(1, Cause.REFUSED), None),
            (ClientLeft(1), None),
            (ProbeAnswered("a", 1), None),
            (ProbeFailed("gone", 1, Cause.REFUSED), None),
            (ReplicaRemoved("gone"), None),
        ],
        1,
    ):
        assert gate.handle(event, 1.2) == [] and gate.view.counts.ignored == number
        if ends:
            gate.handle(ends, 1.2)
    assert gate.view.counts.finished == 1 and not gate.view.requests


@pytest.mark.parametrize(
    "event",
    [
        ClientLeft(0),
        ResponseStarted(2),
        ResponseFailed(99, Cause.ERROR),
        ReplicaAdded("a", 0),
        RequestArrived(-1, 5),
        RequestArrived(5, -1),
    ],
)
def test_what_the_world_cannot_send_is_the_drivers_mistake(gate: Gate, event: Event) -> None:
    gate.handle(RequestArrived(5, 5), 1.0)
    with pytest.raises(AssertionError):
        gate.handle(event, 1.0)
