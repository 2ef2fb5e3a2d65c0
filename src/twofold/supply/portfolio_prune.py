"""Makes a problem smaller without changing its answer: offers that another beats, hours and weeks alike.

An offer falls only to one that is as cheap, as quick, as short, as long to be had and without a limit. Hours
are merged where every demand is equal in every week; weeks where nothing that lasts can begin or end.
"""

from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from twofold.supply.portfolio_problem import (
    DAY_H,
    Campaign,
    CampaignOption,
    PortfolioProblem,
    ServingRate,
    admitted,
    end_of,
    is_hourly,
    is_metered,
    unit_usd_per_h,
)
from twofold.supply.types import CapacityOffer


@dataclass(frozen=True, slots=True)
class Calendar:
    """Weeks and hours of a problem, each merged with those that are equal to it."""

    blocks: tuple[tuple[int, int], ...]  # (first week, weeks)
    alike: tuple[int, ...]  # by block: a number that blocks share whose hours are served alike
    hour_groups: tuple[tuple[int, ...], ...]


def pruned(problem: PortfolioProblem) -> PortfolioProblem:
    """With the best variant for each demand, without offers that another beats or none needs."""
    rates = _best_variants(admitted(problem))
    used = {rate.offer for rate in rates}
    used |= {option.offer for each in problem.campaigns for option in each.options}
    offers = [offer for offer in problem.offers if offer.name in used]
    tables = {offer.name: _Table(offer, rates, problem) for offer in offers}
    kept: list[CapacityOffer] = []
    for offer in sorted(offers, key=lambda each: (unit_usd_per_h(each), each.name)):
        beaten = any(_beats(tables[other.name], tables[offer.name], problem) for other in kept)
        if not beaten:
            kept.append(offer)
    names = {offer.name for offer in kept}
    return replace(
        problem,
        offers=tuple(offer for offer in offers if offer.name in names),
        rates=tuple(rate for rate in rates if rate.offer in names),
        campaigns=tuple(
            replace(each, options=tuple(option for option in each.options if option.offer in names))
            for each in problem.campaigns
        ),
    )


def calendar_of(problem: PortfolioProblem) -> Calendar:
    """Hours with equal demand together; weeks too, where no lease or dense campaign could tell them apart."""
    columns = [np.zeros((1, DAY_H)), *(each.rate_per_s for each in problem.demands)]
    columns += [np.isin(np.arange(DAY_H), each.hours)[None, :].astype(float) for each in problem.batches]
    stacked = np.concatenate(columns)
    groups: dict[bytes, list[int]] = {}
    for hour in range(DAY_H):
        groups.setdefault(np.ascontiguousarray(stacked[:, hour]).tobytes(), []).append(hour)
    starts = _block_starts(problem)
    ends = [*starts[1:], problem.week_count]
    return Calendar(
        tuple((start, end - start) for start, end in zip(starts, ends, strict=True)),
        _alike(problem, starts),
        tuple(tuple(hours) for hours in groups.values()),
    )


def _block_starts(problem: PortfolioProblem) -> list[int]:
    weeks = problem.week_count
    if any(0 < offer.minimum_weeks < weeks for offer in problem.offers):
        return list(range(weeks))  # a lease may end inside any run of equal weeks
    edges = {0}
    for campaign in problem.campaigns:
        if not is_contested(problem, campaign):
            continue  # wherever it is put, nothing else changes
        inside = range(campaign.first_week, ceil(campaign.end_week) + 1)
        edges |= set(inside) if campaign.dense else {inside[0], inside[-1]}
    for offer in problem.offers:
        edges |= {offer.first_week, end_of(offer, weeks)}
    for week in range(1, weeks):
        same = all(
            np.array_equal(each.rate_per_s[week], each.rate_per_s[week - 1]) for each in problem.demands
        )
        same &= all(
            each.requests_per_day[week] == each.requests_per_day[week - 1] for each in problem.batches
        )
        edges |= set() if same else {week}
    return sorted(edge for edge in edges if 0 <= edge < weeks)


