"""A gateway on a thread of its own before a stand-in, for tests that ask by libraries that wait."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.conftest import StubEngine, running_engines
from tests.live.test_gateway import configured, gateway


@dataclass(frozen=True, slots=True)
class Threaded:
    """It serves at `port` of loopback; `engine` keeps what it was asked."""

    port: int
    engine: StubEngine


@contextmanager
def served_on_a_thread(folder: Path, **more: Any) -> Iterator[Threaded]:
    """Until the end of the block; `more` goes to `configured`."""
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    made: list[Threaded] = []

    async def run() -> None:
        async with running_engines(1) as [engine]:
            config = configured(folder, [engine], **more)
            async with gateway(config):
                made.append(Threaded(config.port, engine))
                started.set()
                await ended.wait()
                for _ in range(5):  # who has just come is let in before the server closes
                    await asyncio.sleep(0)

    def whole() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            started.set()

    thread = threading.Thread(target=whole, daemon=True)
    thread.start()
    try:
        assert started.wait(30) and made
        yield made[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
