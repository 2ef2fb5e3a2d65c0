"""Machines of one's own that several parts want: who holds them in which hours, and when each run is done.

Services hold what each hour of their day asks for. Runs take what is left, by priority and then by date: side
by side where they fit, in the hours that others leave, or one after the other. What does not fit is rented.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from twofold.answer.context import Context
from twofold.answer.free_hours import (
    DAY_HOURS,
    HOUR_S,
    Calendar,
    Course,
    Hours,
    Stocks,
    Yielding,
    courses_of,
)
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.measured_training import run_total, sure_run
from twofold.answer.offers import Offer, own_offers
from twofold.answer.ranges import Drawn
from twofold.answer.serving_choice import ServingChoice, busy_hours
from twofold.answer.serving_pools import sure_serving, with_outages_priced
from twofold.answer.training_choice import TrainingChoice, trial_of_size
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_seconds
from twofold.core.errors import InfeasibleError
from twofold.core.quantity import DAY_S, YEAR_S

LONGEST_H = 50 * 365 * DAY_HOURS  # of a calendar
MORE_NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # tried before one is said
Run = TrainingChoice | MeasuredChoice
Kind = tuple[str, str]  # accelerator and node


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has machines before a run does."""

    name: str
    kinds: tuple[Kind, ...]  # of machine
    is_service: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """A run on one size of your own machines, among whoever has them before it."""

    choice: Run
    left: Stocks  # beside it
    ends: Drawn
    holds_fraction: float  # that it ends in time


@dataclass(frozen=True, slots=True)
class Shared:
    """Runs and services as they share what you own, and what to know of those that it does not carry."""

    runs: Mapping[str, Run]
    services: Mapping[str, ServingChoice]
    notes: tuple[str, ...] = ()


def shared(context: Context) -> Shared:
    """Every run and service of a spec as surely as it asks, on your own machines beside all others on them.

    Raises InfeasibleError where one fits neither there nor on what is for rent.
    """
    runs: dict[str, Run] = {}
    services: dict[str, ServingChoice] = {}
    for entry in context.spec.training:
        with InfeasibleError.of(entry.name):
            runs[entry.name] = sure_run(entry, context)
    for service in context.spec.services:
        if not service.model.measured:
            with InfeasibleError.of(service.name):
                services[service.name] = with_outages_priced(sure_serving(service, context), context)
    return _beside(runs, services, context)


def _beside(runs: dict[str, Run], services: dict[str, ServingChoice], context: Context) -> Shared:
    """All of them where those that are alone on your own machines would hold more of these than there are."""
    held = _held(context)
    wanted = [
        (run.chosen.offer, run.chosen.cluster.accelerator_count * _at_once(run, context))
        for run in runs.values()
    ]
    wanted += [(each.offer, int(_busy(each).max())) for each in services.values()]
    total = dict.fromkeys(held, 0)
    for offer, count in wanted:
        for kind, taken in _takes(offer, count, held).items():
            total[kind] += taken
    if all(total[kind] <= held[kind] for kind in held):  # all at once, from their first hours
        return Shared(runs, services)
    services, day, notes = _services_beside(services, held, context)
    free: Stocks = {kind: np.tile(hours, _days(runs, context)) for kind, hours in day.items()}
    found = dict(runs)
    holders = [
        Holder(name, tuple(_takes(each.offer, 1, held)), True)
        for name, each in services.items()
        if each.offer.owned
    ]
    for name in sorted(runs, key=lambda each: _order(runs[each].entry, context)):
        if not runs[name].chosen.offer.owned:
            continue
        sizes = list(_sizes(runs[name], free, holders, context))
        if not sizes and runs[name].entry.time_limit_s is None:  # as if alone it was tried on many at once
            sizes = list(_sizes(_on_fewer(runs[name], context), free, holders, context))
            sizes = sorted(sizes, key=lambda each: each.ends.middle)[:1]
        placed = _best(runs[name].entry, sizes, context)
        if placed is None:
            found[name], note = _elsewhere(runs[name], free, sizes, holders, context)
            notes.append(note)
            continue
        dates = {each.choice.chosen.size: each.ends.middle for each in sizes}
        found[name], free = replace(placed.choice, shared_s=dates), placed.left
        chosen = placed.choice.chosen
        takes = _takes(chosen.offer, chosen.cluster.accelerator_count, held)
        holders.append(Holder(name, tuple(takes), False))
    return Shared(found, services, tuple(notes))


