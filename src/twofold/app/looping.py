"""`up` and `down`: the loop on one machine, from a spec to a page of planned beside measured.

`up` converges: each stage looks at what is there, keeps what still fits, and does the rest. It may be killed
at any time and called again. What it starts is found by its environment, so that `down` misses nothing.
"""

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from twofold.app import loop_stages, proof_stages, scaling_out
from twofold.app.gates import ServedGate
from twofold.app.loop_page import LoopShown
from twofold.app.loop_settings import (
    GATEWAY_PORT,
    NEEDED_BYTES_PER_PROCESS,
    STATE_FOLDER,
    LoopRequest,
    OnProgress,
    name_of,
    serve_settings,
    train_settings,
)
from twofold.app.proof_stages import ProofShown
from twofold.app.proving import USUAL_COUNT
from twofold.app.releasing import OF_OTHERS, Release, model_name, named, released, served_words
from twofold.app.sources import load, spec_path
from twofold.app.trying import PROMOTED, refusal_of, try_variants, until_decided
from twofold.contracts.results import loop, proof
from twofold.core import errors
from twofold.core.errors import FileError, InfeasibleError, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.core.quantity import Dimension, parse_quantity
from twofold.device.files import DeviceRecord
from twofold.live.control import trials
from twofold.live.control.supervisor import Service, bring_down, need_gateway_port
from twofold.live.gateway.keys import keys_beside
from twofold.live.gateway.reach import Reach
from twofold.live.processes import PRIVATE_UMASK, make_private, running, stop_all
from twofold.live.registry.registry import ReleaseRefusedError
from twofold.pages.shown_plan import ShownPlan
from twofold.report.answers import Shown

HOST = "127.0.0.1"  # where nobody but this machine reaches the gateway
LOAD_FOR = "12 s"  # that each load is held, where nothing else is said
HIDING = "CUDA_VISIBLE_DEVICES"
ENDING = (signal.SIGTERM, signal.SIGHUP)  # told to end; the terminal was closed


class MemoryShortError(InfeasibleError):
    """The machine has less free memory than a run needs: says how much, and what to shrink."""

    code = "E-memory"


@dataclass(frozen=True, slots=True)
class Stopped(Shown):
    """What `down` found and ended."""

    schema = "twofold/down/1"
    stopped_processes: int
    state_removed: bool
    found: bool  # whether there was any state

    @property
    def lines(self) -> list[str]:
        """In one line."""
        count, kept = self.stopped_processes, "state removed" if self.state_removed else "state kept"
        state = kept if self.found else "no state there"
        return [f"{count} process{'es' if count != 1 else ''} stopped; {state}"]

    @property
    def as_data(self) -> dict[str, Any]:
        """What is other than before."""
        return {"stopped_processes": self.stopped_processes, "state_removed": self.state_removed}


@dataclass(frozen=True, slots=True)
class Standing:
    """What `up` has brought up, from its plan to a service that answers."""

    request: LoopRequest
    device: DeviceRecord
    plan: ShownPlan
    gate: ServedGate
    run: loop.TrainingMeasured | None
    release: Release
    service: Service


