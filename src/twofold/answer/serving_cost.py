"""What a fleet costs and draws: by pool, by year, by token."""

from dataclasses import replace

import numpy as np

from twofold.answer.context import Context
from twofold.answer.ranges import Drawn, drawn, serving_power_spread
from twofold.answer.serving_choice import ClassLoad, ServingChoice
from twofold.answer.serving_pools import DrawnPool, carried_by
from twofold.core import DAY_S, YEAR_H, Estimate, Source
from twofold.inference import fleet_cost
from twofold.perf import one

HOUR_S = 3600.0


def usd_per_1k(load: ClassLoad, pool: DrawnPool, choice: ServingChoice, context: Context) -> Estimate | None:
    """Money of the class's share of its pool, over the tokens that leave it on a mean day."""
    hourly = _hourly_cost(pool, choice, context)
    if hourly is None:
        return None
    weights = {each.name: each.mean_rate_per_s * _tokens(each) for each in pool.loads}
    share = weights[load.name] / sum(weights.values())
    tokens_per_h = load.mean_rate_per_s * one(load.traffic.lengths.output_tokens) * HOUR_S
    return hourly.times(share / tokens_per_h * 1e3).estimate("USD", Source.FITTED)


def _tokens(load: ClassLoad) -> float:
    return one(load.traffic.lengths.input_tokens) + one(load.traffic.lengths.output_tokens)


def _hourly_cost(pool: DrawnPool, choice: ServingChoice, context: Context) -> Drawn | None:
    """USD/h of a pool with its spares, averaged over the day: on demand, a batch pool rests after its window.

    Draws: dearer machines, more traffic, and replicas that carry less than thought.
    """
    if pool.pool.usd_per_h is None or choice.offer.price is None:
        return None
    middle = pool.pool.usd_per_h * _held_fraction(pool, choice)
    limit = carried_by(pool, pool.loads[0])
    needed = np.ravel(context.draws["traffic"]) * limit.middle / limit.samples
    return Drawn(middle, middle * np.ravel(context.draws["price"]) * needed)


def yearly_cost(pools: tuple[DrawnPool, ...], choice: ServingChoice, context: Context) -> Estimate | None:
    """USD of a year of all pools; None where one has no price."""
    hourly = [_hourly_cost(pool, choice, context) for pool in pools]
    known = [each for each in hourly if each is not None]
    if len(known) < len(hourly):
        return None
    total = Drawn(sum(each.middle for each in known), np.sum([each.samples for each in known], axis=0))
    return total.times(YEAR_H).estimate("USD")


def _held_fraction(pool: DrawnPool, choice: ServingChoice) -> float:
    """The part of a day in which a pool is held: batch machines by the hour go back after their window."""
    price = choice.offer.price
    hourly = price is not None and price.term in ("on_demand", "spot")
    if not hourly or not all(load.is_batch for load in pool.loads):
        return 1.0
    return min(max(load.traffic.slo.finish_within_s or DAY_S for load in pool.loads), DAY_S) / DAY_S


def mean_power(pools: tuple[DrawnPool, ...], choice: ServingChoice, context: Context) -> Drawn:
    """Watts of all accelerators, spares included, averaged over a day at the mean load.

    Formula  interactive: power at utilisation × mean / peak × needed / all; batch: full power for the part
             of the day that the work takes, idle for the rest of the time that the machines are held
    Why      Utilisation is linear in the rate, and spares take their share of it.
    """
    return _drawn_power(sum(_pool_power(pool, choice) for pool in pools), pools, context)


def _pool_power(pool: DrawnPool, choice: ServingChoice) -> float:
    rate = sum(load.mean_rate_per_s for load in pool.loads)
    if not all(load.is_batch for load in pool.loads):
        return _power(pool, pool.pool.count.needed / pool.pool.count.total * rate / pool.pool.peak_per_s)
    busy = min(1.0, rate / (pool.pool.limit_per_s * pool.pool.count.total))
    idle = max(0.0, _held_fraction(pool, choice) - busy)
    return busy * _power(pool, 1.0) + idle * _power(pool, 0.0)


def _power(pool: DrawnPool, load_fraction: float) -> float:
    """Watts of a pool at so much of the load that its needed replicas take at the peak."""
    served = pool.pool.served
    eased = replace(served, batch_sequences=one(served.batch_sequences) * load_fraction)
    return fleet_cost(pool.pool.replica, eased, pool.pool.count, None, 0.0).power_w


def peak_power(pools: tuple[DrawnPool, ...], context: Context) -> Drawn:
    """Watts of all accelerators at the peak of every class."""
    total = sum(_power(pool, pool.pool.count.needed / pool.pool.count.total) for pool in pools)
    return _drawn_power(total, pools, context)


def _drawn_power(total_w: float, pools: tuple[DrawnPool, ...], context: Context) -> Drawn:
    """Watts under the draws, as far apart as published devices lay; all pools are of one device."""
    spread = serving_power_spread(context.constants, pools[0].pool.replica.cluster.device)
    return drawn(total_w, total_w * np.ravel(context.draws["power"]), spread)


def tokens_per_j(pools: tuple[DrawnPool, ...], context: Context) -> Estimate:
    """Output tokens/s per watt of the accelerators, at the peak."""
    tokens = sum(
        load.peak_per_s * one(load.traffic.lengths.output_tokens) for pool in pools for load in pool.loads
    )
    return peak_power(pools, context).inverse(tokens).estimate("tok/J", Source.ASSUMED)
