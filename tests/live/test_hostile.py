"""Engines and clients that mean harm or know no better: one clean error each, and memory stays bounded.

The gateway is a process of its own, whose memory is looked at from outside.
"""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

import aiohttp
import psutil

from tests.live.conftest import chunk, sse
from tests.live.test_gateway import PATH, QUICK, STREAM, configured, gateway, process
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayLimits
from twofold.live.sse import DONE

MIB = 1 << 20
GROWTH_BYTES = 48 * MIB  # of the gateway's memory, whatever one scenario does to it
ROLE = sse({"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]})
TEXT = sse({"choices": [{"text": "t0 ", "finish_reason": None}]})
STREAMS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
Speaks = Callable[[asyncio.StreamWriter], Awaitable[None]]


def says(data: bytes) -> Speaks:
    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return speak


def on_and_on(first: bytes, piece: bytes, pause_s: float = 0.0) -> Speaks:
    """The same piece for ever, as fast as it is read or with pauses."""

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return speak


ENGINES = {
    "no HTTP": says(b"\x00\xff garbage \r\n\r\n" * 10),
    "nothing": says(b""),
    "half a head": says(b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "a head without end": on_and_on(b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
    "one header without end": on_and_on(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 65536),
    "1xx without end": on_and_on(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "another protocol": says(b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"),
    "elsewhere": says(b"HTTP/1.1 302 X\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"),
    "status 099": says(b"HTTP/1.1 099 X\r\ncontent-length: 2\r\n\r\n{}"),
    "a length that lies": says(JSON_HEAD + b"content-length: 500\r\n\r\n{}"),
    "a body without end": on_and_on(JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n", chunk(b"x" * 65536)),
    "an event without end": on_and_on(STREAMS, chunk(b"x" * 65536)),
    "comments for ever": on_and_on(STREAMS, chunk(b": ping\n\n"), 0.01),
    "a chunk of no size": says(STREAMS + b"zz\r\n"),
    "its own error": says(
        STREAMS + chunk(sse({"error": {"message": "boom /secret/path KEY=abc"}})) + b"0\r\n\r\n"
    ),
    "nested without end": says(JSON_HEAD + b"content-length: 200000\r\n\r\n" + b"[" * 200_000),
}
LATER = {  # with a first text: the answer has begun
    "comments for ever": on_and_on(STREAMS + chunk(TEXT), chunk(b": ping\n\n"), 0.01),
    "silence": on_and_on(STREAMS + chunk(TEXT), b"", 0.05),
    "tokens for ever": on_and_on(STREAMS + chunk(TEXT), chunk(TEXT * 64)),
    "an event without end": on_and_on(STREAMS + chunk(TEXT), chunk(b"x" * 65536)),
    "its own error": says(
        STREAMS + chunk(TEXT) + chunk(sse({"error": {"message": "boom /secret/path"}})) + b"0\r\n\r\n"
    ),
}


@asynccontextmanager
async def engine_that(speaks: Speaks) -> AsyncIterator[Any]:
    """A server that answers whatever is asked so; its `port`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await speaks(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield type("Engine", (), {"port": server.sockets[0].getsockname()[1]})
    finally:
        server.close()


class Watched:
    """A gateway's process: how much more memory it has taken at most. Mutable."""

    def __init__(self, process_id: int) -> None:
        self._process = psutil.Process(process_id)
        self._first_bytes = self._process.memory_info().rss
        self.growth_bytes = 0

    def look(self) -> int:
        grown = self._process.memory_info().rss - self._first_bytes
        self.growth_bytes = max(self.growth_bytes, grown)
        return self.growth_bytes


def of_gateway(
    folder: Path,
    speaks: Speaks,
    scenario: Callable[[GatewayConfig, Any, Watched], Awaitable[None]],
    **limits: Any,
) -> None:
    async def main() -> None:
        told = GatewayLimits(**{"first_byte_timeout_s": 1.0, "between_bytes_timeout_s": 0.5, **limits})
        async with engine_that(speaks) as engine:
            config = configured(folder, [engine], limits=told, gate=QUICK)
            async with process(config, folder) as child, aiohttp.ClientSession() as client:
                watched = Watched(child.pid)
                looking = asyncio.create_task(looks(watched))
                try:
                    async with asyncio.timeout(90):
                        await scenario(config, client, watched)
                finally:
                    looking.cancel()
                assert watched.look() < GROWTH_BYTES
                assert child.poll() is None

    asyncio.run(main())


async def looks(watched: Watched) -> None:
    while True:
        watched.look()
        await asyncio.sleep(0.02)


async def asks(config: GatewayConfig, client: Any, body: Any = STREAM) -> tuple[int, bytes]:
    async with client.post(f"http://127.0.0.1:{config.port}{PATH}", json=body) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("speaks", ENGINES.values(), ids=ENGINES)
def test_whatever_an_engine_says_is_one_clean_error(tmp_path: Path, speaks: Speaks) -> None:
    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        for stream in (True, False):
            status, body = await asks(config, client, {**STREAM, "stream": stream})
            assert (status, json.loads(body)["error"]["code"]) in (
                (502, "replica_failed"),
                (503, "no-replica"),
            )
            assert b"secret" not in body and b"Traceback" not in body
        async with client.get(f"http://127.0.0.1:{config.port}/state") as answer:
            assert (await answer.json())["in_flight"] == 0

    of_gateway(tmp_path, speaks, scenario, whole_answer_timeout_s=1.0)


@pytest.mark.parametrize("speaks", LATER.values(), ids=LATER)
def test_an_answer_that_goes_wrong_ends_with_an_error_and_in_time(tmp_path: Path, speaks: Speaks) -> None:
    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        status, body = await asks(config, client)
        assert status == 200 and body.startswith(TEXT) and b"secret" not in body
        [error] = [line for line in body.split(b"\n\n") if b'"error"' in line]
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "replica_failed"
        assert b"[DONE]" not in body

    of_gateway(tmp_path, speaks, scenario)


@pytest.mark.parametrize("in_chunks", [True, False])
def test_bodies_of_100_mb_are_refused_and_not_kept(tmp_path: Path, in_chunks: bool) -> None:
    size = 100 * MIB

    async def body() -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield b"x" * 65536

    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        url = f"http://127.0.0.1:{config.port}{PATH}"
        headers = {} if in_chunks else {"content-length": str(size)}

        async def one() -> int:
            async with client.post(url, data=body(), headers=headers) as answer:
                return int(answer.status)

        assert await asyncio.gather(*(one() for _ in range(8))) == [413] * 8

    of_gateway(tmp_path, says(b""), scenario)


def test_who_does_not_read_keeps_nothing_in_memory(tmp_path: Path) -> None:
    """Eight at once, of an engine that could write tens of megabytes to each."""
    big = sse({"choices": [{"text": "x" * 65536, "finish_reason": None}]})

    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        body = json.dumps({**STREAM, "max_tokens": 4096}).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        writers = []
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", config.port, limit=1024)
            writer.write(head + body)
            writers.append(writer)
        while True:
            async with client.get(f"http://127.0.0.1:{config.port}/state") as answer:
                counts = (await answer.json())["counts"]
            if counts["left"] + counts["gave_up"] + counts["refused"] == 8:
                break
            await asyncio.sleep(0.05)
        assert counts["left"] >= 1
        for writer in writers:
            writer.close()

    of_gateway(tmp_path, on_and_on(STREAMS, chunk(big)), scenario)


ASKED = json.dumps(STREAM).encode()
WITHIN = {  # of one connection, bytes of heads without end follow
    "a later head while an answer is under way": b"POST %b HTTP/1.1\r\nhost: x\r\n"
    b"content-length: %d\r\n\r\n%b"
    b"GET /health HTTP/1.1\r\n" % (PATH.encode(), len(ASKED), ASKED),
    "trailers of a body in chunks": b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n" % PATH.encode(),
}


@pytest.mark.parametrize("first", WITHIN.values(), ids=WITHIN)
@pytest.mark.parametrize("piece", [b"x-a: " + b"y" * 60_000 + b"\r\n", b"y" * 65_536], ids=["many", "one"])
def test_heads_without_end_are_cut_off_and_stall_nobody(tmp_path: Path, first: bytes, piece: bytes) -> None:
    """Once they were kept, all of them, and one long value was read again from its start with each part."""

    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", config.port)
        writer.write(first if piece.endswith(b"\n") else first + b"x: ")
        sent_bytes = 0
        with suppress(ConnectionError):
            while sent_bytes < 64 * MIB:
                writer.write(piece)
                await writer.drain()
                sent_bytes += len(piece)
        assert sent_bytes < 16 * MIB  # what the system's own buffers took, and no more
        writer.close()
        async with (
            asyncio.timeout(5),
            client.get(f"http://127.0.0.1:{config.port}/v1/models") as answer,
        ):
            assert answer.status == 200

    of_gateway(tmp_path, on_and_on(STREAMS + chunk(TEXT), b"", 0.05), scenario, between_bytes_timeout_s=30.0)


WHOLE = (
    STREAMS + chunk(TEXT) + chunk(sse({"choices": [{"text": "", "finish_reason": "stop"}]})) + b"0\r\n\r\n"
)


def test_ten_thousand_idle_connections_stand_in_nobodys_way(tmp_path: Path) -> None:
    count, (softly, most) = 10_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count + 200:
        pytest.skip(f"needs {count + 200} open files, and this user may have {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(softly, count + 200), most))

    async def scenario(config: GatewayConfig, client: Any, _: Watched) -> None:
        idle = []
        try:
            for number in range(count):
                opened = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", config.port), 20.0)
                idle.append(opened)
                if number % 2:
                    opened.sendall(b"GET /health HTTP/1.1\r\nx: ")  # a head that never ends
                if number % 1000 == 999:
                    assert (await asks(config, client))[0] == 200
            while sum(map(is_closed, idle)) < count - config.limits.connection_limit_count:
                await asyncio.sleep(0.05)
        finally:
            for each in idle:
                each.close()
        assert (await asks(config, client))[0] == 200

    of_gateway(tmp_path, says(WHOLE), scenario)


def is_closed(opened: socket.socket) -> bool:
    opened.setblocking(False)
    try:
        return opened.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("said", [b"", ROLE, TEXT[:-9]])
def test_a_stream_that_ends_in_peace_before_its_first_text_is_asked_of_another(
    tmp_path: Path, stub_engines: Any, said: bytes
) -> None:
    async def scenario() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        async with (
            engine_that(says(head + said)) as short,
            stub_engines(1) as [good],
            gateway(configured(tmp_path, [short, good])) as served,
        ):
            for number in range(2):
                status, answer = await served.ask(STREAM)
                assert status == 200 and answer.endswith(DONE) and b"error" not in answer
                assert len(good.requests) == number + 1

    asyncio.run(scenario())
