"""A request's way through the gate: every decision about it, in the one order.

rate limit → poison → kept answers → repeats → shedding → tiers → class queue → route → admission
  → (breaker: health.py) → retry and hedge

What is not set is not there: with nothing set, a request is sent or refused at once, and repeated elsewhere.
"""

import math
from functools import partial

from twofold.policy.gate import admission
from twofold.policy.gate.admission import Ladder, is_shed, shortened_tokens, smaller_model
from twofold.policy.gate.answer_cache import AnswerCache
from twofold.policy.gate.events import (
    Effect,
    GiveAgain,
    GiveUp,
    Hold,
    RefusalReason,
    Refuse,
    RequestArrived,
    Send,
)
from twofold.policy.gate.fair_queue import FairQueue
from twofold.policy.gate.fleet_view import ANY_CLASS, Attempt, FleetView, Replica, Request
from twofold.policy.gate.limits import Limiter, Reserve
from twofold.policy.gate.pace import Pace
from twofold.policy.gate.poison import Suspects
from twofold.policy.gate.retry import ClientBudget, Hedger, RetryBudget
from twofold.policy.gate.routing import Router
from twofold.policy.gate.settings import pools_for
from twofold.policy.gate.steering import Steering
from twofold.policy.gate.tiers import Moved, Tiers

DRAIN_MAX = 1_000_000  # as many as there are


