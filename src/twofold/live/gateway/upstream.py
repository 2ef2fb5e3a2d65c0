"""The gateway's way to its replicas: pooled connections, and one word for whatever goes wrong on them."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp

from twofold.core.errors import ValueRefusedError
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.gateway_driver import cause_of
from twofold.live.server_urls import asking
from twofold.policy.gate import events

HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
KEEP_ALIVE_S = 30.0
READ_BUFFER_BYTES = 1 << 16
NOTHING: Mapping[str, Any] = {}
CLOSED_WITHIN_S = 0.2  # in which it shows that a connection was closed already: a round trip, and a slow loop


class UpstreamFailed(Exception):
    """An attempt at a replica failed; the gate decides what follows."""

    def __init__(self, cause: events.Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


@dataclass(slots=True)
class Attempt:
    """Mutable: when a request went out on a connection that had been used before."""

    reused_s: float = -math.inf  # never: on a new one


class Upstream:
    """The connections to all replicas. Mutable; lives in one event loop."""

    def __init__(self, connect_timeout_s: float) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)

        async def reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
            context.trace_request_ctx.reused_s = time.monotonic()

        watch = aiohttp.TraceConfig()
        watch.on_connection_reuseconn.append(reused)

        def session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                headers=HEADERS,
                skip_auto_headers=("User-Agent", "Accept"),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=READ_BUFFER_BYTES,
                trace_configs=[watch],
            )

        # No limit here: the gate bounds what is in flight at each replica.
        self._pooled = session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S))
        self._fresh = session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def post(self, replica: GatewayReplica, path: str, body: bytes) -> aiohttp.ClientResponse:
        """The beginning of a replica's answer, its status and headers read. Raises UpstreamFailed.

        A connection that the replica closed while it lay idle says nothing about the replica: the request
        goes out once more on a new one. Only a used connection is such a one, only before any byte of an
        answer, and only if it breaks at once: later, the replica has worked on the request, and whether it is
        to do so again is the gate's to say. Where nobody listens by then, the replica did not close an idle
        connection: it died, and maybe of this request.
        """
        url, attempt, options = replica.base + path, Attempt(), self._options(replica)
        try:
            return await self._ask(self._pooled, url, body, attempt, options)
        except UpstreamFailed as failure:
            used_for_s = time.monotonic() - attempt.reused_s
            if failure.cause is not events.Cause.BROKEN or used_for_s > CLOSED_WITHIN_S:
                raise
        try:
            return await self._ask(self._fresh, url, body, Attempt(), options)
        except UpstreamFailed as again:
            if again.cause is events.Cause.REFUSED:
                raise UpstreamFailed(events.Cause.BROKEN) from again
            raise

    def _options(self, replica: GatewayReplica) -> Mapping[str, Any]:
        """How a server that is not ours is asked; an engine that we started needs nothing."""
        if not (replica.tls or replica.key_variable):  # HOT: per attempt
            return NOTHING
        try:
            return asking(replica.key_variable, replica.authorities, tls=replica.tls)
        except ValueRefusedError as error:
            raise UpstreamFailed(events.Cause.REFUSED) from error

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        url: str,
        body: bytes,
        attempt: Attempt,
        options: Mapping[str, Any],
    ) -> aiohttp.ClientResponse:
        try:
            return await session.post(
                url, data=body, allow_redirects=False, trace_request_ctx=attempt, **options
            )
        except aiohttp.ClientConnectorError as error:
            raise UpstreamFailed(cause_of(error.os_error)) from error
        except aiohttp.ServerTimeoutError as error:
            raise UpstreamFailed(events.Cause.TIMEOUT) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(events.Cause.BROKEN) from error

    async def close(self) -> None:
        """Close every connection."""
        await self._pooled.close()
        await self._fresh.close()


async def read_some(response: aiohttp.ClientResponse) -> bytes:
    """What has come of an answer's body, at least a byte; nothing at its end. Raises UpstreamFailed."""
    try:
        data: bytes = await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamFailed(events.Cause.BROKEN) from error
    return data
