"""Streams of arrivals made of others: merged, scaled, cut and spliced, still one by one."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import takewhile

import numpy as np

from twofold.twin.serving.types import Arrival


def merged(*streams: Iterable[Arrival]) -> Iterator[Arrival]:
    """All streams as one, in order of time; of equal times, the earlier stream's first."""
    return merge(*streams, key=lambda arrival: arrival.arrival_s)


def faster(arrivals: Iterable[Arrival], factor: float) -> Iterator[Arrival]:
    """The same requests with `factor` times the rate: the clock runs faster, and bursts are as high again."""
    assert factor > 0, factor
    return (arrival._replace(arrival_s=arrival.arrival_s / factor) for arrival in arrivals)


def sampled(arrivals: Iterable[Arrival], ratio: float, seed: int) -> Iterator[Arrival]:
    """Each request `ratio` times in the mean, at its own time: fewer of the same day, or more.

    A copy is of another user: its session and its prefix are its own.
    """
    assert ratio > 0, ratio
    generator = np.random.default_rng(seed)
    whole, part = int(ratio), ratio - int(ratio)
    for arrival in arrivals:
        for copy in range(whole + (generator.random() < part)):
            yield arrival if not copy else _of_another(arrival, copy)


def shifted(arrivals: Iterable[Arrival], by_s: float) -> Iterator[Arrival]:
    """The same later, or earlier; what would come before 0 is left out."""
    moved = (arrival._replace(arrival_s=arrival.arrival_s + by_s) for arrival in arrivals)
    return (arrival for arrival in moved if arrival.arrival_s >= 0.0)


def until(arrivals: Iterable[Arrival], until_s: float) -> Iterator[Arrival]:
    """Those before a time."""
    return takewhile(lambda arrival: arrival.arrival_s < until_s, arrivals)


def spliced(first: Iterable[Arrival], second: Iterable[Arrival], at_s: float) -> Iterator[Arrival]:
    """The first stream up to a time, then the second from its own beginning on."""
    yield from until(first, at_s)
    yield from shifted(second, at_s)


def _of_another(arrival: Arrival, copy: int) -> Arrival:
    blocks = tuple(-(block * 64 + copy) - 1 for block in arrival.prefix_blocks)
    session_id = f"{arrival.session_id}#{copy}" if arrival.session_id else ""
    return arrival._replace(session_id=session_id, prefix_blocks=blocks)
