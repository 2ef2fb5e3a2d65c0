"""Child processes that outlive a crash of ours: found again by what stands in their environment.

Every process that we start carries the folder of its state, its role, and a digest of what it was told to do;
its own children inherit them. There is no file of process numbers that a kill -9 could leave wrong: who is
running is read off the machine each time.
"""

import errno
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from twofold.core.errors import InputError, RunError
from twofold.live.environment import needed

STATE, ROLE, DIGEST, PORT = "TWOFOLD_STATE", "TWOFOLD_ROLE", "TWOFOLD_DIGEST", "TWOFOLD_PORT"
# What a job of a queue starts in a state of its own, as the trainer does, is the queue's as well.
QUEUE, JOB, ATTEMPT = "TWOFOLD_QUEUE", "TWOFOLD_JOB", "TWOFOLD_ATTEMPT"
OWNERS = ((STATE, ROLE, DIGEST), (QUEUE, JOB, ATTEMPT))
GRACE_S = 5.0  # between asking a process to end and ending it
ENDING_LOOK_S = 0.05
LOG_TAIL_LINES = 8
PORT_PATIENCE_S = 1.0
PRIVATE_UMASK = 0o077  # what we and our children write is for our own user
SAFE_PATH = (
    "PYTHONSAFEPATH"  # no module of the working folder is taken for one of ours, by grandchildren either
)
STARTED_FIELD = 19  # of /proc/N/stat behind the name: when it was started, in ticks since the boot
STARTING_LOOKS, STARTING_LOOK_S = 4, 0.005  # at a process without an environment; kernel threads have none


class PortError(InputError):
    """A port that another program holds."""

    code = "E-port"


@dataclass(frozen=True, slots=True)
class Child:
    """A process of ours. `digest` is of its command: equal ones need no restart."""

    process_id: int
    role: str  # train, replica-0, gateway …
    digest: str
    port: int | None


def digest_of(command: Sequence[str]) -> str:
    """What a process was told, in 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]


def start(
    command: Sequence[str],
    role: str,
    state: Path,
    *,
    digest: str = "",
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    is_ours: bool = False,
) -> Child:
    """Start `command` in a session of its own, in `folder`, its output appended to the role's log.

    A session of its own: Ctrl-C reaches us alone, and we decide what ends. One that `is_ours` has our whole
    environment, keys and all; any other what programs need of it, and what `environment` adds.
    """
    digest = digest or digest_of(command)
    marks = {STATE: str(state.resolve()), ROLE: role, DIGEST: digest, PORT: str(port or "")}
    with _output(log_path(state, role)) as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **(os.environ if is_ours else needed(os.environ)),
                SAFE_PATH: "1",
                **(environment or {}),
                **marks,
            },
            start_new_session=True,
            cwd=folder,
            umask=PRIVATE_UMASK,
        )
    process.returncode = 0  # it may outlive us: nobody waits for it, and Python need not warn of that
    return Child(process.pid, role, digest, port)


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module under this very interpreter, whatever lies in the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def make_private(folder: Path) -> None:
    """A folder that only its owner may enter; one that is there already becomes one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # another user's, or read-only: whoever writes there will hear of it
        folder.chmod(0o700)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that is made now is for its owner alone."""
    return os.open(path, flags, 0o600)


def _output(log: Path) -> IO[bytes]:
    """A file that is appended to; nowhere, where the disk refuses: a service heals without its logs too."""
    try:
        make_private(log.parents[1])
        make_private(log.parent)
        return open(log, "ab", opener=private_opener)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return Path(os.devnull).open("ab")


def say(line: str) -> None:
    """A line for the log of this process; a disk that refuses it does not end the process."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def age_s(process_id: int) -> float:
    """Seconds since a process was started, whatever the clock on the wall was set to meanwhile.

    Raises psutil.NoSuchProcess. Limits   where there is no /proc, a clock that is set shifts it.
    """
    import psutil

    try:
        told = Path(f"/proc/{process_id}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        began_s = int(told[STARTED_FIELD]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time() - float(psutil.Process(process_id).create_time())


def log_path(state: Path, role: str) -> Path:
    """Where a role's output goes."""
    return state / "logs" / f"{role}.log"


def last_lines(log: Path) -> str:
    """The end of a log, for an error: what the program itself had to say."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(line[:200] for line in text.splitlines()[-LOG_TAIL_LINES:])


def running(state: Path, role: str = "", *, exact: bool = False, own: bool = False) -> list[Child]:
    """Every live process of this state whose role starts with `role`, or is `exact`ly it; children too.

    With `own`, without those that a job of the state's queue has started in states of their own.
    """
    wanted, found = str(state.resolve()), []
    for process_id, marks in _environments():
        port = marks.get(PORT, "")
        for state_mark, role_mark, digest_mark in OWNERS[:1] if own else OWNERS:
            its_role, digest = marks.get(role_mark, ""), marks.get(digest_mark, "")
            asked = its_role == role if exact else its_role.startswith(role)
            if asked and marks.get(state_mark) == wanted and process_id != os.getpid():
                found.append(Child(process_id, its_role, digest, int(port) if port.isdigit() else None))
                break
    return found


def _environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Process number and environment of every live process that we may read.

    A program that is just being started has an empty environment for an instant: it is looked at again.
    """
    import psutil

    unread = list(psutil.process_iter())
    for look in range(STARTING_LOOKS):
        time.sleep(STARTING_LOOK_S if look else 0.0)
        looked, unread = unread, []
        for process in looked:
            with suppress(psutil.Error, OSError):  # another user's, or gone meanwhile
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if marks := process.environ():
                    yield process.pid, marks
                else:
                    unread.append(process)
        if not unread:
            return


def stop(children: Iterable[Child], grace_s: float = GRACE_S, *, at_once: bool = False) -> None:
    """Ask the processes to end, end those that do not, or all `at_once`, and wait until none is left.

    One that has ended and that its parent has not taken note of, be it another process of ours, has ended.
    """
    import psutil

    processes = []
    for child in children:
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(child.process_id))
    for end in ("kill",) if at_once else ("terminate", "kill"):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                getattr(process, end)()
        deadline_s = time.monotonic() + grace_s
        while (processes := [each for each in processes if lives(each)]) and time.monotonic() < deadline_s:
            psutil.wait_procs(processes, timeout=ENDING_LOOK_S)
    if immortal := processes:
        names = ", ".join(str(process.pid) for process in immortal)
        raise RunError(
            f"processes {names} do not end, even when killed", hint="see what holds them with `ps`"
        )


