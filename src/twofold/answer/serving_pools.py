"""The pools of a fleet under every draw: what a replica serves and carries, what they cost and draw."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from twofold.answer import loads
from twofold.answer.context import Context
from twofold.answer.ranges import GROWN_MOST, SURE_ROUNDS, Drawn, drawn, serving_power_spread, short_of
from twofold.answer.serving_choice import ClassLoad, ServingChoice, best_of, busy_hours, choose_serving
from twofold.answer.serving_replica import DrawnLoad, DrawnReplica, draw_replica
from twofold.contracts.spec.service import Service
from twofold.core import record
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import DAY_S, YEAR_H, YEAR_S
from twofold.inference import stations
from twofold.inference.curve import LoadCurve
from twofold.inference.fleet import ReplicaCount, replicas_power_w
from twofold.inference.latency import Served
from twofold.inference.regimes import on_curve
from twofold.inference.replica import Replica
from twofold.inference.search import PoolChoice, servers_of
from twofold.inference.slo import merged_class, peak_curve, rate_limit, shared_load
from twofold.perf.types import one

# Of the middle. Where a draw misses a goal outright no number of replicas helps, and a deployer would change
# the replica rather than buy ten times as many: costs are not multiplied beyond that, and a plan says so.
LEAST_CARRIED_FRACTION = 0.1
HOUR_S = 3600.0
NEARER_MOST = 3  # times that a margin which no fleet has is halved
UNMOVED_ROUND = 0.25  # of a round of `SURE_ROUNDS`, one that left the fleet as it was


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """A pool of the fleet with its replica under every draw."""

    pool: PoolChoice
    loads: tuple[ClassLoad, ...]
    replica: DrawnReplica
    # Filled as they are asked for, by many figures: `_carried` and `load` of each class.
    ratios: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    served: dict[str, DrawnLoad] = field(default_factory=dict)
    # Of the replica in the middle and under the draws, by class: they hold for any number of replicas.
    curves: dict[tuple[str, bool], LoadCurve] = field(default_factory=dict)

    @property
    def share_per_s(self) -> float:
        """Requests/s that one of the needed replicas takes at peak."""
        return self.pool.peak_per_s / max(self.pool.count.needed, 1)

    def share_of(self, load: ClassLoad) -> float:
        """The part of all requests to the pool that are of one class."""
        return load.traffic.rate_per_s / sum(each.traffic.rate_per_s for each in self.loads)

    def load(self, load: ClassLoad) -> DrawnLoad:
        """What a class gets of a replica at its share of the peak, with ranges."""
        if load.name not in self.served:
            self.served[load.name] = self.at(load, self.share_per_s)
        return self.served[load.name]

    def at(self, load: ClassLoad, share_per_s: float) -> DrawnLoad:
        """What a class gets of a replica at another share, with as many replicas behind the gate."""
        return self.replica.load(partial(self._serve, load, share_per_s), load.traffic.lengths)

    def _serve(self, load: ClassLoad, share_per_s: float, replica: Replica) -> Served:
        if load.is_batch:
            return served_by(share_per_s, self.loads, load, replica)
        key = load.name, replica is self.replica.middle
        if key not in self.curves:
            self.curves[key] = peak_curve(replica, [each.traffic for each in self.loads], load.traffic)
        curve = self.curves[key]
        if share_per_s != self.share_per_s:
            curve = replace(curve, fleet_per_s=share_per_s * max(self.pool.count.needed, 1))
        return _behind_tiers(load, partial(on_curve, curve, share_per_s))

    def sized(self, pool: PoolChoice) -> "DrawnPool":
        """Another number of the same replicas; what does not depend on it is kept."""
        kept = {load.name: self.served[load.name] for load in self.loads if load.is_batch and self.served}
        alike = pool.peak_per_s == self.pool.peak_per_s and pool.count.needed == self.pool.count.needed
        return replace(self, pool=pool, served=self.served if alike else kept)

    def goals(self) -> "Goals":
        """What is predicted for every goal of its classes, and its limit."""
        found: Goals = {}
        for load in self.loads:
            slo, served = load.traffic.slo, self.load(load)
            for goal, limit_s in slo.latencies_s.items():
                found[load.name, goal] = served.latency(*goal.split("_")), limit_s
            if slo.finish_within_s is not None:
                done = carried_by(self, load).times(float(self.pool.count.needed))
                found[load.name, "finish_within"] = (
                    done.inverse(load.mean_rate_per_s * DAY_S),
                    slo.finish_within_s,
                )
        return found


def drawn_pool(pool: PoolChoice, choice: ServingChoice, context: Context) -> DrawnPool:
    """A pool with the classes it serves and its replica under every draw."""
    loads = tuple(load for load in choice.loads if load.name in pool.classes)
    return DrawnPool(pool, loads, draw_replica(pool.replica, choice.model, context.constants, context.draws))


def served_by(share_per_s: float, sharing: Sequence[ClassLoad], load: ClassLoad, replica: Replica) -> Served:
    """One class on a replica at its share of the peak; where classes share a pool, among all of them."""
    if load.is_batch:
        return loads.served(load.traffic.on(replica), load.traffic.lengths, loads.Saturation())
    traffic = [each.traffic for each in sharing]
    return _behind_tiers(load, partial(shared_load, replica, traffic, load.traffic, share_per_s))


def _behind_tiers(load: ClassLoad, serve: Callable[[], Served]) -> Served:
    """What a class gets of a replica, after what its requests pass before; both are noted as one."""
    before = load.traffic.slo.before
    if before is None:
        return serve()
    with record.recording() as book:
        found = stations.served_after(before, serve())
    for name, kept in book.items():
        metric, _, which = name.partition("_")
        if metric in stations.HELD and hasattr(before, f"{which}_s"):
            value = getattr(getattr(found, metric), f"{which}_s")
            said = f"{kept.formula}; behind tiers, whose mean adds and whose deviation does in quadrature"
            record.note(name, value, said, *kept.inputs, "tiers")
        else:
            record.note(name, kept.value, kept.formula, *kept.inputs)
    return found


Goals = dict[tuple[str, str], tuple[Drawn, float]]  # figure and limit, by class and goal


def drawn_fleet(choice: ServingChoice, context: Context, before: Sequence[DrawnPool] = ()) -> list[DrawnPool]:
    """The pools of a fleet; replicas that a fleet had `before` keep what is known of them."""
    known = {
        pool.classes: each
        for pool in choice.fleet.pools
        for each in before
        if each.pool.classes == pool.classes and each.pool.replica == pool.replica
    }
    return [
        known[pool.classes].sized(pool) if pool.classes in known else drawn_pool(pool, choice, context)
        for pool in choice.fleet.pools
    ]


def goal_figures(pools: Iterable[DrawnPool]) -> Goals:
    """What is predicted for every goal of a fleet, and its limit."""
    return {goal: figure for pool in pools for goal, figure in pool.goals().items()}


def goals_of_pools(choice: ServingChoice, context: Context) -> list[Callable[[int], Goals]]:
    """Of each pool what is predicted for its goals with so many replicas at work, and their limits."""
    return [partial(_goals_with, pool) for pool in drawn_fleet(choice, context)]


def _goals_with(pool: DrawnPool, needed: int) -> Goals:
    return pool.sized(replace(pool.pool, count=replace(pool.pool.count, needed=needed))).goals()


def sure_serving(asked_for: Service | ServingChoice, context: Context, only: str = "") -> ServingChoice:
    """The cheapest fleet on its machines of which each goal holds with the spec's confidence; half asks for
    the middle. Of a service, or of one that was searched already.

    `only` names the accelerator that it is to be on; none: the one that is cheapest in the middle.

    How      Whatever falls short is asked of the middle with as much to spare as its quantile lies above
             the limit, and all is searched again, until nothing does.
    Why      More replicas leave each with less to do, down to what a lone request gets. Errors common to
             all of them stay: where no fleet does it, or only one `GROWN_MOST` times the cheapest, the goal
             that was to spare most is left to its middle, and the plan says that it is not reached. What
             your own machines do not reach is no reason to rent others.
    """
    if isinstance(asked_for, Service):
        asked_for = choose_serving(asked_for, context)
    usual: ServingChoice = asked_for
    asked, rounds = context.spec.margin_fraction, 1.0
    if only not in ("", usual.offer.accelerator.name):
        own = best_of(usual.searched, context, only=only)
        usual = replace(own, result=usual.result, offers=usual.offers)
    choice = usual
    margins: dict[tuple[str, str], float] = {}
    given_up: list[tuple[str, str]] = []
    kept: dict[tuple[str, str], float] = {}  # the margins of the last fleet that was found
    nearer: dict[tuple[str, str], int] = {}  # how often a margin beyond all fleets was brought nearer
    tried: dict[tuple[str, str], tuple[float, float]] = {}  # the middle there, the power of what it lacks
    pools: list[DrawnPool] = []
    while True:
        pools = drawn_fleet(choice, context, pools) if asked else []
        figures = goal_figures(pools)
        lacking = {goal: short_of(*each, asked) for goal, each in figures.items()}
        lacking = {goal: ratio for goal, ratio in lacking.items() if ratio > 1.0}
        short = {goal: ratio for goal, ratio in lacking.items() if goal not in given_up}
        if not short:
            holds = {goal: each.probability_within(limit_s) for goal, (each, limit_s) in figures.items()}
            return replace(choice, unsure={goal: holds[goal] for goal in lacking})
        for goal, ratio in short.items():
            figure, limit_s = figures[goal]
            before_s, power = tried.get(goal, (0.0, 0.5))
            # Replicas are whole: what moved nothing is asked for twice as much.
            tried[goal] = figure.middle, 2.0 * power if figure.middle == before_s else 1.0
            margins[goal] = _spare_ratio(choice, goal, margins, limit_s) * ratio ** tried[goal][1]
        before = [pool.count for pool in choice.fleet.pools]
        found = _within_reason(usual, context, margins) if rounds <= SURE_ROUNDS else None
        # What did not change the fleet is no round of its own: margins double until a replica is added.
        moved = found is None or [pool.count for pool in found.fleet.pools] != before
        rounds += 1.0 if moved else UNMOVED_ROUND
        while found is None:
            goal = max(margins, key=lambda goal: margins[goal])
            nearer[goal] = nearer.get(goal, 0) + 1
            if rounds <= SURE_ROUNDS and nearer[goal] <= NEARER_MOST:
                # A quantile that lies far out where a queue has no end asks for more than any fleet gives.
                margins[goal] = sqrt(margins[goal] * kept.get(goal, 1.0))
                found = _within_reason(usual, context, margins)
                continue
            given_up.append(goal)
            del margins[goal]
            found, rounds = _within_reason(usual, context, margins) if margins else usual, 1.0
        choice, kept = found, dict(margins)


def with_outages_priced(choice: ServingChoice, context: Context) -> ServingChoice:
    """A service with the spares that cost least where the spec prices an hour down (R-134); never fewer
    than its availability and its zones ask for.

    How      The availability that is worth its price replaces a lower one that is asked, and all is searched
             again: every rule that counts replicas reads it.
    Limits   by the largest pool that somebody waits for, at the hours of its day in which it is held; an hour
             down that nobody stated buys nothing.
    """
    usd, entry = context.spec.supply.economics.downtime_usd_per_h, choice.entry
    waited = {load.name for load in choice.loads if not load.is_batch}
    pools = [pool for pool in choice.fleet.pools if waited & {*pool.classes} and pool.usd_per_h]
    if not usd or not pools:
        return choice
    pool = max(pools, key=lambda each: each.accelerators)
    hours = busy_hours(choice.fleet, choice.loads, entry)
    replica_usd = (pool.usd_per_h or 0.0) / pool.count.total * float(hours.mean() / hours.max())
    servers = int(servers_of(pool.replica, choice.offer.node.accelerator_count)[0])
    worth = ReplicaCount.availability_worth(pool.count.needed, replica_usd, usd, servers)
    if worth <= entry.availability_fraction:
        return choice
    # A little less, so that as many spares are enough however the sum is rounded.
    return sure_serving(entry.model_copy(update={"availability_fraction": worth - 1e-12}), context)


def _spare_ratio(
    choice: ServingChoice, goal: tuple[str, str], margins: Mapping[tuple[str, str], float], limit_s: float
) -> float:
    """What a goal has to spare where its replicas carry all that they may; from there it is to come down.

    That is its margin where it binds them, and more where another goal does.
    """
    pool = next(each for each in choice.fleet.pools if goal[0] in each.classes)
    told = margins.get(goal, 1.0)
    if goal[1] == "finish_within":
        return told
    return max(
        told, limit_s / (latency_with(choice, pool, pool.peak_per_s / pool.limit_per_s, *goal) or limit_s)
    )


def _within_reason(
    usual: ServingChoice, context: Context, margins: Mapping[tuple[str, str], float]
) -> ServingChoice | None:
    """The cheapest fleet with so much to spare; None where there is none, or only a far larger one."""
    try:
        found = best_of(usual.searched, context, margins, usual.offer.accelerator.name)
    except InfeasibleError:
        return None
    if found.offer.owned != usual.offer.owned:
        return None
    priced = found.fleet.usd_per_h and usual.fleet.usd_per_h
    size, was = (each.fleet.usd_per_h if priced else each.fleet.accelerators for each in (found, usual))
    if (size or 0.0) > GROWN_MOST * (was or 0.0):
        return None
    # Everything that was weighed without margins, so that a plan can say why not.
    return replace(found, result=usual.result, offers=usual.offers, other_variants=usual.other_variants)


def latency_with(choice: ServingChoice, pool: PoolChoice, count: float, name: str, goal: str) -> float | None:
    """Seconds that the middle of the closed form expects of a goal such as `ttft_p95` of one of a pool's
    classes, with another number of replicas; None where its queue never ends."""
    sharing = [load for load in choice.loads if load.name in pool.classes]
    load = next(each for each in sharing if each.name == name)
    served = served_by(pool.peak_per_s / count, sharing, load, pool.replica)
    metric, _, quantile = goal.partition("_")
    seconds = one(getattr(getattr(served, metric), f"{quantile}_s"))
    return seconds if np.isfinite(seconds) else None


def carried_by(pool: DrawnPool, load: ClassLoad) -> Drawn:
    """Requests/s of one replica that still meet the goals of all that share it."""
    ratios = _carried(pool, load)
    share = pool.share_of(load)
    middle = pool.pool.limit_per_s * share
    lengths = merged_class([each.traffic for each in pool.loads]).lengths
    most = pool.pool.served.bounds(pool.pool.replica, lengths)["output"] / lengths.output_tokens
    # Where most draws miss a goal they are wider than any measurement: nothing to stretch.
    wide = np.median(ratios) <= LEAST_CARRIED_FRACTION
    samples = middle * ratios
    held = Drawn(middle, samples) if wide else drawn(middle, samples, pool.replica.spread("output"))
    return held.within(most=most * share)


def relative_need(pool: DrawnPool) -> NDArray[np.float64]:
    """Replicas needed under every draw over those needed in the middle, by the busiest class."""
    busiest = max(pool.loads, key=lambda each: each.traffic.rate_per_s)
    return 1 / _carried(pool, busiest)


def fleet_need(choice: ServingChoice, context: Context) -> NDArray[np.float64]:
    """Accelerators that the same traffic needs of all pools under every draw over those of the middle."""
    total = sum(pool.accelerators for pool in choice.fleet.pools)
    need = np.zeros(context.draws["price"].shape[0])
    for pool in choice.fleet.pools:
        need += pool.accelerators / total * relative_need(drawn_pool(pool, choice, context))
    return need


def _carried(pool: DrawnPool, load: ClassLoad) -> NDArray[np.float64]:
    """Requests/s of one replica with this class alone, within its goals: the ratios of `carried_ratios`."""
    if load.name in pool.ratios:
        return pool.ratios[load.name]
    rates = []
    for each in (pool.replica.under_draws, pool.replica.middle):
        if load.is_batch:
            own = load.traffic.on(each)
            rate = loads.served(own, load.traffic.lengths, loads.Saturation()).requests_per_s
        else:
            rate = rate_limit(each, load.traffic).requests_per_s
        rates.append(np.ravel(np.asarray(rate, float)))
    return pool.ratios.setdefault(load.name, carried_ratios(*rates))


def carried_ratios(under: NDArray[np.float64], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a replica carries under every draw over what it usually does, at least the least that is counted.

    Where most draws miss a goal outright their median says nothing: the rate of the middle stands in for it.
    """
    usual, own = float(np.median(under)), float(np.max(middle))
    whole = usual if usual > LEAST_CARRIED_FRACTION * own else own
    return np.maximum(under / max(whole, 1e-30), LEAST_CARRIED_FRACTION)


