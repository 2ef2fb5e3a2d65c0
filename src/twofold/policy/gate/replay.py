"""Does a machine, given a log's events at their times, answer what the log says it answered?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from twofold.policy import Entry, Machine
from twofold.policy.gate import events

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class Difference(Generic[EventT, EffectT]):
    """The first entry that a replay answered otherwise."""

    line: int  # counts from 1
    event: EventT
    logged: tuple[EffectT, ...]
    replayed: tuple[EffectT, ...]


def replay(
    machine: Machine[events.Event, events.Effect], lines: Iterable[str]
) -> Difference[events.Event, events.Effect] | None:
    """Feed a fresh gate the entries of one run, in order; None when all answers are equal.

    Raises ShapeError at a line that is no entry.
    """
    return first_difference(machine, map(events.entry_from_line, lines))


def first_difference(
    machine: Machine[EventT, EffectT], entries: Iterable[Entry[EventT, EffectT]]
) -> Difference[EventT, EffectT] | None:
    """As `replay`, for the entries of any machine."""
    for number, entry in enumerate(entries, 1):
        replayed = tuple(machine.handle(entry.event, entry.now_s))
        if replayed != entry.effects:
            return Difference(number, entry.event, entry.effects, replayed)
    return None
