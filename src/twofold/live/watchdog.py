"""Keeps managers alive: `python -m twofold.live.watchdog STATE`, a small process beside them.

A manager is the controller of a service or the driver of a queue of jobs; a folder of its name in the state
says that one is wanted. Each looks after the watchdog as it after them: whichever is killed or stopped, those
that are left start it again. The gateway could do the same, but it is what strangers talk to, and should
start no programs; and it may die together with the controller. `down` leaves a mark first, which all take
as the order to end.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from twofold.live.processes import (
    Child,
    make_private,
    private_opener,
    python_module,
    reap,
    running,
    start,
    stop,
)

CONTROLLER, JOBS = "controller", "jobs"
MANAGERS = {CONTROLLER: "twofold.live.control.controller", JOBS: "twofold.live.jobs.driver"}  # role: module
ENDING, BEAT = "ending", "beat"
BEAT_S = 1.0  # between beats of a manager …
LATE_S = 2.5  # … after how long without one it is looked for …
SILENT_S = 8.0  # … and after how long it hangs
LOOK_S = 1.0
START_PATIENCE_S = 20.0  # until the first beat
PAUSE_S_MAX = 60.0  # before the start of one that ends before it, again and again


def start_manager(state: Path, role: str) -> Child:
    """A manager; whoever else is missing is its own to start. A second one of its role ends by itself."""
    return start(python_module(MANAGERS[role], str(state.resolve())), role, state, is_ours=True)


def start_watchdog(state: Path) -> Child:
    """The process that runs this module."""
    command = python_module("twofold.live.watchdog", str(state.resolve()))
    return start(command, "watchdog", state, is_ours=True)


def is_ending(state: Path) -> bool:
    """Whether `down` has asked, or the state is gone: nothing is to be started any more."""
    return (state / ENDING).exists() or not state.is_dir()


def beat(state: Path, role: str) -> None:
    """A manager is alive now; the clock is the machine's. In place: a full disk has room for it."""
    make_private(state / role)
    file = private_opener(str(state / role / BEAT), os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(file, f"{time.monotonic():025.9f}".encode(), 0)
    finally:
        os.close(file)


def silent_for_s(state: Path, role: str) -> float:
    """Since the manager's last beat; infinite before the first of this boot."""
    try:
        ago_s = time.monotonic() - float((state / role / BEAT).read_text())
    except (OSError, ValueError):
        return float("inf")
    return ago_s if ago_s >= 0 else float("inf")


def may_beat(state: Path, role: str) -> bool:
    """Whether a beat can be written: where none can, silence says nothing.

    Found out by writing the first digit, which is a zero: rights and flags do not say that a disk failed.
    """
    try:
        file = os.open(state / role / BEAT, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.pwrite(file, b"0", 0) == 1
    except OSError:
        return False
    finally:
        os.close(file)


def is_stopped(child: Child) -> bool:
    """Whether a signal has stopped it, as SIGSTOP does."""
    import psutil

    try:
        return bool(psutil.Process(child.process_id).status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class Started:
    """The newest manager of a role that was started here, or this process."""

    at_s: float
    mute_count: int = 0  # in a row that ended before their first beat: the next one has to wait


def look_after(state: Path, role: str, newest: Started) -> Started:
    """Start a manager that is gone or hangs; the newest one, as far as this process knows."""
    silent_s = silent_for_s(state, role)
    if silent_s <= LATE_S:  # looking for a process reads the whole table: only when there is a reason
        return newest
    there = running(state, role, exact=True)
    age_s = time.monotonic() - newest.at_s
    is_late = silent_s > SILENT_S and (silent_s < age_s or age_s > START_PATIENCE_S)
    is_mute = is_late and not may_beat(state, role)
    hangs = (is_late and not is_mute) or any(is_stopped(child) for child in there)
    if there and not hangs:
        return Started(time.monotonic()) if is_mute else newest  # once it can beat again it is given time to
    is_first = silent_s > age_s  # it has not beaten since
    if not there and is_first and age_s < min(2.0 ** min(newest.mute_count, 16) - 1.0, PAUSE_S_MAX):
        return newest
    stop(there, at_once=True)
    if is_ending(state):
        return newest
    start_manager(state, role)
    return Started(time.monotonic(), newest.mute_count + 1 if is_first else 0)


def watch(state: Path) -> None:
    """Until the state is to end."""
    # One that was heard a moment ago needs no patience; one that was started beside this process does.
    now_s = time.monotonic()
    newest = {
        role: Started(now_s if silent_for_s(state, role) > SILENT_S else -START_PATIENCE_S)
        for role in MANAGERS
    }
    while not is_ending(state):
        for role in MANAGERS:
            if (state / role).is_dir():
                newest[role] = look_after(state, role, newest[role])
        time.sleep(LOOK_S)


def main() -> None:
    """The command line of the process."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    signal.signal(signal.SIGCHLD, lambda _number, _frame: reap())
    watch(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
