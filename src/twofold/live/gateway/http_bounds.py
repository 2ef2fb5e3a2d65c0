"""The server's protocol with every byte of a head counted: uvicorn's, which bounds bodies and not heads.

A head is what stands before a request's body, and what stands after one: trailers, extensions of its chunks.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT_BYTES = 64 << 10
HEAD_TIMEOUT_S = 30.0  # from the connection, or from the first byte of a later head, to its end
PIPELINED_MOST = 8  # requests that wait for the answer of an earlier one


class BoundedHttp(HttpToolsProtocol):  # type: ignore[misc]  # it is not typed
    """Closes on a client whose head is too long or slow, or who asks on and on. Mutable: one connection."""

    head_limit_bytes, head_timeout_s = HEAD_LIMIT_BYTES, HEAD_TIMEOUT_S
    _head_bytes = 0  # since a head or a part of a body was last whole
    _told = False  # whether the bytes that are being read ended a head, or were of a body
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there, and has so long to say what it wants."""
        super().connection_made(transport)
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
        super().on_headers_complete()

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
        self._drop_alarm()
        super().connection_lost(exc)

    def _set_alarm(self) -> None:
        self._alarm = self.loop.call_later(self.head_timeout_s, self._too_slow)

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _too_slow(self) -> None:
        self._alarm = None
        self.transport.close()
