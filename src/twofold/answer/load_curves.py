"""What pictures show of a service beside its plan: latencies over the load, and fleets that were weighed."""

from collections.abc import Iterator, Sequence

import numpy as np

from twofold.answer.serving_choice import ClassLoad, ServingChoice
from twofold.answer.serving_pools import DrawnPool, latency_with
from twofold.contracts.results import serving
from twofold.core import record
from twofold.inference.search import Fleet
from twofold.perf.types import one

LOADS = (0.1, 0.3, 0.5, 0.65, 0.75, 0.83, 0.9)  # of the rate that a replica sustains
FLEETS_MOST = 8  # that are shown beside the planned one, the cheapest first


def latency_curves(pools: Sequence[DrawnPool]) -> tuple[serving.LatencyCurve, ...]:
    """Each goal on a latency over the load of its class, the other classes of its pool growing with it."""
    with record.recording():  # what other loads give says nothing of the plan's own numbers
        return tuple(
            curve
            for pool in pools
            for load in pool.loads
            if load.traffic.slo.latencies_s and not load.is_batch
            for curve in _curves(pool, load)
        )


def _curves(pool: DrawnPool, load: ClassLoad) -> Iterator[serving.LatencyCurve]:
    """From little to nine tenths of what its replicas sustain; what is planned and what just holds, too."""
    per_replica = pool.pool.count.needed * pool.share_of(load)
    most_per_s = pool.share_per_s / one(pool.load(load).middle.utilisation_fraction)
    rates = sorted({pool.share_per_s, pool.pool.limit_per_s, *(most_per_s * fraction for fraction in LOADS)})
    found = [(rate, pool.at(load, rate)) for rate in rates]
    for metric, limit_s in load.traffic.slo.latencies_s.items():
        figures = [(rate, served.latency(*metric.split("_"))) for rate, served in found]
        points = tuple(
            serving.LoadPoint(rate * per_replica, figure.estimate("s"))
            for rate, figure in figures
            if np.isfinite(figure.middle)
        )
        yield serving.LatencyCurve(load.name, metric, limit_s, points)


def weighed_fleets(choice: ServingChoice) -> tuple[serving.WeighedFleet, ...]:
    """The planned fleet and the best of other machines as leased, with the latency that is promised tightest.

    That is the goal which takes most of its limit on the planned fleet. None where nothing is leased.
    """
    goals = [
        (load.name, metric, limit_s)
        for load in choice.loads
        if not load.is_batch
        for metric, limit_s in load.traffic.slo.latencies_s.items()
    ]
    if choice.held is None or not goals:
        return ()
    with record.recording():
        name, metric, limit_s = max(
            goals, key=lambda each: (_latency_s(choice, choice.fleet, *each[:2]) or 0.0) / each[2]
        )
        fleets = [(choice.fleet, choice.held.usd_per_year, choice.accelerators)]
        rivals = choice.rivals[:FLEETS_MOST]
        fleets += [(each.fleet, each.usd_per_year, each.fleet.accelerators) for each in rivals]
        return tuple(
            serving.WeighedFleet(
                what=fleet.pools[0].offer,
                accelerator_count=count,
                usd_per_year=usd,
                class_name=name,
                metric=metric,
                limit_s=limit_s,
                latency_s=latency_s,
                chosen=fleet is choice.fleet,
            )
            for fleet, usd, count in fleets
            if (latency_s := _latency_s(choice, fleet, name, metric)) is not None
        )


def _latency_s(choice: ServingChoice, fleet: Fleet, name: str, metric: str) -> float | None:
    """Seconds of a goal on the replicas of a fleet at the peak."""
    pool = next(each for each in fleet.pools if name in each.classes)
    return latency_with(choice, pool, pool.count.needed, name, metric)