def _at_once(run: Run, context: Context) -> int:
    """How often a run that repeats sooner than it may be over is under way at once."""
    every_s = run.entry.repeats_every_s
    return 1 if not every_s else max(1, ceil(float(run_total(run, context).samples.max()) / every_s))


def _on_fewer(run: Run, context: Context) -> Run:
    """A run with fewer of the same machines tried too, where its model is known."""
    if not isinstance(run, TrainingChoice):
        return run
    most = run.chosen.node_count
    counts = [2**power for power in range(most.bit_length()) if 2**power < most]
    fewer = [trial_of_size(run.entry, run.job, run.chosen.offer, count, context) for count in counts]
    return replace(run, others=(*run.others, *fewer))


def _held(context: Context) -> dict[Kind, int]:
    """Accelerators that you have, by kind of machine."""
    held: dict[Kind, int] = {}
    for offer in own_offers(context.catalog, context.spec.supply):
        kind = offer.accelerator.name, offer.node.name
        held[kind] = held.get(kind, 0) + offer.held
    return held


def _takes(offer: Offer, count: int, held: Mapping[Kind, int]) -> dict[Kind, int]:
    """What so many accelerators of an offer are of your stocks; of a mixed pool all of every kind."""
    if not offer.owned:
        return {}
    if offer.note:
        return dict(held)
    kind = offer.accelerator.name, offer.node.name
    parts = [each for each in held if each[0] == offer.accelerator.name]  # a part of a node is of that stock
    return {kind if kind in held else parts[0]: count}


def _busy(choice: ServingChoice) -> Hours:
    """Accelerators that a service holds in each hour of a day, in whole nodes."""
    size = choice.offer.node.accelerator_count
    hours = busy_hours(choice.fleet, choice.loads, choice.entry)
    return np.asarray(np.ceil(hours / size - 1e-9) * size, np.int64)


def _services_beside(
    services: Mapping[str, ServingChoice], held: Mapping[Kind, int], context: Context
) -> tuple[dict[str, ServingChoice], dict[Kind, Hours], list[str]]:
    """Services in their order, each on what those before leave all day; and what all leave by hour."""
    day = {kind: np.full(DAY_HOURS, count, np.int64) for kind, count in held.items()}
    found: dict[str, ServingChoice] = {}
    notes: list[str] = []

    def left(choice: ServingChoice) -> dict[Kind, Hours]:
        return {kind: day[kind] - _busy(choice) for kind in _takes(choice.offer, 1, held)}

    for name, choice in services.items():
        if any(hours.min() < 0 for hours in left(choice).values()):
            before = [each for each, other in found.items() if other.offer.owned]
            least = {kind: int(hours.min()) for kind, hours in day.items()}
            with InfeasibleError.of(name):
                left_over = _with_own(least, context)
                choice = with_outages_priced(sure_serving(choice.entry, left_over), left_over)
            if not choice.offer.owned:
                notes.append(
                    f"{name}: {_and(before)} holds your own machines, so it rents: own more, or ask less"
                )
        day |= left(choice)
        found[name] = choice
    return found, day, notes


