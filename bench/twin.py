"""Time of one request in the serving world by part, beside a plain heap of as many events in one run."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any

from bench.twin_engine import step_table
from twofold.policy.gate.events import Effect, Event
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    CanarySettings,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    OutlierSettings,
    PoolScaling,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    RolloutSettings,
    Routing,
    RoutingSettings,
    ScalingSettings,
    ZoneSettings,
)
from twofold.policy.machine import Machine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, EngineWork, Output
from twofold.twin.serving.fault_types import Release
from twofold.twin.serving.fleet import FleetRun
from twofold.twin.serving.fleet_types import Arrival, ClassModel, FleetWorld, ReplicaGroup, ReplicaModel
from twofold.twin.serving.traffic import Lengths, TrafficModel, generate

REQUESTS = 20_000
REPLICAS = 8
RATE_PER_S = 96.0  # of the whole fleet
EVENTS = 3  # of a request that a world cannot do without: it comes, its first token and its last leave

WHOLE = GateSettings(
    probe_every_s=1.0,
    routing=Routing.PREFIX,
    routes=RoutingSettings(prefix_block_tokens=64),
    classes=(ClassSettings("chat", ttft_slo_s=2.0, e2e_slo_s=60.0),),
    limits=LimitSettings(tenant=Rate(requests_per_s=2.0 * RATE_PER_S)),
    admission=AdmissionSettings(),
    queue=QueueSettings(),
    degradation=DegradationSettings(),
    retry_budget=RetryBudgetSettings(),
    hedge=HedgeSettings(),
    outliers=OutlierSettings(),
    zones=ZoneSettings(),
    scaling=ScalingSettings((PoolScaling(max_count=2 * REPLICAS, in_flight_limit_count=256),)),
    canary=CanarySettings(),
    rollout=RolloutSettings(),
)


@dataclass(slots=True)
class HeardGate:
    """A gate that remembers what it was told and when it was asked, to be told and asked again alone."""

    gate: Machine[Event, Effect]
    calls: list[tuple[Event | None, float]] = field(default_factory=list)

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        self.calls.append((event, now_s))
        return self.gate.handle(event, now_s)

    def wake_at_s(self) -> float | None:
        self.calls.append((None, 0.0))
        return self.gate.wake_at_s()


class HeardEngine:
    """An engine that remembers what was asked of it."""

    def __init__(self, log: list[list[tuple[Any, float]]], *given: Any) -> None:
        self.engine = Engine(*given)
        self.calls: list[tuple[Any, float]] = []
        log.append(self.calls)

    def submit(self, work: EngineWork, now_s: float) -> None:
        self.calls.append((work, now_s))
        self.engine.submit(work, now_s)

    def advance(self, now_s: float) -> list[Output]:
        self.calls.append((None, now_s))
        return self.engine.advance(now_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def world(new_engine: Callable[[], Engine], settings: GateSettings) -> FleetWorld:
    """Eight replicas of an 8B model, busy and not overloaded."""
    model = ReplicaModel(new_engine, in_flight_limit=256)
    return FleetWorld(
        models={("", ""): model},
        replicas=(ReplicaGroup(REPLICAS),),
        gate=settings,
        beliefs=Beliefs(2e-5, 2e-4),
        classes=(ClassModel("chat", ttft_s=1.0, tpot_s=0.05),),
        prefix_block_tokens=64,
        faults=(Release(20.0, "next"),),
        warm_up_s=10.0,
    )


def arrivals(count: int = REQUESTS) -> list[Arrival]:
    """Prompts around 1,000 tokens of which a third is shared, answers around 200."""
    model = TrafficModel(
        RATE_PER_S, Lengths(1000.0, 2500.0), Lengths(200.0, 500.0), "chat", shared_prefix_fraction=0.3,
        block_tokens=64, prompt_count=16,
    )  # fmt: skip
    return list(generate(model, 1, count / RATE_PER_S))


def replay_gate(calls: Iterable[tuple[Event | None, float]], settings: GateSettings) -> None:
    """The gate alone."""
    gate = Gate(settings, Beliefs(2e-5, 2e-4))
    for event, now_s in calls:
        if event is None:
            gate.wake_at_s()
        else:
            gate.handle(event, now_s)


def replay_engines(logs: list[list[tuple[Any, float]]], given: tuple[Any, ...]) -> None:
    """The engines alone, asked when the next thing happens as the world asks."""
    for calls in logs:
        engine = Engine(*given)
        for work, now_s in calls:
            if work is None:
                engine.advance(now_s)
            else:
                engine.submit(work, now_s)
            engine.next_at_s()


def plain_heap() -> None:
    """Every event of every request goes through a heap of 64."""
    heap: list[tuple[float, int]] = [(0.0, -number) for number in range(64)]
    for number in range(REQUESTS * EVENTS):
        heappush(heap, (number * 0.001, number))
        heappop(heap)


def best_us(run: Callable[[], object], repeats: int = 2) -> float:
    """Microseconds per request of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) / REQUESTS * 1e6


def split(name: str, settings: GateSettings, base_us: float) -> None:
    """Print one line: the whole, its parts, and their ratios to the heap."""
    table, chunk = step_table()
    given = (table, EngineSettings(chunk_tokens=chunk, prefix_cache_tokens=100_000))
    sent = arrivals()
    logs: list[list[tuple[Any, float]]] = []
    heard = FleetRun(world(partial(HeardEngine, logs, *given), settings))
    gate = HeardGate(heard.gateway.gate)
    heard.gateway.gate = gate
    result = heard.run(iter(sent))
    whole = world(partial(Engine, *given), settings)
    whole_us = best_us(lambda: FleetRun(whole).run(iter(sent)))
    gate_us = best_us(lambda: replay_gate(gate.calls, settings))
    engine_us = best_us(lambda: replay_engines(logs, given))
    rest_us = whole_us - gate_us - engine_us
    parts = "".join(f"{us:9.1f}{us / base_us:7.1f}" for us in (whole_us, gate_us, engine_us, rest_us))
    per = result.figures.event_count / result.figures.arrived_count
    print(f"{name:12}{parts}{per:9.1f}{result.figures.decision_count / result.figures.arrived_count:11.2f}")


def main() -> None:
    """Print microseconds per request by part, and their ratio to the heap, for a plain and a full gate."""
    base_us = best_us(plain_heap)
    print(f"a heap of {EVENTS} events a request takes {base_us:.2f} µs; {REQUESTS:,} requests")
    titles = ("whole", "gate", "engine", "world")
    print(f"{'µs, x heap':12}" + "".join(f"{title:>9}{'':7}" for title in titles) + "   events  decisions")
    split("plain gate", GateSettings(), base_us)
    split("whole gate", WHOLE, base_us)
