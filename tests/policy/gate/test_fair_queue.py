"""The laws of the queue, first against a plain list that knows nothing of heaps or clocks."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twofold.policy.gate.fair_queue import FairQueue
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    ClassKind,
    ClassSettings,
    GateSettings,
    LimitSettings,
    QueueSettings,
    Rate,
)

CLASSES = (
    ClassSettings("chat", weight=3),
    ClassSettings("code"),
    ClassSettings("batch", ClassKind.BULK, priority=1),
)


def queue_of(*classes: ClassSettings, lower_share: float = 0.1) -> FairQueue:
    return FairQueue(QueueSettings(lower_share=lower_share), classes or (ClassSettings(),))


def served(queue: FairQueue, count: int) -> list[int]:
    keys = []
    for _ in range(count):
        head = queue.head()
        assert head is not None
        queue.serve(head[1])
        keys.append(head[1])
    return keys


class QueueAgainstList(RuleBasedStateMachine):
    """Whatever is pushed comes out once; within a tenant in order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue_of(*CLASSES)
        self.held: dict[int, tuple[str, str, int, float, str]] = {}
        self.given = 0
        self.now_s = 0.0

    @rule(
        line=st.sampled_from([c.name for c in CLASSES]),
        tenant=st.sampled_from("abc"),
        tokens=st.integers(0, 500),
        wait_s=st.sampled_from([0.5, 2.0, 50.0]),
        model=st.sampled_from(["", "m", "n"]),
    )
    def push(self, line: str, tenant: str, tokens: int, wait_s: float, model: str) -> None:
        of_class = {row[4] for row in self.held.values() if row[0] == line}
        assert self.queue.goes_behind(line, model) == bool(of_class & {"", model})
        self.given += 1
        self.queue.push(self.given, line, tenant, tokens, self.now_s + wait_s, model)
        self.held[self.given] = (line, tenant, tokens, self.now_s + wait_s, model)

    @rule(
        line=st.sampled_from([c.name for c in CLASSES]),
        tenants=st.sets(st.sampled_from("abc")),
        models=st.sets(st.sampled_from("mn")),
    )
    def serve_some_tenants_and_models(self, line: str, tenants: set[str], models: set[str]) -> None:
        """Out of turn, in order within each: those that others' turns would keep waiting."""
        key = self.queue.head_of_those(line, tenants.__contains__, models)
        of_class = {k: row for k, row in self.held.items() if row[0] == line}
        fit = {k: row for k, row in of_class.items() if row[1] in tenants and row[4] not in models}
        assert (key is None) == (not fit)
        assert all(self.queue.waits(line, t) == any(r[1] == t for r in of_class.values()) for t in tenants)
        others = any(row[4] not in models for row in of_class.values())
        assert self.queue.waits_for_others(line, models) == others
        if key is not None:
            _, tenant, *_ = self.held.pop(key)
            assert key == min(k for k, row in fit.items() if row[1] == tenant)
            self.queue.serve(key)

    @rule(blocked=st.sets(st.sampled_from([c.name for c in CLASSES])), settle=st.integers(0, 500))
    def serve(self, blocked: set[str], settle: int) -> None:
        head = self.queue.head(blocked)
        fit = {key: row for key, row in self.held.items() if row[0] not in blocked}
        assert (head is None) == (not fit)
        if head is not None:
            line, tenant, tokens, *_ = self.held.pop(head[1])
            assert line == head[0] not in blocked
            assert head[1] == min(key for key, row in fit.items() if row[:2] == (line, tenant))
            self.queue.serve(head[1])
            self.queue.settle(line, tenant, min(settle, tokens))

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 100))
    def leave(self, pick: int) -> None:
        key = sorted(self.held)[pick % len(self.held)]
        del self.held[key]
        self.queue.remove(key)

    @rule(gap_s=st.sampled_from([0.1, 1.0, 100.0]))
    def expire(self, gap_s: float) -> None:
        self.now_s += gap_s
        due = {key for key, row in self.held.items() if row[3] <= self.now_s}
        keys = self.queue.expired(self.now_s)
        assert set(keys) == due and len(keys) == len(due)
        for key in keys:
            self.queue.remove(key)
            del self.held[key]

    @invariant()
    def it_holds_what_was_pushed_and_not_yet_served(self) -> None:
        assert len(self.queue._waiting) == len(self.held)
        assert self.queue.next_expiry_s() == min((row[3] for row in self.held.values()), default=None)
        for line in ("chat", "code", "batch"):
            assert self.queue.lines[line].count == sum(row[0] == line for row in self.held.values())
            ahead, share = self.queue.tokens_ahead(line, "a")
            assert 0 <= ahead <= sum(row[2] for row in self.held.values()) and 0 < share <= 1