def is_contested(problem: PortfolioProblem, campaign: Campaign) -> bool:
    """Whether some of its machines are held, or limited: units that something else may want."""
    names = {option.offer for option in campaign.options}
    return any(
        not is_hourly(offer) or (campaign.dense and offer.unit_limit is not None)
        for offer in problem.offers
        if offer.name in names
    )


def _alike(problem: PortfolioProblem, starts: list[int]) -> tuple[int, ...]:
    """Blocks of equal demand whose held units are equal whatever is decided: one answer serves them all.

    Where a dense run may take held or limited units, a block stands alone. A run that may pause changes
    nothing: an hour rented for it costs what an hour more for serving does.
    """
    weeks = problem.week_count
    if any(0 < offer.minimum_weeks < weeks for offer in problem.offers):
        return tuple(range(len(starts)))
    numbers: dict[tuple[object, ...], int] = {}
    found = []
    for start in starts:
        contested = any(
            campaign.dense
            and campaign.first_week <= start < campaign.end_week
            and is_contested(problem, campaign)
            for campaign in problem.campaigns
        )
        key: tuple[object, ...] = (
            start if contested else -1,
            *[each.rate_per_s[start].tobytes() for each in problem.demands],
            *[float(each.requests_per_day[start]) for each in problem.batches],
            *[offer.first_week <= start < end_of(offer, weeks) for offer in problem.offers],
        )
        found.append(numbers.setdefault(key, len(numbers)))
    return tuple(found)


def _best_variants(rates: tuple[ServingRate, ...]) -> tuple[ServingRate, ...]:
    """Of an offer's variants for one demand those that no other beats in rate and money."""
    kept: list[ServingRate] = []
    for rate in sorted(
        rates, key=lambda each: (-each.rate_per_unit_per_s, each.usd_per_request, each.variant)
    ):
        same = [other for other in kept if (other.offer, other.demand) == (rate.offer, rate.demand)]
        if not any(other.usd_per_request <= rate.usd_per_request for other in same):
            kept.append(rate)
    return tuple(kept)


class _Table:
    """One offer with what it can do, for comparing."""

    def __init__(
        self, offer: CapacityOffer, rates: tuple[ServingRate, ...], problem: PortfolioProblem
    ) -> None:
        self.offer = offer
        self.rates = [rate for rate in rates if rate.offer == offer.name]
        self.options: list[tuple[str, CampaignOption]] = [
            (each.name, option)
            for each in problem.campaigns
            for option in each.options
            if option.offer == offer.name
        ]


def _beats(one: _Table, other: _Table, problem: PortfolioProblem) -> bool:
    a, b = one.offer, other.offer
    if a.unit_limit is not None or is_metered(a) != is_metered(b) or a.tenure == "owned":
        return False
    if problem.platform_limit is not None and a.accelerator != b.accelerator:
        return False
    if problem.provider_limit is not None and a.provider != b.provider:
        return False
    # By the hour, a campaign's hours are billed as they are; by the week, whole weeks: hours beat weeks.
    longer = not is_hourly(a) and (is_hourly(b) or a.minimum_weeks > b.minimum_weeks)
    if longer or b.tenure == "owned" or unit_usd_per_h(a) > unit_usd_per_h(b):
        return False
    weeks = problem.week_count
    if a.first_week > b.first_week or end_of(a, weeks) < end_of(b, weeks):
        return False
    return all(
        any(
            mine.demand == rate.demand
            and mine.rate_per_unit_per_s >= rate.rate_per_unit_per_s
            and mine.usd_per_request <= rate.usd_per_request
            for mine in one.rates
        )
        for rate in other.rates
    ) and all(
        any(
            name == campaign
            and mine.units == option.units
            and mine.wall_h <= option.wall_h
            and mine.extra_usd <= option.extra_usd
            for name, mine in one.options
        )
        for campaign, option in other.options
    )


def cheapest_usd_per_request(problem: PortfolioProblem, demand: str) -> float:
    """The least that a request costs on any offer, used without a break; infinite where none can."""
    prices = {offer.name: unit_usd_per_h(offer) for offer in problem.offers}
    return min(
        (
            rate.usd_per_request + prices[rate.offer] / 3600.0 / rate.rate_per_unit_per_s
            for rate in admitted(problem)
            if rate.demand == demand and rate.offer in prices
        ),
        default=inf,
    )
