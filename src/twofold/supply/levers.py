"""What each optimisation is worth: levers with their saving, in order, and the formulas that price them."""

from collections.abc import Iterable
from enum import Enum
from math import sqrt

from twofold.contracts.results import LeverRow


class Pulled(Enum):
    """Whether the plan rests on a lever already."""

    IN_USE = "in use"
    OPEN = "open"


def lever(
    name: str, of: str, pulled: Pulled, saving_usd_per_year: float, base_usd_per_year: float, how: str
) -> LeverRow:
    """One optimisation of a run or service, with what it saves of what the same costs without it."""
    share = saving_usd_per_year / base_usd_per_year if base_usd_per_year else 0.0
    return LeverRow(name, of, pulled.value, saving_usd_per_year, share, how)


def ranked(levers: Iterable[LeverRow]) -> tuple[LeverRow, ...]:
    """The largest saving first; of equals by name."""
    return tuple(sorted(levers, key=lambda each: (-each.saves_usd_per_year, each.of, each.name)))


def checkpoint_overhead_fraction(interval_s: float, write_s: float, between_failures_s: float) -> float:
    """Part of a run that checkpoints and repeated work take.

    Formula  δ/τ + τ/(2M)
    Why      Each interval pays one write; a failure loses half an interval on average.
    Units    seconds: τ between checkpoints, δ of a write, M between failures.
    Source   Young 1974; Daly 2006, first order.
    Limits   τ much shorter than M.
    """
    return write_s / interval_s + interval_s / (2.0 * between_failures_s)


def best_interval_s(write_s: float, between_failures_s: float) -> float:
    """The interval at which that overhead is least: √(2δM).

    >>> best_interval_s(60.0, 7200.0 * 60.0)
    7200.0
    """
    return sqrt(2.0 * write_s * between_failures_s)
