"""The gateway as an ASGI application: clients here, replicas there, every decision by a `GateDriver`.

Raw ASGI, because its hot path is one event after the other: a framework's request and response objects cost
more than all the rest (`python -m bench gateway`).
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import getrandbits
from typing import Any

from twofold.live import metrics_text
from twofold.live.gateway.answers import Public, Used
from twofold.live.gateway.attempts import Attempts, Opened, Race, fed
from twofold.live.gateway.engine_fields import ENGINE_FIELDS, STANDARD
from twofold.live.gateway.gateway_config import HEALTH_PATH, GatewayConfig, GatewayLimits
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.kept_answers import Copy, WholeAnswer
from twofold.live.gateway.keys import KeyRing
from twofold.live.gateway.openai_requests import (
    Caller,
    GenerationRequest,
    Problem,
    caller_of,
    read_request,
)
from twofold.live.gateway.openapi import METRICS_PATH, MODELS_PATH, OPENAPI_PATH, description
from twofold.live.gateway.prompt_bounds import read_bounds
from twofold.live.gateway.request_facts import RequestFacts
from twofold.live.gateway.samples import SampleLog
from twofold.live.gateway.tier_calls import Preparation, TierCalls
from twofold.live.gateway.upstream import Upstream, UpstreamFailed, read_some
from twofold.live.sse import SseTally
from twofold.policy.gate import events

Message = dict[str, Any]
Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]

JSON_HEADER = (b"content-type", b"application/json")
TEXT_HEADER = (b"content-type", metrics_text.CONTENT_TYPE)
AGAIN_HEADER = (b"x-twofold-cache", b"hit")
STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
SPOKEN_CAUSES = {
    events.Cause.REFUSED: "no replica accepted the connection",
    events.Cause.TIMEOUT: "the replica did not answer in time",
    events.Cause.BROKEN: "the connection to the replica was lost",
    events.Cause.ERROR: "the replica failed",
}
SPOKEN_REASONS = {
    events.RefusalReason.FULL: "Every replica is busy",
    events.RefusalReason.NO_REPLICA: "No replica is there",
    events.RefusalReason.RATE: "You ask for more than your limit",
    events.RefusalReason.SLO: "The answer would come too late",
    events.RefusalReason.QUEUE_FULL: "Too many requests wait already",
    events.RefusalReason.EXPIRED: "No replica was free in time",
    events.RefusalReason.SHED: "Requests of this class are not served at present",
    events.RefusalReason.RETRY: "Too many requests are repeated",
    events.RefusalReason.POISON: "Replicas died of this prompt",
    events.RefusalReason.TIER_FULL: "Too many requests wait to be prepared",
    events.RefusalReason.TIER_LATE: "The request was not prepared in time",
}
ID_HEADER, PLAIN_ID = b"x-request-id", re.compile(rb"[A-Za-z0-9._:-]{1,64}")
LINGER_S = 10.0  # in which a client who still writes may read that it was refused …
PAUSE_S = 1.0  # … while there is no pause longer than this in what it writes
READ_PATHS = (HEALTH_PATH, "/state", MODELS_PATH, METRICS_PATH, OPENAPI_PATH)
SHUTTING_DOWN = Problem(503, "The gateway is shutting down", code="shutting_down")


class Client:
    """One client's connection for one request. Mutable: what it was told, and whether it is still there."""

    def __init__(self, receive: Receive, send: SendMessage, request_id: bytes) -> None:
        self._receive, self._send, self._id = receive, send, (ID_HEADER, request_id)
        self._watcher: asyncio.Task[None] | None = None
        self.name = request_id.decode()
        self.left = False
        self._unread = False  # there is more of the body than was read
        self.begun = False
        self.writing = False
        self.keeps = False  # the answer may be kept for others of its tenant
        self.samples = False  # its text is kept to learn from
        self.copy: Copy | None = None  # of what it was written, while it may be kept

    async def body(self, limits: GatewayLimits) -> bytes | Problem | None:
        """The request's body; None when the client left before it was whole."""
        parts, size, self._unread = [], 0, True
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                while size <= limits.body_limit_bytes:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        return None
                    self._unread = message.get("more_body", False)
                    part = message.get("body", b"")
                    size += len(part)
                    parts.append(part)
                    if not self._unread:
                        break
        except TimeoutError:
            return Problem(408, f"The body did not come within {limits.body_timeout_s:g} s")
        if size > limits.body_limit_bytes:
            return Problem(413, f"The body is larger than {limits.body_limit_bytes} bytes", code="too_large")
        return b"".join(parts)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Cancel `task`, which serves the request, when the client leaves."""

        def gone(watcher: asyncio.Task[None]) -> None:
            if self._watcher is watcher and not watcher.cancelled():
                self.left = True
                task.cancel()

        self._watcher = asyncio.create_task(self._until_gone())
        self._watcher.add_done_callback(gone)

    def stop_watching(self) -> None:
        """The request is as good as served: who leaves now has the answer. The watcher ends by itself."""
        self._watcher = None

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def begin(self, status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.begun = self.writing = True
        self.copy = Copy() if (self.keeps or self.samples) and status == 200 else None
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, self._id]})
        self.writing = False

    async def _linger(self) -> None:
        """Read and drop what the client still writes: who is closed on while writing sees a reset instead.

        Who has paused is not waited for.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while self._unread:
                    async with asyncio.timeout(PAUSE_S):
                        self._unread = (await self._receive()).get("more_body", False)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Waits while the client reads more slowly than the replica writes: so the replica waits too."""
        if self.copy is not None:
            self.copy.add(data)
        self.writing = True
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        self.writing = False

    async def answer(
        self,
        status: int,
        body: bytes,
        *more_headers: tuple[bytes, bytes],
        kind: tuple[bytes, bytes] = JSON_HEADER,
        last: bool = True,
    ) -> None:
        """A whole answer; what waits behind its last byte says so by `last=False`."""
        await self.begin(status, (kind, (b"content-length", b"%d" % len(body)), *more_headers))
        await self.write(body, last=last)

    async def refuse(self, problem: Problem, *more_headers: tuple[bytes, bytes]) -> None:
        """An error as an answer of its own, or as the last event of a stream that has begun."""
        if self.begun:
            await self.write(problem.event(), last=True)
            return
        headers = [*more_headers]
        if problem.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(problem.retry_after_s))))
        if problem.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self._unread:
            headers.append((b"connection", b"close"))
        await self.answer(problem.status, problem.body(), *headers, last=not self._unread)
        if self._unread:
            await self._linger()
            await self.write(b"", last=True)


class GatewayApp:
    """The application. It keeps nothing between requests but its connections."""

    def __init__(self, decider: GateDriver, upstream: Upstream, config: GatewayConfig) -> None:
        self.decider, self.upstream, self.limits = decider, upstream, config.limits
        self.attempts = Attempts(decider, upstream, config.limits, config.model_name)
        hosted = ENGINE_FIELDS[config.overflow.engine or config.engine] if config.overflow else None
        self.facts = RequestFacts(config.gate, config.limits.input_bytes_per_token, hosted)
        self._hedges = config.gate.hedge is not None
        self._races: dict[int, Race] = {}  # by request, until its answer begins
        decider.told_beside = self._told_beside
        own = config.admin.own_key if config.admin else ""
        self.model_name, self._keys = config.model_name, KeyRing(config.keys, config.keys_file, own)
        self._has_keys = bool(config.keys or config.keys_file)
        self._engine, self._description = ENGINE_FIELDS[config.engine], description(config)
        self.samples: SampleLog | None = None  # where the text of some requests is kept
        self._bounds = read_bounds(config.context_tokens, config.cache_tokens, config.tokenizer)
        self._tiers = TierCalls(decider, upstream, config, self._read) if config.gate.tiers else None

    async def __call__(self, scope: Message, receive: Receive, send: SendMessage) -> None:
        client = Client(receive, send, request_id_of(scope["headers"]))
        path, method = scope["path"], scope["method"]
        if path not in STANDARD and path not in READ_PATHS and path != f"{MODELS_PATH}/{self.model_name}":
            await client.refuse(Problem(404, f"There is nothing at {path}"))
            return
        methods = ("POST",) if path in STANDARD else ("GET", "HEAD")
        if method not in methods:
            allowed = b"allow", ", ".join(methods).encode()
            await client.refuse(Problem(405, f"{path} does not take {method}"), allowed)
            return
        if path == HEALTH_PATH:
            await self._report(path, client)
            return
        caller = caller_of(scope["headers"], self._keys.tenants())
        if not isinstance(caller, Caller):
            await self._turn_away(client, path, caller)
        elif path in STANDARD:
            await self._generate(path, client, caller, scope["headers"])
        else:
            await self._report(path, client)

    async def _report(self, path: str, client: Client) -> None:
        if path == METRICS_PATH:
            page = self.decider.metrics_for_clients() if self._has_keys else self.decider.metrics()
            await client.answer(200, page.encode(), kind=TEXT_HEADER)
            return
        status, data = 200, {**self.decider.state(), "gate_digest": self.decider.gate_digest}
        if path == HEALTH_PATH:
            healthy = sum(replica["healthy"] for replica in data["replicas"].values())
            answers = bool(healthy or data.get("overflow", {}).get("healthy"))
            status = 200 if answers else 503
            data = {"status": "ok" if answers else "no replica is healthy", "healthy_replicas": healthy}
        elif path.startswith(MODELS_PATH):
            data = {"id": self.model_name, "object": "model", "created": 0, "owned_by": "twofold"}
            if path == MODELS_PATH:
                data = {"object": "list", "data": [data]}
        elif path == OPENAPI_PATH:
            data = self._description
        await client.answer(status, json.dumps(data).encode())

    async def _generate(self, path: str, client: Client, caller: Caller, headers: Headers) -> None:
        body = await client.body(self.limits)
        if body is None:
            return
        request = body if isinstance(body, Problem) else await self._read(path, body)
        if isinstance(request, Problem):
            await self._turn_away(client, path, request, caller.tenant)
            return
        arrived = self.facts.arrival(request, caller, headers, time.monotonic())
        if isinstance(arrived, Problem):
            await self._turn_away(client, path, arrived, caller.tenant)
            return
        prepared = self._tiers.on_behalf(request) if self._tiers is not None else None
        ask_tier = prepared.ask if prepared is not None else None
        waited = self.decider.arrived(arrived, (client.name, path), ask_tier)
        try:
            decision = await waited
        except asyncio.CancelledError:
            await self._cut_off(waited, client, prepared)
            return
        if isinstance(decision, events.Refuse):
            await client.refuse(_refusal(decision))
            return
        if isinstance(decision, events.GiveAgain):
            await _give(self.decider.given(decision.request_id), client)
            return
        client.keeps = bool(arrived.answer_key)
        if self.samples is not None and self.samples.wants() and self.facts.may_keep(headers):
            client.samples = True
            self.decider.telemetry.keep_text(decision.request_id, request)
        task = asyncio.current_task()
        assert task is not None
        client.watch(task)
        try:
            if isinstance(decision, events.Hold):  # it waits here; its client may leave meanwhile
                released = await self.decider.held(decision.request_id)
                request = prepared.request if prepared is not None else request
                await self._send_until_answered(request, released, client)
            else:
                await self._send_until_answered(request, decision, client)
        except asyncio.CancelledError:
            await self._cut_off(waited, client, prepared)
        except Exception:
            # A mistake of ours must not hold a place at a replica for ever; the server logs it.
            self.decider.forsaken(waited)
            raise

    async def _cut_off(
        self, waited: asyncio.Future[events.Decision], client: Client, prepared: Preparation | None
    ) -> None:
        """The task that serves a request was cancelled: nothing works for it any longer."""
        if prepared is not None:
            prepared.stop()
        self.decider.forsaken(waited)
        if not client.left:  # the process ends, and its grace is over
            client.stop_watching()
            await client.refuse(SHUTTING_DOWN)
        if (task := asyncio.current_task()) is not None:
            task.uncancel()

    async def _turn_away(self, client: Client, path: str, problem: Problem, tenant: str = "") -> None:
        """Refuse what the gate is never told of."""
        self.decider.telemetry.turned_away((client.name, path), tenant, problem.status, problem.code or "")
        await client.refuse(problem)

    async def _read(self, path: str, body: bytes) -> GenerationRequest | Problem:
        """A request for the model that is served here, and that it and its engine can answer."""
        request = read_request(path, body, self.limits, self._engine)
        if isinstance(request, Problem):
            return request
        if request.model not in ("", self.model_name):
            said = f"There is no model `{request.model[:64]}` here; write `{self.model_name}`"
            return Problem(404, said, "model", "model_not_found")
        return await self._bounds.fitted(request)

    async def _send_until_answered(
        self, request: GenerationRequest, decision: events.Released, client: Client
    ) -> None:
        """Attempt after attempt, as the decider wants it, to the answer's last byte."""
        while isinstance(decision, events.Send):
            opened: Opened | None = None
            try:
                if self._hedges:
                    first = await self._first_of(request, decision)
                    if not isinstance(first, Opened):
                        decision = first
                        break
                    opened = first
                else:
                    opened = await self.attempts.opened(request, decision)
                used, rest = await self._pass_on(opened, client)
            except UpstreamFailed as failure:
                attempt = opened.sent.attempt if opened else 0
                again = self.decider.failed(decision.request_id, failure.cause, attempt)
                decision = again or events.GiveUp(decision.request_id, failure.cause)
                continue
            finally:
                if opened is not None:
                    opened.close()
            client.stop_watching()
            sent, answer = opened.sent, None
            if client.copy is not None:
                client.copy.add(rest)
                answer = client.copy.whole(used, streamed=opened.tally is not None)
                client.copy = None
            if client.samples:
                self.decider.telemetry.keep_answer(sent.request_id, answer)
                answer = answer if client.keeps else None
            self.decider.ended(
                sent.request_id, used.output_tokens, sent.attempt, used.input_tokens, opened.status, answer
            )
            await client.write(rest, last=True)
            return
        client.stop_watching()
        if isinstance(decision, events.Refuse):
            await client.refuse(_refusal(decision))
            return
        await client.refuse(Problem(502, SPOKEN_CAUSES[decision.cause].capitalize(), code="replica_failed"))

    async def _first_of(self, request: GenerationRequest, sent: events.Send) -> Opened | events.GiveUp:
        """The first attempt to answer, of those that the decider lets run beside each other."""
        race = self._races[sent.request_id] = Race(self.attempts.opened, request, self.decider.failed)
        try:
            one, outcome = await race.first(sent)
            while True:
                if isinstance(outcome, Opened):
                    return outcome
                again = self.decider.failed(one.request_id, outcome.cause, one.attempt)
                if isinstance(again, events.Send):
                    race.begin(again)
                elif again is not None:
                    return again
                one, outcome = await race.next()
        finally:
            del self._races[sent.request_id]
            race.stop()

    def _told_beside(self, effect: events.Send | events.Cancel) -> None:
        """The decider wants a second attempt, or one less; of a request that has answered by now neither."""
        if (race := self._races.get(effect.request_id)) is not None:
            race.told(effect)

    async def _pass_on(self, opened: Opened, client: Client) -> tuple[Used, bytes]:
        """Pass an answer that has begun through, all but its end. Returns what it took, and that end.

        Raises UpstreamFailed, and CancelledError when it is the client that does not read on.
        """
        tally = opened.tally
        if tally is None:  # when it began nobody knows, so the decider hears of its end alone
            length = b"%d" % len(opened.data)
            await client.begin(opened.status, (JSON_HEADER, (b"content-length", length)))
            return opened.used, opened.data
        if opened.data:
            self.decider.started(opened.sent.request_id, opened.sent.attempt)
        try:
            async with asyncio.timeout(opened.between_s) as clock:
                await client.begin(200, STREAM_HEADERS)
                return await self._stream(opened, tally, client, clock)
        except TimeoutError as error:
            if client.writing:
                client.left = True
                raise asyncio.CancelledError from error
            raise UpstreamFailed(events.Cause.TIMEOUT) from error
        finally:
            self.decider.telemetry.wrote(opened.sent.request_id, tally.output_tokens)

    async def _stream(
        self, opened: Opened, tally: SseTally, client: Client, clock: asyncio.Timeout
    ) -> tuple[Used, bytes]:
        loop, data, seen = asyncio.get_running_loop(), opened.data, 0
        public = Public(self.attempts.public_name)
        while True:
            if data:
                await client.write(public.of(data))
                if tally.content_events > seen:  # comments that keep a connection alive are no progress
                    seen = tally.content_events
                    clock.reschedule(loop.time() + opened.between_s)
            if tally.failed or tally.content_events > opened.event_limit:
                raise UpstreamFailed(events.Cause.ERROR)
            if not (chunk := await read_some(opened.response)):
                rest = public.of(tally.rest())
                if not tally.finished:  # the connection ended before the answer did
                    raise UpstreamFailed(events.Cause.BROKEN)
                used = Used(tally.output_tokens, tally.prompt_tokens)
                return used, rest + tally.closing()
            if data := fed(tally, chunk):
                self.decider.heard(opened.sent.replica_id)


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's own name of its request if it is a plain one, else a new one; each answer carries it."""
    for name, value in headers:
        if name == ID_HEADER and PLAIN_ID.fullmatch(value):
            return value
    return b"req-%016x" % getrandbits(64)


async def _give(answer: WholeAnswer, client: Client) -> None:
    """The answer that somebody of the same tenant had, byte for byte."""
    if not answer.streamed:
        await client.answer(200, answer.data, AGAIN_HEADER)
        return
    await client.begin(200, (*STREAM_HEADERS, AGAIN_HEADER))
    await client.write(answer.data, last=True)


def _refusal(refuse: events.Refuse) -> Problem:
    again_s = max(1, math.ceil(refuse.retry_after_s))
    said = f"{SPOKEN_REASONS[refuse.reason]}; ask again in {again_s} s"
    return Problem(refuse.status, said, code=refuse.reason.value, retry_after_s=again_s)
