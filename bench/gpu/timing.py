"""Seconds of a call on a GPU, by its own events, launches apart where they can be captured. Needs torch."""

from collections import defaultdict
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch

WARM_CALLS, REPEATS = 3, 7
LEAST_REPEAT_S, MOST_REPEAT_S = 2e-3, 0.1


def captured_s(call: Callable[[], object], least_calls: int = 1) -> list[float]:
    """Seconds of one call in each repeat, replayed from a graph: no launch of the host's is in them.

    `least_calls` are made in each graph, so that a call that takes turns among inputs takes every turn.
    """
    if not torch.cuda.is_available():
        return _by_clock(call)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    once_s = _between_events(call)
    count = max(least_calls, min(200, round(LEAST_REPEAT_S / max(once_s, 1e-6))), 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    return [_between_events(graph.replay) / count for _ in range(REPEATS)]


def _between_events(call: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def _by_clock(call: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(3):
        began_s = perf_counter()
        call()
        seconds.append(perf_counter() - began_s)
    return seconds


def told(seconds: list[float]) -> dict[str, float]:
    """The middle and the ends of the repeats."""
    return {"value": median(seconds), "low": min(seconds), "high": max(seconds)}


def kernels_of(call: Callable[[], object]) -> dict[str, dict[str, float]]:
    """GPU seconds and launches of one call by kind of kernel, and the ten longest kernels by name."""
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: {"seconds": 0.0, "count": 0.0})
    named: dict[str, dict[str, float]] = defaultdict(lambda: {"seconds": 0.0, "count": 0.0})
    for each in found.events():
        if each.device_type.name != "CUDA" or each.name.startswith(MARKS):
            continue
        seconds = _device_us(each) * 1e-6
        for table, key in ((kinds, kind_of(each.name)), (named, each.name[:120])):
            table[key]["seconds"] += seconds
            table[key]["count"] += 1
    longest = sorted(named, key=lambda name: -named[name]["seconds"])[:10]
    return {**kinds, **{f"kernel {name}": named[name] for name in longest}}


def _device_us(event: Any) -> float:
    return float(event.device_time_total)


MARKS = ("FSDP::", "Optimizer.", "ProfilerStep", "## ")  # spans around kernels, no kernels
KINDS = (  # what a kernel's name holds -> its kind; the first that fits
    ("flash", "attention"),
    ("fmha", "attention"),
    ("attention", "attention"),
    ("sdpa", "attention"),
    ("splitk", "products"),
    ("gemm", "products"),
    ("nvjet", "products"),
    ("cutlass", "products"),
    ("gemv", "products"),
    ("adam", "optimiser"),
    ("nccl", "collectives"),
    ("memcpy", "copies"),
    ("memset", "copies"),
)


def kind_of(name: str) -> str:
    """The kind of a kernel by its name."""
    low = name.lower()
    return next((kind for part, kind in KINDS if part in low), "other")
