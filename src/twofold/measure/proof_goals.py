"""Whether what was rehearsed came true: the goals of a frozen figure of the twin, and why one is missed.

A figure is judged against the mean of two live runs. Two runs that differ too much resolve nothing, and a
range that holds everything says nothing: both count as a miss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite

from twofold.contracts.results import proof
from twofold.core.estimate import Estimate

MIDDLE_FRACTION = 0.15  # of a median
TAIL_FRACTION = 0.25  # of a 95th percentile, or …
TAIL_APART_RATIO = 2.0  # … so many times the difference of the two live runs
COUNT_FRACTION, COUNT_LEAST = 0.10, 3.0
ROUTING_S = 1.0
CAPACITY_LATE_S = 5.0  # beyond a cold start
UNRESOLVED_FRACTION = 0.5
WIDE_RATIO = 3.0
BUSY_CORES = 0.25  # kept busy by others, from which they are a cause
DRIFT_CORES = 0.25  # more or fewer than during the calibration


class Goal(Enum):
    """What kind of figure it is, which says what is asked of it."""

    MIDDLE = "middle"  # a median of seconds
    TAIL = "tail"  # a 95th percentile, and seconds that one event took
    COUNT = "count"
    EXACT = "exact"  # whether something happened: 1 or 0
    ENOUGH = "enough"  # requests that finished: as many as were asked for, or nothing is shown by them
    ROUTING = "routing"  # from a death to the last request that was sent there
    CAPACITY = "capacity"  # from a death to the first request that a new process is sent
    NONE = "none"  # shown, not judged


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure before it is judged."""

    scenario: str
    name: str
    unit: str
    goal: Goal
    planned: Estimate | None
    twin: Estimate | None
    live: tuple[float | None, ...]
    least: float = 0.0  # of a figure that is to be ENOUGH


def judged(figure: Figure, cold_start_s: float | None) -> proof.ProofRow:
    """The row of a figure. `cold_start_s`: of a replica, as calibrated; capacity is to be back soon after."""
    apart = apart_of(figure.live)
    inside: bool | None
    if figure.goal is Goal.NONE:
        inside, why = None, ""
    else:
        why = _why_outside(figure, apart, cold_start_s)
        inside = not why
    return proof.ProofRow(
        figure.scenario,
        figure.name,
        figure.unit,
        figure.planned,
        figure.twin,
        figure.live,
        apart,
        inside,
        why,
    )


def apart_of(live: Sequence[float | None]) -> float | None:
    """The difference of two runs over their mean; None without two, 0 of two that are nothing.

    >>> apart_of((9.0, 11.0)), apart_of((0.0, 0.0)), apart_of((1.0, None))
    (0.2, 0.0, None)
    """
    known = [each for each in live if each is not None]
    if len(known) < 2:
        return None
    mean = sum(known) / len(known)
    return (max(known) - min(known)) / mean if mean else 0.0


def _why_outside(figure: Figure, apart: float | None, cold_start_s: float | None) -> str:
    """In words, or "" where the goal is kept."""
    known = [each for each in figure.live if each is not None and isfinite(each)]
    if not known or len(known) < len(figure.live):
        return "not measured in every live run"
    if figure.goal is Goal.ENOUGH:
        return "" if min(known) >= figure.least else f"{min(known):.0f}; {figure.least:.0f} are asked"
    if figure.goal is Goal.ROUTING:
        return "" if max(known) <= ROUTING_S else f"{max(known):.1f} s; at most {ROUTING_S:g} s are asked"
    if figure.goal is Goal.CAPACITY:
        if cold_start_s is None:
            return "no cold start was measured"
        most_s = cold_start_s + CAPACITY_LATE_S
        return "" if max(known) <= most_s else f"{max(known):.1f} s; a cold start and 5 s are {most_s:.1f} s"
    if figure.twin is None:
        return "the twin has no such figure"
    if figure.goal is Goal.EXACT:
        same = all(each == figure.twin.value for each in known)
        return "" if same else f"the twin says {figure.twin.value:g}"
    difference, mean = max(known) - min(known), sum(known) / len(known)
    is_count = figure.goal is Goal.COUNT
    if apart is not None and apart > UNRESOLVED_FRACTION and not (is_count and difference <= COUNT_LEAST):
        return f"unresolved: the two live runs differ by {apart:.0%}"
    if _is_wide(figure.twin, is_count=is_count):
        return f"the twin's range is wider than {WIDE_RATIO:g}×"
    off = abs(figure.twin.value - mean)
    allowed = _allowed(figure.goal, mean, difference)
    if off <= allowed:
        return ""
    by = f"{figure.twin.value - mean:+.0f}" if is_count else f"{(figure.twin.value - mean) / mean:+.0%}"
    return f"the twin says {by}"


def _allowed(goal: Goal, mean: float, difference: float) -> float:
    if goal is Goal.COUNT:
        return max(COUNT_FRACTION * mean, COUNT_LEAST)
    if goal is Goal.MIDDLE:
        return MIDDLE_FRACTION * mean
    return max(TAIL_FRACTION * mean, TAIL_APART_RATIO * difference)


def _is_wide(range_of: Estimate, *, is_count: bool) -> bool:
    if is_count and range_of.high - range_of.low <= 2 * COUNT_LEAST:
        return False
    return range_of.high > WIDE_RATIO * range_of.low


def findings_of(
    rows: Sequence[proof.ProofRow],
    uses: Sequence[tuple[str, proof.MachineUse]],
    calibration: proof.MachineUse,
) -> tuple[proof.ProofFinding, ...]:
    """A finding for every row outside, with its likely cause. `uses`: the machine by scenario, run by run."""
    found = []
    for row in rows:
        if row.inside is False:
            of_it = [use for scenario, use in uses if scenario == row.scenario]
            found.append(
                proof.ProofFinding(
                    row.scenario, f"{row.name}: {row.why}", likely_cause(row, of_it, calibration)
                )
            )
    return tuple(found)


def likely_cause(row: proof.ProofRow, uses: Sequence[proof.MachineUse], calibration: proof.MachineUse) -> str:
    """Why a figure is outside, as far as anybody can tell: who else used the machine comes first."""
    most = max((use.others_cores for use in uses), default=0.0)
    least = min((use.others_cores for use in uses), default=0.0)
    if most - calibration.others_cores > DRIFT_CORES:
        return (
            f"other programs kept {most:.1f} cores busy during a run, {calibration.others_cores:.1f} while it"
            " was calibrated"
        )
    if calibration.others_cores - least > DRIFT_CORES:
        return (
            f"other programs kept {calibration.others_cores:.1f} cores busy while it was calibrated,"
            f" {least:.1f} during a run"
        )
    if max(most, calibration.others_cores) > BUSY_CORES:
        return f"other programs kept {max(most, calibration.others_cores):.1f} cores busy: figures scatter"
    if row.why.startswith("unresolved"):
        return "the live runs do not repeat, with nobody else at work: too few requests, or a knife's edge"
    if row.live and None not in row.live and row.twin is not None:
        return "the machine was ours alone: the twin is wrong here"
    return "it did not happen as it was to"
