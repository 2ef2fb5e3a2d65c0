"""What can be leased or is owned, as the portfolio sees it: one kind of unit, its price and its limits."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Tenure = Literal["owned", "bare_metal", "virtual", "community", "api"]


@dataclass(frozen=True, slots=True)
class CapacityOffer:
    """One way to get units (nodes or instances) of one kind. Money is list price, before discount and tax."""

    name: str  # unique: provider, instance, region and term
    provider: str
    instance: str
    accelerator: str  # catalogue name
    accelerator_count: int  # in one unit
    region: str  # provider:region, "" where none is stated
    term: str  # on_demand spot reserved_1y reserved_3y community owned
    tenure: Tenure
    usd_per_unit_h: float  # 0 for machines that are paid for already
    minimum_weeks: int = 0  # the least that a lease lasts; 0: by the hour
    unit_limit: int | None = None  # units that can be had; None: as many as wanted
    interruptions_per_unit_h: float = 0.0  # by the provider; 0 but for spot and community
    egress_usd_per_tb: float = 0.0
    support_fraction: float = 0.0  # of the rent, for managed service and support
    discount_fraction: float = 0.0  # off the list price
    source: str = ""
    date: str = ""
    first_week: int = 0  # of the plan, from which it can be had
    until_week: int | None = None  # first week in which it cannot; None: to the end
    stated_region: str = ""  # as the price names it, also one that no table lists; "" where it names none
    job_unit_limit: int | None = None  # units of one job, on one fabric; None: as many as can be had


Floats = NDArray[np.float64]
WEEK_H, DAYS_PER_WEEK, DAY_H, HOUR_S = 168.0, 7, 24, 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Requests that somebody waits for: one latency class, from one place."""

    name: str  # `service.class`, with `@region` where users stand in several
    rate_per_s: Floats  # (weeks, hours)
    limit_s: float | None  # p95 that is promised; None: the tables hold only what meets it
    reserve_ratio: float = 1.0  # capacity held over the demand: utilisation, zones and failures


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Work of a day that is done within some hours of it."""

    name: str
    requests_per_day: Floats  # by week
    hours: tuple[int, ...] = tuple(range(DAY_H))  # in which it may run


@dataclass(frozen=True, slots=True)
class CampaignOption:
    """So many units of an offer train the campaign in so many hours."""

    offer: str
    units: int
    wall_h: float
    extra_usd: float = 0.0  # besides its units: weights moved

    @property
    def weeks(self) -> int:
        """Whole weeks that held units are occupied."""
        return max(1, int(np.ceil(self.wall_h / WEEK_H - 1e-9)))

    @property
    def unit_h(self) -> float:
        """Hours of all units."""
        return self.units * self.wall_h


@dataclass(frozen=True, slots=True)
class Campaign:
    """One training run: starts in or after a week and is over before another.

    A dense one holds its units from start to end; one that is not may pause, and fills what others leave.
    """

    name: str
    first_week: int
    end_week: float  # weeks of the plan after which it must be over
    options: tuple[CampaignOption, ...]
    dense: bool = True

    def last_start(self, option: CampaignOption, offer_end_week: int) -> int:
        """The last week in which it may begin and still be over in time; units are had until their end."""
        in_time = int(np.floor(self.end_week - option.wall_h / WEEK_H + 1e-9))
        return min(in_time, offer_end_week - option.weeks)


@dataclass(frozen=True, slots=True)
class ServingRate:
    """What one unit of an offer carries of one demand or batch, with one variant of the service."""

    offer: str
    demand: str
    variant: str  # model and formats
    rate_per_unit_per_s: float  # requests, within every promise; infinite for a hosted API
    p95_s: float | None = None  # of what is promised, the way to the user included
    usd_per_request: float = 0.0  # egress, or a hosted API's price


# Kinds of requirements, with the field of a problem that has them.
ASKED = MappingProxyType({"class": "demands", "batch": "batches", "run": "campaigns"})
LIMITS = MappingProxyType({"platforms": "platform_limit", "providers": "provider_limit"})


@dataclass(frozen=True, slots=True)
class PortfolioProblem:
    """Everything that a portfolio is decided on."""

    offers: tuple[CapacityOffer, ...]
    demands: tuple[Demand, ...]
    batches: tuple[Batch, ...]
    campaigns: tuple[Campaign, ...]
    rates: tuple[ServingRate, ...]
    week_count: int = 52
    platform_limit: int | None = None  # different accelerators, at most
    provider_limit: int | None = None
    shortage_usd_per_request: float | None = None  # None: demand is met, or there is no answer

    @property
    def work_names(self) -> tuple[str, ...]:
        """Demands, then batches: the order of what is served in an answer."""
        return (*[each.name for each in self.demands], *[each.name for each in self.batches])

    @property
    def requirements(self) -> tuple[str, ...]:
        """Everything that is asked or limited, one name each."""
        return (
            *(f"{kind} {each.name}" for kind, field in ASKED.items() for each in getattr(self, field)),
            *(
                f"units of {offer.name}"
                for offer in self.offers
                if offer.unit_limit is not None and offer.tenure != "owned"
            ),
            *(kind for kind, field in LIMITS.items() if getattr(self, field) is not None),
        )

    def without(self, requirement: str) -> "PortfolioProblem":
        """The same problem with one of its requirements dropped."""
        kind, _, name = requirement.partition(" ")
        changed: dict[str, Any] = {LIMITS[kind]: None} if kind in LIMITS else {}
        if kind in ASKED:
            asked = getattr(self, ASKED[kind])
            changed = {ASKED[kind]: tuple(each for each in asked if each.name != name)}
        elif kind == "units":
            limited = name.removeprefix("of ")
            changed["offers"] = tuple(
                replace(offer, unit_limit=None) if offer.name == limited else offer for offer in self.offers
            )
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Placement:
    """A dense campaign where it was put: one of its options, from a week on."""

    campaign: str
    option: CampaignOption
    start_week: int


@dataclass(frozen=True, slots=True)
class Portion:
    """What part of a campaign that may pause one of its options does."""

    campaign: str
    option: CampaignOption
    done_fraction: float


@dataclass(frozen=True, slots=True, eq=False)
class PortfolioAnswer:
    """What to hold, rent and run, week by week; arrays follow the order of the problem's offers and work."""

    usd: float  # of the weeks of the plan
    bound_usd: float  # no answer is cheaper
    finished: bool  # False: time was up, and `gap_fraction` is what is left
    held_units: Floats  # (offers, weeks): leased by the week or longer, or owned
    started_units: Floats  # (offers, weeks): of them, leases that begin
    hourly_units: Floats  # (offers, weeks, hours): by the hour, for serving
    served_per_s: Floats  # (offers, work, weeks, hours)
    paused_units: Floats  # (offers, campaigns, weeks, hours): in what serving leaves
    rented_unit_h: Floats  # (offers, campaigns): of campaigns that may pause, by the hour
    placements: tuple[Placement, ...]
    portions: tuple[Portion, ...]
    shortage_per_s: Floats  # (demands, weeks, hours)

    @property
    def gap_fraction(self) -> float:
        """How far the answer may be from the best one."""
        return max(0.0, (self.usd - self.bound_usd) / max(abs(self.usd), 1e-9))


