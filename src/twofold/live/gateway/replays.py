"""Logs of machines read back and replayed: does a fresh machine answer what the log says it answered?"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from twofold.core.data import DataError, from_data
from twofold.core.errors import ShapeError
from twofold.live.gateway.quiet_probes import quiet_entries
from twofold.live.line_file import note_of, written_files
from twofold.policy.gate import events as gate_events
from twofold.policy.gate import settings as gates
from twofold.policy.machine import Entry, Machine

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


class LineReader(Generic[EventT, EffectT]):
    """Reads the lines of one machine back, from its two closed unions of dataclasses."""

    def __init__(self, events: Any, effects: Any) -> None:
        self._events, self._effects = (
            {made.__name__: made for made in get_args(union)} for union in (events, effects)
        )

    def entry_from_line(self, line: str) -> Entry[EventT, EffectT]:
        """The entry that `to_line` wrote, equal to it. Raises ShapeError on anything else."""
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _wrong_line(f"not JSON: {error}") from error
        if not isinstance(data, dict) or data.keys() != {"now_s", "event", "effects"}:
            raise _wrong_line("an entry is an object of `now_s`, `event` and `effects`")
        if not isinstance(data["effects"], list):
            raise _wrong_line("`effects` is not a list")
        event = _told(data["event"], self._events)
        effects = tuple(_told(effect, self._effects) for effect in data["effects"])
        try:
            return Entry(from_data(float, data["now_s"]), event, effects)
        except DataError as error:
            raise _wrong_line(f"`now_s`: {error}") from error


def _told(data: Any, known: dict[str, type[Any]]) -> Any:
    name = data.pop("type", None) if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in known:
        raise _wrong_line(f"`type` is none of {', '.join(known)}")
    try:
        return from_data(known[name], data)
    except DataError as error:
        raise _wrong_line(f"{name}: {error}") from error


def _wrong_line(why: str) -> ShapeError:
    return ShapeError(
        f"not a line of a policy log: {why}", hint="replay the log with the version that wrote it"
    )


entry_from_line = LineReader[gate_events.Event, gate_events.Effect](
    gate_events.Event, gate_events.Effect
).entry_from_line


def first_difference(
    machine: Machine[EventT, EffectT], entries: Iterable[Entry[EventT, EffectT]]
) -> tuple[int, Entry[EventT, EffectT], tuple[EffectT, ...]] | None:
    """Feed a fresh machine the entries of one run's log, in order. The first that it answers otherwise: which
    one, counted from 1, the entry, and the other answer; None when it answers as the log says."""
    for number, entry in enumerate(entries, 1):
        replayed = tuple(machine.handle(entry.event, entry.now_s))
        if replayed != entry.effects:
            return number, entry, replayed
    return None


@dataclass(frozen=True, slots=True)
class GateRun:
    """One run of a gate, from its `started` line. `entries` are lines for `entry_from_line`."""

    settings: gates.GateSettings
    beliefs: gates.Beliefs
    entries: tuple[str, ...]
    lost_lines: int  # the disk refused them; a run that lost some cannot be replayed
    stopped: bool  # in peace; a killed or a running gate has no such line
    whole: bool = True  # False: its start was rotated away, so that no replay can begin there


@dataclass(frozen=True, slots=True)
class GateHistory:
    """A log as it was read."""

    runs: tuple[GateRun, ...]
    torn_bytes: int  # the end of a line that was being written, ignored
    headless_lines: int  # of a run whose start was rotated away, ignored


def read_gate_log(path: Path, file_count: int = 4) -> GateHistory:
    """A log with its rotated files, oldest first; a file that is missing holds nothing.

    Raises ShapeError when a line other than a torn last one is not of such a log.
    """
    data = b"".join(file.read_bytes() for file in written_files(path, file_count))
    *lines, torn = data.split(b"\n")
    runs: list[GateRun] = []
    head: dict[str, Any] | None = None
    entries: list[str] = []
    lost_lines = headless_lines = 0
    stopped = False

    def finish() -> None:
        if head is None:
            return
        try:
            settings = from_data(gates.GateSettings, head["settings"])
            beliefs = from_data(gates.Beliefs, head["beliefs"])
        except (KeyError, DataError) as error:
            raise _refused(f"its start has other settings: {error}") from error
        whole = head["log"] == "started"
        runs.append(GateRun(settings, beliefs, tuple(entries), lost_lines, stopped, whole))

    for line in lines:
        note = note_of(line)
        match note:
            case None if head is None:
                headless_lines += 1
            case None:
                entries.append(line.decode())
            case {"log": "started"}:
                finish()
                head, entries, lost_lines, stopped = note, [], 0, False
            case {"log": "lost", "lines": int(lost_lines)}:  # since the start of the run
                pass
            case {"log": "stopped"}:
                stopped = True
            case {"log": "continued", "settings": _} if head is None:
                head, entries = note, []
            case {"log": "continued"}:
                pass
            case {"log": "quiet"}:
                quiet = _quiet_lines(note)
                headless_lines += 0 if head else len(quiet)
                entries += quiet if head else ()
            case _:
                raise _refused(f"an unknown kind `{note.get('log')}`")
    finish()
    return GateHistory(tuple(runs), len(torn), headless_lines)


def _quiet_lines(note: dict[str, Any]) -> list[str]:
    """The lines that probes which changed nothing would have had."""
    try:
        return [gate_events.to_line(entry) for entry in quiet_entries(note)]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _refused(f"its quiet probes have another form: {error}") from error


def _refused(why: str) -> ShapeError:
    return ShapeError(f"not a gateway's log: {why}", hint="read the log with the version that wrote it")
