"""Does a machine, given a log's events at their times, answer what the log says it answered?"""

from collections.abc import Iterable
from dataclasses import dataclass

from twofold.policy.events import Effect, Event, entry_from_line
from twofold.policy.machine import Machine


@dataclass(frozen=True, slots=True)
class Difference:
    """The first entry that a replay answered otherwise."""

    line: int  # counts from 1
    event: Event
    logged: tuple[Effect, ...]
    replayed: tuple[Effect, ...]


def replay(machine: Machine, lines: Iterable[str]) -> Difference | None:
    """Feed a fresh machine the entries of one run, in order; None when all answers are equal.

    Raises ShapeError at a line that is no entry.
    """
    for number, line in enumerate(lines, 1):
        entry = entry_from_line(line)
        replayed = tuple(machine.handle(entry.event, entry.now_s))
        if replayed != entry.effects:
            return Difference(number, entry.event, entry.effects, replayed)
    return None
