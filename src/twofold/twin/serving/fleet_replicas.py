"""The replicas of a serving world: how they start, slow down, end and come back, and what they cost."""

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log

from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import events
from twofold.twin.heap import Heap
from twofold.twin.serving.courses import Lives
from twofold.twin.serving.engine_types import EngineSpent
from twofold.twin.serving.fault_types import RandomCrashes, Release
from twofold.twin.serving.fleet_state import Attempt, Kind, Life, Purpose, Replica, unit
from twofold.twin.serving.fleet_types import FleetWorld, ReplicaModel, Start
from twofold.twin.serving.hosted import HostedApi
from twofold.twin.storage import SharedStore

# What ends a replica: how requests in flight fail, whether connections time out from then on (rather than
# being refused), and whether its machine has to read the weights again.
REPLICA_CAUSES: dict[str, tuple[events.Cause, bool, bool]] = {
    "process": (events.Cause.BROKEN, False, False),
    "kv": (events.Cause.ERROR, False, False),  # the cache is corrupt; the engine fails all and starts anew
    "accelerator": (events.Cause.BROKEN, False, True),
    "node": (events.Cause.TIMEOUT, True, True),
    "power": (events.Cause.TIMEOUT, True, True),
    "network": (events.Cause.TIMEOUT, True, False),
}
ENDED_MAX = 256  # replicas that are remembered after their end
VERSION, CROWD = -1, -2  # what slows a replica besides faults, which have numbers from 0


@dataclass(slots=True)
class Spent:
    """What all engines and machines came to. Mutable: grows as they end."""

    engines: EngineSpent = field(default_factory=EngineSpent)
    ready_s: float = 0.0  # that engines were up
    granted_s: float = 0.0
    accelerator_s: float = 0.0
    cost_usd: float = 0.0
    overflow_usd: float = 0.0  # of it, to the hosted API …
    overflowed_count: int = 0  # … for so many attempts
    smaller_count: int = 0  # attempts that were sent to smaller models
    energy_j: float = 0.0
    started_count: int = 0
    start_s: float = 0.0  # of all those together


