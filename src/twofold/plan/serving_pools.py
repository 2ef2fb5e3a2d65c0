"""The pools of a fleet under every draw: what a replica serves, and what it carries within its goals."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
from twofold.plan.context import Context
from twofold.plan.ranges import Drawn, drawn, drawn_cluster, drawn_engine, serving_spread
from twofold.plan.serving_choice import ClassLoad, ServingChoice
from twofold.plan.uncertainty import Draws, Spread

WORST_FACTOR = 20.0  # times the middle: what is shown of a draw in which a replica saturates
# Of the middle. Where a draw misses a goal outright no number of replicas helps, and a deployer would change
# the replica rather than buy ten times as many: costs are not multiplied beyond that.
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
    return replace(
        replica,
        cluster=drawn_cluster(replica.cluster, draws),
        engine=drawn_engine(replica.engine, draws),
    )


def served_by(pool: DrawnPool, load: ClassLoad, replica: Replica) -> Served:
    """One class on a replica at its share of the peak; where classes share a pool, among all of them."""
    own = for_class(replica, load.traffic)
    if load.is_batch:
        return max_throughput(own, load.traffic.lengths)
    if len(pool.loads) == 1:
        return open_loop(own, load.traffic.lengths, pool.share_per_s)
    classes = [each.traffic for each in pool.loads]
    return shared_load(replica, classes, load.traffic, pool.share_per_s)


def left_out_spread(choice: ServingChoice, metric: str, context: Context) -> Spread | None:
    """How far left-out measurements lay; end to end is mostly decoding, so that TPOT's holds there."""
    asked = "tpot" if metric == "e2e" else metric
    return serving_spread(context.constants, choice.model, asked, "open")


def figure(middle: object, samples: object, spread: Spread | None) -> Drawn:
    """A figure whose samples may be infinite where a replica saturates."""
    value = float(np.max(np.asarray(middle, float)))
    raw: NDArray[np.float64] = np.nan_to_num(
        np.ravel(np.asarray(samples, float)), nan=value * WORST_FACTOR, posinf=value * WORST_FACTOR
    )
    return drawn(value, np.minimum(raw, value * WORST_FACTOR), spread)


def carried_by(pool: DrawnPool, load: ClassLoad, choice: ServingChoice, context: Context) -> Drawn:
    """Requests/s of one replica that still meet the goals of all that share it."""
    if load.is_batch:
        under = served_by(pool, load, pool.under_draws).requests_per_s
    else:
        under = rate_limit(pool.under_draws, load.traffic).requests_per_s
    rates = np.ravel(np.asarray(under, float))
    share = load.traffic.rate_per_s / sum(each.traffic.rate_per_s for each in pool.loads)
    middle = pool.pool.limit_per_s * share
    ratios = np.maximum(rates / max(float(np.median(rates)), 1e-30), LEAST_CARRIED_FRACTION)
    return drawn(middle, middle * ratios, left_out_spread(choice, "output", context))


def relative_need(pool: PoolChoice, loads: tuple[ClassLoad, ...], context: Context) -> NDArray[np.float64]:
    """Replicas needed under every draw over those needed in the middle."""
    under = drawn_replica(pool.replica, context.draws)
    load = max(loads, key=lambda each: each.traffic.rate_per_s)
    if load.is_batch:
        rate = max_throughput(for_class(under, load.traffic), load.traffic.lengths).requests_per_s
    else:
        rate = rate_limit(under, load.traffic).requests_per_s
    rates: NDArray[np.float64] = np.maximum(np.ravel(np.asarray(rate, float)), 1e-9)
    need: NDArray[np.float64] = np.minimum(np.median(rates) / rates, 1 / LEAST_CARRIED_FRACTION)
    return need


def one(value: object) -> float:
    """The number of a single candidate."""
    return float(np.ravel(np.asarray(value, float))[0])
