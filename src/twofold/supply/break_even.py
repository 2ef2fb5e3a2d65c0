"""Own against hosted, and a run against what it serves in its life: volumes, months, days of crossing."""

from collections.abc import Sequence
from dataclasses import dataclass

from twofold.contracts.results import LifetimeStep


@dataclass(frozen=True, slots=True)
class OwnCost:
    """A fleet of one's own: it grows with its volume, but no fleet is smaller than the least.

    `once_usd` is spent before the first token (a training run) and spread over `months`.
    """

    least_usd_per_month: float
    usd_per_mtok: float
    once_usd: float = 0.0
    months: float = 36.0

    @property
    def once_usd_per_month(self) -> float:
        return self.once_usd / self.months

    def running_usd_per_month(self, mtok_per_month: float) -> float:
        """What the fleet costs at a volume, without what was spent once."""
        return max(self.least_usd_per_month, self.usd_per_mtok * mtok_per_month)


def own_usd_per_month(own: OwnCost, mtok_per_month: float) -> float:
    """The fleet at a volume, and its month of what was spent once.

    Formula  max(least, c·V) + once / months
    Units    V in 1e6 tokens a month; USD a month.
    """
    return own.running_usd_per_month(mtok_per_month) + own.once_usd_per_month


def break_even_mtok_per_month(own: OwnCost, api_usd_per_mtok: float) -> float | None:
    """The volume from which owning costs no more than the API; None where the API stays cheaper.

    Formula  p·V = max(least, c·V) + f: V = (least + f)/p while c·V ≤ least, else V = f/(p − c)
    Why      Owning is a floor and then a slope, an API a slope alone: they cross once, if its slope is lower.
    Units    1e6 tokens a month.
    Limits   an own marginal cost at or above the API's price never crosses once the floor is left.

    >>> break_even_mtok_per_month(OwnCost(1000.0, 0.5), 2.0)
    500.0
    """
    if api_usd_per_mtok <= 0:
        return None
    on_floor = (own.least_usd_per_month + own.once_usd_per_month) / api_usd_per_mtok
    if own.usd_per_mtok * on_floor <= own.least_usd_per_month:
        return on_floor
    if api_usd_per_mtok <= own.usd_per_mtok:
        return None
    return own.once_usd_per_month / (api_usd_per_mtok - own.usd_per_mtok)


def break_even_months(own: OwnCost, api_usd_per_mtok: float, mtok_per_month: float) -> float | None:
    """Months of serving after which what was spent once has come back; None: it never does.

    Formula  once / (p·V − max(least, c·V))
    Units    months.
    Limits   nothing spent once and cheaper to run: 0.

    >>> break_even_months(OwnCost(1000.0, 0.5, once_usd=6000.0), 2.0, 1000.0)
    6.0
    """
    saved = api_usd_per_mtok * mtok_per_month - own.running_usd_per_month(mtok_per_month)
    return own.once_usd / saved if saved > 0 else None


def crossing_days(
    run_usd: float, requests_per_day: float, usd_per_request: float, least_usd_per_day: float = 0.0
) -> float | None:
    """Days of serving that cost as much as the run did; None where serving costs nothing.

    Formula  run / max(least, c·r)
    Units    USD, requests a day, days.

    >>> crossing_days(1000.0, 100.0, 0.1)
    100.0
    """
    daily = max(least_usd_per_day, usd_per_request * requests_per_day)
    return run_usd / daily if daily > 0 else None


def lifetime_curve(
    run_usd: float, usd_per_request: float, rates_per_day: Sequence[float], least_usd_per_day: float = 0.0
) -> tuple[LifetimeStep, ...]:
    """Spend on serving over requests a day, beside a run that was paid once (R-132)."""
    return tuple(
        LifetimeStep(
            rate,
            365.0 * max(least_usd_per_day, usd_per_request * rate),
            crossing_days(run_usd, rate, usd_per_request, least_usd_per_day),
        )
        for rate in rates_per_day
    )
