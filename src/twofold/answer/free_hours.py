"""Hours in which machines that are held anyway are free: when a run that takes what is left of them is done.

A calendar is the number of accelerators that are free in each hour from the plan's first. Whoever comes first
takes hours out of it, and the next finds the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.answer.ranges import Drawn
from twofold.core.quantity import DAY_S

HOUR_S = 3600.0
DAY_HOURS = round(DAY_S / HOUR_S)
Hours = NDArray[np.int64]  # accelerators, by hour
Stocks = Mapping[tuple[str, str], Hours]  # of each kind of machine, by accelerator and node


@dataclass(frozen=True, slots=True)
class Yielding:
    """What it takes to leave machines for a while."""

    write_s: float  # a checkpoint, before they go
    restart_s: float  # from it, when they are back


@dataclass(frozen=True, slots=True)
class Course:
    """A run in the hours that are left to it: when so much of its work is done, straight between points."""

    first_s: float  # from when it may work
    stretches_s: tuple[tuple[float, float], ...]  # from and until when it does
    work_s: tuple[float, ...]  # done by the time of `date_s`
    date_s: tuple[float, ...]  # since `first_s`

    def date_of(self, work_s: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """When so many seconds of work are done, since it may begin; no later than the calendar ends."""
        return np.asarray(np.interp(work_s, self.work_s, self.date_s))

    def used_s(self, work_s: float) -> list[tuple[float, float]]:
        """From and until when it holds its machines for so much work."""
        end_s = self.first_s + float(self.date_of(work_s))
        return [(begin, min(end, end_s)) for begin, end in self.stretches_s if begin < end_s]


def course_of(free: Hours, wanted: int, first_h: int, yielding: Yielding) -> Course | None:
    """A run on `wanted` accelerators from an hour on, in every hour that has so many; None where none does.

    Formula  a stretch of L does L − write − restart: no restart in the first, no write in the last
    Why      It yields by a checkpoint and goes on from it; of a stretch too short for both it takes none.
    Limits   whole hours, known ahead; what failures undo is in the work.
    """
    enough = np.concatenate(([False], free[first_h:] >= wanted, [False]))
    edges = np.flatnonzero(enough[1:] != enough[:-1])
    both_s = yielding.write_s + yielding.restart_s
    blocks = [(float(a) * HOUR_S, float(b) * HOUR_S) for a, b in edges.reshape(-1, 2)]
    blocks = [(begin, end) for begin, end in blocks if end - begin > both_s]
    if not blocks:
        return None
    done, points = 0.0, []
    for at, (begin, end) in enumerate(blocks):
        begin += yielding.restart_s if at else 0.0
        end -= yielding.write_s if at < len(blocks) - 1 else 0.0
        points += [(done, begin), (done + end - begin, end)]
        done += end - begin
    first_s = first_h * HOUR_S
    stretches = tuple((first_s + begin, first_s + end) for begin, end in blocks)
    work_s, date_s = zip(*points, strict=True)
    return Course(first_s, stretches, work_s, date_s)


def courses_of(
    free: Stocks,
    takes: Mapping[tuple[str, str], int],
    begins_h: Sequence[int],
    work_s: float,
    yielding: Yielding,
) -> tuple[tuple[Course, ...], Stocks]:
    """Every time of a run that takes so many of each kind, each from its own hour on; and what is left.

    `work_s` is what each is given room for. No courses where one of them finds no hour.
    """
    found: list[Course] = []
    left = dict(free)
    for first_h in begins_h:
        rooms = np.min([left[kind] // count for kind, count in takes.items()], axis=0)
        course = course_of(rooms, 1, first_h, yielding)
        if course is None:
            return (), free
        for kind, count in takes.items():
            left[kind] = without(left[kind], count, course.used_s(work_s))
        found.append(course)
    return tuple(found), left


def without(free: Hours, wanted: int, used_s: Sequence[tuple[float, float]]) -> Hours:
    """What is left where so many are used, an hour that is begun as a whole."""
    left = free.copy()
    for begin, end in used_s:
        left[int(begin // HOUR_S) : int(np.ceil(end / HOUR_S - 1e-9))] -= wanted
    return left


@dataclass(frozen=True, slots=True)
class Calendar:
    """A run among others on the same machines."""

    courses: tuple[Course, ...]  # every time of it
    text: str  # what it waits for or yields to, and how often

    def dated(self, total: Drawn) -> Drawn:
        """When the time is over that takes longest, from when it may begin, of the seconds of its work."""

        def last(work_s: float | NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(np.max([course.date_of(work_s) for course in self.courses], axis=0))

        return Drawn(float(last(total.middle)), last(total.samples))