def missing_fraction(carried: Drawn) -> float:
    """In what part of the draws a replica carries no more than the least that is counted."""
    return float(np.mean(carried.samples <= LEAST_CARRIED_FRACTION * carried.middle * (1 + 1e-9)))


def usd_per_1k(load: ClassLoad, pool: DrawnPool, choice: ServingChoice, context: Context) -> Estimate | None:
    """Money of the class's share of its pool, over the tokens that leave it on a mean day."""
    hourly = _hourly_cost(pool, choice, context)
    if hourly is None:
        return None
    weights = {}
    for each in pool.loads:
        lengths = each.traffic.lengths
        weights[each.name] = each.mean_rate_per_s * (one(lengths.input_tokens) + one(lengths.output_tokens))
    share = weights[load.name] / sum(weights.values())
    tokens_per_h = load.mean_rate_per_s * one(load.traffic.lengths.output_tokens) * HOUR_S
    usd = hourly.times(share / tokens_per_h * 1e3).estimate("USD", Source.FITTED)
    said = "USD/h of the class's replicas / output tokens per hour"
    used = "listed", "rate", "lengths", "rate_per_replica_per_s"
    return record.note("usd_per_1k_output_tokens", usd, said, *used)


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
    said = "accelerators × price × the hours of a year in which they are leased"
    prices = [f"machine.{part}price.usd_per_accelerator_h" for part in ("base_", "")]
    is_mixed = choice.held is not None and choice.held.base is not None
    used = "count", *prices[not is_mixed :], "carried"
    return record.note("cost_usd_per_year", total.times(YEAR_H).estimate("USD"), said, *used)


