"""The two honest alternatives: one cluster sized for the harder half, and two dedicated fleets at list price.

Both are held all year: no window, no release, no commitment, no hour off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from twofold.catalog.capacity import CONTRACT
from twofold.portfolio.problem import (
    DAY_H,
    HOUR_S,
    WEEK_H,
    CampaignOption,
    CapacityOffer,
    Floats,
    PortfolioProblem,
    admitted,
    end_of,
)

LOADS = np.geomspace(0.05, 20.0, 121)  # times the planned one, among which a crossing is looked for


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines held all year, and what they miss."""

    what: str  # in words
    usd: float  # of the plan's weeks
    short_weeks: int  # in which runs leave too little for serving
    missed: tuple[str, ...]  # runs that no size of it ends in time
    usd_at: Callable[[float], float]  # by load


@dataclass(frozen=True, slots=True)
class _Half:
    """What each half of a plan would need of an offer."""

    offer: CapacityOffer
    usd_per_unit: float  # of the plan's weeks at list price
    training_units: int  # at once, at most; 0: none of the runs
    dense_by_week: Floats  # of them, units of runs that hold what they have from start to end
    missed: tuple[str, ...]  # runs that no size of it ends in time
    serving_units: float  # infinite where a class cannot run

    def serving_count(self, load: float = 1.0) -> int:
        """Whole units to serve so many times the planned load."""
        return ceil(self.serving_units * load - 1e-9)

    def sized(self, units: int) -> str:
        return f"{units} × {self.offer.accelerator_count} {self.offer.accelerator}"


def two_fleets(problem: PortfolioProblem) -> Fleet | None:
    """The cheapest machines for each half, each fleet as large as its half ever needs it."""
    halves = _halves(problem)
    training = min(
        (half for half in halves if half.training_units > 0),
        key=lambda half: (len(half.missed), half.training_units * half.usd_per_unit, half.offer.name),
        default=None,
    )
    serving = min(
        (half for half in halves if problem.work_names and half.serving_units < inf),
        key=lambda half: (ceil(half.serving_units) * half.usd_per_unit, half.offer.name),
        default=None,
    )
    if (training is None and problem.campaigns) or (serving is None and problem.work_names):
        return None
    if training is None and serving is None:
        return None
    texts = [f"{training.sized(training.training_units)} to train"] if training else []
    texts += [f"{serving.sized(serving.serving_count())} to serve"] if serving else []

    def usd_at(load: float) -> float:
        trains = training.usd_per_unit * training.training_units if training else 0.0
        return trains + (serving.usd_per_unit * serving.serving_count(load) if serving else 0.0)

    return Fleet(" + ".join(texts), usd_at(1.0), 0, training.missed if training else (), usd_at)


def one_cluster(problem: PortfolioProblem) -> Fleet | None:
    """One kind of machine for both halves, as many as the harder half needs; None where no kind does both."""
    able = [
        half
        for half in _halves(problem)
        if half.serving_units < inf and (half.training_units or not problem.campaigns)
    ]
    if not able or not (problem.campaigns and problem.work_names):
        return None

    def units(half: _Half, load: float = 1.0) -> int:
        return max(half.training_units, half.serving_count(load))

    best = min(able, key=lambda half: (len(half.missed), units(half) * half.usd_per_unit, half.offer.name))
    size = units(best)
    return Fleet(
        best.sized(size),
        size * best.usd_per_unit,
        int(np.count_nonzero(size - best.dense_by_week < best.serving_units - 1e-9)),
        best.missed,
        lambda load: units(best, load) * best.usd_per_unit,
    )


def break_even_ratio(one: Fleet, other: Fleet) -> float | None:
    """The load, over the planned one, at which two fleets begin to cost the same; None: they never cross."""
    apart = [one.usd_at(float(load)) - other.usd_at(float(load)) for load in LOADS]
    for index in range(1, len(LOADS)):
        if apart[index - 1] * apart[index] < 0 or (apart[index] == 0 and apart[index - 1] != 0):
            return float(np.sqrt(LOADS[index - 1] * LOADS[index]))
    return None


def _halves(problem: PortfolioProblem) -> list[_Half]:
    """Every offer at list price with what each half would need of it."""
    listed = [
        offer
        for offer in problem.offers
        if offer.tenure not in ("owned", "api")
        and offer.usd_per_unit_h > 0
        # An offer that is limited or gone for some weeks cannot be held all year.
        and offer.unit_limit is None
        and offer.first_week == 0
        and end_of(offer, problem.week_count) == problem.week_count
    ]
    return [
        _Half(
            offer,
            offer.usd_per_unit_h * (1 + offer.support_fraction) * WEEK_H * problem.week_count,
            *_trained(problem, offer),
            _serving_units(problem, offer),
        )
        for offer in [each for each in listed if each.term in ("on_demand", CONTRACT)] or listed
    ]


def _trained(problem: PortfolioProblem, offer: CapacityOffer) -> tuple[int, Floats, tuple[str, ...]]:
    """Units at once for all runs, those of dense runs by week, and the runs that end in time on no size.

    Runs are placed one by one, the first to end before the others, where the fewest units are needed at once;
    runs that must overlap need the sum of theirs.
    """
    used, dense = np.zeros(problem.week_count), np.zeros(problem.week_count)
    missed = []

    def cost(slot: tuple[CampaignOption, int]) -> tuple[float, int, float, int]:
        option, start = slot
        peak = max(used.max(), used[start : start + option.weeks].max() + option.units)
        return float(peak), option.units, option.wall_h, start

    for campaign in sorted(problem.campaigns, key=lambda each: (each.end_week, each.first_week, each.name)):
        slots = [  # every size with every week in which it may begin and still end in time
            (option, start)
            for option in campaign.options
            if option.offer == offer.name
            for start in range(campaign.first_week, campaign.last_start(option, problem.week_count) + 1)
        ]
        if not slots:
            missed.append(campaign.name)
            continue
        option, start = min(slots, key=cost)
        used[start : start + option.weeks] += option.units
        if campaign.dense:
            dense[start : start + option.weeks] += option.units
    return round(float(used.max())), dense, tuple(missed)


def _serving_units(problem: PortfolioProblem, offer: CapacityOffer) -> float:
    """Units in the busiest hour; batch work spread over its hours. Infinite where a class cannot run."""
    rates = {
        rate.demand: rate.rate_per_unit_per_s
        for rate in sorted(admitted(problem), key=lambda each: each.rate_per_unit_per_s)
        if rate.offer == offer.name
    }
    if any(name not in rates for name in problem.work_names):
        return inf
    needed = np.zeros((problem.week_count, DAY_H))
    for demand in problem.demands:
        needed += demand.rate_per_s * demand.reserve_ratio / rates[demand.name]
    for batch in problem.batches:
        spread = batch.requests_per_day / (len(batch.hours) * HOUR_S) / rates[batch.name]
        needed[:, list(batch.hours)] += spread[:, None]
    return float(needed.max())
