"""`up` and `down`: the loop on one machine, from a spec to a page of planned beside measured.

`up` converges: each stage looks at what is there, keeps what still fits, and does the rest. It may be killed
at any time and called again. What it starts is found by its environment, so that `down` misses nothing.
"""

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from twofold.app.loop_settings import GATEWAY_PORT, serve_settings, train_settings
from twofold.app.loop_stages import (
    Asked,
    Tell,
    measure_machine,
    page_of,
    plan_for_it,
    put_under_load,
    serve,
    train,
)
from twofold.app.sources import load, spec_path
from twofold.contracts import LoopPage
from twofold.core import (
    BusyError,
    Dimension,
    FileError,
    MemoryShortError,
    ValueRefusedError,
    parse_quantity,
    require_extra,
)
from twofold.live import running, stop_all

STATE_FOLDER = ".twofold"
LOAD_FOR = "12 s"
HIDING = "CUDA_VISIBLE_DEVICES"
NEEDED_BYTES_PER_PROCESS = 1_000_000_000  # a rank or a replica with its libraries: 0.6-0.9 GB were seen


def up(source: Path, *, port: int = GATEWAY_PORT, load_for: str = LOAD_FOR, tell: Tell) -> LoopPage:
    """Measure this machine, plan for it, train, serve, load, and lay what happened beside what was planned.

    The replicas and the gateway go on serving when it returns; on any error, and on Ctrl-C, everything that
    it started is stopped first. Raises MissingExtraError, MemoryShortError, PortError, BusyError, RunError,
    and what `plan` raises.
    """
    path = spec_path(source)
    spec, load_s = load(path).spec, parse_quantity(load_for, Dimension.TIME)
    if load_s <= 0:
        raise ValueRefusedError(f"a load of `{load_for}` measures nothing", hint=f"write `{LOAD_FOR}`")
    training, serving = train_settings(spec), serve_settings(spec, load_s)
    asked = Asked(path, _state(path), training, serving, port, tell)
    require_extra("train", "live")
    with alone(asked.state), _on_the_processor(), _stopping(asked.state):
        if not running(asked.state):
            need_memory(max(asked.training.rank_count, asked.serving.replica_count), _free_bytes())
        device = measure_machine(asked)
        plan = plan_for_it(asked)
        run, artefact = train(asked, plan)
        service = serve(asked, plan, artefact)
        measured = put_under_load(asked, service, artefact)
        return page_of(asked, plan, device, run, measured)


def down(source: Path, *, keep: bool = False) -> int:
    """Stop everything that `up` started for this spec, and remove its files unless `keep`. How many ended.

    Raises BusyError while an `up` still works: stop that with Ctrl-C.
    """
    require_extra("live")
    state = _state(spec_path(source))
    if not state.is_dir():
        return stop_all(state)
    with alone(state):
        count = stop_all(state)
        if not keep:
            _remove(state)
    return count


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Holds the state's lock. Raises BusyError when another process does; a dead one holds nothing."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"another `twofold` works in `{state}`", hint="wait for it, or stop it with Ctrl-C"
            ) from error
        yield


def need_memory(process_count: int, free_bytes: int) -> None:
    """Raise MemoryShortError unless every process finds the memory it needs."""
    needed = process_count * NEEDED_BYTES_PER_PROCESS
    if free_bytes < needed:
        raise MemoryShortError(
            f"{process_count} processes need {needed / 1e9:.1f} GB of memory;"
            f" {free_bytes / 1e9:.1f} GB are free",
            hint="end other programs, or use a machine with more memory",
        )


def _state(path: Path) -> Path:
    return path.resolve().parent / STATE_FOLDER


def _free_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


@contextmanager
def _on_the_processor() -> Iterator[None]:
    """Hides accelerators from every child: trainer and engine run on the processor; that is measured too."""
    before = os.environ.get(HIDING)
    os.environ[HIDING] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[HIDING]
        else:
            os.environ[HIDING] = before


@contextmanager
def _stopping(state: Path) -> Iterator[None]:
    """Whatever goes wrong inside, nothing is left running; being told to end counts as Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the stopping
        stop_all(state)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove(state: Path) -> None:
    """The whole folder, published artefacts too, though they are read-only."""
    for folder in [state, *(path for path in state.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o700)
    try:
        shutil.rmtree(state)
    except OSError as error:
        raise FileError(f"`{state}` cannot be removed: {error}", hint="remove it by hand") from error