def up(
    source: Path,
    *,
    port: int = GATEWAY_PORT,
    host: str = HOST,
    certificate: Path | None = None,
    private_key: Path | None = None,
    load_for: str = "",
    program: str = "",
    try_releases: bool = False,
    scale_out: bool = False,
    tell: OnProgress,
) -> loop.LoopPage:
    """Measure this machine, plan for it, train, serve, load, and lay what happened beside what was planned.

    The service goes on when it returns, held up by its controller. It is put under load when it is new or
    when `load_for` is said, never while others use it. `program` is the path of the spec's engine, where it
    is not found by its name. The gateway listens at `host`; beyond loopback that needs keys (`twofold keys
    add`). With `certificate` and `private_key`, files in PEM form, clients speak TLS with it. `try_releases`
    offers two releases of what serves while it serves, one as good and one slower; a server by URL is not
    ours to release to, and what is trained is registered and evaluated alone. With `scale_out` one replica
    more is started under the planned load, cold and warm, and what that took is kept for plans
    (`.twofold/starts.csv`). What rules or gate refuse is not served: ReleaseRefusedError, and what serves
    goes on. On any error once the work has begun, on Ctrl-C, and when told to end (SIGTERM, SIGHUP:
    SystemExit 128 + its number), everything that it started is stopped first.
    Raises MissingExtraError, MemoryShortError, PortError, BusyError (also while a job of the queue has the
    slots that it would train on), RunError, and what `plan` raises.
    """
    if try_releases:
        _need_own_engines(source, OF_OTHERS, "--try-releases")
    reach = Reach.checked(host, certificate, private_key, keys_beside(state_of(source)))
    with _brought_up(source, port, reach, load_for, program, tell) as at:
        measured, said = loop_stages.measured_service(
            at.request, at.service, at.release.folder, at.gate.built.digest, load_asked=bool(load_for)
        )
        if scale_out:
            measured, more = scaling_out.scaled_out(at.request, at.release.folder, at.gate, measured)
            said = (*said, *more)
        tail = scaling_out.twin_of(at.gate.task, at.request, measured.scale_out)
        releases = try_variants(at.request, at.gate) if try_releases else ()
        said = (*said, served_words(at.request, at.release))
        return loop_stages.page_of(
            at.request, at.plan, at.device, at.run, measured, at.gate, said, releases, tail
        )


def prove(
    source: Path,
    *,
    port: int = GATEWAY_PORT,
    host: str = HOST,
    certificate: Path | None = None,
    private_key: Path | None = None,
    requests: int = USUAL_COUNT,
    seed: int = 0,
    program: str = "",
    tell: OnProgress = lambda _: None,
) -> proof.Proof:
    """Bring the service up, calibrate the twin on one half of the prompts, freeze what it says of four
    scenarios (steady, a burst, a replica killed, a bad release), run each twice for real, and compare.

    `requests` are to be finished in each run; with fewer than 400 only the steady and the killed scenario
    are run. Raises BusyError while others use the service: replicas of it are killed. Else as `up`.
    """
    proof_stages.need_alone(state_of(source))  # before anything that an error would stop
    _need_own_engines(source, "none of its replicas can be killed", "--prove")
    reach = Reach.checked(host, certificate, private_key, keys_beside(state_of(source)))
    with _brought_up(source, port, reach, "", program, tell) as at:
        return proof_stages.proof_of(
            at.request, at.plan, at.device, at.run, at.gate, at.release, requests, seed
        )


def _need_own_engines(source: Path, why: str, option: str) -> None:
    if any(each.server for each in load(spec_path(source)).spec.services):
        raise ValueRefusedError(
            f"the service runs elsewhere: {why}", hint=f"leave out `server:`, or `{option}`"
        )


