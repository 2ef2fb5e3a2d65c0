"""Collectives hop by hop under jitter: what the closed formula leaves out, and when to ring the bell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALARM_INFLATION_FRACTION = 0.05  # of the p99 step over the undisturbed one
ALARM_SHARE_RISE = 0.05  # of a step, over its share at the smallest size


@dataclass(frozen=True, slots=True)
class Ring:
    """One ring of equal links, and the step around it."""

    payload_bytes: float  # of the full tensor on each rank
    rank_count: int
    link_bytes_per_s: float
    hop_latency_s: float
    compute_s: float = 0.0  # of a step, before the collective


@dataclass(frozen=True, slots=True)
class JitterRow:
    """One amount of jitter: what the collective and the step take."""

    jitter_fraction: float
    collective_s_p50: float
    collective_s_p99: float
    step_s_p50: float
    step_s_p99: float
    inflation_fraction: float  # of the p99 step over the undisturbed one
    alarm: bool


@dataclass(frozen=True, slots=True)
class StepParts:
    """What a step waits for at one size of the job."""

    accelerator_count: int
    compute_s: float
    communication_s: float
    input_s: float  # beyond what the step hides
    sync_s: float  # for the slowest


@dataclass(frozen=True, slots=True)
class RisingShare:
    """A part of the step that grows with the job, and the size at which it became too much."""

    part: str
    accelerator_count: int
    share: float
    first_share: float  # at the smallest size


def ring_reduce_s(
    ring: Ring, jitter_fraction: float, generator: np.random.Generator, repeat_count: int = 200
) -> NDArray[np.float64]:
    """Seconds of so many all-reduces, simulated hop by hop.

    Formula  t[k+1, i] = max(t[k, i], t[k, i−1]) + α + payload/(n·B)·(1 + σ·|z|), 2(n−1) hops
    Why      A rank passes a chunk on when it has it and has sent the one before: a slow hop delays all that
             follow it around the ring, which no mean shows.
    Units    bytes, bytes per second, seconds.
    Source   Patarasuk & Yuan 2009 for the undisturbed ring; jitter only ever delays, so it is one-sided.
    Limits   σ = 0: 2(n−1)·(α + payload/(n·B)) exactly; one rank: 0.
    """
    count = ring.rank_count
    chunk_s = ring.payload_bytes / count / ring.link_bytes_per_s
    ready_s = np.zeros((repeat_count, count))
    for _ in range(2 * (count - 1)):
        late = np.abs(generator.standard_normal(ready_s.shape)) * jitter_fraction
        ready_s = np.maximum(ready_s, np.roll(ready_s, 1, axis=1)) + ring.hop_latency_s + chunk_s * (1 + late)
    longest: NDArray[np.float64] = ready_s.max(axis=1)
    return longest


def pairs_exchange_s(
    ring: Ring, jitter_fraction: float, generator: np.random.Generator, repeat_count: int = 200
) -> NDArray[np.float64]:
    """Seconds of so many all-to-alls: every rank sends n−1 chunks in turn; the slowest ends it."""
    count = ring.rank_count
    chunk_s = ring.payload_bytes / count / ring.link_bytes_per_s
    late = np.abs(generator.standard_normal((repeat_count, count, max(count - 1, 0)))) * jitter_fraction
    sent_s = (ring.hop_latency_s + chunk_s * (1 + late)).sum(axis=2)
    longest: NDArray[np.float64] = sent_s.max(axis=1)
    return longest


def jitter_sweep(
    ring: Ring,
    jitter_fractions: Sequence[float] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    seed: int = 0,
    repeat_count: int = 200,
) -> tuple[JitterRow, ...]:
    """How the tail of a step grows with jitter of its links and its ranks (R-011, R-014).

    Ranks reach the collective when the slowest has computed: its time has the same relative spread.
    """
    still_s = ring.compute_s + float(ring_reduce_s(ring, 0.0, np.random.default_rng(seed), 1)[0])
    rows = []
    for jitter_fraction in jitter_fractions:
        generator = np.random.default_rng(seed)  # the same deviations for all, so that rows compare
        collective_s = ring_reduce_s(ring, jitter_fraction, generator, repeat_count)
        late = np.abs(generator.standard_normal((repeat_count, ring.rank_count))).max(axis=1)
        step_s = ring.compute_s * (1 + jitter_fraction * late) + collective_s
        p99_s = float(np.quantile(step_s, 0.99))
        rows.append(
            JitterRow(
                jitter_fraction,
                float(np.median(collective_s)),
                float(np.quantile(collective_s, 0.99)),
                float(np.median(step_s)),
                p99_s,
                p99_s / still_s - 1,
                p99_s / still_s - 1 > ALARM_INFLATION_FRACTION,
            )
        )
    return tuple(rows)


def scaling_parts(
    ring_of: Callable[[int], Ring],
    counts: Sequence[int],
    jitter_of: Callable[[int], float],
    input_s_of: Callable[[int], float],
    seed: int = 0,
    repeat_count: int = 50,
) -> tuple[StepParts, ...]:
    """A step's parts over sizes: the undisturbed collective, what jitter adds to it, and input it waits for.

    `ring_of` gives the ring at a size, `jitter_of` its jitter, `input_s_of` how long its input takes to read;
    computing hides input up to its own time.
    """
    rows = []
    for count in counts:
        ring, generator = ring_of(count), np.random.default_rng([seed, count])
        still_s = float(ring_reduce_s(ring, 0.0, generator, 1)[0])
        jitter_fraction = jitter_of(count)
        disturbed_s = float(ring_reduce_s(ring, jitter_fraction, generator, repeat_count).mean())
        late = np.abs(generator.standard_normal((repeat_count, count))).max(axis=1).mean()
        sync_s = disturbed_s - still_s + ring.compute_s * jitter_fraction * float(late)
        input_s = max(0.0, input_s_of(count) - ring.compute_s)
        rows.append(StepParts(count, ring.compute_s, still_s, input_s, sync_s))
    return tuple(rows)


def rising_shares(parts: Sequence[StepParts]) -> tuple[RisingShare, ...]:
    """Which parts' shares of the step rise by more than five points, and from which size (R-142)."""
    found = []
    for name in ("communication_s", "input_s", "sync_s"):
        shares = [
            getattr(row, name) / (row.compute_s + row.communication_s + row.input_s + row.sync_s)
            for row in parts
        ]
        for row, share in zip(parts, shares, strict=True):
            if share > shares[0] + ALARM_SHARE_RISE:
                found.append(RisingShare(name.removesuffix("_s"), row.accelerator_count, share, shares[0]))
                break
    return tuple(found)
