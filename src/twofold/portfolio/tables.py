"""Tables of a portfolio: its leases, who answers what, the calendar, bills of materials, rankings."""

import re
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from twofold.answer.context import Context
from twofold.contracts.results import holdings
from twofold.portfolio.capacity import way_s
from twofold.portfolio.demand import MONTHS, month_of
from twofold.portfolio.problem import (
    DAYS_PER_WEEK,
    HOUR_S,
    WEEK_H,
    CapacityOffer,
    Placement,
    is_hourly,
    paid_weeks,
    unit_usd_per_h,
)
from twofold.portfolio.solved import LEAST_UNITS, SolvedPortfolio

RANKED_MAX = 12
LEAST_SHARE = 1e-4  # of a class or a run: less is the solver's rounding
NUMBER = re.compile(r" \d+$")  # which time of a run it is; the name itself may end in a digit


def leases(solved: SolvedPortfolio) -> tuple[holdings.Lease, ...]:
    """Held units by what they do, units by the hour, and the units of each run, the dearest first."""
    found = [
        lease
        for index, offer in enumerate(solved.problem.offers)
        for lease in (
            *_units(solved, index, offer),
            *_rented(solved, index, offer),
            *_metered(solved, index, offer),
        )
    ]
    for placed, offer in _rented_runs(solved):
        option, release = placed.option, _release(solved, placed)
        span = (placed.start_week, option.weeks)
        found.append(
            _lease(offer, "training", placed.campaign, option.units, span, release, option.unit_h, 1.0)
        )
    return tuple(sorted(found, key=lambda lease: (-lease.usd, lease.start_week, lease.offer, lease.what)))


def _rented_runs(solved: SolvedPortfolio) -> Iterator[tuple[Placement, CapacityOffer]]:
    """Dense runs that rent their units by the hour, with the offer; others use held ones."""
    offers = {offer.name: offer for offer in solved.problem.offers if is_hourly(offer)}
    for placed in solved.answer.placements:
        if placed.option.offer in offers:
            yield placed, offers[placed.option.offer]


def _lease(
    offer: CapacityOffer,
    use: str,
    what: str,
    units: int,
    span: tuple[int, int],  # first week, weeks
    release: str,
    unit_h: float,
    used_fraction: float,
    requests_usd: float = 0.0,
) -> holdings.Lease:
    return holdings.Lease(
        offer=offer.name,
        provider=offer.provider,
        accelerator=offer.accelerator,
        accelerators_per_unit=offer.accelerator_count,
        term=offer.term,
        use=use,
        what=what,
        units=units,
        start_week=span[0],
        weeks=span[1],
        release=release,
        unit_h=unit_h,
        used_fraction=min(1.0, used_fraction),
        usd=unit_h * unit_usd_per_h(offer) + requests_usd,
        region=offer.stated_region,
    )


