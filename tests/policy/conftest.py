"""A small world around a gate: clients, replicas that die, hang and come back. No threads, no waiting.

`python tests/policy/conftest.py` writes the recorded day that test_replay.py replays.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pytest

from twofold.policy.gate.events import (
    Cause,
    ClientLeft,
    Event,
    GiveUp,
    Hold,
    Probe,
    ProbeAnswered,
    ProbeFailed,
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

LAG_S = 0.002  # of the network
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Happens:
    """Something that befalls a replica: add, remove, die, hang, recover."""

    at_s: float
    what: str
    replica_id: str


@dataclass(slots=True)
class World:
    """Runs a gate against replicas that answer one token per `token_s`. Mutable: its state is the run."""

    gate: Gate
    seed: int
    limit: int = 4
    token_s: float = 0.02
    entries: list[Entry] = field(default_factory=list)
    random: Random = field(init=False)
    dead: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)
    attempts: dict[int, tuple[str, int]] = field(default_factory=dict)  # request: where, attempt
    waiting: list[tuple[float, int, object, object]] = field(default_factory=list)
    order: count = field(default_factory=count)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def run(self, happenings: list[Happens], arrivals_s: list[float], end_s: float) -> list[Entry]:
        """All entries up to `end_s`; what is in flight then is left so."""
        for happening in happenings:
            self.later(happening.at_s, happening)
        for at_s in arrivals_s:
            event = RequestArrived(self.random.randint(1, 400), self.random.randint(1, 60))
            self.later(at_s, event)
        while True:
            wake_s = self.gate.wake_at_s()
            next_s = self.waiting[0][0] if self.waiting else math.inf
            if min(next_s, math.inf if wake_s is None else wake_s) > end_s:
                return self.entries
            if wake_s is not None and wake_s <= next_s:
                self.tell(Woke(), wake_s)
                continue
            at_s, _, what, attempt = heapq.heappop(self.waiting)
            if isinstance(what, Happens):
                self.befall(what)
            elif attempt is None or self.attempts.get(what.request_id) == attempt:
                self.tell(what, at_s)

    def later(self, at_s: float, what: Event | Happens, attempt: tuple[str, int] | None = None) -> None:
        """Schedule; what belongs to an attempt that is over by then does not happen."""
        heapq.heappush(self.waiting, (at_s, next(self.order), what, attempt))

    def tell(self, event: Event, now_s: float) -> None:
        """Give the gate an event, keep the entry, and carry its effects out."""
        if isinstance(event, ResponseEnded | ResponseFailed | ClientLeft):
            self.attempts.pop(event.request_id, None)
        effects = self.gate.handle(event, now_s)
        self.entries.append(Entry(now_s, event, tuple(effects)))
        for effect in effects:
            if isinstance(effect, Send):
                self.send(effect, event, now_s)
            elif isinstance(effect, Probe) and effect.replica_id in self.dead:
                self.later(now_s + LAG_S, ProbeFailed(effect.replica_id, effect.number, Cause.REFUSED))
            elif isinstance(effect, Probe):  # the kernel of a hung process still accepts
                self.later(now_s + LAG_S, ProbeAnswered(effect.replica_id, effect.number))
            elif isinstance(effect, GiveUp):
                self.attempts.pop(effect.request_id, None)

    def send(self, effect: Send, event: Event, now_s: float) -> None:
        """Decide what will come of an attempt."""
        attempt = self.attempts[effect.request_id] = (effect.replica_id, effect.attempt)
        if effect.replica_id in self.dead:
            self.later(now_s + LAG_S, ResponseFailed(effect.request_id, Cause.REFUSED), attempt)
        elif effect.replica_id in self.hung:
            self.later(now_s + TIMEOUT_S, ResponseFailed(effect.request_id, Cause.TIMEOUT), attempt)
        else:
            busy = sum(where == effect.replica_id for where, _ in self.attempts.values())
            output_tokens = self.random.randint(1, 60)
            start_s = now_s + LAG_S + 0.02 * busy
            end_s = start_s + output_tokens * self.token_s
            self.later(start_s, ResponseStarted(effect.request_id), attempt)
            self.later(end_s, ResponseEnded(effect.request_id, output_tokens), attempt)
            if isinstance(event, RequestArrived) and self.random.random() < 0.05:
                self.later(now_s + self.random.random(), ClientLeft(effect.request_id), attempt)
                self.later(end_s + 1.0, ResponseEnded(effect.request_id, output_tokens))  # comes late

    def befall(self, happening: Happens) -> None:
        name = happening.replica_id
        match happening.what:
            case "add":
                self.tell(ReplicaAdded(name, self.limit), happening.at_s)
            case "remove":
                self.tell(ReplicaRemoved(name), happening.at_s)
            case "die":
                self.dead.add(name)
                for request_id, attempt in list(self.attempts.items()):
                    if attempt[0] == name:
                        self.later(happening.at_s + LAG_S, ResponseFailed(request_id, Cause.BROKEN), attempt)
            case "hang":
                self.hung.add(name)
            case "recover":
                self.dead.discard(name)
                self.hung.discard(name)


@pytest.fixture(scope="session")
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture(scope="session")
def happens() -> Callable[..., Happens]:
    return Happens


@dataclass(frozen=True, slots=True)
class Served:
    """One answer of `Service`, from its arrival."""

    arrived_s: float
    tenant: str
    class_name: str
    tokens: int
    ttft_s: float
    e2e_s: float


@dataclass(slots=True)
class Service:
    """Places that serve one request each, at fixed seconds per token: a queue whose capacity is known.

    Mutable: `served` and `effects` are what came of it.
    """

    gate: Gate
    place_count: int = 16
    input_token_s: float = 0.0001
    output_token_s: float = 0.01
    served: list[Served] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)
    _heap: list[tuple[float, int, Event]] = field(default_factory=list)
    _asked: dict[int, tuple[float, RequestArrived, int]] = field(default_factory=dict)
    _begun_s: dict[int, float] = field(default_factory=dict)
    _order: count = field(default_factory=count)

    def run(self, arrivals: list[tuple[float, RequestArrived, int]], end_s: float) -> "Service":
        """Arrivals are times, events, and true output tokens."""
        for number in range(2):
            self.tell(ReplicaAdded(f"r{number}", self.place_count // 2), 0.0)
        for at_s, event, output_tokens in arrivals:
            heapq.heappush(self._heap, (at_s, next(self._order), (event, output_tokens)))
        now_s = 0.0
        while now_s < end_s:
            wake_s = self.gate.wake_at_s()
            assert wake_s is not None
            if not self._heap or wake_s <= self._heap[0][0]:
                now_s = wake_s
                self.tell(Woke(), now_s)
                continue
            now_s, _, what = heapq.heappop(self._heap)
            if isinstance(what, tuple):
                self.tell(what[0], now_s, what[1])
            else:
                self.tell(what, now_s)
        return self

    def tell(self, event: Event, now_s: float, output_tokens: int = 0) -> None:
        if isinstance(event, ResponseStarted):
            self._begun_s[event.request_id] = now_s
        elif isinstance(event, ResponseEnded):
            at_s, asked, _ = self._asked.pop(event.request_id)
            ttft_s = self._begun_s.pop(event.request_id) - at_s
            tokens = asked.input_tokens + event.output_tokens
            self.served.append(Served(at_s, asked.tenant, asked.class_name, tokens, ttft_s, now_s - at_s))
        for effect in self.gate.handle(event, now_s):
            self.effects.append(effect)
            if isinstance(event, RequestArrived) and isinstance(effect, Send | Hold):
                self._asked[effect.request_id] = (now_s, event, output_tokens)
            if isinstance(effect, Send):
                _, asked, wanted_tokens = self._asked[effect.request_id]
                most_tokens = effect.output_limit_tokens or asked.output_limit_tokens
                written_tokens = min(wanted_tokens, most_tokens)
                start_s = now_s + asked.input_tokens * self.input_token_s
                end_s = start_s + written_tokens * self.output_token_s
                started, ended = (
                    ResponseStarted(effect.request_id),
                    ResponseEnded(effect.request_id, written_tokens),
                )
                heapq.heappush(self._heap, (start_s, next(self._order), started))
                heapq.heappush(self._heap, (end_s, next(self._order), ended))


def poisson_of(
    rate_per_s: float, until_s: float, tenant: str = "", class_name: str = "", seed: int = 1
) -> list[tuple[float, RequestArrived, int]]:
    """Requests of 100 to 2,000 input tokens and exponential answers of 100 tokens on average, at most 400."""
    draw, at_s, arrivals = Random(f"{seed} {tenant} {class_name}"), 0.0, []
    while (at_s := at_s + draw.expovariate(rate_per_s)) < until_s:
        output_tokens = min(400, 1 + int(draw.expovariate(0.01)))
        event = RequestArrived(draw.randint(100, 2000), 400, tenant, class_name)
        arrivals.append((at_s, event, output_tokens))
    return arrivals


@pytest.fixture(scope="session")
def service() -> Callable[..., Service]:
    return Service


@pytest.fixture(scope="session")
def poisson() -> Callable[..., list[tuple[float, RequestArrived, int]]]:
    return poisson_of


DAY_SETTINGS = GateSettings(probe_every_s=1.0, open_s=0.5)
DAY_BELIEFS = Beliefs(input_token_s=0.0001, output_token_s=0.02)
DAY_LINES = Path(__file__).with_name("day.jsonl")


def a_day() -> list[str]:
    """A day at a second per hour: busy at noon, a death, a hang, a drained replica, two late clients."""
    random = Random(4)
    arrivals_s, at_s = [], 0.0
    while at_s < 24.0:
        rate_per_s = 2.0 + 14.0 * math.exp(-((at_s - 12.0) ** 2) / 8.0)
        at_s += random.expovariate(rate_per_s)
        arrivals_s.append(at_s)
    script = [Happens(0.5, "add", "a"), Happens(0.5, "add", "b"), Happens(0.6, "add", "c")]
    script += [Happens(7.8, "die", "b"), Happens(10.2, "recover", "b")]
    script += [Happens(14.0, "hang", "c"), Happens(16.0, "recover", "c")]
    script += [Happens(18.0, "add", "d"), Happens(19.0, "remove", "a"), Happens(21.0, "add", "a")]
    entries = World(Gate(DAY_SETTINGS, DAY_BELIEFS), seed=5).run(script, arrivals_s, end_s=26.0)
    return [to_line(entry) for entry in entries]


@pytest.fixture
def day_gate() -> Gate:
    """Fresh, as the recorded day's was."""
    return Gate(DAY_SETTINGS, DAY_BELIEFS)


@pytest.fixture(scope="session")
def day_lines() -> list[str]:
    return DAY_LINES.read_text("utf-8").splitlines()


if __name__ == "__main__":
    DAY_LINES.write_text("\n".join(a_day()) + "\n", "utf-8")