def is_hourly(offer: CapacityOffer) -> bool:
    """Whether units come and go by the hour."""
    return offer.minimum_weeks == 0 and offer.tenure not in ("owned", "api")


def is_metered(offer: CapacityOffer) -> bool:
    """Whether requests are paid for, and no units are held."""
    return offer.tenure == "api"


def unit_usd_per_h(offer: CapacityOffer) -> float:
    """What one unit-hour costs: the list price less its discount, with support on what is left."""
    return offer.usd_per_unit_h * (1 - offer.discount_fraction) * (1 + offer.support_fraction)


def end_of(offer: CapacityOffer, week_count: int) -> int:
    """First week in which the offer is no longer to be had."""
    return week_count if offer.until_week is None else min(offer.until_week, week_count)


def paid_weeks(offer: CapacityOffer, start_week: int, week_count: int) -> int:
    """Weeks that a lease is charged beyond the end of the plan: a plan pays at most its own length.

    A lease of a year that begins in week 10 of 52 costs 52 weeks. What a commitment of three years still
    owes after the plan is told beside the bill, not in it.
    """
    return max(0, start_week + min(offer.minimum_weeks, week_count) - week_count)


def admitted(problem: PortfolioProblem) -> tuple[ServingRate, ...]:
    """The rates that keep what their demand promises."""
    limits = {each.name: each.limit_s for each in problem.demands}
    return tuple(
        rate
        for rate in problem.rates
        if rate.rate_per_unit_per_s > 0
        and (rate.p95_s is None or (limit := limits.get(rate.demand)) is None or rate.p95_s <= limit)
    )
