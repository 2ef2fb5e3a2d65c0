"""The portfolio as a mixed-integer programme: columns are decisions, rows bind them.

Columns  held units per lease and week, whole; units by the hour, whole; requests per second of a demand on an
         offer; a start of a dense campaign, 0 or 1; units that a campaign which may pause finds idle.
Rows     demand is served; a day's batch is done; units carry what runs on them; leases last;
         limits of units, money, platforms and providers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from twofold.portfolio.problem import (
    DAYS_PER_WEEK,
    HOUR_S,
    WEEK_H,
    Batch,
    Campaign,
    CampaignOption,
    CapacityOffer,
    Demand,
    PortfolioProblem,
    ServingRate,
    admitted,
    end_of,
    is_hourly,
    is_metered,
    paid_weeks,
    unit_usd_per_h,
)
from twofold.portfolio.programme import Builder, Ints, Programme
from twofold.portfolio.prune import Calendar, is_contested

KindOf = Callable[[CapacityOffer], str]


@dataclass(slots=True)
class Columns:
    """Where each decision stands in the programme; mutable while it is built."""

    held: dict[str, Ints] = field(default_factory=dict)  # offer → by block
    started: dict[str, Ints] = field(default_factory=dict)  # offer → by block; none: held for the whole plan
    hourly: dict[str, Ints] = field(default_factory=dict)  # offer → (blocks, hour groups)
    served: list[tuple[ServingRate, Ints]] = field(default_factory=list)
    starts: list[tuple[Campaign, CampaignOption, int, int]] = field(default_factory=list)  # …, week, column
    paused: list[tuple[Campaign, CampaignOption, Ints, Ints]] = field(default_factory=list)
    rented: list[tuple[Campaign, CampaignOption, int]] = field(default_factory=list)
    shortage: dict[str, Ints] = field(default_factory=dict)
    relaxed: list[Ints] = field(default_factory=list)  # whole units that a first pass may leave fractional


@dataclass(slots=True)
class _Model:
    problem: PortfolioProblem
    calendar: Calendar
    build: Builder
    columns: Columns
    block_weeks: Ints
    first_weeks: Ints
    group_hours: Ints
    capacity: dict[str, Ints]  # offer → rows (blocks, groups)
    alike: Ints  # by block
    first_of: Ints  # by kind of blocks: one of them

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.block_weeks), len(self.group_hours)

    @property
    def period_h(self) -> np.ndarray:
        """Hours that each (block, group) stands for in the plan."""
        hours: np.ndarray = DAYS_PER_WEEK * self.block_weeks[:, None] * self.group_hours[None, :]
        return hours

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of blocks that are served alike, and hour groups."""
        return len(self.first_of), len(self.group_hours)

    @property
    def kind_h(self) -> np.ndarray:
        """Hours that each (kind, group) stands for in the plan."""
        hours = np.zeros(self.kinds)
        np.add.at(hours, self.alike, self.period_h)
        return hours

    def blocks_within(self, first_week: int, end_week: int) -> np.ndarray:
        """Which blocks lie in these weeks."""
        inside: np.ndarray = (self.first_weeks >= first_week) & (self.first_weeks < end_week)
        return inside


def programme_of(problem: PortfolioProblem, calendar: Calendar) -> tuple[Programme, Columns]:
    """The programme, and where to find its decisions."""
    model = _Model(
        problem,
        calendar,
        Builder(),
        Columns(),
        np.array([weeks for _, weeks in calendar.blocks], np.int64),
        np.array([first for first, _ in calendar.blocks], np.int64),
        np.array([len(hours) for hours in calendar.hour_groups], np.int64),
        {},
        np.array(calendar.alike, np.int64),
        np.unique(calendar.alike, return_index=True)[1],
    )
    for offer in problem.offers:
        if not is_metered(offer):
            _add_units(model, offer)
    rates = [rate for rate in admitted(problem) if rate.offer in {offer.name for offer in problem.offers}]
    for demand in problem.demands:
        _add_demand(model, demand, [rate for rate in rates if rate.demand == demand.name])
    for batch in problem.batches:
        _add_batch(model, batch, [rate for rate in rates if rate.demand == batch.name])
    for campaign in problem.campaigns:
        (_add_dense if campaign.dense else _add_pausing)(model, campaign)
    for offer in problem.offers:
        if is_hourly(offer) and offer.unit_limit is not None:
            _limit_hourly(model, offer)
    if problem.platform_limit is not None:
        _limit_kinds(model, problem.platform_limit, lambda offer: offer.accelerator)
    if problem.provider_limit is not None:
        _limit_kinds(model, problem.provider_limit, lambda offer: offer.provider)
    if problem.budget_usd is not None:
        _limit_budget(model, problem.budget_usd)
    return model.build.built(), model.columns


def _offer(model: _Model, name: str) -> CapacityOffer:
    return next(offer for offer in model.problem.offers if offer.name == name)