@contextmanager
def _brought_up(
    source: Path, port: int, reach: Reach, load_for: str, program: str, tell: OnProgress
) -> Iterator[Standing]:
    """Everything up to a service that answers; whatever goes wrong from then on stops it."""
    path = spec_path(source)
    spec, load_s = load(path).spec, parse_quantity(load_for or LOAD_FOR, Dimension.TIME)
    if load_s <= 0:
        raise ValueRefusedError(f"a load of `{load_for}` measures nothing", hint=f"write `{LOAD_FOR}`")
    state = state_of(path)
    serving = serve_settings(spec, load_s, program)
    training = None if serving.registered else train_settings(spec, state)
    if training is not None and training.adapter_rank:
        what = "`up` serves whole weights, and `kind: lora` trains adapters"
        raise ValueRefusedError(what, hint="write `kind: finetune`, or queue it with `twofold jobs submit`")
    name = model_name(path, serving.registered) if training is None else name_of(training.name)
    request = LoopRequest(path, state, training, serving, port, tell, name, reach)
    require_extra("train", "live")
    if "@" in str(state):
        what = f"the engine reads the `@` in `{state}` as the start of a revision"
        raise ValueRefusedError(what, hint="move the spec into a folder without `@`")
    with alone(state), _private():
        # Now, not after minutes; what serves already is left alone.
        need_gateway_port(port, state, reach.host)
        if training is not None:
            loop_stages.need_idle_slots(training, state)
        with stopping(state):
            with trials.measuring(state):  # a `registry promote` ends what it measures by
                stop_all(state, "train-")  # of an `up` that was killed: it would disturb the measuring
            if not running(state):
                import psutil

                free_bytes = int(psutil.virtual_memory().available)
                need_memory(max(request.share_count, serving.replica_count), free_bytes)
            with _seeing("cpu" if training is None else training.device):
                device = loop_stages.measure_machine(request)
                plan = loop_stages.plan_for_it(request)
                request, gate = loop_stages.gate_for_it(request)
                run, trained = (
                    (None, None) if training is None else loop_stages.train(request, training, plan)
                )
            loop_stages.keep_watch_files(request, plan, gate)
            try:
                release, service = _served(request, gate, trained)
            except ReleaseRefusedError as error:
                if not trials.serving_version(state):
                    raise
                refused = error
            else:
                yield Standing(request, device, plan, gate, run, release, service)
                return
        raise refused  # what served before serves on


def _served(request: LoopRequest, gate: ServedGate, trained: Path | None) -> tuple[Release, Service]:
    """What the rules let through, and the gate where something serves already."""
    settings = gate.built.settings
    release = named(request, settings) if trained is None else released(request, settings, trained)
    offered_s = time.monotonic()
    service = loop_stages.serve(request, gate, release)
    if release.is_tried:
        tried = until_decided(request, release, "as trained" if trained else "as named", offered_s)
        if tried.outcome != PROMOTED:
            raise refusal_of(tried)
    return release, service


def up_page(
    spec: Path,
    port: int,
    host: str,
    certificate: Path | None,
    private_key: Path | None,
    load_for: str,
    program: str,
    try_releases: bool,
    scale_out: bool,
    as_proof: bool,
    requests: int | None,
    seed: int | None,
    tell: OnProgress,
) -> LoopShown | ProofShown:
    """The same, as a page that shows itself. Raises UsageError for a proof that is to do other things too,
    and for what is a proof's alone without one."""
    beside = {"--load-for": load_for, "--try-releases": try_releases, "--scale-out": scale_out}
    if as_proof and (told := [name for name, value in beside.items() if value]):
        what = f"`--prove` has loads of its own, and does not go with `{told[0]}`"
        raise errors.UsageError(what, hint="call `twofold up` twice, once with each")
    of_proof = {"--requests": requests, "--seed": seed}
    if not as_proof and (told := [name for name, value in of_proof.items() if value is not None]):
        hint = "leave it out; `--prove` runs a quarter of an hour of requests and kills replicas"
        raise errors.UsageError(f"`{told[0]}` is for `--prove` alone", hint=hint)
    at: dict[str, Any] = {
        "port": port,
        "host": host,
        "certificate": certificate,
        "private_key": private_key,
        "program": program,
        "tell": tell,
    }
    if as_proof:
        return ProofShown(prove(spec, requests=requests or USUAL_COUNT, seed=seed or 0, **at))
    at |= {"try_releases": try_releases, "scale_out": scale_out}
    return LoopShown(up(spec, load_for=load_for, **at))


