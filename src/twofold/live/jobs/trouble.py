"""What a queue stands still for: written down where `jobs list` reads it, and tried again by and by.

Jobs that run go on meanwhile. The log is read again after 1, 2, 4 … 60 seconds, and at once when it is
another one or its disk takes lines again: so it is enough to mend what is wrong.
"""

import json
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twofold.core.data import from_data, to_json
from twofold.core.errors import TwofoldError
from twofold.live import processes
from twofold.live.disk import disk_trouble, refuses
from twofold.live.jobs.job_log import LOG
from twofold.live.jobs.orders import SETTINGS, jobs_folder
from twofold.live.training.artefact import write_whole

FILE = "trouble.json"  # below a queue's folder
PAUSE_S_MAX = 60.0
STEADY_S = 60.0  # a driver that drove so long begins anew to count
LOOK_S = 0.5
OUR_BUG = "it is a fault of ours: please report the end of"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why nothing of a queue is decided, and what to do."""

    what: str
    hint: str
    tries: int = 1
    is_ours: bool = False  # a fault of the program


class Patience:
    """Waits between a driver that failed and the next. Mutable: it counts them."""

    def __init__(self, state: Path) -> None:
        self._state, self._folder = state, jobs_folder(state)
        self._told: Trouble | None = None
        self._began_s = time.monotonic()

    def begin(self) -> None:
        """A driver begins to drive."""
        self._began_s = time.monotonic()

    def well(self) -> None:
        """It drives: there is no trouble any more."""
        with suppress(OSError):
            (self._folder / FILE).unlink(missing_ok=True)

    def failed(self, error: Exception) -> None:
        """It drives no more: said once, written down."""
        steady = time.monotonic() - self._began_s > STEADY_S
        before = self._told
        found = _trouble(error, self._state, 1 if before is None or steady else before.tries + 1)
        if before is None or before.what != found.what:
            where = "".join(traceback.format_exception(error)) if found.is_ours else ""
            processes.say(f"{where}the queue stands still: {found.what}\n{found.hint}")
        self._told = found
        with suppress(OSError):
            write_whole(self._folder / FILE, to_json(found))

    def wait(self, goes_on: Callable[[], bool]) -> None:
        """Until it is worth another try, while it `goes_on`."""
        tries = self._told.tries if self._told else 1
        until_s = time.monotonic() + min(2.0 ** min(tries - 1, 16), PAUSE_S_MAX)
        stamp, refused = self._stamp(), disk_trouble(self._folder)
        while goes_on() and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            if self._stamp() != stamp or (refused and not disk_trouble(self._folder)):
                return

    def _stamp(self) -> list[tuple[int, int, int]]:
        """Another one when somebody has mended the log or the settings, or what may be done with them."""
        found = []
        for name in (LOG, SETTINGS):
            with suppress(OSError):
                seen = (self._folder / name).stat()
                found.append((seen.st_ino, seen.st_size, seen.st_ctime_ns))
        return found


def trouble_of(state: Path) -> Trouble | None:
    """What the queue of a state stands still for; None: it does not, as far as anybody wrote."""
    folder = jobs_folder(state)
    if refused := disk_trouble(folder):
        return Trouble(f"the disk of `{folder}` is {refused}", "it goes on by itself once it takes lines")
    try:
        return from_data(Trouble, json.loads((folder / FILE).read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return None


def _trouble(error: Exception, state: Path, tries: int) -> Trouble:
    if isinstance(error, TwofoldError):
        return Trouble(error.message, error.hint, tries)
    if isinstance(error, OSError) and refuses(error):
        return Trouble(f"the disk refuses: {error}", "it goes on by itself once it takes lines", tries)
    log = processes.log_path(state, "jobs")
    return Trouble(f"{type(error).__name__}: {error}", f"{OUR_BUG} `{log}`", tries, is_ours=True)
