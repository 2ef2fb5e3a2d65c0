"""How few replicas of a pool hold on the twin: a search up and down from as many as were chosen."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice, with_fleet
from twofold.contracts.goals import METRICS, QUANTILES
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.inference.fleet import TARGET_UTILISATION, ReplicaCount
from twofold.inference.search import Fleet, PoolChoice, servers_of
from twofold.rehearse.peak import Goals, missed_goals, on_twin, told_by
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.workers import Workers

GROWN_RATIOS = (1.15, 1.35, 1.6, 2.0)  # of the replicas of pools that do not hold, tried in turn
FEWER = 2  # replicas less, tried first
FINE = 0.02  # of the fewest that hold, that they are searched to
LATENCIES = {f"{metric}_{quantile}" for metric in METRICS for quantile in QUANTILES}
Seen = dict[int, tuple[ClassFigures, ...]]  # what the twin says of a pool's classes, by its replicas


def seen_around(
    plan: ServicePlan,
    pool: PoolChoice,
    least: Callable[[], int],
    tables: RehearsalTables,
    workers: Workers,
) -> Seen:
    """By replicas of a pool what the twin says: of the chosen ones, and down or up to the fewest that hold.

    Where two fewer than chosen miss, the search agrees with the twin, and one fewer is not asked; nor are
    fewer of what promises a day's end alone, or than `least`. `GROWN_RATIOS` bound how many more are tried.
    """
    name, asked = pool.classes[0], pool.count.needed
    seen: Seen = {}

    def holds(count: int) -> bool:
        seen[count] = on_twin(_with_pool(plan, name, count), tables, {name}, workers)
        return not missed_goals(seen[count])

    if not holds(asked):
        low, high = _reached(asked, holds)
    elif any(slo.metric in LATENCIES for each in seen[asked] for slo in each.slos):
        low, high = _left(asked, least(), holds)
    else:
        return seen
    agrees = high == asked and high - low <= FEWER
    while not agrees and high - low > max(1, round(FINE * high)):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return seen


def _reached(asked: int, holds: Callable[[int], bool]) -> tuple[int, int]:
    """Of more replicas the last that miss and the first that hold; the last tried where none do."""
    misses = asked
    for count in dict.fromkeys(max(asked + 1, round(asked * ratio)) for ratio in GROWN_RATIOS):
        if holds(count):
            return misses, count
        misses = count
    return misses, misses


def _left(asked: int, least: int, holds: Callable[[int], bool]) -> tuple[int, int]:
    """Of fewer replicas, `least` at least, the first that miss or are not tried, and the last that hold."""
    held, step = asked, FEWER
    while held > least:
        count = max(held - step, least)
        if not holds(count):
            return count, held
        held, step = count, 2 * step
    return least - 1, held


def surest(pool: PoolChoice, goals: Callable[[int], Goals], context: Context) -> int:
    """Of a pool the fewest replicas with which goals that its slow world does not tell of are sure enough.

    Why      The slow world has one speed, see `slow_ratios`: what it says of a goal whose errors are wider is
             no reason to rent less.
    """
    asked, low, high = context.spec.margin_fraction, 0, pool.count.needed
    told = told_by(goals(high)) if asked else None
    while told and high - low > 1:
        middle = (low + high) // 2
        others = [each for goal, each in goals(middle).items() if goal != told]
        sure = all(figure.probability_within(limit_s) >= (asked or 0.0) for figure, limit_s in others)
        low, high = (low, middle) if sure else (middle, high)
    return high if told else 1


def _with_pool(plan: ServicePlan, name: str, count: int) -> ServicePlan:
    """The plan with so many replicas and no spares in one of its pools."""
    pools = (
        replace(pool, replica_count=count, spare_count=0) if pool.name == name else pool
        for pool in plan.pools
    )
    return replace(plan, pools=tuple(pools))


def resized(choice: ServingChoice, counts: Mapping[str, int], context: Context) -> ServingChoice:
    """The choice with so many replicas, without spares, in the pools that are named by their first class."""
    grown = []
    for pool in choice.fleet.pools:
        if pool.classes[0] not in counts:
            grown.append(pool)
            continue
        needed, node = counts[pool.classes[0]], choice.offers[pool.offer].node
        count = ReplicaCount.of(
            pool.peak_per_s,
            pool.peak_per_s / TARGET_UTILISATION / needed,
            int(servers_of(pool.replica, node.accelerator_count)[0]),
            zones=pool.count.zones,
            availability_fraction=choice.entry.availability_fraction,
        )
        usd_per_h = None if pool.usd_per_h is None else pool.usd_per_h * count.total / pool.count.total
        grown.append(replace(pool, count=count, usd_per_h=usd_per_h))
    prices = [pool.usd_per_h for pool in grown]
    fleet: Fleet = replace(
        choice.fleet,
        pools=tuple(grown),
        usd_per_h=None if None in prices else sum(price or 0.0 for price in prices),
        accelerators=sum(pool.accelerators for pool in grown),
    )
    return with_fleet(choice, fleet, context)


def fewest_of(seen: Seen) -> int | None:
    """The fewest replicas that were seen to hold."""
    return min((count for count, classes in seen.items() if not missed_goals(classes)), default=None)
