"""What replicas and clients say of requests: folds it in, repeats what failed, and lets in who waits."""

from typing import assert_never

from twofold.policy.gate import events, poison
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.health import Health
from twofold.policy.gate.request_path import RequestPath
from twofold.policy.gate.steering import Steering

STEP_FRACTION = 0.02  # of the announced places, by which a slow answer lowers their number
LEAST_FRACTION = 0.25  # of them: fewer would starve a replica that is slow whatever it has


def learn(view: FleetView, replica: Replica, tpot_s: float, slo_s: float, attained_fraction: float) -> None:
    """How many requests a replica takes at once, after one was answered at such a pace.

    Formula  down by step · attained after a slow answer, up by step · (1 - attained) after any other
    Why      A replica announces as many places as it can hold. Under load that does not let up all of them
             are taken, and each token waits for all the others': what was room for a burst becomes the usual
             state, and tokens come later than promised. This learns their number from the answers, and
             stands still where just as many are in time as was promised (Robbins & Monro 1951).
    """
    step = (1.0 - attained_fraction) if tpot_s <= slo_s else -attained_fraction
    fraction = replica.places_fraction + STEP_FRACTION * step
    replica.places_fraction = min(max(fraction, LEAST_FRACTION), 1.0)
    limit = max(round(replica.places_fraction * replica.added.in_flight_limit), 1)
    if limit != replica.in_flight_limit:
        if replica.healthy:
            view.place_count += limit - replica.in_flight_limit
        replica.in_flight_limit = limit


