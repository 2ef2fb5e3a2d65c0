"""What engines count of themselves, passed through under their own names, each with its replica."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twofold.core.errors import ValueRefusedError
from twofold.live import metrics_text
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.server_urls import asking

if TYPE_CHECKING:
    import aiohttp

PATH = "/metrics"
TIMEOUT_S = 2.0
LIMIT_BYTES = 4 << 20  # of one engine's page; a larger one is left out


async def engine_series(replicas: Mapping[str, GatewayReplica]) -> str:
    """The series of all engines that have some; one that is silent or has none is left out."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        pages = await asyncio.gather(*(_page(session, each) for each in replicas.values()))
    told = {name: page for name, page in zip(replicas, pages, strict=True) if page}
    # Megabytes of text are no work for the loop that passes tokens on.
    return await asyncio.to_thread(metrics_text.with_label, told, "replica")


async def _page(session: "aiohttp.ClientSession", replica: GatewayReplica) -> str:
    try:
        options = asking(replica.key_variable, replica.authorities, tls=replica.tls)
    except ValueRefusedError:
        return ""
    return await metrics_page(session, replica.base + PATH, options)


async def metrics_page(session: "aiohttp.ClientSession", url: str, options: Mapping[str, Any]) -> str:
    """A program's page of metrics in Prometheus' text format; "" where it says none that can be read."""
    import aiohttp

    try:
        async with session.get(url, allow_redirects=False, **options) as answer:
            if answer.status != 200 or not answer.content_type.startswith("text/plain"):
                return ""
            data = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                data += part
                if len(data) > LIMIT_BYTES:
                    return ""
            return data.decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return ""
