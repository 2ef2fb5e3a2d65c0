"""A stand-in for an engine: a small HTTP server on loopback that answers as it is told to."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.openai_service import Certificate, made_certificate


@dataclass(slots=True)
class StubEngine:
    """One stand-in. Change its fields to change what it does with the requests that come next."""

    port: int
    tokens: int = 4
    gap_s: float = 0.0  # before each token
    status: int = 200
    role_first: bool = False  # an event without text at once, as chat engines send it
    break_after: int | None = None  # the connection is cut after so many tokens
    hang: bool = False  # never a byte …
    dies_after_s: float | None = None  # … and the connection is cut after so long
    odd_end: bool = False  # the stream ends in the midst of an event, its connection closed in peace
    engines_name: str = ""  # that it says of itself in each event
    content_type: str = "application/json"
    said: bytes | None = None  # instead of the body of an answer that is not streamed
    padding: int = 0  # more bytes of each token's text
    close_on_next: bool = False  # the next request on a used connection finds it closed
    closed_unasked: int = 0
    requests: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    on_request: Callable[[], None] = lambda: None  # called before anything is answered
    lost_clients: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # at once: a kill closes what no task has begun to serve
        self._tasks.add(task := asyncio.create_task(self._serve(reader, writer)))
        task.add_done_callback(self._tasks.discard)

    async def kill(self) -> None:
        """As kill -9 does: nobody listens, and every connection is reset."""
        server, self._server = self._server, None
        for listening in server.sockets if server else ():
            asyncio.get_running_loop().remove_reader(listening.fileno())
        # What was accepted is made a connection in one of the next turns of the loop: Python 3.11 loses it if
        # the server is closed before that, and where its task has not begun, nobody else closes it.
        for _ in range(5):
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(0)
        if server:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            used = False
            while await self._answer(reader, writer, used):
                used = True
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, used: bool) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if used and self.close_on_next:
            self.close_on_next, self.closed_unasked = False, self.closed_unasked + 1
            return False
        length = int(
            next(line for line in head.lower().split("\r\n") if "content-length" in line).split(":")[1]
        )
        asked = json.loads(await reader.readexactly(length))
        self.requests.append((asyncio.get_running_loop().time(), head.split()[1], asked))
        self.on_request()
        if self.dies_after_s is not None:
            await asyncio.sleep(self.dies_after_s)
            return False
        if self.hang:
            await reader.read()
            self.lost_clients += 1
            return False
        if self.status != 200 or not asked.get("stream"):
            usage = {"prompt_tokens": 3, "completion_tokens": self.tokens}
            answer = {"model": self.engines_name, "choices": [{"text": "x"}], "usage": usage}
            body = json.dumps(answer).encode() if self.said is None else self.said
            kind, size = self.content_type, len(body)
            writer.write(
                f"HTTP/1.1 {self.status} -\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n".encode()
            )
            writer.write(body)
        elif not await self._stream(asked, reader, writer):
            return False
        await writer.drain()
        return True

    async def _stream(
        self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        if self.role_first:
            writer.write(chunk(sse({"choices": [{"delta": {"role": "assistant"}}]})))
        gone = asyncio.ensure_future(reader.read(1))
        for number in range(min(self.tokens, asked.get("max_tokens", self.tokens))):
            if number == self.break_after:
                return False
            if self.gap_s and (await asyncio.wait({gone}, timeout=self.gap_s))[0]:
                self.lost_clients += 1
                return False
            choice = {"text": f"t{number} " + "x" * self.padding, "finish_reason": None}
            named = {"model": self.engines_name} if self.engines_name else {}
            writer.write(chunk(sse({**named, "choices": [choice]})))
            await writer.drain()
        if self.break_after is not None and self.break_after >= self.tokens:
            return False
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        if self.odd_end:
            writer.write(chunk(b'data: {"choices": [{"te') + b"0\r\n\r\n")
            await writer.drain()
            return True
        writer.write(chunk(sse({"choices": [{"text": "", "finish_reason": "length"}]})) + b"0\r\n\r\n")
        return True


def sse(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running_engines(count: int) -> AsyncIterator[list[StubEngine]]:
    engines = [StubEngine(a_free_port()) for _ in range(count)]
    try:
        for engine in engines:
            await engine.start()
        yield engines
    finally:
        for engine in engines:
            await engine.kill()


@pytest.fixture
def stub_engines() -> Any:
    """`async with stub_engines(2) as engines`: so many stand-ins, killed at the end."""
    return running_engines


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """An authority of our own and what it signed for this machine."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    return made_certificate(tmp_path_factory.mktemp("tls"))
