"""The serving machine: admits, routes, retries, and keeps away from replicas that fail.

One order of decisions, written once, in `_arrived` and `_failed`: admission → routing → breaker → retry. Each
is a pure function of the view, the request and the time; a queue, a rate limit or a canary is one more.
"""

import math
from typing import assert_never

from twofold.policy import breaker
from twofold.policy.admission import room_or_refusal
from twofold.policy.breaker import Circuit
from twofold.policy.events import (
    BeliefsChanged,
    Cause,
    ClientLeft,
    CloseCircuit,
    Effect,
    Event,
    GiveUp,
    OpenCircuit,
    Probe,
    ProbeAnswered,
    ProbeFailed,
    RefusalReason,
    Refuse,
    ReleaseOffered,
    ReleaseWithdrawn,
    ReplicaAdded,
    ReplicaRemoved,
    ReplicaReported,
    ReplicaStartFailed,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    Send,
    Woke,
)
from twofold.policy.fleet_view import Doubt, FleetView, Replica, Request
from twofold.policy.machine import Machine
from twofold.policy.routing import Router
from twofold.policy.settings import Beliefs, GateSettings


class Gate(Machine[Event, Effect]):
    """For one fleet of equal replicas. `view` is for reading; only events change it.

    Whose fault a failure is (INV-17): a refused connection and an answer that breaks off are the replica's.
    Any other failure is in doubt until another replica begins to answer the same request: only then does it
    count. So a request that fails everywhere, whoever sends it and how often, opens no circuit.

    Time starts at 0 and never runs backwards inside: an event is handled at the latest time seen, and a time
    that is not finite counts as none. Events about requests that have ended or replicas that are gone, and
    first bytes or probes reported twice, are counted as ignored. A request id that was never given out is the
    driver's mistake (AssertionError), as is a limit below 1 or a negative number of tokens.
    """

    def __init__(self, settings: GateSettings, beliefs: Beliefs) -> None:
        self.view = FleetView(settings, beliefs)
        self._router = Router(settings.routing, settings.routes)
        self._seen_s = 0.0
        self._given_ids = 0
        self._probe_at_s = 0.0

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """Fold one event in; an arrival is answered by exactly one Send or Refuse."""
        if math.isfinite(now_s) and now_s > self._seen_s:
            self._seen_s = now_s
        now_s = self._seen_s
        match event:
            case RequestArrived():
                return self._arrived(event, now_s)
            case ResponseStarted() | ResponseEnded() | ResponseFailed() | ClientLeft():
                return self._answered(event, now_s)
            case ProbeAnswered() | ProbeFailed():
                return self._probed(event, now_s)
            case Woke():
                return self._woke(now_s)
            case ReplicaAdded():
                return self._added(event, now_s)
            case ReplicaRemoved():
                return self._removed(event)
            case ReplicaReported():
                return self._reported(event)
            case BeliefsChanged():
                self.view.beliefs = Beliefs(event.input_token_s, event.output_token_s, event.first_token_s)
                return []
            case ReplicaStartFailed() | ReleaseOffered() | ReleaseWithdrawn():
                return self._ignored()
            case _:
                assert_never(event)

    def wake_at_s(self) -> float | None:
        """When the next probes are due; None while there is no replica to probe."""
        if all(replica.draining for replica in self.view.replicas.values()):
            return None
        return self._probe_at_s

    def _arrived(self, event: RequestArrived, now_s: float) -> list[Effect]:
        assert event.input_tokens >= 0 and event.output_limit_tokens >= 0, event
        self._given_ids += 1
        self.view.counts.arrived += 1
        request = Request(
            self._given_ids,
            event.input_tokens,
            event.output_limit_tokens,
            class_name=event.class_name,
            session_id=event.session_id,
            prefix_blocks=event.prefix_blocks,
            model=event.model,
            zone=event.zone,
        )
        refusal = room_or_refusal(self.view, request, now_s)
        if refusal:
            self.view.counts.refused += 1
            return [refusal]
        replica = self._router.route(self.view, request, now_s)
        if replica is None:  # there is room, but for other models or pools
            self.view.counts.refused += 1
            retry_after_s = self.view.settings.retry_after_s_max
            return [Refuse(request.request_id, RefusalReason.NO_REPLICA, 503, retry_after_s)]
        return [self._sent(request, replica)]

    def _sent(self, request: Request, replica: Replica) -> Send:
        self.view.place(request, replica)
        self._router.placed(request, replica)
        return Send(request.request_id, replica.replica_id, request.attempt)

    def _answered(
        self, event: ResponseStarted | ResponseEnded | ResponseFailed | ClientLeft, now_s: float
    ) -> list[Effect]:
        assert 1 <= event.request_id <= self._given_ids, event
        effects: list[Effect] = []
        request = self.view.requests.get(event.request_id)
        if request is None or (isinstance(event, ResponseStarted) and request.started):
            return self._ignored()
        match event:
            case ResponseStarted():
                self.view.start(request)
                return self._proven(request, now_s)
            case ResponseEnded():
                replica = self.view.replica_of(request)
                replica.circuit = breaker.after_response_ended(replica.circuit, request.era)
                effects = self._proven(request, now_s)
                self.view.counts.finished += 1
            case ClientLeft():
                self.view.counts.left += 1
            case ResponseFailed():
                return self._failed(request, event, now_s)
            case _:
                assert_never(event)
        self.view.release(request)
        return effects

    def _failed(self, request: Request, event: ResponseFailed, now_s: float) -> list[Effect]:
        doubt = Doubt(self.view.replica_of(request), request.era, event.cause)
        effects: list[Effect] = []
        if request.started or event.cause is Cause.REFUSED:
            effects = self._blamed(doubt, now_s)
        else:
            request.doubts.append(doubt)
            doubt.replica.doubted_count += 1
        self.view.release(request)
        if not request.started and request.attempt < self.view.settings.attempt_limit:
            other = self._router.route(self.view, request, now_s)
            if other:
                return [*effects, self._sent(request, other)]
        effects += self._unheard(request, now_s)
        self.view.counts.gave_up += 1
        return [*effects, GiveUp(request.request_id, event.cause)]

    def _proven(self, request: Request, now_s: float) -> list[Effect]:
        """A replica answers the request: nothing is wrong with it, and who failed it before is to blame."""
        here = self.view.replica_of(request)
        here.doubted_count = 0
        doubts, request.doubts = request.doubts, []
        return [e for doubt in doubts if doubt.replica is not here for e in self._blamed(doubt, now_s)]

    def _unheard(self, request: Request, now_s: float) -> list[Effect]:
        """Given up where one replica alone was asked: its silence counts against it, its error does not."""
        if len({doubt.replica.replica_id for doubt in request.doubts}) != 1:
            return []
        silent = [doubt for doubt in request.doubts if doubt.cause is not Cause.ERROR]
        return [effect for doubt in silent for effect in self._blamed(doubt, now_s)]

    def _blamed(self, doubt: Doubt, now_s: float) -> list[Effect]:
        replica, settings = doubt.replica, self.view.settings
        circuit = breaker.after_request_failed(replica.circuit, doubt.era, doubt.cause, now_s, settings)
        return self._switched(replica, circuit)

    def _probed(self, event: ProbeAnswered | ProbeFailed, now_s: float) -> list[Effect]:
        replica = self.view.replicas.get(event.replica_id)
        if replica is None or not replica.probe_eras:
            return self._ignored()
        # Whichever probe this was, taking the oldest never takes an old probe's outcome for a newer one's.
        era = replica.probe_eras.popleft()
        if isinstance(event, ProbeAnswered):
            circuit = breaker.after_probe_answered(replica.circuit, era, now_s)
        else:
            settings = self.view.settings
            circuit = breaker.after_probe_failed(replica.circuit, era, event.cause, now_s, settings)
        return self._switched(replica, circuit)

    def _woke(self, now_s: float) -> list[Effect]:
        if now_s < self._probe_at_s:
            return []
        # From now, not from when it was due: a clock that jumped ahead does not cause a burst.
        self._probe_at_s = now_s + self.view.settings.probe_every_s
        effects: list[Effect] = []
        for replica in self.view.replicas.values():
            if not replica.draining:
                replica.probe_eras.append(replica.circuit.era)
                effects.append(Probe(replica.replica_id))
        return effects

    def _added(self, event: ReplicaAdded, now_s: float) -> list[Effect]:
        assert event.in_flight_limit >= 1, event
        if self.wake_at_s() is None:
            self._probe_at_s = now_s
        self.view.add_replica(
            event.replica_id, event.in_flight_limit, event.zone, event.pool, event.model, event.version
        )
        self._router.fleet_changed()
        return []

    def _removed(self, event: ReplicaRemoved) -> list[Effect]:
        replica = self.view.replicas.get(event.replica_id)
        if replica is None or replica.draining:
            return self._ignored()
        self.view.remove_replica(replica)
        self._router.fleet_changed(replica.replica_id)
        return []

    def _reported(self, event: ReplicaReported) -> list[Effect]:
        replica = self.view.replicas.get(event.replica_id)
        if replica is None or (replica.report and replica.report.observed_s > event.observed_s):
            return self._ignored()
        replica.report = event
        return []

    def _ignored(self) -> list[Effect]:
        self.view.counts.ignored += 1
        return []

    def _switched(self, replica: Replica, circuit: Circuit) -> list[Effect]:
        """Give a replica its new circuit, and say whether it opened or closed; of a removed one, nothing."""
        before, replica.circuit = replica.circuit, circuit
        if replica.draining or circuit.until_s == before.until_s:
            return []
        if circuit.until_s is None:
            self._router.fleet_changed()
            return [CloseCircuit(replica.replica_id)]
        # A process that died comes back with an empty cache; of one that only failed, little is lost.
        self._router.fleet_changed(replica.replica_id)
        return [OpenCircuit(replica.replica_id, circuit.until_s)]
