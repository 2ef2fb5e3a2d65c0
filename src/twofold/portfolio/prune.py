"""Makes a problem smaller without changing its answer: offers that another beats, hours and weeks alike.

An offer falls only to one that is as cheap, as quick, as short, as long to be had and without a limit. Units
by the hour serve and train apart, so each of the two falls alone; a unit may fall to several smaller ones.
Hours are merged where every demand is equal in every week; weeks where nothing that lasts can begin or end.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

import numpy as np

from twofold.portfolio.problem import (
    DAY_H,
    DAYS_PER_WEEK,
    WEEK_H,
    Campaign,
    CampaignOption,
    CapacityOffer,
    Demand,
    Floats,
    PortfolioProblem,
    ServingRate,
    admitted,
    end_of,
    is_hourly,
    is_metered,
    unit_usd_per_h,
)
from twofold.portfolio.programme import Ints, Mask

MEAN_HOURS = 6  # kinds of hours of a rough problem


@dataclass(frozen=True, slots=True)
class Calendar:
    """Weeks and hours of a problem, each merged with those that are equal to it."""

    blocks: tuple[tuple[int, int], ...]  # (first week, weeks)
    alike: tuple[int, ...]  # by block: its kind; hours of blocks of one kind are served alike
    hour_groups: tuple[tuple[int, ...], ...]

    @property
    def first_weeks(self) -> Ints:
        return np.array([first for first, _ in self.blocks], np.int64)

    @property
    def group_hours(self) -> Ints:
        return np.array([len(hours) for hours in self.hour_groups], np.int64)

    @property
    def kind_of(self) -> Ints:
        return np.array(self.alike, np.int64)

    @property
    def first_of(self) -> Ints:
        """One block of each kind."""
        return np.unique(self.kind_of, return_index=True)[1]

    @property
    def period_h(self) -> Ints:
        """Hours that each (block, group) stands for in the plan."""
        block_weeks = np.array([weeks for _, weeks in self.blocks], np.int64)
        return np.asarray(DAYS_PER_WEEK * block_weeks[:, None] * self.group_hours[None, :])

    @property
    def kind_h(self) -> Floats:
        """Hours that each (kind, group) stands for in the plan."""
        hours = np.zeros((len(self.first_of), len(self.hour_groups)))
        np.add.at(hours, self.kind_of, self.period_h)
        return hours

    def blocks_within(self, first_week: int, end_week: int) -> Mask:
        """Which blocks lie in these weeks."""
        return np.array([first_week <= first < end_week for first, _ in self.blocks], bool)

    def weeks(self, values: Floats) -> Floats:
        """Blocks back to every week."""
        return np.repeat(values, [weeks for _, weeks in self.blocks], axis=0)

    def hours(self, values: Floats) -> Floats:
        """(blocks, groups) back to every week and hour."""
        groups = {hour: number for number, hours in enumerate(self.hour_groups) for hour in hours}
        return np.asarray(self.weeks(values)[:, [groups[hour] for hour in range(DAY_H)]])


def pruned(problem: PortfolioProblem, held: Collection[str] = ()) -> PortfolioProblem:
    """With the best variant for each demand, without offers that another beats or none needs.

    An offer by the hour that no longer serves may still train, and one that no longer trains may serve.
    `held` names offers that stay whatever beats them: they are leased already.
    """
    rates = _serving_kept(problem, _best_variants(admitted(problem)))
    campaigns = tuple(_with_best_options(each, problem) for each in problem.campaigns)
    used = {rate.offer for rate in rates} | {option.offer for each in campaigns for option in each.options}
    small = replace(
        problem,
        offers=tuple(offer for offer in problem.offers if offer.name in used),
        rates=rates,
        campaigns=campaigns,
    )
    kept: list[_Table] = []
    for table in _by_price(small):
        if table.offer.name in held or not any(_beats(other, table, problem) for other in kept):
            kept.append(table)
    return part_of(small, {table.offer.name for table in kept})


def part_of(problem: PortfolioProblem, names: set[str]) -> PortfolioProblem:
    """The same problem with these offers only."""
    return replace(
        problem,
        offers=tuple(offer for offer in problem.offers if offer.name in names),
        rates=tuple(rate for rate in problem.rates if rate.offer in names),
        campaigns=tuple(
            replace(each, options=tuple(option for option in each.options if option.offer in names))
            for each in problem.campaigns
        ),
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """One offer with what it can do, for comparing."""

    offer: CapacityOffer
    rates: list[ServingRate]
    options: list[tuple[str, CampaignOption]]  # with their campaigns


def _by_price(problem: PortfolioProblem) -> list[_Table]:
    tables = {
        offer.name: _Table(offer, [], [])
        for offer in sorted(problem.offers, key=lambda each: (unit_usd_per_h(each), each.name))
    }
    for rate in problem.rates:
        if rate.offer in tables:
            tables[rate.offer].rates.append(rate)
    for name, option in ((each.name, option) for each in problem.campaigns for option in each.options):
        if option.offer in tables:
            tables[option.offer].options.append((name, option))
    return list(tables.values())


def _serving_kept(problem: PortfolioProblem, rates: tuple[ServingRate, ...]) -> tuple[ServingRate, ...]:
    """Without the rates of offers by the hour that whole units of another, together as cheap, do as well."""
    kept: list[_Table] = []
    beaten = set()
    for table in _by_price(replace(problem, rates=rates)):
        if not table.rates or is_metered(table.offer):
            continue
        if is_hourly(table.offer) and any(_serves_better(other, table, problem) for other in kept):
            beaten.add(table.offer.name)
        elif is_hourly(table.offer) and table.offer.unit_limit is None:
            kept.append(table)
    return tuple(rate for rate in rates if rate.offer not in beaten)


def _serves_better(one: _Table, other: _Table, problem: PortfolioProblem) -> bool:
    """Whether so many units of the one as carry what a unit of the other does cost no more than it."""
    if not _stands_for(one.offer, other.offer, problem):
        return False
    most = max(
        min(
            (
                rate.rate_per_unit_per_s / mine.rate_per_unit_per_s
                for mine in one.rates
                if mine.demand == rate.demand and mine.usd_per_request <= rate.usd_per_request
            ),
            default=inf,
        )
        for rate in other.rates
    )
    if most == inf:
        return False
    return max(1, ceil(most - 1e-9)) * unit_usd_per_h(one.offer) <= unit_usd_per_h(other.offer)


def _stands_for(a: CapacityOffer, b: CapacityOffer, problem: PortfolioProblem) -> bool:
    """Whether the one is of the other's kind, and to be had in every week in which the other is."""
    weeks = problem.week_count
    there = a.first_week <= b.first_week and end_of(a, weeks) >= end_of(b, weeks)
    return there and _is_of_kind(a, b, problem)