class Fleet:
    """All replicas. Mutable; every method is told the time, and returns what the gate is to be told."""

    def __init__(self, world: FleetWorld, heap: Heap) -> None:
        self._world, self._heap = world, heap
        self._round_trip_s = 2.0 * world.network_s
        self.replicas: dict[str, Replica] = {}
        self.hosted = _hosted(world)
        self.ended: dict[str, Replica] = {}  # the latest ones; the gate may not have heard of it yet
        self.spent = Spent()
        self.releases = {fault.version: fault for fault in world.faults if isinstance(fault, Release)}
        self.crashes = [fault for fault in world.faults if isinstance(fault, RandomCrashes)]
        self.throttles: dict[int, tuple[str, float]] = {}  # zone and factor by fault
        self.lost_zones: dict[str, float] = {}  # until when
        self.cut_zones: dict[str, int] = {}
        self.drained: dict[int, list[events.StartReplica]] = {}  # by fault: what is to come back
        self.max_count = 0
        self.stood = Lives()  # over time
        self._given_numbers = 0
        shares = world.storage.bytes_per_s < inf
        self._store = SharedStore(world.storage.bytes_per_s) if shares else None
        self._store_timer = 0
        self._brownouts: dict[int, float] = {}
        self.counts_work = world.crowd_count < inf and world.crowd_ratio != 1.0
        self.crowds = self.counts_work or world.start_slow_ratio != 1.0
        self._slowness = self._step_slowness = 1.0  # of all on a shared machine, and of their steps

    def known(self, replica_id: str) -> Replica | None:
        """A replica that stands, or the hosted API."""
        hosted = self.hosted
        if hosted is not None and replica_id == hosted.replica_id:
            return hosted
        return self.replicas.get(replica_id)

    # --- starting ---

    def boot(self) -> list[events.Event]:
        """The replicas that are ready when the run begins."""
        told: list[events.Event] = []
        for group in self._world.replicas:
            for _ in range(group.count):
                replica = self._granted(replace(group.order, replica_id=f"r{self._given_numbers}"), 0.0)
                if group.start is Start.READY:
                    told += self._up(replica, 0.0)
                    if replica.engine and self._world.cached_prompts:
                        replica.engine.remember(self._world.cached_prompts, self._world.prefix_block_tokens)
                else:
                    self._start(replica, 0.0, reads=True)
        return told

    def start(self, asked: events.StartReplica, now_s: float) -> None:
        """A machine is granted, or the gate hears that none comes."""
        if asked.replica_id in self.replicas:
            return  # the same twice is the same once
        if asked.zone in self.lost_zones:
            at_s = now_s + self._world.connect_timeout_s
            self._heap.push(at_s, Kind.EVENTS, [events.ReplicaStartFailed(asked.replica_id)])
            return
        self._start(self._granted(asked, now_s), now_s, reads=True)

    def read(self, _: None, now_s: float) -> None:
        """The store finished somebody's weights: it warms up, and may pass them on to its peers."""
        self._store_timer = 0
        assert self._store is not None
        for replica_id in self._store.advance(now_s):
            replica = self.replicas[replica_id]
            replica.seeds = True
            self._warm(replica, now_s)
        self._share(now_s)

    def ready(self, replica: Replica, life: int, now_s: float) -> list[events.Event]:
        """A start has ended, if it is still wanted."""
        if replica.lives != life or replica.life is not Life.STARTING:
            return []
        return self._up(replica, now_s)

    def restart(self, subject: tuple[Replica, int], now_s: float) -> None:
        """A replica that went down begins to come back: where its zone is lost, when that is over."""
        replica, life = subject
        if replica.lives != life or replica.life is not Life.DOWN:
            return
        lost_until_s = self.lost_zones.get(replica.zone)
        if lost_until_s is None:
            self._start(replica, now_s, reads=replica.reads)
        else:
            self._comes_back(replica, lost_until_s, now_s)

    def _comes_back(self, replica: Replica, at_s: float, now_s: float) -> None:
        """What is down starts then; if never, it is announced as removed."""
        if at_s < inf:
            self._heap.push(at_s, Kind.RESTART, (replica, replica.lives))
        else:
            self._heap.push(now_s + self._world.lost_after_s, Kind.LOST, (replica, replica.lives))

    def lost(self, subject: tuple[Replica, int], now_s: float) -> None:
        """A replica that does not come back is announced as removed."""
        replica, life = subject
        if replica.lives == life and replica.life is Life.DOWN:
            self.end(replica, now_s)

    def _granted(self, order: events.StartReplica, now_s: float) -> Replica:
        model = model_of(self._world, order.pool, order.model)
        replica = Replica(order, self._given_numbers, model, now_s)
        self._given_numbers += 1
        self.replicas[order.replica_id] = replica
        self.max_count = max(self.max_count, len(self.replicas))
        replica.cut = self.cut_zones.get(replica.zone, 0)
        if self.crowds:
            replica.factors[CROWD] = self._step_slowness
        if replica.order.version in self.releases:
            replica.factors[VERSION] = self.releases[replica.order.version].step_factor
        for number, (zone, factor) in self.throttles.items():
            if zone in ("", replica.zone):
                replica.factors[number] = factor
        return replica

    def _start(self, replica: Replica, now_s: float, *, reads: bool) -> None:
        replica.life, replica.asked_s = Life.STARTING, now_s
        self.stood.told(replica.replica_id, replica.life, now_s)
        replica.lives += 1
        self.crowd(now_s)
        if not reads or not replica.model.weight_bytes:
            self._warm(replica, now_s)
        elif self._store is None:
            self._warm(replica, now_s, replica.model.weight_bytes / replica.model.read_bytes_per_s_max)
        else:
            replica.seeds = False
            limit = replica.model.read_bytes_per_s_max
            self._store.start(replica.replica_id, replica.model.weight_bytes, now_s, limit)
            self._share(now_s)

    def _warm(self, replica: Replica, now_s: float, read_s: float = 0.0) -> None:
        replica.warms_s = now_s + read_s
        self._ready_at(replica, replica.warms_s + replica.model.warm_up_s * self._slowness)

    def _ready_at(self, replica: Replica, at_s: float) -> None:
        replica.ready_s = at_s
        replica.ready_timer = self._heap.push(replica.ready_s, Kind.READY, (replica, replica.lives))

    def _up(self, replica: Replica, now_s: float) -> list[events.Event]:
        """It answers from now on. The gate is told of a new one; one that is back, its probes find."""
        known = replica.life is Life.STARTING and replica.lives > 1
        replica.lives = max(replica.lives, 1)
        replica.life, replica.silent, replica.seeds = Life.READY, False, True
        replica.ready_timer = 0
        self.stood.told(replica.replica_id, replica.life, now_s)
        replica.engine = replica.model.new_engine()
        replica.up_s = now_s
        self.set_speed(replica, now_s)
        self.crowd(now_s)
        if now_s > 0.0:
            self.spent.started_count += 1
            self.spent.start_s += now_s - replica.asked_s
        for number, fault in enumerate(self.crashes):
            if fault.pool in ("", replica.order.pool):
                chance = unit(self._world.seed + number, Purpose.CRASH, replica.number, replica.lives)
                at_s = max(now_s, fault.from_s) - log(chance) * 3600.0 / fault.rate_per_replica_h
                if at_s < fault.until_s:
                    self._heap.push(at_s, Kind.CRASH, (replica, replica.lives, fault))
        self._share(now_s)
        if known and self._world.controlled_s is None:
            return []
        order, limit = replica.order, replica.model.in_flight_limit
        place = order.zone, order.pool, order.model, order.version
        return [events.ReplicaAdded(replica.replica_id, limit, *place)]

    # --- ending ---

    def stop(self, replica: Replica, now_s: float) -> None:
        """Drains; what has nothing to do ends at once."""
        if replica.life is Life.STARTING or replica.life is Life.DOWN:
            self.end(replica, now_s)
        elif replica.life is Life.READY:
            replica.life = Life.DRAINING
            self.stood.told(replica.replica_id, replica.life, now_s)
            self.end_if_drained(replica, now_s)

    def end_if_drained(self, replica: Replica, now_s: float) -> None:
        """After an attempt left a draining replica."""
        if replica.life is Life.DRAINING and not replica.attempts:
            self.end(replica, now_s)

    def end(self, replica: Replica, now_s: float) -> None:
        """Its machine is given back; the gate hears of it."""
        self._take_down(replica, now_s)
        replica.life = Life.GONE
        self.stood.told(replica.replica_id, replica.life, now_s)
        self._bill(replica, now_s)
        del self.replicas[replica.replica_id]
        self.ended[replica.replica_id] = replica
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        self._heap.push(now_s, Kind.EVENTS, [events.ReplicaRemoved(replica.replica_id)])
        self.crowd(now_s)
        self._share(now_s)

    def crash(
        self, replica: Replica, cause: str, back_after_s: float | None, now_s: float
    ) -> list[tuple[Attempt, events.Cause]]:
        """It is down, with all that it had. Returns the attempts that end now, and how they fail.

        Where nobody answers for it, those that had begun stall, and the others wait for their time-out; that
        a first start is dead shows when it has been missed for long enough.
        """
        failure, silent, reads = REPLICA_CAUSES[cause]
        failed = [(attempt, failure) for attempt in replica.attempts.values()]
        was = replica.life
        if was is Life.GONE:
            return []
        if was is Life.DOWN:  # it comes back when it was to, from what the second blow left
            replica.silent, replica.reads = replica.silent or silent, replica.reads or reads
            return []
        self._take_down(replica, now_s)
        if was is Life.STARTING and replica.lives == 1:
            replica.life = Life.DOWN
            self.stood.told(replica.replica_id, Life.GONE, now_s)
            del self.replicas[replica.replica_id]
            self.crowd(now_s)
            self._bill(replica, now_s)
            told_s = now_s + self._world.lost_after_s if silent else now_s
            self._heap.push(told_s, Kind.EVENTS, [events.ReplicaStartFailed(replica.replica_id)])
            return []
        if was is Life.DRAINING:
            self.end(replica, now_s)
            return failed
        replica.life, replica.silent, replica.reads = Life.DOWN, silent, reads
        self.stood.told(replica.replica_id, replica.life, now_s)
        self.crowd(now_s)
        if self._world.controlled_s is not None:
            told = [events.ReplicaRemoved(replica.replica_id)]
            self._heap.push(now_s + self._world.controlled_s, Kind.EVENTS, told)
        self._comes_back(replica, inf if back_after_s is None else now_s + back_after_s, now_s)
        if not silent:
            return failed
        for attempt, _ in failed:
            if attempt.begun:
                self._heap.push(now_s + self._world.stall_timeout_s, Kind.STALLED, (attempt, replica, 0))
        return []

    def _take_down(self, replica: Replica, now_s: float) -> None:
        if self._store is not None:
            self._store.cancel(replica.replica_id, now_s)
        if replica.timer:
            self._heap.cancel(replica.timer)
            replica.timer, replica.timer_s = 0, inf
        replica.attempts = {}
        replica.held = []
        replica.ready_timer = 0
        engine, replica.engine = replica.engine, None
        if engine is not None:
            self.spent.engines.add(engine.spent())
            self.spent.ready_s += now_s - replica.up_s
            self.spent.energy_j += engine.busy_s * (replica.model.busy_w - replica.model.idle_w)

    def _bill(self, replica: Replica, now_s: float) -> None:
        granted_s, model, spent = now_s - replica.granted_s, replica.model, self.spent
        spent.granted_s += granted_s
        spent.accelerator_s += granted_s * model.accelerator_count
        spent.cost_usd += granted_s / 3600.0 * model.price_usd_per_h
        spent.energy_j += granted_s * model.idle_w

    def close(self, now_s: float) -> None:
        """The run is over: everything is billed up to now."""
        for replica in self.replicas.values():
            self._take_down(replica, now_s)
            self._bill(replica, now_s)

    # --- speed and storage ---

    def set_speed(self, replica: Replica, now_s: float) -> None:
        """Tell its engine how much slower than its table it is."""
        if replica.engine is not None:
            factor = 1.0
            for each in replica.factors.values():
                factor *= each
            replica.engine.set_speed(1.0 / factor, now_s)
            self.retime(replica)

    def crowd(self, now_s: float) -> None:
        """All are as slow as those who share their machine make them; to be told when that changes.

        Formula  slowness = 1 + (crowd_ratio − 1) · max(0, replicas that work or start − crowd_count);
                 of steps also × start_slow_ratio while a replica starts
        """
        if not self.crowds:
            return
        starts = sum(each.life is Life.STARTING for each in self.replicas.values())
        works = sum(each.engine is not None and bool(each.attempts) for each in self.replicas.values())
        more = max(0.0, starts + works - self._world.crowd_count)
        before, self._slowness = self._slowness, 1.0 + (self._world.crowd_ratio - 1.0) * more
        for replica in self.replicas.values() if self._slowness != before else ():
            if replica.ready_timer:
                self._heap.cancel(replica.ready_timer)
                since_s = max(now_s, replica.warms_s)  # a crowd slows no reading
                self._ready_at(replica, since_s + (replica.ready_s - since_s) * self._slowness / before)
        factor = self._slowness * (self._world.start_slow_ratio if starts else 1.0)
        if factor == self._step_slowness:
            return
        self._step_slowness = factor
        for replica in self.replicas.values():
            replica.factors[CROWD] = factor
            self.set_speed(replica, now_s)

    def retime(self, replica: Replica) -> None:
        """After anything that may change when its engine has something to say."""
        engine = replica.engine
        at_s = engine.next_at_s() if engine is not None else None
        if at_s is None:
            at_s = inf
        if at_s == replica.timer_s:
            return
        if replica.timer:
            self._heap.cancel(replica.timer)
        replica.timer_s = at_s
        heard_s = at_s + self._round_trip_s
        replica.timer = self._heap.push(heard_s, Kind.ENGINE, replica) if at_s < inf else 0

    def brown_out(self, number: int, factor: float | None, now_s: float) -> None:
        """A fault takes a part of the store's bandwidth, or (None) gives it back."""
        if factor is None:
            self._brownouts.pop(number, None)
        else:
            self._brownouts[number] = factor
        self._share(now_s)

    def _share(self, now_s: float) -> None:
        """The store's rate as it is now, with what ready peers add, and when its next transfer ends."""
        if self._store is None or not (len(self._store) or self._store_timer):
            return
        rate = self._world.storage.bytes_per_s
        for factor in self._brownouts.values():
            rate *= factor
        peer = self._world.storage.peer_bytes_per_s
        if peer:
            rate += peer * sum(
                replica.seeds for replica in self.replicas.values() if replica.life is not Life.DOWN
            )
        self._store.set_rate(rate, now_s)
        if self._store_timer:
            self._heap.cancel(self._store_timer)
            self._store_timer = 0
        if len(self._store):
            self._store_timer = self._heap.push(self._store.next_at_s(), Kind.READ, None)


def _hosted(world: FleetWorld) -> Replica | None:
    """The hosted API that the gate may send to, as a replica that no fault and no bill of machines is of."""
    told = world.gate.overflow
    if told is None:
        return None
    model = ReplicaModel(partial(HostedApi, told.first_token_s, told.output_token_s), told.in_flight_limit, 0)
    hosted = Replica(events.StartReplica(told.replica_id, "", "", "", ""), -1, model, 0.0)
    hosted.life, hosted.engine = Life.READY, model.new_engine()
    return hosted


def model_of(world: FleetWorld, pool: str, model: str) -> ReplicaModel:
    """The replica of a pool and a model; the most exact key that is there."""
    for key in ((pool, model), ("", model), (pool, ""), ("", "")):
        if key in world.models:
            return world.models[key]
    what = f"pool `{pool}` and model `{model}`"
    raise ValueRefusedError(f"no replica is described for {what}", hint="describe one, or one for any")