QueueAgainstList.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
test_the_queue_keeps_its_laws_whatever_happens = QueueAgainstList.TestCase


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100)), min_size=1, max_size=60))
def test_no_two_tenants_that_both_wait_are_further_apart_than_one_request_each(
    requests: list[tuple[str, int]],
) -> None:
    queue = queue_of()
    for key, (tenant, tokens) in enumerate(requests):
        queue.push(key, "", tenant, tokens, 1e9)
    left, got = Counter(tenant for tenant, _ in requests), Counter[str]()
    most = max(tokens for _, tokens in requests)
    for key in served(queue, len(requests)):
        tenant, tokens = requests[key]
        left[tenant] -= 1
        got[tenant] += tokens
        waiting = [got[name] for name in left if left[name]]
        assert not waiting or max(waiting) - min(waiting) <= 2 * most


def test_a_tenant_with_a_thousand_requests_delays_another_by_one() -> None:
    queue = queue_of()
    for key in range(1000):
        queue.push(key, "", "noisy", 100, 1e9)
    served(queue, 10)
    queue.push(5000, "", "quiet", 100, 1e9)
    assert 5000 in served(queue, 2)


def test_who_has_always_one_request_waiting_does_not_overtake_those_with_many() -> None:
    queue, got = queue_of(), Counter[str]()
    for key in range(300):
        queue.push(key, "", "steady", 10, 1e9)
    queue.push(1000, "", "clever", 10, 1e9)
    for turn in range(200):
        [key] = served(queue, 1)
        got["clever" if key >= 1000 else "steady"] += 1
        if key >= 1000:
            queue.push(1001 + turn, "", "clever", 10, 1e9)
    assert abs(got["clever"] - got["steady"]) <= 2


def test_classes_of_one_priority_share_by_their_weights() -> None:
    queue = queue_of(*CLASSES)
    for key in range(400):
        queue.push(key, "chat" if key % 2 else "code", f"tenant {key % 3}", 10, 1e9)
    chat = sum(key % 2 for key in served(queue, 200))
    assert chat == pytest.approx(150, abs=2)


def test_bulk_gets_its_least_share_while_others_wait_and_all_when_none_does() -> None:
    queue = queue_of(*CLASSES, lower_share=0.2)
    for key in range(1000):
        queue.push(key, "chat" if key % 2 else "batch", "a", 10, 1e9)
    assert sum(key % 2 == 0 for key in served(queue, 400)) == pytest.approx(0.2 * 400, abs=2)
    while queue.lines["chat"].count:
        served(queue, 1)
    rest = served(queue, len(queue._waiting))
    assert len(rest) > 300 and rest == list(range(rest[0], 1000, 2))


def test_a_class_that_comes_later_is_owed_nothing_for_the_time_when_it_asked_for_nothing() -> None:
    queue = queue_of(*CLASSES)
    for key in range(400):
        queue.push(key, "chat", "a", 10, 1e9)
    served(queue, 200)
    for key in range(400, 600):
        queue.push(key, "code", "a", 10, 1e9)
    assert sum(key >= 400 for key in served(queue, 40)) == pytest.approx(10, abs=1)


def test_bulk_that_could_not_be_served_saves_up_no_more_than_what_waits() -> None:
    queue = queue_of(*CLASSES, lower_share=0.2)
    for key in range(1000):
        queue.push(key, "chat", "a", 10, 1e9)
    for key in range(1000, 1003):
        queue.push(key, "batch", "a", 10, 1e9)
    for _ in range(500):
        head = queue.head({"batch"})
        assert head is not None
        queue.serve(head[1])
    for key in range(1003, 1100):
        queue.push(key, "batch", "a", 10, 1e9)
    assert sum(key >= 1000 for key in served(queue, 50)) == pytest.approx(3 + 0.2 * 50, abs=2)


def test_who_is_of_a_later_priority_may_count_on_what_earlier_ones_lately_left() -> None:
    queue, shares = queue_of(*CLASSES, lower_share=0.2), []
    assert queue.tokens_ahead("batch", "a") == (0.0, 1.0)
    for lately in (["chat"] * 600, ["batch"] * 600, ["chat", "batch"] * 300):
        for key, name in enumerate(lately):
            queue.push(key, name, "a", 10, 1e9)
            queue.serve(key)
        assert queue.tokens_ahead("chat", "a") == (0.0, 1.0)
        shares.append(queue.tokens_ahead("batch", "a")[1])
    assert shares == [0.2, pytest.approx(1.0, abs=0.06), pytest.approx(0.5, abs=0.06)]


def test_answers_that_were_shorter_than_charged_count_for_their_tenant() -> None:
    queue, got = queue_of(), Counter[str]()
    for key in range(600):
        tenant = "short" if key % 2 else "long"
        queue.push(key, "", tenant, 100, 1e9)
        if tenant == "short":
            queue.settle("", "short", 50)  # half of it was not used
    for key in served(queue, 150):
        got["short" if key % 2 else "long"] += 1
    assert got["short"] > 1.5 * got["long"]


