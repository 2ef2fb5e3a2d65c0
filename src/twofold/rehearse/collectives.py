"""Collectives hop by hop under jitter: what the closed formula leaves out, and when to ring the bell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
class StepAtSize:
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


class JitteredStep(NamedTuple):
    """The seconds of a step under jitter."""

    step_s_p50: float
    step_s_p99: float
    inflation_fraction: float  # of the p99 over the undisturbed step


def jittered_step(ring: Ring, jitter_fraction: float, seed: int, repeat_count: int) -> JitteredStep:
    """How the tail of a step grows with jitter of its links and its ranks (R-011, R-014).

    Ranks reach the collective when the slowest has computed: its time has the same relative spread. One seed
    has the same deviations under any jitter, so that steps compare.
    """
    generator = np.random.default_rng(seed)
    still_s = ring.compute_s + float(ring_reduce_s(ring, 0.0, generator, 1)[0])
    generator = np.random.default_rng(seed)
    collective_s = ring_reduce_s(ring, jitter_fraction, generator, repeat_count)
    late = np.abs(generator.standard_normal((repeat_count, ring.rank_count))).max(axis=1)
    step_s = ring.compute_s * (1 + jitter_fraction * late) + collective_s
    p99_s = float(np.quantile(step_s, 0.99))
    return JitteredStep(float(np.median(step_s)), p99_s, p99_s / still_s - 1)


def step_parts(
    ring: Ring, jitter_fraction: float, input_s: float, seed: int = 0, repeat_count: int = 50
) -> StepAtSize:
    """The undisturbed collective, what jitter adds to it, and how long the step waits for its input.

    `input_s` is how long that takes to read; computing hides it up to its own time.
    """
    count = ring.rank_count
    generator = np.random.default_rng([seed, count])
    still_s = float(ring_reduce_s(ring, 0.0, generator, 1)[0])
    disturbed_s = float(ring_reduce_s(ring, jitter_fraction, generator, repeat_count).mean())
    late = np.abs(generator.standard_normal((repeat_count, count))).max(axis=1).mean()
    sync_s = disturbed_s - still_s + ring.compute_s * jitter_fraction * float(late)
    return StepAtSize(count, ring.compute_s, still_s, max(0.0, input_s - ring.compute_s), sync_s)


def rising_shares(parts: Sequence[StepAtSize]) -> tuple[RisingShare, ...]:
    """Which parts' shares of the step rise by more than five points, and from which size (R-142)."""
    found = []
    wholes_s = [row.compute_s + row.communication_s + row.input_s + row.sync_s for row in parts]
    for name in ("communication", "input", "sync"):
        shares = [getattr(row, f"{name}_s") / whole_s for row, whole_s in zip(parts, wholes_s, strict=True)]
        for row, share in zip(parts, shares, strict=True):
            if share > shares[0] + ALARM_SHARE_RISE:
                found.append(RisingShare(name, row.accelerator_count, share, shares[0]))
                break
    return tuple(found)


def parts_that_grow(jitter_fraction: float, input_s: float, rank_counts: Sequence[int]) -> tuple[str, ...]:
    """The parts whose shares rise where jitter and the reading of input grow with the ranks, up to these."""
    rings = [Ring(1e9, count, 50e9, 1e-5, compute_s=0.5) for count in rank_counts]
    most = max(rank_counts)
    parts = [
        step_parts(ring, jitter_fraction * ring.rank_count / most, input_s * ring.rank_count / most)
        for ring in rings
    ]
    return tuple(dict.fromkeys(each.part for each in rising_shares(parts)))