def _with_own(left: Mapping[Kind, int], context: Context) -> Context:
    """The same with no more machines of one's own than are left of each kind."""
    supply, rest, kept = context.spec.supply, dict(left), []
    for owned, offer in zip(supply.own, own_offers(context.catalog, supply), strict=True):
        kind = offer.accelerator.name, offer.node.name
        nodes = min(offer.node_count_max or 0, rest[kind] // offer.node.accelerator_count)
        count = nodes if owned.node else nodes * offer.node.accelerator_count
        rest[kind] -= nodes * offer.node.accelerator_count
        kept += [owned.model_copy(update={"count": count})] if nodes else []
    fewer = supply.model_copy(update={"own": tuple(kept)})
    return replace(context, spec=context.spec.model_copy(update={"supply": fewer}))


def _days(runs: Mapping[str, Run], context: Context) -> int:
    """Days of a calendar that every run ends in which fits at all."""
    own = [run for run in runs.values() if run.chosen.offer.owned]
    work_h = sum(
        float(run_total(run, context).samples.max()) / HOUR_S * run.entry.runs_per_year for run in own
    )
    limits_h = [2.0 * (run.entry.time_limit_s or 0.0) / HOUR_S for run in own]
    first_h = max((hour for run in own for hour in _begins_h(run.entry, context)), default=0)
    most = min(LONGEST_H, YEAR_S / HOUR_S + first_h + max(limits_h, default=0.0) + DAY_HOURS * work_h)
    return int(np.ceil(most / DAY_HOURS))


def _order(entry: TrainingRun, context: Context) -> tuple[int, float]:
    """Higher priorities first, then earlier dates; what has none comes last."""
    ends_h = _begins_h(entry, context)[0] + (entry.time_limit_s or inf) / HOUR_S
    return -entry.priority, ends_h


def _begins_h(entry: TrainingRun, context: Context) -> list[int]:
    """The first hour of every time of a run in the plan's year: at once where nothing says when."""
    days = [run.first_day for run in context.spec.training if run.first_day]
    zero = context.spec.supply.start or min(days, default=None)
    first = max(0, (entry.first_day - zero).days * DAY_HOURS) if entry.first_day and zero else 0
    if entry.repeats_every_s is None:
        return [first]
    every_h = max(1, round(entry.repeats_every_s / HOUR_S))
    return list(range(first, round(YEAR_S / HOUR_S), every_h)) or [first]


def _best(entry: TrainingRun, sizes: Iterable[Placed], context: Context) -> Placed | None:
    """The size that ends in time with the spec's confidence, else most surely, in the fewest hours.

    Where a day has a value that and the date decide, as they do alone. None where no size ends in time.
    """
    asked, limit_s = context.spec.margin_fraction or 0.0, entry.time_limit_s or inf
    value = (entry.time_value_usd_per_d or 0.0) / DAY_S
    placed = [each for each in sizes if each.ends.middle <= limit_s]

    def preference(each: Placed) -> tuple[float, float, float]:
        sure = min(each.holds_fraction, asked)
        run = each.choice.chosen.run
        return -sure, value * each.ends.middle, run.total_accelerator_h if run else inf

    return min(placed, key=preference, default=None)


def _sizes(choice: Run, free: Stocks, holders: Sequence[Holder], context: Context) -> Iterator[Placed]:
    """A run on each size of your own machines that was tried, in the hours that are left to it."""
    asked, limit_s = context.spec.margin_fraction, choice.entry.time_limit_s or inf
    held = _held(context)
    for own in choice.own_sizes():
        trial, total = own.chosen, run_total(own, context)
        assert trial.run
        # Who comes later is given what is left when this is over as surely as asked.
        room_s = float(np.quantile(total.samples, asked, method="inverted_cdf")) if asked else total.middle
        yielding = Yielding(trial.run.checkpoint_write_s, trial.run.restart_s)
        takes = _takes(trial.offer, trial.cluster.accelerator_count, held)
        begins = _begins_h(choice.entry, context)
        courses, left = courses_of(free, takes, begins, max(room_s, total.middle), yielding)
        if not courses or any(course.work_s[-1] < total.samples.max() for course in courses):
            continue
        beside = [each for each in holders if not takes.keys().isdisjoint(each.kinds)]
        calendar = Calendar(courses, _said(courses, total.middle, beside))
        ends = calendar.dated(total)
        if np.any(ends.samples > total.samples * (1.0 + 1e-9)):
            own = replace(own, calendar=calendar)
        elif any(np.min(free[kind]) < count for kind, count in takes.items()):
            # Nothing delays it, and yet not all that is planned fits there at the busiest hour.
            others = _and(each.name for each in beside)
            own = replace(
                own,
                calendar=replace(
                    calendar, text=f"in hours that {others} leave{'' if len(beside) > 1 else 's'} free"
                ),
            )
        yield Placed(own, left, ends, ends.probability_within(limit_s))


def _said(courses: Sequence[Course], work_s: float, holders: Sequence[Holder]) -> str:
    """`in serve's valleys, 6.2 h a day`, `waits 3.2 d for pre`: of the time that takes longest."""
    course = max(courses, key=lambda each: float(each.date_of(work_s)))
    used = course.used_s(work_s)
    runs = [each.name for each in holders if not each.is_service]
    texts, waits_s = [], used[0][0] - course.first_s
    if waits_s >= HOUR_S:
        texts.append(f"waits {format_seconds(waits_s)} for {_and(runs or [each.name for each in holders])}")
    if len(used) > 1:
        spent_s, whole_s = sum(end - begin for begin, end in used), used[-1][1] - used[0][0]
        times = len(used) - 1
        services = [each.name for each in holders if each.is_service]
        if services and times >= 0.5 * (whole_s // DAY_S):
            texts.append(f"in {_and(services)}'s valleys, {DAY_HOURS * spent_s / whole_s:.1f} h a day")
        else:
            texts.append(f"yields to {_and(runs)} {'once' if times == 1 else f'{times} times'}")
    return ", ".join(texts)


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)


def _elsewhere(
    choice: Run, free: Stocks, sizes: Sequence[Placed], holders: Sequence[Holder], context: Context
) -> tuple[Run, str]:
    """A run that your own machines do not end in time beside others, on what is for rent; and why."""
    name, beside = choice.entry.name, _and(each.name for each in holders)
    fits = list(_would_fit(choice, free, sizes, holders, context))
    try:
        rented = sure_run(choice.entry, _with_own(dict.fromkeys(free, 0), context))
    except InfeasibleError as error:
        lines = (
            ("binds", f"what {beside} leave{'s' if len(holders) == 1 else ''}"),
            *(("tried", f"{each.choice.chosen.text}: {format_seconds(each.ends.middle)}") for each in sizes),
            ("", f"rented: {error.message}"),
            ("would fit", " · ".join(fits) or "fewer tokens"),
        )
        message = f"your own machines do not end `{name}` in time beside {beside}"
        with InfeasibleError.of(name):
            raise InfeasibleError(message, lines=lines) from error
    late = "ends too late" if sizes else "finds no hours"
    would = " or ".join(fits) or "more"
    among = f" beside {beside}" if beside else ""
    return rented, f"{name} {late} on your own machines{among}, so it rents: {would} would fit"


def _would_fit(
    choice: Run, free: Stocks, sizes: Iterable[Placed], holders: Sequence[Holder], context: Context
) -> Iterator[str]:
    """More nodes, or a later date, with which a run would end in time as surely as asked."""
    size, asked = choice.chosen.offer.node.accelerator_count, context.spec.margin_fraction or 0.5
    alone = run_total(choice, context).probability_within(choice.entry.time_limit_s or inf)
    for count in MORE_NODES:
        more = {kind: hours + count * size for kind, hours in free.items()}
        best = _best(choice.entry, _sizes(choice, more, holders, context), context)
        if best and best.holds_fraction >= min(asked, alone):
            yield f"{count} more node{'s' if count > 1 else ''}"
            break
    dates_s = [float(np.quantile(each.ends.samples, asked, method="inverted_cdf")) for each in sizes]
    if dates_s:
        yield f"a deadline of {format_seconds(min(dates_s))}"