def _add_units(model: _Model, offer: CapacityOffer) -> None:
    """Columns of an offer's units, and the rows that what runs on them will fill."""
    weeks, build = model.problem.week_count, model.build
    price, limit = unit_usd_per_h(offer), inf if offer.unit_limit is None else float(offer.unit_limit)
    there = model.blocks_within(offer.first_week, end_of(offer, weeks))
    if is_hourly(offer) and not any(rate.offer == offer.name for rate in model.problem.rates):
        return  # it only trains: what runs rent has columns of its own
    rows = build.rows(model.shape, -inf, 0.0)
    model.capacity[offer.name] = rows
    if is_hourly(offer):
        upper = np.where(there, limit, 0.0)[model.first_of, None]
        units = build.add(model.kinds, price * model.kind_h, upper, whole=True)
        build.put(rows, units[model.alike], -1.0)
        model.columns.hourly[offer.name] = units[model.alike]
        model.columns.relaxed.append(units)
        return
    if offer.tenure == "owned" or offer.minimum_weeks >= weeks:
        # One number for the whole plan: a commitment costs as much wherever it begins, so it begins at once.
        least = limit if offer.tenure == "owned" else 0.0
        whole = build.add((), price * WEEK_H * weeks, limit, lower=least, whole=True)
        units = np.broadcast_to(whole, (len(there),))
        build.put(rows[there], units[there, None], -1.0)
    else:
        units = _add_leases(model, offer, np.where(there, limit, 0.0))
        build.put(rows, units[:, None], -1.0)
    model.columns.held[offer.name] = units


def _add_leases(model: _Model, offer: CapacityOffer, upper: np.ndarray) -> Ints:
    """Units by week: those of a week are no fewer than began in the least weeks before."""
    weeks, build, price = model.problem.week_count, model.build, unit_usd_per_h(offer)
    units = build.add((weeks,), price * WEEK_H, upper, whole=True)
    after = np.array([paid_weeks(offer, week, weeks) for week in range(weeks)])
    began = build.add((weeks,), price * WEEK_H * after, upper)
    last = build.rows((weeks,), 0.0, inf)  # units − what began lately ≥ 0
    more = build.rows((weeks,), 0.0, inf)  # began − units + units a week ago ≥ 0
    build.put(last, units, 1.0)
    for earlier in range(offer.minimum_weeks):
        build.put(last[earlier:], began[: weeks - earlier], -1.0)
    build.put(more, began, 1.0)
    build.put(more, units, -1.0)
    build.put(more[1:], units[:-1], 1.0)
    model.columns.started[offer.name] = began
    return units


def _serve(model: _Model, rate: ServingRate, hours: np.ndarray, reserve_ratio: float) -> Ints:
    """Requests per second of one demand on one offer, which take their part of its units."""
    offer, build = _offer(model, rate.offer), model.build
    there = model.blocks_within(offer.first_week, end_of(offer, model.problem.week_count))
    upper = np.where(there[model.first_of, None] & hours[None, :], inf, 0.0)
    requests = model.kind_h * HOUR_S
    columns = build.add(model.kinds, rate.usd_per_request * requests, upper)
    if not is_metered(offer):
        share = reserve_ratio / rate.rate_per_unit_per_s
        build.put(model.capacity[offer.name], columns[model.alike], share)
    model.columns.served.append((rate, columns[model.alike]))
    return columns


def _add_demand(model: _Model, demand: Demand, rates: list[ServingRate]) -> None:
    first_weeks = model.first_weeks[model.first_of]
    wanted = demand.rate_per_s[first_weeks][:, [hours[0] for hours in model.calendar.hour_groups]]
    rows = model.build.rows(model.kinds, wanted, wanted)
    for rate in rates:
        columns = _serve(model, rate, np.ones(model.shape[1], bool), demand.reserve_ratio)
        model.build.put(rows, columns, 1.0)
    price = model.problem.shortage_usd_per_request
    if price is not None:
        short = model.build.add(model.kinds, price * model.kind_h * HOUR_S, wanted)
        model.build.put(rows, short, 1.0)
        model.columns.shortage[demand.name] = short[model.alike]


def _add_batch(model: _Model, batch: Batch, rates: list[ServingRate]) -> None:
    wanted = batch.requests_per_day[model.first_weeks[model.first_of]]
    rows = model.build.rows((model.kinds[0],), wanted, wanted)
    hours = np.array([group[0] in batch.hours for group in model.calendar.hour_groups])
    for rate in rates:
        columns = _serve(model, rate, hours, 1.0)
        model.build.put(rows[:, None], columns, HOUR_S * model.group_hours[None, :])


