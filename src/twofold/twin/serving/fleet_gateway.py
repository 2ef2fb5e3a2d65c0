"""The gateway of a serving world: tells the gate what a live one would, and does what it says.

An engine's clock is behind by one network delay, so that it has a request at the moment when the gateway
sends it; what it then says is heard a whole round trip later. The gate sees what it would with a delay each
way, for two entries of the heap less per request.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from twofold.policy.gate import events
from twofold.policy.gate import tiers as gate_tiers
from twofold.policy.machine import Machine
from twofold.twin.heap import Heap
from twofold.twin.serving.engine_types import EngineWork, FirstToken, Output
from twofold.twin.serving.fleet_clients import Clients
from twofold.twin.serving.fleet_replicas import Fleet
from twofold.twin.serving.fleet_state import Attempt, Kind, Life, Purpose, Replica, Visit, score, unit
from twofold.twin.serving.fleet_types import FleetWorld
from twofold.twin.serving.tiers import TierServer, TierWorld, work_s

EVENT_BYTES = 250  # of a streamed token as engines write it, for how much an answer takes that is kept


@dataclass(slots=True)
class SinceFault:
    """What the gate did since the first fault began; without one, since the run did. Mutable."""

    began: bool = False
    first_s: dict[type, float] = field(default_factory=dict)  # when each effect was first answered
    sent_counts: dict[str, int] = field(default_factory=dict)  # by version, until a release is decided
    missent_count: int = 0  # requests sent to replicas that could not hear them
    missent_last_s: float | None = None


class Gateway:
    """The gate, the attempts that it sent, and what becomes of them. Mutable."""

    def __init__(
        self,
        world: FleetWorld,
        gate: Machine[events.Event, events.Effect],
        heap: Heap,
        fleet: Fleet,
        clients: Clients,
        tiers: Sequence[gate_tiers.Tier] = (),  # the gate's
    ) -> None:
        self.world, self.gate, self.heap, self.fleet, self.clients = world, gate, heap, fleet, clients
        self.event_count = 0
        self.effects: dict[type, int] = {}
        self.since_fault = SinceFault()
        self.given_again_tokens = 0  # of answers that no replica wrote
        self.decisions: list[tuple[str, str, float]] = []  # of releases: version, what, when
        self.visits: dict[int, Visit] = {}  # with an open request, by the gate's id for it
        self.asking: Visit | None = None  # whose request the gate has not named yet
        self.probing: list[events.Probe] = []  # asked for at this moment
        self.round_trip_s = 2.0 * world.network_s
        self.tiers = TierWorld(world.tiers, tiers, world.warm_up_s) if tiers else None
        self._asked_tiers: dict[int, events.AskTier] = {}  # by request, what a server works on
        self._given_keys = 0
        self._timeouts_s = [each.client.timeout_s for each in world.classes]
        self._silent: deque[tuple[float, Attempt]] = deque()  # by when each is to have begun
        self._silent_set = False
        releases = fleet.releases.values()
        self._judges = world.quality_spread > 0.0 or any(release.quality_drop for release in releases)
        self._errs = world.error_fraction > 0.0 or any(release.error_fraction for release in releases)
        self._do: dict[type, Callable[[Any, float], None]] = {
            events.Send: self._send,
            events.Hold: self._hold,
            events.Refuse: self._refused,
            events.GiveAgain: self._given_again,
            events.GiveUp: self._given_up,
            events.Cancel: self._cancelled,
            events.Probe: self._probe,
            events.AskTier: self._ask_tier,
            events.TierPassed: self._tier_passed,
            events.StartReplica: fleet.start,
            events.StopReplica: self._stop,
            events.PromoteRelease: self._promoted,
            events.RollBackRelease: self._rolled_back,
        }

    # --- what the gate is told, and does ---

    def ask(self, visit: Visit, now_s: float) -> None:
        """One request for what a visit wants."""
        visit.tries = tries = visit.tries + 1
        self.asking = visit
        timeout_s = self._timeouts_s[visit.class_number]
        if timeout_s < inf:
            self.heap.push(now_s + timeout_s, Kind.TIMEOUT, (visit, tries))
        _, input_tokens, _, class_name, tenant, session_id, blocks, _, model, zone, _, key = visit.arrival
        limit_tokens = visit.output_limit_tokens
        asked = input_tokens, limit_tokens, tenant, class_name, session_id, blocks, model, zone
        event = events.RequestArrived(*asked, None, tries - 1, "", key)
        self.tell(event, now_s)

    def timed_out(self, subject: tuple[Visit, int], now_s: float) -> None:
        """A client breaks off a request that is still open, and may ask anew."""
        visit, tries = subject
        if visit.waits and visit.tries == tries and self.visits.get(visit.request_id) is visit:
            self.leave(visit, now_s)
            self.clients.again_or_never(visit, "left", None, now_s)

    def leave(self, visit: Visit, now_s: float) -> None:
        """Its client waits no more."""
        if self.visits.get(visit.request_id) is visit:
            self.tell(events.ClientLeft(visit.request_id), now_s)
            self.visits.pop(visit.request_id, None)
        self._drop_all(visit, now_s)

    def tell(self, event: events.Event, now_s: float) -> None:
        """An event comes to the gate; what it answers is done at once."""
        self.event_count += 1
        effects = self.gate.handle(event, now_s)
        if effects:
            self._act(effects, now_s)

    def _act(self, effects: list[events.Effect], now_s: float) -> None:
        counts, first_s = self.effects, self.since_fault.first_s
        for effect in effects:
            made = type(effect)
            counts[made] = counts.get(made, 0) + 1
            if made not in first_s:
                first_s[made] = now_s
            done = self._do.get(made)
            if done is not None:
                done(effect, now_s)

    def send_probes(self, now_s: float) -> None:
        """All probes of one moment are one entry of the heap per delay: the network is equally far.

        A replica that is up accepts whatever its load, one that is down refuses, and where nobody answers
        for it the probe times out.
        """
        soon: list[events.Event] = []
        late: list[events.Event] = []
        for probe in self.probing:
            replica = self.fleet.known(probe.replica_id)
            if replica is not None and (replica.cut or replica.silent):
                late.append(events.ProbeFailed(probe.replica_id, probe.number, events.Cause.TIMEOUT))
            elif replica is None or replica.engine is None:
                soon.append(events.ProbeFailed(probe.replica_id, probe.number, events.Cause.REFUSED))
            else:
                soon.append(events.ProbeAnswered(probe.replica_id, probe.number))
        self.probing.clear()
        if soon:
            self.heap.push(now_s + self.round_trip_s, Kind.EVENTS, soon)
        if late:
            self.heap.push(now_s + self.world.probe_timeout_s, Kind.EVENTS, late)

    def _visit_of(self, request_id: int) -> Visit:
        """Whose request this is; a new id is that of the visit which is asking."""
        visit = self.visits.get(request_id)
        if visit is None:
            visit, self.asking = self.asking, None
            assert visit is not None, f"request {request_id} is not open"
            visit.request_id = request_id
            self.visits[request_id] = visit
        return visit

    def _send(self, effect: events.Send, now_s: float) -> None:
        visit = self._visit_of(effect.request_id)
        tokens, limit = visit.arrival.output_tokens, effect.output_limit_tokens
        if limit is not None and limit < tokens:
            tokens = limit
        self._given_keys = key = self._given_keys + 1
        replica = self.fleet.replicas.get(effect.replica_id)
        if replica is None:
            replica = self.fleet.known(effect.replica_id) or self.fleet.ended[effect.replica_id]
        if replica is self.fleet.hosted:
            self.fleet.spent.overflowed_count += 1
            self._bill(visit.arrival.input_tokens, 0)
        self.fleet.spent.smaller_count += bool(effect.model)
        since, version = self.since_fault, replica.order.version
        if events.PromoteRelease not in since.first_s and events.RollBackRelease not in since.first_s:
            since.sent_counts[version] = since.sent_counts.get(version, 0) + 1
        attempt = Attempt(key, visit, effect.attempt, replica, tokens)
        visit.attempts.append(attempt)
        visit.replica_id = effect.replica_id
        silent = self._silent
        while silent and (silent[0][1].begun or not silent[0][1].live):
            silent.popleft()
        silent.append((now_s + self.world.first_token_timeout_s, attempt))
        if not self._silent_set:
            self._silent_set = True
            self.heap.push(silent[0][0], Kind.SILENT, None)
        engine = replica.engine
        if engine is None or replica.cut:
            since.missent_count += 1
            since.missent_last_s = now_s
            dark = replica.cut or replica.silent
            cause = events.Cause.TIMEOUT if dark else events.Cause.REFUSED
            in_s = self.world.connect_timeout_s if dark else self.round_trip_s
            self.heap.push(now_s + in_s, Kind.FAIL, (attempt, cause))
            return
        if self._errs and self._is_error(attempt, replica):
            self.heap.push(now_s + self.round_trip_s, Kind.FAIL, (attempt, events.Cause.ERROR))
            return
        arrival, turn = visit.arrival, visit.next_turn
        replica.attempts[key] = attempt
        answered = turn.prefix_blocks if turn is not None else ()
        block_tokens, limit_tokens = self.world.prefix_block_tokens, visit.output_limit_tokens
        prompt = arrival.prefix_blocks
        work = (key, arrival.input_tokens, tokens, prompt, block_tokens, limit_tokens, answered)
        engine.submit(EngineWork._make(work), now_s)  # half of the time of a call with arguments
        self.fleet.retime(replica)
        if self.fleet.counts_work:
            self.fleet.crowd(now_s)

    def _hold(self, effect: events.Hold, now_s: float) -> None:  # noqa: ARG002 (all effects look alike)
        self._visit_of(effect.request_id)

    def _refused(self, effect: events.Refuse, now_s: float) -> None:
        visit = self._visit_of(effect.request_id)
        del self.visits[effect.request_id]
        self.clients.refused(visit, effect, now_s)

    def _given_again(self, effect: events.GiveAgain, now_s: float) -> None:
        visit = self._visit_of(effect.request_id)
        del self.visits[effect.request_id]
        if visit.begun_s is None:
            visit.begun_s = now_s
        self.given_again_tokens += visit.arrival.output_tokens
        self.clients.finished(visit, visit.arrival.output_tokens, now_s)

    def _given_up(self, effect: events.GiveUp, now_s: float) -> None:
        visit = self.visits.pop(effect.request_id)
        self._drop_all(visit, now_s)
        self.clients.again_or_never(visit, f"failed: {effect.cause.value}", None, now_s)

    def _cancelled(self, effect: events.Cancel, now_s: float) -> None:
        if (asked := self._asked_tiers.pop(effect.request_id, None)) is not None:
            self._leave_tier(asked, now_s)
        visit = self.visits.get(effect.request_id)
        for attempt in visit.attempts if visit else ():
            if attempt.number == effect.attempt:
                self._drop(attempt, now_s)
                return

    def _probe(self, effect: events.Probe, now_s: float) -> None:  # noqa: ARG002 (all effects look alike)
        self.probing.append(effect)

    def _stop(self, effect: events.StopReplica, now_s: float) -> None:
        replica = self.fleet.replicas.get(effect.replica_id)
        if replica is not None:
            self.fleet.stop(replica, now_s)

    def _promoted(self, effect: events.PromoteRelease, now_s: float) -> None:
        because = f" ({effect.reason})" if effect.reason else ""
        self.decisions.append((effect.version, f"promoted{because}", now_s))

    def _rolled_back(self, effect: events.RollBackRelease, now_s: float) -> None:
        self.decisions.append((effect.version, f"rolled back: {effect.reason}", now_s))

    # --- tiers ---

    def _ask_tier(self, effect: events.AskTier, now_s: float) -> None:
        assert self.tiers is not None
        visit, server = self.visits[effect.request_id], self.tiers.servers[effect.replica_id]
        place = list(self.tiers.models).index(effect.tier)
        model, turn = self.tiers.models[effect.tier], 64 * visit.tries + place
        self._asked_tiers[effect.request_id] = effect
        server.start(effect.request_id, work_s(model, self.world.seed, visit.number, turn), now_s)
        self._retime_tier(server)

    def _leave_tier(self, asked: events.AskTier, now_s: float) -> None:
        assert self.tiers is not None
        server = self.tiers.servers[asked.replica_id]
        server.cancel(asked.request_id, now_s)
        self._retime_tier(server)

    def _retime_tier(self, server: TierServer) -> None:
        if server.timer:
            self.heap.cancel(server.timer)
        at_s = server.next_at_s()
        server.timer = self.heap.push(at_s, Kind.TIER, server) if at_s is not None else 0

    def tier_due(self, server: TierServer, now_s: float) -> None:
        """A tier's server is done with somebody; the gateway hears it a round trip later."""
        server.timer = 0
        done = [self._asked_tiers.pop(each) for each in server.finished(now_s)]
        told = [events.TierAnswered(each.request_id, each.tier, each.attempt) for each in done]
        if told:
            self.heap.push(now_s + self.round_trip_s, Kind.EVENTS, told)
        self._retime_tier(server)

    def slow_tier(self, name: str, factor: float, now_s: float) -> None:
        """All servers of a tier take so many times as long from now on."""
        assert self.tiers is not None
        for server in self.tiers.servers_of(name):
            server.slow(factor, now_s)
            self._retime_tier(server)

    def _tier_passed(self, effect: events.TierPassed, now_s: float) -> None:
        assert self.tiers is not None
        self.tiers.passed(effect, now_s)

    # --- engines ---

    # HOT: almost three times per request; with `heard`, `tell` and `retime` for each output 1.2 times slower
    def engine_due(self, replica: Replica, now_s: float) -> None:
        """A replica's engine may have something to say."""
        engine, attempts, handle = replica.engine, replica.attempts, self.gate.handle
        assert engine is not None
        due_s = replica.timer_s
        replica.timer = 0
        replica.timer_s = inf
        for output in engine.advance(due_s):
            attempt = attempts.get(output.key)
            if attempt is None:
                continue
            if replica.cut:
                replica.held.append((output, attempt))
            elif type(output) is FirstToken:
                attempt.begun = True
                visit = attempt.visit
                if visit.begun_s is None:
                    visit.begun_s = now_s
                self.event_count += 1
                effects = handle(events.ResponseStarted(visit.request_id, attempt.number), now_s)
                if effects:
                    self._act(effects, now_s)
            else:
                self._ended(attempt, output.output_tokens, now_s)  # type: ignore[union-attr]
        if replica.timer or replica.engine is not engine:
            self.fleet.retime(replica)
        else:
            at_s = engine.next_at_s()
            if at_s is not None:
                replica.timer_s = at_s
                replica.timer = self.heap.push(at_s + self.round_trip_s, Kind.ENGINE, replica)

    def heard(self, output: Output, attempt: Attempt, now_s: float) -> None:
        """The gateway has the beginning or the end of an answer that it was cut off from."""
        if isinstance(output, FirstToken):
            attempt.begun = True
            if attempt.visit.begun_s is None:
                attempt.visit.begun_s = now_s
            self.tell(events.ResponseStarted(attempt.visit.request_id, attempt.number), now_s)
        else:
            self._ended(attempt, output.output_tokens, now_s)

    def _ended(self, attempt: Attempt, tokens: int, now_s: float) -> None:
        """The gateway has the whole answer."""
        if not tokens and attempt.output_tokens:
            self.failed(attempt, events.Cause.ERROR, now_s)  # it can never fit this engine
            return
        visit = attempt.visit
        request_id = visit.request_id
        if attempt.replica is self.fleet.hosted:
            self._bill(0, tokens)
        self._forget(attempt, now_s)
        score = self._score(visit, attempt.replica) if self._judges else None
        size = tokens * EVENT_BYTES if visit.arrival.answer_key else 0
        self.tell(events.ResponseEnded(request_id, tokens, score, attempt.number, None, size), now_s)
        del self.visits[request_id]
        if visit.attempts:
            self._drop_all(visit, now_s)
        self.clients.finished(visit, tokens, now_s)

    def _bill(self, input_tokens: int, output_tokens: int) -> None:
        """The hosted API asks for a prompt when it is sent, and for an answer that came to its end.

        Limits   of an answer that breaks off it would ask for what was written.
        """
        told, spent = self.world.gate.overflow, self.fleet.spent
        assert told is not None
        usd = told.usd(input_tokens, output_tokens)
        spent.cost_usd, spent.overflow_usd = spent.cost_usd + usd, spent.overflow_usd + usd

    def fails(self, subject: tuple[Attempt, events.Cause], now_s: float) -> None:
        if subject[0].live:
            self.failed(*subject, now_s)

    def failed(self, attempt: Attempt, cause: events.Cause, now_s: float) -> None:
        self._drop(attempt, now_s)
        self.tell(events.ResponseFailed(attempt.visit.request_id, cause, attempt.number), now_s)

    def stalled(self, subject: tuple[Attempt, Replica, int], now_s: float) -> None:
        attempt, replica, stamp = subject
        lost = attempt.key not in replica.attempts
        if attempt.live and (lost or (replica.cut and replica.stamp == stamp)):
            self.failed(attempt, events.Cause.TIMEOUT, now_s)

    def silence(self, _: None, now_s: float) -> None:
        """The oldest attempts have had their time to begin in."""
        silent = self._silent
        while silent:
            due_s, attempt = silent[0]
            if attempt.live and not attempt.begun and due_s > now_s:
                self.heap.push(due_s, Kind.SILENT, None)
                return
            silent.popleft()
            if attempt.live and not attempt.begun:
                self.failed(attempt, events.Cause.TIMEOUT, now_s)
        self._silent_set = False

    def _forget(self, attempt: Attempt, now_s: float) -> None:
        """The gateway waits for it no more."""
        attempt.live = False
        attempt.visit.attempts.remove(attempt)
        replica = attempt.replica
        replica.attempts.pop(attempt.key, None)
        if self.fleet.counts_work:
            self.fleet.crowd(now_s)
        if replica.life is Life.DRAINING:
            self.fleet.end_if_drained(replica, now_s)

    def _drop(self, attempt: Attempt, now_s: float) -> None:
        """… and closes its connection, which an engine that can be reached notices."""
        replica = attempt.replica
        engine = replica.engine
        if engine is not None and attempt.key in replica.attempts and not replica.cut:
            engine.cancel(attempt.key, now_s)
            self.fleet.retime(replica)
        self._forget(attempt, now_s)

    def _drop_all(self, visit: Visit, now_s: float) -> None:
        for attempt in list(visit.attempts):
            self._drop(attempt, now_s)

    def _is_error(self, attempt: Attempt, replica: Replica) -> bool:
        fraction = self.world.error_fraction
        release = self.fleet.releases.get(replica.order.version)
        if release is not None:
            fraction += release.error_fraction
        visit = attempt.visit
        return (
            unit(self.world.seed, Purpose.ERROR, visit.number, 64 * visit.tries + attempt.number) < fraction
        )

    def _score(self, visit: Visit, replica: Replica) -> float:
        world, release = self.world, self.fleet.releases.get(replica.order.version)
        mean = world.quality_mean - (release.quality_drop if release is not None else 0.0)
        return score(world.seed, visit.number, min(max(mean, 0.0), 1.0), world.quality_spread)
