"""Drives one `Gate`: turns what happens into events, logs them, and carries out what the gate decides.

What happens to requests in a turn of the loop is folded in together at its end, in its order; then all the
turn's lines go to the log in one write, and only then what was decided to who waits for it, to the replicas
and to the controller (S9). Who asks for the state or the counters, or tells the gate of anything else, finds
folded in what was told before.
"""

import asyncio
import errno
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, cast, get_args

from twofold.live import metrics_text
from twofold.live.gateway import gate_state
from twofold.live.gateway.counters import Counters
from twofold.live.gateway.gate_log import GateLog
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.kept_answers import WholeAnswer
from twofold.live.gateway.recent import Recent
from twofold.live.gateway.telemetry import FAILED, FINISHED, REFUSED, Telemetry
from twofold.policy.gate import events
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.patience import Patience, patience_of
from twofold.policy.machine import Entry, Woke

# What somebody else carries out, or is to know: the controller asks for these.
SLOW_EFFECTS = {
    *(events.StartReplica, events.StopReplica, events.StageRelease, events.PromoteRelease),
    *(events.RollBackRelease, events.FailOverZone, events.RestoreZone, events.Degrade),
    *(events.OpenCircuit, events.CloseCircuit, events.EjectReplica, events.ReadmitReplica),
}
Decided = events.Decision | events.GiveUp
DECISIONS = {*get_args(events.Decision)}
ABOUT_REQUESTS = {*DECISIONS, events.GiveUp}
REQUEST_ID = attrgetter("request_id")
AskTier = Callable[[events.AskTier], None]
STARTS_WAIT_S = 0.005  # that a first token waits at most, to be folded in with other events
SLOW_EFFECTS_KEPT = 4096  # for a controller that is away


class Happened:
    """What happened to a request, until the turn's end, and what its request needs besides the event."""

    def __init__(self, event: events.Event, decided: "asyncio.Future[events.Decision] | None" = None) -> None:
        self.event, self.decided = event, decided
        self.now_s = clock_s()
        self.asked: tuple[str, str] = ("", "")  # of a new one, its name and path
        self.ask_tier: AskTier | None = None
        self.status = 200  # of one that ended
        self.answer: WholeAnswer | None = None


