"""A trivial replica for tests of the world: a number of places, a fixed time to read and per token."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pytest

from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.twin.serving.engine_types import EngineSpent, EngineWork, Finished, FirstToken, Output
from twofold.twin.serving.fleet_types import Arrival, FleetWorld, ReplicaGroup, ReplicaModel, replica_order


@dataclass(slots=True)
class FixedEngine:
    """First come, first served at `places` places: `first_s` to the first token, then `token_s` each."""

    first_s: float = 0.1
    token_s: float = 0.01
    places: int = 4
    factor: float = 1.0
    busy_s: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    waiting: deque[EngineWork] = field(default_factory=deque)
    running: dict[int, tuple[float, float, int]] = field(default_factory=dict)  # begin, end, tokens
    begun: set[int] = field(default_factory=set)
    out: deque[Output] = field(default_factory=deque)  # not told yet

    def submit(self, work: EngineWork, now_s: float) -> None:
        self._reach(now_s)
        self.waiting.append(work)
        self._fill(now_s)

    def cancel(self, key: int, now_s: float) -> None:
        self._reach(now_s)
        self.waiting = deque(work for work in self.waiting if work.key != key)
        self.running.pop(key, None)
        self.begun.discard(key)
        self._fill(now_s)

    def advance(self, now_s: float) -> list[Output]:
        self._reach(now_s)
        found: list[Output] = []
        while self.out and self.out[0].at_s <= now_s:
            found.append(self.out.popleft())
        return found

    def next_at_s(self) -> float | None:
        return self.out[0].at_s if self.out else self._next_s()

    def _next_s(self) -> float | None:
        times = [e if key in self.begun else b for key, (b, e, _) in self.running.items()]
        return min(times, default=None)

    def _reach(self, now_s: float) -> None:
        while (at_s := self._next_s()) is not None and at_s <= now_s:
            for key, (begins_s, ends_s, tokens) in list(self.running.items()):
                if begins_s == at_s and key not in self.begun:
                    self.begun.add(key)
                    self.out.append(FirstToken(key, at_s))
                if ends_s == at_s:
                    self.out.append(Finished(key, at_s, tokens))
                    del self.running[key]
                    self.begun.discard(key)
            self._fill(at_s)

    def set_speed(self, factor: float, now_s: float) -> None:
        """For what begins from now on."""
        del now_s
        self.factor = factor

    def report(self) -> tuple[int, int, float]:
        return len(self.running), len(self.waiting), 0.5 * len(self.running) / self.places

    def spent(self) -> EngineSpent:
        return EngineSpent(self.busy_s, self.prefill_tokens, self.decode_tokens)

    def _fill(self, now_s: float) -> None:
        while self.waiting and len(self.running) < self.places:
            work = self.waiting.popleft()
            begins_s = now_s + self.first_s / self.factor
            ends_s = begins_s + (work.output_tokens - 1) * self.token_s / self.factor
            self.running[work.key] = (begins_s, ends_s, work.output_tokens)
            self.busy_s += (ends_s - now_s) / self.places
            self.prefill_tokens += work.input_tokens
            self.decode_tokens += work.output_tokens


class MakesWorld(Protocol):
    """`_fixed_world`, as a fixture."""

    def __call__(self, count: int = 2, zones: tuple[str, ...] = ("",), **changes: object) -> FleetWorld: ...


class MakesArrivals(Protocol):
    """`_steady`, as a fixture."""

    def __call__(
        self, count: int, every_s: float, output_tokens: int = 11, **changes: object
    ) -> list[Arrival]: ...


@pytest.fixture(scope="session")
def fixed_world() -> MakesWorld:
    return _fixed_world


@pytest.fixture(scope="session")
def steady() -> MakesArrivals:
    return _steady


def _fixed_world(count: int = 2, zones: tuple[str, ...] = ("",), **changes: object) -> FleetWorld:
    """Replicas of one kind, spread over zones; fields of the world may be changed."""
    engine = {k: changes.pop(k) for k in ("first_s", "token_s", "places") if k in changes}
    names = {"start_s": "warm_up_s", "weight_bytes": "weight_bytes", "in_flight_limit": "in_flight_limit"}
    model = {names[k]: changes.pop(k) for k in names if k in changes}
    replica = ReplicaModel(partial(FixedEngine, **engine), **{"in_flight_limit": 64, **model})  # type: ignore[arg-type]
    groups = tuple(ReplicaGroup(count // len(zones), replica_order(zone)) for zone in zones)
    given = {"gate": GateSettings(), "beliefs": Beliefs(0.0001, 0.01)} | changes
    return FleetWorld(models={("", ""): replica}, replicas=groups, **given)  # type: ignore[arg-type]


def _steady(count: int, every_s: float, output_tokens: int = 11, **changes: object) -> list[Arrival]:
    """Requests at equal distances, from the first distance on."""
    return [Arrival((n + 1) * every_s, 100, output_tokens, **changes) for n in range(count)]  # type: ignore[arg-type]
