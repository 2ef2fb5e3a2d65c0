"""`up` and `down` around their stages: one at a time, enough memory, specs that cannot run here."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.device.test_files import TABLES, record
from tests.fake_nvidia import nvidia_smi
from twofold.app import loop_stages, looping
from twofold.app.loop_settings import LoopRequest, engine_settings, serve_settings, train_settings
from twofold.app.loop_stages import measure_machine
from twofold.app.looping import MemoryShortError, alone, down, need_memory, up
from twofold.app.sources import DEVICE_FOLDER, load
from twofold.core.errors import BusyError, FileError, UsageError, ValueRefusedError
from twofold.device.files import this_identity, write_device
from twofold.live.control.engines import engine_command, engine_environment
from twofold.live.processes import PortError

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop" / "twofold.yaml"


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The example with one piece of text replaced, beside its model."""
    text = EXAMPLE.read_text("utf-8")
    assert old in text
    for name in ("config.json", "other.json"):
        (tmp_path / name).write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    (tmp_path / "twofold.yaml").write_text(text.replace(old, new), "utf-8")
    return tmp_path / "twofold.yaml"


def test_one_works_on_a_state_at_a_time_and_the_next_may(tmp_path: Path) -> None:
    state = tmp_path / ".twofold"
    with alone(state), pytest.raises(BusyError, match="another `twofold` works"), alone(state):
        pass
    with alone(state):
        assert state.is_dir()


def test_a_device_that_was_measured_before_is_taken_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = replace(record(this_identity()), measured_on=date.today())
    monkeypatch.setattr(loop_stages, "measure_device", lambda *_: SimpleNamespace(record=fresh))
    spec, said = changed(tmp_path, "steps:", "steps:"), list[str]()
    run, told = train_settings(load(spec).spec, tmp_path), serve_settings(load(spec).spec, 1.0)
    run = replace(run, device="cpu")
    request = LoopRequest(spec, tmp_path / ".twofold", run, told, 1, said.append, "tiny")
    assert measure_machine(request) == fresh and said == ["measure this machine"]
    write_device(tmp_path / DEVICE_FOLDER, TABLES, fresh)
    assert measure_machine(request) == fresh
    assert said[1:] == [f"measured before, and taken as it is: this machine, on {date.today()}"]


def test_memory_is_counted_per_process() -> None:
    need_memory(2, 2_000_000_000)
    with pytest.raises(
        MemoryShortError, match=r"2 processes need 2\.0 GB of memory; 1\.5 GB are free"
    ) as caught:
        need_memory(2, 1_500_000_000)
    assert caught.value.exit_code == 3


def test_the_example_becomes_one_run_that_loses_a_worker_between_two_checkpoints() -> None:
    settings = train_settings(load(EXAMPLE).spec, Path("state"))
    assert settings.rank_count == 2
    assert settings.model_config.is_file()
    assert settings.kill_rank is not None and settings.kill_after_step is not None
    assert settings.kill_after_step % settings.checkpoint_every_steps > 0
    assert settings.checkpoint_every_steps < settings.kill_after_step < settings.steps


def test_the_example_becomes_two_replicas_with_the_loads_of_its_class() -> None:
    settings = serve_settings(load(EXAMPLE).spec, load_s=5.0)
    assert (settings.replica_count, settings.closed_loads, settings.rate_per_s) == (2, (1, 4, 16), 2.0)
    assert (settings.input_tokens, settings.output_tokens) == (128, 48)
    assert (settings.planned_format, settings.weights_format) == ("fp32", "float32")
    assert (settings.engine, settings.program) == ("transformers", "")


