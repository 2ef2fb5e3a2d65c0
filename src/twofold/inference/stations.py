"""Servers that work on one thing each before a replica does: waiting for a place, and several in a row."""

from dataclasses import replace
from math import inf, log
from statistics import NormalDist

import numpy as np

from twofold.contracts.goals import QUANTILES
from twofold.inference.latency import Latency, Served, quantile_factor
from twofold.inference.spreads import p95_ratio_of, spread_of
from twofold.perf.types import Floats

COUNTED_MAX = 100_000  # places of one station
HALVINGS = 60
HELD = "ttft", "e2e"  # latencies that what comes before a replica is in


def erlang_wait_probability(places: int, utilisation: float) -> float:
    """The share of random arrivals that find all of `places` taken, of which `utilisation` are on average.

    Formula  C(c, a) = B / (1 − ρ·(1 − B)), a = c·ρ, by B(c) = a·B(c−1) / (c + a·B(c−1))
    Source   Erlang 1917; M/M/c.

    >>> erlang_wait_probability(1, 0.5)
    0.5
    """
    load, blocked = places * utilisation, 1.0
    for count in range(1, places + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - utilisation * (1.0 - blocked))


def station_latency(rate_per_s: float, work_s: float, work_p95_s: float, places: int) -> Latency:
    """Seconds from an arrival at a station to its end there: a wait for one of `places`, and the work.

    Formula  C(c, ρ) of the arrivals wait, exponentially, S/(c·(1 − ρ))·(1 + v²)/2 on average; the work is
             log-normal; quantiles add the deviations of both above their means in quadrature
    Why      Arrivals are random and take turns at whatever place comes free. (1 + v²)/2 is what work of
             another spread than the exponential's makes of its wait.
    Units    requests/s of all places; seconds of one.
    Source   Erlang 1917; Allen & Cunneen's approximation of M/G/c.
    Limits   infinite from ρ = 1 on. Work of one request uses one place; places share nothing.
    """
    utilisation = rate_per_s * work_s / places
    if utilisation >= 1.0:
        return Latency(inf, inf, inf, inf)
    spread = spread_of(work_p95_s / work_s)
    waits = erlang_wait_probability(places, utilisation) if utilisation > 0.0 else 0.0
    if_waiting_s = work_s / (places * (1.0 - utilisation)) * (1.0 + spread**2) / 2.0
    found: dict[str, Floats] = {}
    for name, level in QUANTILES.items():
        late = max(0.0, log(max(waits, 1e-300) / (1.0 - level))) * if_waiting_s - waits * if_waiting_s
        normal = NormalDist().inv_cdf(level)
        ratio = p95_ratio_of(spread) if name == "p95" else float(quantile_factor(spread, normal))
        found[name] = _joined(late, (ratio - 1.0) * work_s)
    mean_s = waits * if_waiting_s + work_s
    return Latency(mean_s, *(mean_s + found[name] for name in ("p50", "p95", "p99")))


def _joined(*deviations: Floats) -> Floats:
    """Deviations from means, of things that know nothing of each other: the root of the squares' sum."""
    total = sum(np.sign(each) * np.square(each) for each in deviations)
    found: Floats = np.sign(total) * np.sqrt(np.abs(total))
    return found


def in_turn(first: Latency, then: Latency) -> Latency:
    """One after the other: means add, and deviations of quantiles from them in quadrature.

    Limits   exact for normal latencies; of two exponential ones p95 is 2 % too high.
    """
    mean = first.mean_s + then.mean_s
    finite = np.isfinite(then.mean_s)

    def quantile(name: str) -> Floats:
        own = np.where(finite, getattr(then, name), 0.0) - np.where(finite, then.mean_s, 0.0)
        found: Floats = np.where(finite, mean + _joined(getattr(first, name) - first.mean_s, own), np.inf)
        return found

    return Latency(mean, quantile("p50_s"), quantile("p95_s"), quantile("p99_s"))


def served_after(first: Latency, served: Served) -> Served:
    """What a replica delivers to requests that came through stations before it."""
    return replace(served, ttft=in_turn(first, served.ttft), e2e=in_turn(first, served.e2e))


def rate_within(limit_s: float, work_s: float, work_p95_s: float, places: int) -> float:
    """The largest rate at which 95 % of a station's requests are through in time; 0 where none is."""
    low, high = 0.0, places / work_s
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        late = station_latency(middle, work_s, work_p95_s, places).p95_s > limit_s
        low, high = (low, middle) if late else (middle, high)
    return low


def fewest_servers(
    rate_per_s: float, limit_s: float, work_s: float, work_p95_s: float, places_each: int
) -> int | None:
    """How many servers of so many places keep the limit at a rate; None where no reasonable number does."""

    def keeps(count: int) -> bool:
        return bool(station_latency(rate_per_s, work_s, work_p95_s, count * places_each).p95_s <= limit_s)

    high = int(rate_per_s * work_s / places_each) + 1
    low = high - 1  # saturated, or next to it
    while not keeps(high):
        low, high = high, 2 * high
        if high * places_each > COUNTED_MAX:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