def test_no_less_is_said_to_be_ahead_than_is_served_before_but_for_one_request_each() -> None:
    draw = random.Random(1)
    for _ in range(30):
        queue = queue_of()
        tenants = [f"tenant {number}" for number in range(draw.randint(1, 6))]
        for key in range(draw.randint(1, 80)):
            queue.push(key, "", draw.choice(tenants), 10, 1e9)
        served(queue, draw.randint(0, len(queue._waiting) // 2))
        tenant = draw.choice(tenants)
        said, share = queue.tokens_ahead("", tenant)
        assert said <= 10 * len(queue._waiting)
        queue.push(1000, "", tenant, 10, 1e9)
        before = served(queue, len(queue._waiting)).index(1000) * 10
        assert share == 1.0 and said >= before - 10 * len(tenants)


def test_among_equals_exactly_what_is_served_before_is_said_to_be_ahead() -> None:
    queue = queue_of()
    for key in range(60):
        queue.push(key, "", f"tenant {key % 3}", 10, 1e9)
    assert queue.tokens_ahead("", "tenant 0") == (600.0, 1.0)
    assert queue.tokens_ahead("", "new") == (0.0, 1.0)
    served(queue, 30)
    assert queue.tokens_ahead("", "tenant 0") == (300.0, 1.0)


def test_when_the_queue_is_full_only_a_tenant_with_less_than_its_share_displaces_another() -> None:
    queue = queue_of()
    for key in range(9):
        queue.push(key, "", "noisy", 10, 1e9)
    queue.push(9, "", "quiet", 10, 1e9)
    assert queue.longest_but("", "noisy") is None
    assert queue.longest_but("", "quiet") == 8
    assert queue.longest_but("", "new") == 8


def test_tenants_that_come_and_go_leave_nothing_behind() -> None:  # S8
    queue = FairQueue(QueueSettings(tenant_count_max=10), (ClassSettings(),))
    queue.push(0, "", "stays", 10, 1e9)
    for key in range(1, 3000):
        queue.push(key, "", f"tenant {key}", 10, float(key))
        if key % 3:
            queue.remove(key)
        elif len(queue._waiting) > 5:
            served(queue, 1)
    line = queue.lines[""]
    assert len(line.flows) <= 130 and len(line.heads) <= 130 and len(queue._ends) <= 80
    assert all(a <= b for a, b in pairwise(sorted(head[0] for head in line.heads)))


# --- in a gate ---

PLACES_PER_S = 16 / 1.1  # of the service: 16 places, each held for about 1.1 s
FAIR = GateSettings(
    classes=(ClassSettings("", ttft_slo_s=2.0),), admission=AdmissionSettings(), queue=QueueSettings()
)


def test_under_three_times_the_load_no_tenant_falls_below_half_of_its_share(
    service: Callable[..., Any], poisson: Callable[..., Any]
) -> None:
    rates = {"a": 2.4, "b": 0.2, "c": 0.2, "d": 0.2}  # of the capacity; a fair share is 0.25
    arrivals = [a for name, rate in rates.items() for a in poisson(rate * PLACES_PER_S, 60.0, name)]
    world = service(Gate(FAIR, Beliefs(0.0001, 0.01))).run(arrivals, 60.0)
    got = Counter[str]()
    for each in world.served:
        if each.arrived_s > 15.0:
            got[each.tenant] += each.tokens
    total = sum(got.values())
    assert all(got[name] / total > 0.5 * min(rate, 0.25) for name, rate in rates.items())
    assert min(got[name] / total for name in "bcd") > 0.8 * 0.2


@pytest.mark.parametrize(
    ("limits", "most_ratio"), [(LimitSettings(Rate(0.2 * PLACES_PER_S, burst_s=5.0)), 1.1), (None, 1.2)]
)
def test_a_noisy_tenant_moves_the_p95_of_others_by_less_than_a_tenth_and_unlimited_by_a_fifth(
    service: Callable[..., Any], poisson: Callable[..., Any], limits: LimitSettings | None, most_ratio: float
) -> None:
    settings = replace(FAIR, limits=limits)
    p95_s = []
    for noisy in (0.2, 3.0):
        rates = {"noisy": noisy, "b": 0.2, "c": 0.2, "d": 0.2}
        arrivals = [a for name, rate in rates.items() for a in poisson(rate * PLACES_PER_S, 100.0, name)]
        world = service(Gate(settings, Beliefs(0.0001, 0.01))).run(arrivals, 100.0)
        e2e_s = sorted(e.e2e_s for e in world.served if e.tenant != "noisy" and e.arrived_s > 15.0)
        p95_s.append(e2e_s[int(0.95 * len(e2e_s))])
    assert p95_s[1] < most_ratio * p95_s[0]


def test_first_come_first_served_lets_a_noisy_tenant_take_all(
    service: Callable[..., Any], poisson: Callable[..., Any]
) -> None:
    """So that the tests above can fail: without tenants' names the queue knows one flow only."""
    arrivals = [a for rate in (2.4, 0.2) for a in poisson(rate * PLACES_PER_S, 40.0, "", seed=int(10 * rate))]
    served = service(Gate(FAIR, Beliefs(0.0001, 0.01))).run(arrivals, 40.0).served
    quiet_s = {at_s for at_s, _, _ in arrivals[-int(0.1 * len(arrivals)) :]}
    assert sum(each.arrived_s in quiet_s for each in served) < 0.6 * len(quiet_s)
