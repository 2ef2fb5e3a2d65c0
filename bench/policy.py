"""Time of one request in the gate by fleet size and by what is on, beside a plain loop in the same run.

Then the decision about an arrival alone, of 256 replicas with everything on and prompts of 100k tokens, by
each rule of routing: all of `Gate.handle`, and what a driver asks after it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from twofold.policy.gate.events import (
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    ResponseStarted,
    Send,
    to_line,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    CanarySettings,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    ForecastSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    OutlierSettings,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    RolloutSettings,
    Routing,
    RoutingSettings,
    ScalingSettings,
    ZoneSettings,
)
from twofold.policy.machine import Entry

FLEETS = (1, 8, 64, 256)
REQUESTS = 60
IN_FLIGHT_PER_REPLICA = 8
BELIEFS = Beliefs(0.0001, 0.01)
NOTHING = GateSettings()
PATH = GateSettings(  # of a request: all but hedges
    classes=(
        ClassSettings("chat", ttft_slo_s=5.0, e2e_slo_s=60.0),
        ClassSettings("bulk", ClassKind.BULK, priority=1),
    ),
    limits=LimitSettings(Rate(1e6, 1e9), classes=(("chat", Rate(1e7)),)),
    admission=AdmissionSettings(),
    queue=QueueSettings(),
    degradation=DegradationSettings(),
    retry_budget=RetryBudgetSettings(),
)
HEDGED = replace(PATH, hedge=HedgeSettings())
EVERYTHING = replace(
    HEDGED,
    outliers=OutlierSettings(),
    zones=ZoneSettings(),
    scaling=ScalingSettings(forecast=ForecastSettings()),
    canary=CanarySettings(),
    rollout=RolloutSettings(),
)
DECISIONS, DECISION_FLEET, DECISION_LIMIT_US = 400, 256, 200.0
PROMPT_TOKENS, BLOCK_TOKENS = 100_000, 512
SESSIONS, OWN_BLOCKS, ZONES = 64, 40, ("a", "b", "c")


def best_us(run: Callable[[], object], count: int = REQUESTS, repeats: int = 40) -> float:
    """Microseconds of this process per call, of the fastest of a few rounds of `count` calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(count):
            run()
        times.append(time.process_time() - start)
    return min(times) / count * 1e6


def busy_gate(replica_count: int, settings: GateSettings = NOTHING) -> Gate:
    """A gate whose replicas are busy and have room."""
    gate = Gate(settings, BELIEFS)
    for number in range(replica_count):
        gate.handle(ReplicaAdded(f"replica-{number}", 1_000_000), 0.0)
    for number in range(replica_count * IN_FLIGHT_PER_REPLICA):
        gate.handle(RequestArrived(100 + number, 50, "tenant", "chat"), 0.0)
    return gate


def request_of(gate: Gate) -> Callable[[], None]:
    """One request from its arrival to its end, and what a driver asks after each event."""
    arrival, now_s = RequestArrived(100, 50, "tenant", "chat"), 1.0

    def whole() -> None:
        nonlocal now_s
        now_s += 0.01
        request_id = gate.handle(arrival, now_s)[-1].request_id  # type: ignore[union-attr]
        gate.wake_at_s()
        gate.handle(ResponseStarted(request_id), now_s)
        gate.wake_at_s()
        gate.handle(ResponseEnded(request_id, 50), now_s)
        gate.wake_at_s()

    return whole


@dataclass(frozen=True, slots=True)
class Decisions:
    """CPU time of this process for one arrival each, and how many were sent on."""

    us_p50: float
    us_p95: float
    sent_count: int


def long_arrivals() -> Iterator[RequestArrived]:
    """Of 64 sessions of eight tenants; those of one session share most blocks of their prompts."""
    shared_count = PROMPT_TOKENS // BLOCK_TOKENS - OWN_BLOCKS
    for number in range(DECISIONS):
        session = number % SESSIONS
        blocks = [session * 1000 + block for block in range(shared_count)]
        blocks += [10**6 + number * OWN_BLOCKS + block for block in range(OWN_BLOCKS)]
        yield RequestArrived(
            PROMPT_TOKENS,
            200,
            f"tenant-{number % 8}",
            "chat",
            session_id=f"session-{session}",
            prefix_blocks=tuple(blocks),
            zone=ZONES[number % 2],
        )


def decided(routing: Routing, replica_count: int = DECISION_FLEET) -> Decisions:
    """How long one arrival takes in a gate with everything on, whose replicas fill up with such prompts."""
    routes = RoutingSettings(prefix_block_tokens=BLOCK_TOKENS)
    gate = Gate(replace(EVERYTHING, routing=routing, routes=routes), BELIEFS)
    for number in range(replica_count):
        gate.handle(ReplicaAdded(f"replica-{number:03}", 64, zone=ZONES[number % len(ZONES)]), 0.0)
    took_us, now_s, sent_count = list[float](), 1.0, 0
    for arrival in long_arrivals():
        now_s += 0.01
        began_s = time.process_time()
        effects = gate.handle(arrival, now_s)
        gate.wake_at_s()
        took_us.append((time.process_time() - began_s) * 1e6)
        for each in effects:
            if isinstance(each, Send):
                sent_count += 1
                gate.handle(ResponseStarted(each.request_id), now_s)
    return Decisions(median(took_us), sorted(took_us)[int(0.95 * len(took_us))], sent_count)


def plain_turns() -> None:
    """What any loop of Python that keeps something per request does: three entries made and taken away."""
    kept: dict[int, list[int]] = {}
    for number in range(3):
        kept[number] = [number]
        kept.pop(number)


def main() -> None:
    """Print microseconds per call, and their ratio to the baseline, for each fleet."""
    print(f"{'µs per call (× plain)':26}" + "".join(f"{count:>9} replicas" for count in FLEETS))
    rows: dict[str, list[float]] = {}
    for replica_count in FLEETS:
        arrival = RequestArrived(100, 50, "tenant", "chat")
        entry = Entry(1.0, arrival, tuple(busy_gate(replica_count).handle(arrival, 1.0)))
        timed: dict[str, Callable[[], object]] = {
            "plain turns": plain_turns,
            "request, nothing on": request_of(busy_gate(replica_count)),
            "request, its path on": request_of(busy_gate(replica_count, PATH)),
            "request, and hedges": request_of(busy_gate(replica_count, HEDGED)),
            "entry to line": lambda e=entry: to_line(e),  # type: ignore[misc]
        }
        for name, run in timed.items():
            rows.setdefault(name, []).append(best_us(run))
    for name, each_us in rows.items():
        cells = (
            f"{us:9.2f} ({us / base_us:5.0f}×)"
            for us, base_us in zip(each_us, rows["plain turns"], strict=True)
        )
        print(f"{name:26}" + "".join(cells))
    _print_decisions()


def _print_decisions() -> None:
    print(
        f"\na decision of {DECISION_FLEET} replicas, prompts of {PROMPT_TOKENS:,} tokens, everything on; "
        f"wanted: {DECISION_LIMIT_US:.0f} µs"
    )
    print(f"{'µs of CPU':26}{'p50':>9}{'p95':>9}")
    for routing in Routing:
        found = decided(routing)
        missed = "" if found.us_p95 <= DECISION_LIMIT_US else "  MISSED"
        print(f"{routing.value:26}{found.us_p50:>9.1f}{found.us_p95:>9.1f}{missed}")
