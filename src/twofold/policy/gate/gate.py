"""The serving machine: what may come in, where it goes, who is trusted; one machine for twin and live.

The order of decisions about a request stands in request_path.py, what becomes of its attempts in answers.py,
circuits in health.py; here are the replicas that come and go, and what is done whenever some time has passed.
"""

import math
from collections.abc import Collection, Sequence
from typing import assert_never

from twofold.policy.gate import events
from twofold.policy.gate.admission import Level
from twofold.policy.gate.answers import Answers
from twofold.policy.gate.canary import Trial
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.health import Health
from twofold.policy.gate.request_path import RequestPath
from twofold.policy.gate.routing import Router
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.policy.gate.steering import Steering
from twofold.policy.gate.tiers import Tier
from twofold.policy.machine import Machine, Woke


class Gate(Machine[events.Event, events.Effect]):
    """For one fleet of equal replicas. `view` is for reading; only events change it.

    Time starts at 0 and never runs backwards inside: an event is handled at the latest time seen, and a time
    that is not finite counts as none. Events about requests that have ended or replicas that are gone, and
    first bytes or probes reported twice, are counted as ignored. A request id that was never given out is the
    driver's mistake (AssertionError), as is a limit below 1 or a negative number of tokens.
    """

    def __init__(self, settings: GateSettings, beliefs: Beliefs) -> None:
        self.view = FleetView(settings, beliefs)
        self._router = Router(settings.routing, settings.routes)
        steers = settings.outliers or settings.zones or settings.scaling or settings.canary
        self._steering = Steering(self.view, self._router) if steers else None
        outliers = self._steering.outliers if self._steering is not None else None
        self._health = Health(self.view, self._router, outliers)
        self._path = RequestPath(self.view, self._router, self._steering)
        self._answers = Answers(self.view, self._path, self._health, self._steering)
        self._seen_s = 0.0

    @property
    def tiers(self) -> Sequence[Tier]:
        """The CPU tiers before the fleet, in their order."""
        return self._path.tiers.tiers if self._path.tiers is not None else ()

    @property
    def trials(self) -> Collection[Trial]:
        """Of each pool the release that is under trial, else the one that was last."""
        canary = self._steering.canary if self._steering is not None else None
        return canary.latest.values() if canary is not None else ()

    @property
    def releases(self) -> Collection[str]:
        """Versions under trial, and those of which replicas still come or go after it."""
        return self._steering.releases() if self._steering is not None else ()

    def handle(self, event: events.Event, now_s: float) -> list[events.Effect]:
        """Fold one event in; an arrival is answered by exactly one Decision of its own."""
        if self._seen_s < now_s < math.inf:
            self._seen_s = now_s
        now_s, view, steering = self._seen_s, self.view, self._steering
        match event:
            case events.RequestArrived():
                effects = self._path.arrived(event, now_s)
                if steering is not None and not view.place_count and view.held:
                    effects += steering.wanted(now_s)
                return effects
            case (
                events.ResponseStarted()
                | events.ResponseEnded()
                | events.ResponseFailed()
                | events.ClientLeft()
            ):
                return self._answers.handle(event, now_s)
            case events.TierAnswered() | events.TierFailed():
                tiers = self._path.tiers
                moved = tiers.handle(event, now_s) if tiers is not None else None
                return view.ignored() if moved is None else self._path.moved(moved, now_s)
            case events.ProbeAnswered() | events.ProbeFailed():
                replica = view.known(event.replica_id)
                if replica is None or event.number not in replica.probe_eras:
                    return view.ignored()
                effects = self._health.probed(replica, event, now_s)
                return effects + self._path.drained(now_s) if effects else effects
            case Woke():
                return self._woke(now_s)
            case events.ReplicaAdded():
                return self._added(event, now_s)
            case events.ReplicaRemoved():
                replica = view.replicas.get(event.replica_id)
                if replica is None or replica.draining:
                    return view.ignored()
                view.remove_replica(replica)
                return self._fleet_changed(replica.replica_id)
            case events.ReplicaReported():
                replica = view.replicas.get(event.replica_id)
                if replica is None or (replica.report and replica.report.observed_s > event.observed_s):
                    return view.ignored()
                replica.report = event
                return []
            case events.BeliefsChanged():
                self.view.beliefs = Beliefs(event.input_token_s, event.output_token_s, event.first_token_s)
                return []
            case (
                events.ReplicaStartFailed()
                | events.ReleaseOffered()
                | events.ReleaseWithdrawn()
                | events.AnswerScored()
            ):
                followed = None if steering is None else steering.told(event, now_s)
                effects = view.ignored() if followed is None else followed + self._path.drained(now_s)
                if self._path.cache is not None and isinstance(event, events.ReleaseOffered):
                    effects += self._path.cache.emptied()
                return effects
            case _:
                assert_never(event)

    def wake_at_s(self) -> float | None:
        """When probes are due, a request's time is up, or the fleet is to be looked at; None: never."""
        # HOT: after every event; `all` and `min` over a list were 2.5 times slower: bench/twin.py
        due_s = self._path.next_due_s()
        steering = self._steering
        hosted = self.view.overflow
        staying = self.view.active_count > 0 or (hosted is not None and hosted.circuit.until_s is not None)
        if staying and (due_s is None or self._health.probe_at_s < due_s):
            due_s = self._health.probe_at_s
        if steering is None or not (staying or steering.scaler is not None):
            return due_s
        return steering.next_due_s if due_s is None or steering.next_due_s < due_s else due_s

    def _woke(self, now_s: float) -> list[events.Effect]:
        """Ends and hedges that are due, and what steers the fleet; the rest as often as probes are."""
        effects = self._path.expired(now_s) + self._path.hedged(now_s)
        if self._path.tiers is not None:
            effects += self._path.moved(self._path.tiers.woke(now_s), now_s)
        if self._steering is not None and now_s >= self._steering.next_due_s:
            effects += self._steering.tick(now_s) + self._path.drained(now_s)
        if now_s < self._health.probe_at_s:
            return effects
        effects += self._health.probes(now_s)
        self.view.count_places()
        view, ladder = self.view, self._path.ladder
        if ladder and ladder.tick(len(view.held), view.at_home_count, view.place_count, now_s):
            effects.append(events.Degrade(ladder.level))
            view.in_need = ladder.level >= Level.SMALLER
            view.count_places()
        if (cache := self._path.cache) is not None:
            effects += cache.fleet_changed(view.members("")) + cache.expired(now_s)
        return effects + self._path.drained(now_s)

    def _added(self, event: events.ReplicaAdded, now_s: float) -> list[events.Effect]:
        hosted = self.view.overflow
        assert event.in_flight_limit >= 1 and (hosted is None or event.replica_id != hosted.replica_id), event
        if not self.view.active_count:
            self._health.probe_at_s = now_s
        self.view.add_replica(event)
        if self._steering is not None:
            self._steering.added(event, now_s)
        return self._fleet_changed() + self._path.drained(now_s)

    def _fleet_changed(self, gone_id: str | None = None) -> list[events.Effect]:
        self._router.fleet_changed(gone_id)
        self.view.count_places()
        cache = self._path.cache
        return cache.fleet_changed(self.view.members("")) if cache is not None else []