def down(source: Path, *, keep: bool = False) -> int:
    """Stop everything that `up` started for this spec, and remove its files unless `keep`. How many ended.

    Raises BusyError while an `up` still works: stop that with Ctrl-C. Raises FileError when there is no such
    spec and nothing of it runs.
    """
    require_extra("live")
    if not source.exists():
        # What a spec has left running whose folder is gone; a mistyped name must not mean another spec.
        path = source.resolve()
        states = [folder / STATE_FOLDER for folder in (path, path.parent)]
        count = sum(bring_down(state) for state in states if not state.exists())
        if not count:
            hint = "name the spec that `up` was given, or its folder"
            raise FileError(f"`{source}` does not exist", hint=hint)
        return count
    state = state_of(spec_path(source))
    if not state.is_dir():
        _erase(_removed(state))  # by a `down` that was killed
        return bring_down(state)
    with alone(state):
        count = bring_down(state)
        if not keep:
            _remove(state)
    return count


def stop(spec: Path, keep: bool) -> Stopped:
    """The same, with what became of the state."""
    there = state_of(spec).is_dir()
    return Stopped(down(spec, keep=keep), there and not keep, there)


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Holds the state's lock. Raises BusyError when another process does; a dead one holds nothing."""
    make_private(state)
    path = state / "lock"
    hint = "wait for it, or stop it with Ctrl-C"
    busy = errors.BusyError(f"another `twofold` works in `{state}`", hint=hint)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise busy from error
        # Between opening and locking, a `down` may have removed the file: then this lock holds nobody off.
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno()))):
            raise busy
        yield


def need_memory(process_count: int, free_bytes: int) -> None:
    """Raise MemoryShortError unless every process finds the memory it needs."""
    needed = process_count * NEEDED_BYTES_PER_PROCESS
    if free_bytes < needed:
        need, free = f"{needed / 1e9:.1f} GB of memory", f"{free_bytes / 1e9:.1f} GB are free"
        hint = "end other programs, or use a machine with more memory"
        raise MemoryShortError(f"{process_count} processes need {need}; {free}", hint=hint)


def state_of(source: Path) -> Path:
    """The folder that holds everything of a spec's loop; it need not be there."""
    return spec_path(source).resolve().parent / STATE_FOLDER


def known_state(spec: Path) -> Path:
    """The same of a spec that is there. Raises FileError for one that is not: a mistyped name is no spec."""
    if not spec_path(spec).is_file():
        raise FileError(f"`{spec}` does not exist", hint="name the spec that `up` is given, or its folder")
    return state_of(spec)


@contextmanager
def _seeing(device: str) -> Iterator[None]:
    """Hides accelerators from what is measured and trained on the processor, and from nothing else. Engines
    are hidden from what they are not to run on by their own settings."""
    if device != "cpu":
        yield
        return
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
def _private() -> Iterator[None]:
    """What is written inside is for our own user: keys, logs and weights lie there."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def stopping(state: Path) -> Iterator[None]:
    """Whatever goes wrong inside, nothing is left running; being told to end counts as Ctrl-C does.

    While it stops things no further signal stops the stopping. What the caller ignores (`nohup`) stays
    ignored. Outside the main thread signals are the caller's to deal with.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    for number in ENDING:
        if before.get(number, signal.SIG_IGN) != signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    except BaseException:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        bring_down(state)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _remove(state: Path) -> None:
    """The whole folder, in one step: who comes meanwhile finds all of it or nothing."""
    if state.is_symlink():
        raise FileError(f"`{state}` is a link", hint="remove it, and what it points to, by hand")
    _erase(_removed(state))
    try:
        state.rename(_removed(state))
    except OSError as error:
        raise FileError(f"`{state}` cannot be removed: {error}", hint="remove it by hand") from error
    _erase(_removed(state))


def _removed(state: Path) -> Path:
    return state.with_name(f"{state.name}.removed")


def _erase(folder: Path) -> None:
    """A folder if it is there, read-only ones in it too."""
    if not folder.is_dir():
        return
    try:
        inside = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
        for each in (folder, *inside):
            each.chmod(0o700)
        shutil.rmtree(folder)
    except OSError as error:
        raise FileError(f"`{folder}` cannot be removed: {error}", hint="remove it by hand") from error