class RequestPath:
    """Mutable: limits used, who waits, what was learnt. Bounded by the settings and by what is in flight."""

    def __init__(self, view: FleetView, router: Router, steering: Steering | None = None) -> None:
        self._view, self._router, self._steering = view, router, steering
        settings = view.settings
        classes = settings.classes or (ANY_CLASS,)
        self._kinds = {each.name: each for each in classes}
        self._any_kind = classes[0]
        self.given_ids = 0
        self._limiter = Limiter(settings.limits) if settings.limits else None
        self._queue = FairQueue(settings.queue, classes) if settings.queue else None
        self._reserves: dict[str, Reserve] = {}  # by class
        self._kept_fraction = 0.0
        if settings.queue is not None and settings.queue.kept_fraction:
            self._kept_fraction, most_count = settings.queue.kept_fraction, settings.queue.tenant_count_max
            self._reserves = {name: Reserve(self._kept_fraction, most_count) for name in self._kinds}
        self._budget = RetryBudget(settings.retry_budget) if settings.retry_budget else None
        self._client_budget = ClientBudget(settings.retry_budget) if settings.retry_budget else None
        self.suspects = Suspects(settings.poison) if settings.poison else None
        self.cache = AnswerCache(settings.answer_cache) if settings.answer_cache else None
        self.hedger = Hedger(settings.hedge) if settings.hedge else None
        self.ladder = Ladder(settings.degradation) if settings.degradation else None
        self.tiers = Tiers(settings) if settings.tiers else None
        self.pace: Pace | None = None
        if settings.admission:
            self.pace = Pace(settings.admission.attained_fraction, tuple(self._kinds))

    def next_due_s(self) -> float | None:
        """When a held request's time is up or an attempt is late, whichever comes first."""
        due_s = self._queue.next_expiry_s() if self._view.held and self._queue is not None else None
        hedge_s = self.hedger.next_due_s() if self.hedger is not None else None
        due_s = hedge_s if hedge_s is not None and (due_s is None or hedge_s < due_s) else due_s
        tier_s = self.tiers.next_due_s() if self.tiers is not None else None
        return tier_s if tier_s is not None and (due_s is None or tier_s < due_s) else due_s

    # --- arrival ---

    def arrived(self, event: RequestArrived, now_s: float) -> list[Effect]:
        """One Decision of this request; a full queue may refuse another one besides."""
        assert event.input_tokens >= 0 and event.output_limit_tokens >= 0, event
        view = self._view
        self.given_ids += 1
        view.counts.arrived += 1
        kind = self._kinds.get(event.class_name, self._any_kind)
        # HOT: per request; names instead of places cost a quarter more: bench/policy.py
        request = Request(self.given_ids, event, now_s, kind)
        if kind.e2e_slo_s is not None and event.deadline_s is None:
            request.deadline_s = now_s + kind.e2e_slo_s
        tokens = event.input_tokens + event.output_limit_tokens
        if self._limiter is not None:
            wait_s = self._limiter.take_or_wait_s(event.tenant, kind.name, tokens, now_s)
            if wait_s > 0.0:
                return [self._refused(request, RefusalReason.RATE, wait_s)]
        request.charged_tokens = tokens
        if self.suspects is not None and event.prompt_digest:
            blocked_s = self.suspects.blocked_s(event.prompt_digest, now_s)
            if blocked_s > 0.0:
                return [self._refused(request, RefusalReason.POISON, blocked_s)]
        if self.cache is not None and event.answer_key:
            answer_id = self.cache.hit(event.tenant, event.answer_key, now_s)
            if answer_id is not None:
                return [self._given_again(request, answer_id)]
            request.answer_era = self.cache.era if self.cache.is_sure else None
        if self._budget is not None and self._client_budget is not None:
            if not event.retry_count:
                self._budget.arrived()
                self._client_budget.arrived(event.tenant)
            elif not self._client_budget.take(event.tenant, now_s):
                again_s = self._client_budget.common.until_one_s()
                return [self._refused(request, RefusalReason.RETRY, again_s)]
        if self._steering is not None:
            self._steering.arrived(request, now_s)
        if self.hedger is not None:
            self.hedger.arrived()
        if self.ladder is not None and is_shed(self.ladder.level, kind):
            lower_s = self.ladder.settings.lower_after_s
            return [self._elsewhere(request, RefusalReason.SHED, lower_s, now_s)]
        if self.tiers is not None:
            return self._into_tiers(self.tiers, request, now_s)
        return self._seen_admitted(request, now_s)

    def _seen_admitted(self, request: Request, now_s: float) -> list[Effect]:
        """The same, and the ladder sees whether it found a place here."""
        effects = self._admitted(request, now_s)
        if self.ladder is not None:
            last, hosted = effects[-1], self._view.overflow
            sent_home = isinstance(last, Send) and (hosted is None or last.replica_id != hosted.replica_id)
            self.ladder.arrived(not sent_home)
        return effects

    # --- tiers ---

    def _into_tiers(self, tiers: Tiers, request: Request, now_s: float) -> list[Effect]:
        """Held until it is through all of them; refused where the first one's line is full."""
        moved = tiers.enter(request, now_s)
        if moved.refused:
            return self.moved(moved, now_s)
        self._view.tiered[request.request_id] = request
        return [Hold(request.request_id), *moved.effects]

    def moved(self, moved: Moved, now_s: float) -> list[Effect]:
        """What becomes of requests that tiers are done with, one way or another."""
        effects = moved.effects
        for request, reason, again_s in moved.refused:
            self._view.tiered.pop(request.request_id, None)
            effects.append(self._refused(request, reason, again_s))
        for request, cause in moved.lost:
            del self._view.tiered[request.request_id]
            self.settled(request, request.charged_tokens)
            self._view.counts.gave_up += 1
            effects.append(GiveUp(request.request_id, cause))
        for request in moved.through:
            del self._view.tiered[request.request_id]
            admitted = self._seen_admitted(request, now_s)
            # Its driver holds it already.
            effects += (each for each in admitted if each != Hold(request.request_id))
        return effects

    def left_tiers(self, request_id: int, now_s: float) -> list[Effect] | None:
        """Its client left while it was in a tier; None: it is in none."""
        moved = self.tiers.left(request_id, now_s) if self.tiers is not None else None
        if moved is None:
            return None
        request = self._view.tiered.pop(request_id)
        self.settled(request, request.charged_tokens)
        return self.moved(moved, now_s)

    def _given_again(self, request: Request, answer_id: int) -> GiveAgain:
        """No replica has any work of it: its tenant is charged a request, and no tokens."""
        self.settled(request, request.charged_tokens)
        self._view.counts.finished += 1
        self._view.counts.given_again += 1
        return GiveAgain(request.request_id, answer_id)

    def _admitted(self, request: Request, now_s: float) -> list[Effect]:
        """Refused, or sent where it may begin at once, or held. Routing is asked first, and only asked."""
        replica: Replica | None = None
        wait: tuple[float, float] | None = None
        reserve = self._reserves.get(request.kind.name)
        if reserve is not None:
            reserve.asked(request.arrival.tenant, request.charged_tokens, now_s)
        if self._queue is None or not self._queue.goes_behind(request.kind.name, request.model):
            free = self._is_free_for(request.kind.name, request.arrival.tenant)
            replica = self._routed(request, now_s) if free else None
        elif self._is_kept_for(request):
            replica = self._routed(request, now_s)
        if replica is None:
            if self._queue is None or not self._may_come_free(request):
                return [self._turned_away(request, now_s)]
            hosted = self._overflow_for(request, now_s) if not self._view.place_count else None
            if hosted is not None:  # nobody is ready
                return [self._sent(request, hosted, now_s)]
            if self.pace is not None:
                ahead_tokens, share = self._queue.tokens_ahead(request.kind.name, request.arrival.tenant)
                wait = self.pace.wait_s(ahead_tokens, share, self._view.place_count)
        if self.pace is not None:
            lacking_s = admission.lacking_s(self._view, self.pace, request, replica, wait, now_s)
            if lacking_s > 0.0:
                return [self._elsewhere(request, RefusalReason.SLO, lacking_s, now_s)]
        return [self._sent(request, replica, now_s)] if replica else self._held(request, now_s)

    def _is_free_for(self, class_name: str, tenant: str) -> bool:
        """Whether the places that are left are not kept for tenants who had less.

        Limits   places of the whole fleet are counted, of all pools and models: while another one is idle,
                 nothing is kept in the one that is full. Its own would have to be summed for each request.
        """
        view = self._view
        place_count = view.place_count
        free_count = place_count - view.at_home_count
        if free_count > self._kept_fraction * place_count + 1.0:  # HOT: per request, mostly true
            return True
        reserve = self._reserves.get(class_name)
        return reserve is None or not reserve.is_kept_from(tenant, free_count, place_count)

    def _is_kept_for(self, request: Request) -> bool:
        """Whether the places that are free are for this tenant, and for none of those who wait.

        Why      Where they are kept from who waits, who comes now takes nobody's turn; behind them it would
                 wait for places that are free. Who waits and may have them, has been sent (`drained`).
        """
        view, queue = self._view, self._queue
        reserve = self._reserves.get(request.kind.name)
        if reserve is None or queue is None or queue.waits(request.kind.name, request.arrival.tenant):
            return False
        free_count = view.place_count - view.at_home_count
        return free_count > 0 and reserve.is_for(request.arrival.tenant, free_count, view.place_count)

    def _may_come_free(self, request: Request) -> bool:
        """Whether holding makes sense: somebody who may take it is there, well or not, or may come."""
        view = self._view
        scaling, rules = view.settings.scaling, view.settings.routes.pools
        if not request.model and rules is None:  # HOT: per request that waits; any replica will do
            return scaling is not None or view.active_count > 0
        pools = None if rules is None else [pool for pool, _ in pools_for(rules, request.arrival.class_name)]
        may_be = [(each.pool, each.model) for each in scaling.pools] if scaling is not None else []
        may_be += [(each.added.pool, each.added.model) for each in view.members("")]
        return any(
            (pools is None or pool in pools) and (not request.model or model in ("", request.model))
            for pool, model in may_be
        )

    def _turned_away(self, request: Request, now_s: float) -> Send | Refuse:
        """It finds no place and is not to wait for one."""
        view = self._view
        refusal = admission.room_or_refusal(view, request, now_s)
        in_vain = self._queue is not None and view.active_count > 0  # they are for other models or pools
        if refusal is None or in_vain:
            again_s = view.settings.retry_after_s_max
            return self._elsewhere(request, RefusalReason.NO_REPLICA, again_s, now_s)
        return self._elsewhere(request, refusal.reason, refusal.retry_after_s, now_s)

    def _held(self, request: Request, now_s: float) -> list[Effect]:
        queue, kind = self._queue, request.kind
        assert queue is not None
        effects: list[Effect] = []
        if queue.lines[kind.name].count >= kind.queue_limit_count:
            again_s = admission.until_room_s(self._view)
            displaced = queue.longest_but(kind.name, request.arrival.tenant)
            if displaced is None:
                return [self._elsewhere(request, RefusalReason.QUEUE_FULL, again_s, now_s)]
            effects.append(self._elsewhere(self.unheld(displaced), RefusalReason.QUEUE_FULL, again_s, now_s))
        expires_s = admission.expires_s(self._view, self.pace, request, now_s)
        expires_s = min(expires_s, admission.last_call_s(self._view, request, now_s))
        tokens, model = request.charged_tokens, request.model
        queue.push(request.request_id, kind.name, request.arrival.tenant, tokens, expires_s, model)
        request.queued = True
        self._view.held[request.request_id] = request
        return [*effects, Hold(request.request_id)]

    def _overflow_for(self, request: Request, now_s: float) -> Replica | None:
        """The hosted API, if this request may go there, has a place, and is still in time there as stated."""
        hosted = self._view.overflow
        if hosted is None or not hosted.healthy or not hosted.has_room:
            return None
        return hosted if admission.in_time_elsewhere(self._view, request, now_s) else None

    def _elsewhere(
        self, request: Request, reason: RefusalReason, again_s: float, now_s: float
    ) -> Send | Refuse:
        """What there is no room or no time for here goes to the hosted API, or is refused."""
        hosted = self._overflow_for(request, now_s)
        if hosted is None:
            return self._refused(request, reason, again_s)
        request.version, request.hit_tokens = None, 0
        return self._sent(request, hosted, now_s)

    def _refused(self, request: Request, reason: RefusalReason, again_s: float) -> Refuse:
        """What is refused within its limits uses up none of them."""
        if self._limiter is not None and reason is not RefusalReason.RATE:
            self._limiter.give_back(request.arrival.tenant, request.kind.name, request.charged_tokens, 1)
        self._view.counts.refused += 1
        retry_after_s = min(again_s, self._view.settings.retry_after_s_max)
        return Refuse(request.request_id, reason, admission.STATUS[reason], retry_after_s)

    # --- sending ---

    def repeated(self, request: Request, now_s: float, beside: Attempt | None = None) -> Send | None:
        """One more attempt, if it may and somebody can take it: other than who has the one `beside` it."""
        if request.sent_count >= self._view.settings.attempt_limit:
            return None
        replica = self._router.route(self._view, request, now_s)
        if replica is None and beside is None and request.attempt.replica is not self._view.overflow:
            replica = self._overflow_for(request, now_s)
        if replica is None or (beside is not None and replica is beside.replica):
            return None
        if self._budget is not None and not self._budget.take(now_s):
            return None
        request.rival = beside  # it runs on
        return self._sent(request, replica, now_s)

    def hedged(self, now_s: float) -> list[Effect]:
        """A second attempt of every request whose first is late, as far as hedges and replicas are left."""
        effects: list[Effect] = []
        while self.hedger is not None and (request_id := self.hedger.take_due(now_s)) is not None:
            request = self._view.requests[request_id]
            second = self.repeated(request, now_s, beside=request.attempt)
            if second is not None:
                effects.append(second)
        return effects

    def drained(self, now_s: float, most_count: int = DRAIN_MAX) -> list[Effect]:
        """Send who waits where there is room by now; who finds none lets other models and classes go."""
        queue, held = self._queue, self._view.held
        effects: list[Effect] = []
        if not held or queue is None:
            return effects
        blocked: set[str] = set()
        stuck: dict[str, set[str]] = {}  # by class, the models that nobody has room for
        while len(effects) < most_count and (head := queue.head(blocked)) is not None:
            class_name, request_id = head
            request = held[request_id]
            models = stuck.get(class_name)
            if models or not self._is_free_for(class_name, request.arrival.tenant):
                # Others may be whom the last places are kept for, or wait for another model.
                other_id = queue.head_of_those(
                    class_name, partial(self._is_free_for, class_name), models or ()
                )
                if other_id is None:
                    blocked.add(class_name)
                    continue
                request_id, request = other_id, held[other_id]
            replica = self._routed(request, now_s)
            if replica is None:
                models = stuck.setdefault(class_name, set())
                models.add(request.model)
                if not request.model or not queue.waits_for_others(class_name, models):
                    blocked.add(class_name)
                continue
            queue.serve(request_id)
            effects.append(self._sent(held.pop(request_id), replica, now_s))
        return effects

    def expired(self, now_s: float) -> list[Effect]:
        """Refuse who was held for too long."""
        effects: list[Effect] = []
        for request_id in self._queue.expired(now_s) if self._queue is not None else ():
            request = self.unheld(request_id)
            if self.pace and request.predicted_s is not None:
                self.pace.waited(request.kind.name, math.inf, request.spread_s)
            again_s = admission.until_room_s(self._view)
            effects.append(self._elsewhere(request, RefusalReason.EXPIRED, again_s, now_s))
        return effects

    def unheld(self, request_id: int) -> Request:
        """Take a request out of the queue that was not served: its flow has its tokens back."""
        assert self._queue is not None
        self._queue.remove(request_id)
        request = self._view.held.pop(request_id)
        request.queued = False
        return request

    def settled(self, request: Request, unused_tokens: int) -> None:
        """What a request was charged and did not use goes back to its tenant and its class."""
        if self._limiter is not None:
            self._limiter.give_back(request.arrival.tenant, request.kind.name, unused_tokens)
        if request.queued and self._queue is not None:
            self._queue.settle(request.kind.name, request.arrival.tenant, unused_tokens)

    def _routed(self, request: Request, now_s: float) -> Replica | None:
        """The replica for the first attempt; in need, one of a smaller model that its class permits."""
        if self.ladder and self.ladder.level:
            model = smaller_model(self.ladder.level, request.kind)
            if model and any(each.added.model == model for each in self._view.replicas.values()):
                asked, request.model = request.model, model
                replica = self._router.route(self._view, request, now_s)
                if replica is not None:
                    return replica
                request.model = asked
        return self._router.route(self._view, request, now_s)

    def _sent(self, request: Request, replica: Replica, now_s: float) -> Send:
        if not request.sent_count:
            reserve = self._reserves.get(request.kind.name)
            if reserve is not None:
                reserve.sent(request.arrival.tenant, request.charged_tokens)
            if self.ladder and self.ladder.level:
                tokens = shortened_tokens(self.ladder.level, request.kind, request.output_limit_tokens)
                if tokens < request.output_limit_tokens:
                    request.output_limit_tokens = request.shortened_tokens = tokens
            if self.hedger is not None and replica is not self._view.overflow:
                self.hedger.sent(request.request_id, now_s)
        view, model = self._view, replica.added.model
        is_smaller = model in view.smaller_models
        view.counts.smaller += is_smaller
        if replica is self._view.overflow:
            self._view.counts.overflowed += 1
        elif self.pace is not None:
            unread_tokens = replica.unread_input_tokens + request.input_tokens - request.hit_tokens
            beliefs = self._view.beliefs
            request.believed_s = unread_tokens * beliefs.input_token_s + beliefs.first_token_s
        self._view.place(request, replica, now_s)
        if replica is not self._view.overflow:
            self._router.placed(request, replica)
        return Send(
            request.request_id,
            replica.replica_id,
            request.sent_count,
            request.shortened_tokens,
            model if is_smaller else "",
        )
