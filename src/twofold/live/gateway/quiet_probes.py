"""Probes that change nothing, many to a line of the log: an idle gateway need not fill a disk with them.

What the line says is every event and effect to the microsecond, so that a replay has them all. A turn of
probes is `[µs since the entry before, …]`, then for each answer the place of its replica in `of` and again
the microseconds since the entry before. Whatever does not fit this form is a line of its own.
"""

from collections.abc import Iterator
from typing import Any

from twofold.live.line_file import note_line
from twofold.policy.gate import events
from twofold.policy.machine import Entry, Woke

GateEntry = Entry[events.Event, events.Effect]
TURNS_MAX = 240  # of one line: a minute of a gate that probes four times a second


class QuietProbes:
    """Mutable: the turns that are not written yet."""

    def __init__(self) -> None:
        self._of: tuple[str, ...] = ()
        self._since_us = self._last_us = self._number = 0
        self.turns: list[list[int]] = []

    def lines(self, entry: GateEntry) -> Iterator[str]:
        """What is to be written now that this happened; nothing where it is kept for later."""
        at_us = round(entry.now_s * 1e6)
        exact = at_us / 1e6 == entry.now_s
        place = self._place(entry) if exact and self.turns else None
        if place is not None:
            self.turns[-1] += place, at_us - self._last_us
            self._last_us = at_us
        elif exact and (turn := _turn_of(entry)):
            number, of = turn
            due = self._number + len(self.turns)
            if of != self._of or number != due or len(self.turns) >= TURNS_MAX:
                yield from self.rest()
            if not self.turns:
                self._of, self._number, self._since_us, self._last_us = of, number, at_us, at_us
            self.turns.append([at_us - self._last_us])
            self._last_us = at_us
        else:
            yield from self.rest()
            yield events.to_line(entry)

    def rest(self) -> Iterator[str]:
        """What was kept, as one line."""
        if self.turns:
            told = {"since_us": self._since_us, "number": self._number, "of": self._of, "turns": self.turns}
            yield note_line("quiet", **told)
            self.turns = []

    def _place(self, entry: GateEntry) -> int | None:
        """Of the replica that answered the newest turn in time; None: the entry is something else."""
        event = entry.event
        if not isinstance(event, events.ProbeAnswered) or entry.effects or event.replica_id not in self._of:
            return None
        newest = self._number + len(self.turns) - 1
        return self._of.index(event.replica_id) if event.number == newest else None


def _turn_of(entry: GateEntry) -> tuple[int, tuple[str, ...]] | None:
    """The number of a turn and whom it asks; None: more happened."""
    probes = [effect for effect in entry.effects if isinstance(effect, events.Probe)]
    numbers = {probe.number for probe in probes}
    if not isinstance(entry.event, Woke) or len(probes) != len(entry.effects) or len(numbers) != 1:
        return None
    of = tuple(probe.replica_id for probe in probes)
    return numbers.pop(), of


def quiet_entries(note: dict[str, Any]) -> Iterator[GateEntry]:
    """The entries that a line stands for. Nonsense raises KeyError, TypeError, ValueError or IndexError."""
    at_us, of = int(note["since_us"]), [str(each) for each in note["of"]]
    for number, (since_us, *answers) in enumerate(note["turns"], int(note["number"])):
        at_us += since_us
        asked = tuple(events.Probe(each, number) for each in of)
        yield Entry(at_us / 1e6, Woke(), asked)
        for place, later_us in zip(answers[::2], answers[1::2], strict=True):
            at_us += later_us
            yield Entry(at_us / 1e6, events.ProbeAnswered(of[place], number), ())