class Answers:
    """One request's attempts, from the first byte to the last. No state of its own."""

    def __init__(
        self, view: FleetView, path: RequestPath, health: Health, steering: Steering | None = None
    ) -> None:
        self._view, self._path, self._health, self._steering = view, path, health, steering

    def handle(self, event: events.Answered | events.ClientLeft, now_s: float) -> list[events.Effect]:
        """Of a request that has ended, and of an attempt that was cancelled, nothing is heard any more."""
        assert 1 <= event.request_id <= self._path.given_ids, event
        request = self._view.requests.get(event.request_id)
        if isinstance(event, events.ClientLeft):
            return self._left(request, event.request_id, now_s)
        if request is None:
            return self._view.ignored()
        if event.attempt not in (0, request.attempt.number):
            if request.rival is None or request.rival.number != event.attempt:
                return self._view.ignored()
            self._view.swap(request)  # the attempt that is spoken of becomes the request's
        match event:
            case events.ResponseStarted():
                return self._view.ignored() if request.started else self._started(request, now_s)
            case events.ResponseEnded():
                return self._ended(request, event, now_s)
            case events.ResponseFailed():
                return self._failed(request, event, now_s)
            case _:
                assert_never(event)

    def _started(self, request: Request, now_s: float) -> list[events.Effect]:
        had_rival, away = request.rival is not None, self._is_away(request)
        pace = None if away else self._path.pace
        effects = self._begun(request, now_s)
        # When an answer begins says how fast the fleet is; of one that came in one piece nobody knows.
        if pace is not None:
            if not had_rival:
                pace.began(request.believed_s, now_s - request.attempt.sent_s)
            if request.predicted_s is not None:
                late_s = now_s - request.arrived_s - request.predicted_s
                pace.waited(request.kind.name, late_s, request.spread_s)
        self._view.start(request)
        request.started_s = now_s
        if self._steering is not None and not away:
            self._steering.started(request, now_s)
        return effects + self._health.proven(request, now_s)

    def _begun(self, request: Request, now_s: float) -> list[events.Effect]:
        """It was the first of its attempts to answer: the other is cancelled."""
        effects: list[events.Effect] = []
        path = self._path
        if request.rival is not None:
            loser = self._view.drop_rival(request)
            request.late = loser if loser.number < request.attempt.number else None
            effects.append(events.Cancel(request.request_id, loser.replica.replica_id, loser.number))
            effects += path.drained(now_s, 1)
        if path.hedger is not None:
            path.hedger.began(request.request_id, now_s)
        return effects

    def _ended(self, request: Request, event: events.ResponseEnded, now_s: float) -> list[events.Effect]:
        view, path, tokens = self._view, self._path, event.output_tokens
        away = self._is_away(request)
        is_own = not away and not view.is_smaller(request.attempt.replica)  # the service's own model wrote it
        effects = [] if request.started else self._begun(request, now_s)
        self._health.ended(request)
        effects += self._health.proven(request, now_s)
        view.counts.finished += 1
        if self._steering is not None and not away:
            effects += self._steering.ended(request, event, now_s)
        if path.pace and is_own:
            wrote_s = now_s - request.started_s if request.started else None
            path.pace.finished(request.kind.name, tokens, wrote_s)
            admission, slo_s = view.settings.admission, request.kind.tpot_slo_s
            if admission is not None and slo_s is not None and wrote_s is not None and tokens > 1:
                tpot_s = wrote_s / (tokens - 1)
                learn(view, request.attempt.replica, tpot_s, slo_s, admission.attained_fraction)
        if path.suspects is not None and tokens:  # an engine that refuses it, has not run it
            path.suspects.answered(request.arrival.prompt_digest)
        kept = event.answer_bytes and request.answer_era is not None and is_own
        if path.cache is not None and kept:
            effects += path.cache.keep(request, event.answer_bytes, now_s)
        # What was used is what counts, be it more or less than was charged when it came.
        read_tokens = request.input_tokens if event.input_tokens is None else event.input_tokens
        unused_tokens = request.charged_tokens - read_tokens - tokens
        if unused_tokens:
            path.settled(request, unused_tokens)
        self._released(request, now_s)
        return effects + path.drained(now_s, 1) if view.held else effects

    def _left(self, request: Request | None, request_id: int, now_s: float) -> list[events.Effect]:
        if request is None and (gone := self._path.left_tiers(request_id, now_s)) is not None:
            self._view.counts.left += 1
            return gone
        if request is None and request_id not in self._view.held:
            return self._view.ignored()
        self._view.counts.left += 1
        if request is None:
            request = self._path.unheld(request_id)
            self._path.settled(request, request.charged_tokens)
            return [events.Cancel(request_id, "", 0)]
        effects: list[events.Effect] = []
        if not request.started:
            if request.rival is not None and request.rival.number < request.attempt.number:
                self._view.swap(request)  # the first of two waited longer
            if self._steering is not None and not self._is_away(request):
                effects = self._steering.left(request, now_s)
            self._path.settled(request, request.charged_tokens - request.input_tokens)
        self._released(request, now_s)
        return effects + self._path.drained(now_s)

    def _failed(self, request: Request, event: events.ResponseFailed, now_s: float) -> list[events.Effect]:
        effects = self._health.failed(request, event.cause, now_s)
        away = self._is_away(request)
        if self._steering is not None and not away:
            effects += self._steering.failed(request, now_s)
        suspects = None if away else self._path.suspects
        is_death = suspects is not None and poison.is_death(event.cause, request.attempt)
        if is_death:
            effects += self._suspected(request, now_s)
        if request.rival is not None:  # its other attempt goes on
            self._view.swap(request)
            self._view.drop_rival(request)
            return effects + self._path.drained(now_s, 1)
        self._released(request, now_s)
        if not request.started:
            may_repeat = not is_death or self._may_kill_again(request)
            again = self._path.repeated(request, now_s) if may_repeat else None
            if again is not None:
                return [*effects, again, *self._path.drained(now_s, 1)]
            self._path.settled(request, request.charged_tokens - request.input_tokens)
        effects += self._health.unheard(request, now_s)
        self._view.counts.gave_up += 1
        return [*effects, events.GiveUp(request.request_id, event.cause), *self._path.drained(now_s, 1)]

    def _is_away(self, request: Request) -> bool:
        """Whether it is at the hosted API, of which nothing is learnt about the fleet."""
        return self._view.overflow is not None and request.attempt.replica is self._view.overflow

    def _suspected(self, request: Request, now_s: float) -> list[events.Effect]:
        """It was on a replica that died."""
        suspects, digest = self._path.suspects, request.arrival.prompt_digest
        if suspects is None or not suspects.died(digest, request.attempt, now_s):
            return []
        return [events.BlockPrompt(digest, now_s + suspects.settings.block_s)]

    def _may_kill_again(self, request: Request) -> bool:
        """Whether what a replica may have died of is tried on another: once, and not on the last."""
        return request.sent_count == 1 and poison.spares_another(self._view, request.attempt)

    def _released(self, request: Request, now_s: float) -> None:
        """No attempt of it runs: its places are free."""
        if self._path.pace and not self._is_away(request):
            self._path.pace.freed(request.charged_tokens, now_s - request.attempt.sent_s)
        if self._path.hedger is not None:
            self._path.hedger.ended(request.request_id)
        self._view.release(request)
