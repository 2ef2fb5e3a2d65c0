"""What stands in a queue's way: a log that is cut or broken, a disk, clocks that are set. Jobs run on."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.live.test_disk import SMALL, fill, mounted
from tests.live.test_jobs import PATIENCE_S, QUICK, a_job, chain, job, last_loss, log_replays, over, until
from tests.live.test_jobs import state as state  # the fixture
from twofold.app.jobs import JobsListed
from twofold.core.errors import FileError, ShapeError
from twofold.live import processes
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.job_log import LOG, read_job_log
from twofold.live.jobs.listing import jobs_of
from twofold.live.jobs.orders import (
    QueueSettings,
    job_folder,
    jobs_folder,
    order_files,
    read_settings,
    write_settings,
)
from twofold.live.jobs.queue_clock import QueueClock
from twofold.live.jobs.trouble import Patience, trouble_of
from twofold.live.watchdog import JOBS, start_manager
from twofold.policy.cluster import events
from twofold.policy.cluster import settings as cluster

YEAR_S = 3.2e7


@dataclass
class Clocks:
    """The machine's, as a test sets them."""

    wall_s: float = 1e9
    steady_s: float = 5e4

    def clock(self) -> QueueClock:
        return QueueClock(lambda: self.steady_s, lambda: self.wall_s)

    def pass_by(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


@pytest.mark.parametrize("jump_s", [YEAR_S, -YEAR_S])
def test_a_queues_time_runs_on_over_drivers_whatever_the_clock_on_the_wall_is_set_to(
    tmp_path: Path, jump_s: float
) -> None:
    machine = Clocks()
    first = machine.clock()
    first.begin(tmp_path, began_s=machine.wall_s)
    machine.pass_by(100.0)
    machine.wall_s += jump_s
    assert first.now_s() == pytest.approx(100.0)
    second = machine.clock()
    machine.pass_by(20.0)  # nobody drove so long
    second.go_on(tmp_path, 1e9, last_s=90.0)
    assert second.now_s() == pytest.approx(120.0)


def test_after_a_boot_a_queues_time_never_runs_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clocks()
    machine.clock().begin(tmp_path, began_s=machine.wall_s)
    monkeypatch.setattr("twofold.live.jobs.queue_clock.this_boot", lambda: "another")
    machine.pass_by(600.0)
    machine.steady_s = 3.0
    again = machine.clock()
    again.go_on(tmp_path, 1e9, last_s=500.0)
    assert again.now_s() == pytest.approx(600.0)  # the clock on the wall is all that there is
    machine.wall_s -= YEAR_S
    again.go_on(tmp_path, 1e9 + 1, last_s=500.0)
    assert again.now_s() == pytest.approx(500.0)
    for text in ("", "[]", '{"boot": "another"}', "[" * 100_000):
        (tmp_path / "clock.json").write_text(text)
        again.go_on(tmp_path, 1e9, last_s=700.0)
        assert again.now_s() == pytest.approx(700.0)


@pytest.mark.parametrize("jump_s", [YEAR_S, -YEAR_S])
def test_a_clock_that_is_set_while_nobody_drives_ends_no_job(state: Path, jump_s: float) -> None:
    """It was believed to have been silent for a year, and killed."""
    watched = replace(QUICK, watch=cluster.WatchSettings(silence_s=300.0, start_wait_s=300.0))
    write_settings(state, replace(read_settings(state), cluster=watched))
    order = a_job(state, "on", steps=100)
    machine = Clocks()

    def look(driver: Driver, true: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline_s
            driver.look()
            machine.pass_by(0.05)
            time.sleep(0.02)

    first = Driver(state, machine.clock())
    jobs = first.brain.view.jobs
    look(first, lambda: "on" in jobs and jobs["on"].state.value == "running")
    os.kill(next(each[0].pid for each in first.gangs["on"].ranks.values()), signal.SIGSTOP)
    machine.wall_s += jump_s
    second = Driver(state, machine.clock())  # the first is forgotten, as kill -9 forgets it
    for _ in range(20):
        second.look()
        machine.pass_by(0.05)
    os.kill(next(each[0].pid for each in second.gangs["on"].ranks.values()), signal.SIGCONT)
    look(second, lambda: over(state))
    assert job(state, "on").restarts == 0 and last_loss(order) == chain(100)
    log_replays(state)


def test_what_is_submitted_after_the_clock_was_set_back_stands_behind_what_was_before(state: Path) -> None:
    a_job(state, "z-first")
    path = jobs_folder(state) / "orders" / "z-first.json"
    os.utime(path, (time.time() + YEAR_S, time.time() + YEAR_S))  # the clock was a year ahead then
    for name in ("m-second", "a-third"):
        a_job(state, name)
    assert [job_id for job_id, _ in order_files(state)] == ["z-first", "m-second", "a-third"]


def test_since_when_a_job_runs_is_told_by_the_clock_as_it_is_now(state: Path) -> None:
    a_job(state, "one", steps=2)
    driver = Driver(state, QueueClock(wall=lambda: 1.0))  # on a machine that did not know the day
    until(lambda: over(state), driver)
    assert abs(job(state, "one").since_s - time.time()) < PATIENCE_S


def test_a_last_line_that_is_cut_is_dropped_and_said(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = a_job(state, "on", steps=60, slot_count=2)
    first = Driver(state)
    until(lambda: job(state, "on").state == "running", first)
    first.log.close()
    path = jobs_folder(state) / LOG
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"now_s":9.0,"event":{"type":"JobFin')
    second = Driver(state)
    assert "is cut after 36 bytes, and dropped" in capsys.readouterr().err
    until(lambda: over(state), second)
    assert path.read_bytes().startswith(whole + b'{"log":"cut",') and b'"bytes":36}' in path.read_bytes()
    assert job(state, "on").restarts == 0 and last_loss(order) == chain(60)
    log_replays(state)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7])
def test_a_log_that_lost_its_end_is_gone_on_with_and_jobs_end_as_if_nothing_had_been(
    state: Path, kept: float
) -> None:
    orders = [a_job(state, "one", steps=40), a_job(state, "two", steps=4), a_job(state, "three", steps=4)]
    first = Driver(state)
    until(lambda: job(state, "three").state == "finished", first)
    first.log.close()
    path = jobs_folder(state) / LOG
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    second = Driver(state)
    until(lambda: over(state), second)
    assert {each.state for each in jobs_of(state)} == {"finished"}
    assert [last_loss(each) for each in orders] == [chain(40), chain(4), chain(4)]
    log_replays(state)


def test_a_queue_whose_log_is_broken_stands_still_says_so_and_goes_on_once_it_is_mended(state: Path) -> None:
    order = a_job(state, "on", steps=150)
    start_manager(state, JOBS)
    until(lambda: job(state, "on").state == "running" and len(running_of(state, JOBS)) == 1)
    path = jobs_folder(state) / LOG
    os.kill(running_of(state, JOBS)[0], signal.SIGKILL)
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
    number = whole.count(b"\n")
    path.write_bytes(whole.rstrip(b"\n")[:-7] + b"broken\n")
    until(lambda: (told := trouble_of(state)) is not None and told.tries > 1)
    told = trouble_of(state)
    assert told is not None and f"line {number} of `{path}`" in told.what
    assert f"keep the {number - 1} lines before it" in told.hint
    with pytest.raises(ShapeError, match=f"line {number} of"):
        jobs_of(state)
    [there] = running_of(state, JOBS)  # one process that waits, not one each second
    listed = JobsListed((), True, told)
    assert listed.exit_code == 3 and "the queue stands still" in "\n".join(listed.lines)
    assert all(len(line) <= 100 for line in listed.lines if str(state) not in line)
    path.write_bytes(whole)
    until(lambda: trouble_of(state) is None and over(state))
    assert running_of(state, JOBS) == [there]
    assert job(state, "on").state == "finished" and last_loss(order) == chain(150)
    said = processes.log_path(state, JOBS).read_text()
    assert said.count("the queue stands still") == 1 and "Traceback" not in said
    log_replays(state)


def running_of(state: Path, role: str) -> list[int]:
    return [child.process_id for child in processes.running(state, role, exact=True)]


def test_a_driver_that_cannot_go_on_is_tried_again_less_and_less_often(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, patience, paused_s = Clocks(), Patience(state), []
    monkeypatch.setattr(time, "monotonic", lambda: machine.steady_s)
    monkeypatch.setattr(time, "sleep", machine.pass_by)
    for _ in range(9):
        patience.begin()
        patience.failed(FileError("the log cannot be read", hint="mend it"))
        began_s = machine.steady_s
        patience.wait(lambda: True)
        paused_s.append(machine.steady_s - began_s)
    assert paused_s == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.5)
    assert capsys.readouterr().err.count("stands still") == 1
    assert (told := trouble_of(state)) is not None and told.tries == 9
    patience.begin()
    machine.pass_by(100.0)  # it drove well so long
    try:
        raise ValueError("something else")
    except ValueError as error:
        patience.failed(error)
    assert (told := trouble_of(state)) is not None and (told.tries, told.what) == (
        1,
        "ValueError: something else",
    )
    assert "Traceback" in capsys.readouterr().err
    patience.well()
    assert trouble_of(state) is None


def test_on_a_full_disk_nothing_is_decided_jobs_run_on_and_it_goes_on_with_room(tmp_path: Path) -> None:
    state = tmp_path / "disk"
    state.mkdir()
    mounted(state, "-t", "tmpfs", "-o", SMALL, "tmpfs")
    try:
        write_settings(state, QueueSettings(2, cluster=QUICK, report_s=0.05, grace_s=10.0))
        elsewhere = tmp_path / "elsewhere"
        order = a_job(state, "on", steps=100, folder=str(elsewhere))
        start_manager(state, JOBS)
        until(lambda: job(state, "on").state == "running")
        a_job(state, "next", steps=3, folder=str(tmp_path / "next"))
        [there] = running_of(state, JOBS)
        fill(state / "filler")
        until(lambda: (told := trouble_of(state)) is not None and "is full" in told.what)
        until(lambda: (elsewhere / "steps.jsonl").read_text().count("\n") == 100)
        before = (jobs_folder(state) / LOG).read_bytes().rpartition(b"\n")[0]
        (state / "filler").unlink()
        until(lambda: over(state))
        assert running_of(state, JOBS) == [there]
        assert (jobs_folder(state) / LOG).read_bytes().startswith(before)
        assert {each.state for each in jobs_of(state)} == {"finished"} and trouble_of(state) is None
        assert last_loss(order) == chain(100)
        log_replays(state)
    finally:
        bring_down(state)
        subprocess.run(["umount", str(state)], check=True)


def test_a_listing_of_a_log_without_some_of_its_lines_is_no_traceback(state: Path) -> None:
    a_job(state, "one", steps=4)
    a_job(state, "two", steps=4)
    driver = Driver(state)
    until(lambda: over(state), driver)
    driver.log.close()
    path = jobs_folder(state) / LOG
    lines = path.read_text().splitlines(keepends=True)
    for gone in range(1, len(lines)):
        path.write_text("".join(lines[:gone] + lines[gone + 1 :]))
        assert len(jobs_of(state)) == 2
        try:
            Driver(state).log.close()
        except ShapeError as error:
            assert f"of `{path}` is none of this log of jobs" in error.message
    path.write_text("".join(lines))


def test_events_of_a_log_are_told_with_their_lines(state: Path) -> None:
    a_job(state, "one", steps=2)
    driver = Driver(state)
    until(lambda: over(state), driver)
    path = jobs_folder(state) / LOG
    [run] = read_job_log(path)
    lines = path.read_text().splitlines()
    for number, entry in zip(run.lines, run.entries, strict=True):
        assert json.loads(lines[number - 1])["event"]["type"] == type(entry.event).__name__
    assert any(isinstance(entry.event, events.JobFinished) for entry in run.entries)
    assert job_folder(state, "one").is_dir()
