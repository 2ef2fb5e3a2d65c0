"""All that changes the fleet by the clock, in one place: outliers, zones, releases, replicas. Mutable.

The gate reports what happens to requests and replicas, and asks `tick` when something is due. Each part is a
machine of its own (outliers.py, canary.py, rollout.py, scaling.py); here their effects are folded
into the view and into what the router knows. A part that is not set is not there.
"""

from collections import Counter

from twofold.policy.gate import events
from twofold.policy.gate.canary import Canary, Outcome
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.outliers import Outliers, ZoneWatch
from twofold.policy.gate.rollout import Rollout
from twofold.policy.gate.routing import Router
from twofold.policy.gate.scaling import Scaler
from twofold.policy.gate.settings import home_pool

BEGUN_SPARE = 1000  # answers that began and were left by their clients, until they are forgotten
CANARY_TICK_S = 5.0


class Steering:
    """Bounded by the replicas and by the settings of its parts."""

    def __init__(self, view: FleetView, router: Router) -> None:
        settings = view.settings
        self._view, self._router = view, router
        self._rules = settings.routes.pools
        self._of_all_pools: set[str] = set()  # versions under trial that are for every pool
        spare_count = settings.zones.spare_zones_count if settings.zones else 0
        self.outliers = Outliers(settings.outliers) if settings.outliers else None
        self.zones = ZoneWatch(settings.zones) if settings.zones else None
        self.canary = Canary(settings.canary, settings.routes.seed) if settings.canary else None
        self.rollout = Rollout(settings.rollout) if settings.canary and settings.rollout else None
        self.scaler = Scaler(settings.scaling, settings.warm, spare_count) if settings.scaling else None
        # While a release is tried: of replicas time and load-seconds then, of answers those at their start.
        self._loads_s: dict[str, tuple[float, float]] = {}
        self._begun_s: dict[int, float] = {}
        # Parts in the order in which they act: who is spared first, then what that leaves to be replaced.
        every_s = {
            "outliers": settings.outliers.tick_s if settings.outliers else None,
            "zones": settings.zones.tick_s if settings.zones else None,
            "canary": CANARY_TICK_S if settings.canary else None,
            "rollout": settings.rollout.tick_s if settings.canary and settings.rollout else None,
            "scaling": settings.scaling.tick_s if settings.scaling else None,
        }
        self._every_s = {name: each_s for name, each_s in every_s.items() if each_s is not None}
        self._due_s = dict.fromkeys(self._every_s, 0.0)
        self.next_due_s = 0.0  # when `tick` has something to do

    # --- what happens ---

    def arrived(self, request: Request, now_s: float) -> None:
        """A request within limits and budget: does it try a release? Refused later, it counts as load too."""
        if self.scaler is not None:
            self.scaler.observe_arrival(self._pool_of(request), now_s, self._work_s(request))
        if self.canary is not None and self.canary.trials:
            pool = self._pool_of(request)
            request.version = self.canary.version_for(pool, request.arrival.session_id, request.request_id)

    def started(self, request: Request, now_s: float) -> None:
        """An answer began."""
        if self.canary is not None and self.canary.trials:
            begun_s, requests = self._begun_s, self._view.requests
            begun_s[request.request_id] = self._load_s(request.attempt.replica, now_s)
            if len(begun_s) > len(requests) + BEGUN_SPARE:
                self._begun_s = {name: at_s for name, at_s in begun_s.items() if name in requests}
        limit_s = request.kind.ttft_slo_s
        beliefs = self._view.beliefs
        # On an idle replica, as is believed: more replicas make none faster.
        alone_s = request.input_tokens * beliefs.input_token_s + beliefs.first_token_s
        if self.scaler is not None and limit_s is not None and alone_s < limit_s:
            late, slow = now_s - request.arrived_s > limit_s, now_s - request.attempt.sent_s > limit_s
            self.scaler.observe_first_token(self._pool_of(request), late, slow)

    def ended(self, request: Request, event: events.ResponseEnded, now_s: float) -> list[events.Effect]:
        """An answer ended, before its places are freed."""
        replica = request.attempt.replica
        ttft_s = request.started_s - request.attempt.sent_s if request.started else None
        tpot_s = None
        if request.started and event.output_tokens > 1:
            tpot_s = (now_s - request.started_s) / (event.output_tokens - 1)
        if self.scaler is not None and not self._view.is_smaller(replica):
            residence_s = now_s - request.attempt.sent_s
            pool, work_s = self._pool_of(request), self._work_s(request)
            self.scaler.observe_finished(pool, work_s, residence_s, replica.in_flight_count)
        if self.outliers is not None:
            self.outliers.observe(replica.replica_id, now_s, failed=False, ttft_s=ttft_s, tpot_s=tpot_s)
        if self.canary is None or not self.canary.trials:
            return []
        # A hedge hides how late the first attempt was, and a release on few replicas is hardly ever hedged.
        asked = request.late or request.attempt
        beside_count = float(replica.in_flight_count)  # on average, while it wrote
        since_s = self._begun_s.pop(request.request_id, None)
        if since_s is not None and now_s > request.started_s:
            beside_count = (self._load_s(replica, now_s) - since_s) / (now_s - request.started_s)
        outcome = Outcome(
            False,
            request.started_s - asked.sent_s if request.started else None,
            tpot_s,
            event.quality_score,
            beside_count,
            request.input_tokens,
            asked.beside_count,
            asked.ahead_tokens,
            now_s - request.attempt.sent_s,
        )
        return self._judged(replica, outcome, now_s)

    def failed(self, request: Request, now_s: float) -> list[events.Effect]:
        """An attempt failed, before its places are freed. A repeat tries no release."""
        replica = request.attempt.replica
        request.version = None
        if self.canary is None or not self.canary.trials:
            return []
        return self._judged(replica, Outcome(failed=True), now_s)

    def left(self, request: Request, now_s: float) -> list[events.Effect]:
        """A client left before its first token, and before its places are freed.

        Why     A release that hangs is left by everybody: were that no outcome, nothing would judge it. Who
                goes sooner than an answer can begin, by what is believed, says nothing of the replica.
        Limits  Not for outliers: no other replica has shown that the request was not to blame (INV-17).
        """
        if self.canary is None or not self.canary.trials:
            return []
        beliefs, attempt = self._view.beliefs, request.attempt
        if now_s - attempt.sent_s <= attempt.ahead_tokens * beliefs.input_token_s + beliefs.first_token_s:
            return []
        return self._judged(attempt.replica, Outcome(failed=True), now_s)

    def added(self, event: events.ReplicaAdded, now_s: float) -> None:
        """A replica is in the view."""
        if self.scaler is not None:
            self.scaler.replica_added(event.replica_id, now_s)
        if self.rollout is not None and self.canary is not None:
            self.rollout.replica_added(event.replica_id, self.canary.promoted.values())
        if self.zones is not None:
            self._view.replicas[event.replica_id].zone_lost = event.zone in self.zones.lost
        self._spread_trials()

    def told(self, event: events.Steered, now_s: float) -> list[events.Effect] | None:
        """A start failed, a release is to be tried or no longer, or answers on the side were judged; None: it
        is no start or trial of ours."""
        if isinstance(event, events.ReplicaStartFailed):
            machines = (self.scaler, self.rollout)
            ours = any(each is not None and each.start_failed(event.replica_id, now_s) for each in machines)
            return [] if ours else None
        if self.canary is None:
            return None
        pool = self._tried_in(event)
        if isinstance(event, events.AnswerScored):
            trial = self.canary.trials.get(pool)
            if trial is None or trial.version != event.version:
                return None
            due = trial.scored(event.score - event.beside_score, now_s)
            return self._folded(self.canary.tick(now_s)) if due else []
        if isinstance(event, events.ReleaseOffered):
            if self.rollout is not None:
                self.rollout.offered(self._view, event.version, pool)
            effects = self.canary.offered(event.version, pool, now_s)
        else:
            effects = self.canary.withdrawn(event.version)
        folded = self._folded(effects + self._rolled_out(now_s)) if effects else None
        if isinstance(event, events.ReleaseOffered) and self._rules is not None and not event.pool:
            self._of_all_pools.add(event.version)  # last: a trial of the same version may just have ended
        return folded

    def releases(self) -> set[str]:
        """Versions under trial, and those of which replicas still come or go after it."""
        tried = {trial.version for trial in self.canary.trials.values()} if self.canary is not None else set()
        return tried | {version for version, _ in self.rollout.courses} if self.rollout is not None else tried

    # --- by the clock ---

    def tick(self, now_s: float) -> list[events.Effect]:
        """Whatever is due, each part from now on anew."""
        effects: list[events.Effect] = []
        for name, due_s in self._due_s.items():
            if now_s >= due_s:
                effects += self._acted(name, now_s)
        self.next_due_s = min(self._due_s.values())
        return effects

    def wanted(self, now_s: float) -> list[events.Effect]:
        """A request is held and no replica is there: do not wait for the scaler's turn."""
        if self.scaler is None or any(state.starts.pending for state in self.scaler.pools.values()):
            return []
        return self._acted("scaling", now_s)

    def _acted(self, name: str, now_s: float) -> list[events.Effect]:
        view = self._view
        self._due_s[name] = now_s + self._every_s[name]
        if name == "outliers" and self.outliers is not None:
            return self._folded(self.outliers.tick(view, now_s))
        if name == "zones" and self.zones is not None:
            return self._folded(self.zones.tick(view, now_s))
        if name == "canary" and self.canary is not None:
            self._spread_trials()
            return self._folded(self.canary.tick(now_s))
        if name == "rollout":
            return self._folded(self._rolled_out(now_s))
        assert self.scaler is not None
        held = Counter(self._pool_of(request) for request in view.held.values())
        lost = self.zones.lost if self.zones is not None else ()
        versions = self.canary.promoted if self.canary is not None else {}
        kept = self._router.trial_versions
        return self._folded(self.scaler.tick(view, now_s, held, lost, versions, kept))

    def _rolled_out(self, now_s: float) -> list[events.Effect]:
        if self.rollout is None or self.canary is None or not self.rollout.courses:
            return []
        trials = self.canary.trials.values()
        shares = {t.version: t.settings.stages[t.stage_index_value].share_fraction for t in trials}
        scaled = self.scaler.pools if self.scaler is not None else ()
        return self.rollout.tick(self._view, now_s, shares, self.canary.promoted.values(), scaled)

    def _judged(self, replica: Replica, outcome: Outcome, now_s: float) -> list[events.Effect]:
        assert self.canary is not None
        if self._view.is_smaller(replica):  # it says nothing of releases
            return []
        pool = replica.added.pool if self._rules is not None else ""
        if not self.canary.observe(pool, replica.added.version, outcome, now_s):
            return []
        return self._folded(self.canary.tick(now_s))

    def _folded(self, effects: list[events.Effect]) -> list[events.Effect]:
        """What the effects mean for the view and for the router."""
        view = self._view
        for effect in effects:
            match effect:
                case events.EjectReplica():
                    view.replicas[effect.replica_id].ejected_until_s = effect.until_s
                case events.ReadmitReplica():
                    view.replicas[effect.replica_id].ejected_until_s = None
                case events.StopReplica() if effect.replica_id in view.replicas:  # else it is not ready yet
                    view.remove_replica(view.replicas[effect.replica_id])
                    self._router.fleet_changed(effect.replica_id)
                case events.PromoteRelease():
                    self._follow(effect.version)
                case events.RollBackRelease():
                    self._of_all_pools.discard(effect.version)
                case events.FailOverZone() | events.RestoreZone():
                    for replica in view.replicas.values():
                        if replica.added.zone == effect.zone:
                            replica.zone_lost = isinstance(effect, events.FailOverZone)
                case _:
                    pass
        if effects:
            self._spread_trials()
            self._router.fleet_changed()
            view.count_places()
        return effects

    def _tried_in(self, event: events.ReleaseOffered | events.ReleaseWithdrawn | events.AnswerScored) -> str:
        """The pool of the trial that is meant: where none is named, that of those who wait."""
        if self._rules is None or isinstance(event, events.ReleaseWithdrawn):
            return ""
        return event.pool or self._rules.latency_pool

    def _follow(self, version: str) -> None:
        """What was promoted for every pool runs in the others too."""
        if self.canary is None or self._rules is None or version not in self._of_all_pools:
            return
        self._of_all_pools.discard(version)
        for pool in (self._rules.latency_pool, self._rules.bulk_pool):
            if self.canary.promoted.get(pool) != version:
                self.canary.promoted[pool] = version
                if self.rollout is not None:
                    self.rollout.offered(self._view, version, pool)

    def _spread_trials(self) -> None:
        """Tell the router who is tried or banned, and trials what part of the places their replicas have."""
        canary = self.canary
        if canary is None:
            return
        trials = canary.trials
        self._router.trial_versions = {trial.version for trial in trials.values()} | canary.banned.keys()
        if not trials:
            self._loads_s, self._begun_s = {}, {}
        for pool, trial in trials.items():
            fit = [replica for replica in self._view.members(pool) if replica.healthy]
            places = sum(replica.in_flight_limit for replica in fit)
            new = sum(each.in_flight_limit for each in fit if each.added.version == trial.version)
            trial.capacity_fraction = new / places if places else 0.0

    def _load_s(self, replica: Replica, now_s: float) -> float:
        """Requests that the replica has had, times seconds, since it was first asked for.

        Counts are taken to have been as they are now since the last look; looks are as frequent as answers.
        """
        at_s, load_s = self._loads_s.get(replica.replica_id, (now_s, 0.0))
        load_s += (now_s - at_s) * replica.in_flight_count
        self._loads_s[replica.replica_id] = (now_s, load_s)
        return load_s

    def _pool_of(self, request: Request) -> str:
        return home_pool(self._rules, request.arrival.class_name)

    def _work_s(self, request: Request) -> float:
        beliefs = self._view.beliefs
        return (
            request.input_tokens * beliefs.input_token_s
            + request.output_limit_tokens * beliefs.output_token_s
        )