def _held_fraction(pool: DrawnPool, choice: ServingChoice) -> float:
    """The part of a pool that is paid for, on average: as leased, all of it where nothing is."""
    return choice.held.fractions[pool.pool.classes[0]] if choice.held else 1.0


def mean_power(pools: tuple[DrawnPool, ...], choice: ServingChoice, context: Context) -> Drawn:
    """Watts of all accelerators, spares included, averaged over a day at the mean load.

    Formula  interactive: power at utilisation × mean / peak × needed / all; batch: full power for the part
             of the day that the work takes, idle for the rest of the time that the machines are held
    Why      Utilisation is linear in the rate, and spares take their share of it.
    """

    def watts(pool: DrawnPool) -> float:
        rate, count = sum(load.mean_rate_per_s for load in pool.loads), pool.pool.count
        if not all(load.is_batch for load in pool.loads):
            held = min(1.0, _held_fraction(pool, choice))
            load = count.needed / count.total * rate / pool.pool.peak_per_s
            return held * _power(pool, min(1.0, load / held))
        busy = min(1.0, rate / (pool.pool.limit_per_s * count.total))
        idle = max(0.0, _held_fraction(pool, choice) - busy)
        return busy * _power(pool, 1.0) + min(idle, 1.0 - busy) * _power(pool, 0.0)

    drawn_w = _drawn_power(sum(map(watts, pools)), pools, context)
    used = "watts", "count", "power_spread"
    record.note("accelerators_j", drawn_w.middle * YEAR_S, "power at the mean load × a year", *used)
    return drawn_w


