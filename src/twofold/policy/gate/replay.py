"""Does a machine, given a log's events at their times, answer what the log says it answered?"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from twofold.policy import Entry, Machine

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class Difference(Generic[EventT, EffectT]):
    """The first entry that a replay answered otherwise."""

    line: int  # counts from 1
    logged: Entry[EventT, EffectT]
    replayed: tuple[EffectT, ...]


def first_difference(
    machine: Machine[EventT, EffectT], entries: Iterable[Entry[EventT, EffectT]]
) -> Difference[EventT, EffectT] | None:
    """Feed a fresh machine the entries of one run's log, in order; None when it answers as the log says."""
    for number, entry in enumerate(entries, 1):
        replayed = tuple(machine.handle(entry.event, entry.now_s))
        if replayed != entry.effects:
            return Difference(number, entry, replayed)
    return None
