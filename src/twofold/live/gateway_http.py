"""What a client's connection may cost before its request is known: bytes and seconds of a request's head.

The server's parser has no limit of its own: it keeps every header that it is sent, for as long as they come.
"""

import asyncio
from typing import Any

HEAD_LIMIT_BYTES = 64 << 10
HEAD_TIMEOUT_S = 30.0  # from the connection, or from the first byte of a later head, to its end


class BoundedHttp(asyncio.Protocol):
    """The server's protocol, closed on a client whose head is too long or slow. Mutable: one connection."""

    def __init__(
        self, http: Any, limit_bytes: int = HEAD_LIMIT_BYTES, timeout_s: float = HEAD_TIMEOUT_S
    ) -> None:
        self._http, self._limit_bytes, self._timeout_s = http, limit_bytes, timeout_s
        self._head_bytes = 0
        self._transport: Any = None
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there, and has so long to say what it wants."""
        self._transport = transport
        self._http.connection_made(transport)
        self._set_alarm()

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, until the parser begins a request; a body's are the application's to bound."""
        self._http.data_received(data)
        if self._is_in_request():
            self._head_bytes = 0
            self._drop_alarm()
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._limit_bytes:
            self._transport.close()
        elif self._alarm is None:
            self._set_alarm()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._drop_alarm()
        self._http.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """The client will not write any more."""
        kept_open: bool | None = self._http.eof_received()
        return kept_open

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._http.resume_writing()

    def _is_in_request(self) -> bool:
        cycle = self._http.cycle
        return cycle is not None and not cycle.response_complete

    def _set_alarm(self) -> None:
        self._alarm = asyncio.get_running_loop().call_later(self._timeout_s, self._too_slow)

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _too_slow(self) -> None:
        self._alarm = None
        if not self._is_in_request():
            self._transport.close()


def bounded_http(**server: Any) -> BoundedHttp:
    """The protocol of one connection, as the server makes them."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return BoundedHttp(HttpToolsProtocol(**server))
