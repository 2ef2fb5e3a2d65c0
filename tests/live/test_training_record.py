"""A run's lines: nothing torn is read, and the record that they give adds up."""

import errno
import math
import os
import statistics
import time
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.training import training_record
from twofold.live.training.run_watch import READ_BYTES, RunWatch, Tail
from twofold.live.training.training_record import (
    WARM_UP_STEPS,
    StepLine,
    active_s,
    append_event,
    append_step,
    mend,
    read_events,
    read_steps,
    recovery_of,
    step_parts,
    steps_path,
    summarise,
    unequal_steps,
)

LINE = StepLine(
    launch=1,
    attempt=0,
    step=1,
    loss=(8.0).hex(),
    at_s=100.0,
    step_s=1.0,
    data_s=0.01,
    forward_s=0.2,
    backward_s=0.4,
    communication_s=0.2,
    optimiser_s=0.1,
    checkpoint_s=0.0,
    peak_memory_bytes=1000,
)
PART_S = st.floats(0.0, 2.0)


@st.composite
def lines_of_a_rank(draw: st.DrawFn) -> list[StepLine]:
    """Steps whose parts never exceed the step."""
    lines = []
    for step in range(1, draw(st.integers(1, 20)) + 1):
        parts = [draw(PART_S) for _ in range(6)]
        lines.append(
            replace(
                LINE,
                step=step,
                data_s=parts[0],
                forward_s=parts[1],
                backward_s=parts[2],
                communication_s=parts[3],
                optimiser_s=parts[4],
                checkpoint_s=parts[5],
                step_s=sum(parts) + draw(st.floats(0.001, 1.0)),
            )
        )
    return lines


@given(lines=lines_of_a_rank())
def test_r_137_parts_sum_to_the_median_step_beside_its_checkpoints(lines: list[StepLine]) -> None:  # INV-1
    parts = step_parts([lines])
    kept = lines[WARM_UP_STEPS:] or lines
    beside = statistics.median(line.step_s - line.checkpoint_s for line in kept)
    assert math.isclose(sum(astuple(parts)), beside + parts.checkpoint_s, rel_tol=1e-9)
    assert min(astuple(parts)) >= -1e-12


def test_parts_are_those_of_the_rank_that_the_others_wait_for() -> None:
    slow = [replace(LINE, step=step, backward_s=0.6, communication_s=0.0) for step in range(1, 9)]
    waiting = [replace(LINE, step=step) for step in range(1, 9)]
    assert step_parts([waiting, slow]).backward_s == pytest.approx(0.6)
    assert step_parts([waiting, slow]).communication_s == 0.0


def test_what_was_appended_is_read_again_but_a_torn_line_is_not(tmp_path: Path) -> None:
    append_step(tmp_path, 0, LINE)
    append_step(tmp_path, 1, replace(LINE, data_s=0.5))
    with steps_path(tmp_path, 0).open("ab") as file:
        file.write(b'{"launch": 1, "attem')  # as a kill in the middle of a write leaves it
    assert read_steps(tmp_path) == [LINE]
    mend(steps_path(tmp_path, 0))
    append_step(tmp_path, 0, replace(LINE, step=2))
    assert [line.step for line in read_steps(tmp_path)] == [1, 2]
    assert read_steps(tmp_path, rank=1)[0].data_s == 0.5
    assert read_steps(tmp_path / "nothing here") == []


@pytest.mark.parametrize("room_bytes", [0, 7])
def test_lines_that_a_full_disk_refuses_or_cuts_wait_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    real = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        if not room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:room_bytes])

    append_step(tmp_path, 0, LINE)
    whole = steps_path(tmp_path, 0).read_bytes()
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        for step in (2, 3):
            append_step(tmp_path, 0, replace(LINE, step=step))
        append_event(tmp_path, "checkpoint-failed", step=3)
        assert steps_path(tmp_path, 0).read_bytes() == whole and not read_events(tmp_path)
    append_event(tmp_path, "checkpoint", step=4)  # any line that has room brings the others
    assert [line.step for line in read_steps(tmp_path)] == [1, 2, 3]
    assert [event["event"] for event in read_events(tmp_path)] == ["checkpoint-failed", "checkpoint"]


