"""The pools of a fleet under every draw: what a replica serves, and what it carries within its goals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context
from twofold.answer.ranges import Drawn, drawn
from twofold.answer.serving_choice import ClassLoad, ServingChoice
from twofold.answer.serving_replica import DrawnLoad, DrawnReplica, draw_replica
from twofold.inference import (
    PoolChoice,
    Replica,
    Served,
    for_class,
    max_throughput,
    open_loop,
    rate_limit,
    shared_load,
)

# Of the middle. Where a draw misses a goal outright no number of replicas helps, and a deployer would change
# the replica rather than buy ten times as many: costs are not multiplied beyond that, and a plan says so.
LEAST_CARRIED_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """A pool of the fleet with its replica under every draw."""

    pool: PoolChoice
    loads: tuple[ClassLoad, ...]
    replica: DrawnReplica

    @property
    def share_per_s(self) -> float:
        """Requests/s that one of the needed replicas takes at peak."""
        return self.pool.peak_per_s / max(self.pool.count.needed, 1)

    def load(self, load: ClassLoad) -> DrawnLoad:
        """What a class gets of a replica at its share of the peak, with ranges."""
        return self.replica.load(lambda replica: served_by(self, load, replica))


def drawn_pool(pool: PoolChoice, choice: ServingChoice, context: Context) -> DrawnPool:
    """A pool with the classes it serves and its replica under every draw."""
    loads = tuple(load for load in choice.loads if load.name in pool.classes)
    return DrawnPool(pool, loads, draw_replica(pool.replica, choice.model, context.constants, context.draws))


def served_by(pool: DrawnPool, load: ClassLoad, replica: Replica) -> Served:
    """One class on a replica at its share of the peak; where classes share a pool, among all of them."""
    own = for_class(replica, load.traffic)
    if load.is_batch:
        return max_throughput(own, load.traffic.lengths)
    if len(pool.loads) == 1:
        fleet_per_s = load.traffic.rate_per_s
        return open_loop(own, load.traffic.lengths, pool.share_per_s, fleet_per_s=fleet_per_s)
    classes = [each.traffic for each in pool.loads]
    return shared_load(replica, classes, load.traffic, pool.share_per_s)


def carried_by(pool: DrawnPool, load: ClassLoad) -> Drawn:
    """Requests/s of one replica that still meet the goals of all that share it."""
    ratios = _carried(pool.replica, load)
    share = load.traffic.rate_per_s / sum(each.traffic.rate_per_s for each in pool.loads)
    middle = pool.pool.limit_per_s * share
    if np.median(ratios) <= LEAST_CARRIED_FRACTION:  # wider than any measurement: nothing to stretch
        return Drawn(middle, middle * ratios)
    return drawn(middle, middle * ratios, pool.replica.spread("output"))


def relative_need(pool: DrawnPool) -> NDArray[np.float64]:
    """Replicas needed under every draw over those needed in the middle, by the busiest class."""
    busiest = max(pool.loads, key=lambda each: each.traffic.rate_per_s)
    need: NDArray[np.float64] = 1 / _carried(pool.replica, busiest)
    return need


def _carried(replica: DrawnReplica, load: ClassLoad) -> NDArray[np.float64]:
    return carried_ratios(_rates(replica.under_draws, load), _rates(replica.middle, load))


def carried_ratios(under: NDArray[np.float64], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a replica carries under every draw over what it usually does, at least the least that is counted.

    Where most draws miss a goal outright their median says nothing: the rate of the middle stands in for it.
    """
    usual, own = float(np.median(under)), float(np.max(middle))
    whole = usual if usual > LEAST_CARRIED_FRACTION * own else own
    ratios: NDArray[np.float64] = np.maximum(under / max(whole, 1e-30), LEAST_CARRIED_FRACTION)
    return ratios


def missing_fraction(carried: Drawn) -> float:
    """In what part of the draws a replica carries no more than the least that is counted."""
    return float(np.mean(carried.samples <= LEAST_CARRIED_FRACTION * carried.middle * (1 + 1e-9)))


def _rates(replica: Replica, load: ClassLoad) -> NDArray[np.float64]:
    """Requests/s of one replica with this class alone, within its goals."""
    if load.is_batch:
        rate = max_throughput(for_class(replica, load.traffic), load.traffic.lengths).requests_per_s
    else:
        rate = rate_limit(replica, load.traffic).requests_per_s
    return np.ravel(np.asarray(rate, float))
