"""The log of a queue: every event of its brain and what that answered, one line each, before it is done.

A driver that is killed reads it back: a fresh brain that is told the same answers the same, and knows all
that the killed one knew. So the log is the queue's only memory of what was decided. It is never rotated:
a line is some 150 bytes, and a running job writes one per report and two per checkpoint.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import DataError, from_data, to_data
from twofold.core.errors import ShapeError
from twofold.live.gateway.replays import LineReader, first_difference
from twofold.live.jobs.orders import QueueSettings
from twofold.live.line_file import LineFile, note_line, note_of, wall_text
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.machine import Entry, LineFormat

LINES = LineFormat[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)
READER = LineReader[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)
LOG = "log.jsonl"  # below a queue's folder
NEVER_BYTES = 1 << 60
JobEntry = Entry[ClusterEvent, ClusterEffect]


class JobLog(LineFile):
    """The writer. Mutable. Raises OSError where the disk refuses: what is not written is not done."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, NEVER_BYTES, 1)

    def start(self, settings: QueueSettings) -> float:
        """Say that a queue starts now, empty, and with what; the moment that its time counts from."""
        at_s = time.time()
        self.append(note_line("started", at=wall_text(at_s), at_s=at_s, settings=to_data(settings)))
        self._written()
        return at_s

    def told(self, entry: JobEntry) -> None:
        """What happened, and what the brain answered."""
        self.append(LINES.to_line(entry))
        self._written()

    def _written(self) -> None:
        self.flush()
        if self._unwritten:
            raise OSError("the log of the jobs cannot be written")


@dataclass(frozen=True, slots=True)
class QueueRun:
    """A queue from where it was last empty, with the settings that it had since then."""

    began_s: float  # Unix time
    settings: QueueSettings
    entries: tuple[JobEntry, ...]


def read_job_log(path: Path) -> tuple[QueueRun, ...]:
    """Everything that a log holds, oldest first; a torn last line was not acted on, and is left out.

    Raises ShapeError for what is no such log.
    """
    *lines, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    runs: list[tuple[float, QueueSettings, list[JobEntry]]] = []
    for line in lines:
        note = note_of(line)
        if note is not None:
            runs.append((*_start_of(note), []))
        elif not runs:
            raise _refused("it does not begin with a start")
        else:
            runs[-1][2].append(READER.entry_from_line(line.decode("utf-8", "replace")))
    return tuple(QueueRun(began_s, settings, tuple(entries)) for began_s, settings, entries in runs)


def replayed(run: QueueRun) -> ClusterBrain:
    """The brain that a log tells of. Raises ShapeError when one that is told the same answers otherwise."""
    brain = ClusterBrain(run.settings.cluster)
    difference = first_difference(brain, run.entries)
    if difference is not None:
        number, entry, other = difference
        raise _refused(f"entry {number} has {entry.effects}, where this version answers {other}")
    return brain


def _start_of(note: dict[str, Any]) -> tuple[float, QueueSettings]:
    try:
        return float(note["at_s"]), from_data(QueueSettings, note["settings"])
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise _refused(f"its start has other settings: {error}") from error


def _refused(why: str) -> ShapeError:
    return ShapeError(f"not a log of jobs: {why}", hint="read the log with the version that wrote it")
