"""The portfolio as a mixed-integer programme: columns are decisions, rows bind them.

Columns  held units per lease and week, whole; units by the hour, whole; requests per second of a demand on an
         offer; a start of a dense campaign, 0 or 1; units that a campaign which may pause finds idle.
Rows     demand is served; a day's batch is done; units carry what runs on them; leases last;
         limits of units, money, platforms and providers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from twofold.portfolio.problem import (
    HOUR_S,
    WEEK_H,
    Batch,
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
    paid_weeks,
    unit_usd_per_h,
)
from twofold.portfolio.programme import Builder, Ints, Mask, Programme
from twofold.portfolio.prune import Calendar, calendar_of, is_contested


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

    @property
    def units(self) -> Ints:
        """Units that are held, each number once."""
        return _flat(self.held.values())

    @property
    def hours(self) -> Ints:
        """Units by the hour, which a first pass may leave in fractions."""
        return _flat(self.hourly.values())

    @property
    def working(self) -> set[str]:
        """Offers whose units do hours of work: a dense run that takes some changes the hours of its weeks."""
        serving = {rate.offer for rate, _ in self.served} | {option.offer for _, option, *_ in self.paused}
        return serving & (set(self.held) | set(self.hourly))


def _flat(parts: Iterable[Ints]) -> Ints:
    return np.unique(np.concatenate([np.zeros(0, np.int64), *map(np.ravel, parts)]))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A problem with its programme, and where to find the programme's decisions."""

    problem: PortfolioProblem
    calendar: Calendar
    programme: Programme
    columns: Columns


@dataclass(frozen=True, slots=True)
class _Model:
    problem: PortfolioProblem
    calendar: Calendar
    offers: dict[str, CapacityOffer]
    build: Builder = field(default_factory=Builder)
    columns: Columns = field(default_factory=Columns)
    capacity: dict[str, Ints] = field(default_factory=dict)  # offer → rows (blocks, groups)
    # By work: the most requests per second, of a batch in its shortest hour, by block and group.
    most_per_s: dict[str, Floats] = field(default_factory=dict)

    def there(self, offer: CapacityOffer) -> Mask:
        """In which blocks an offer is to be had."""
        return self.calendar.blocks_within(offer.first_week, end_of(offer, self.problem.week_count))


def case_of(problem: PortfolioProblem) -> Case:
    """A problem's programme, its equal weeks and hours merged."""
    model = _Model(problem, calendar_of(problem), {offer.name: offer for offer in problem.offers})
    for offer in problem.offers:
        if not is_metered(offer):
            _add_units(model, offer)
    for demand in problem.demands:
        _add_demand(model, demand)
    for batch in problem.batches:
        _add_batch(model, batch)
    for campaign in problem.campaigns:
        (_add_dense if campaign.dense else _add_pausing)(model, campaign)
    for offer in problem.offers:
        if is_hourly(offer) and offer.unit_limit is not None:
            # Units by the hour and those of dense campaigns together are no more than can be had.
            rows = model.build.rows(model.calendar.period_h.shape, -inf, float(offer.unit_limit))
            if offer.name in model.columns.hourly:
                model.build.put(rows, model.columns.hourly[offer.name], 1.0)
            for _, option, week, column in model.columns.starts:
                if option.offer == offer.name:
                    active = model.calendar.blocks_within(week, week + option.weeks)
                    model.build.put(rows[active], column, float(option.units))
    if problem.platform_limit is not None:
        _limit_kinds(model, problem.platform_limit, lambda offer: offer.accelerator)
    if problem.provider_limit is not None:
        _limit_kinds(model, problem.provider_limit, lambda offer: offer.provider)
    return Case(problem, model.calendar, model.build.built(), model.columns)


def _add_units(model: _Model, offer: CapacityOffer) -> None:
    """Columns of an offer's units, and the rows that what runs on them will fill."""
    weeks, build, calendar = model.problem.week_count, model.build, model.calendar
    price, limit = unit_usd_per_h(offer), inf if offer.unit_limit is None else float(offer.unit_limit)
    there = model.there(offer)
    if is_hourly(offer) and not any(rate.offer == offer.name for rate in model.problem.rates):
        return  # it only trains: what runs rent has columns of its own
    rows = build.rows(calendar.period_h.shape, -inf, 0.0)
    model.capacity[offer.name] = rows
    if is_hourly(offer):
        upper = np.where(there, limit, 0.0)[calendar.first_of, None]
        kinds = build.add(calendar.kind_h.shape, price * calendar.kind_h, upper, whole=True)
        units = kinds[calendar.kind_of]
        build.put(rows, units, -1.0)
        model.columns.hourly[offer.name] = units
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


def _add_leases(model: _Model, offer: CapacityOffer, upper: Floats) -> Ints:
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