def test_lines_that_wait_are_written_at_a_workers_end_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = os.write, []

    def refuse(descriptor: int, data: bytes) -> int:
        refused.append(data)
        if len(refused) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(training_record, "FLUSH_WAIT_S", 0.0)
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        append_step(tmp_path, 0, LINE)
        assert not training_record.flush_lines(time.monotonic() - 1.0) and not read_steps(tmp_path)
        assert training_record.flush_lines(time.monotonic() + 60.0)
        assert [line.step for line in read_steps(tmp_path)] == [1]
    assert training_record.flush_lines(0.0)


def test_a_file_that_may_not_be_written_raises_for_its_own_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        append_step(tmp_path, 0, LINE)
    real, closed = os.open, steps_path(tmp_path, 0)

    def denied(path: Path, *how: int) -> int:
        if path == closed:
            raise OSError(errno.EACCES, "Permission denied")
        return real(path, *how)

    with monkeypatch.context() as others:
        others.setattr(os, "open", denied)
        append_event(tmp_path, "checkpoint", step=1)
        with pytest.raises(OSError, match="denied"):
            append_step(tmp_path, 0, replace(LINE, step=2))
    assert [event["event"] for event in read_events(tmp_path)] == ["checkpoint"]
    assert not training_record._waiting


def killed_run() -> tuple[list[StepLine], list[dict[str, object]]]:
    """Steps 1 to 7, killed after 7 at 108 s, taken up from 5 and done to 10."""
    before = [replace(LINE, step=step, at_s=100.0 + step, loss=(9.0 - step).hex()) for step in range(1, 8)]
    after = [
        replace(LINE, attempt=1, step=step, at_s=110.0 + step, loss=(9.0 - step).hex())
        for step in range(6, 11)
    ]
    kill = {"event": "killed", "at_s": 108.1, "sent_at_s": 108.0, "rank": 1, "after_step": 7}
    return [*before, *after], [{**kill, "launch": 1, "attempt": 0}]


def test_a_recovery_counts_from_the_kill_to_the_first_step_done_after_it() -> None:
    found = recovery_of(*killed_run())
    assert found is not None
    assert (found.killed_rank, found.killed_after_step, found.resumed_from_step) == (1, 7, 5)
    assert (found.repeated_steps, found.equal_losses) == (2, True)
    assert found.kill_to_step_s == pytest.approx(8.0)


def test_one_bit_in_one_repeated_loss_is_found() -> None:
    lines, events = killed_run()
    bits = math.nextafter(float.fromhex(lines[-5].loss), 0.0)
    changed = [replace(line, loss=bits.hex()) if line is lines[-5] else line for line in lines]
    assert unequal_steps(lines) == [] and unequal_steps(changed) == [6]
    found = recovery_of(changed, events)
    assert found is not None and not found.equal_losses


def test_a_kill_that_nobody_saw_heal_is_no_recovery() -> None:
    lines, events = killed_run()
    assert recovery_of(lines, []) is None
    assert recovery_of([line for line in lines if line.attempt == 0], events) is None
    taken_up_later = [replace(line, launch=2) if line.attempt else line for line in lines]
    assert recovery_of(taken_up_later, events) is None


def test_two_attempts_that_died_before_a_step_make_a_third_futile(tmp_path: Path) -> None:
    def started(attempt: int, launch: int = 2) -> bool:
        append_event(tmp_path, "worker", launch=launch, attempt=attempt, rank=0, process_id=1)
        watch = RunWatch(tmp_path, launch)
        watch.look()
        return watch.is_futile

    assert [started(attempt) for attempt in range(3)] == [False, False, True]
    append_step(tmp_path, 0, replace(LINE, launch=2, attempt=1))
    watch = RunWatch(tmp_path, 2)
    watch.look()
    assert not watch.is_futile  # attempt 1 got somewhere: 2 may as well
    assert [started(attempt, launch=3) for attempt in range(2)] == [False, False]


