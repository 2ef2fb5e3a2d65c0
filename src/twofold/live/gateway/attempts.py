"""Attempts of one request at replicas, up to the first of their answers; and two of them in a race.

What fails before its answer begins can be asked of another replica: so nothing reaches the client from here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import aiohttp

from twofold.live.gateway.answers import CLIENTS_FAULT, NOT_SAID, Public, Used, error_of, used_by
from twofold.live.gateway.engine_fields import ENGINE_FIELDS
from twofold.live.gateway.gateway_config import GatewayLimits
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.openai_requests import GenerationRequest
from twofold.live.gateway.upstream import Upstream, UpstreamFailed, read_some
from twofold.live.sse import SseTally
from twofold.policy.gate import events
from twofold.policy.gate.patience import Patience

EVENTS_PER_TOKEN, EVENTS_BESIDE = 2, 64  # of a stream: roles, ends, letters that take two tokens


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that has begun, or one in one piece that is whole."""

    sent: events.Send
    response: aiohttp.ClientResponse
    tally: SseTally | None  # None: it came in one piece
    data: bytes  # of a stream what is to be passed on first; "": it has ended without a text
    between_s: float  # that the replica may be silent from now on
    event_limit: int  # of a stream: more, and the engine heeds no limit
    status: int = 200  # other: the engine says that the request is at fault
    used: Used = NOT_SAID  # of an answer in one piece

    def close(self) -> None:
        """Nothing if it was read to its end: the connection is back in the pool."""
        self.response.close()


class Attempts:
    """Sends requests to replicas. Keeps nothing of them."""

    def __init__(self, decider: GateDriver, upstream: Upstream, limits: GatewayLimits, model: str) -> None:
        self._decider, self._upstream, self._limits = decider, upstream, limits
        self._model, self.public_name = model, json.dumps(model).encode()

    async def opened(self, request: GenerationRequest, sent: events.Send) -> Opened:
        """One attempt until it answers. Raises UpstreamFailed, and leaves no connection behind then."""
        replica, limits = self._decider.address(sent.replica_id), self._limits
        assert replica is not None, sent
        waits = waits_of(self._decider.patience(sent.request_id), limits)
        first_s, between_s = waits.first_s if request.stream else waits.whole_s, waits.between_s
        response: aiohttp.ClientResponse | None = None
        opened: Opened | None = None
        try:
            async with asyncio.timeout(first_s):
                asked = request.heeded_by(ENGINE_FIELDS[replica.engine]) if replica.engine else request
                body = asked.body(replica.model, sent.output_limit_tokens)
                response = await self._upstream.post(replica, request.path, body)
                most = EVENTS_PER_TOKEN * request.output_limit_tokens + EVENTS_BESIDE
                if response.status in CLIENTS_FAULT:
                    said = await _whole(response, limits.answer_limit_bytes)
                    problem = error_of(response.status, said, replica.model, self._model)
                    data, status = problem.body(), problem.status
                    opened = Opened(sent, response, None, data, between_s, most, status, Used(0, 0))
                elif response.status != 200:
                    raise UpstreamFailed(events.Cause.ERROR)
                elif request.stream and response.content_type == "text/event-stream":
                    tally = SseTally()
                    data = await _first_text(response, tally)
                    opened = Opened(sent, response, tally, data, between_s, most)
                else:
                    whole = await _whole(response, limits.answer_limit_bytes)
                    if (used := used_by(whole)) is None:
                        raise UpstreamFailed(events.Cause.ERROR)
                    data = Public(self.public_name).of(whole)
                    opened = Opened(sent, response, None, data, between_s, most, 200, used)
        except TimeoutError as error:
            raise UpstreamFailed(events.Cause.TIMEOUT) from error
        finally:
            if opened is None and response is not None:
                response.close()
        self._decider.heard(sent.replica_id)
        return opened


def waits_of(patience: Patience, limits: GatewayLimits) -> Patience:
    """How long an attempt is waited for: as its class promises, else as long as a gateway waits for anything.

    A promise may be longer than that: who is promised an answer within ten minutes is not cut off after five.
    """
    if patience.first_s < inf:
        return patience
    return Patience(
        limits.first_byte_timeout_s, limits.between_bytes_timeout_s, limits.whole_answer_timeout_s
    )


