"""A run that repeats: each turn once, whatever is killed, and whenever its driver looks."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.live.jobs import campaigns
from twofold.live.jobs.campaigns import Campaign, begin, campaigns_of, end, take_turns, turned
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.listing import jobs_of
from twofold.live.jobs.orders import (
    JobOrder,
    QueueSettings,
    job_folder,
    jobs_folder,
    order_files,
    read_order,
    submit,
    write_settings,
)
from twofold.live.jobs.queue_clock import QueueClock

EVERY_S = 8 * 7 * 86400.0


def first(state: Path) -> JobOrder:
    """A job with a file beside its run, which the command names."""
    folder = job_folder(state, "tune-1")
    folder.mkdir(parents=True)
    (folder / "order.json").write_text("{}")
    command = (sys.executable, "-c", "pass", str((folder / "order.json").resolve()))
    order = JobOrder(
        "tune-1", command, 1, 1, str(folder.resolve() / "run"), working_folder=str(folder.resolve())
    )
    submit(state, order)
    return order


@pytest.fixture
def state(tmp_path: Path) -> Path:
    found = tmp_path / ".twofold"
    write_settings(found, QueueSettings(1))
    return found


def jobs(state: Path) -> list[str]:
    return [job_id for job_id, _ in order_files(state)]


def test_each_turn_is_a_job_with_a_folder_of_its_own(state: Path) -> None:
    begin(state, "tune", EVERY_S, 1000.0, first(state))
    take_turns(state, 1000.0 + EVERY_S - 1.0, lambda _: False)
    assert jobs(state) == ["tune-1"]
    for _ in range(2):
        take_turns(state, 1000.0 + EVERY_S, lambda _: False)
    assert jobs(state) == ["tune-1", "tune-2"]
    again, folder = read_order(state, "tune-2"), job_folder(state, "tune-2").resolve()
    assert (again.folder, again.working_folder) == (f"{folder}/run", str(folder))
    assert again.command[-1] == f"{folder}/order.json" and (folder / "order.json").read_text() == "{}"
    assert not (folder / campaigns.FILE).exists()


def test_a_turn_is_left_out_while_the_one_before_runs_and_missed_ones_are_caught_up_once(state: Path) -> None:
    begin(state, "tune", EVERY_S, 0.0, first(state))
    take_turns(state, 1.5 * EVERY_S, lambda job: job == "tune-1")
    [told] = campaigns_of(state)
    assert (jobs(state), told.left_out, told.next_s) == (["tune-1"], 1, 2 * EVERY_S)
    take_turns(state, 5.5 * EVERY_S, lambda _: False)  # nobody drove the queue meanwhile
    [told] = campaigns_of(state)
    assert (jobs(state), told.run_count, told.left_out, told.next_s) == (
        ["tune-1", "tune-2"],
        2,
        4,
        6 * EVERY_S,
    )


def test_a_kill_between_the_promise_and_the_order_loses_and_doubles_nothing(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(state, "tune", EVERY_S, 0.0, first(state))
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(campaigns, "submit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        take_turns(state, EVERY_S, lambda _: False)
    for _ in range(2):
        take_turns(state, EVERY_S + 1.0, lambda _: True)
    assert jobs(state) == ["tune-1", "tune-2"]


def test_what_was_ended_is_not_repeated_and_what_cannot_be_read_harms_nobody(state: Path) -> None:
    begin(state, "tune", EVERY_S, 0.0, first(state))
    end(state, "tune")
    torn = jobs_folder(state) / "campaigns" / "torn"
    torn.mkdir(parents=True)
    (torn / campaigns.FILE).write_text('{"name": "torn"')
    take_turns(state, 9 * EVERY_S, lambda _: False)
    assert jobs(state) == ["tune-1"] and campaigns_of(state) == []


@given(st.lists(st.tuples(st.floats(0.0, 3 * EVERY_S), st.booleans()), max_size=30))
def test_every_turn_is_taken_or_left_out(passing: list[tuple[float, bool]]) -> None:
    order = JobOrder("a-1", ("true",), 1, 1, "run")
    told, now_s = Campaign("a", EVERY_S, 0.0, order, "a-1"), 0.0
    for past_s, goes_on in passing:
        now_s += past_s
        before, told = told, turned(told, now_s, goes_on=goes_on)
        assert told.turn == int(now_s // EVERY_S) and told.next_s > now_s
        taken = told.run_count - before.run_count
        assert taken == (told.turn > before.turn and not goes_on)
    assert told == turned(told, 0.0, goes_on=False)  # a clock that was set back takes nothing again


def test_r_161_a_queue_runs_it_again_when_its_turn_comes(state: Path) -> None:
    begin(state, "tune", EVERY_S, 0.0, replace(first(state), expected_s=1.0))
    wall_s = 0.0
    driver = Driver(state, QueueClock(wall=lambda: wall_s))
    try:
        for turn in range(3):
            wall_s = turn * EVERY_S
            while [each.state for each in jobs_of(state)] != ["finished"] * (turn + 1):
                driver.look()
    finally:
        driver.log.close()
    assert [each.job_id for each in jobs_of(state)] == ["tune-1", "tune-2", "tune-3"]
