"""Runs one training job to its end on this machine, whatever is killed on the way.

The launcher of the training library restarts workers that die; this module restarts the launcher, orders the
one kill that a job may ask for, watches the steps, checks what came out, and writes the record. It keeps
nothing in memory that matters: asked again after any crash it ends what is left over, and goes on from the
newest complete checkpoint.

Below the job's folder: `job.json`, `data.json`, `pins/`, `corpus/`, `checkpoints/`, `steps.jsonl`,
`events.jsonl`, `hf/`, `measured.json`.
"""

import argparse
import fcntl
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from twofold.contracts.results import loop
from twofold.core import errors
from twofold.core.errors import FileError, RunError, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.live import watched
from twofold.live.disk import disk_trouble
from twofold.live.otel_metrics import metrics_from
from twofold.live.processes import last_lines, log_path, python_module, running, start, stop_all
from twofold.live.seals import key_of
from twofold.live.training.artefact import MANIFEST, write_whole
from twofold.live.training.checkpoints import check_begun, step_of
from twofold.live.training.data_preparing import DataWanted, prepare_data
from twofold.live.training.rendezvous import address_towards, interface_towards
from twofold.live.training.run_course import measured_run
from twofold.live.training.run_series import RunSeries
from twofold.live.training.run_watch import RunWatch
from twofold.live.training.sealing import (
    CHECKPOINTS,
    KEY,
    ORDER,
    check_sealed,
    key_beside,
    key_of_run,
    sealed_entries,
)
from twofold.live.training.training_record import StepLine, append_event, mend, read_events

