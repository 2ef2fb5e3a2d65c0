"""What a fleet costs and draws: by pool, by year, by token."""

import numpy as np

from twofold.core import Estimate, Source
from twofold.inference import fleet_cost
from twofold.plan.context import Context
from twofold.plan.ranges import Drawn
from twofold.plan.serving_choice import ClassLoad, ServingChoice
from twofold.plan.serving_pools import DrawnPool, carried_by, one

YEAR_H, HOUR_S, DAY_S = 8760.0, 3600.0, 86400.0


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
    window_s = max((load.traffic.slo.finish_within_s or DAY_S) for load in pool.loads)
    rests = choice.offer.price.term in ("on_demand", "spot") and all(load.is_batch for load in pool.loads)
    hours = min(window_s, DAY_S) / DAY_S if rests else 1.0
    middle = pool.pool.usd_per_h * hours
    limit = carried_by(pool, pool.loads[0], choice, context)
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


def mean_power(pools: tuple[DrawnPool, ...], context: Context) -> Drawn:
    """Watts of all accelerators at the mean load."""
    total = 0.0
    for pool in pools:
        rate = sum(load.mean_rate_per_s for load in pool.loads)
        total += fleet_cost(pool.pool.replica, pool.pool.served, pool.pool.count, None, rate).power_w
    return Drawn(total, total * np.ravel(context.draws["power"]))


def tokens_per_j(pools: tuple[DrawnPool, ...], power: Drawn) -> Estimate:
    """Output tokens per joule of the accelerators, at the mean load."""
    tokens = sum(
        load.mean_rate_per_s * one(load.traffic.lengths.output_tokens)
        for pool in pools
        for load in pool.loads
    )
    return power.inverse(tokens).estimate("tok/J", Source.ASSUMED)
