"""Whose fault a failure is, and which circuits that opens: the gate's side towards its replicas."""

from twofold.policy.gate import breaker, events
from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.fleet_view import UNREPORTED_PROBES_MAX, Attempt, FleetView, Replica, Request
from twofold.policy.gate.outliers import Outliers
from twofold.policy.gate.routing import Router


class Health:
    """Mutable: when the next probes are due, and the number of the last; circuits are the view's.

    INV-17: a refused connection and an answer that breaks off are the replica's fault. Any other failure is
    in doubt until another replica begins to answer the same request: only then does it count. So a request
    that fails everywhere, whoever sends it and how often, opens no circuit, and makes nobody an outlier.
    """

    def __init__(self, view: FleetView, router: Router, outliers: Outliers | None = None) -> None:
        self._view, self._router, self._outliers = view, router, outliers
        self.probe_at_s = 0.0
        self._turn_number = 0  # never twice, so that a probe of a replica that is gone is nobody's

    def failed(self, request: Request, cause: events.Cause, now_s: float) -> list[events.Effect]:
        """The request's attempt failed: its replica is to blame, or in doubt. The hosted API always is to
        blame: what that costs is a while without it."""
        away = request.attempt.replica is self._view.overflow
        if request.started or cause is events.Cause.REFUSED or away:
            return self._blamed(request.attempt, cause, now_s)
        request.doubts = (*request.doubts, (request.attempt, cause))
        request.attempt.replica.doubted_count += 1
        return []

    def proven(self, request: Request, now_s: float) -> list[events.Effect]:
        """A replica answers the request: nothing is wrong with it, and who failed it before is to blame."""
        here = request.attempt.replica
        here.doubted_count = 0
        if not request.doubts:
            return []
        elsewhere = [doubt for doubt in request.doubts if doubt[0].replica is not here]
        request.doubts = ()
        return [effect for doubt in elsewhere for effect in self._blamed(*doubt, now_s)]

    def unheard(self, request: Request, now_s: float) -> list[events.Effect]:
        """Given up where one replica alone was asked: its silence counts against it, its error does not."""
        if len({attempt.replica.replica_id for attempt, _ in request.doubts}) != 1:
            return []
        silent = [doubt for doubt in request.doubts if doubt[1] is not events.Cause.ERROR]
        return [effect for doubt in silent for effect in self._blamed(*doubt, now_s)]

    def ended(self, request: Request) -> None:
        """An answer ended well."""
        replica = request.attempt.replica
        if replica.circuit.opened_count:
            replica.circuit = breaker.after_response_ended(replica.circuit, request.attempt.era)

    def probed(
        self, replica: Replica, event: events.ProbeAnswered | events.ProbeFailed, now_s: float
    ) -> list[events.Effect]:
        """One of a replica's unreported probes ended; they end in any order, as after a time-out."""
        era = replica.probe_eras.pop(event.number)
        if isinstance(event, events.ProbeAnswered):
            if replica.circuit.until_s is None:
                return []  # it is closed, and stays so
            circuit = breaker.after_probe_answered(replica.circuit, era, now_s)
        else:
            settings = self._view.settings
            circuit = breaker.after_probe_failed(replica.circuit, era, event.cause, now_s, settings)
        return self._switched(replica, circuit)

    def probes(self, now_s: float) -> list[events.Effect]:
        """Probe everyone; the next turn is due from now on, so that a clock's leap causes no burst."""
        self.probe_at_s = now_s + self._view.settings.probe_every_s
        self._turn_number += 1
        number = self._turn_number
        effects: list[events.Effect] = []
        hosted = self._view.overflow
        asked = list(self._view.replicas.values())
        if hosted is not None and hosted.circuit.until_s is not None:
            asked.append(hosted)  # a host of others is not asked four times a second whether it is there
        for replica in asked:
            if not replica.draining:
                eras = replica.probe_eras
                if len(eras) == UNREPORTED_PROBES_MAX:
                    del eras[next(iter(eras))]
                eras[number] = replica.circuit.era
                effects.append(events.Probe(replica.replica_id, number))
        return effects

    def _blamed(self, attempt: Attempt, cause: events.Cause, now_s: float) -> list[events.Effect]:
        replica, settings = attempt.replica, self._view.settings
        if self._outliers is not None and replica is not self._view.overflow:
            self._outliers.observe(replica.replica_id, now_s, failed=True)
        circuit = breaker.after_request_failed(replica.circuit, attempt.era, cause, now_s, settings)
        return self._switched(replica, circuit)

    def _switched(self, replica: Replica, circuit: Circuit) -> list[events.Effect]:
        """Give a replica its new circuit, and say whether it opened or closed; of a removed one, nothing."""
        before, replica.circuit = replica.circuit, circuit
        if replica.draining or circuit.until_s == before.until_s:
            return []
        self._view.count_places()
        if circuit.until_s is None:
            self._router.fleet_changed()
            return [events.CloseCircuit(replica.replica_id)]
        # A process that died comes back with an empty cache; of one that only failed, little is lost.
        self._router.fleet_changed(replica.replica_id)
        return [events.OpenCircuit(replica.replica_id, circuit.until_s)]