MEASURED, EXPORT = "measured.json", "hf"
LINEAGE = "lineage.json"  # of an export: what it was made from
WEIGHTS = "*.safetensors"
SAVE = "save"  # a file: workers of a queue's run that see another text in it write a checkpoint
MAX_RESTARTS = 3  # of the workers, by their launcher, in one launch
MAX_LAUNCHES = 3  # of the launcher, when something kills it
SILENCE_LIMIT_S = 300.0  # without a step or an event a run hangs, and is ended
FULL_LIMIT_S = 3600.0  # as long as that its lines may wait for room on a full disk
WATCH_S = 0.1
NOT_SAVED = "checkpoint-failed"  # an event: a checkpoint could not be written
WAITING = "waiting"  # an event: steps wait for a file of text
STOP = "stop"  # a file: workers that see it save and end
PRECISIONS, DEVICES = ("fp32", "bf16", "fp16"), ("cpu", "cuda")
COMPUTES = ("eager", "compiled")
RECOMPUTES = ("none", "selective", "mlp", "full")
ENVIRONMENT = {  # of the workers
    # Without this, restarted workers read the addresses of the dead ones: pytorch/pytorch#135712.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TrainJob:
    """What to train and how. A job that differs from an earlier one of its name replaces that one's run."""

    name: str
    folder: Path  # of this run alone
    model_config: Path  # a Hugging Face config.json of a causal model
    rank_count: int
    steps: int
    sequence_tokens: int
    global_batch_sequences: int  # of all ranks together, in one step
    zero_stage: int = 3  # 3 gathers the weights again for the backward pass, 2 keeps them from the forward
    precision: str = "fp32"  # of the compute; weights and optimiser are always fp32
    device: str = "cpu"  # cuda: one accelerator for each rank
    checkpoint_every_steps: int = 30
    seed: int = 1
    kill_rank: int | None = None  # this worker is killed once …
    kill_after_step: int | None = None  # … when this step is done
    corpus_bytes: int = 4_000_000  # of text
    peak_learning_rate: float = 1e-3
    warm_up_steps: int = 10  # of the learning rate, linear; then a cosine to a tenth
    weight_decay: float = 0.1
    gradient_norm_limit: float = 1.0
    data: str = ""  # files of text, as `list_files` reads it; "": the standard library's sources
    data_column: str = "text"  # of JSON lines and Parquet tables
    data_workers: int = 2  # files that are staged at once, ahead of the step that reads them
    data_digest: str = ""  # of the files; others are refused
    micro_batch_sequences: int = 0  # of a rank at once, the rest accumulated; 0: its whole share
    recompute: str = "none"  # in the backward pass: nothing, attention (selective), mlp, whole layers (full)
    compute: str = "eager"  # or compiled, where the machine has a compiler
    evaluate_every_steps: int = 0  # on text that is held out; 0: never
    evaluation_sequences: int = 16  # of all ranks together
    weights: str = ""  # a published folder to begin with; "": random weights from the seed
    adapter_rank: int = 0  # trains adapters of this rank beside frozen weights; 0: all weights
    branch_from: str = ""  # a checkpoint of another run, whose state and step this one goes on from
    host_count: int = 1  # with as many ranks each, and one folder that all of them see
    rendezvous: str = ""  # host:port of the first host, where several meet; "": there is one


def run_training(
    job: TrainJob, state: Path, on_progress: Progress, thread_count: int = 0
) -> loop.TrainingMeasured:
    """Train, export and measure; returns at once when that was done before. `thread_count` is of a rank; 0:
    its share of this processor.

    Raises ValueRefusedError for a job that cannot be run, BusyError when another process runs it, RunError
    when training fails for good or hangs, AlteredError when what it exported was changed, UnsealedError for
    checkpoints of others. No process is left behind then, nor on KeyboardInterrupt.
    """
    model = checked_model(job)
    require_extra("train", "live")
    with _only_one(job):
        # At once: a run resumes from what it has written, not from goodbyes.
        stop_all(state, role_of(job), exact=True, at_once=True)
        (job.folder / STOP).unlink(missing_ok=True)
        order = _prepare(job, model, state, on_progress, thread_count)
        done = job.folder / MEASURED
        if not (job.folder / EXPORT).exists():
            _check_seals(job, state)
            _train(job, state, int(order["thread_count"]), on_progress)
        trained_model(job, state)
        if done.exists():
            return loop.read_training_measured(done)
        tokens_per_step = job.global_batch_sequences * job.sequence_tokens
        measured = measured_run(job.folder, job.rank_count, tokens_per_step)
        write_whole(done, loop.write_training_measured(measured))
        return measured


def main(words: Sequence[str] | None = None) -> None:
    """Run an order that `render` wrote: this module with ORDER --folder FOLDER --model-config CONFIG.

    Told to end (SIGTERM: a scheduler's notice) it lets its workers finish a step, save and end, and exits
    with 143; told again, it ends them at once. The next one with this folder goes on from the newest
    checkpoint.
    """
    parser = argparse.ArgumentParser(prog="python -m twofold.live.training.train_job")
    parser.add_argument("order", type=Path, help="JSON with the fields of a job")
    parser.add_argument("--folder", type=Path, required=True, help="of this run alone")
    parser.add_argument("--model-config", type=Path, required=True, help="a config.json")
    parser.add_argument("--join", action="store_true", help="on every host but the first of several")
    told = parser.parse_args(words)
    from twofold.live.training.train_order import read_order  # which knows what a job is

    job = read_order(told.order, folder=told.folder, model_config=told.model_config)
    state = told.folder.parent / ".state"
    if told.join:
        join_training(job, state, _say)
        return
    stopping = Stopping(job.folder)
    signal.signal(signal.SIGTERM, stopping)
    try:
        run_training(job, state, _say)
    except RunError:
        if stopping.is_asked:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Stopping:
    """What a signal to stop does: a file tells the run, whose workers see it at their next step. Mutable."""

    run: Path
    is_asked: bool = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Ask for it; asked twice, leave at once."""
        if self.is_asked:
            raise SystemExit(128 + number)
        self.is_asked = True
        self.run.mkdir(parents=True, exist_ok=True)
        (self.run / STOP).touch()


def trained_model(job: TrainJob, state: Path, *, as_ordered: bool = False) -> Path:
    """The folder that a finished run exported; `as_ordered`: one of this very order, threads apart.

    Raises FileError before that, AlteredError for other bytes, UnsealedError for those of somebody else.
    """
    folder, path = job.folder / EXPORT, job.folder / ORDER
    is_other = (
        as_ordered
        and path.exists()
        and not _is_of(job, checked_model(job), json.loads(path.read_text("utf-8")))
    )
    if is_other or not folder.exists():
        raise FileError(f"`{job.folder}` holds no finished run", hint="train it first")
    check_sealed(folder, key_of_run(job.folder, state))
    return folder


def _is_of(job: TrainJob, model: dict[str, Any], order: dict[str, Any]) -> bool:
    """Whether a run's order is that of this job, threads apart."""
    return (order["job"], order["model"]) == (_fields_of(job), model)


def _fields_of(job: TrainJob) -> dict[str, Any]:
    return {key: value for key, value in asdict(job).items() if key not in ("folder", "model_config")}


def _check_seals(job: TrainJob, state: Path) -> None:
    """Make the key that seals the run, where none is, and refuse checkpoints that it did not seal before a
    worker starts."""
    key = key_of_run(job.folder, state)
    check_begun(job.folder / CHECKPOINTS, key)
    if job.branch_from:
        sealed_entries(Path(job.branch_from), key)


def role_of(job: TrainJob) -> str:
    """The role that every process of the job carries."""
    return f"train-{job.name}"


def checked_model(job: TrainJob) -> dict[str, Any]:
    """The model's configuration, after everything that can be refused beforehand was."""
    try:
        model = json.loads(job.model_config.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = f"`{job.model_config}` cannot be read: {getattr(error, 'strerror', None) or error}"
        raise FileError(why, hint="give a model's config.json") from error
    for message, refused in (_refusals(job, model) | _refused_options(job)).items():
        if refused:
            raise ValueRefusedError(message, hint=f"the job is `{job.name}`, its model `{job.model_config}`")
    return dict(model)


def _refusals(job: TrainJob, model: dict[str, Any]) -> dict[str, bool]:
    """What is wrong with the numbers of a job, and whether it is."""
    longest = model.get("max_position_embeddings") or model.get("n_positions") or job.sequence_tokens
    ranks, micro = max(1, job.rank_count), job.micro_batch_sequences
    share = job.global_batch_sequences // ranks
    return {
        f"{job.global_batch_sequences} sequences cannot be split evenly over {job.rank_count} ranks": (
            job.rank_count < 1
            or job.global_batch_sequences < 1
            or job.global_batch_sequences % job.rank_count != 0
        ),
        f"the {share} sequences of a rank are not whole micro-batches of {micro}": (
            micro < 0 or (micro > 0 and share % micro != 0)
        ),
        f"{job.rank_count} ranks cannot be split evenly over {job.host_count} hosts": (
            job.host_count < 1 or job.rank_count % job.host_count != 0
        ),
        f"{job.host_count} hosts need an address to meet at": job.host_count > 1 and not job.rendezvous,
        f"sequences of {job.sequence_tokens} tokens exceed the model's longest": (
            not 0 < job.sequence_tokens <= longest
        ),
        f"rank {job.kill_rank} cannot be killed among {job.rank_count}": (
            job.kill_rank is not None and not 0 <= job.kill_rank < job.rank_count
        ),
        f"{job.data_workers} processes cannot stage data": not 1 <= job.data_workers <= 64,
        "a run needs at least one step between checkpoints and in all": (
            job.steps < 1 or job.checkpoint_every_steps < 1
        ),
        "a model without a `model_type` cannot be trained": not isinstance(model.get("model_type"), str),
        "a model without a `vocab_size` cannot be trained": not isinstance(model.get("vocab_size"), int),
    }


def _refused_options(job: TrainJob) -> dict[str, bool]:
    """What a job asks for that there is not, and whether it does."""
    branch = Path(job.branch_from)
    return {
        f"precision `{job.precision}` cannot be trained here": job.precision not in PRECISIONS,
        f"a device `{job.device}` cannot be trained on": job.device not in DEVICES,
        f"recompute `{job.recompute}` is not known": job.recompute not in RECOMPUTES,
        f"compute `{job.compute}` is not known": job.compute not in COMPUTES,
        f"`{job.weights}` holds no weights": bool(job.weights) and not any(Path(job.weights).glob(WEIGHTS)),
        "adapters need the library peft, which is not installed: pip install 'twofold[train]'": (
            job.adapter_rank > 0 and find_spec("peft") is None
        ),
        f"`{job.branch_from}` is no whole checkpoint": bool(job.branch_from)
        and not (branch / MANIFEST).is_file(),
        f"a run of {job.steps} steps cannot go on from `{branch.name}`": (
            bool(job.branch_from) and branch.name.startswith("step-") and step_of(branch) >= job.steps
        ),
    }


@contextmanager
def _only_one(job: TrainJob) -> Iterator[None]:
    """Hold the job's lock. The system releases it whatever kills us; children do not inherit it."""
    path = job.folder.with_name(f"{job.folder.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.BusyError(
                f"`{job.name}` is being trained by another process", hint="wait for it, or stop it"
            ) from error
        yield


def _prepare(
    job: TrainJob, model: dict[str, Any], state: Path, on_progress: Progress, thread_count: int
) -> dict[str, Any]:
    """The order that workers read, written down; a run of another order under this name is moved aside."""
    order = {
        "job": _fields_of(job),
        "model": model,
        # Kept from the first launch on: the number of threads decides the order of sums, so the last bits.
        "thread_count": thread_count
        or max(1, len(os.sched_getaffinity(0)) * job.host_count // job.rank_count),
    }
    path = job.folder / ORDER
    if path.exists():
        before = json.loads(path.read_text("utf-8"))
        if _is_of(job, model, before):
            order["thread_count"] = before["thread_count"]
        else:
            on_progress(f"`{job.name}` was trained to another order before: that run is moved aside")
            # The run before this one is kept, and only that one: its checkpoints are large.
            aside = job.folder.with_name(f"{job.folder.name}.replaced")
            if aside.exists():
                shutil.rmtree(aside)
            job.folder.rename(aside)
    if not (job.folder / EXPORT).exists():
        on_progress("preparing the data")
        order["corpus"] = prepare_data(job.folder, state / "staged", _data_of(job, model), on_progress).name
    elif path.exists():
        order["corpus"] = json.loads(path.read_text("utf-8"))["corpus"]
    write_whole(path, json.dumps(order, indent=1) + "\n")
    return order


def _data_of(job: TrainJob, model: dict[str, Any]) -> DataWanted:
    return DataWanted(
        data=job.data,
        corpus_bytes=job.corpus_bytes,
        column=job.data_column,
        worker_count=job.data_workers,
        digest=job.data_digest,
        vocabulary_tokens=int(model["vocab_size"]),
        model_folder=job.model_config.parent,
        seed=job.seed,
    )


def _train(job: TrainJob, state: Path, thread_count: int, on_progress: Progress) -> None:
    """Launch the workers until the checkpoint is exported. A launcher that was killed is started again."""
    for _ in range(MAX_LAUNCHES):
        exit_code = _launch(job, state, thread_count, on_progress)
        if (job.folder / EXPORT).exists():
            return
        if exit_code >= 0:  # it gave up by itself: it has used all its restarts
            break
        on_progress(f"the launcher ended by signal {-exit_code}")
    raise _failure(job, state, f"failed after {MAX_RESTARTS} restarts")


def _launch(job: TrainJob, state: Path, thread_count: int, on_progress: Progress) -> int:
    """Start the launcher and watch it to its end; returns its exit code, negative for a signal."""
    mend(job.folder / "events.jsonl")
    launch = 1 + len(read_events(job.folder, "launched"))
    watch = RunWatch(job.folder, launch)
    series = run_series(job, watch)
    while watch.look()[1]:  # what earlier launches wrote
        pass
    append_event(job.folder, "launched", launch=launch)
    on_progress(f"starting {job.rank_count} workers of {thread_count} threads each")
    with (
        _sent(series),
        _launcher(job, state, launch, thread_count, role_of(job)) as launcher,
    ):
        _watch(job, state, launcher, watch, series, on_progress)
        exit_code = int(launcher.wait() or 0)
    watch.look()
    series.write(now_s=math.inf)
    if watch.has_stopped:
        saved = f"has saved step {watch.saved_step}" if watch.saved_step else "has saved nothing"
        raise RunError(
            f"training `{job.name}` was told to stop, and {saved}", hint="the same command goes on from there"
        )
    return exit_code


def run_series(job: TrainJob, watch: RunWatch) -> RunSeries:
    """The run to those who watch it, under the same names as a service."""
    tokens_per_step = job.global_batch_sequences * job.sequence_tokens
    return RunSeries(watch, watched.resource_of(watched.TRAINING, job.name), tokens_per_step)


@contextmanager
def _sent(series: RunSeries) -> Iterator[None]:
    """Its series by OpenTelemetry, where the environment asks for them; sent at the end."""
    provider = metrics_from(os.environ, series.resource, series.families)
    try:
        yield
    finally:
        if provider is not None:
            provider.shutdown()


@contextmanager
def _launcher(job: TrainJob, state: Path, launch: int, thread_count: int, role: str) -> Iterator[Any]:
    """The workers' launcher on this host, as a process; it and its workers are ended afterwards."""
    import psutil

    told = {"TWOFOLD_LAUNCH": str(launch), "OMP_NUM_THREADS": str(thread_count), **ENVIRONMENT}
    told[KEY] = str(key_beside(state))
    if job.rendezvous:
        told["GLOO_SOCKET_IFNAME"] = interface_towards(job.rendezvous)
    try:
        # Ours: its workers stage data beside the training, with whatever keys its addresses ask for.
        child = start(launch_command(job), role, state, environment=told, is_ours=True)
        yield psutil.Process(child.process_id)
    finally:
        stop_all(state, role, exact=True, at_once=True)


def launch_command(job: TrainJob) -> list[str]:
    """The line that starts the workers of this host, whoever gave the order: `up`, or a rendered script."""
    meets = ["--standalone", "--local-addr", "127.0.0.1"]
    if job.rendezvous:
        own, first = address_towards(job.rendezvous), job.rendezvous.rpartition(":")[0]
        meets = ["--nnodes", str(job.host_count), "--rdzv-backend", "c10d", "--rdzv-id", job.name]
        meets += ["--rdzv-endpoint", job.rendezvous, "--rdzv-conf", f"is_host={int(own == first)}"]
        meets += ["--local-addr", own]
    return python_module(
        "torch.distributed.run",
        *meets,
        *("--nproc-per-node", str(job.rank_count // job.host_count)),
        *("--max-restarts", str(MAX_RESTARTS)),
        *("-m", "twofold.live.training.train_worker", str((job.folder / ORDER).resolve())),
    )


def join_training(job: TrainJob, state: Path, on_progress: Progress) -> None:
    """Run the share of this host in a job that `run_training` of the first host runs, to its end.

    Raises RunError when that one's launches end without an export, or none begins, FileError without the key
    that the first host seals by.
    """
    if not job.rendezvous:
        raise ValueRefusedError("nobody to join", hint="give `rendezvous`, as host:port of the first host")
    joined, heard_s = 0, time.monotonic()
    while not (job.folder / EXPORT).exists():
        launch = max((int(event["launch"]) for event in read_events(job.folder, "launched")), default=0)
        if joined and any(event["launch"] == joined for event in read_events(job.folder, "stopped")):
            return
        if launch > joined:
            joined = launch
            key_of(key_beside(state), make=False)  # the first host's, which any rank may need
            order = json.loads((job.folder / ORDER).read_text("utf-8"))
            on_progress(f"joining launch {joined} of `{job.name}`")
            with _launcher(
                job, state, joined, int(order["thread_count"]), f"{role_of(job)}-joined"
            ) as launcher:
                launcher.wait()
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > SILENCE_LIMIT_S:
            raise RunError(f"nobody launches `{job.name}`", hint="start it on the first host")
        time.sleep(WATCH_S)


def _watch(
    job: TrainJob, state: Path, launcher: Any, watch: RunWatch, series: RunSeries, on_progress: Progress
) -> None:
    """Until the launcher ends: say each step, order the kill when its time has come, end a run that hangs."""
    heard_s = full_s = time.monotonic()  # `full_s`: since when silence is the disk's
    may_kill = job.kill_rank is not None and job.kill_after_step is not None
    may_kill = may_kill and not read_events(job.folder, "kill-ordered")
    while launcher.is_running() and launcher.status() != "zombie":
        steps, has_news = watch.look()
        for line in steps:
            loss = float.fromhex(line.loss)
            on_progress(f"step {line.step} of {job.steps}: loss {loss:.3f}, {line.step_s:.2f} s")
        if has_news:
            heard_s = full_s = time.monotonic()
            series.write()
            if watch.is_futile:
                raise _failure(job, state, "failed twice before its first step")
            if may_kill and watch.last and watch.last.step >= (job.kill_after_step or 0):
                may_kill = False
                _kill_once(job, state, watch.last, on_progress)
        elif time.monotonic() - heard_s > SILENCE_LIMIT_S:
            is_full = disk_trouble(job.folder).startswith("full")  # its lines wait for room
            if is_full and time.monotonic() - full_s < FULL_LIMIT_S:
                on_progress(f"the disk of `{job.folder}` is full: make room, and its steps are written down")
                heard_s = time.monotonic()
                continue
            silent_s = time.monotonic() - full_s
            what = ", the disk being full" if is_full else _waited_for(job.folder)
            raise _failure(job, state, f"did nothing for {silent_s:.0f} s{what}")
        time.sleep(WATCH_S)


def _waited_for(run: Path) -> str:
    """Which file of text a run that does nothing waits for, in words; "" where it waits for none."""
    file = ""
    for event in read_events(run):
        if event["event"] == WAITING:
            file = event["file"]
        elif event["event"] == "launched" or (event["event"] == "staged" and event["file"] == file):
            file = ""
    return f", for it waits for `{file}`" if file else ""


def _failure(job: TrainJob, state: Path, what: str) -> RunError:
    """The error of a run that came to nothing, with what its own log says at the end."""
    log = log_path(state, role_of(job))
    said = last_lines(log)
    hint = f"its log is {log}"
    if "(exitcode: -9)" in said:
        hint += "; a worker that something killed by signal 9 ran out of memory"
    return RunError(f"training `{job.name}` {what}:\n{said}", hint=hint)


def _kill_once(job: TrainJob, state: Path, line: StepLine, on_progress: Progress) -> None:
    """Kill the worker that the job names. The order is written first: if we die here, it is not repeated."""
    append_event(job.folder, "kill-ordered", rank=job.kill_rank or 0, after_step=line.step)
    ours = {each.process_id for each in running(state, role_of(job), exact=True)}
    workers = [
        event["process_id"]
        for event in read_events(job.folder, "worker")
        if (event["launch"], event["attempt"], event["rank"]) == (line.launch, line.attempt, job.kill_rank)
        and event["process_id"] in ours  # the number may belong to someone else by now
    ]
    if not workers:
        return
    on_progress(f"killing worker {job.kill_rank} after step {line.step}")
    sent = {"sent_at_s": time.time(), "sent_steady_s": time.monotonic()}
    os.kill(workers[-1], signal.SIGKILL)
    at = {"after_step": line.step, "launch": line.launch, "attempt": line.attempt}
    append_event(job.folder, "killed", rank=job.kill_rank or 0, **at, **sent)


if __name__ == "__main__":
    try:
        main()
    except errors.TwofoldError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
