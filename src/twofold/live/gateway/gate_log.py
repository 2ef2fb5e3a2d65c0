"""The gateway's data log: every event of its gate and what the gate answered, one line each.

It is appended to before anything that was decided goes to a replica, and at the end of each turn of the
loop, by plain writes of whole lines: kill -9 loses nothing that was acted on but first tokens from which
nothing followed, which wait for the next write, and probes that found all as it was, many to a line. There
is no fsync: the log survives the process, not the power. A gate starts cold (no limits used, all circuits
closed) and a `started` line says so, so that a log is a row of runs, and each run can be replayed from its
own start. A file that goes on from another begins with what the gate was told at its start: once the start
itself is deleted, it says what happened, and no replay can check it.
"""

import time
from pathlib import Path
from typing import Any

from twofold.core.data import to_data
from twofold.live.gateway.quiet_probes import GateEntry, QuietProbes
from twofold.live.line_file import LineFile, note_line, wall_text
from twofold.policy.gate import settings as gates
from twofold.policy.gate.events import ProbeAnswered, to_line
from twofold.policy.machine import Woke

PROBING = (Woke, ProbeAnswered)  # what may be quiet


class GateLog(LineFile):
    """The writer. Mutable: it holds the lines of this turn, probes that changed nothing, and the file."""

    def __init__(self, path: Path, limit_bytes: int, file_count: int) -> None:
        super().__init__(path, limit_bytes, file_count)
        self._quiet = QuietProbes()
        self._told: dict[str, Any] = {}

    def start(self, settings: gates.GateSettings, beliefs: gates.Beliefs) -> None:
        """Say that a gate starts now, cold, and with what."""
        self._told = {"settings": to_data(settings), "beliefs": to_data(beliefs)}
        self._note("started", **self._told, cut_bytes=self.cut_bytes)

    def stop(self) -> None:
        """Say that the gate ended in peace, and close."""
        self._waiting += self._quiet.rest()
        self._note("stopped")
        super().stop()

    def told(self, entry: GateEntry) -> None:
        """What happened, and what the gate answered.

        HOT: three times a request, which no quiet probe is.
        """
        if isinstance(entry.event, PROBING):
            self._waiting += self._quiet.lines(entry)
            return
        if self._quiet.turns:
            self._waiting += self._quiet.rest()
        self._waiting.append(to_line(entry))

    def head(self) -> str:
        """A file that goes on says from where, and what the gate was told at its start."""
        return note_line("continued", at=wall_text(time.time()), **self._told)

    def _note(self, kind: str, **what: Any) -> None:
        self.append(note_line(kind, at=wall_text(time.time()), **what))
