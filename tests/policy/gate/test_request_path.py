"""The laws of a request's way with everything on, against an onlooker who sees events and effects alone."""

import math
from collections import Counter
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from twofold.live.gateway.replays import entry_from_line, first_difference
from twofold.policy.gate.events import (
    Cancel,
    Cause,
    ClientLeft,
    CloseCircuit,
    Degrade,
    Effect,
    Event,
    GiveUp,
    Hold,
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
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    PoolRules,
    PoolScaling,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    RoutingSettings,
    ScalingSettings,
)
from twofold.policy.machine import Entry, Woke

BELIEFS = Beliefs(input_token_s=0.001, output_token_s=0.01)
CHAT = ClassSettings(
    "chat",
    ttft_slo_s=2.0,
    e2e_slo_s=20.0,
    queue_limit_count=4,
    output_fraction_min=0.5,
    smaller_model="small",
)
BULK = ClassSettings("bulk", ClassKind.BULK, priority=1, wait_s_max=9.0, queue_limit_count=3)
EVERYTHING = GateSettings(
    attempt_limit=3,
    failure_limit=2,
    open_s_max=4.0,
    classes=(CHAT, BULK),
    limits=LimitSettings(Rate(5.0, 3000.0, 4.0), classes=(("chat", Rate(9.0)),), tenant_count_max=2),
    admission=AdmissionSettings(),
    queue=QueueSettings(lower_share=0.2),
    degradation=DegradationSettings(0.05, 1.0, raise_after_s=0.5, lower_after_s=2.0),
    retry_budget=RetryBudgetSettings(0.5, burst_count=3),
    hedge=HedgeSettings(0.5, attempts_fraction=0.5),
)
NAMES = st.sampled_from("abc")
CAUSES = st.sampled_from(Cause)
PAUSES_S = [0.01, 0.1, 0.3, 1.0]


