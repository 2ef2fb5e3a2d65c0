"""A server that takes all that waits as its next batch, up to a largest one, under Poisson arrivals."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT = 100  # numbers that may wait as a batch begins: up to this one each
COUNTS = 150  # and above spread evenly by their roots, as Poisson counts spread
BEYOND = 400  # waiting requests beyond the largest batch that they reach: at 98 % load 24 do on average
REACH = 12.0  # standard deviations of a Poisson count, beyond which it never is
MOMENTS = 8  # of arrival within one batch, for each pair of batches, at least
ARRIVALS = 4000  # that are looked at, at least
NEGLIGIBLE = 1e-7  # a pair of batches that holds less of all requests is left out
SELDOM = 1e-12  # a chain begins anew, so that counts that it leaves for good do not divide by nothing
GOLDEN = 0.6180339887498949  # its multiples spread evenly


@dataclass(frozen=True, slots=True)
class Taken:
    """Requests in the long run: how long each waits for its batch, and how many are in that."""

    weight: Array  # sums to 1
    wait_s: Array
    batch: Array


def quantiles(values: Array, weight: Array, fractions: tuple[float, ...]) -> tuple[float, ...]:
    """The smallest values that so much of the weight, which sums to 1, does not pass."""
    order = np.argsort(values)
    place = np.searchsorted(np.cumsum(weight[order]), fractions)
    return tuple(float(each) for each in values[order[np.minimum(place, order.size - 1)]])


@lru_cache(maxsize=512)
def taken(rate_per_s: float, batch_sizes: tuple[float, ...], service_s: tuple[float, ...]) -> Taken:
    """What requests meet at a rate below the largest batches'.

    Formula  n wait as a batch begins: min(n, B) of them take s(min(n, B)); then n' = n − min(n, B) +
             Poisson(λ·s), at least 1, since who comes to an idle server begins alone. The steady state of
             this chain says how often each pair of batches follows another. Who comes in the first comes at
             any moment of it, waits for its rest, and for as many largest batches as stand before.
    Units    requests/s; requests; seconds.
    Source   Neuts, "A general class of bulk queues with Poisson input" (1967).
    Limits   up to 98 % of the largest batches' rate; counts between two that are told apart are shared by
             both, so that means are kept.
    """
    largest = float(int(batch_sizes[-1]))
    above = np.linspace(np.sqrt(UNIT), np.sqrt(largest + BEYOND), COUNTS) ** 2
    counts = np.unique(np.append(np.arange(UNIT), np.rint(above)))
    waits = counts[1:]
    batch = np.minimum(waits, largest)
    takes_s, left = np.interp(batch, batch_sizes, service_s), waits - batch
    follows = _shared(rate_per_s * takes_s[:, None], counts, left[:, None])
    idle, follows = follows[:, 0], follows[:, 1:]  # nothing came meanwhile
    begun = _steady(np.column_stack([follows[:, 0] + idle, follows[:, 1:]]))
    comes = np.maximum(waits - left[:, None], 0.0)
    held, alone = begun[:, None] * follows * comes, float(begun @ idle)
    first, then = np.nonzero(held >= NEGLIGIBLE * (held.sum() + alone))
    moments = max(MOMENTS, ARRIVALS // max(first.size, 1))
    shift = (0.5 + np.arange(first.size) * GOLDEN) % 1.0
    moment = (np.arange(moments)[:, None] + shift) / moments
    full = np.floor((left[first] + moment * comes[first, then]) / largest)
    own = np.clip(waits[then] - full * largest + full * rate_per_s * service_s[-1], 1.0, largest)
    wait_s = (1.0 - moment) * takes_s[first] + full * service_s[-1]
    weight = np.append(np.tile(held[first, then] / moments, moments), alone)
    return Taken(weight / weight.sum(), np.append(wait_s.ravel(), 0.0), np.append(own.ravel(), 1.0))


def _shared(mean: Array, counts: Array, left: Array) -> Array:
    """How much of left + Poisson(mean) falls to each count: between two it is shared, the nearer has more."""
    most = float(mean.max())
    width = int(2.0 * REACH * np.sqrt(most) + 50.0)
    begins = np.maximum(0.0, np.floor(mean - width / 2.0))  # of the counts that Poisson may be
    ways = begins + np.arange(width)
    log_factorial = np.cumsum(np.log(np.maximum(np.arange(most + width + 1.0), 1.0)))
    exactly = np.exp(ways * np.log(np.maximum(mean, SELDOM)) - mean - log_factorial[ways.astype(int)])
    more = 1.0 - np.cumsum(exactly, axis=1)
    over = counts - left
    asked = np.maximum(over, 0.0)
    at = np.clip(asked - begins, 0, width - 1).astype(int)
    is_far = (asked < begins) | (asked - begins >= width)
    exactly, more = (np.take_along_axis(each, at, axis=1) for each in (exactly, more))
    exactly, more = np.where(is_far, 0.0, exactly), np.where(is_far, asked < begins, more)
    # E[(Poisson − over)⁺], whose second differences are the shares.
    excess = np.where(over > 0.0, mean * (more + exactly) - asked * more, mean - over)
    falls = np.diff(excess, axis=1) / np.diff(counts)
    return np.maximum(np.diff(falls, axis=1, prepend=-1.0, append=0.0), 0.0)


def _steady(follows: Array) -> Array:
    """How often each state is begun in the long run, by what follows it.

    Source  Grassmann, Taksar and Heyman's elimination, which subtracts nothing (1985).
    """
    left = follows.copy()
    left[:, 0] += SELDOM
    for last in range(len(left) - 1, 0, -1):
        left[:last, last] /= left[last, :last].sum()
        left[:last, :last] += left[:last, last, None] * left[last, :last]
    begun = np.zeros(len(left))
    begun[0] = 1.0
    for state in range(1, len(left)):
        begun[state] = begun[:state] @ left[:state, state]
    return np.asarray(begun / begun.sum())
