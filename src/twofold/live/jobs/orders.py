"""What was asked of a queue: its settings, jobs that were submitted, jobs that nobody wants any more.

Each is a file of its own, written whole: who submits needs no driver that listens, and one that is killed
reads them again. Below a state's `jobs`: `settings.json`, `orders/ID.json`, `orders/ID.cancel`, `log.jsonl`,
`orders/ID.environment` until the job is over, `slots/SLOT.lost` while a slot is out of use, a folder per job.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from twofold.core import nvidia
from twofold.core.data import DataError, from_data, to_json
from twofold.core.errors import FileError, UnknownNameError
from twofold.live import watchdog
from twofold.live.processes import make_private, private_opener
from twofold.live.training.artefact import write_whole
from twofold.policy.cluster.settings import REPORT_S, ClusterSettings, WatchSettings

JOB_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SETTINGS = "settings.json"
OF_REGISTRY = ("evaluate", "quantise")  # kinds that run `twofold registry`, by its words for them
ASK_EVERY_S = 15.0  # for the accelerators that are there
START_WAIT_S = 900.0  # for the first step of a job that reports steps, its libraries and its checkpoint read


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One queue. A slot is a rank with its share of the machine: cores, or an accelerator."""

    slot_count: int
    accelerators: bool = False  # slot n is accelerator n; else cores
    cluster: ClusterSettings = field(
        default_factory=lambda: ClusterSettings(watch=WatchSettings(start_wait_s=START_WAIT_S))
    )
    report_s: float = REPORT_S  # between reports of a job's steps to the brain
    grace_s: float = 30.0  # for a job that is told to end, to write its last checkpoint


@dataclass(frozen=True, slots=True)
class JobOrder:
    """One job: what is run, and what its owner says of it."""

    job_id: str
    command: tuple[str, ...]
    slot_count: int
    process_count: int  # each runs `command`, told its rank; 1: a launcher that starts its ranks itself
    folder: str  # where it writes steps and events, as the trainer does
    team: str = "default"
    priority: int = 0  # higher goes first
    kind: str = "command"
    expected_s: float = 3600.0
    checkpoint_write_s: float = 10.0
    checkpoint_stall_s: float | None = None  # of that, how long it stands still; None: all of it
    restart_s: float = 30.0
    saves: bool = False  # it writes a checkpoint when it is asked; only such a job makes room for others
    working_folder: str = "."


def jobs_folder(state: Path) -> Path:
    """Where everything of a state's queue is."""
    return state / watchdog.JOBS


def job_folder(state: Path, job_id: str) -> Path:
    """Where everything of one job is."""
    return jobs_folder(state) / "runs" / job_id


def write_settings(state: Path, settings: QueueSettings) -> None:
    """From its next idle moment on the queue has these."""
    make_private(jobs_folder(state))
    write_whole(_settings_path(state), to_json(settings))


def read_settings(state: Path) -> QueueSettings:
    """Raises FileError where there is no queue, or its settings are of another version."""
    path = _settings_path(state)
    try:
        return from_data(QueueSettings, json.loads(path.read_text("utf-8")))
    except FileNotFoundError as error:
        hint = "submit one with `twofold jobs submit SPEC`"
        raise FileError(f"no jobs were submitted in `{state}`", hint=hint) from error
    except (OSError, ValueError, RecursionError, DataError) as error:
        raise FileError(f"`{path}` cannot be read: {error}", hint="submit a job once more") from error


