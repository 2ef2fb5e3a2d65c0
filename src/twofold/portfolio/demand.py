"""What a spec asks of a portfolio by week and hour: waiting classes, work of a day, campaigns."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple, get_args

import numpy as np

from twofold.answer.serving_choice import ClassLoad, ServingChoice
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.supply import MonthName
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.quantity import DAY_S
from twofold.portfolio.problem import DAYS_PER_WEEK, Batch, Demand, Floats
from twofold.twin.serving.profiles import quietest_hours, working_day

WEEK_COUNT = 52
MONTHS: tuple[str, ...] = get_args(MonthName)


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """One class as the portfolio sees it, in one region of its users."""

    name: str  # service.class, with @region where users stand in several
    service: str
    load: ClassLoad
    users_region: str  # "" where none is stated
    share_fraction: float


def first_day(spec: Spec) -> date | None:
    """Day of week 0: as the spec says, else the first day of its first run."""
    days = [run.first_day for run in spec.training if run.first_day]
    return spec.supply.start or min(days, default=None)


def class_demands(choice: ServingChoice) -> tuple[ClassDemand, ...]:
    """Every class of a service; one that somebody waits for once per region of its users."""
    entry = choice.entry
    found = []
    for load in choice.loads:
        users = [(each.region, each.share_fraction) for each in entry.users]
        if load.is_batch or not users:
            users = [("", 1.0)]
        for region, share in users:
            where = f"@{region}" if len(users) > 1 else ""
            found.append(ClassDemand(f"{entry.name}.{load.name}{where}", entry.name, load, region, share))
    return tuple(found)


def demand_of(
    each: ClassDemand, entry: Service, spec: Spec, reserve_ratio: float, limit_s: float | None
) -> Demand:
    """Rates of a class by week and hour: its mean, the shape of its day, the season of the month.

    Every day of a week is a working day: what is held must carry those, and weekends are quieter.
    """
    traffic = entry.classes[each.load.name].traffic
    mean = each.load.mean_rate_per_s * each.share_fraction
    peak_ratio = each.load.peak_per_s / max(each.load.mean_rate_per_s, 1e-12) / each.load.season_ratio
    day = np.array(working_day(traffic.profile, peak_ratio))
    return Demand(each.name, mean * seasons(spec)[:, None] * day[None, :], limit_s, reserve_ratio)


def batch_of(each: ClassDemand, quiet: Floats) -> Batch:
    """A day's work within as many hours as the class promises, those in which the others ask least."""
    hours = quietest_hours(quiet.tolist(), each.load.traffic.slo.finish_within_s or DAY_S)
    return Batch(each.name, np.full(WEEK_COUNT, each.load.mean_rate_per_s * DAY_S), hours)


def seasons(spec: Spec) -> Floats:
    """The factor of every week: that of the month in which its middle lies."""
    factors = np.ones(WEEK_COUNT)
    for week in range(WEEK_COUNT):
        for season in spec.supply.seasons:
            if MONTHS[month_of(week, first_day(spec))] in season.months:
                factors[week] *= season.factor_ratio
    return factors


def month_of(week: int, start: date | None) -> int:
    """Month of a week, from 0; a year without a first day begins in January."""
    if start is None:
        return min(11, int((week + 0.5) * 12 / WEEK_COUNT))
    return (start + timedelta(days=DAYS_PER_WEEK * week + 3)).month - 1


class Repeat(NamedTuple):
    """One time of a run."""

    name: str
    first_week: int
    end_week: float  # weeks of the plan after which it is over


def repeats_of(run: TrainingRun, start: date | None) -> tuple[Repeat, ...]:
    """Every time of a run that begins and must end within the plan; `base`, or `tune 1`, `tune 2`, …"""
    begins = max(0, (run.first_day - start).days // DAYS_PER_WEEK) if run.first_day and start else 0
    limit_s = run.time_limit_s
    if run.repeats_every_s is None:
        end = WEEK_COUNT if limit_s is None else min(WEEK_COUNT, begins + limit_s / DAY_S / DAYS_PER_WEEK)
        return (Repeat(run.name, begins, float(end)),)
    every = max(1.0, run.repeats_every_s / DAY_S / DAYS_PER_WEEK)
    found: list[Repeat] = []
    number = 0
    while (first := begins + round(number * every)) + 1 <= WEEK_COUNT:
        # Without a deadline, or with one of days, a repeated run has until the next one begins.
        end = first + max(min(every, WEEK_COUNT), 1.0)
        if limit_s is not None:
            end = min(end, first + max(1.0, limit_s / DAY_S / DAYS_PER_WEEK))
        number += 1
        if end <= WEEK_COUNT:
            found.append(Repeat(f"{run.name} {number}", first, end))
    return tuple(found)
