"""How the gate learns of replicas: its probes, and what it scrapes from them, as late as that is live."""

from twofold.policy.gate import events
from twofold.twin import Heap
from twofold.twin.serving.fleet_replicas import Fleet
from twofold.twin.serving.fleet_state import Kind
from twofold.twin.serving.metrics import Metrics
from twofold.twin.serving.types import FleetWorld


class Watch:
    """Mutable: remembers the scrape before, for the figures."""

    def __init__(self, world: FleetWorld, heap: Heap, fleet: Fleet, metrics: Metrics) -> None:
        self._world, self._heap, self._fleet, self._metrics = world, heap, fleet, metrics
        self._busy_s = 0.0

    def send_probes(self, probes: list[events.Probe], now_s: float) -> None:
        """All probes of one moment are one entry of the heap per delay: the network is equally far.

        A replica that is up accepts whatever its load, one that is down refuses, and where nobody answers
        for it the probe times out.
        """
        soon: list[events.Event] = []
        late: list[events.Event] = []
        for probe in probes:
            replica_id, number = probe.replica_id, probe.number
            replica = self._fleet.replicas.get(replica_id)
            if replica is not None and (replica.cut or replica.silent):
                late.append(events.ProbeFailed(replica_id, number, events.Cause.TIMEOUT))
            elif replica is None or replica.engine is None:
                soon.append(events.ProbeFailed(replica_id, number, events.Cause.REFUSED))
            else:
                soon.append(events.ProbeAnswered(replica_id, number))
        if soon:
            self._heap.push(now_s + 2.0 * self._world.network_s, Kind.EVENTS, soon)
        if late:
            self._heap.push(now_s + self._world.probe_timeout_s, Kind.EVENTS, late)

    def scrape(self, now_s: float, queued: int) -> None:
        """Every replica says how it is; the gate hears it later, and never of those it cannot reach.

        `queued` requests are held by the gate: what nobody scrapes, for the figures alone.
        """
        told: list[events.Event] = []
        ready, waiting_count, kv_used, busy_s = 0, 0, 0.0, self._fleet.spent.engines.busy_s
        for replica in self._fleet.replicas.values():
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
        before_s, self._busy_s = self._busy_s, busy_s
        every_s = self._world.metrics_every_s
        span_s = every_s if now_s else 0.0
        span_busy_s, span_ready_s = busy_s - before_s, ready * span_s
        self._metrics.scraped_at(now_s, ready, waiting_count, kv_used, span_busy_s, span_ready_s, queued)
        if told:
            self._heap.push(now_s + self._world.metrics_delay_s, Kind.EVENTS, told)
        self._heap.push(now_s + every_s, Kind.SCRAPE, None)