def _add_dense(model: _Model, campaign: Campaign) -> None:
    """One start of one option. On held units it takes their weeks; by the hour its own hours are billed."""
    build, weeks = model.build, model.problem.week_count
    chosen = build.rows((), 1.0, 1.0)
    for option in campaign.options:
        offer = _offer(model, option.offer)
        price = unit_usd_per_h(offer) * option.unit_h if is_hourly(offer) else 0.0
        first = max(campaign.first_week, offer.first_week)
        last = campaign.last_start(option, end_of(offer, weeks))
        if is_hourly(offer) and (offer.unit_limit is None or not is_contested(model.problem, campaign)):
            last = min(first, last)  # any week costs the same and disturbs nobody: the first
        for week in range(first, last + 1):
            column = build.add((), price + option.extra_usd, 1.0, whole=True)
            build.put(chosen, column, 1.0)
            if not is_hourly(offer):
                active = model.blocks_within(week, week + option.weeks)
                build.put(model.capacity[offer.name][active], column, float(option.units))
            model.columns.starts.append((campaign, option, week, int(column)))


def _add_pausing(model: _Model, campaign: Campaign) -> None:
    """The whole of a campaign out of what held units leave idle, and of hours rented for it."""
    build, weeks = model.build, model.problem.week_count
    done = build.rows((), 1.0, 1.0)
    for option in campaign.options:
        offer = _offer(model, option.offer)
        first = max(campaign.first_week, offer.first_week)
        end = min(int(campaign.end_week), end_of(offer, weeks))
        moved = option.extra_usd / option.unit_h
        if not is_hourly(offer):
            inside = np.flatnonzero(model.blocks_within(first, end))
            hours = model.period_h[inside]
            idle = build.add(hours.shape, moved * hours, float(option.units))
            build.put(done, idle, hours / option.unit_h)
            build.put(model.capacity[offer.name][inside], idle, 1.0)
            model.columns.paused.append((campaign, option, inside, idle))
        elif end > first:
            most = min(option.unit_h, option.units * WEEK_H * (end - first))
            if offer.unit_limit is not None:
                most = min(most, offer.unit_limit * WEEK_H * (end - first))
            rented = build.add((), unit_usd_per_h(offer) + moved, most)
            build.put(done, rented, 1.0 / option.unit_h)
            model.columns.rented.append((campaign, option, int(rented)))


def _limit_hourly(model: _Model, offer: CapacityOffer) -> None:
    """Units by the hour and those of dense campaigns together are no more than can be had."""
    rows = model.build.rows(model.shape, -inf, float(offer.unit_limit or 0))
    if offer.name in model.columns.hourly:
        model.build.put(rows, model.columns.hourly[offer.name], 1.0)
    for _, option, week, column in model.columns.starts:
        if option.offer == offer.name:
            active = model.blocks_within(week, week + option.weeks)
            model.build.put(rows[active], column, float(option.units))


def _limit_kinds(model: _Model, limit: int, kind_of: KindOf) -> None:
    """At most so many different kinds of offers: a kind that is used costs one of them."""
    build, used = model.build, model.columns
    kinds = sorted({kind_of(offer) for offer in model.problem.offers})
    picked = {kind: build.add((), 0.0, 1.0, whole=True) for kind in kinds}
    total = build.rows((), -inf, float(limit))
    for choice in picked.values():
        build.put(total, choice, 1.0)
    for rate, columns in used.served:  # no request is served on a kind that is not chosen
        kind = picked[kind_of(_offer(model, rate.offer))]
        rows = build.rows(model.shape, -inf, 0.0)
        build.put(rows, columns, 1.0)
        build.put(rows, kind, -_most_per_s(model, rate.demand))
    for _, option, _, column in used.starts:
        row = build.rows((), -inf, 0.0)
        build.put(row, column, 1.0)
        build.put(row, picked[kind_of(_offer(model, option.offer))], -1.0)
    for _, option, inside, columns in used.paused:
        row = build.rows((), -inf, 0.0)
        build.put(row, columns, model.period_h[inside] / option.unit_h)
        build.put(row, picked[kind_of(_offer(model, option.offer))], -1.0)
    for _, option, column in used.rented:
        row = build.rows((), -inf, 0.0)
        build.put(row, column, 1.0 / option.unit_h)
        build.put(row, picked[kind_of(_offer(model, option.offer))], -1.0)


def _most_per_s(model: _Model, name: str) -> np.ndarray:
    """The most requests per second of a demand, or of a batch in its shortest hour, by block and group."""
    for demand in model.problem.demands:
        if demand.name == name:
            groups = [hours[0] for hours in model.calendar.hour_groups]
            most: np.ndarray = demand.rate_per_s[model.first_weeks][:, groups]
            return most
    batch = next(each for each in model.problem.batches if each.name == name)
    daily = batch.requests_per_day[model.first_weeks]
    return np.asarray(daily[:, None] / HOUR_S / model.group_hours[None, :])


def _limit_budget(model: _Model, budget_usd: float) -> None:
    """All costs together; shortages have a price but are not paid."""
    cost = model.build.costs_usd()
    for columns in model.columns.shortage.values():
        cost[columns.ravel()] = 0.0
    row = model.build.rows((), -inf, budget_usd)
    used = np.flatnonzero(cost)
    model.build.put(row, used, cost[used])