def _is_of_kind(a: CapacityOffer, b: CapacityOffer, problem: PortfolioProblem) -> bool:
    """Whether the one may stand for the other where kinds are counted."""
    return (problem.platform_limit is None or a.accelerator == b.accelerator) and (
        problem.provider_limit is None or a.provider == b.provider
    )


def _with_best_options(campaign: Campaign, problem: PortfolioProblem) -> Campaign:
    """A campaign without the options that rented hours without a limit make needless.

    Hours without a limit disturb nobody: of those that end in time the cheapest of its kind is as good as any
    other by the hour. On held units, more of them for longer and for more money are never better.
    """
    offers = {offer.name: offer for offer in problem.offers}
    options = [option for option in campaign.options if option.offer in offers]

    def usd(option: CampaignOption) -> float:
        return unit_usd_per_h(offers[option.offer]) * option.unit_h + option.extra_usd

    def is_alike(one: CampaignOption, other: CampaignOption) -> bool:
        return _is_of_kind(offers[one.offer], offers[other.offer], problem)

    def is_smaller(one: CampaignOption, other: CampaignOption) -> bool:
        """Whether it takes no more of a held offer's units, in no more time and for no more money."""
        if one.offer != other.offer or one.extra_usd > other.extra_usd or one.wall_h > other.wall_h:
            return False
        return one.units <= other.units if campaign.dense else one.unit_h <= other.unit_h

    cheapest: list[CampaignOption] = []  # of each kind, where kinds count
    for option in sorted(options, key=lambda option: (usd(option), option.offer, option.units)):
        offer = offers[option.offer]
        end = end_of(offer, problem.week_count)
        first, last = max(campaign.first_week, offer.first_week), min(int(campaign.end_week), end)
        in_time = campaign.last_start(option, end) >= first
        if not campaign.dense:
            in_time = last > first and option.wall_h <= WEEK_H * (last - first)
        unlimited = is_hourly(offer) and offer.unit_limit is None
        if in_time and unlimited and not any(is_alike(other, option) for other in cheapest):
            cheapest.append(option)
    kept: list[CampaignOption] = []
    for option in options:
        if is_hourly(offers[option.offer]):
            needless = option not in cheapest and any(
                is_alike(other, option) and usd(other) <= usd(option) for other in cheapest
            )
        else:
            needless = any(is_smaller(other, option) for other in kept)
        if not needless:
            kept.append(option)
    return replace(campaign, options=tuple(kept))


