"""The time of a queue: seconds since it began by the monotonic clock, whatever the wall's is set to.

All processes share that clock until the machine is booted anew, so a driver that follows a killed one reads
off it how long nobody drove. After a boot nothing runs, and the clock on the wall is asked.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twofold.live.boots import this_boot
from twofold.live.training.artefact import write_whole

FILE = "clock.json"  # below a queue's folder


@dataclass(slots=True)
class QueueClock:
    """It runs on over restarts, and never back. Mutable: set at each run of the log."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    base_s: float = 0.0
    since_s: float = 0.0

    def begin(self, folder: Path, began_s: float) -> None:
        """The queue begins now, at that Unix time."""
        self._set(folder, began_s, 0.0)

    def go_on(self, folder: Path, began_s: float, last_s: float) -> None:
        """It began at that Unix time, and its last event was so long after it."""
        zero_s = _kept(folder, began_s)
        now_s = None if zero_s is None else self.monotonic() - zero_s
        if now_s is None or now_s < last_s:  # another boot, or nothing kept
            now_s = max(last_s, self.wall() - began_s)
        self._set(folder, began_s, now_s)

    def now_s(self) -> float:
        """The time that the brain is told."""
        return self.base_s + self.monotonic() - self.since_s

    def _set(self, folder: Path, began_s: float, now_s: float) -> None:
        self.base_s, self.since_s = now_s, self.monotonic()
        told = {"boot": this_boot(), "began_s": began_s, "zero_s": self.since_s - now_s}
        with suppress(OSError):  # the next driver asks the clock on the wall
            write_whole(folder / FILE, json.dumps(told))


def by_now(folder: Path, began_s: float) -> float:
    """When a queue began, as the clock on the wall counts by now, if it was set since; else `began_s`."""
    zero_s = _kept(folder, began_s)
    return began_s if zero_s is None else time.time() - (time.monotonic() - zero_s)


def _kept(folder: Path, began_s: float) -> float | None:
    """The monotonic time at which the queue that began then did; None: nobody knows, or another boot's."""
    try:
        told = json.loads((folder / FILE).read_text("utf-8"))
        is_its = told["boot"] == this_boot() and told["began_s"] == began_s
        return float(told["zero_s"]) if is_its else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
