"""Gangs of processes: all ranks of an attempt start or none, are found by their marks, and end together.

Each rank runs under a line of shell that writes down what it ended with, so that a driver which did not start
it, since another one was killed, learns it as well. A rank that left no such word was killed.
"""

import os
import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.live import processes
from twofold.live.jobs.orders import JobOrder, QueueSettings, environment_of, job_folder, slots
from twofold.live.jobs.progress import Listener, Pace
from twofold.policy.cluster.events import Placement

# The shell itself outlives a request to end, to write down how its command did.
RANK = 'trap : TERM; "$@"; code=$?; echo $code > "$0.partial" && mv "$0.partial" "$0"'
ROLE = "job-"
KILLED = 128 + signal.SIGKILL


@dataclass(slots=True)
class Gang:
    """One attempt as it runs. Mutable: it is listened to."""

    order: JobOrder
    attempt: int
    slots: tuple[str, ...]  # in the order of ranks
    ranks: dict[int, list[Any]]  # psutil's processes of each
    listener: Listener
    pace: Pace = field(default_factory=Pace)


def role_of(job_id: str) -> str:
    """The role that every process of a job carries."""
    return f"{ROLE}{job_id}"


def slots_of(placement: Placement) -> tuple[str, ...]:
    """The slots of a gang, in the order of its ranks."""
    return tuple(slot for slot, _ in placement)


def listener_of(state: Path, order: JobOrder) -> Listener:
    """Who reads what a job writes."""
    return Listener(Path(order.folder), order.slot_count, job_folder(state, order.job_id) / "heard.json")


def start_gang(
    state: Path, settings: QueueSettings, order: JobOrder, held: tuple[str, ...], attempt: int
) -> Gang:
    """Start every rank, or none: raises OSError, or FileError, once all that had started is ended."""
    import psutil

    folder = job_folder(state, order.job_id)
    for each in (folder, folder / "ended", Path(order.folder)):
        processes.make_private(each)
    listener = listener_of(state, order)
    listener.begin(attempt)
    ranks: dict[int, list[Any]] = {}
    share = len(held) // order.process_count
    try:
        port = processes.free_port()
        for rank in range(order.process_count):
            own = held[rank * share : (rank + 1) * share]
            environment = _environment(state, settings, order, held, rank, port, attempt)
            ended = ended_path(state, order.job_id, attempt, rank).resolve()
            ended.unlink(missing_ok=True)  # of an attempt that was begun by a driver that was killed
            child = processes.start(
                ["sh", "-c", RANK, str(ended), *order.command],
                role_of(order.job_id),
                state,
                digest=f"{attempt}.{rank}",
                environment=environment,
                folder=Path(order.working_folder),
            )
            _bind(child.process_id, settings, own)
            ranks[rank] = [psutil.Process(child.process_id)]
    except (OSError, psutil.Error) as error:
        processes.stop_all(state, role_of(order.job_id), exact=True, at_once=True)
        raise OSError(f"`{shlex.join(order.command)}` cannot be started: {error}") from error
    return Gang(order, attempt, held, ranks, listener)


def adopted(state: Path, order: JobOrder, held: tuple[str, ...], attempt: int) -> Gang:
    """The attempt as it is found; a rank without processes has ended or was killed."""
    import psutil

    ranks: dict[int, list[Any]] = {rank: [] for rank in range(order.process_count)}
    for child in processes.running(state, role_of(order.job_id), exact=True):
        number, _, rank = child.digest.partition(".")
        if number == str(attempt) and rank.isdigit() and int(rank) in ranks:
            with suppress(psutil.Error):
                ranks[int(rank)].append(psutil.Process(child.process_id))
    listener = listener_of(state, order)
    if not listener.go_on(attempt):
        listener.begin(attempt)
    return Gang(order, attempt, held, ranks, listener)


def ended_path(state: Path, job_id: str, attempt: int, rank: int) -> Path:
    """Where a rank's exit code is written down."""
    return job_folder(state, job_id) / "ended" / f"{attempt}.{rank}"


def exit_codes(state: Path, gang: Gang) -> dict[int, int | None]:
    """What each rank ended with; None: it runs. One that was killed has no word, and counts as killed."""
    codes: dict[int, int | None] = {}
    for rank, found in gang.ranks.items():
        # Looked at in this order: the word is written before the last process is gone.
        if any(processes.lives(each) for each in found):
            codes[rank] = None
            continue
        try:
            codes[rank] = int(ended_path(state, gang.order.job_id, gang.attempt, rank).read_text())
        except (OSError, ValueError):
            codes[rank] = KILLED
    return codes


def ask_to_end(state: Path, job_id: str) -> None:
    """Tell a job to write its last checkpoint and end."""
    # What it started in states of its own is for it to tell: a launcher ends its workers in order.
    for child in processes.running(state, role_of(job_id), exact=True, own=True):
        with suppress(OSError):
            os.kill(child.process_id, signal.SIGTERM)


def kill(state: Path, job_id: str) -> bool:
    """End what is left of a job; whether there was anything."""
    found = processes.running(state, role_of(job_id), exact=True)
    for child in found:
        with suppress(OSError):
            os.kill(child.process_id, signal.SIGKILL)
    return bool(found)


def is_gone(state: Path, job_id: str) -> bool:
    """Whether nothing of a job runs."""
    return not processes.running(state, role_of(job_id), exact=True)


def strays(state: Path) -> set[str]:
    """All jobs of which anything runs."""
    return {child.role.removeprefix(ROLE) for child in processes.running(state, ROLE)}


def _environment(
    state: Path,
    settings: QueueSettings,
    order: JobOrder,
    held: tuple[str, ...],
    rank: int,
    port: int,
    attempt: int,
) -> dict[str, str]:
    """What a rank is told: as torch's launcher says it, its slots, and where it writes its steps.

    All ranks of a gang see its accelerators in one order, in which number `LOCAL_RANK` is a rank's own.
    """
    share = len(held) // order.process_count
    own = held[rank * share : (rank + 1) * share]
    seen = sorted(range(len(held)), key=lambda at: (at % share if share else 0, at))
    numbers = ",".join(str(slots(settings).index(held[at])) for at in seen)
    return {
        **environment_of(state, order.job_id),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(order.process_count),
        "LOCAL_WORLD_SIZE": str(order.process_count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(max(1, _cores_per_slot(settings) * len(own))),
        "TWOFOLD_SLOTS": ",".join(own),
        "TWOFOLD_JOB_FOLDER": order.folder,
        processes.QUEUE: str(state.resolve()),
        processes.JOB: role_of(order.job_id),
        processes.ATTEMPT: f"{attempt}.{rank}",
        "CUDA_VISIBLE_DEVICES": numbers if settings.accelerators else "",
    }


def _cores_per_slot(settings: QueueSettings) -> int:
    return max(1, (os.cpu_count() or 1) // settings.slot_count)


def _bind(process_id: int, settings: QueueSettings, own: tuple[str, ...]) -> None:
    """Keep a rank to its slots' cores, where slots are cores: neighbours do not slow each other so."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // settings.slot_count
    if settings.accelerators or not share:
        return
    numbers = [slots(settings).index(slot) for slot in own]
    with suppress(OSError):  # it has ended already
        os.sched_setaffinity(process_id, {cores[n * share + k] for n in numbers for k in range(share)})
