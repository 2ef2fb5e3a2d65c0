"""What is asked of a running engine: is it well, does it answer, what does it say of itself.

An engine that refuses, that says of itself that it is dead, and one that is silent are told apart: the first
two are known at once, silence only after a time, since a busy engine is silent too.
"""

import asyncio
import json
import math
import time
from dataclasses import dataclass
from enum import Enum

import aiohttp

from twofold.live.control.engines import Engine, Series

HEALTH_TIMEOUT_S = 1.0
COMPLETION_TIMEOUT_S = 20.0
METRICS_LIMIT_BYTES = 1 << 20
PROBE_PROMPT = "import os"


class Health(Enum):
    """What an engine's health route came to."""

    WELL = "well"
    DEAD = "dead"  # it says so itself
    REFUSED = "refused"  # nobody listens
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Report:
    """What an engine says of itself. None: it does not say."""

    running_count: int | None
    waiting_count: int | None
    kv_used_fraction: float | None


class EngineClient:
    """The controller's connections to engines. Mutable; lives in one event loop."""

    def __init__(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def health(self, base: str, engine: Engine, timeout_s: float = HEALTH_TIMEOUT_S) -> Health:
        """How an engine is, as it says itself: any answer but a 5xx is well."""
        path = engine.health_path or "/v1/models"
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.get(base + path, allow_redirects=False) as answer:
                    return Health.DEAD if answer.status >= 500 else Health.WELL
        except aiohttp.ClientConnectorError:
            return Health.REFUSED
        except TimeoutError:
            return Health.SILENT
        except (aiohttp.ClientError, OSError, ValueError):
            return Health.REFUSED  # it hung up: the process is on its way out, or the answer is no HTTP

    async def completes(self, base: str, model: str, timeout_s: float = COMPLETION_TIMEOUT_S) -> str:
        """Why a request for one token was not answered in full; "" when it was."""
        asked = {"model": model, "prompt": PROBE_PROMPT, "max_tokens": 1, "stream": False}
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.post(f"{base}/v1/completions", json=asked) as answer:
                    body = await answer.read()
                    if answer.status != 200:
                        return f"status {answer.status}"
                    return "" if isinstance(json.loads(body), dict) else "no object"
        except TimeoutError:
            return f"nothing within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__

    async def report(self, base: str, engine: Engine, timeout_s: float = HEALTH_TIMEOUT_S) -> Report | None:
        """What an engine's own metrics say; None when it has none or does not say them now."""
        if not engine.metrics_path:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.get(base + engine.metrics_path) as answer:
                    if answer.status != 200:
                        return None
                    body = b""
                    async for part in answer.content.iter_chunked(1 << 16):
                        body += part
                        if len(body) > METRICS_LIMIT_BYTES:
                            return None
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None
        return read_report(body.decode("utf-8", "replace"), engine.series)


def read_report(text: str, series: Series) -> Report | None:
    """The figures of an engine's metrics page; several series of one name, as of data-parallel ranks, add.

    None when the page has none of them. KV in use is a mean over its series.
    """
    sums: dict[str, list[float]] = {}
    wanted = {series.running, series.waiting, series.kv_used} - {""}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if name in wanted:
            value = rest.rpartition("} ")[2] if "{" in line else rest
            try:
                figure = float(value.split()[0])
            except (ValueError, IndexError):
                continue
            if math.isfinite(figure):
                sums.setdefault(name, []).append(figure)
    if not sums:
        return None
    running, waiting, used = (sums.get(name) for name in (series.running, series.waiting, series.kv_used))
    return Report(
        round(sum(running)) if running else None,
        round(sum(waiting)) if waiting else None,
        min(max(sum(used) / len(used), 0.0), 1.0) if used else None,
    )


async def until_it_answers(
    client: EngineClient, base: str, engine: Engine, model: str, deadline_s: float
) -> str:
    """Wait for the first answered request, which also builds an engine's caches: why none was, or "".

    `deadline_s` is monotonic.
    """
    said = "its port is closed"
    while (left_s := deadline_s - time.monotonic()) > 0:
        if await client.health(base, engine) is Health.WELL:
            said = await client.completes(base, model, min(left_s, COMPLETION_TIMEOUT_S))
            if not said:
                return ""
        await asyncio.sleep(0.1)
    return said
