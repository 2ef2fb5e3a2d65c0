"""Children are found by their environment, whoever started them, and end when asked."""

import socket
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.core.errors import RunError
from twofold.live.processes import (
    PortError,
    digest_of,
    free_port,
    last_lines,
    log_path,
    need_free_port,
    python_module,
    running,
    start,
    stop_all,
    wait_until_open,
)

WAIT = "import sys; sys.stdin.close(); import threading; threading.Event().wait()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);" + WAIT
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAIT!r}]).wait()"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_children_are_found_by_role_and_state_and_stop_when_asked(tmp_path: Path) -> None:
    other = tmp_path / "other"
    try:
        start(python(WAIT), "replica-0", tmp_path, port=4000)
        start(python(WAIT), "gateway", tmp_path)
        start(python(WAIT), "gateway", other)
        assert sorted(child.role for child in running(tmp_path)) == ["gateway", "replica-0"]
        assert [child.port for child in running(tmp_path, "replica")] == [4000]
        assert running(tmp_path, "replica", exact=True) == []
        assert stop_all(tmp_path, "replica-", exact=True) == 0
        assert stop_all(tmp_path, "replica") == 1
        assert [child.role for child in running(tmp_path)] == ["gateway"]
    finally:
        assert stop_all(tmp_path) == 1
        assert stop_all(other) == 1
    assert running(tmp_path) == []


def test_children_of_children_are_found_and_stopped_too(tmp_path: Path) -> None:
    try:
        start(python(PARENT), "train", tmp_path)
        for _ in range(2000):
            if len(running(tmp_path)) == 2:
                break
        assert [child.role for child in running(tmp_path)] == ["train", "train"]
    finally:
        stop_all(tmp_path)
    assert running(tmp_path) == []


def test_a_program_whose_environment_is_not_there_yet_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `execve` and the loader's work the kernel shows an empty environment."""
    looks = [{}, {"TWOFOLD_STATE": str(tmp_path.resolve()), "TWOFOLD_ROLE": "replica-0"}]
    starting = SimpleNamespace(pid=0, status=lambda: "running", environ=lambda: looks.pop(0))
    monkeypatch.setattr("psutil.process_iter", lambda: iter([starting]))
    assert [child.role for child in running(tmp_path)] == ["replica-0"]


def test_a_process_that_ignores_being_asked_is_ended(tmp_path: Path) -> None:
    try:
        start(python(DEAF), "deaf", tmp_path)
        while "deaf" not in last_lines(log_path(tmp_path, "deaf")):
            assert running(tmp_path)
        assert stop_all(tmp_path, grace_s=0.2) == 1
    finally:
        stop_all(tmp_path, grace_s=0.2)
    assert running(tmp_path) == []


def test_a_stray_module_in_the_working_folder_is_not_run_and_what_is_written_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dis` is imported by nearly everything; a child and a child's child must take Python's own."""
    (tmp_path / "dis.py").write_text("print('stray')\n")
    asks = "import dis, pathlib; print(dis.__file__); pathlib.Path('written').touch()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {asks!r}], check=True)"
    (tmp_path / "asks.py").write_text(nested)
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state"
    assert "-P" in python_module("dis")
    start([sys.executable, "-P", str(tmp_path / "asks.py")], "asks", state)
    log = log_path(state, "asks")
    for _ in range(2000):
        if not running(state):
            break
    assert "stray" not in log.read_text() and "dis.py" in log.read_text()
    assert str(tmp_path) not in log.read_text()
    modes = [path.stat().st_mode & 0o077 for path in (state, log.parent, log, tmp_path / "written")]
    assert modes == [0, 0, 0, 0]


def test_what_a_process_was_told_is_known_by_digest(tmp_path: Path) -> None:
    try:
        digest = start(python(WAIT), "replica-0", tmp_path).digest
        assert [child.digest for child in running(tmp_path)] == [digest] == [digest_of(python(WAIT))]
        assert digest != digest_of([*python(WAIT), ""])
    finally:
        stop_all(tmp_path)


def test_a_busy_port_is_refused_with_a_free_one_to_use() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortError, match=f"port {port}") as caught:
            need_free_port(port)
        offered = int(caught.value.hint.split("--port ")[1].rstrip("`"))
        need_free_port(offered)
    need_free_port(free_port())


def test_a_port_that_nobody_holds_but_that_we_may_not_have_is_not_called_taken() -> None:
    with pytest.raises(PortError, match="cannot be had"):
        need_free_port(free_port(), host="192.0.2.1")  # no machine has this address


def test_a_program_that_ends_while_starting_is_quoted(tmp_path: Path) -> None:
    child = start(python("raise SystemExit('no such model')"), "replica-0", tmp_path)
    log = log_path(tmp_path, "replica-0")
    with pytest.raises(RunError, match="ended while starting:\nno such model"):
        wait_until_open(free_port(), child, log, timeout_s=60.0)


def test_a_manager_that_ends_before_its_first_beat_is_started_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.live import watchdog

    now_s, starts_s = 5000.0, list[float]()
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(watchdog, "running", lambda *_, **__: [])
    monkeypatch.setattr(watchdog, "start_manager", lambda *_: starts_s.append(now_s))
    newest = watchdog.Started(now_s)
    for _ in range(200):
        newest = watchdog.look_after(tmp_path, watchdog.JOBS, newest)
        now_s += 1.0
    pauses_s = [after - before for before, after in pairwise(starts_s)]
    assert pauses_s == [1.0, 3.0, 7.0, 15.0, 31.0, 60.0, 60.0]
    watchdog.beat(tmp_path, watchdog.JOBS)  # it came up, and was killed: it comes back at once
    now_s += 1.0 + watchdog.LATE_S
    assert watchdog.look_after(tmp_path, watchdog.JOBS, newest).mute_count == 0
    assert starts_s[-1] == now_s