@pytest.mark.parametrize(
    ("count", "hidden", "device"), [(0, None, "cpu"), (1, None, "cpu"), (2, None, "cuda"), (2, "", "cpu")]
)
def test_this_machine_is_its_accelerators_where_each_share_has_one_and_nothing_hides_them(
    count: int, hidden: str | None, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a stand-in for the driver's tool; the example has two shares. Who hides them has the processor."""
    nvidia_smi(tmp_path, monkeypatch, count)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    job, serving = train_settings(load(EXAMPLE).spec, tmp_path), serve_settings(load(EXAMPLE).spec, 5.0)
    assert (job.device, serving.device) == (device, device)
    engine = engine_settings(replace(serving, program=sys.executable), tmp_path)
    assert engine.device == device and ("--device", device) in pairwise(engine_command(engine))
    assert (engine_environment(engine).get("CUDA_VISIBLE_DEVICES") == "") == (device == "cpu")
    with looping._seeing(job.device):
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == (hidden if device == "cuda" else "")
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == hidden


def test_the_engine_of_a_spec_is_found_by_its_name_or_by_a_path_or_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = load(changed(tmp_path, "engine: transformers", "engine: llama.cpp")).spec
    with pytest.raises(FileError, match="no `llama-server` is found") as caught:
        serve_settings(spec, load_s=5.0)
    assert caught.value.exit_code == 2 and "--program PATH" in caught.value.hint
    with pytest.raises(FileError, match="is no program that can be run"):
        serve_settings(spec, 5.0, program=str(tmp_path / "config.json"))
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for told in ("", str(program)):
        settings = serve_settings(spec, 5.0, told)
        assert (settings.engine, settings.program) == ("llama.cpp", str(program))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1x2xthis-machine", "1x8xH100-SXM", "not on this machine"),
        ("steps: 110", "tokens: 1 Gtok", "gives no `steps`"),
        ("global_batch: 8 seq", "global_batch: 7 seq", "does not divide by 2 ranks"),
        ("model: ./config.json", "model: llama-3.2-1b", "trains from a config.json"),
        ("  quantisation: fp32", "  quantisation: fp8", "cannot be served here"),
        ("kv_quantisation: fp32", "kv_quantisation: int8", "cache is kept in `fp32` here"),
        ("engine: transformers", "engine: sglang", "`sglang` cannot serve here"),
        ("  on: 1xthis-machine", "  on: 1x2xthis-machine", "one share of this machine"),
        ("  engine: transformers", "  engine: transformers\n  model: ./other.json", "of another model"),
        ("{mean: 48 tok, p95: 128 tok}", "{mean: 9000 tok}", "does not fit: model and cache hold"),
    ],
)
def test_a_spec_that_cannot_run_here_is_refused_before_anything_starts(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    spec = load(changed(tmp_path, old, new)).spec
    with pytest.raises(ValueRefusedError, match=said) as caught:
        train_settings(spec, tmp_path), serve_settings(spec, load_s=5.0)
    assert caught.value.hint


def test_a_lock_that_was_removed_before_it_was_held_holds_nobody_off_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    state, lock = tmp_path / ".twofold", fcntl.flock

    def removed_meanwhile(file: object, how: int) -> None:
        (state / "lock").unlink()
        lock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with pytest.raises(BusyError), alone(state):
        pass


def test_a_folder_that_the_engine_cannot_name_is_refused_first(tmp_path: Path) -> None:
    for library in ("psutil", "torch"):
        pytest.importorskip(library, reason="needs the extras [train] and [live]: `make extras`")
    (tmp_path / "me@work").mkdir()
    with pytest.raises(ValueRefusedError, match="start of a revision"):
        up(changed(tmp_path / "me@work", "steps: 110", "steps: 110"), tell=lambda _: None)


# --- with processes ---


WAIT = "import threading; threading.Event().wait()"
# A shell starts what it runs in the background with these two ignored, and children inherit that.
STOPPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from twofold.app.looping import stopping
from twofold.cli import main
from twofold.live.processes import start
import twofold.cli.entry, threading
state = Path(sys.argv[1])
def run(argv):
    with stopping(state):
        start([sys.executable, "-c", "import threading; threading.Event().wait()"], "replica-0", state)
        print("started", flush=True)
        threading.Event().wait()
twofold.cli.entry.run = run
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whoever_tells_it_to_end_nothing_is_left_running(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    from twofold.live.processes import running, stop_all

    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert [child.role for child in running(tmp_path)] == ["replica-0"]
        process.send_signal(number)
        _, said = process.communicate(timeout=120.0)
        assert (process.returncode, said.count("stopped by")) == (code, 1), said
        assert running(tmp_path) == []
    finally:
        process.kill()
        stop_all(tmp_path)


def test_a_mistyped_spec_takes_nothing_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    (tmp_path / ".twofold").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="`typo` does not exist"):
        down(Path("typo"))
    assert (tmp_path / ".twofold").is_dir()


def test_down_removes_what_is_there_twice_over_and_what_a_killed_one_left(tmp_path: Path) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    for name in (".twofold", ".twofold.removed"):
        sealed = tmp_path / name / "models" / "sha256-0"
        sealed.mkdir(parents=True)
        (sealed / "model").write_text("weights")
        (sealed / "model").chmod(0o444)
        sealed.chmod(0o555)
    assert down(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".twofold.removed").mkdir()
    assert down(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_runs_for_a_folder_that_is_gone_can_still_be_stopped(tmp_path: Path) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    from twofold.live.processes import running, start, stop_all

    folder = tmp_path / "spec"
    state = folder / ".twofold"
    try:
        start([sys.executable, "-c", WAIT], "replica-0", state)
        folder.rename(tmp_path / "elsewhere")
        assert down(folder) == 1
        assert running(state) == []
    finally:
        stop_all(state)


def test_up_does_not_train_beside_a_job_of_the_queue_and_leaves_it_running(tmp_path: Path) -> None:
    for name in ("psutil", "torch"):
        pytest.importorskip(name, reason="needs the extras: `make extras`")
    from twofold.live.processes import running, start, stop_all

    spec, state = changed(tmp_path, "steps: 110", "steps: 110"), tmp_path / ".twofold"
    try:
        start([sys.executable, "-c", WAIT], "job-tiny-1", state)
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            port = holder.getsockname()[1]
        with pytest.raises(BusyError, match="`tiny-1` runs on the slots that `tiny` is to be trained on"):
            up(spec, port=port, tell=lambda _: None)
        assert [each.role for each in running(state)] == ["job-tiny-1"]
    finally:
        stop_all(state)


def test_a_port_that_is_taken_is_refused_before_the_work_and_stops_nothing(tmp_path: Path) -> None:
    for library in ("psutil", "torch"):
        pytest.importorskip(library, reason="needs the extras [train] and [live]: `make extras`")
    from twofold.live.processes import running, start, stop_all

    spec, state, told = changed(tmp_path, "steps: 110", "steps: 110"), tmp_path / ".twofold", list[str]()
    tell: Callable[[str], None] = told.append
    try:
        start([sys.executable, "-c", WAIT], "replica-0", state)
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            with pytest.raises(PortError):
                up(spec, port=holder.getsockname()[1], tell=tell)
        assert told == []
        assert [child.role for child in running(state)] == ["replica-0"]
    finally:
        stop_all(state)


def test_a_proof_that_is_to_do_something_else_too_is_refused_at_once() -> None:
    for beside in ({"load_for": "3 s"}, {"try_releases": True}, {"scale_out": True}):
        at = {"load_for": "", "try_releases": False, "scale_out": False} | beside
        with pytest.raises(UsageError, match="`--prove` has loads of its own"):
            looping.up_page(
                EXAMPLE, 1, "", None, None, program="", as_proof=True, requests=400, seed=0, tell=print, **at
            )


def test_what_is_a_proofs_alone_is_refused_without_one() -> None:
    for told in ({"requests": 100}, {"seed": 0}):
        of_proof = {"requests": None, "seed": None} | told
        with pytest.raises(UsageError, match=f"`--{next(iter(told))}` is for `--prove` alone"):
            looping.up_page(
                *(EXAMPLE, 1, "", None, None, "", ""), False, False, as_proof=False, tell=print, **of_proof
            )