def calendar_of(problem: PortfolioProblem) -> Calendar:
    """Hours with equal demand together; weeks too, where no lease or dense campaign could tell them apart."""
    columns = [np.zeros((1, DAY_H)), *(each.rate_per_s for each in problem.demands)]
    columns += [np.isin(np.arange(DAY_H), each.hours)[None, :].astype(float) for each in problem.batches]
    stacked = np.concatenate(columns)
    groups: dict[bytes, list[int]] = {}
    for hour in range(DAY_H):
        groups.setdefault(stacked[:, hour].tobytes(), []).append(hour)
    weeks = problem.week_count
    starts = kinds = list(range(weeks))
    if not any(0 < offer.minimum_weeks < weeks for offer in problem.offers):
        starts = _block_starts(problem)
        kinds = _kinds(problem, starts)
    # Else a lease may end inside any run of equal weeks.
    blocks = [(start, end - start) for start, end in pairwise([*starts, weeks])]
    return Calendar(tuple(blocks), tuple(kinds), tuple(map(tuple, groups.values())))


def with_mean_hours(problem: PortfolioProblem) -> PortfolioProblem:
    """Hours that ask alike with the mean of each demand: about `MEAN_HOURS` kinds of hours are left.

    Hours in which a batch may run stay apart from those in which it may not.
    """
    busy = np.zeros(DAY_H)
    for each in problem.demands:
        busy += each.rate_per_s.mean(axis=0) / max(float(each.rate_per_s.mean()), 1e-12)
    sides: dict[tuple[bool, ...], list[int]] = {}
    for hour in np.argsort(busy, kind="stable"):
        sides.setdefault(tuple(hour in each.hours for each in problem.batches), []).append(int(hour))
    groups = [
        part
        for hours in sides.values()
        for part in np.array_split(hours, max(1, round(MEAN_HOURS * len(hours) / DAY_H)))
    ]

    def meant(demand: Demand) -> Demand:
        rates = demand.rate_per_s.copy()
        for group in groups:
            rates[:, group] = rates[:, group].mean(axis=1, keepdims=True)
        return replace(demand, rate_per_s=rates)

    return replace(problem, demands=tuple(meant(each) for each in problem.demands))


def _block_starts(problem: PortfolioProblem) -> list[int]:
    weeks = problem.week_count
    edges = {0}
    for campaign in problem.campaigns:
        if is_contested(problem, campaign):  # else nothing changes, wherever it is put
            inside = range(campaign.first_week, ceil(campaign.end_week) + 1)
            edges |= set(inside) if campaign.dense else {inside[0], inside[-1]}
    for offer in problem.offers:
        edges |= {offer.first_week, end_of(offer, weeks)}
    for series in _by_week(problem):
        edges |= {week for week in range(1, weeks) if not np.array_equal(series[week], series[week - 1])}
    return sorted(edge for edge in edges if 0 <= edge < weeks)


def _by_week(problem: PortfolioProblem) -> list[Floats]:
    """What is asked, by week."""
    return [
        *(each.rate_per_s for each in problem.demands),
        *(each.requests_per_day for each in problem.batches),
    ]


def is_contested(problem: PortfolioProblem, campaign: Campaign) -> bool:
    """Whether some of its machines are held, or limited and wanted: units that something else may want."""
    others = [each for each in problem.campaigns if each.dense and each.name != campaign.name]
    wanted = {rate.offer for rate in problem.rates}
    wanted |= {option.offer for each in others for option in each.options}
    names = {option.offer for option in campaign.options}
    return any(
        not is_hourly(offer) or (campaign.dense and offer.unit_limit is not None and offer.name in wanted)
        for offer in problem.offers
        if offer.name in names
    )


def _kinds(problem: PortfolioProblem, starts: list[int]) -> list[int]:
    """Blocks of equal demand whose held units are equal whatever is decided: one answer serves them all.

    Where a dense run may take held or limited units, a block stands alone. A run that may pause changes
    nothing: an hour rented for it costs what an hour more for serving does.
    """
    numbers: dict[tuple[object, ...], int] = {}
    contested = [each for each in problem.campaigns if each.dense and is_contested(problem, each)]
    found = []
    for start in starts:
        alone = any(each.first_week <= start < each.end_week for each in contested)
        key = (
            start if alone else -1,
            *[series[start].tobytes() for series in _by_week(problem)],
            *[offer.first_week <= start < end_of(offer, problem.week_count) for offer in problem.offers],
        )
        found.append(numbers.setdefault(key, len(numbers)))
    return found


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


def _beats(one: _Table, other: _Table, problem: PortfolioProblem) -> bool:
    a, b = one.offer, other.offer
    if a.unit_limit is not None or is_metered(a) != is_metered(b) or "owned" in (a.tenure, b.tenure):
        return False
    # By the hour, a campaign's hours are billed as they are; by the week, whole weeks: hours beat weeks.
    longer = not is_hourly(a) and (is_hourly(b) or a.minimum_weeks > b.minimum_weeks)
    if longer or unit_usd_per_h(a) > unit_usd_per_h(b) or not _stands_for(a, b, problem):
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
