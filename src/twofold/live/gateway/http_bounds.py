"""The server's protocol with every byte of a head counted: uvicorn's, which bounds bodies and not heads.

A head is what stands before a request's body, and what stands after one: trailers, extensions of its chunks.
Connections are bounded too: beyond their limit a new one takes the place of the one that has asked nothing
for longest, and only where all are being answered it is told to come again.
"""

import asyncio
import resource
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twofold.live.gateway.openai_requests import Problem

HEAD_LIMIT_BYTES = 64 << 10
HEAD_TIMEOUT_S = 30.0  # from the connection, or from the first byte of a later head, to its end
PIPELINED_MOST = 8  # requests that wait for the answer of an earlier one
FILES_BESIDE = 64  # that the process has open besides its connections: logs, probes, the controller's
FULL = Problem(503, "Too many connections; ask again in 1 s", code="too_many_connections", retry_after_s=1)


class BoundedHttp(HttpToolsProtocol):  # type: ignore[misc]  # it is not typed
    """Closes on a client whose head is too long or slow, or who asks on and on. Mutable: one connection."""

    head_limit_bytes, head_timeout_s = HEAD_LIMIT_BYTES, HEAD_TIMEOUT_S
    _head_bytes = 0  # since a head or a part of a body was last whole
    _told = False  # whether the bytes that are being read ended a head, or were of a body
    _alarm: asyncio.TimerHandle | None = None

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self._most: int | None = self.config.limit_concurrency
        self.limit_concurrency = None  # uvicorn's own answer has no form of ours, and counts who asks nothing
        self._idle: dict[BoundedHttp, None] = self.server_state.__dict__.setdefault(
            "idle", {}
        )  # oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there, and has so long to say what it wants."""
        super().connection_made(transport)
        self._idle[self] = None
        self._make_room()
        self._set_alarm()

    def data_received(self, data: bytes) -> None:
        """Bytes of heads are counted at all times, while an answer is under way too."""
        self._told = False
        super().data_received(data)
        if self._told:
            self._head_bytes = 0
            self._drop_alarm()
        else:
            self._head_bytes += len(data)
        too_many = self._head_bytes > self.head_limit_bytes or len(self.pipeline) > PIPELINED_MOST
        if too_many and not self.transport.is_closing():
            self.transport.abort()  # what is written to somebody who does not read would be kept
        elif self._head_bytes and self._alarm is None:
            self._set_alarm()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._told = True
        self._idle.pop(self, None)
        self._make_room()
        self.app = too_many_connections if self._is_full() else self.config.loaded_app
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """An answer is whole: nothing is asked, unless more requests wait."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._idle[self] = None

    def on_body(self, body: bytes) -> None:
        """A part of a body, which the application bounds; behind an answer nobody reads it."""
        self._told = self._told or not self.cycle.response_complete
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._told = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._idle.pop(self, None)
        self._drop_alarm()
        super().connection_lost(exc)

    def _is_full(self) -> bool:
        return self._most is not None and len(self.connections) > self._most

    def _make_room(self) -> None:
        """Where there are too many, end the one that has asked nothing for longest, if it is another."""
        oldest = next(iter(self._idle), self)
        if self._is_full() and oldest is not self:
            del self._idle[oldest]
            self.connections.discard(oldest)
            oldest.transport.abort()

    def _set_alarm(self) -> None:
        self._alarm = self.loop.call_later(self.head_timeout_s, self._too_slow)

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _too_slow(self) -> None:
        self._alarm = None
        self.transport.close()


async def too_many_connections(_scope: Any, _receive: Any, send: Any) -> None:
    """The application of a server without a free place."""
    body = FULL.body()
    headers = (
        *((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))),
        *((b"retry-after", b"1"), (b"connection", b"close")),
    )
    await send({"type": "http.response.start", "status": FULL.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def allow_connections(wanted: int) -> int:
    """Let this process have so many connections, each with one to a replica; how many it may have."""
    needed = 2 * wanted + FILES_BESIDE
    softly, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if softly != resource.RLIM_INFINITY and softly < needed:
        softly = needed if most == resource.RLIM_INFINITY else min(needed, most)
        with suppress(OSError, ValueError):  # where even that is refused, the usual number must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (softly, most))
        softly = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    may = wanted if softly == resource.RLIM_INFINITY else (softly - FILES_BESIDE) // 2
    return max(1, min(wanted, may))