def _serve(
    model: _Model, work: str, rows: Ints, per_request: Floats | float, hours: Mask, reserve: float
) -> None:
    """Requests per second of some work on every offer that may do it, which take their part of its units."""
    build, calendar = model.build, model.calendar
    for rate in admitted(model.problem):
        if rate.demand != work or rate.offer not in model.offers:
            continue
        offer = model.offers[rate.offer]
        upper = np.where(model.there(offer)[calendar.first_of, None] & hours[None, :], inf, 0.0)
        columns = build.add(upper.shape, rate.usd_per_request * (calendar.kind_h * HOUR_S), upper)
        if not is_metered(offer):
            share = reserve / rate.rate_per_unit_per_s
            build.put(model.capacity[offer.name], columns[calendar.kind_of], share)
        model.columns.served.append((rate, columns[calendar.kind_of]))
        build.put(rows, columns, per_request)


def _add_demand(model: _Model, demand: Demand) -> None:
    build, calendar = model.build, model.calendar
    groups = [hours[0] for hours in calendar.hour_groups]
    wanted = demand.rate_per_s[calendar.first_weeks[calendar.first_of]][:, groups]
    rows = build.rows(wanted.shape, wanted, wanted)
    _serve(model, demand.name, rows, 1.0, np.ones(len(groups), bool), demand.reserve_ratio)
    price = model.problem.shortage_usd_per_request
    if price is not None:
        short = build.add(wanted.shape, price * calendar.kind_h * HOUR_S, wanted)
        build.put(rows, short, 1.0)
        model.columns.shortage[demand.name] = short[calendar.kind_of]
    model.most_per_s[demand.name] = wanted[calendar.kind_of]


def _add_batch(model: _Model, batch: Batch) -> None:
    calendar = model.calendar
    wanted = batch.requests_per_day[calendar.first_weeks[calendar.first_of]]
    rows = model.build.rows(wanted.shape, wanted, wanted)
    allowed = np.array([group[0] in batch.hours for group in calendar.hour_groups])
    group_s = HOUR_S * calendar.group_hours.astype(float)
    _serve(model, batch.name, rows[:, None], group_s[None, :], allowed, 1.0)
    model.most_per_s[batch.name] = wanted[calendar.kind_of, None] / HOUR_S / calendar.group_hours[None, :]


def _add_dense(model: _Model, campaign: Campaign) -> None:
    """One start of one option. On held units it takes their weeks; by the hour its own hours are billed."""
    build, weeks = model.build, model.problem.week_count
    chosen, contested = build.rows((), 1.0, 1.0), is_contested(model.problem, campaign)
    for option in campaign.options:
        offer = model.offers[option.offer]
        price = unit_usd_per_h(offer) * option.unit_h if is_hourly(offer) else 0.0
        first = max(campaign.first_week, offer.first_week)
        last = campaign.last_start(option, end_of(offer, weeks))
        if is_hourly(offer) and (offer.unit_limit is None or not contested):
            last = min(first, last)  # any week costs the same and disturbs nobody: the first
        for week in range(first, last + 1):
            column = build.add((), price + option.extra_usd, 1.0, whole=True)
            build.put(chosen, column, 1.0)
            if not is_hourly(offer):
                active = model.calendar.blocks_within(week, week + option.weeks)
                build.put(model.capacity[offer.name][active], column, float(option.units))
            model.columns.starts.append((campaign, option, week, int(column)))


def _add_pausing(model: _Model, campaign: Campaign) -> None:
    """The whole of a campaign out of what held units leave idle, and of hours rented for it."""
    build, weeks, calendar = model.build, model.problem.week_count, model.calendar
    done = build.rows((), 1.0, 1.0)
    for option in campaign.options:
        offer = model.offers[option.offer]
        first = max(campaign.first_week, offer.first_week)
        end = min(int(campaign.end_week), end_of(offer, weeks))
        moved = option.extra_usd / option.unit_h
        if not is_hourly(offer):
            inside = np.flatnonzero(calendar.blocks_within(first, end))
            hours = calendar.period_h[inside]
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


def _limit_kinds(model: _Model, limit: int, kind_of: Callable[[CapacityOffer], str]) -> None:
    """At most so many different kinds of offers: a kind that is used costs one of them."""
    build, used = model.build, model.columns
    kinds = sorted({kind_of(offer) for offer in model.problem.offers})
    picked = {kind: build.add((), 0.0, 1.0, whole=True) for kind in kinds}
    total = build.rows((), -inf, float(limit))
    for choice in picked.values():
        build.put(total, choice, 1.0)
    for rate, columns in used.served:  # no request is served on a kind that is not chosen
        rows = build.rows(columns.shape, -inf, 0.0)
        build.put(rows, columns, 1.0)
        build.put(rows, picked[kind_of(model.offers[rate.offer])], -model.most_per_s[rate.demand])
    done: list[
        tuple[CampaignOption, Ints | int, Floats | float]
    ] = [  # a part of a run for one of each column
        *((option, column, 1.0) for _, option, _, column in used.starts),
        *(
            (option, columns, model.calendar.period_h[inside] / option.unit_h)
            for _, option, inside, columns in used.paused
        ),
        *((option, column, 1.0 / option.unit_h) for _, option, column in used.rented),
    ]
    for option, column, share in done:
        row = build.rows((), -inf, 0.0)
        build.put(row, column, share)
        build.put(row, picked[kind_of(model.offers[option.offer])], -1.0)
