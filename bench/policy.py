"""Time of one event in the gate by fleet size, beside a plain `min` over as many numbers in the same run."""

import time
from collections.abc import Callable

from twofold.policy import (
    Beliefs,
    Entry,
    FleetView,
    Gate,
    GateSettings,
    ReplicaAdded,
    Request,
    RequestArrived,
    ResponseEnded,
    ResponseStarted,
    to_line,
)
from twofold.policy.fleet_view import Replica
from twofold.policy.routing import least_work

FLEETS = (1, 8, 64)
REQUESTS = 300
IN_FLIGHT_PER_REPLICA = 8
BELIEFS = Beliefs(0.0001, 0.01)


def best_us(run: Callable[[], object], count: int = REQUESTS, repeats: int = 40) -> float:
    """Microseconds per call of the fastest of a few rounds of `count` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            run()
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6


def busy_gate(replica_count: int) -> Gate:
    """A gate whose replicas are busy and have room."""
    gate = Gate(GateSettings(), BELIEFS)
    for number in range(replica_count):
        gate.handle(ReplicaAdded(f"replica-{number}", 1_000_000), 0.0)
    for number in range(replica_count * IN_FLIGHT_PER_REPLICA):
        gate.handle(RequestArrived(100 + number, 50), 0.0)
    return gate


def by_min(view: FleetView, request: Request, now_s: float) -> Replica | None:  # noqa: ARG001 (one shape)
    """What `least_work` was first, for new requests: shorter, and slower."""
    fit = [replica for replica in view.replicas.values() if replica.healthy and replica.has_room]
    return min(fit, key=lambda replica: (replica.work_s(view.beliefs), replica.replica_id), default=None)


def main() -> None:
    """Print microseconds per call, and their ratio to the baseline, for each fleet."""
    print(f"{'µs per call (× min)':26}" + "".join(f"{count:>9} replicas" for count in FLEETS))
    rows: dict[str, list[float]] = {}
    for replica_count in FLEETS:
        gate, numbers = busy_gate(replica_count), [float(number) for number in range(replica_count)]
        request, arrival = Request(1, 100, 50), RequestArrived(100, 50)

        def whole(gate: Gate = gate, arrival: RequestArrived = arrival) -> None:
            request_id = gate.handle(arrival, 1.0)[0].request_id  # type: ignore[union-attr]
            gate.handle(ResponseStarted(request_id), 1.0)
            gate.handle(ResponseEnded(request_id, 50), 1.0)

        entry = Entry(1.0, arrival, tuple(busy_gate(replica_count).handle(arrival, 1.0)))
        fit = list(gate.view.replicas.values())
        timed: dict[str, Callable[[], object]] = {
            "min of plain numbers": lambda numbers=numbers: min(numbers),  # type: ignore[misc]
            "least_work": lambda f=fit: least_work(f, BELIEFS),  # type: ignore[misc]
            "… as min with a key": lambda g=gate, r=request: by_min(g.view, r, 1.0),  # type: ignore[misc]
            "arrive, start, end": whole,
            "arrive": lambda g=gate, a=arrival: g.handle(a, 1.0),  # type: ignore[misc]
            "entry to line": lambda e=entry: to_line(e),  # type: ignore[misc]
        }
        for name, run in timed.items():
            rows.setdefault(name, []).append(best_us(run))
    for name, each_us in rows.items():
        cells = (
            f"{us:9.2f} ({us / base_us:5.0f}×)"
            for us, base_us in zip(each_us, rows["min of plain numbers"], strict=True)
        )
        print(f"{name:26}" + "".join(cells))
