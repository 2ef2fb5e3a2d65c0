"""How many replicas a service of measured rows takes, and how probably its goals hold with so many."""

from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil
from statistics import NormalDist

from twofold.answer.serving_choice import ClassLoad
from twofold.contracts.spec.service import Service
from twofold.core.quantity import DAY_S
from twofold.inference.fleet import ReplicaCount
from twofold.inference.measured import MeasuredService

MIDDLE = 0.5
NORMAL = NormalDist()
Z_80 = NORMAL.inv_cdf(0.9)  # at the end of an 80 % range
Z_MOST = 3.0  # beyond it nothing is told apart
HALVINGS = 9


def replicas_for(
    entry: Service, load: ClassLoad, service: MeasuredService, sure: float
) -> tuple[ReplicaCount, bool]:
    """How many replicas a class takes so that each of its goals holds so surely, and whether any number does.

    Formula  as many as the middle takes, where every goal holds so probably with them; else the fewest with
             which each does, up to what rows take that are as slow as 1 in 1 / (1 − sure) further runs
    """
    zones = entry.zones if load.traffic.outlasts_zone else 1
    spares = partial(ReplicaCount.with_spares, zones=zones, availability_fraction=entry.availability_fraction)
    goals_s, success = load.traffic.slo.latencies_s, load.traffic.slo.success
    least = ReplicaCount.of(load.peak_per_s, service.rate_limit(goals_s, success)).needed

    def holds(needed: int) -> bool:
        return min(chances(service, load, needed).values(), default=1.0) >= sure

    if sure <= MIDDLE or not least or holds(least):
        return spares(least), True
    slow_per_s = _slowed(service, NORMAL.inv_cdf(sure)).rate_limit(goals_s, success)
    most = ReplicaCount.of(load.peak_per_s, slow_per_s).needed if slow_per_s else 0
    if window_s := load.traffic.slo.finish_within_s:
        most = max(most, ceil(load.mean_rate_per_s * DAY_S / (window_s * slow_per_s))) if slow_per_s else 0
    if most <= least or not holds(most):
        return spares(least), False
    low, high = least, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return spares(high), True


def chances(service: MeasuredService, load: ClassLoad, replicas: int) -> dict[str, float]:
    """How probably each goal holds that the rows can judge, with so many replicas at work.

    Formula  Φ(z) of the longest times, `spread_factor`^(z / 1.28) of those measured, with which it still
             does: a replica that cannot carry its part of the peak then keeps no goal
    """
    slo, part = load.traffic.slo, 1.0 / max(replicas, 1)
    found = {
        name: _latency_chance(service, name, goal_s, load.peak_per_s * part)
        for name, goal_s in slo.latencies_s.items()
        if service.quantile(0.0, name) is not None
    }
    if slo.finish_within_s is not None:
        needed_per_s = load.mean_rate_per_s * part * DAY_S / slo.finish_within_s
        found["finish_within"] = _probability(
            service, lambda other: other.rate_limit(slo.latencies_s, slo.success) >= needed_per_s
        )
    return found


@lru_cache(maxsize=1024)
def _latency_chance(service: MeasuredService, goal: str, goal_s: float, rate_per_s: float) -> float:
    def is_in_time(other: MeasuredService) -> bool:
        value = other.quantile(rate_per_s, goal)
        return value is not None and float(value) <= goal_s

    return _probability(service, is_in_time)


def _probability(service: MeasuredService, fits: Callable[[MeasuredService], bool]) -> float:
    """That a further run's times, longer or shorter, still fit."""
    low, high = -Z_MOST, Z_MOST
    if fits(_slowed(service, high)):
        return NORMAL.cdf(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if fits(_slowed(service, middle)) else (low, middle)
    return NORMAL.cdf(low)


def _slowed(service: MeasuredService, deviations: float) -> MeasuredService:
    return service.slowed(service.spread_factor ** (deviations / Z_80))
