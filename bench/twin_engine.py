"""Time of one request in the engine of the twin by load, beside a plain heap of as many events in one run."""

import time
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from twofold.catalog.catalog import load_catalog
from twofold.inference.replica import Replica, engine
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, EngineWork
from twofold.twin.serving.step_table import StepTable

REQUESTS = 3000
RATES_PER_S = (2.0, 8.0, 16.0, 24.0)
EVENTS = 3  # of a request that a world cannot do without: it comes, its first token and its last leave


def step_table() -> tuple[StepTable, int]:
    """Llama-3.1-8B on one H100."""
    catalog, constants = load_catalog(), load_constants()
    part = catalog.accelerator("H100-SXM")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    software = engine(constants, "vllm", "0.15", family=part.family)
    shape = ModelShape.of(catalog.model("llama-3.1-8b"))
    activation = cluster.device.default_activation_format("bf16")
    replica = Replica(shape, cluster, software, "bf16", activation, tp=1.0, rank_batch=512.0)
    return StepTable.from_service_table(ServiceTable.of(replica)), int(replica.chunk_tokens)


def jobs(rate_per_s: float, prefix_count: int) -> list[tuple[float, EngineWork]]:
    """Poisson arrivals of prompts around 1,000 tokens and answers around 200."""
    random = np.random.default_rng(1)
    at_s = np.cumsum(random.exponential(1.0 / rate_per_s, REQUESTS)).tolist()
    prompts = np.ceil(random.lognormal(np.log(1000.0) - 0.18, 0.6, REQUESTS)).astype(int).tolist()
    answers = np.ceil(random.lognormal(np.log(200.0) - 0.18, 0.6, REQUESTS)).astype(int).tolist()
    begun = [
        tuple(range(first, first + prefix_count)) for first in range(0, 64 * prefix_count, prefix_count or 1)
    ]
    heads = [begun[each] for each in random.integers(0, 64, REQUESTS)] if prefix_count else [()] * REQUESTS
    return [
        (now_s, EngineWork(key, prompts[key], answers[key], heads[key], 64)) for key, now_s in enumerate(at_s)
    ]


def serve(engine: Engine, work: list[tuple[float, EngineWork]]) -> None:
    """From event to event, as a world does it."""
    for at_s, each in work:
        while (next_s := engine.next_at_s()) is not None and next_s <= at_s:
            engine.advance(next_s)
        engine.submit(each, at_s)
    while (next_s := engine.next_at_s()) is not None:
        engine.advance(next_s)


def plain_heap() -> None:
    """Every event of every request goes through a heap of 64."""
    heap: list[tuple[float, int]] = [(0.0, -number) for number in range(64)]
    for number in range(REQUESTS * EVENTS):
        heappush(heap, (number * 0.001, number))
        heappop(heap)


def best_us(run: Callable[[], None], repeats: int = 3) -> float:
    """Microseconds per request of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) / REQUESTS * 1e6


def main() -> None:
    """Print microseconds per request, and their ratio to the heap just before, for each load."""
    table, chunk = step_table()
    print(f"{'requests/s':>12}{'decoding':>10}{'steps/request':>15}{'µs/request':>12}{'x heap':>8}")
    for prefix_count in (0, 8):
        settings = EngineSettings(
            max_batch=512,
            chunk_tokens=chunk,
            prefix_cache_tokens=100_000 * bool(prefix_count),
            first_token_s=0.01,
            first_token_steps=0.3,
        )
        for rate_per_s in RATES_PER_S:
            work = jobs(rate_per_s, prefix_count)
            ran = Engine(table, settings)
            serve(ran, work)
            base_us = best_us(plain_heap)
            us = best_us(lambda work=work, settings=settings: serve(Engine(table, settings), work))  # type: ignore[misc]
            print(
                f"{rate_per_s:12.0f}{ran.sequence_s / ran.busy_s:10.0f}{ran.step_count / REQUESTS:15.1f}"
                f"{us:12.1f}{us / base_us:8.1f}" + ("  prefix cache" if prefix_count else "")
            )


if __name__ == "__main__":
    main()
