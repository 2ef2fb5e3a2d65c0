"""Asks the servers of CPU tiers on behalf of requests, and takes over what they make of them.

A server gets the request's body by POST, as a replica would. 200 with a JSON object that has `messages` or
`prompt` changes that field of the request: found documents, or the prompt as token ids. Any other 2xx answer
leaves the request as it is; everything else is a failure, of which the gate decides what follows.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from twofold.live.gateway.engine_fields import CHAT
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayReplica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.openai_requests import GenerationRequest, Problem
from twofold.live.gateway.upstream import Upstream, UpstreamFailed, read_some
from twofold.policy.gate import events

Read = Callable[[str, bytes], Awaitable[GenerationRequest | Problem]]
OK, SUCCESSES = 200, range(200, 300)


class TierCalls:
    """The servers of all tiers. Keeps nothing of any request."""

    def __init__(self, decider: GateDriver, upstream: Upstream, config: GatewayConfig, read: Read) -> None:
        self.decider, self.upstream, self._read = decider, upstream, read
        self.servers: Mapping[str, GatewayReplica] = {each.replica_id: each for each in config.tier_servers}
        self.timeouts_s = {each.name: each.timeout_s for each in config.gate.tiers}
        self._limit_bytes, self._model = config.limits.body_limit_bytes, config.model_name

    def on_behalf(self, request: GenerationRequest) -> "Preparation":
        """For one request, whose body may change from tier to tier."""
        return Preparation(self, request)

    async def asked(self, request: GenerationRequest, ask: events.AskTier) -> GenerationRequest:
        """The request as a server leaves it. Raises UpstreamFailed."""
        response = None
        try:
            async with asyncio.timeout(self.timeouts_s[ask.tier]):
                server = self.servers[ask.replica_id]
                response = await self.upstream.post(server, "", request.body(self._model))
                if response.status not in SUCCESSES:
                    raise UpstreamFailed(events.Cause.ERROR)
                body = bytearray()
                while chunk := await read_some(response):
                    body += chunk
                    if len(body) > self._limit_bytes:
                        raise UpstreamFailed(events.Cause.ERROR)
                if response.status != OK:
                    return request
                return await self._changed(request, bytes(body))
        except TimeoutError as error:
            raise UpstreamFailed(events.Cause.TIMEOUT) from error
        finally:
            if response is not None:
                response.close()

    async def _changed(self, request: GenerationRequest, body: bytes) -> GenerationRequest:
        """What the server says of the prompt is judged as a client's would be: it may not fit any more."""
        field = "messages" if request.path == CHAT else "prompt"
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return request
        if not isinstance(told, dict) or field not in told:
            return request
        whole = {**request.fields, field: told[field]}
        made = await self._read(request.path, json.dumps(whole).encode())
        if isinstance(made, Problem):
            raise UpstreamFailed(events.Cause.ERROR)
        return made


class Preparation:
    """One request on its way through the tiers. Mutable: what it has become, and the call that runs."""

    def __init__(self, calls: TierCalls, request: GenerationRequest) -> None:
        self._calls, self.request = calls, request
        self._task: asyncio.Task[None] | None = None

    def ask(self, effect: events.AskTier) -> None:
        """The gate wants a server asked."""
        self._task = asyncio.create_task(self._run(effect))

    def stop(self) -> None:
        """Nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, effect: events.AskTier) -> None:
        before = self.request
        try:
            self.request = await self._calls.asked(before, effect)
        except UpstreamFailed as failure:
            self._calls.decider.tier_failed(effect, failure.cause)
        except Exception:  # a mistake of ours must hold no place for ever; the loop's handler logs it
            self._calls.decider.tier_failed(effect, events.Cause.ERROR)
            raise
        else:
            longer = self.request.input_tokens if self.request is not before else None
            self._calls.decider.tier_answered(effect, longer)
