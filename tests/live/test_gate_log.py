"""The data log: whole lines or none, whatever ends the writer or fills the disk."""

import asyncio
import errno
import json
import os
import resource
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import ShapeError
from twofold.live.gateway.gate_log import GateLog
from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.live.line_file import numbered
from twofold.policy.gate.events import (
    Cause,
    Effect,
    Event,
    Probe,
    ProbeAnswered,
    ProbeFailed,
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    ResponseStarted,
    Send,
    to_line,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings
from twofold.policy.machine import Entry, Woke

SETTINGS, BELIEFS = GateSettings(attempt_limit=3), Beliefs(0.001, 0.02)
LARGE = 1 << 30


def entry(number: int) -> str:
    """A line as long as real ones are, and never the same."""
    return json.dumps({"now_s": number, "event": {"type": "Woke"}, "effects": []}, separators=(",", ":"))


def begun(path: Path, limit_bytes: int = LARGE, file_count: int = 4) -> GateLog:
    log = GateLog(path, limit_bytes, file_count)
    log.start(SETTINGS, BELIEFS)
    return log


def write(log: GateLog, numbers: range) -> list[str]:
    lines = [entry(number) for number in numbers]
    for line in lines:
        log.append(line)
        log.flush()
    return lines


def test_what_is_written_is_read_with_what_the_gate_was_told(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "events.jsonl"
    log = begun(path)
    lines = write(log, range(5))
    log.append(entry(9))  # waits for the end of the turn; peace writes it too
    log.stop()
    history = read_gate_log(path)
    [run] = history.runs
    assert (run.settings, run.beliefs) == (SETTINGS, BELIEFS)
    assert run.entries == (*lines, entry(9)) and run.stopped and run.lost_lines == 0
    assert (history.torn_bytes, history.headless_lines) == (0, 0)


@given(cut_bytes=st.integers(1, 400))
def test_a_line_cut_anywhere_by_a_kill_is_ignored_and_said(
    cut_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    log = begun(path)
    start_bytes = len(path.read_bytes())
    lines = write(log, range(6))
    whole = path.read_bytes()
    head_bytes = len(whole) - sum(len(line) + 1 for line in lines)
    assert start_bytes <= head_bytes
    kept = whole[: max(head_bytes, len(whole) - cut_bytes)]
    path.write_bytes(kept)
    [run] = (history := read_gate_log(path)).runs
    assert run.entries == tuple(lines[: len(run.entries)])
    assert history.torn_bytes == len(kept) - kept.rfind(b"\n") - 1
    again = begun(path)  # the next process goes on behind the last whole line
    more = write(again, range(10, 12))
    first, second = read_gate_log(path).runs
    assert (first.entries, second.entries) == (run.entries, tuple(more))
    assert again.cut_bytes == history.torn_bytes


def test_a_long_log_is_kept_in_a_few_files_and_a_lost_start_is_said(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = begun(path, limit_bytes=2500, file_count=3)
    lines = write(log, range(40))
    run = read_gate_log(path, 3).runs[0]
    assert path.with_name("events.jsonl.1").exists()
    assert run.entries == tuple(lines)  # as long as nothing was deleted, nothing is missing
    more = write(log, range(40, 400))
    files = [file for file in numbered(path, 9) if file.exists()]
    assert len(files) == 3 and all(file.stat().st_size < 2700 for file in files)
    [run] = read_gate_log(path, 3).runs  # its settings are kept, its start is not, and it says so
    assert (run.settings, run.beliefs, run.whole) == (SETTINGS, BELIEFS, False)
    assert run.entries == tuple(more[-len(run.entries) :]) and len(run.entries) > 20


def test_a_full_disk_stops_no_traffic_and_the_log_goes_on_with_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = begun(path)
    lines = write(log, range(3))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 70, hard))  # a write is cut in a line
    try:
        lines += write(log, range(3, 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_gate_log(path).torn_bytes > 0
    lines += write(log, range(20, 22))
    [run] = (history := read_gate_log(path)).runs
    assert run.entries == tuple(lines) and run.lost_lines == 0 and history.torn_bytes == 0


def test_what_waits_for_a_full_disk_is_bounded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.live.line_file.LOST_LIMIT_BYTES", 500)
    path = tmp_path / "events.jsonl"
    log = begun(path)
    lines = write(log, range(3))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 70, hard))
    try:
        write(log, range(3, 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    last = write(log, range(100, 102))
    [run] = read_gate_log(path).runs
    assert run.lost_lines == log.lost_lines > 80
    assert run.entries[:3] == tuple(lines) and run.entries[-2:] == tuple(last)
    assert len(run.entries) + run.lost_lines == 102
    assert all(json.loads(line) for line in run.entries)


def test_a_log_moves_to_the_disk_that_comes_to_its_disks_place(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "events.jsonl"
    log = begun(path)
    lines = write(log, range(3))
    assert log._file is not None
    os.dup2(os.open(path, os.O_RDONLY), log._file)  # it takes nothing any more
    waiting = write(log, range(3, 6))
    assert log.refusal is not None and read_gate_log(path).runs[0].entries == tuple(lines)
    path.parent.rename(tmp_path / "old")
    waiting += write(log, range(6, 8))  # nothing is in its place yet
    path.parent.mkdir()
    waiting += write(log, range(8, 10))
    more = write(log, range(10, 12))
    assert log.refusal is None and log.lost_lines == 0
    [run] = read_gate_log(path).runs
    assert (run.settings, run.entries, run.whole) == (SETTINGS, (*waiting, *more), False)
    assert read_gate_log(tmp_path / "old" / "events.jsonl").runs[0].entries == tuple(lines)


def test_a_log_that_cannot_be_opened_yet_waits_for_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = tmp_path / "disk" / "events.jsonl", os.open

    def refused(name: str, flags: int, *more: int) -> int:
        if str(name) == str(path) and flags & os.O_WRONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(name, flags, *more)

    with monkeypatch.context() as read_only:
        read_only.setattr(os, "open", refused)
        log = begun(path)
        lines = write(log, range(5))
        assert log.refusal is not None and not path.exists()
    path.parent.rename(tmp_path / "old")
    lines += write(log, range(5, 7))
    assert not path.parent.exists()  # while its disk is exchanged its place is another one's
    path.parent.mkdir()
    lines += write(log, range(7, 9))
    [run] = read_gate_log(path).runs
    assert (run.entries, run.whole, log.lost_lines) == (tuple(lines), True, 0)


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"log":"weather"}\n', "utf-8")
    with pytest.raises(ShapeError, match="weather"):
        read_gate_log(path)
    path.write_text('{"log":"started","settings":{"bold":1},"beliefs":{}}\n', "utf-8")
    with pytest.raises(ShapeError, match="settings"):
        read_gate_log(path)


def test_a_log_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read_gate_log(tmp_path / "none").runs == ()


def idle(gate: Gate, turns: int, failing: int = -1) -> list[Entry[Event, Effect]]:
    """What a gate of two replicas is told while nothing happens; in one turn a replica does not answer."""
    at_s = 1000.0
    seen = []

    def told(event: Event, after_s: float) -> tuple[Effect, ...]:
        nonlocal at_s
        at_s = round(at_s + after_s, 6)
        seen.append(Entry(at_s, event, tuple(gate.handle(event, at_s))))
        return seen[-1].effects

    for name in ("a", "b"):
        told(ReplicaAdded(name, 4), 0.1)
    for turn in range(turns):
        for number, probe in enumerate(told(Woke(), 0.250321 + turn * 1e-6)):
            assert isinstance(probe, Probe)
            late = turn == failing and number == 1
            told(
                ProbeFailed(probe.replica_id, probe.number, Cause.REFUSED)
                if late
                else ProbeAnswered(probe.replica_id, probe.number),
                0.000_412,
            )
    return seen


@given(turns=st.sampled_from([1, 2, 239, 240, 241, 500]), failing=st.sampled_from([-1, 0, 1, 100, 240, 499]))
def test_quiet_probes_take_few_bytes_and_none_is_missing_in_the_replay(
    turns: int, failing: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    log = begun(path)
    entries = idle(Gate(SETTINGS, BELIEFS), turns, failing)
    for entry in entries:
        log.told(entry)
    log.stop()
    [run] = read_gate_log(path).runs
    lines = [to_line(entry) for entry in entries]
    assert run.entries == tuple(lines)
    again = Gate(run.settings, run.beliefs)
    assert first_difference(again, [entry_from_line(line) for line in run.entries]) is None
    if failing < 0 and turns >= 239:
        head_bytes = len(path.read_bytes().split(b'{"log":"quiet"')[0])
        quiet_bytes = path.stat().st_size - head_bytes
        assert quiet_bytes < sum(map(len, lines)) / 10


def test_a_kill_loses_no_more_than_probes_that_found_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = begun(path)
    entries = idle(Gate(SETTINGS, BELIEFS), 30, failing=20)
    for entry in entries:
        log.told(entry)
        log.flush()
    [run] = read_gate_log(path).runs  # nothing is closed: as it lies there when the process is killed
    failed = next(place for place, entry in enumerate(entries) if isinstance(entry.event, ProbeFailed))
    assert run.entries == tuple(to_line(entry) for entry in entries[: len(run.entries)])
    assert failed < len(run.entries) < len(entries)


def test_a_kill_loses_no_more_than_first_tokens_of_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request's own line is there before it is sent, and its end at the end of the turn."""
    path = tmp_path / "events.jsonl"
    due_s: list[float | None] = [None]  # nothing else happens meanwhile
    monkeypatch.setattr(Gate, "wake_at_s", lambda _: due_s[0])

    def kinds() -> list[type]:
        [run] = read_gate_log(path).runs
        return [type(entry_from_line(line).event) for line in run.entries][1:]

    async def served() -> None:
        gate, log = Gate(SETTINGS, BELIEFS), GateLog(path, LARGE, 1)
        driver = GateDriver(gate, log, {"a": GatewayReplica("a", "127.0.0.1", 1, "m", 4)}, 1.0)
        driver.start()
        await asyncio.sleep(0)
        for _ in range(2):
            before = len(kinds()) if path.exists() else 0
            sent = await driver.arrived(RequestArrived(10, 10))
            assert isinstance(sent, Send)
            assert kinds()[before:] == [RequestArrived]
            await asyncio.sleep(0)
            driver.started(sent.request_id, sent.attempt)
            await asyncio.sleep(0)
            assert kinds()[before:] == [RequestArrived]
            driver.ended(sent.request_id, 10, sent.attempt)
            await asyncio.sleep(0)
            assert kinds()[before:] == [RequestArrived, ResponseStarted, ResponseEnded]
        sent, due_s[0] = await driver.arrived(RequestArrived(10, 10)), time.monotonic() + 99
        driver._set_alarm()
        due_s[0] = soon_s = time.monotonic() + 9
        driver.started(sent.request_id, 1)
        driver._starts_are_due()  # in 5 ms at the latest
        assert driver._wake_at_s == soon_s
        driver.stop()

    asyncio.run(served())


@pytest.mark.parametrize(
    "note",
    [
        '{"log":"quiet"}',
        '{"log":"quiet","since_us":1,"number":1,"of":["a"],"turns":[[0,7,1]]}',
        '{"log":"quiet","since_us":1,"number":1,"of":["a"],"turns":[["x"]]}',
        '{"log":"quiet","since_us":1,"number":1,"of":["a"],"turns":[[]]}',
    ],
)
def test_quiet_probes_of_another_form_are_refused(tmp_path: Path, note: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(note + "\n", "utf-8")
    with pytest.raises(ShapeError, match="quiet"):
        read_gate_log(path)
