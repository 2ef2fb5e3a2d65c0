"""Tables of a portfolio: its leases, who answers what, the calendar, bills of materials, rankings."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from twofold.answer import Context
from twofold.contracts.results import Lease, holdings
from twofold.portfolio.capacity import way_s
from twofold.portfolio.demand import MONTHS, month_of
from twofold.portfolio.problem import CapacityOffer, Placement, is_hourly, unit_usd_per_h
from twofold.portfolio.solved import DAYS, HOUR_S, LEAST_UNITS, WEEK_H, SolvedPortfolio, weeks_of

RANKED_MAX = 12
LEAST_SHARE = 1e-4  # of a class or a run: less is the solver's rounding
NUMBER = re.compile(r" \d+$")  # which time of a run it is; the name itself may end in a digit


def leases(solved: SolvedPortfolio) -> tuple[Lease, ...]:
    """Held units by what they do, units by the hour, and the units of each run, the dearest first."""
    found = [
        lease
        for index, offer in enumerate(solved.problem.offers)
        for lease in (
            *_held(solved, index, offer),
            *_hourly(solved, index, offer),
            *_rented(solved, index, offer),
            *_metered(solved, index, offer),
        )
    ]
    found += [_placed(solved, each) for each in solved.answer.placements if _offer_of(solved, each)]
    return tuple(sorted(found, key=lambda lease: (-lease.usd, lease.start_week, lease.offer, lease.what)))


def _offer_of(solved: SolvedPortfolio, placement: Placement) -> CapacityOffer | None:
    """The hourly offer that a run rents its units from; None where it uses held ones."""
    offer = next(each for each in solved.problem.offers if each.name == placement.option.offer)
    return offer if is_hourly(offer) else None


def _lease(offer: CapacityOffer, use: str, what: str, **figures: object) -> Lease:
    return Lease(
        offer=offer.name,
        provider=offer.provider,
        accelerator=offer.accelerator,
        accelerators_per_unit=offer.accelerator_count,
        term=offer.term,
        use=use,
        what=what,
        region=offer.stated_region,
        **figures,  # type: ignore[arg-type]
    )


def _held(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[Lease]:
    """All units held of an offer are one lease; of your own, which cost no rent, those that are used."""
    held = solved.answer.held_units[index]
    serving = solved.serving_units(index) + solved.answer.paused_units[index].sum(axis=0)
    training = solved.training_units(index)
    owned = offer.tenure == "owned"
    if owned:
        held = np.minimum(held, np.ceil(serving.max(axis=1) + training - LEAST_UNITS))
    if held.max(initial=0.0) < 0.5:
        return
    use = _use(bool(serving.max() > LEAST_UNITS), bool(training.max() > 0))
    total = float(held.sum()) * WEEK_H
    used = (float(serving.sum()) * DAYS + float(training.sum()) * WEEK_H) / total
    names = _work_on(solved, index)
    started = solved.answer.started_units[index]
    least = min(offer.minimum_weeks, solved.problem.week_count)
    beyond = sum(
        max(0, week + least - solved.problem.week_count) * float(units) for week, units in enumerate(started)
    )
    first, weeks = weeks_of(held)
    ends = first + weeks
    paid_h = total + beyond * WEEK_H
    yield _lease(
        offer,
        use,
        names,
        units=int(held.max()),
        start_week=first,
        weeks=weeks,
        release="" if owned or ends >= solved.problem.week_count else solved.day(ends),
        unit_h=paid_h,
        used_fraction=min(1.0, used),
        usd=paid_h * unit_usd_per_h(offer),
    )


def _hourly(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[Lease]:
    units = solved.answer.hourly_units[index]
    if units.max(initial=0.0) < 0.5:
        return
    hours = float(units.sum()) * DAYS
    serving, paused = solved.serving_units(index), solved.answer.paused_units[index].sum(axis=0)
    work = serving + paused
    first, weeks = weeks_of(units.max(axis=1))
    ends = first + weeks
    yield _lease(
        offer,
        _use(bool(serving.max() > LEAST_UNITS), bool(paused.max() > LEAST_UNITS)),
        _work_on(solved, index),
        units=int(units.max()),
        start_week=first,
        weeks=weeks,
        release="" if ends >= solved.problem.week_count else solved.day(ends),
        unit_h=hours,
        used_fraction=min(1.0, float(work.sum()) * DAYS / hours),
        usd=hours * unit_usd_per_h(offer),
    )


def _rented(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[Lease]:
    """Hours of runs that may pause: all times of one run are one lease."""
    hours = {
        campaign: float(solved.answer.rented_unit_h[index, number])
        for number, campaign in enumerate(solved.problem.campaigns)
        if solved.answer.rented_unit_h[index, number] > LEAST_UNITS
    }
    if not hours:
        return
    options = [option for campaign in hours for option in campaign.options if option.offer == offer.name]
    first = min(campaign.first_week for campaign in hours)
    last = max(int(np.ceil(campaign.end_week)) for campaign in hours)
    yield _lease(
        offer,
        "training",
        ", ".join(_without_numbers(campaign.name for campaign in hours)),
        units=max(option.units for option in options),
        start_week=first,
        weeks=last - first,
        release="after each run",
        unit_h=sum(hours.values()),
        used_fraction=1.0,
        usd=sum(hours.values()) * unit_usd_per_h(offer),
    )


def _metered(solved: SolvedPortfolio, index: int, offer: CapacityOffer) -> Iterator[Lease]:
    if offer.tenure != "api" or solved.answer.served_per_s[index].max(initial=0.0) <= LEAST_UNITS:
        return
    usd = sum(
        float(solved.answer.served_per_s[index, number].sum()) * DAYS * HOUR_S * rate.usd_per_request
        for number, work in enumerate(solved.problem.work_names)
        if (rate := solved.rate(offer, work)) is not None
    )
    yield _lease(
        offer,
        "serving",
        _work_on(solved, index),
        units=0,
        start_week=0,
        weeks=solved.problem.week_count,
        release="",
        unit_h=0.0,
        used_fraction=1.0,
        usd=usd,
    )


def _placed(solved: SolvedPortfolio, placement: Placement) -> Lease:
    offer = _offer_of(solved, placement)
    assert offer
    hours = placement.option.unit_h
    return _lease(
        offer,
        "training",
        placement.campaign,
        units=placement.option.units,
        start_week=placement.start_week,
        weeks=placement.option.weeks,
        release=_release(solved, placement),
        unit_h=hours,
        used_fraction=1.0,
        usd=hours * unit_usd_per_h(offer),
    )


def _release(solved: SolvedPortfolio, placement: Placement) -> str:
    """The day after its last one; where the year has no first day, the number of its last one."""
    days = np.ceil((placement.start_week + placement.option.wall_h / WEEK_H) * DAYS)
    return solved.day(days / DAYS) if solved.start else f"day {days:.0f}"


def _use(serves: bool, trains: bool) -> str:
    return "both" if serves and trains else "training" if trains else "serving"


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


def trained_shares(solved: SolvedPortfolio) -> tuple[holdings.TrainedShare, ...]:
    """Which part of each run every offer does.

    Formula  Σ over the times of the run of what the offer does of it / the times that are in the problem
    """
    times = Counter(NUMBER.sub("", campaign.name) for campaign in solved.problem.campaigns)
    done: dict[tuple[str, str], float] = defaultdict(float)
    for placed in solved.answer.placements:
        done[NUMBER.sub("", placed.campaign), placed.option.offer] += 1.0
    for part in solved.answer.portions:
        done[NUMBER.sub("", part.campaign), part.option.offer] += part.done_fraction
    return tuple(
        holdings.TrainedShare(run, offer, amount / times[run])
        for (run, offer), amount in done.items()
        if amount / times[run] >= LEAST_SHARE
    )


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
    problem = solved.problem
    counts = np.array([offer.accelerator_count for offer in problem.offers], float)
    training, serving = np.zeros(problem.week_count), np.zeros((problem.week_count, 24))
    for index, count in enumerate(counts):
        training += (solved.training_units(index) + solved.pausing_units(index)) * count
        serving += solved.serving_units(index) * count
    short = _short_accelerators(solved)
    available = _available(solved)
    months: dict[str, list[int]] = {}
    for week in range(problem.week_count):
        year = "" if solved.start is None else f" {solved.day(week + 0.5)[:4]}"
        months.setdefault(f"{MONTHS[month_of(week, solved.start)].capitalize()}{year}", []).append(week)
    rows = []
    for label, weeks in months.items():
        runs = _without_numbers([*_running(solved, weeks), *_pausing(solved, weeks)])
        missing = int(np.ceil(short[weeks].max(initial=0.0) - 1e-6))
        texts = [", ".join(runs)] if runs else []
        rows.append(
            holdings.MonthDemand(
                label,
                int(np.ceil(training[weeks].max(initial=0.0) - 1e-6)),
                int(np.ceil(serving[weeks].max(initial=0.0) - 1e-6)),
                available,
                missing,
                "; ".join([*texts, *_short_classes(solved, weeks)]),
            )
        )
    return tuple(rows)


def _running(solved: SolvedPortfolio, weeks: list[int]) -> list[str]:
    return [
        each.campaign
        for each in solved.answer.placements
        if any(each.start_week <= week < each.start_week + each.option.wall_h / WEEK_H for week in weeks)
    ]


def _pausing(solved: SolvedPortfolio, weeks: list[int]) -> list[str]:
    """Runs that may pause, in the weeks of their windows."""
    return [
        campaign.name
        for campaign in solved.problem.campaigns
        if not campaign.dense and any(campaign.first_week <= week < campaign.end_week for week in weeks)
    ]


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


def _short_classes(solved: SolvedPortfolio, weeks: list[int]) -> list[str]:
    return [
        f"{demand.name} short"
        for number, demand in enumerate(solved.problem.demands)
        if solved.answer.shortage_per_s[number][weeks].max(initial=0.0) > 1e-6
    ]


def _available(solved: SolvedPortfolio) -> int | None:
    """Accelerators of all offers that can do some of the work; None where one of them has no limit."""
    useful = {rate.offer for rate in solved.problem.rates}
    offers = [offer for offer in solved.problem.offers if offer.name in useful]
    if any(offer.unit_limit is None for offer in offers):
        return None
    return sum((offer.unit_limit or 0) * offer.accelerator_count for offer in offers)


def materials(solved: SolvedPortfolio, found: tuple[Lease, ...]) -> tuple[holdings.MaterialRow, ...]:
    """Two bills from one roadmap: what trains, and what serves; machines in turn stand on both."""
    nodes = {each.offer.name: each.node for each in solved.case.offers}
    rows: dict[tuple[str, str], holdings.MaterialRow] = {}
    for lease in found:
        if lease.accelerators_per_unit == 0:
            continue
        for half in ("training", "serving"):
            if lease.use not in (half, "both"):
                continue
            node = nodes[lease.offer]
            fabric = f"{node.fabric}, all to all" if half == "training" and lease.units > 1 else "any"
            before = rows.get((half, node.name))
            units = max(lease.units, before.units if before and half == "training" else 0)
            if before and half == "serving":
                units += before.units
            hours = lease.unit_h + (before.unit_h if before else 0.0)
            count = units * lease.accelerators_per_unit
            rows[half, node.name] = holdings.MaterialRow(
                half, node.name, lease.accelerator, units, count, hours, fabric
            )
    return tuple(sorted(rows.values(), key=lambda row: (row.half != "training", -row.accelerator_count)))


def ranking(solved: SolvedPortfolio, context: Context) -> tuple[holdings.OfferRank, ...]:
    """Offers by USD/h of a TB/s of memory, with what tokens of the first class cost on them."""
    waited = next((each for each in solved.case.classes if not each.load.is_batch), None)
    used = {lease.offer for lease in leases(solved)}
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
    offers: Mapping[str, CapacityOffer] = {offer.name: offer for offer in solved.problem.offers}
    rows = []
    for each in solved.answer.placements:
        offer = offers[each.option.offer]
        if not is_hourly(offer):
            continue
        price = unit_usd_per_h(offer)
        year_h = WEEK_H * solved.problem.week_count
        rows.append(
            holdings.WindowCost(
                each.campaign,
                each.option.units,
                offer.name,
                solved.day(each.start_week),
                _release(solved, each),
                each.option.unit_h * price,
                each.option.units * year_h * price,
            )
        )
    return tuple(rows)


def term_splits(solved: SolvedPortfolio, found: tuple[Lease, ...]) -> tuple[holdings.TermSplit, ...]:
    """Reserved and hourly hours by accelerator, and the use above which a reservation is the cheaper one.

    Formula  break-even = reserved price / hourly price, each the lowest per accelerator-hour on offer
    """
    rows = []
    for name in dict.fromkeys(lease.accelerator for lease in found if lease.accelerators_per_unit):
        listed = [offer for offer in solved.problem.offers if offer.accelerator == name]
        reserved = [_per_accelerator(offer) for offer in listed if offer.minimum_weeks > 0]
        hourly = [_per_accelerator(offer) for offer in listed if offer.term == "on_demand"]
        own = [lease for lease in found if lease.accelerator == name and lease.term != "owned"]
        by_hour = {offer.name for offer in listed if is_hourly(offer)}
        rows.append(
            holdings.TermSplit(
                name,
                sum(lease.unit_h for lease in own if lease.offer not in by_hour),
                sum(lease.unit_h for lease in own if lease.offer in by_hour),
                min(reserved) / min(hourly) if reserved and hourly else None,
            )
        )
    return tuple(rows)


def _per_accelerator(offer: CapacityOffer) -> float:
    return unit_usd_per_h(offer) / offer.accelerator_count