class EverythingAgainstOnlooker(RuleBasedStateMachine):
    """Requests come, wait, are sent once, twice or thrice, and end; the clock leaps; nothing gets lost."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.twin = Gate(EVERYTHING, BELIEFS), Gate(EVERYTHING, BELIEFS)
        self.lines: list[str] = []
        self.now_s = 0.0
        self.limits: dict[str, int] = {}  # of replicas that are not removed
        self.open: set[str] = set()
        self.held: set[int] = set()
        self.running: dict[int, dict[int, str]] = {}  # request: attempt: replica
        self.sent: Counter[int] = Counter()
        self.begun: set[int] = set()
        self.over: Counter[str] = Counter()
        self.unprobed: list[str] = []
        self.arrived = 0

    # --- what the world does ---

    @initialize()
    def serve_some_in_peace(self) -> None:
        """So that the gate knows how long things take: what is late, and what is not feasible."""
        self.add("a", 2, "")
        self.add("b", 2, "small")
        for _ in range(25):
            self.arrive((10, 10), "w", "chat", None, 1)
            self.now_s += 0.3
            if self.running:
                self.answer(0, "start", named=False)
                self.answer(0, "end", named=True)

    @rule(name=NAMES, limit=st.integers(1, 3), model=st.sampled_from(["", "small"]))
    def add(self, name: str, limit: int, model: str) -> None:
        if name not in self.limits:
            self.open.discard(name)
        self.limits[name] = limit
        assert self.kinds(self.feed(ReplicaAdded(name, limit, model=model))) <= {Send}

    @rule(name=NAMES, seldom=st.integers(0, 4))
    def remove(self, name: str, seldom: int) -> None:
        if seldom:
            return
        self.limits.pop(name, None)
        assert self.feed(ReplicaRemoved(name)) == []
        if not self.load(name):
            self.unprobed = [each for each in self.unprobed if each != name]

    @rule(
        tokens=st.tuples(st.integers(0, 500), st.integers(0, 100)),
        tenant=st.sampled_from(["x", "y", "z", "w"]),
        name=st.sampled_from(["chat", "chat", "bulk", "unknown"]),
        due_s=st.sampled_from([None, None, None, None, None, 0.2, 9.0, -1.0]),
        count=st.sampled_from([1, 2, 6]),
        repeats=st.sampled_from([0, 0, 0, 1]),
    )
    def arrive(
        self,
        tokens: tuple[int, int],
        tenant: str,
        name: str,
        due_s: float | None,
        count: int,
        repeats: int = 0,
    ) -> None:
        deadline_s = None if due_s is None else self.gate._seen_s + due_s
        for _ in range(count):
            self.arrived += 1
            event = RequestArrived(*tokens, tenant, name, deadline_s=deadline_s, retry_count=repeats)
            effects = self.feed(event)
            own = [e for e in effects if getattr(e, "request_id", None) == self.arrived]
            assert self.kinds(own) <= {Send, Hold, Refuse} and len(own) == 1
            others = [e for e in effects if e not in own]
            assert all(isinstance(e, Refuse) and e.reason is RefusalReason.QUEUE_FULL for e in others)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 10**6), what=st.sampled_from(["start", "end", "leave"]), named=st.booleans())
    def answer(self, pick: int, what: str, named: bool) -> None:
        request_id, attempt = self.picked(pick)
        said = attempt if named else 0
        attempt = attempt if named else max(self.running[request_id])
        effects: list[Effect]
        if what == "leave":
            del self.running[request_id]
            self.over["left"] += 1
            effects = self.feed(ClientLeft(request_id))
            assert self.kinds(effects) <= {Send}
            return
        rivals = {number for number in self.running[request_id] if number != attempt}
        ignored = what == "start" and request_id in self.begun
        if what == "end":
            self.over["finished"] += 1
        self.running[request_id] = {attempt: self.running[request_id][attempt]}
        if what == "end":
            del self.running[request_id]
        self.begun.add(request_id)
        event = (
            ResponseStarted(request_id, said) if what == "start" else ResponseEnded(request_id, 3, None, said)
        )
        effects = self.feed(event)
        assert {e.attempt for e in effects if isinstance(e, Cancel)} == rivals
        assert self.kinds(effects) <= {Cancel, OpenCircuit, Send} and (effects == [] or not ignored)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 10**6), cause=CAUSES)
    def fail(self, pick: int, cause: Cause) -> None:
        request_id, attempt = self.picked(pick)
        del self.running[request_id][attempt]
        alone = not self.running[request_id]
        if alone:
            del self.running[request_id]
        effects = self.feed(ResponseFailed(request_id, cause, attempt))
        gave_up = GiveUp(request_id, cause) in effects
        again = [e for e in effects if isinstance(e, Send) and e.request_id == request_id]
        assert gave_up + len(again) == alone and not (again and request_id in self.begun)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 100))
    def leave_the_queue(self, pick: int) -> None:
        request_id = sorted(self.held)[pick % len(self.held)]
        self.held.discard(request_id)
        self.over["left"] += 1
        assert self.feed(ClientLeft(request_id)) == [Cancel(request_id, "", 0)]

    @precondition(lambda self: self.arrived)
    @rule(pick=st.integers(0, 10**6), attempt=st.integers(0, 5))
    def report_what_is_over(self, pick: int, attempt: int) -> None:
        request_id = 1 + pick % self.arrived
        runs = self.running.get(request_id, {})
        if not (attempt in runs or (runs and attempt == 0)):
            for event in (
                ResponseStarted(request_id, attempt),
                ResponseEnded(request_id, 3, None, attempt),
                ResponseFailed(request_id, Cause.BROKEN, attempt),
            ):
                ignored = self.gate.view.counts.ignored
                assert self.feed(event) == [] and self.gate.view.counts.ignored == ignored + 1

    @precondition(lambda self: self.unprobed)
    @rule(pick=st.integers(0, 100), cause=st.none() | CAUSES)
    def probe_ends(self, pick: int, cause: Cause | None) -> None:
        probe = self.unprobed.pop(pick % len(self.unprobed))
        of = probe.replica_id, probe.number
        effects = self.feed(ProbeFailed(*of, cause) if cause else ProbeAnswered(*of))
        assert self.kinds(effects) <= {OpenCircuit, CloseCircuit, Send}

    @rule(times=st.sampled_from([1, 1, 2, 12]), answered=st.booleans())
    def wake_when_asked(self, times: int, answered: bool) -> None:
        for _ in range(times):
            self.wake()
            while answered and self.unprobed:
                self.probe_ends(0, None)

    def wake(self) -> None:
        wake_s = self.gate.wake_at_s()
        if wake_s is None or len(self.unprobed) > 12:
            return
        self.now_s = max(self.now_s, wake_s)
        effects = self.feed(Woke())
        assert self.kinds(effects) <= {Probe, Send, Refuse, Degrade}
        self.unprobed += [e for e in effects if isinstance(e, Probe)]
        again_s = self.gate.wake_at_s()
        assert again_s is None or again_s > wake_s

    @rule(jump_s=st.sampled_from([*PAUSES_S, *PAUSES_S, *PAUSES_S, 1e6, -0.5, -1e5, math.nan, math.inf]))
    def let_time_pass_or_jump(self, jump_s: float) -> None:
        if math.isfinite(jump_s):
            self.now_s += jump_s
        else:
            self.gate.handle(ProbeAnswered("nobody", 0), jump_s)
            self.twin.handle(ProbeAnswered("nobody", 0), jump_s)

    # --- what must hold of every effect ---

    def picked(self, pick: int) -> tuple[int, int]:
        pairs = sorted((key, number) for key, runs in self.running.items() for number in runs)
        return pairs[pick % len(pairs)]

    def feed(self, event: Event) -> list[Effect]:
        effects = self.gate.handle(event, self.now_s)
        assert self.twin.handle(event, self.now_s) == effects  # INV-15
        self.lines.append(to_line(Entry(self.now_s, event, tuple(effects))))
        for effect in effects:
            self.judge(effect)
        return effects

    def judge(self, effect: Effect) -> None:
        match effect:
            case Send():
                key, name = effect.request_id, effect.replica_id
                assert name in self.limits and name not in self.open  # INV-14
                assert self.load(name) < self.limits[name]
                assert name not in self.running.get(key, {}).values() and key not in self.begun
                self.held.discard(key)
                self.sent[key] += 1
                assert effect.attempt == self.sent[key] <= EVERYTHING.attempt_limit
                self.running.setdefault(key, {})[effect.attempt] = name
                assert len(self.running[key]) <= 2
            case Hold():
                self.held.add(effect.request_id)
            case Refuse():
                assert effect.request_id not in self.running and not self.sent[effect.request_id]
                assert 0 <= effect.retry_after_s <= EVERYTHING.retry_after_s_max
                self.held.discard(effect.request_id)
                self.over["refused"] += 1
            case GiveUp():
                self.over["gave_up"] += 1
            case Cancel(request_id, replica_id, attempt) if attempt:
                assert self.running.get(request_id, {}).pop(attempt, replica_id) == replica_id
            case OpenCircuit():
                self.open.add(effect.replica_id)
            case CloseCircuit():
                self.open.discard(effect.replica_id)
            case _:
                pass

    def load(self, name: str) -> int:
        return sum(name == where for runs in self.running.values() for where in runs.values())

    @staticmethod
    def kinds(effects: list[Effect]) -> set[type]:
        return {type(effect) for effect in effects}

    # --- what must hold at every moment ---

    @invariant()
    def every_request_is_accounted_for(self) -> None:  # INV-13
        view = self.gate.view
        counts = view.counts
        over = {name: getattr(counts, name) for name in ("finished", "refused", "gave_up", "left")}
        assert over == {name: self.over[name] for name in over}
        assert view.held.keys() == self.held and view.requests.keys() == self.running.keys()
        assert self.arrived == counts.arrived == sum(over.values()) + len(self.held) + len(self.running)

    @invariant()
    def nothing_is_kept_of_what_is_over(self) -> None:
        view, path = self.gate.view, self.gate._path
        assert path._queue is not None and path.hedger is not None and path._limiter is not None
        assert len(path._queue._waiting) == len(self.held)
        assert path.hedger._sent_s.keys() <= self.running.keys() - self.begun
        assert len(path._limiter._tenants) <= 2
        for name, replica in view.replicas.items():
            assert replica.in_flight_count == self.load(name)
            if not self.load(name):
                assert replica.unread_input_tokens == replica.output_limit_tokens == 0

    def teardown(self) -> None:
        assert first_difference(Gate(EVERYTHING, BELIEFS), map(entry_from_line, self.lines)) is None  # INV-15


EverythingAgainstOnlooker.TestCase.settings = settings(max_examples=25, stateful_step_count=60)
test_a_gate_with_everything_on_keeps_its_laws_whatever_happens = EverythingAgainstOnlooker.TestCase


def test_what_clients_repeat_is_let_in_as_far_as_the_budget_goes_and_new_requests_always() -> None:
    gate = Gate(GateSettings(retry_budget=RetryBudgetSettings(0.1, 0.0, burst_count=2)), BELIEFS)
    gate.handle(ReplicaAdded("a", 1000), 0.0)
    kinds: Counter[tuple[int, type]] = Counter()
    for number in range(400):
        repeated = number % 2
        [effect] = gate.handle(RequestArrived(5, 5, retry_count=repeated), 0.01 * number)
        kinds[repeated, type(effect)] += 1
        if isinstance(effect, Refuse):
            assert (effect.reason, effect.status) == (RefusalReason.RETRY, 429)
    assert kinds[0, Send] == 200 and kinds[1, Send] == 2 + 0.1 * 200 - 1
    free = Gate(GateSettings(), BELIEFS)
    free.handle(ReplicaAdded("a", 1000), 0.0)
    assert isinstance(free.handle(RequestArrived(5, 5, retry_count=9), 1.0)[0], Send)


def test_what_clients_repeat_takes_nobody_the_second_attempt_of_the_gate() -> None:
    gate = Gate(GateSettings(retry_budget=RetryBudgetSettings(0.0, 0.0, burst_count=2)), BELIEFS)
    for name in "ab":
        gate.handle(ReplicaAdded(name, 1000), 0.0)
    told = [gate.handle(RequestArrived(5, 5, retry_count=1), 0.1)[0] for _ in range(4)]
    assert [type(effect) for effect in told] == [Send, Send, Refuse, Refuse]
    [sent] = gate.handle(RequestArrived(5, 5), 0.2)
    assert isinstance(sent, Send)
    [again] = gate.handle(ResponseFailed(sent.request_id, Cause.ERROR), 0.3)
    assert isinstance(again, Send) and again.attempt == 2


def test_a_tenant_beyond_its_rate_takes_nobody_his_repeats_and_a_refused_repeat_costs_no_tokens() -> None:
    limits = LimitSettings(tenants=(("greedy", Rate(1.0)), ("modest", Rate(tokens_per_s=10.0))))
    budget = RetryBudgetSettings(0.0, 0.0, burst_count=2)
    gate = Gate(GateSettings(limits=limits, retry_budget=budget), BELIEFS)
    gate.handle(ReplicaAdded("a", 1000), 0.0)

    def told(tenant: str, repeats: int, count: int) -> list[Effect]:
        event = RequestArrived(5, 5, tenant, retry_count=repeats)
        return [gate.handle(event, 0.001)[0] for _ in range(count)]

    greedy = Counter(e.reason if isinstance(e, Refuse) else None for e in told("greedy", 0, 50))
    assert greedy[RefusalReason.RATE] > 0
    assert {e.reason for e in told("greedy", 1, 50) if isinstance(e, Refuse)} == {RefusalReason.RATE}
    first, second, *others = told("modest", 1, 20)
    assert isinstance(first, Send) and isinstance(second, Send)
    assert {e.reason for e in others if isinstance(e, Refuse)} == {RefusalReason.RETRY}
    assert isinstance(told("modest", 0, 1)[0], Send)


def test_what_is_refused_later_uses_up_no_limit_of_requests() -> None:
    limits = LimitSettings(Rate(10.0, burst_s=1.0), classes=(("", Rate(20.0, burst_s=1.0)),))
    budget = RetryBudgetSettings(0.0, 0.0, burst_count=1)
    gate = Gate(GateSettings(limits=limits, retry_budget=budget), BELIEFS)
    gate.handle(ReplicaAdded("a", 1000), 0.0)
    new = [RequestArrived(0, 0)]
    repeats = [RequestArrived(0, 0, retry_count=1)] * 40
    told = [gate.handle(event, float(second))[0] for second in range(20) for event in repeats + 5 * new]
    kinds = Counter(effect.reason if isinstance(effect, Refuse) else Send for effect in told)
    assert kinds == {Send: 20 * 5 + 1, RefusalReason.RETRY: 20 * 40 - 1}


# --- several models ---

QUEUED = GateSettings(queue=QueueSettings(kept_fraction=0.0), classes=(ClassSettings("", wait_s_max=1e6),))


@given(
    st.lists(
        st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(["come", "come", "end", "leave"])),
        max_size=60,
    )
)
@example([*[("n", "come")] * 3, *[("m", "come")] * 2, ("m", "end"), ("n", "leave"), ("n", "leave")])
@settings(max_examples=50)
def test_what_asks_for_one_model_is_sent_as_if_no_other_were_asked_for(steps: list[tuple[str, str]]) -> None:
    together = Gate(QUEUED, BELIEFS)
    gates = {"m": Gate(QUEUED, BELIEFS), "n": Gate(QUEUED, BELIEFS)}
    own: dict[int, tuple[str, int]] = {}  # of the common gate's requests: the model, and the number there
    asked: dict[str, list[int]] = {"m": [], "n": []}
    for name, limit in (("m", 1), ("n", 2)):
        for gate in (together, gates[name]):
            gate.handle(ReplicaAdded(name, limit, model=name), 0.0)
    for number, (model, what) in enumerate(steps):
        alone, now_s = gates[model], float(number)
        if what == "come":
            asked[model].append(len(own) + 1)
            own[len(own) + 1] = (model, len(asked[model]))
            events = [RequestArrived(5, 5, model=model)] * 2
        else:
            view = alone.view
            there = [*view.requests, *view.held] if what == "leave" else [*view.requests]
            if not there:
                continue
            keys = (asked[model][there[-1] - 1], there[-1])
            events = [ClientLeft(k) if what == "leave" else ResponseEnded(k, 5) for k in keys]
        told = [gate.handle(event, now_s) for gate, event in zip((together, alone), events, strict=True)]
        sent = [[e.request_id for e in effects if isinstance(e, Send)] for effects in told]
        assert [own[key] for key in sent[0]] == [(model, key) for key in sent[1]]


def test_who_asks_for_what_no_replica_has_nor_will_have_is_refused_at_once_and_keeps_nobody_waiting() -> None:
    def first(replica_model: str, asked_model: str, **more: object) -> Effect:
        gate = Gate(replace(QUEUED, **more), BELIEFS)  # type: ignore[arg-type]
        gate.handle(ReplicaAdded("a", 1, pool="latency", model=replica_model), 0.0)
        gate.handle(RequestArrived(5, 5, model=replica_model), 0.5)
        [effect] = gate.handle(RequestArrived(5, 5, model=asked_model), 1.0)
        return effect

    refusal = first("m", "x")
    assert isinstance(refusal, Refuse)
    assert (refusal.reason, refusal.status, refusal.retry_after_s) == (RefusalReason.NO_REPLICA, 503, 60.0)
    for held in (first("m", "m"), first("m", ""), first("", "x")):
        assert held == Hold(2)
    scaled = [ScalingSettings(pools=(PoolScaling(model=name),)) for name in ("", "x", "y")]
    kinds = [type(first("m", "x", scaling=scaling)) for scaling in scaled]
    assert kinds == [Hold, Hold, Refuse]
    pools = [RoutingSettings(pools=PoolRules(latency_pool=name)) for name in ("latency", "other")]
    assert [type(first("m", "m", routes=routes)) for routes in pools] == [Hold, Refuse]


def test_who_asks_for_a_model_whose_replicas_are_sick_waits_and_whose_replicas_left_does_not() -> None:
    gate = Gate(QUEUED, BELIEFS)
    for name in "mn":
        gate.handle(ReplicaAdded(name, 1, model=name), 0.0)
    [probe, _] = gate.handle(Woke(), 0.0)
    assert isinstance(probe, Probe) and probe.replica_id == "m"
    assert gate.handle(RequestArrived(5, 5, model="m"), 0.1) == [Send(1, "m", 1)]
    gate.handle(ProbeFailed("m", probe.number, Cause.REFUSED), 0.1)
    assert gate.handle(RequestArrived(5, 5, model="m"), 0.2) == [Hold(2)]
    gate.handle(ReplicaRemoved("m"), 0.3)
    assert list(gate.view.replicas) == ["m", "n"]  # it has a request yet
    assert isinstance(gate.handle(RequestArrived(5, 5, model="m"), 0.4)[0], Refuse)
    assert gate.handle(RequestArrived(5, 5, model="n"), 0.5) == [Send(4, "n", 1)]
