"""A solved portfolio with what it was made from: what every table of it reads."""

from dataclasses import dataclass, field
from datetime import date, timedelta

import numpy as np

from twofold.portfolio.demand import ClassDemand
from twofold.portfolio.offers import NodeOffer
from twofold.portfolio.problem import (
    DAYS_PER_WEEK,
    CapacityOffer,
    Floats,
    PortfolioAnswer,
    PortfolioProblem,
    ServingRate,
)
from twofold.portfolio.programme import Known

LEAST_UNITS = 1e-6  # less than this of a unit is the solver's rounding


@dataclass(frozen=True, slots=True)
class PortfolioCase:
    """A problem and what it was made from."""

    problem: PortfolioProblem
    offers: tuple[NodeOffer, ...] = ()
    classes: tuple[ClassDemand, ...] = ()
    start: date | None = None  # day of week 0
    left_out: tuple[str, ...] = ()  # what is not in it, in words


@dataclass(frozen=True, slots=True)
class SolvedPortfolio:
    """A problem with its answer."""

    case: PortfolioCase
    answer: PortfolioAnswer
    conflict: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()  # runs that no machines end in time: they are not in the problem
    known: Known = field(default_factory=dict)  # weeks that were solved, for other years

    @property
    def problem(self) -> PortfolioProblem:
        return self.case.problem

    @property
    def start(self) -> date | None:
        return self.case.start

    def rate(self, offer: CapacityOffer, work: str) -> ServingRate | None:
        """What an offer carries of a class: its best variant."""
        found = [rate for rate in self.problem.rates if (rate.offer, rate.demand) == (offer.name, work)]
        return max(found, key=lambda rate: rate.rate_per_unit_per_s, default=None)

    def serving_units(self, index: int) -> Floats:
        """(weeks, hours) of an offer's units that serve, spares included."""
        offer, answer = self.problem.offers[index], self.answer
        reserves = {each.name: each.reserve_ratio for each in self.problem.demands}
        units = np.zeros(answer.served_per_s.shape[2:])
        for number, work in enumerate(self.problem.work_names):
            rate = self.rate(offer, work)
            if rate is not None:
                carried = answer.served_per_s[index, number] / rate.rate_per_unit_per_s
                units += carried * reserves.get(work, 1.0)
        return units

    def training_units(self, index: int) -> Floats:
        """(weeks,) units of dense runs on an offer."""
        units = np.zeros(self.problem.week_count)
        for each in self.answer.placements:
            if each.option.offer == self.problem.offers[index].name:
                units[each.start_week : each.start_week + each.option.weeks] += each.option.units
        return units

    def pausing_units(self, index: int) -> Floats:
        """(weeks,) units of runs that may pause on an offer: of held ones in their busiest hour, and rented.

        Rented hours are one stretch from the first week of the run's window.
        """
        offer, answer = self.problem.offers[index], self.answer
        units: Floats = answer.paused_units[index].sum(axis=0).max(axis=1)
        for number, campaign in enumerate(self.problem.campaigns):
            if answer.rented_unit_h[index, number] > LEAST_UNITS:
                for part in answer.portions:
                    if (part.campaign, part.option.offer) == (campaign.name, offer.name):
                        begins = max(campaign.first_week, offer.first_week)
                        units[begins : begins + part.option.weeks] += part.option.units
        return units

    def day(self, week: float) -> str:
        """The day on which a week begins, or its number where the year has no first day."""
        if self.start is None:
            return f"week {week + 1:.0f}"
        return str(self.start + timedelta(days=round(week * DAYS_PER_WEEK)))


NOT_PROMISED = "not promised"
