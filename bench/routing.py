"""Time of one routing decision by rule and fleet size, beside a plain `min` over as many numbers.

`python -m bench.routing`. The fleet is busy, with room; prompts have 24 blocks, and 200 (100k tokens) where
the fleet has 256 replicas, of which other prompts share some, as in traces of chats and agents. `placed` is
what the rule notes of a request that was sent.
"""

from collections.abc import Callable

from bench.policy import best_us
from twofold.policy.gate.events import ReplicaAdded, RequestArrived
from twofold.policy.gate.fleet_view import FleetView, Request
from twofold.policy.gate.routing import Router
from twofold.policy.gate.settings import Beliefs, GateSettings, Routing, RoutingSettings

FLEETS = {16: 24, 64: 24, 256: 200}  # replicas -> blocks of a prompt
REQUESTS = 256
ZONES = ("a", "b", "c")


def busy_fleet(replica_count: int) -> FleetView:
    """Replicas in three zones, each with eight requests of different sizes."""
    view = FleetView(GateSettings(), Beliefs(0.0001, 0.01))
    for number in range(replica_count):
        view.add_replica(ReplicaAdded(f"replica-{number:03}", 1_000_000, zone=ZONES[number % len(ZONES)]))
    for number in range(8 * replica_count):
        replica = view.replicas[f"replica-{number % replica_count:03}"]
        view.place(
            Request(number, RequestArrived(100 + number * 7 % 1000, 50 + number * 3 % 100)), replica, 0.0
        )
    return view


def requests_of(zone: str, block_count: int) -> list[Request]:
    """Requests of 64 sessions; those of one share the first blocks of their prompts."""
    made = []
    for number in range(REQUESTS):
        session = number % 64
        shared = tuple(session * 1000 + block for block in range(block_count - 4))
        own = tuple(10**6 + number * 10 + block for block in range(4))
        made.append(
            Request(
                number,
                RequestArrived(
                    block_count * 512, 200, session_id=f"s{session}", prefix_blocks=shared + own, zone=zone
                ),
            )
        )
    return made


def main() -> None:
    """Print microseconds per call, and their ratio to the baseline, for each fleet."""
    print(f"{'µs per call (× min)':26}" + "".join(f"{count:>12} replicas" for count in FLEETS))
    rows: dict[str, list[tuple[float, float]]] = {}
    for replica_count, block_count in FLEETS.items():
        numbers = [float(number) for number in range(replica_count)]
        base_us = best_us(lambda numbers=numbers: min(numbers))  # type: ignore[misc]
        view = busy_fleet(replica_count)
        for rule in Routing:
            for zone in ("", "a"):
                for name, run in timed(view, rule, zone, block_count):
                    rows.setdefault(name, []).append((best_us(run, REQUESTS, 20), base_us))
    for name, each in rows.items():
        print(f"{name:26}" + "".join(f"{us:12.2f} ({us / base_us:4.0f}×)" for us, base_us in each))


def timed(
    view: FleetView, rule: Routing, zone: str, block_count: int
) -> list[tuple[str, Callable[[], object]]]:
    """The calls to be timed of one rule; sessions and prefixes are known from a first round."""
    router, requests = Router(rule, RoutingSettings()), requests_of(zone, block_count)
    for request in requests:
        replica = router.route(view, request, 0.0)
        assert replica is not None
        router.placed(request, replica)
    turn = iter(lambda: requests[turn_of()], None)
    place = iter(lambda: requests[turn_of()], None)
    numbers = iter(range(10**9))

    def turn_of() -> int:
        return next(numbers) % REQUESTS

    def route() -> object:
        return router.route(view, next(turn), 0.0)

    def placed() -> object:
        return router.placed(next(place), replica)

    label = f"{rule.value}{', zone' if zone else ''}"
    calls: list[tuple[str, Callable[[], object]]] = [(label, route)]
    if not zone and rule in (Routing.PREFIX, Routing.SESSION):
        calls.append((f"{label}: placed", placed))
    return calls


if __name__ == "__main__":
    main()
