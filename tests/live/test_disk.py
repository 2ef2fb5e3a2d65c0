"""A disk that is full or read-only under a service: it goes on, heals, and its log goes on too."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_controller import PATIENCE_S, Served, ask, program, until
from tests.live.test_jobs import QUICK, a_job, chain, last_loss, log_replays, over
from tests.soak.accounts import account_of
from twofold.core.errors import FileError
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.status import service_status
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.disk import disk_trouble
from twofold.live.gateway.replays import read_gate_log
from twofold.live.jobs.listing import jobs_of
from twofold.live.jobs.orders import QueueSettings, write_settings
from twofold.live.jobs.trouble import trouble_of
from twofold.live.processes import age_s, free_port, running, start, stop
from twofold.live.watchdog import CONTROLLER, JOBS, beat, may_beat, silent_for_s, start_manager
from twofold.report.service import status_lines

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
    there = service_status(served.state, 8)
    assert there.is_well and "the disk is full: it serves" in "\n".join(status_lines(there))
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


@dataclass
class Disk:
    """A file system of its own at a place, that can fail as a real one does: writes are refused from then on,
    also of files that are open."""

    place: Path
    image: Path

    def mount(self) -> None:
        mounted(self.place, "-o", "loop", str(self.image))

    def fail(self) -> None:
        os.sync()
        subprocess.run(["mount", "-o", "remount,abort", str(self.place)], check=True)

    def replace(self) -> None:
        """Another disk with what was on it comes to its place, while programs hold files of the old one."""
        subprocess.run(["umount", "--lazy", str(self.place)], check=True)
        other = self.image.with_suffix(".copy")
        shutil.copyfile(self.image, other)
        subprocess.run(["e2fsck", "-fy", str(other)], capture_output=True, check=False)
        self.image = other
        self.mount()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """One that can fail."""
    found = Disk(tmp_path / ".twofold", tmp_path / "image")
    found.place.mkdir()
    if not shutil.which("mkfs.ext4"):
        pytest.skip("needs mkfs.ext4, of e2fsprogs")
    with found.image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(found.image)], check=True)
    found.mount()
    try:
        yield found
    finally:
        bring_down(found.place)
        subprocess.run(["umount", "--lazy", str(found.place)], check=True)


def holds(process_id: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    for each in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed while this looks
            if name in str(each.readlink()):
                return True
    return False


def test_a_disk_that_fails_under_a_service_is_said_and_costs_no_answer_and_another_is_gone_on_with(
    disk: Disk, tmp_path: Path
) -> None:
    state, stub = disk.place, program(tmp_path, "stub", tmp_path / "orders")
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=stub)
    served = Served(state, ServiceSettings(engine, 2, 4, free_port(), 0.001, 0.01), tmp_path / "orders")
    bring_up(served.settings, state)
    assert [ask(served.url) for _ in range(3)] == [200] * 3
    until(lambda: logged(served) == 3, lambda: [f"{logged(served)} in the log"])
    disk.fail()
    assert disk_trouble(state) == "read-only"
    assert [ask(served.url) for _ in range(10)] == [200] * 10
    for role in ("replica-0", "gateway", "controller"):
        killed = served.hit(role)
        until(lambda: served.back(role, killed) and ask(served.url) == 200, lambda: [f"no {role}"])  # noqa: B023
    until(lambda: holds(served.process("controller").process_id, "service.sqlite"), lambda: ["it starts"])
    there = service_status(state, 8)
    assert there.disk == "read-only" and there.is_well and there.lost_lines == 0
    said = "\n".join(status_lines(there))
    assert "the disk is read-only: it serves" in said and all(len(line) <= 100 for line in said.split("\n"))
    before = {child.role: child.process_id for child in running(state)}
    disk.replace()
    assert [ask(served.url) for _ in range(5)] == [200] * 5
    # What the gateway that was killed had in memory went with it; all of this one's is there.
    until(lambda: logged(served) >= 3 + 5, lambda: [f"{logged(served)} in the log"])
    until(lambda: served.back("controller", before["controller"]), lambda: ["the old disk's controller"])
    assert service_status(state, 8).disk == ""

    def is_noted() -> bool:
        """The new controller heals, and writes down what it saw: what died before its first look, not."""
        killed = served.hit("replica-1")
        until(lambda: served.back("replica-1", killed), served.happened)
        return any("replica-1: died" in each for each in served.happened())

    until(is_noted, served.happened)
    after = {child.role: child.process_id for child in running(state)}
    changed = {role for role in before if before[role] != after[role]}
    assert changed == {"replica-1", "controller"}


def test_a_disk_that_fails_under_a_queue_is_said_and_jobs_end_well_on_another(
    disk: Disk, tmp_path: Path
) -> None:
    state = disk.place
    write_settings(state, QueueSettings(2, cluster=QUICK, report_s=0.05, grace_s=10.0))
    folders = [tmp_path / "first", tmp_path / "second"]
    orders = [a_job(state, each.name, steps=150, folder=str(each)) for each in folders]
    start_manager(state, JOBS)
    until(lambda: {each.state for each in jobs_of(state)} == {"running"}, lambda: ["they do not run"])
    [there] = running(state, JOBS, exact=True)
    disk.fail()
    until(lambda: trouble_of(state) is not None, lambda: ["nothing is said"])
    told = trouble_of(state)
    assert told is not None and "is read-only" in told.what
    disk.replace()
    until(lambda: over(state), lambda: [repr(jobs_of(state))])
    assert {each.state for each in jobs_of(state)} == {"finished"} and trouble_of(state) is None
    assert [last_loss(each) for each in orders] == [chain(150), chain(150)]
    assert running(state, JOBS, exact=True) == [there]
    log_replays(state)


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
