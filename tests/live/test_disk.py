"""A disk that is full or read-only under a service: it goes on, heals, and its log goes on too."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_controller import PATIENCE_S, Served, ask, program, until
from tests.soak.accounts import account_of
from twofold.core.errors import FileError
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.gateway.replays import read_gate_log
from twofold.live.processes import age_s, free_port, running, start, stop
from twofold.live.watchdog import CONTROLLER, beat, may_beat, silent_for_s

SMALL = "size=3m"


def mounted(folder: Path, *options: str) -> None:
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")


def fill(path: Path) -> None:
    """Until not a byte more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service whose state is on a disk of its own."""
    state = tmp_path / ".twofold"
    state.mkdir()
    mounted(state, "-t", "tmpfs", "-o", SMALL, "tmpfs")
    try:
        stub = program(tmp_path, "stub", tmp_path / "orders")
        engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=stub)
        settings = ServiceSettings(engine, 2, 4, free_port(), 0.001, 0.01, name="stand-in")
        try:
            bring_up(settings, state)
            yield Served(state, settings, tmp_path / "orders")
        finally:
            bring_down(state)
            assert running(state) == []
    finally:
        subprocess.run(["umount", str(state)], check=True)


def logged(served: Served) -> int:
    """Answers that finished by the gate's log, which replays."""
    return sum(account_of(run).finished for run in read_gate_log(served.state / "gateway/events.jsonl").runs)


def test_on_a_full_disk_the_service_heals_and_nothing_is_lost_of_its_log(served: Served) -> None:
    before = {child.role: child.process_id for child in running(served.state)}
    fill(served.state / "filler")
    assert [ask(served.url) for _ in range(10)] == [200] * 10
    killed = served.hit("replica-0")
    until(lambda: served.back("replica-0", killed), lambda: ["no replica came back"])
    assert ask(served.url) == 200
    after = {child.role: child.process_id for child in running(served.state)}
    assert {role for role in before if before[role] != after[role]} == {"replica-0"}
    (served.state / "filler").unlink()
    assert ask(served.url) == 200
    until(lambda: logged(served) == 12, lambda: [f"{logged(served)} in the log"])
    killed = served.hit("gateway")
    until(lambda: served.back("gateway", killed), served.happened)
    assert ask(served.url) == 200


def test_a_gateway_comes_back_on_a_full_disk(served: Served) -> None:
    fill(served.state / "filler")
    killed = served.hit("gateway")
    until(lambda: served.back("gateway", killed) and ask(served.url) == 200, lambda: ["no gateway"])


def test_a_read_only_disk_is_said_and_silence_there_says_nothing(tmp_path: Path) -> None:
    state, engine = tmp_path / "disk", EngineSettings("v1", "float32", 1, 256, 64, program=sys.executable)
    state.mkdir()
    mounted(state, "-t", "tmpfs", "-o", SMALL, "tmpfs")
    try:
        beat(state, CONTROLLER)
        assert may_beat(state, CONTROLLER)
        mounted(state, "-o", "remount,ro")
        assert not may_beat(state, CONTROLLER)
        settings = ServiceSettings(engine, 1, 4, free_port(), 0.001, 0.01)
        with pytest.raises(FileError, match=r"cannot be written: .*[Rr]ead-only") as caught:
            bring_up(settings, state)
        assert caught.value.exit_code == 2 and running(state) == []
        child = start(["sleep", "60"], "engine", state)  # heals, without a log
        stop([child], at_once=True)
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_beat_needs_no_room_of_its_own(tmp_path: Path) -> None:
    mounted(tmp_path, "-t", "tmpfs", "-o", SMALL, "tmpfs")
    try:
        beat(tmp_path, CONTROLLER)
        fill(tmp_path / "filler")
        first = (tmp_path / "controller/beat").read_text()
        beat(tmp_path, CONTROLLER)
        assert (tmp_path / "controller/beat").read_text() != first
        # At once: a beat that were rounded up would lie in the future, and count as none.
        for _ in range(100):
            beat(tmp_path, CONTROLLER)
            assert silent_for_s(tmp_path, CONTROLLER) < PATIENCE_S
        assert may_beat(tmp_path, CONTROLLER)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_how_old_a_process_is_does_not_hang_on_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    young = subprocess.Popen(["sleep", "60"])
    try:
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: 0.0)  # as after a jump of the clock
        assert 0.0 <= age_s(young.pid) < PATIENCE_S
        assert age_s(os.getpid()) > age_s(young.pid) - 0.02  # to a tick
    finally:
        young.kill()
        young.wait()
    with pytest.raises(psutil.NoSuchProcess):
        age_s(young.pid)