class GateDriver:
    """A gate between its events and its log. Mutable; lives in one event loop."""

    def __init__(
        self,
        gate: Gate,
        log: GateLog,
        replicas: Mapping[str, GatewayReplica],
        probe_timeout_s: float,
        overflow: GatewayReplica | None = None,  # the hosted API, where the gate knows one
    ) -> None:
        self.gate, self.log, self.replicas = gate, log, dict(replicas)  # addresses, the drained ones' too
        self._overflow = overflow
        self.recent = Recent()
        self.meters = Counters(gate.view.settings.classes)
        self.telemetry = Telemetry([self.meters.saw], gate.view.settings.overflow, self._mistaken)
        self.slow_effects: deque[tuple[int, events.Effect]] = deque(maxlen=SLOW_EFFECTS_KEPT)
        self._slow: list[events.Effect] = []  # of this turn
        self._slow_count = 0
        self._slow_waiters: list[asyncio.Future[None]] = []
        self._probe_timeout_s = probe_timeout_s
        self._loop = asyncio.get_running_loop()
        self.gate_digest = ""  # of the gate as it was built, for the twin and for this
        self.unasked = ""  # why the hosted API that was named is not asked
        self.longest_tokens = 0  # of a prompt that a replica may be given; 0: nobody said
        self._held: dict[int, asyncio.Future[events.Released]] = {}  # as long as a client waits
        self._decided: list[events.Released] = []  # in this turn, of those that were held
        self.kept: dict[int, WholeAnswer] = {}  # by the number that the gate gave
        self._given: dict[int, WholeAnswer] = {}  # by request, until it is written
        self._ended: WholeAnswer | None = None  # while the gate is told of an end
        self._askers: dict[int, AskTier] = {}  # of requests that pass tiers
        self._to_ask: list[events.AskTier] = []
        self.told_beside: Callable[[events.Send | events.Cancel], None] | None = None
        self._beside: list[events.Send | events.Cancel] = []  # in this turn: a second attempt, or its end
        self._to_probe: list[events.Probe] = []
        self._probes: set[asyncio.Task[None]] = set()
        self._inbox: list[Happened] = []  # of this turn
        self._ready: list[tuple[asyncio.Future[events.Decision], events.Decision]] = []  # once it is logged
        self._is_write_due = False
        self._tick: asyncio.Handle | None = None
        self._starts_due: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_s = math.inf  # nothing is set

    def start(self) -> None:
        """The gate starts cold: say so, and tell it of its replicas."""
        self.log.start(self.gate.view.settings, self.gate.view.beliefs)
        for replica in self.replicas.values():
            place = replica.zone, replica.pool, replica.variant, replica.version
            self._handle(events.ReplicaAdded(replica.replica_id, replica.in_flight_limit, *place))

    def stop(self) -> None:
        """No more events: what was logged is written, and the log closed."""
        self.settle()
        for handle in (self._wake, self._tick, self._starts_due):
            if handle:
                handle.cancel()
        self._wake = self._tick = self._starts_due = None
        for task in self._probes:
            task.cancel()
        self.log.stop()

    def arrived(
        self,
        arrived: events.RequestArrived,
        asked: tuple[str, str] = ("", ""),
        ask_tier: AskTier | None = None,  # told which servers of tiers are to work for it
    ) -> "asyncio.Future[events.Decision]":
        """What becomes of a new request; its id stands in the answer. After a Hold, ask `held`.

        Who no longer wants to hear, or to have what was decided, says so by `forsaken`.
        """
        told = Happened(arrived, self._loop.create_future())
        told.asked, told.ask_tier = asked, ask_tier
        self._tell(told)
        assert told.decided is not None
        return told.decided

    def forsaken(self, decided: "asyncio.Future[events.Decision]") -> None:
        """The client of this request left, or the gateway could not serve it; be it decided or not."""
        if decided.done() and not decided.cancelled() and decided.exception() is None:
            self._nobody_wants(decided.result())

    def _nobody_wants(self, decision: events.Decision) -> None:
        """What was refused, or given what was kept, has ended for the gate."""
        if isinstance(decision, events.GiveAgain):
            self._given.pop(decision.request_id, None)
        elif not isinstance(decision, events.Refuse):
            self._tell(Happened(events.ClientLeft(decision.request_id)))

    def settle(self) -> None:
        """What was told so far is folded in, written and acted on, now."""
        if self._tick is not None:
            self._tick.cancel()
        self._turn_ends()

    def _tell(self, told: Happened) -> None:
        """HOT: until the turn's end, where all of a turn are handled one after the other. What is in the
        processor's caches for the first is there for the others: each by itself took twice as long."""
        self._inbox.append(told)
        if self._tick is None:
            self._tick = self._loop.call_soon(self._turn_ends)

    def _fold(self) -> None:
        """Fold in what was told in this turn so far."""
        while self._inbox:
            inbox, self._inbox = self._inbox, []
            for told in inbox:
                try:
                    self._fold_one(told)
                except Exception as error:  # a mistake of ours is this request's alone
                    self._fold_failed(told, error)

    def _fold_one(self, told: Happened) -> None:
        event, decided = told.event, told.decided
        if isinstance(event, events.ResponseStarted):
            self._fold_start(event, told.now_s)
        elif isinstance(event, events.ResponseEnded):
            self._fold_end(event, told)
        elif isinstance(event, events.ClientLeft):
            self._fold_left(event, told.now_s)
        elif isinstance(event, events.RequestArrived) and decided is not None and not decided.done():
            self._ready.append((decided, self._decide(event, told)))

    def _fold_failed(self, told: Happened, error: Exception) -> None:
        """Who asked hears of it; a request that was under way holds no place at a replica any longer."""
        if told.decided is not None:
            told.decided.set_exception(error)
            return
        self._mistaken(error)
        if isinstance(told.event, events.ResponseStarted | events.ResponseEnded):
            self._inbox.append(Happened(events.ClientLeft(told.event.request_id)))

    def _mistaken(self, error: Exception) -> None:
        """A mistake of ours that no client hears of: the process writes it to its own log."""
        self._loop.call_exception_handler({"message": "a mistake of the gateway's", "exception": error})

    def _look(self) -> None:
        """Fold in what was told, for somebody who looks; what follows from it is done at this turn's end."""
        self._fold()
        if self._is_write_due and self._tick is None:
            self._tick = self._loop.call_soon(self._turn_ends)

    def _decide(self, arrived: events.RequestArrived, told: Happened) -> events.Decision:
        self.recent.arrived_at_s = told.now_s
        self.telemetry.arrives(told.asked, arrived, told.now_s)
        effects = self._log_and_do(arrived, told.now_s)
        # A full queue may refuse another request in the same breath: the new one has the largest id.
        alone = len(effects) == 1  # HOT: mostly
        decides = effects[0] if alone else max(filter(_decides, effects), key=REQUEST_ID)
        decision = cast(events.Decision, decides)
        if isinstance(decision, events.Hold):
            self._held[decision.request_id] = self._loop.create_future()
            if told.ask_tier is not None:
                self._askers[decision.request_id] = told.ask_tier
        return decision

    def _fold_start(self, started: events.ResponseStarted, now_s: float) -> None:
        request = self.gate.view.requests.get(started.request_id)
        if request is not None:
            self.recent.first_token(now_s, now_s - request.arrived_s)
        self.telemetry.started(started.request_id, now_s)
        self._log_and_do(started, now_s)

    def _fold_end(self, ended: events.ResponseEnded, told: Happened) -> None:
        request, now_s, replica_id = self.gate.view.requests.get(ended.request_id), told.now_s, ""
        if request is not None:
            replica_id = request.attempt.replica.replica_id
            self.recent.heard(replica_id)
            if told.status == 200:  # else the engine refuses what its client wrote
                self.recent.ended(now_s, FINISHED)
        tokens = ended.input_tokens, ended.output_tokens
        self.telemetry.ended(ended.request_id, replica_id, told.status, tokens, now_s)
        self._ended = told.answer
        try:
            self._log_and_do(ended, now_s)
        finally:
            self._ended = None

    def _fold_left(self, left: events.ClientLeft, now_s: float) -> None:
        self._held.pop(left.request_id, None)
        self._askers.pop(left.request_id, None)
        self.telemetry.left(left.request_id, now_s)
        self._log_and_do(left, now_s)

    def given(self, request_id: int) -> WholeAnswer:
        """The answer of a request that is given one again, once."""
        return self._given.pop(request_id)

    async def held(self, request_id: int) -> events.Released:
        """What becomes of a request that was held, when it does."""
        decision = await self._held[request_id]
        del self._held[request_id]
        self._askers.pop(request_id, None)
        return decision

    def tier_answered(self, ask: events.AskTier, input_tokens: int | None) -> None:
        """A tier's server has done its work; the prompt has so many tokens by now, None: as before."""
        self._handle(events.TierAnswered(ask.request_id, ask.tier, ask.attempt, input_tokens))

    def tier_failed(self, ask: events.AskTier, cause: events.Cause) -> None:
        """A tier's server has failed it."""
        self._handle(events.TierFailed(ask.request_id, ask.tier, ask.attempt, cause))

    def failed(
        self, request_id: int, cause: events.Cause, attempt: int = 0
    ) -> events.Send | events.GiveUp | None:
        """What becomes of a request of which an attempt failed; None: its other attempt goes on."""
        request = self.gate.view.requests.get(request_id)
        effects = self._handle(events.ResponseFailed(request_id, cause, attempt))
        failed = (e for e in effects if isinstance(e, events.Send | events.GiveUp))
        goes_on = request is not None and request_id in self.gate.view.requests
        otherwise = None if goes_on else events.GiveUp(request_id, cause)
        decision = next((e for e in failed if e.request_id == request_id), otherwise)
        if self.log.refusal is None:  # before the next attempt; who refused is asked again at the turn's end
            self.log.flush()
        return decision

    def told(self, happened: Iterable[tuple[events.Event, GatewayReplica | None]]) -> None:
        """What happened to the fleet, each with the address of a replica that was added."""
        for event, address in happened:
            if isinstance(event, events.ReplicaAdded) and address is not None:
                self.replicas[event.replica_id] = address
                self.recent.heard(event.replica_id)
            self._handle(event)

    async def effects_after(self, number: int, wait_s: float) -> list[tuple[int, events.Effect]]:
        """The numbered slow effects beyond `number`; waits for one where there is none."""
        if self._slow_count <= number and wait_s > 0:
            waiter = self._loop.create_future()
            self._slow_waiters.append(waiter)
            try:
                async with asyncio.timeout(wait_s):
                    await waiter
            except TimeoutError:
                pass
            finally:
                if waiter in self._slow_waiters:
                    self._slow_waiters.remove(waiter)
        return [each for each in self.slow_effects if each[0] > number]

    def admin_state(self) -> dict[str, Any]:
        """The same for the controller: what was heard of each replica and when, and figures of late."""
        data, view = self.state(), self.gate.view
        for name in [name for name in self.replicas if name not in view.replicas]:
            del self.replicas[name]  # drained: nothing is sent there any more
            self.recent.heard_s.pop(name, None)
        return gate_state.for_controller(data, self.gate, self.replicas, self.recent, time.monotonic())

    def heard(self, replica_id: str) -> None:
        """A replica wrote something: whoever does is alive."""
        self.recent.heard(replica_id)

    def patience(self, request_id: int) -> Patience:
        """How long the latest attempt of a request may be silent."""
        request = self.gate.view.requests.get(request_id)
        return (
            Patience()
            if request is None
            else patience_of(request, self.gate.view.beliefs_of(request.attempt.replica), self.longest_tokens)
        )

    def address(self, replica_id: str) -> GatewayReplica | None:
        """Where a replica, or the hosted API, is asked."""
        hosted = self._overflow
        return (
            hosted
            if hosted is not None and hosted.replica_id == replica_id
            else self.replicas.get(replica_id)
        )

    def started(self, request_id: int, attempt: int = 0) -> None:
        """Its answer begins.

        HOT: seldom does anything follow from it, so it waits a little to be folded in with other events; not
        while somebody is held, for whom it may make room.
        """
        told = Happened(events.ResponseStarted(request_id, attempt))
        if self._held:
            self._tell(told)
            return
        self._inbox.append(told)
        if self._tick is None and self._starts_due is None:
            self._starts_due = self._loop.call_later(STARTS_WAIT_S, self._starts_are_due)

    def _starts_are_due(self) -> None:
        self._starts_due = None
        if self._tick is None:
            self._turn_ends()

    def ended(
        self,
        request_id: int,
        output_tokens: int,
        attempt: int = 0,
        input_tokens: int | None = None,
        status: int = 200,
        answer: WholeAnswer | None = None,
    ) -> None:
        """The whole answer came, if it may be kept with its bytes; or the engine's refusal."""
        size = 0 if answer is None else len(answer.data)
        told = Happened(events.ResponseEnded(request_id, output_tokens, None, attempt, input_tokens, size))
        told.status, told.answer = status, answer
        self._tell(told)

    def metrics(self) -> str:
        """The page of counters."""
        self._look()
        return self.meters.page(self.gate.view, self.telemetry, self._lost_lines()) + self._of_tiers()

    def metrics_for_clients(self) -> str:
        """The same without what names tenants."""
        self._look()
        page = self.meters.page_for_clients(self.gate.view, self.telemetry, self._lost_lines())
        return page + self._of_tiers()

    def _of_tiers(self) -> str:
        if not self.gate.tiers:
            return ""
        told = self.recent.tiers(time.monotonic(), self.gate.tiers, len(self.gate.view.held))
        return self.meters.page_of_tiers(self.gate.tiers, told["bottleneck"])

    def families(self) -> Iterable[metrics_text.Family]:
        """The same series, not yet as text."""
        self._look()
        return self.meters.families(self.gate.view, self.telemetry, self._lost_lines())

    def _lost_lines(self) -> dict[str, int]:
        return {"events": self.log.lost_lines, **self.telemetry.lost_lines()}

    def state(self) -> dict[str, Any]:
        """What the gate knows, for people and programs that look."""
        self._look()
        spent = round(self.meters.overflow_usd, 6)
        data = gate_state.for_clients(self.gate, self.recent, time.monotonic(), spent, self.unasked)
        return {**data, "log_lost_lines": sum(self._lost_lines().values())}

    def _handle(self, event: events.Event) -> list[events.Effect]:
        """At once, after what was told before."""
        self._fold()
        effects = self._log_and_do(event, clock_s())
        if self._tick is None:
            self._tick = self._loop.call_soon(self._turn_ends)
        return effects

    def _log_and_do(self, event: events.Event, now_s: float) -> list[events.Effect]:
        effects = self.gate.handle(event, now_s)
        self.log.told(Entry(now_s, event, tuple(effects)))
        # HOT: from a first token alone nothing follows; its line goes with the next that is written.
        self._is_write_due = self._is_write_due or bool(effects) or type(event) is not events.ResponseStarted
        for effect in effects:
            if type(effect) in ABOUT_REQUESTS:  # HOT: effects are of no classes below these
                self._told_of_request(cast(Decided, effect), event, now_s)
            elif type(effect) in SLOW_EFFECTS:
                self.telemetry.steered(effect)
                self._slow.append(effect)
            else:
                self._told_of_ours(effect, now_s)
        if self._held:
            released = (effect for effect in effects if isinstance(effect, events.Released))
            self._decided += (effect for effect in released if effect.request_id in self._held)
        return effects

    def _told_of_ours(self, effect: events.Effect, now_s: float) -> None:
        """What is done here, and decides about no request."""
        if isinstance(effect, events.Probe):
            self._to_probe.append(effect)
        elif isinstance(effect, events.Cancel):
            self._beside.append(effect)
        elif isinstance(effect, events.AskTier):
            self._to_ask.append(effect)
        elif isinstance(effect, events.TierPassed):
            self.telemetry.passed(effect)
            self.meters.passed(effect)
            self.recent.passed(now_s, effect)
        elif isinstance(effect, events.KeepAnswer) and self._ended is not None:
            self.kept[effect.answer_id] = self._ended
        elif isinstance(effect, events.DropAnswers):
            for answer_id in effect.answer_ids:
                self.kept.pop(answer_id, None)

    def _told_of_request(self, effect: Decided, event: events.Event, now_s: float) -> None:
        self.telemetry.decided(effect, now_s)
        if isinstance(effect, events.Send):
            if effect.attempt > 1:
                hedged = isinstance(event, Woke)  # nobody asked for it, as for a repeat
                self.telemetry.again(hedged=hedged)
                if hedged:
                    self._beside.append(effect)
        elif isinstance(effect, events.GiveAgain):
            answer = self._given[effect.request_id] = self.kept[effect.answer_id]
            self.telemetry.given_again(effect.request_id, answer.used, now_s)
            self.recent.ended(now_s, FINISHED)
        elif not isinstance(effect, events.Hold):
            self.recent.ended(now_s, REFUSED if isinstance(effect, events.Refuse) else FAILED)

    def _turn_ends(self) -> None:
        """All that was told is in the log; then what was decided is heard, asked for and done."""
        self._tick = None
        self._fold()
        if self._is_write_due:
            self.log.flush()
            self._is_write_due = False
        ready, self._ready = self._ready, []
        for waiter, decided in ready:
            if not waiter.done():
                waiter.set_result(decided)
            else:  # cancelled since it was decided
                self._nobody_wants(decided)
        for decision in self._decided:
            held = self._held.get(decision.request_id)
            if held is not None and not held.done():
                held.set_result(decision)
        self._decided.clear()
        for ask in self._to_ask:
            if asker := self._askers.get(ask.request_id):
                asker(ask)
        self._to_ask.clear()
        if self._beside:  # after the tasks that hear a decision only now: these race from then on
            self._loop.call_soon(self._tell_beside, self._beside)
            self._beside = []
        for probe in self._to_probe:
            task = self._loop.create_task(self._probe(probe))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)
        self._to_probe.clear()
        if self._slow:
            self._tell_slowly()
        self._set_alarm()

    def _tell_slowly(self) -> None:
        """Number what the controller is to do or to know, and wake it."""
        for effect in self._slow:
            self._slow_count += 1
            self.slow_effects.append((self._slow_count, effect))
        self._slow.clear()
        self.answer_waiters()

    def answer_waiters(self) -> None:
        """Whoever waits for a slow effect hears of those that there are, be it none."""
        for waiter in self._slow_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._slow_waiters.clear()

    def _tell_beside(self, effects: list[events.Send | events.Cancel]) -> None:
        for effect in effects:
            if self.told_beside is not None:
                self.told_beside(effect)

    def _set_alarm(self) -> None:
        """HOT: per turn; an alarm that is set rings early rather than being set anew, which hedges that
        never come due took a tenth of a request for."""
        wake_at_s = self.gate.wake_at_s()
        if wake_at_s is None or wake_at_s >= self._wake_at_s:
            return
        if self._wake:
            self._wake.cancel()
        self._wake_at_s = wake_at_s
        self._wake = self._loop.call_later(max(0.0, wake_at_s - time.monotonic()), self._woke)

    def _woke(self) -> None:
        self._wake, self._wake_at_s = None, math.inf
        wake_at_s = self.gate.wake_at_s()
        if wake_at_s is not None and wake_at_s <= time.monotonic():
            self._handle(Woke())
        else:
            self._set_alarm()

    async def _probe(self, probe: events.Probe) -> None:
        name, number = probe.replica_id, probe.number
        replica = self.address(name)
        if replica is None:
            return
        cause = await connect_failure(replica.host, replica.port, self._probe_timeout_s)
        self._handle(events.ProbeFailed(name, number, cause) if cause else events.ProbeAnswered(name, number))


def clock_s() -> float:
    """On the gate's clock, in whole microseconds, as its log writes them."""
    return time.monotonic_ns() // 1000 / 1e6


def _decides(effect: events.Effect) -> bool:
    return type(effect) in DECISIONS  # HOT: per request; `isinstance` of a union took four times as long


async def connect_failure(host: str, port: int, timeout_s: float) -> events.Cause | None:
    """Why nobody accepts a connection; None when somebody does.

    A busy engine's kernel still accepts, so a slow engine is not taken for a dead one. When the time is up
    the kernel is asked what it knows: a loop of ours that was late must not accuse a replica.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(probe, (host, port))
        except TimeoutError:
            try:
                probe.getpeername()
            except OSError:
                return events.Cause.TIMEOUT
        except OSError as error:
            return cause_of(error)
    return None


def cause_of(error: OSError) -> events.Cause:
    """Nobody listens, or the connection came to harm."""
    return events.Cause.REFUSED if error.errno == errno.ECONNREFUSED else events.Cause.BROKEN