def test_a_watch_tells_each_step_of_its_launch_once_whole_lines_only(tmp_path: Path) -> None:
    append_step(tmp_path, 0, replace(LINE, launch=1, step=1))
    watch = RunWatch(tmp_path, 2)
    assert watch.look() == ([], True) and watch.look() == ([], False)
    first, second = (replace(LINE, launch=2, step=step) for step in (1, 2))
    append_step(tmp_path, 0, first)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"launch": 2, "att')
    assert watch.look() == ([first], True)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write("\n" + "[" * 10_000 + "\n")  # mended, and broken by somebody
    append_step(tmp_path, 0, second)
    assert watch.look() == ([second], True) and watch.last == second


def test_a_line_longer_than_a_look_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b"x" * READ_BYTES + b"x\n{}\n")
    tail = Tail(path)
    assert [tail.new(), tail.new(), tail.new()] == [[], [{}], []]
    path.write_bytes(b"{}\n")
    assert tail.new() == [{}]  # of a file that was begun anew


def test_a_night_between_two_launches_is_not_work() -> None:
    launches = [
        {"event": "launched", "launch": 1, "at_s": 100.0},
        {"event": "launched", "launch": 2, "at_s": 50_000.0},
    ]
    lines = [replace(LINE, at_s=160.0), replace(LINE, launch=2, at_s=50_030.0)]
    assert active_s(lines, launches) == pytest.approx(90.0)


@pytest.mark.parametrize("jump_s", [0.0, 3.2e8, -3.2e8, 17.0])
def test_a_clock_that_is_set_in_a_run_changes_no_duration(jump_s: float) -> None:
    def at(steady_s: float) -> dict[str, float]:
        """The clock on the wall is set 15 s after the machine's boot."""
        return {"at_s": 1e9 + steady_s + (jump_s if steady_s > 15.0 else 0.0), "steady_s": steady_s}

    kill = at(14.0)
    happened = [
        {"event": "launched", "launch": 1, "boot": "a", **at(10.0)},
        {"event": "worker", "launch": 1, "boot": "of another host", "at_s": 1e9, "steady_s": 9e9},
        {"event": "killed", "launch": 1, "attempt": 0, "rank": 1, "after_step": 2, "boot": "a", **kill}
        | {"sent_at_s": kill["at_s"], "sent_steady_s": kill["steady_s"]},
        {"event": "launched", "launch": 2, "boot": "a", **at(1000.0)},
        {"event": "published", "boot": "a", **at(1005.0)},
    ]
    lines = [
        replace(LINE, step=1, **at(12.0)),
        replace(LINE, step=2, **at(13.0)),
        replace(LINE, step=3, attempt=1, **at(20.0)),
        replace(LINE, step=4, launch=2, **at(1003.0)),
    ]
    assert active_s(lines, happened) == pytest.approx(10.0 + 5.0)
    found = recovery_of(lines, happened)
    assert found is not None and found.kill_to_step_s == pytest.approx(6.0)


def test_the_record_is_made_of_the_lines_alone(tmp_path: Path) -> None:
    lines, _ = killed_run()
    for line in lines:
        append_step(tmp_path, 0, line)
        append_step(tmp_path, 1, replace(line, communication_s=0.1, peak_memory_bytes=3000))
    append_event(tmp_path, "launched", launch=1)
    append_event(tmp_path, "built", parameter_count=77)
    for write_s in (0.2, 0.3, 0.9):
        append_event(tmp_path, "checkpoint", step=5, size_bytes=600, write_s=write_s)
    assert [event["event"] for event in read_events(tmp_path)][:2] == ["launched", "built"]
    record = summarise(tmp_path, rank_count=2, tokens_per_step=1024)
    assert (record.steps, record.parameter_count, record.peak_memory_bytes) == (10, 77, 3000)
    assert (record.first_loss, record.last_loss) == (8.0, -1.0)
    assert (record.checkpoint_count, record.checkpoint_bytes, record.checkpoint_write_s) == (3, 600, 0.3)
    assert record.step_s_p10 <= record.step_s_p50 <= record.step_s_p90
    assert record.recovery is None


def test_a_clock_that_is_set_back_after_the_kill_hides_no_recovery() -> None:
    lines, events = killed_run()
    set_back = [replace(line, at_s=line.at_s - 90.0) if line.attempt else line for line in lines]
    found = recovery_of(set_back, events)
    assert found is not None
    assert (found.resumed_from_step, found.repeated_steps) == (5, 2)
