"""A connection that never gets to a request is closed; one that does is served as before."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("httptools", reason="needs the extra [live]: `make extras`")

import uvicorn
from uvicorn.server import ServerState

from twofold.live.gateway.http_bounds import PIPELINED_MOST, BoundedHttp

HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"
Scenario = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def with_connection(scenario: Scenario, timeout_s: float, served: Any = app, most: int | None = None) -> None:
    async def main() -> None:
        config = uvicorn.Config(
            served, interface="asgi3", lifespan="off", log_level="error", limit_concurrency=most
        )
        config.load()
        state = ServerState()

        def protocol() -> BoundedHttp:
            made = BoundedHttp(config=config, server_state=state, app_state={})
            made.head_limit_bytes, made.head_timeout_s = 1000, timeout_s
            return made

        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await asyncio.wait_for(scenario(reader, writer), 60.0)
        finally:
            writer.close()
            server.close()

    asyncio.run(main())


async def is_answered(reader: asyncio.StreamReader) -> bool:
    head = await reader.readuntil(b"\r\n\r\n")
    return head.startswith(b"HTTP/1.1 200") and await reader.readexactly(2) == b"ok"


def test_headers_without_end_are_not_kept() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for number in range(100):
            writer.write(b"x-%d: %b\r\n" % (number, b"a" * 100))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await is_answered(reader)

    with_connection(scenario, timeout_s=60.0)


@pytest.mark.parametrize("said", [b"", HEAD])
def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(said: bytes) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        assert await reader.read() == b""

    with_connection(scenario, timeout_s=0.05)


def test_one_request_after_the_other_is_answered_whatever_they_sum_to() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            writer.write(HEAD + b"x: " + b"a" * 400 + b"\r\n\r\n")
            assert await is_answered(reader)
        writer.write((HEAD + b"\r\n") * 3)  # at once
        for _ in range(3):
            assert await is_answered(reader)

    with_connection(scenario, timeout_s=60.0)


def answering_when(asked: asyncio.Event) -> Any:
    """An application that answers once it is told to."""

    async def waiting(_scope: Any, _receive: Any, send: Any) -> None:
        await asked.wait()
        await app(_scope, _receive, send)

    return waiting


FLOODS = {
    "a later head while an answer is under way": HEAD + b"\r\n" + HEAD,
    "trailers of a body in chunks": b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
}


@pytest.mark.parametrize("first", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize(
    "piece", [b"x: " + b"a" * 90 + b"\r\n", b"a" * 95], ids=["many headers", "one header"]
)
def test_no_head_is_kept_beside_a_request_either(first: bytes, piece: bytes) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first + (b"" if piece.endswith(b"\n") else b"x: "))
        for _ in range(200):
            writer.write(piece)
            try:
                await writer.drain()
            except ConnectionError:
                break
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            while True:
                await reader.readexactly(1)

    with_connection(scenario, timeout_s=60.0, served=answering_when(asyncio.Event()))


def test_who_asks_on_and_on_without_an_answer_is_closed() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((HEAD + b"\r\n") * (PIPELINED_MOST + 3))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)

    with_connection(scenario, timeout_s=60.0, served=answering_when(asyncio.Event()))


def test_a_body_behind_its_answer_does_not_hold_the_connection() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
        assert await is_answered(reader)
        writer.write(b"x")
        assert await reader.read() == b""

    with_connection(scenario, timeout_s=0.05)


def address_of(writer: asyncio.StreamWriter) -> tuple[str, int]:
    host, port = writer.get_extra_info("peername")[:2]
    return host, port


def test_beyond_the_limit_the_connection_that_asked_nothing_for_longest_makes_room() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        assert await is_answered(reader)  # from now on it is the newest of those that ask nothing
        others = [await asyncio.open_connection(*address_of(writer)) for _ in range(3)]
        for _, other in others:
            other.write(b"GET / HT")  # a head that never ends asks nothing either
        [*_, (last, other)] = [*others, await asyncio.open_connection(*address_of(writer))]
        with suppress(ConnectionError):
            assert await reader.read() == b""  # the oldest by now
        other.write(HEAD + b"\r\n")
        assert await is_answered(last)
        for _, each in (*others, (last, other)):
            each.close()

    with_connection(scenario, timeout_s=60.0, most=4)


def test_where_all_are_being_answered_a_new_one_is_told_to_come_again() -> None:
    asked, arrived = asyncio.Event(), asyncio.Semaphore(0)
    waiting = answering_when(asked)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        arrived.release()
        await waiting(scope, receive, send)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        await arrived.acquire()
        second, asking = await asyncio.open_connection(*address_of(writer))
        asking.write(HEAD + b"\r\n")
        await arrived.acquire()
        third, too_many = await asyncio.open_connection(*address_of(writer))
        too_many.write(HEAD + b"\r\n")
        said = await third.read()
        assert said.startswith(b"HTTP/1.1 503") and b"retry-after: 1\r\n" in said
        assert b'"code": "too_many_connections"' in said
        asked.set()
        assert await is_answered(reader) and await is_answered(second)
        for each in (asking, too_many):
            each.close()

    with_connection(scenario, timeout_s=60.0, served=served, most=2)


def test_one_that_asks_again_is_served_before_one_too_many_that_asks_nothing() -> None:
    goes, arrived = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        arrived.release()
        await goes.acquire()
        await app(scope, receive, send)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        second, asking = await asyncio.open_connection(*address_of(writer))
        for each in (writer, asking):
            each.write(HEAD + b"\r\n")
            await arrived.acquire()
        silent, nothing = await asyncio.open_connection(*address_of(writer))
        goes.release()
        assert await is_answered(reader)
        writer.write(HEAD + b"\r\n")
        goes.release()
        goes.release()
        assert await is_answered(reader) and await is_answered(second)
        with suppress(ConnectionError):
            assert await silent.read() == b""
        for each in (asking, nothing):
            each.close()

    with_connection(scenario, timeout_s=60.0, served=served, most=2)