@contextmanager
def submitting(state: Path) -> Iterator[None]:
    """Nobody else submits meanwhile: an id that no job has is still one when its job is submitted."""
    make_private(state)  # not its `jobs`: where that is, a driver is wanted
    with open(state / "jobs.lock", "w", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def submit(state: Path, order: JobOrder, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    """Put a job into the queue: it is there when this returns, whatever is killed then.

    Variables of `environment` it has beside what every program has: keys, for the most part. So they stand in
    a file of their own, which nobody else may read and which goes when the job is over.
    """
    make_private(jobs_folder(state))
    if environment:
        path = _environment_path(state, order.job_id)
        make_private(path.parent)
        with open(path, "w", encoding="utf-8", opener=private_opener) as file:
            json.dump(dict(environment), file)
    newest_ns = max((at_ns for at_ns, _ in _by_age(state)), default=0)
    path = order_path(state, order.job_id)
    write_whole(path, to_json(order))
    if path.stat().st_mtime_ns <= newest_ns:  # the clock was set back: it is the newest all the same
        os.utime(path, ns=(newest_ns + 1, newest_ns + 1))


def environment_of(state: Path, job_id: str) -> dict[str, str]:
    """The variables that a job was submitted with. Raises FileError."""
    path = _environment_path(state, job_id)
    try:
        told = json.loads(path.read_text("utf-8"))
        return {str(name): str(value) for name, value in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise FileError(f"`{path}` cannot be read: {error}", hint="cancel it, and submit it again") from error


def forget_environments(state: Path, over: Container[str]) -> None:
    """Of jobs that are over: nobody needs their keys any more."""
    for path in _orders(state).glob("*.environment"):
        if path.stem in over:
            path.unlink(missing_ok=True)


def cancel(state: Path, job_id: str) -> None:
    """Nobody wants the job any more. Raises UnknownNameError."""
    with suppress(FileError):  # an order that cannot be read can be cancelled
        read_order(state, job_id)
    (_orders(state) / f"{job_id}.cancel").touch(mode=0o600)


def cancelled(state: Path) -> set[str]:
    """The jobs that nobody wants any more."""
    return {path.stem for path in _orders(state).glob("*.cancel")}


def read_order(state: Path, job_id: str) -> JobOrder:
    """One job as it was submitted. Raises UnknownNameError, FileError."""
    path = order_path(state, job_id)
    if not JOB_ID.fullmatch(job_id) or not path.exists():
        known = [each for each, _ in order_files(state)]
        there = f"jobs: {', '.join(known[-8:])}" if known else "there is none: `twofold jobs submit SPEC`"
        raise UnknownNameError(f"there is no job `{job_id}`", hint=there)
    try:
        return from_data(JobOrder, json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError, DataError) as error:
        raise FileError(f"`{path}` cannot be read: {error}", hint="cancel it, and submit it again") from error


def order_files(state: Path) -> Iterator[tuple[str, Path]]:
    """Every job that was ever submitted, oldest first."""
    return ((path.stem, path) for _, path in _by_age(state))


def new_job_id(state: Path, name: str) -> str:
    """An id that no job has: `tiny-1`, `tiny-2` …; ask while `submitting`."""
    stem = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:48] or "job"
    taken = {job_id for job_id, _ in order_files(state)}
    return next(f"{stem}-{number}" for number in range(1, len(taken) + 2) if f"{stem}-{number}" not in taken)


def lost_slots(state: Path, settings: QueueSettings, listed: frozenset[int] | None) -> set[str]:
    """Slots that are out of use: marked by hand, or by an accelerator that is not `listed`; None: unknown."""
    marked = {path.stem for path in (jobs_folder(state) / "slots").glob("*.lost")}
    if settings.accelerators and listed is not None:
        marked |= {slot for number, slot in enumerate(slots(settings)) if number not in listed}
    return marked & set(slots(settings))


@dataclass(slots=True)
class AcceleratorWatch:
    """The accelerators of this machine as last listed. Mutable; its caller never waits for the answer."""

    _listed: frozenset[int] | None = None
    _answer: Future[frozenset[int] | None] | None = None
    _asked_s: float = float("-inf")
    _asker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def listed(self) -> frozenset[int] | None:
        """By the latest answer that said any: a tool that fails says nothing of a single accelerator."""
        if self._answer is not None and self._answer.done():
            self._listed, self._answer = self._answer.result() or self._listed, None
        if self._answer is None and time.monotonic() - self._asked_s >= ASK_EVERY_S:
            self._asked_s = time.monotonic()
            self._answer = self._asker.submit(nvidia.numbers)
        return self._listed


def slots(settings: QueueSettings) -> tuple[str, ...]:
    """The names of all slots, in order."""
    return tuple(f"slot-{number}" for number in range(settings.slot_count))


def _orders(state: Path) -> Path:
    return jobs_folder(state) / "orders"


def _by_age(state: Path) -> list[tuple[int, Path]]:
    """Every order with when it was written, oldest first."""
    return sorted((path.stat().st_mtime_ns, path) for path in _orders(state).glob("*.json"))


def order_path(state: Path, job_id: str) -> Path:
    """Where a job's order is, once it was submitted."""
    return _orders(state) / f"{job_id}.json"


def _environment_path(state: Path, job_id: str) -> Path:
    return _orders(state) / f"{job_id}.environment"


def _settings_path(state: Path) -> Path:
    return jobs_folder(state) / SETTINGS
