"""One engine under a fixed number of clients, each of whom asks again as soon as it is answered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from twofold.twin.serving.engine_types import EngineWork, FirstToken
from twofold.twin.serving.fleet_types import ServingEngine

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """One latency as clients see it."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """What a client-side benchmark prints. `tpot` is of requests with more than one token."""

    ttft: Seen
    tpot: Seen
    e2e: Seen
    requests_per_s: float  # over the whole run, ramp and end included, as benchmarks count
    output_tokens_per_s: float
    duration_s: float
    finished_count: int
    mean_batch: float  # clients in the engine, over the run
    refused_count: int = 0  # that can never fit


def run_requests(
    engine: ServingEngine,
    lengths: Sequence[tuple[int, int]],
    client_count: int,
    arrivals_s: Sequence[float] | None = None,
) -> LoopFigures:
    """Send requests of `lengths` (input, output) in order: at times, or as clients come free.

    Formula  a request is sent at its time, or at 0 in a closed loop, as soon as fewer than `client_count` are
             in flight; TPOT = (E2E − TTFT) / (output − 1)
    Units    seconds.
    Source   what the serving benchmarks of the engines themselves do with a number of prompts, a request rate
             and a limit of concurrency.
    Limits   one client, one request: what a lone request takes.
    """
    assert client_count >= 1 and lengths, (client_count, len(lengths))
    sent_s, first_s, done_s = (np.full(len(lengths), np.nan) for _ in range(3))
    waiting = _requests(lengths, arrivals_s)
    upcoming = next(waiting)
    in_flight, now_s = 0, 0.0
    refused = 0
    while upcoming is not None or in_flight:
        send_s = max(now_s, upcoming[0]) if upcoming is not None and in_flight < client_count else inf
        # Asking the engine plans its next step; a burst is all in before.
        event_s = engine.next_at_s() if send_s > now_s else None
        if upcoming is not None and (send_s <= now_s or send_s <= (inf if event_s is None else event_s)):
            now_s, work = send_s, upcoming[1]
            engine.submit(work, now_s)
            sent_s[work.key] = now_s
            in_flight += 1
            upcoming = next(waiting)
            continue
        assert event_s is not None, "requests are in flight, and nothing will happen"
        now_s = max(now_s, event_s)
        for each in engine.advance(event_s):
            if isinstance(each, FirstToken):
                first_s[each.key] = each.at_s
                continue
            in_flight -= 1
            done_s[each.key] = each.at_s
            refused += each.output_tokens == 0
    return _figures(sent_s, first_s, done_s, np.array([output for _, output in lengths]), refused)


def _requests(
    lengths: Sequence[tuple[int, int]], arrivals_s: Sequence[float] | None
) -> Iterator[tuple[float, EngineWork] | None]:
    for key, (prompt, answer) in enumerate(lengths):
        yield (0.0 if arrivals_s is None else arrivals_s[key], EngineWork(key, prompt, answer))
    yield None


def _figures(
    sent_s: Array, first_s: Array, done_s: Array, outputs: NDArray[np.int64], refused: int
) -> LoopFigures:
    kept = np.isfinite(first_s)
    sent_s, first_s, done_s, outputs = sent_s[kept], first_s[kept], done_s[kept], outputs[kept]
    several = outputs > 1
    tpot = (done_s - first_s)[several] / (outputs[several] - 1)
    duration_s = float(np.max(done_s) - np.min(sent_s)) if len(sent_s) else 0.0
    return LoopFigures(
        ttft=_seen(first_s - sent_s),
        tpot=_seen(tpot),
        e2e=_seen(done_s - sent_s),
        requests_per_s=len(sent_s) / duration_s if duration_s else 0.0,
        output_tokens_per_s=float(np.sum(outputs)) / duration_s if duration_s else 0.0,
        duration_s=duration_s,
        finished_count=len(sent_s),
        mean_batch=float(np.sum(done_s - sent_s)) / duration_s if duration_s else 0.0,
        refused_count=refused,
    )


def _seen(values: Array) -> Seen:
    if not len(values):
        return Seen(0.0, 0.0, 0.0, 0.0)
    p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99)).tolist()
    return Seen(float(np.mean(values)), p50, p95, p99)
