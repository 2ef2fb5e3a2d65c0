"""Unit economics: money per token, own against hosted, a run against its life, spares against hours down."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log1p

import numpy as np

from twofold.contracts.results import ledger
from twofold.core.quantity import J_PER_KWH, YEAR_H


@dataclass(frozen=True, slots=True)
class OwnCost:
    """A fleet of one's own: it grows with its volume, but no fleet is smaller than the least.

    `once_usd` is spent before the first token (a training run) and spread over `months`.
    """

    least_usd_per_month: float
    usd_per_mtok: float
    once_usd: float = 0.0
    months: float = 36.0

    @property
    def once_usd_per_month(self) -> float:
        return self.once_usd / self.months

    def running_usd_per_month(self, mtok_per_month: float) -> float:
        """What the fleet costs at a volume, without what was spent once."""
        return max(self.least_usd_per_month, self.usd_per_mtok * mtok_per_month)


def break_even_mtok_per_month(own: OwnCost, api_usd_per_mtok: float) -> float | None:
    """The volume from which owning costs no more than the API; None where the API stays cheaper.

    Formula  p·V = max(least, c·V) + f: V = (least + f)/p while c·V ≤ least, else V = f/(p − c)
    Why      Owning is a floor and then a slope, an API a slope alone: they cross once, if its slope is lower.
    Units    1e6 tokens a month.
    Limits   an own marginal cost at or above the API's price never crosses once the floor is left.

    >>> break_even_mtok_per_month(OwnCost(1000.0, 0.5), 2.0)
    500.0
    """
    if api_usd_per_mtok <= 0:
        return None
    on_floor = (own.least_usd_per_month + own.once_usd_per_month) / api_usd_per_mtok
    if own.usd_per_mtok * on_floor <= own.least_usd_per_month:
        return on_floor
    if api_usd_per_mtok <= own.usd_per_mtok:
        return None
    return own.once_usd_per_month / (api_usd_per_mtok - own.usd_per_mtok)


def break_even_months(own: OwnCost, api_usd_per_mtok: float, mtok_per_month: float) -> float | None:
    """Months of serving after which what was spent once has come back; None: it never does.

    Formula  once / (p·V − max(least, c·V))
    Units    months.
    Limits   nothing spent once and cheaper to run: 0.

    >>> break_even_months(OwnCost(1000.0, 0.5, once_usd=6000.0), 2.0, 1000.0)
    6.0
    """
    saved = api_usd_per_mtok * mtok_per_month - own.running_usd_per_month(mtok_per_month)
    return own.once_usd / saved if saved > 0 else None


def crossing_days(
    run_usd: float, requests_per_day: float, usd_per_request: float, least_usd_per_day: float = 0.0
) -> float | None:
    """Days of serving that cost as much as the run did; None where serving costs nothing.

    Formula  run / max(least, c·r)
    Units    USD, requests a day, days.

    >>> crossing_days(1000.0, 100.0, 0.1)
    100.0
    """
    daily = max(least_usd_per_day, usd_per_request * requests_per_day)
    return run_usd / daily if daily > 0 else None


def lifetime_curve(
    run_usd: float, usd_per_request: float, rates_per_day: Sequence[float], least_usd_per_day: float = 0.0
) -> tuple[ledger.LifetimeStep, ...]:
    """Spend on serving over requests a day, beside a run that was paid once (R-132)."""
    return tuple(
        ledger.LifetimeStep(
            rate,
            365.0 * max(least_usd_per_day, usd_per_request * rate),
            crossing_days(run_usd, rate, usd_per_request, least_usd_per_day),
        )
        for rate in rates_per_day
    )


MTOK = 1e6


def usd_per_mtok(usd: float, tokens: float) -> float:
    """Money over what it buys, in millions of tokens.

    Formula  usd / tokens · 1e6
    Units    USD and tokens of the same time; USD per 1e6 tokens. $/1k tokens are a thousandth of it.
    Limits   no tokens: infinite.

    >>> usd_per_mtok(20.0, 10e6)
    2.0
    """
    return usd / tokens * MTOK if tokens > 0 else float("inf")


def energy_usd(energy_j: float, usd_per_kwh: float) -> float:
    """Money for energy at the meter."""
    return energy_j / J_PER_KWH * usd_per_kwh


def cost_ratio(
    name: str, training_usd: float, serving_usd: float, claimed: tuple[float, float], inputs: str
) -> ledger.RatioRow:
    """How many times the one is of the other, and whether that is within what is claimed (R-130).

    >>> cost_ratio("per GPU", 6.0, 2.0, (3.0, 5.0), "").verdict
    'within'
    """
    ratio = training_usd / serving_usd if serving_usd > 0 else float("inf")
    low, high = claimed
    verdict = "below" if ratio < low else "above" if ratio > high else "within"
    return ledger.RatioRow(name, training_usd, serving_usd, ratio, low, high, verdict, inputs)


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
    Limits   fewer machines than needed: 0. Terms are summed as exponentials of logarithms, each from the
             one before it, so that a million machines neither underflow nor take long.

    >>> round(enough_fraction(1, 2, 0.9), 4)
    0.99
    """
    if total < needed:
        return 0.0
    if up_fraction >= 1.0:
        return 1.0
    down, up = log1p(-up_fraction), log(up_fraction)
    failed = np.arange(1, total - needed + 1)
    steps = np.log((total - failed + 1) / failed) + (down - up)
    return min(1.0, exp(total * up) + float(np.exp(total * up + np.cumsum(steps)).sum()))


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
) -> tuple[ledger.SpareStep, ...]:
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
            ledger.SpareStep(
                spare, available, hours, fleet, outage, fleet + outage, planned=False, best=False
            )
        )
    return tuple(rows)


def cheapest_redundancy(
    needed: int, usd_per_replica_year: float, outage_usd_per_h: float, failing: Failing
) -> ledger.SpareStep:
    """The spares at which machines and outages together cost least; of equals the fewest.

    Limits   looks from none to past the point at which one more zone could be lost.
    """
    zone = -(-needed // max(1, failing.zones - 1)) if failing.zones > 1 else 0
    spares = range(zone + int(0.02 * needed) + WORTH_LOOKING)
    asked = needed, usd_per_replica_year, outage_usd_per_h, failing
    (best,) = redundancy_steps(*asked, [0])
    for spare in spares:
        if (needed + spare) * usd_per_replica_year > best.total_usd_per_year:
            break  # dearer by its machines alone, and so is every further one
        (step,) = redundancy_steps(*asked, [spare])
        best = step if step.total_usd_per_year < best.total_usd_per_year else best
    return best


def nines(outage_usd_per_h: float, most: int = 5) -> tuple[ledger.NineStep, ...]:
    """What each further nine is worth: 99 % to 99.9 %, to 99.99 %, …

    Formula  (a₂ − a₁)·8760·(cost of an hour)

    >>> [round(step.saved_h_per_year, 2) for step in nines(1.0, most=3)]
    [78.84, 7.88]
    """
    levels = [1.0 - 10.0**-count for count in range(2, most + 1)]
    rows = []
    for low, high in pairwise(levels):
        saved = (high - low) * YEAR_H
        rows.append(ledger.NineStep(low, high, saved, saved * outage_usd_per_h))
    return tuple(rows)