async def _first_text(response: aiohttp.ClientResponse, tally: SseTally) -> bytes:
    """What of a stream is to be passed on, from its first text on; nothing where it ends without."""
    while chunk := await read_some(response):
        if data := fed(tally, chunk):
            return data
        if tally.failed:
            raise UpstreamFailed(events.Cause.ERROR)
    if not tally.is_whole:  # nothing has gone out yet: another replica may be asked
        raise UpstreamFailed(events.Cause.BROKEN)
    return b""


def fed(tally: SseTally, chunk: bytes) -> bytes:
    """What may be passed on after one more chunk. Raises UpstreamFailed on events without end."""
    try:
        return tally.feed(chunk)
    except ValueError as error:
        raise UpstreamFailed(events.Cause.ERROR) from error


async def _whole(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    body = bytearray()
    while chunk := await read_some(response):
        body += chunk
        if len(body) > limit_bytes:
            raise UpstreamFailed(events.Cause.ERROR)
    return bytes(body)


Outcome = Opened | UpstreamFailed


class Race:
    """The attempts of one request until one answers. Mutable: the gate says when a second one begins.

    The first runs in its caller's own task, since few are ever joined by a second; one that is overtaken is
    cancelled there. `stop` ends what still runs; of what was answered and not taken the connection is closed.
    """

    def __init__(
        self,
        open_one: Callable[[GenerationRequest, events.Send], Awaitable[Opened]],
        request: GenerationRequest,
        failed: Callable[[int, events.Cause, int], object],
    ) -> None:
        self._open_one, self._request, self._failed = open_one, request, failed
        self._first: asyncio.Task[Any] | None = None  # while the first attempt runs
        self._overtaken = False
        self._tasks: dict[int, asyncio.Task[None]] = {}  # of the others, by attempt
        # HOT: made when a second attempt begins, which few requests see.
        self._outcomes: asyncio.Queue[tuple[events.Send, Outcome | Exception]] | None = None

    def told(self, effect: events.Send | events.Cancel) -> None:
        """The gate wants one more attempt, or one less."""
        if isinstance(effect, events.Send):
            self.begin(effect)
        elif (task := self._tasks.pop(effect.attempt, None)) is not None:
            task.cancel()

    def begin(self, sent: events.Send) -> None:
        """One more attempt."""
        if self._outcomes is None:
            self._outcomes = asyncio.Queue()
        self._tasks[sent.attempt] = asyncio.create_task(self._run(sent))

    async def first(self, sent: events.Send) -> tuple[events.Send, Outcome]:
        """The first attempt, or one that began beside it and answered sooner."""
        task = self._first = asyncio.current_task()
        assert task is not None
        try:
            return sent, await self._open_one(self._request, sent)
        except UpstreamFailed as failure:
            return sent, failure
        except asyncio.CancelledError:
            if not self._overtaken or task.uncancel():  # it is the client that left
                raise
        finally:
            self._first = None
        return await self.next()

    async def next(self) -> tuple[events.Send, Outcome]:
        """The next attempt that has answered or failed, of those that began."""
        if self._outcomes is None:  # the gate believes in one that nobody began
            raise UpstreamFailed(events.Cause.ERROR)
        sent, outcome = await self._outcomes.get()
        if isinstance(outcome, Opened | UpstreamFailed):
            return sent, outcome
        raise outcome  # a mistake of ours

    def stop(self) -> None:
        """No attempt is wanted any more but the one that was taken."""
        for task in self._tasks.values():
            task.cancel()
        while self._outcomes is not None and not self._outcomes.empty():
            _, outcome = self._outcomes.get_nowait()
            if isinstance(outcome, Opened):
                outcome.close()

    async def _run(self, sent: events.Send) -> None:
        try:
            outcome: Outcome | Exception = await self._open_one(self._request, sent)
        except Exception as error:  # told to who waits: a task's own exceptions are heard by nobody
            outcome = error
        if self._first is not None and isinstance(outcome, UpstreamFailed):
            self._failed(sent.request_id, outcome.cause, sent.attempt)  # the first goes on
            return
        assert self._outcomes is not None
        self._outcomes.put_nowait((sent, outcome))
        if self._first is not None and not self._overtaken:
            self._overtaken = True
            self._first.cancel()
