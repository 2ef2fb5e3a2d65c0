"""Does a gateway's memory stay flat over very many requests, no two of them alike?"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from bench.gateway import EVERY_POLICY, Engine
from tests.live.test_gateway import PATH, configured, process

CONNECTIONS = 16
LOOKS = 20  # at the memory, evenly over all requests
END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the gateway's process, after each twentieth of the requests."""

    requests: int
    rss_bytes: tuple[int, ...]

    @property
    def grown_bytes(self) -> int:
        """From the first quarter's end, when pools and tables are warm, to the last look."""
        return self.rss_bytes[-1] - self.rss_bytes[len(self.rss_bytes) // 4]


@asynccontextmanager
async def quick_engine() -> AsyncIterator[Any]:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # of hedges that lost, it writes to nobody
    try:
        yield type("At", (), {"port": server.sockets[0].getsockname()[1]})
    finally:
        server.close()


async def over(folder: Path, count: int) -> Memory:
    """So many requests by a few connections; each prompt, session and name is new, and a thousand tenants."""
    async with quick_engine() as engine:
        config = configured(folder, [engine, engine], limit=64, gate=EVERY_POLICY)
        config = replace(config, requests_log=str(folder / "requests.jsonl"))
        async with process(config, folder) as child:
            watched, found, done = psutil.Process(child.pid), list[int](), 0
            while done < count:
                part = range(done, done + count // LOOKS)
                shares = [part[number::CONNECTIONS] for number in range(CONNECTIONS)]
                await asyncio.gather(*(_asks(config.port, share) for share in shares))
                done += count // LOOKS
                found.append(watched.memory_info().rss)
    return Memory(done, tuple(found))


async def _asks(port: int, numbers: range) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        body = json.dumps({"prompt": f"{number} " + "x" * 200, "max_tokens": 16, "stream": True}).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: x\r\nx-tenant: t{number % 1000}\r\n"
            f"x-twofold-session: s{number}\r\nx-request-id: r{number}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        said = await reader.readuntil(END)
        assert said.startswith(b"HTTP/1.1 200") and b'"error"' not in said, said[:300]
    writer.close()