def _units(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[holdings.Lease]:
    """All units of an offer, held or by the hour, are one lease; of your own, without rent, those in use."""
    answer, weeks = solved.answer, solved.problem.week_count
    units, training = answer.hourly_units[index].max(axis=1), np.zeros(weeks)
    if max(units.max(initial=0.0), answer.held_units[index].max(initial=0.0)) < 0.5:
        return
    total_h, owned = float(answer.hourly_units[index].sum()) * DAYS_PER_WEEK, offer.tenure == "owned"
    serving = solved.serving_units(index) + answer.paused_units[index].sum(axis=0)
    if not is_hourly(offer):
        units, training = answer.held_units[index], solved.training_units(index)
        if owned:
            units = np.minimum(units, np.ceil(serving.max(axis=1) + training - LEAST_UNITS))
        if units.max() < 0.5:
            return
        total_h = float(units.sum()) * WEEK_H
    serves, trains = serving.max() > LEAST_UNITS, training.max() > 0
    used_h = float(serving.sum()) * DAYS_PER_WEEK + float(training.sum()) * WEEK_H
    begun = enumerate(answer.started_units[index])
    beyond = sum(paid_weeks(offer, week, weeks) * float(count) for week, count in begun)
    in_use = np.flatnonzero(units > LEAST_UNITS)
    first, end = int(in_use[0]), int(in_use[-1]) + 1
    yield _lease(
        offer,
        "both" if serves and trains else "training" if trains else "serving",
        _work_on(solved, index),
        int(units.max()),
        (first, end - first),
        "" if owned or end >= weeks else solved.day(end),
        total_h + beyond * WEEK_H,
        used_h / total_h,
    )


def _rented(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[holdings.Lease]:
    """Hours of runs that may pause: all times of one run are one lease."""
    hours = {
        campaign: float(solved.answer.rented_unit_h[index, number])
        for number, campaign in enumerate(solved.problem.campaigns)
        if solved.answer.rented_unit_h[index, number] > LEAST_UNITS
    }
    if not hours:
        return
    units = max(
        option.units for campaign in hours for option in campaign.options if option.offer == offer.name
    )
    first = min(campaign.first_week for campaign in hours)
    last = max(int(np.ceil(campaign.end_week)) for campaign in hours)
    names = ", ".join(_without_numbers(campaign.name for campaign in hours))
    span, unit_h = (first, last - first), sum(hours.values())
    yield _lease(offer, "training", names, units, span, "after each run", unit_h, 1.0)


def _metered(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[holdings.Lease]:
    if offer.tenure != "api" or solved.answer.served_per_s[index].max(initial=0.0) <= LEAST_UNITS:
        return
    usd = sum(
        float(solved.answer.served_per_s[index, number].sum()) * DAYS_PER_WEEK * HOUR_S * rate.usd_per_request
        for number, work in enumerate(solved.problem.work_names)
        if (rate := solved.rate(offer, work)) is not None
    )
    span = (0, solved.problem.week_count)
    yield _lease(offer, "serving", _work_on(solved, index), 0, span, "", 0.0, 1.0, usd)


def _release(solved: SolvedPortfolio, placement: Placement) -> str:
    """The day after its last one; where the year has no first day, the number of its last one."""
    days = np.ceil((placement.start_week + placement.option.wall_h / WEEK_H) * DAYS_PER_WEEK)
    return solved.day(days / DAYS_PER_WEEK) if solved.start else f"day {days:.0f}"


def _work_on(solved: SolvedPortfolio, index: int) -> str:
    """Classes and runs that use an offer's units."""
    answer, problem = solved.answer, solved.problem
    names = [
        work
        for number, work in enumerate(problem.work_names)
        if answer.served_per_s[index, number].max() > LEAST_UNITS
    ]
    runs = [
        campaign.name
        for number, campaign in enumerate(problem.campaigns)
        if answer.paused_units[index, number].max() > LEAST_UNITS
    ]
    runs += [
        each.campaign
        for each in answer.placements
        if each.option.offer == problem.offers[index].name and not is_hourly(problem.offers[index])
    ]
    return ", ".join([*names, *_without_numbers(runs)]) or "idle"


def _without_numbers(names: Iterable[str]) -> list[str]:
    """`monthly 1`, `monthly 2` are one run."""
    return list(dict.fromkeys(NUMBER.sub("", name) for name in names))


def served_shares(solved: SolvedPortfolio, context: Context) -> tuple[holdings.ServedShare, ...]:
    """Which offers answer each class, and how late."""
    rows = []
    for number, work in enumerate(solved.problem.work_names):
        by_offer = solved.answer.served_per_s[:, number].sum(axis=(1, 2))
        total = float(by_offer.sum())
        each = next(one for one in solved.case.classes if one.name == work)
        for index in np.argsort(-by_offer, kind="stable"):
            offer = solved.problem.offers[index]
            rate = solved.rate(offer, work)
            if total <= 0 or by_offer[index] / total < LEAST_SHARE or rate is None:
                continue
            usd = rate.usd_per_request + unit_usd_per_h(offer) / HOUR_S / rate.rate_per_unit_per_s
            rows.append(
                holdings.ServedShare(
                    work,
                    offer.name,
                    rate.variant,
                    float(by_offer[index]) / total,
                    rate.p95_s,
                    way_s(each, offer, context),
                    usd * 1e6,
                )
            )
    return tuple(rows)


def calendar(solved: SolvedPortfolio) -> tuple[holdings.MonthDemand, ...]:
    """Accelerators that every month needs, by what was decided; what is missing is marked."""
    problem, answer = solved.problem, solved.answer
    training, serving = np.zeros(problem.week_count), np.zeros((problem.week_count, 24))
    for index, offer in enumerate(problem.offers):
        count = float(offer.accelerator_count)
        training += (solved.training_units(index) + solved.pausing_units(index)) * count
        serving += solved.serving_units(index) * count
    short = _short_accelerators(solved)
    useful = {rate.offer for rate in problem.rates}
    limits = [(o.unit_limit, o.accelerator_count) for o in problem.offers if o.name in useful]
    available = None  # where one of them has no limit
    if all(limit is not None for limit, _ in limits):
        available = sum((limit or 0) * count for limit, count in limits)
    months: dict[str, list[int]] = {}
    for week in range(problem.week_count):
        year = "" if solved.start is None else f" {solved.day(week + 0.5)[:4]}"
        months.setdefault(f"{MONTHS[month_of(week, solved.start)].capitalize()}{year}", []).append(week)
    windows = [  # those of runs that may pause are their own
        *((o.campaign, o.start_week, o.start_week + o.option.wall_h / WEEK_H) for o in answer.placements),
        *((o.name, o.first_week, o.end_week) for o in problem.campaigns if not o.dense),
    ]
    rows = []
    for label, weeks in months.items():
        runs = _without_numbers(
            name for name, start, end in windows if any(start <= week < end for week in weeks)
        )
        lacking = [
            f"{demand.name} short"
            for number, demand in enumerate(problem.demands)
            if answer.shortage_per_s[number][weeks].max(initial=0.0) > LEAST_UNITS
        ]
        trained, served, missing = (
            int(np.ceil(each[weeks].max(initial=0.0) - 1e-6)) for each in (training, serving, short)
        )
        text = "; ".join([*([", ".join(runs)] if runs else []), *lacking])
        rows.append(holdings.MonthDemand(label, trained, served, available, missing, text))
    return tuple(rows)


def _short_accelerators(solved: SolvedPortfolio) -> np.ndarray:
    """(weeks,) accelerators that the unserved requests would take on the offer that does most with them."""
    problem, total = solved.problem, np.zeros(solved.problem.week_count)
    sizes = {offer.name: offer.accelerator_count for offer in problem.offers}
    for number, demand in enumerate(problem.demands):
        speeds = [
            rate.rate_per_unit_per_s / sizes[rate.offer]
            for rate in problem.rates
            if rate.demand == demand.name and sizes[rate.offer]
        ]
        if speeds:
            missing = solved.answer.shortage_per_s[number].max(axis=1)
            total += missing * demand.reserve_ratio / max(speeds)
    return total


def materials(solved: SolvedPortfolio, found: tuple[holdings.Lease, ...]) -> tuple[holdings.MaterialRow, ...]:
    """Two bills from one roadmap: what trains, and what serves; machines in turn stand on both."""
    nodes = {each.offer.name: each.node for each in solved.case.offers}
    rows: dict[tuple[str, str], holdings.MaterialRow] = {}
    for half, lease in product(("training", "serving"), found):
        if lease.accelerators_per_unit == 0 or lease.use not in (half, "both"):
            continue
        node = nodes[lease.offer]
        fabric = f"{node.fabric}, all to all" if half == "training" and lease.units > 1 else "any"
        units, hours = lease.units, lease.unit_h
        if before := rows.get((half, node.name)):
            units = max(units, before.units) if half == "training" else units + before.units
            hours += before.unit_h
        count = units * lease.accelerators_per_unit
        rows[half, node.name] = holdings.MaterialRow(
            half, node.name, lease.accelerator, units, count, hours, fabric
        )
    return tuple(sorted(rows.values(), key=lambda row: (row.half != "training", -row.accelerator_count)))


def ranking(
    solved: SolvedPortfolio, found: tuple[holdings.Lease, ...], context: Context
) -> tuple[holdings.OfferRank, ...]:
    """Offers by USD/h of a TB/s of memory, with what tokens of the first class cost on them."""
    waited = next((each for each in solved.case.classes if not each.load.is_batch), None)
    used = {lease.offer for lease in found}
    rows = []
    for offer in solved.problem.offers:
        if offer.tenure in ("api", "owned"):
            continue
        device = context.catalog.accelerator(offer.accelerator)
        bandwidth = device.memory_bytes_per_s * offer.accelerator_count / 1e12
        per_million = None
        rate = solved.rate(offer, waited.name) if waited else None
        if rate and waited:
            tokens = float(np.max(np.asarray(waited.load.traffic.lengths.output_tokens, float)))
            usd = rate.usd_per_request + unit_usd_per_h(offer) / HOUR_S / rate.rate_per_unit_per_s
            per_million = usd / tokens * 1e6
        rows.append(
            holdings.OfferRank(offer.name, unit_usd_per_h(offer) / bandwidth, per_million, offer.name in used)
        )
    rows.sort(key=lambda row: (row.usd_per_h_per_tb_s, row.offer))
    return tuple(rows[:RANKED_MAX])


def window_costs(solved: SolvedPortfolio) -> tuple[holdings.WindowCost, ...]:
    """Each dense run's machines for its window, against the same held all year."""
    rows = []
    for placed, offer in _rented_runs(solved):
        price, option = unit_usd_per_h(offer), placed.option
        rows.append(
            holdings.WindowCost(
                placed.campaign,
                option.units,
                offer.name,
                solved.day(placed.start_week),
                _release(solved, placed),
                option.unit_h * price,
                option.units * (WEEK_H * solved.problem.week_count) * price,
            )
        )
    return tuple(rows)


def term_splits(solved: SolvedPortfolio, found: tuple[holdings.Lease, ...]) -> tuple[holdings.TermSplit, ...]:
    """Reserved and hourly hours by accelerator, and the use above which a reservation is the cheaper one.

    Formula  break-even = reserved price / hourly price, each the lowest per accelerator-hour on offer
    """
    rows = []
    for name in dict.fromkeys(lease.accelerator for lease in found if lease.accelerators_per_unit):
        listed = [offer for offer in solved.problem.offers if offer.accelerator == name]
        prices = [(offer, unit_usd_per_h(offer) / offer.accelerator_count) for offer in listed]
        reserved = [price for offer, price in prices if offer.minimum_weeks > 0]
        hourly = [price for offer, price in prices if offer.term == "on_demand"]
        own = [lease for lease in found if lease.accelerator == name and lease.term != "owned"]
        by_hour = {offer.name for offer in listed if is_hourly(offer)}
        rows.append(
            holdings.TermSplit(
                name,
                sum(lease.unit_h for lease in own if lease.offer not in by_hour),
                sum(lease.unit_h for lease in own if lease.offer in by_hour),
                min(reserved) / min(hourly) if reserved and hourly and any(hourly) else None,
            )
        )
    return tuple(rows)
