"""The loop of a serving world: arrivals, the heap, what the gate learns, and when it wants to be woken."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from math import inf
from typing import Any

from twofold.core import errors
from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import events
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs
from twofold.policy.machine import Woke
from twofold.twin.heap import Heap
from twofold.twin.serving import faults
from twofold.twin.serving.courses import Trials, fleet_course
from twofold.twin.serving.fault_types import SlowTier
from twofold.twin.serving.fleet_clients import Clients
from twofold.twin.serving.fleet_gateway import Gateway, SinceFault
from twofold.twin.serving.fleet_replicas import Fleet, model_of
from twofold.twin.serving.fleet_state import Kind, Life, Replica, Visit
from twofold.twin.serving.fleet_types import Arrival, FleetResult, FleetWorld, RequestRecord
from twofold.twin.serving.metrics import Metrics
from twofold.twin.serving.metrics_result import fleet_result

WOKE = Woke()
WAKES_MAX = 10_000  # at one moment; a gate that wants more turns in a circle


def simulate_fleet(
    world: FleetWorld,
    arrivals: Iterable[Arrival],
    record: Callable[[RequestRecord], None] | None = None,
) -> FleetResult:
    """Run a gate over the world's replicas until all requests have ended, and say what came of it.

    Arrivals are read one by one, in order of time; `record` is given every visit as it ends. A run that can
    not end is stopped, and `waits_for` says what it waits for. Equal inputs give equal results.
    Raises ValueRefusedError for a world that contradicts itself, TraceError for arrivals out of order.
    """
    _check(world)
    return FleetRun(world, record).run(iter(arrivals))


def _check(world: FleetWorld) -> None:
    scaling = world.gate.scaling
    if not sum(group.count for group in world.replicas) and scaling is None:
        raise ValueRefusedError(
            "a fleet of no replicas serves nothing", hint="give it a replica, or let the gate scale"
        )
    for group in world.replicas:
        model_of(world, group.order.pool, group.order.model)
    for pool in scaling.pools if scaling is not None else ():
        model_of(world, pool.pool, pool.model)
    told, there = [each.name for each in world.gate.tiers], [each.name for each in world.tiers]
    if told != there:
        raise ValueRefusedError(f"the gate knows the tiers {told}, and the world has {there}")
    names = [model.name for model in world.classes]
    if not names or len(set(names)) < len(names):
        raise ValueRefusedError("classes need one name each", hint=f"given: {', '.join(names) or 'none'}")
    faults.check(world)


class FleetRun:
    """One run. Mutable: everything in it is its state."""

    def __init__(self, world: FleetWorld, record: Callable[[RequestRecord], None] | None = None) -> None:
        believed = Beliefs(*(each * world.belief_factor for each in astuple(world.beliefs)))
        self.world = world
        self.heap = Heap()
        self.metrics = Metrics(world.classes, world.warm_up_s, world.timeline_count, record)
        self.fleet = fleet = Fleet(world, self.heap)
        self.clients = Clients(world, self.heap, self.metrics)
        self.gate = Gate(world.gate, believed)
        self.gateway = gateway = Gateway(world, self.gate, self.heap, fleet, self.clients, self.gate.tiers)
        self.trials = Trials()
        self._busy_s = 0.0  # of all engines, at the scrape before
        self._happen: dict[int, Callable[[Any, float], None]] = {
            Kind.ENGINE: gateway.engine_due,
            Kind.TURN: self._turn,
            Kind.RETRY: self._retry,
            Kind.PATIENCE: self._patience,
            Kind.TIMEOUT: gateway.timed_out,
            Kind.FAIL: gateway.fails,
            Kind.STALLED: gateway.stalled,
            Kind.SILENT: gateway.silence,
            Kind.SCRAPE: self._scrape,
            Kind.EVENTS: self._events,
            Kind.FAULT_BEGINS: self._fault_begins,
            Kind.FAULT_ENDS: self._fault_ends,
            Kind.CRASH: self._crash,
            Kind.RESTART: fleet.restart,
            Kind.LOST: fleet.lost,
            Kind.READ: fleet.read,
            Kind.READY: self._ready,
            Kind.TIER: gateway.tier_due,
        }

    def run(self, arrivals: Iterator[Arrival]) -> FleetResult:
        """All of it: whatever comes first, an entry of the heap before an arrival of the same time."""
        heap, gateway, clients = self.heap, self.gateway, self.clients
        happen = [self._happen[kind] for kind in range(Kind.COUNT)]
        gate, drain_s = gateway.gate, self.world.drain_s
        faults.schedule(self.world, heap)
        heap.push(0.0, Kind.SCRAPE, None)
        self._events(self.fleet.boot(), 0.0)
        arrival = self._next(arrivals, 0.0)
        arrival_s = arrival.arrival_s if arrival is not None else inf
        now_s, wake_s, told_count, wakes, waits_for = 0.0, 0.0, 0, 0, None
        woke_s = -1.0
        while arrival is not None or clients.open_count:
            if gateway.event_count != told_count:  # only what it is told changes when a gate wants to wake
                told_count, wake = gateway.event_count, gate.wake_at_s()
                wake_s = inf if wake is None else wake
            due = heap.pop_until(arrival_s if arrival_s < wake_s else wake_s)
            if due is not None:
                now_s = due[0] if due[0] > now_s else now_s
                happen[due[2]](due[3], now_s)
            elif wake_s <= arrival_s:
                now_s = max(now_s, wake_s)
                wakes = wakes + 1 if now_s <= woke_s else 0
                assert wakes < WAKES_MAX, "the gate wants to be woken without end"
                woke_s = now_s
                gateway.tell(WOKE, now_s)
            else:
                assert arrival is not None
                now_s = arrival_s
                gateway.ask(clients.arrived(arrival, now_s), now_s)
                arrival = self._next(arrivals, now_s)
                arrival_s = arrival.arrival_s if arrival is not None else inf
            if gateway.probing:
                gateway.send_probes(now_s)
            if arrival is None and now_s - clients.progress_s > drain_s:
                waits_for = self._waits_for()
                break
        return self._close(now_s, waits_for)

    def _close(self, now_s: float, waits_for: str | None) -> FleetResult:
        if not self.metrics.arrived and self.world.horizon_s < inf:
            now_s = self.world.horizon_s  # a fleet that nobody asks costs what it costs
        self.fleet.close(now_s)
        self.metrics.settle(now_s)
        self.trials.look(self.gate.trials, self.gateway.decisions, now_s)
        course = fleet_course(self.metrics, self.fleet.stood, self.trials, now_s)
        return fleet_result(self.world, self.fleet, self.metrics, self.gateway, now_s, waits_for, course)

    def _next(self, arrivals: Iterator[Arrival], now_s: float) -> Arrival | None:
        arrival = next(arrivals, None)
        if arrival is None or arrival.arrival_s >= self.world.horizon_s:
            return None
        if not now_s <= arrival.arrival_s < inf:
            what = f"request {self.clients.given_count + 1} arrives at {arrival.arrival_s:g} s"
            raise errors.TraceError(f"{what}, after one at {now_s:g} s", hint="sort the arrivals by time")
        return arrival

    def _waits_for(self) -> str:
        sent = sum(bool(visit.attempts) for visit in self.gateway.visits.values())
        up = sum(replica.life is Life.READY for replica in self.fleet.replicas.values())
        count, held = self.clients.open_count, len(self.gateway.visits) - sent
        return (
            f"{count} of {self.metrics.arrived} requests have not ended: the gate holds {held},"
            f" replicas have {sent}; {up} of {len(self.fleet.replicas)} replicas are up"
        )

    # --- what the heap holds ---

    def _events(self, told: list[events.Event], now_s: float) -> None:
        for event in told:
            self.gateway.tell(event, now_s)

    def _scrape(self, _: None, now_s: float) -> None:
        """Every replica says how it is; the gate hears it later, and never of those it cannot reach.

        What the gate holds is in the figures alone: nobody scrapes that.
        """
        told: list[events.Event] = []
        ready, waiting_count, kv_used, busy_s = 0, 0, 0.0, self.fleet.spent.engines.busy_s
        for replica in self.fleet.replicas.values():
            engine = replica.engine
            if engine is None:
                continue
            running, waiting, kv = engine.report()
            ready += 1
            waiting_count += waiting
            kv_used += kv
            busy_s += engine.busy_s
            if not replica.cut:
                told.append(events.ReplicaReported(replica.replica_id, now_s, running, waiting, kv))
        every_s = self.world.metrics_every_s
        ready_s = ready * (every_s if now_s else 0.0)
        waits = waiting_count, len(self.gate.view.held)
        self.metrics.scraped_at(now_s, ready, waits, kv_used, busy_s - self._busy_s, ready_s)
        if self.gateway.tiers is not None:
            self.gateway.tiers.scraped(now_s, sum(waits))
        self._busy_s = busy_s
        self.trials.look(self.gate.trials, self.gateway.decisions, now_s)
        if told:
            self.heap.push(now_s + self.world.metrics_delay_s, Kind.EVENTS, told)
        self.heap.push(now_s + every_s, Kind.SCRAPE, None)

    def _turn(self, visit: Visit, now_s: float) -> None:
        following = self.clients.next_turn(visit, now_s)
        if following is not None:
            self.gateway.ask(following, now_s)

    def _retry(self, visit: Visit, now_s: float) -> None:
        if self.clients.again(visit, now_s):
            self.gateway.ask(visit, now_s)

    def _patience(self, visit: Visit, now_s: float) -> None:
        if self.clients.patience_ends(visit, now_s):
            self.gateway.leave(visit, now_s)
            self.clients.ends(visit, "left", now_s)

    def _fault_begins(self, subject: tuple[int, Any], now_s: float) -> None:
        number, fault = subject
        if not self.gateway.since_fault.began:  # the first one is what all is counted from
            self.gateway.since_fault = SinceFault(began=True)
        zone = getattr(fault, "zone", "")
        note = faults.SPOKEN[type(fault)].format(fault, place=f"zone {zone}" if zone else "the fleet")
        self.metrics.notes.append((now_s, note))
        if isinstance(fault, SlowTier):
            self.gateway.slow_tier(fault.tier, fault.factor, now_s)
        self._struck(faults.begin(self.fleet, number, fault, self.world, self.heap, now_s), now_s)

    def _fault_ends(self, subject: tuple[int, Any], now_s: float) -> None:
        if isinstance(fault := subject[1], SlowTier):
            self.gateway.slow_tier(fault.tier, 1.0 / fault.factor, now_s)
        self._struck(faults.end(self.fleet, *subject, now_s), now_s)

    def _struck(self, struck: faults.Struck, now_s: float) -> None:
        for attempt, cause in struck.failed:
            if attempt.live:
                self.gateway.failed(attempt, cause, now_s)
        for replica in struck.freed:
            held, replica.held = replica.held, []
            for output, attempt in held:
                if attempt.live:
                    self.gateway.heard(output, attempt, now_s)
        self._events(struck.signs, now_s)

    def _crash(self, subject: tuple[Replica, int, Any], now_s: float) -> None:
        replica, life, fault = subject
        if replica.lives == life and replica.life in (Life.READY, Life.DRAINING):
            failed = self.fleet.crash(replica, fault.cause, fault.back_after_s, now_s)
            self._struck(faults.Struck(failed), now_s)

    def _ready(self, subject: tuple[Replica, int], now_s: float) -> None:
        self._events(self.fleet.ready(*subject, now_s), now_s)
