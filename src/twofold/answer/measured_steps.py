"""Steps of a workload that is given by measurement: a curve over accelerator counts, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from statistics import median

from twofold.core.errors import InputError
from twofold.perf.known import spread_factor

# Times the largest count measured, or a part of the smallest: beyond that nothing is said.
MEASURED_REACH = 2.0


class Basis(StrEnum):
    """How a figure at some accelerator count follows from the rows, in words."""

    MEASURED = "median of its rows"
    BETWEEN = "a straight line in log–log between the measured counts beside it"
    BEYOND = "the slope of the last two counts, between no gain and a perfect one"  # within their reach


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure at one accelerator count: its middle and what the rows leave possible."""

    value: float
    low: float
    high: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Median step of each accelerator count, same batch and machine, and the spread of a further run."""

    counts: tuple[int, ...]  # rising
    step_s: tuple[float, ...]
    spread_factor: float  # a further run lies within middle / factor … middle × factor, 80 %
    repeats_count: int  # rows beyond the first of their count; 0: the spread is assumed


def measured_steps(rows: Sequence[tuple[int, float]]) -> MeasuredSteps:
    """From (accelerator count, seconds) rows; several rows of one count give their median.

    Raises InputError where a row has no accelerator or no time.
    """
    if not rows or any(not (count >= 1 and 0 < seconds < float("inf")) for count, seconds in rows):
        raise InputError("measured steps need rows of accelerators ≥ 1 and seconds > 0")
    by_count = {count: [s for each, s in rows if each == count] for count in sorted({c for c, _ in rows})}
    repeats = len(rows) - len(by_count)
    medians = tuple(median(times) for times in by_count.values())
    return MeasuredSteps(tuple(by_count), medians, spread_factor(by_count.values()), repeats)


def step_at(steps: MeasuredSteps, accelerator_count: int) -> Bounded | None:
    """Seconds of a step at a count; None beyond the reach of the rows. See `figure_at` for the curve."""
    found = figure_at(steps.counts, steps.step_s, accelerator_count)
    if found is None:
        return None
    factor = steps.spread_factor
    return Bounded(found.value, found.low / factor, found.high * factor, found.basis)


def figure_at(counts: Sequence[int], values: Sequence[float], accelerator_count: int) -> Bounded | None:
    """A figure that falls as accelerators share the work, at a count that need not be measured.

    Formula  straight in log–log between neighbours; low and high where the neighbours allow
    Why      More accelerators at the same batch make a step (or a shard) no larger, and none does more than
             its share: value(n) falls, n · value(n) rises. So a neighbour v at m allows v … v · m/n.
    Units    those of `values`.
    Limits   at a measured count the row itself; beyond the rows the slope of the last two, held to what the
             nearest row allows; half way (in log) between its ends where one count is measured; beyond
             `MEASURED_REACH` None. Rows that break the law widen the range to hold the middle.
    """
    pairs = dict(zip(counts, values, strict=True))
    if accelerator_count in pairs:
        value = pairs[accelerator_count]
        return Bounded(value, value, value, Basis.MEASURED)
    if not counts[0] / MEASURED_REACH <= accelerator_count <= counts[-1] * MEASURED_REACH:
        return None
    below = max((count for count in counts if count < accelerator_count), default=None)
    above = min((count for count in counts if count > accelerator_count), default=None)
    # What a measured neighbour leaves possible: no gain, or a perfect one.
    near = [each for each in (below, above) if each is not None]
    ends = [sorted((pairs[each], pairs[each] * each / accelerator_count)) for each in near]
    low, high = max(end[0] for end in ends), min(end[1] for end in ends)
    if below is not None and above is not None:
        value = _straight(below, pairs[below], above, pairs[above], accelerator_count)
        return Bounded(value, min(low, value), max(high, value), Basis.BETWEEN)
    middle = sqrt(low * high)
    if len(counts) > 1:
        first, second = (counts[0], counts[1]) if below is None else (counts[-2], counts[-1])
        middle = _straight(first, pairs[first], second, pairs[second], accelerator_count)
    return Bounded(min(max(middle, low), high), low, high, Basis.BEYOND)


def _straight(first: int, first_value: float, second: int, second_value: float, count: int) -> float:
    """The line through two points in log–log."""
    share = log(count / first) / log(second / first)
    return exp((1.0 - share) * log(first_value) + share * log(second_value))
