"""The log of a queue: every event of its brain and what that answered, one line each, before it is done.

A driver that is killed reads it back: a fresh brain that is told the same answers the same, and knows all
that the killed one knew. So the log is the queue's only memory of what was decided. It is never rotated:
a line is some 150 bytes, and a running job writes one per report and two per checkpoint.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import DataError, from_data, to_data
from twofold.core.errors import FileError, ShapeError
from twofold.live.gateway.replays import LineReader
from twofold.live.jobs.orders import QueueSettings
from twofold.live.line_file import LineFile, note_line, note_of, wall_text
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.lines import LineFormat
from twofold.policy.machine import Entry

LINES = LineFormat[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)
READER = LineReader[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)
LOG = "log.jsonl"  # below a queue's folder
NEVER_BYTES = 1 << 60
WHY_MOST = 400  # letters: a line may hold anything
MEND = (
    "put line {line} right, go back to the version that wrote it, or keep the {lines} lines before it: "
    "jobs that ended after those may run again; the driver goes on by itself"
)
JobEntry = Entry[ClusterEvent, ClusterEffect]
OnEntry = Callable[[JobEntry, ClusterBrain], object]


class JobLog(LineFile):
    """The writer. Mutable. Raises FileError where the disk refuses, and is of no use then: what is not
    written is not done, and must not be written later.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, NEVER_BYTES, 1)
        if self.cut_bytes:
            self.append(note_line("cut", at=wall_text(time.time()), bytes=self.cut_bytes))

    def start(self, settings: QueueSettings, at_s: float) -> None:
        """Say that a queue starts now, empty, and with what; at this Unix time, which its own counts from."""
        self.append(note_line("started", at=wall_text(at_s), at_s=at_s, settings=to_data(settings)))
        self._write()

    def told(self, entry: JobEntry) -> None:
        """What happened, and what the brain answered."""
        self.append(LINES.to_line(entry))
        self._write()

    def _write(self) -> None:
        self.flush()
        if self._unwritten:
            why = (self.refusal.strerror if self.refusal else None) or "the disk took a part of a line"
            hint = "make room, or have its disk take lines: nothing is decided before"
            raise FileError(f"`{self.path}` cannot be written: {why.lower()}", hint=hint)


@dataclass(frozen=True, slots=True)
class QueueRun:
    """A queue from where it was last empty, with the settings that it had since then."""

    began_s: float  # Unix time
    settings: QueueSettings
    entries: tuple[JobEntry, ...]
    lines: tuple[int, ...] = ()  # of the file, from 1, on which each entry stands


def read_job_log(path: Path) -> tuple[QueueRun, ...]:
    """Everything that a log holds, oldest first; a torn last line was not acted on, and is left out.

    Raises ShapeError with the line that is none of such a log, FileError for a file that cannot be read.
    """
    try:
        *lines, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise FileError(f"`{path}` cannot be read: {why}", hint="let this user read it again") from error
    heads: list[tuple[float, QueueSettings]] = []
    found: list[list[tuple[int, JobEntry]]] = []
    for number, line in enumerate(lines, 1):
        try:
            note = note_of(line)
            if note is None:
                if not found:
                    raise _refused("it does not begin with a start")
                found[-1].append((number, READER.entry_from_line(line.decode("utf-8", "replace"))))
            elif note["log"] == "started":
                heads.append(_start_of(note))
                found.append([])
            elif note["log"] != "cut":
                raise _refused(f"an unknown kind `{note['log']}`")
        except ShapeError as error:
            raise _wrong_line(number, error.message, path) from error
    return tuple(
        QueueRun(*head, tuple(entry for _, entry in entries), tuple(number for number, _ in entries))
        for head, entries in zip(heads, found, strict=True)
    )


def replayed(
    run: QueueRun, path: Path, told: OnEntry = lambda *_: None, *, other_version: bool = False
) -> ClusterBrain:
    """The brain that a log tells of; each entry is `told` once it was handled.

    Raises ShapeError with the line that one which is told the same cannot follow, or answers otherwise: the
    latter not of a log that may be of an `other_version`.
    """
    brain = ClusterBrain(run.settings.cluster)
    for number, entry in zip(run.lines, run.entries, strict=True):
        try:
            other = tuple(brain.handle(entry.event, entry.now_s))
        except Exception as error:  # whatever it is that a line is missing before it
            raise _wrong_line(number, f"it cannot follow what is before it: {error!r}", path) from error
        if other != entry.effects and not other_version:
            what = f"it has {entry.effects}, where this version answers {other}"
            raise _wrong_line(number, what, path)
        told(entry, brain)
    return brain


def _wrong_line(number: int, why: str, path: Path) -> ShapeError:
    what = f"line {number} of `{path}` is none of this log of jobs: {why[:WHY_MOST]}"
    return ShapeError(what, hint=MEND.format(line=number, lines=number - 1))


def _start_of(note: dict[str, Any]) -> tuple[float, QueueSettings]:
    try:
        return float(note["at_s"]), from_data(QueueSettings, note["settings"])
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise _refused(f"its start has other settings: {error}") from error


def _refused(why: str) -> ShapeError:
    return ShapeError(f"not a log of jobs: {why}", hint="read the log with the version that wrote it")
