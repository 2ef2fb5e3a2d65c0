"""Bursts of equal requests to servers that stream answers, from one event loop without any library."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress

from twofold.device.cases import LONG_ANSWER_TOKENS, SHORT_ANSWER_TOKENS, Sample, Service

BURSTS = 3
TIMEOUT_S = 120.0


def served_samples(service: Service, replicas: Sequence[tuple[int, str]]) -> tuple[Sample, Sample]:
    """Seconds of one decoding step, and from a request to its first token, with all replicas loaded alike.

    `replicas` are (port, model). Two bursts that differ in the answers' length alone differ by that many
    steps; what the shorter takes beyond its own steps is what comes before a first token.
    """
    return asyncio.run(_served(service, replicas))


async def _served(service: Service, replicas: Sequence[tuple[int, str]]) -> tuple[Sample, Sample]:
    await _burst(service, replicas, SHORT_ANSWER_TOKENS)  # warms caches and threads
    steps_s, first_s = [], []
    for _ in range(BURSTS):
        short_s = await _burst(service, replicas, SHORT_ANSWER_TOKENS)
        long_s = await _burst(service, replicas, LONG_ANSWER_TOKENS)
        step_s = max(long_s - short_s, 1e-6) / (LONG_ANSWER_TOKENS - SHORT_ANSWER_TOKENS)
        steps_s.append(step_s)
        first_s.append(max(short_s - step_s * (SHORT_ANSWER_TOKENS - 1), 1e-6))
    sizes = {
        "layers": service.layers,
        "hidden": service.hidden,
        "requests": service.requests,
        "prompt": service.prompt_tokens,
    }
    return Sample("step", sizes, tuple(steps_s)), Sample("first", sizes, tuple(first_s))


async def _burst(service: Service, replicas: Sequence[tuple[int, str]], answer_tokens: int) -> float:
    """Mean seconds from the burst to the end of an answer."""
    prompt = " ".join(f"w{1 + 7 * index % 900}" for index in range(service.prompt_tokens))
    began_s = time.perf_counter()
    ended_s = await asyncio.wait_for(
        asyncio.gather(
            *(
                _answered(
                    port, {"model": model, "prompt": prompt, "max_tokens": answer_tokens, "stream": True}
                )
                for port, model in replicas
                for _ in range(service.requests)
            )
        ),
        TIMEOUT_S,
    )
    return sum(ended_s) / len(ended_s) - began_s


async def _answered(port: int, body: dict[str, object]) -> float:
    """When the stream of one request had ended. Raises ConnectionError when it is refused."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n"
    try:
        writer.write(f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + data)
        status = await reader.readline()
        if b" 200 " not in status:
            raise ConnectionError(f"{status.decode().strip()}: {(await reader.read(2000)).decode()[-300:]}")
        while await reader.read(65536):
            pass
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return time.perf_counter()