def _power(pool: DrawnPool, load_fraction: float) -> float:
    """Watts of a pool at so much of the load that its needed replicas take at the peak."""
    batch = one(pool.pool.served.batch_sequences) * load_fraction
    return replicas_power_w(pool.pool.replica, batch, pool.pool.count.total)


def _drawn_power(total_w: float, pools: tuple[DrawnPool, ...], context: Context) -> Drawn:
    """Watts under the draws, as far apart as published devices lay; all pools are of one device."""
    spread = serving_power_spread(context.constants, pools[0].pool.replica.cluster.device)
    return drawn(total_w, total_w * np.ravel(context.draws["power"]), spread)


def tokens_per_j(pools: tuple[DrawnPool, ...], context: Context) -> Estimate:
    """Output tokens/s per watt of the accelerators, at the peak."""
    loads = [load for pool in pools for load in pool.loads]
    tokens = sum(load.peak_per_s * one(load.traffic.lengths.output_tokens) for load in loads)
    watts = sum(_power(pool, pool.pool.count.needed / pool.pool.count.total) for pool in pools)
    per_j = _drawn_power(watts, pools, context).inverse(tokens).estimate("tok/J", Source.ASSUMED)
    said = "output tokens/s / accelerators' watts, at the peak"
    return record.note("output_tokens_per_j", per_j, said, "carried", "watts", "count", "power_spread")
