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
from typing import Any

import aiohttp

from twofold.live import metrics_text
from twofold.live.control.engines import Engine, Series
from twofold.live.gateway.engine_fields import CHAT, COMPLETIONS
from twofold.live.gateway.engine_series import metrics_page

HEALTH_TIMEOUT_S = 1.0
COMPLETION_TIMEOUT_S = 20.0
NO_SUCH_PATH = (404, 405, 501)
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
        self.options: dict[str, dict[str, Any]] = {}  # that requests to a server are sent with, by its base

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def health(self, base: str, engine: Engine, timeout_s: float = HEALTH_TIMEOUT_S) -> Health:
        """How an engine is, as it says itself: any answer but a 5xx is well."""
        path = engine.health_path or "/v1/models"
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.get(
                    base + path, allow_redirects=False, **self.options.get(base, {})
                ) as answer:
                    return Health.DEAD if answer.status >= 500 else Health.WELL
        except aiohttp.ClientConnectorError:
            return Health.REFUSED
        except TimeoutError:
            return Health.SILENT
        except (aiohttp.ClientError, OSError, ValueError):
            return Health.REFUSED  # it hung up: the process is on its way out, or the answer is no HTTP

    async def completes(
        self, base: str, model: str, timeout_s: float = COMPLETION_TIMEOUT_S, **more: Any
    ) -> str:
        """Why a request for one token, with these fields too, was not answered in full, as text or, where
        that is not known, as chat; "" when it was."""
        asked = {"model": model, "max_tokens": 1, "stream": False, **more}
        text, chat = {"prompt": PROBE_PROMPT}, {"messages": [{"role": "user", "content": PROBE_PROMPT}]}
        try:
            async with asyncio.timeout(timeout_s):
                status, said = await self._asked(base + COMPLETIONS, asked | text)
                if status in NO_SUCH_PATH:
                    status, said = await self._asked(base + CHAT, asked | chat)
                if status != 200:
                    return f"status {status}"
                return "" if isinstance(json.loads(said), dict) else "no object"
        except TimeoutError:
            return f"nothing within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__

    async def answer(self, base: str, model: str, prompt: str, tokens: int, timeout_s: float) -> str | None:
        """The likeliest text that goes on from a prompt; None: it did not answer."""
        asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.0, "stream": False}
        try:
            async with asyncio.timeout(timeout_s):
                status, said = await self._asked(base + COMPLETIONS, asked)
                return str(json.loads(said)["choices"][0]["text"]) if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError):
            return None

    async def _asked(self, url: str, body: dict[str, Any]) -> tuple[int, bytes]:
        options = self.options.get(url.rpartition("/v1/")[0], {})
        async with self._session.post(url, json=body, allow_redirects=False, **options) as answer:
            return answer.status, await answer.read()

    async def report(self, base: str, engine: Engine, timeout_s: float = HEALTH_TIMEOUT_S) -> Report | None:
        """What an engine's own metrics say; None when it has none or does not say them now."""
        if not engine.metrics_path:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                url = base + engine.metrics_path
                page = await metrics_page(self._session, url, self.options.get(base, {}))
        except TimeoutError:
            return None
        return read_report(page, engine.series)


def read_report(text: str, series: Series) -> Report | None:
    """The figures of an engine's metrics page; several series of one name, as of data-parallel ranks, add.

    None when the page has none of them. KV in use is a mean over its series.
    """
    sums: dict[str, list[float]] = {}
    wanted = {series.running, series.waiting, series.kv_used} - {""}
    for line in text.splitlines():
        sample = metrics_text.SAMPLE.fullmatch(line)
        if sample is not None and sample[1] in wanted:
            figure = float(sample[3].split()[0])
            if math.isfinite(figure):
                sums.setdefault(sample[1], []).append(figure)
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
    said, settled = "its port is closed", dict(engine.settled)
    closed = said
    while (left_s := deadline_s - time.monotonic()) > 0:
        if await client.health(base, engine) is Health.WELL:
            tried = await client.completes(base, model, min(left_s, COMPLETION_TIMEOUT_S), **settled)
            if not tried:
                return ""
            # One that the deadline cut says less than the one before it.
            if said == closed or time.monotonic() < deadline_s:
                said = tried
        await asyncio.sleep(0.1)
    return said