def lives(process: Any) -> bool:
    """Whether a `psutil.Process` still runs; one that has ended and waits to be noted does not."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def stop_all(
    state: Path, role: str = "", grace_s: float = GRACE_S, *, exact: bool = False, at_once: bool = False
) -> int:
    """Stop what is `running` until none is found; returns how many there were."""
    count = 0
    for _ in range(5):  # one that is being started while we look is found by the next look
        found = running(state, role, exact=exact)
        if not found:
            return count
        count += len(found)
        stop(found, grace_s, at_once=at_once)
    raise RunError(f"processes of {state} keep appearing", hint="stop what starts them, then ask again")


def reap() -> None:
    """Take note of our own children that have ended, so that they are gone."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def free_port() -> int:
    """A port of this machine that nobody holds at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def need_free_port(port: int, host: str = "127.0.0.1") -> None:
    """Raise PortError when another program listens on `port`.

    A process that was killed a moment ago holds its port until it is gone: that is waited for.
    """
    patient_until_s = time.monotonic() + PORT_PATIENCE_S
    while True:
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
            return
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < patient_until_s:
                time.sleep(0.05)
                continue
            what = "is taken" if error.errno == errno.EADDRINUSE else "cannot be had"
            raise PortError(
                f"port {port} of {host} {what}: {(error.strerror or str(error)).lower()}",
                hint=f"stop the program that holds it, or choose another with `--port {free_port()}`",
            ) from error


def wait_until_open(port: int, child: Child, log: Path, timeout_s: float, host: str = "127.0.0.1") -> float:
    """Seconds until `child` accepts connections. Raises RunError when it ends or takes longer."""
    import psutil

    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        if is_open(port, host):
            return time.monotonic() - began
        try:
            ended = psutil.Process(child.process_id).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            ended = True
        if ended:
            raise RunError(f"{child.role} ended while starting:\n{last_lines(log)}", hint=f"its log is {log}")
        time.sleep(0.1)
    raise RunError(
        f"{child.role} did not answer within {timeout_s:.0f} s:\n{last_lines(log)}", hint=f"its log is {log}"
    )


def is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0
