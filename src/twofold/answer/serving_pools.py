"""The pools of a fleet under every draw: what a replica serves, and what it carries within its goals."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context
from twofold.answer.ranges import Drawn, drawn, drawn_service, serving_spread
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool
from twofold.answer.uncertainty import Draws, Spread
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

WORST_FACTOR = 20.0  # times the middle: what is shown of a draw in which a replica saturates
# Of the middle. Where a draw misses a goal outright no number of replicas helps, and a deployer would change
# the replica rather than buy ten times as many: costs are not multiplied beyond that, and a plan says so.
LEAST_CARRIED_FRACTION = 0.1


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """A pool of the fleet with its replica under every draw."""

    pool: PoolChoice
    loads: tuple[ClassLoad, ...]
    under_draws: Replica

    @property
    def share_per_s(self) -> float:
        """Requests/s that one of the needed replicas takes at peak."""
        return self.pool.peak_per_s / max(self.pool.count.needed, 1)


def drawn_pool(pool: PoolChoice, choice: ServingChoice, draws: Draws) -> DrawnPool:
    """A pool with the classes it serves and its replica under every draw."""
    loads = tuple(load for load in choice.loads if load.name in pool.classes)
    return DrawnPool(pool, loads, drawn_replica(pool.replica, draws))


def drawn_replica(replica: Replica, draws: Draws) -> Replica:
    """The replica with a leading axis of draws on hardware and software."""
    cluster, engine = drawn_service(replica.cluster, replica.engine, draws)
    return replace(replica, cluster=cluster, engine=engine)


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


def left_out_spread(choice: ServingChoice, metric: str, context: Context) -> Spread | None:
    """How far left-out measurements lay; end to end is mostly decoding, so that TPOT's holds there."""
    asked = "tpot" if metric == "e2e" else metric
    replica = main_pool(choice.fleet, choice.loads).replica
    device = replica.cluster.device
    return serving_spread(context.constants, choice.model, asked, "open", device, replica.engine)


def figure(middle: object, samples: object, spread: Spread | None) -> Drawn:
    """A figure whose samples may be infinite where a replica saturates."""
    value = float(np.max(np.asarray(middle, float)))
    raw: NDArray[np.float64] = np.nan_to_num(
        np.ravel(np.asarray(samples, float)), nan=value * WORST_FACTOR, posinf=value * WORST_FACTOR
    )
    return drawn(value, np.minimum(raw, value * WORST_FACTOR), spread)


def carried_by(pool: DrawnPool, load: ClassLoad, choice: ServingChoice, context: Context) -> Drawn:
    """Requests/s of one replica that still meet the goals of all that share it."""
    ratios = carried_ratios(_rates(pool.under_draws, load), _rates(pool.pool.replica, load))
    share = load.traffic.rate_per_s / sum(each.traffic.rate_per_s for each in pool.loads)
    middle = pool.pool.limit_per_s * share
    if np.median(ratios) <= LEAST_CARRIED_FRACTION:  # wider than any measurement: nothing to stretch
        return Drawn(middle, middle * ratios)
    return drawn(middle, middle * ratios, left_out_spread(choice, "output", context))


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


def relative_need(pool: PoolChoice, loads: tuple[ClassLoad, ...], context: Context) -> NDArray[np.float64]:
    """Replicas needed under every draw over those needed in the middle."""
    under = drawn_replica(pool.replica, context.draws)
    load = max(loads, key=lambda each: each.traffic.rate_per_s)
    need: NDArray[np.float64] = 1 / carried_ratios(_rates(under, load), _rates(pool.replica, load))
    return need
