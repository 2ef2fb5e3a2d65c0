"""What an hour down costs, and how many spares make the sum of machines and outages least."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, lgamma, log, log1p

from twofold.contracts.results import NineStep, SpareStep
from twofold.core import YEAR_H

WORTH_LOOKING = 8  # spares beyond the fewest that could be best


@dataclass(frozen=True, slots=True)
class Failing:
    """How machines fail: one by one, and a zone at a time."""

    replica_available_fraction: float
    zone_available_fraction: float
    zones: int = 1


def enough_fraction(needed: int, total: int, up_fraction: float) -> float:
    """The probability that at least `needed` of `total` are up.

    Formula  Σ_{f=0}^{total−needed} C(total, f)·(1−a)^f·a^(total−f)
    Why      Machines fail independently; each is up for a share `a` of the time.
    Source   N+k sizing by the binomial distribution.
    Limits   fewer machines than needed: 0. Terms are summed as exponentials of logarithms, so that a
             thousand machines do not underflow.

    >>> round(enough_fraction(1, 2, 0.9), 4)
    0.99
    """
    if total < needed:
        return 0.0
    if up_fraction >= 1.0:
        return 1.0
    down, up = log1p(-up_fraction), log(up_fraction)
    terms = (
        exp(lgamma(total + 1) - lgamma(f + 1) - lgamma(total - f + 1) + f * down + (total - f) * up)
        for f in range(total - needed + 1)
    )
    return min(1.0, sum(terms))


def available_fraction(needed: int, total: int, failing: Failing) -> float:
    """The share of the year in which a pool carries its peak.

    Formula  (1 − z·q)·A(total) + z·q·A(total − ⌈total/z⌉), q = 1 − zone availability
    Why      A zone takes the fullest share of the replicas with it; two at once are too rare to count. One
             zone that fails takes all.
    """
    lost = failing.zones * (1.0 - failing.zone_available_fraction)
    left = total - -(-total // failing.zones)
    up = failing.replica_available_fraction
    return (1.0 - lost) * enough_fraction(needed, total, up) + lost * enough_fraction(needed, left, up)


def redundancy_steps(
    needed: int, usd_per_replica_year: float, outage_usd_per_h: float, failing: Failing, spares: Sequence[int]
) -> tuple[SpareStep, ...]:
    """Every number of spares with both of its costs (R-134).

    Formula  fleet = (needed + k)·price; outage = (1 − availability)·8760·(cost of an hour)
    Why      A spare costs the same every year, an outage what its hours are worth: one falls, one rises.
    Units    USD a year.
    """
    rows = []
    for spare in spares:
        available = available_fraction(needed, needed + spare, failing)
        hours = (1.0 - available) * YEAR_H
        fleet, outage = (needed + spare) * usd_per_replica_year, hours * outage_usd_per_h
        rows.append(
            SpareStep(spare, available, hours, fleet, outage, fleet + outage, planned=False, best=False)
        )
    return tuple(rows)


def cheapest_redundancy(
    needed: int, usd_per_replica_year: float, outage_usd_per_h: float, failing: Failing
) -> SpareStep:
    """The spares at which machines and outages together cost least; of equals the fewest.

    Limits   looks from none to past the point at which one more zone could be lost.
    """
    zone = -(-needed // max(1, failing.zones - 1)) if failing.zones > 1 else 0
    spares = range(zone + int(0.02 * needed) + WORTH_LOOKING)
    steps = redundancy_steps(needed, usd_per_replica_year, outage_usd_per_h, failing, spares)
    return min(steps, key=lambda step: (step.total_usd_per_year, step.spare_count))


def nines(outage_usd_per_h: float, most: int = 5) -> tuple[NineStep, ...]:
    """What each further nine is worth: 99 % to 99.9 %, to 99.99 %, …

    Formula  (a₂ − a₁)·8760·(cost of an hour)

    >>> [round(step.saved_h_per_year, 2) for step in nines(1.0, most=3)]
    [78.84, 7.88]
    """
    levels = [1.0 - 10.0**-count for count in range(2, most + 1)]
    rows = []
    for low, high in pairwise(levels):
        saved = (high - low) * YEAR_H
        rows.append(NineStep(low, high, saved, saved * outage_usd_per_h))
    return tuple(rows)
