"""A queue of jobs on slots, with a stand-in for the trainer: what runs, waits, makes room, heals.

The driver is the real one, in a process of its own where it is killed, else called step by step.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.core.errors import FileError, ShapeError, UnknownNameError
from twofold.live import processes
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs import gangs, orders
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.job_log import LINES, LOG, read_job_log, replayed
from twofold.live.jobs.listing import JobStatus, jobs_of
from twofold.live.jobs.orders import (
    JobOrder,
    QueueSettings,
    cancel,
    job_folder,
    jobs_folder,
    lost_slots,
    new_job_id,
    read_settings,
    submit,
    write_settings,
)
from twofold.live.jobs.progress import Listener
from twofold.live.watchdog import JOBS, start_manager
from twofold.policy.cluster import events
from twofold.policy.cluster import settings as cluster

STUB = Path(__file__).with_name("stub_trainer.py")
PATIENCE_S = 60.0  # on a busy machine
QUICK = cluster.ClusterSettings(
    preemption=cluster.PreemptionSettings(minimum_run_s=0.0, patience_s=0.0),
    cadence=cluster.CadenceSettings(fixed_interval_s=0.5, wait_s=20.0),
    faults=cluster.FaultSettings(spare_count=0, backoff_s=0.1, quarantine_s=1000.0),
    queue=cluster.GangQueueSettings(look_every_s=0.5),
)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A queue of two slots; nothing of it runs afterwards."""
    found = tmp_path / ".twofold"
    write_settings(found, QueueSettings(2, cluster=QUICK, report_s=0.05, grace_s=10.0))
    yield found
    bring_down(found)
    assert not processes.running(found)


def a_job(state: Path, job_id: str, steps: int = 5, step_s: float = 0.02, **other: Any) -> JobOrder:
    """A stand-in for a training run, submitted."""
    slot_count = other.pop("slot_count", 1)
    order = JobOrder(
        job_id=job_id,
        command=(sys.executable, str(STUB), str(steps), str(step_s)),
        slot_count=slot_count,
        process_count=slot_count,
        folder=str(job_folder(state, job_id) / "run"),
        saves=True,
        checkpoint_write_s=0.05,
        expected_s=steps * step_s,
        restart_s=0.1,
        working_folder=str(state),
    )
    order = replace(order, **other)
    submit(state, order)
    return order


def job(state: Path, job_id: str) -> JobStatus:
    return next(each for each in jobs_of(state) if each.job_id == job_id)


def until(true: Callable[[], object], driver: Driver | None = None) -> None:
    """Look, or let the driver's process look, until it is so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, "it did not happen"
        if driver is not None:
            driver.look()
        time.sleep(0.02)


def over(state: Path) -> bool:
    return all(each.state in ("finished", "failed", "cancelled", "refused") for each in jobs_of(state))


def last_loss(order: JobOrder) -> str:
    """After all steps; each was done, and repeated ones had the same loss."""
    lines = [json.loads(line) for line in (Path(order.folder) / "steps.jsonl").read_text().splitlines()]
    losses: dict[int, set[str]] = {}
    for line in lines:
        losses.setdefault(line["step"], set()).add(line["loss"])
    assert sorted(losses) == list(range(1, max(losses) + 1))
    assert all(len(found) == 1 for found in losses.values())
    return losses[max(losses)].pop()


def chain(steps: int) -> str:
    loss = "start"
    for _ in range(steps):
        loss = hashlib.sha256(loss.encode()).hexdigest()
    return loss


def effects(state: Path, kind: type) -> list[Any]:
    runs = read_job_log(jobs_folder(state) / LOG)
    found = (effect for run in runs for entry in run.entries for effect in entry.effects)
    return [effect for effect in found if isinstance(effect, kind)]


def log_replays(state: Path) -> None:
    """The live log, told to a fresh brain, is answered as it was: lines that are equal to the byte."""
    path = jobs_folder(state) / LOG
    runs = read_job_log(path)
    for run in runs:
        replayed(run, path)
    lines = [line for line in path.read_text().splitlines() if not line.startswith('{"log"')]
    assert [LINES.to_line(entry) for run in runs for entry in run.entries] == lines


def test_r_173_a_gang_starts_whole_and_makes_room_for_a_higher_priority_with_its_work(state: Path) -> None:
    """Three jobs of two teams on two slots: gang start, preemption with a checkpoint, requeue."""
    long = a_job(state, "long", steps=60, slot_count=2, team="red")
    driver = Driver(state)
    until(lambda: job(state, "long").state == "running", driver)
    found = processes.running(state, "job-long", exact=True)
    assert {child.digest for child in found} == {"1.0", "1.1"}
    urgent = a_job(state, "urgent", steps=4, slot_count=2, team="blue", priority=5)
    small = a_job(state, "small", steps=4, team="blue")
    until(lambda: job(state, "urgent").state == "running", driver)
    assert job(state, "long").state == "queued" and job(state, "small").state == "queued"
    assert not processes.running(state, "job-long", exact=True)  # before another has its slots
    until(lambda: over(state), driver)
    assert [job(state, each).state for each in ("long", "urgent", "small")] == ["finished"] * 3
    assert [last_loss(each) for each in (long, urgent, small)] == [chain(60), chain(4), chain(4)]
    [stop] = effects(state, events.StopJob)
    assert stop == events.StopJob("long", events.StopReason.PREEMPTED)
    assert job(state, "long").preempted == 1 and job(state, "long").restarts == 1
    steps = [
        json.loads(line)["step"] for line in (Path(long.folder) / "steps.jsonl").read_text().splitlines()
    ]
    assert len(steps) == 60  # it lost nothing to making room
    log_replays(state)


def test_teams_share_alike_whatever_was_submitted_first(state: Path) -> None:
    write_settings(state, replace(read_settings(state), slot_count=1))
    for number in range(4):
        a_job(state, f"red-{number}", steps=8, step_s=0.05, team="red")
    a_job(state, "blue-0", steps=2, team="blue")
    driver = Driver(state)
    until(lambda: over(state), driver)
    started = [effect.job_id for effect in effects(state, events.StartJob)]
    assert started.index("blue-0") == 1  # red has used the slot by then, and blue never


def test_a_rank_that_is_killed_ends_its_gang_which_goes_on_from_its_checkpoint(state: Path) -> None:
    order = a_job(state, "pair", steps=40, slot_count=2)
    driver = Driver(state)
    until(lambda: (Path(order.folder) / "checkpoint.json").exists(), driver)
    victim = max(child.process_id for child in processes.running(state, "job-pair") if child.digest == "1.1")
    os.kill(victim, signal.SIGKILL)
    until(lambda: job(state, "pair").restarts == 1, driver)
    until(lambda: over(state), driver)
    assert job(state, "pair").state == "finished" and last_loss(order) == chain(40)
    log_replays(state)


def test_a_job_that_stands_still_is_found_and_goes_on(state: Path) -> None:
    quiet = replace(
        QUICK,
        watch=cluster.WatchSettings(silence_s=1.0, silence_ratio=1.0, start_wait_s=30.0),
        cadence=replace(QUICK.cadence, wait_s=1.0),  # it may stand still when it is asked for a checkpoint
    )
    write_settings(state, replace(read_settings(state), cluster=quiet))
    order = a_job(state, "stuck", steps=200)
    driver = Driver(state)
    until(lambda: job(state, "stuck").state == "running", driver)
    (Path(order.folder) / "hang").touch()
    until(lambda: over(state), driver)
    assert events.StopJob("stuck", events.StopReason.HUNG) in effects(state, events.StopJob)
    assert job(state, "stuck").state == "finished" and last_loss(order) == chain(200)
    log_replays(state)


def test_r_013_a_slow_slot_is_named_and_left_for_a_free_one(state: Path) -> None:
    watched = replace(QUICK, watch=cluster.WatchSettings(slow_ratio=3.0, slow_count=3))
    write_settings(state, replace(read_settings(state), cluster=watched, slot_count=3))
    order = a_job(state, "gang", steps=120, slot_count=2)
    driver = Driver(state)
    until(lambda: job(state, "gang").state == "running", driver)
    (Path(order.folder) / "slow-1").write_text("6")
    until(lambda: effects(state, events.SwapNode), driver)
    (Path(order.folder) / "slow-1").unlink()
    [swap] = effects(state, events.SwapNode)
    [slow] = effects(state, events.SlowNode)
    assert swap.failed_node_id == slow.node_id and swap.spare_node_id == "slot-2"
    until(lambda: over(state), driver)
    lines = (Path(order.folder) / "steps-rank-1.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["slots"] == "slot-2" and last_loss(order) == chain(120)


def test_a_slot_that_is_lost_is_left_and_one_that_is_back_is_used(state: Path) -> None:
    order = a_job(state, "one", steps=60, slot_count=2)
    driver = Driver(state)
    until(lambda: (Path(order.folder) / "checkpoint.json").exists(), driver)
    mark = jobs_folder(state) / "slots" / "slot-1.lost"
    mark.parent.mkdir()
    mark.touch()
    until(lambda: job(state, "one").state == "queued" and gangs.is_gone(state, "one"), driver)
    mark.unlink()
    until(lambda: over(state), driver)
    assert job(state, "one").state == "finished" and last_loss(order) == chain(60)
    log_replays(state)


def test_a_slot_is_lost_with_its_accelerator_and_by_no_tool_that_does_not_answer(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = QueueSettings(3, accelerators=True)
    assert lost_slots(state, there, frozenset({0, 2, 3})) == {"slot-1"}
    assert (
        lost_slots(state, there, None) == lost_slots(state, replace(there, accelerators=False), None) == set()
    )
    answers: list[frozenset[int] | None] = [frozenset({0, 1}), None, frozenset({1})]
    monkeypatch.setattr(orders.nvidia, "numbers", lambda: answers.pop(0))
    monkeypatch.setattr(orders, "ASK_EVERY_S", 0.0)
    watch, heard = orders.AcceleratorWatch(), list[frozenset[int] | None]()
    until(lambda: heard.append(watch.listed()) or heard[-1] == {1})
    assert list(dict.fromkeys(heard)) == [None, {0, 1}, {1}]


def test_a_checkpoint_is_heard_with_its_write_and_its_stall(tmp_path: Path) -> None:
    listener = Listener(tmp_path, 1, tmp_path / "kept")
    said = [{"write_s": 2.0}, {"write_s": 3.0, "blocked_s": 0.25}, {"blocked_s": 0.5}, {"write_s": "long"}]
    lines = (json.dumps({"event": "checkpoint", **each}) for each in said)
    (tmp_path / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert listener.heard().writes == [(2.0, None), (3.0, 0.25), (0.5, 0.5), (0.0, None)]


def test_a_command_that_fails_again_and_again_is_given_up(state: Path) -> None:
    few = replace(QUICK, faults=replace(QUICK.faults, restart_limit=2))
    write_settings(state, replace(read_settings(state), cluster=few))
    a_job(state, "bad", command=("sh", "-c", "echo no; exit 3"), saves=False)
    a_job(state, "absent", command=("/no/such/program",), saves=False)
    driver = Driver(state)
    until(lambda: over(state), driver)
    assert [job(state, each).state for each in ("bad", "absent")] == ["failed"] * 2
    assert (job(state, "bad").restarts, job(state, "bad").why) == (0, "gave-up") or job(
        state, "bad"
    ).restarts == 2
    assert processes.log_path(state, "job-bad").read_text() == "no\n" * 3


def test_a_plain_command_runs_once_per_rank_and_is_told_which(state: Path) -> None:
    script = 'echo "$RANK of $WORLD_SIZE on $TWOFOLD_SLOTS in $PWD"'
    a_job(state, "plain", command=("sh", "-c", script), slot_count=2, saves=False)
    driver = Driver(state)
    until(lambda: over(state), driver)
    said = sorted(processes.log_path(state, "job-plain").read_text().splitlines())
    assert said == [f"{rank} of 2 on slot-{rank} in {state.resolve()}" for rank in range(2)]


def test_a_job_is_given_no_key_but_those_that_it_was_submitted_with(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "NVIDIA_API_KEY", "AWS_SECRET_ACCESS_KEY", "WHATEVER"):
        monkeypatch.setenv(name, "of-the-operator")  # whoever started the driver
    order = a_job(state, "plain", command=("env",), saves=False)
    submit(state, replace(order, job_id="named"), {"HF_TOKEN": "of-the-owner", "RANK": "7"})
    [kept] = (jobs_folder(state) / "orders").glob("*.environment")
    assert kept.stat().st_mode & 0o077 == 0
    driver = Driver(state)
    until(lambda: over(state), driver)
    said = {name: processes.log_path(state, f"job-{name}").read_text() for name in ("plain", "named")}
    assert "of-the-operator" not in "".join(said.values())
    assert "of-the-owner" not in said["plain"] and "HF_TOKEN=of-the-owner" in said["named"].splitlines()
    assert "RANK=0" in said["named"].splitlines() and "PATH=" in said["plain"]  # what it is told comes last
    driver.look()
    assert not kept.exists()  # nobody needs it any more


def test_a_job_whose_order_is_spoilt_fails_and_can_be_cancelled_and_others_run(state: Path) -> None:
    few = replace(QUICK, faults=replace(QUICK.faults, restart_limit=1))
    write_settings(state, replace(read_settings(state), cluster=few))
    a_job(state, "spoilt", slot_count=2)
    waiting = a_job(state, "waiting", slot_count=2)
    a_job(state, "well", slot_count=2)
    driver = Driver(state)
    driver._hear_owners()  # it has heard of them, and started none
    for name in ("spoilt", "waiting"):
        (jobs_folder(state) / "orders" / f"{name}.json").write_text("[" * 100_000)
    cancel(state, waiting.job_id)
    until(lambda: not driver.brain.view.jobs, driver)
    kinds = {type(entry.event) for run in read_job_log(jobs_folder(state) / LOG) for entry in run.entries}
    assert events.JobFailed in kinds and job(state, "well").state == "finished"


@pytest.mark.parametrize(("ranks", "seen"), [(1, "4,1,3,6"), (2, "4,3,1,6"), (4, "4,1,3,6")])
def test_a_rank_finds_its_own_accelerator_at_its_local_rank(tmp_path: Path, ranks: int, seen: str) -> None:
    held = ("slot-4", "slot-1", "slot-3", "slot-6")
    order = JobOrder("a", ("true",), 4, ranks, str(tmp_path))
    for rank in range(ranks):
        told = gangs._environment(tmp_path, QueueSettings(8, True), order, held, rank, 1, 1)
        assert told["CUDA_VISIBLE_DEVICES"] == seen
        first = told["TWOFOLD_SLOTS"].split(",")[0]
        assert first == f"slot-{seen.split(',')[int(told['LOCAL_RANK'])]}"
    assert gangs._environment(tmp_path, QueueSettings(8), order, held, 0, 1, 1)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_job_that_is_cancelled_writes_its_last_checkpoint_and_ends(state: Path) -> None:
    order = a_job(state, "gone", steps=10_000)
    queued = a_job(state, "waits", slot_count=2)
    driver = Driver(state)
    until(lambda: job(state, "gone").state == "running", driver)
    cancel(state, queued.job_id)
    cancel(state, order.job_id)
    until(lambda: over(state) and gangs.is_gone(state, "gone"), driver)
    lines = (Path(order.folder) / "steps.jsonl").read_text().splitlines()
    assert json.loads((Path(order.folder) / "checkpoint.json").read_text())["step"] == len(lines)
    assert {each.state for each in jobs_of(state)} == {"cancelled"}
    with pytest.raises(UnknownNameError, match="there is no job `nobody`"):
        cancel(state, "nobody")


def test_more_than_the_machine_has_is_refused(state: Path) -> None:
    a_job(state, "huge", slot_count=3)
    driver = Driver(state)
    until(lambda: over(state), driver)
    assert (job(state, "huge").state, job(state, "huge").why) == ("refused", "too-large")


def test_settings_that_change_hold_once_the_queue_is_idle(state: Path) -> None:
    a_job(state, "first", steps=60)
    driver = Driver(state)
    until(lambda: job(state, "first").state == "running", driver)
    write_settings(state, replace(read_settings(state), slot_count=4))
    driver.look()
    assert len(driver.brain.view.nodes) == 2
    until(lambda: len(driver.brain.view.nodes) == 4, driver)
    assert job(state, "first").state == "finished"
    a_job(state, "second", slot_count=4)
    until(lambda: over(state), driver)
    assert job(state, "second").state == "finished" and new_job_id(state, "First!") == "first-1"
    log_replays(state)


def test_a_disk_that_takes_no_line_ends_the_driver_before_anything_is_done(state: Path) -> None:
    driver = Driver(state)
    a_job(state, "never")
    os.close(driver.log._file)
    driver.log._file = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(FileError, match="cannot be written: no space left"):
        driver.look()
    driver.log.close()
    assert not processes.running(state, "job-")
    until(lambda: over(state), Driver(state))  # the next one hears of the job anew
    assert job(state, "never").state == "finished"


@pytest.mark.parametrize("seed", [1])
def test_whatever_is_killed_at_random_the_jobs_end_as_if_nothing_had_been(state: Path, seed: int) -> None:
    """Driver, watchdog, ranks and their shells. `TWOFOLD_KILLS=100` kills so many instead of eight."""
    drawn = random.Random(seed)
    jobs = [
        a_job(state, "pair", steps=150, slot_count=2, team="red"),
        a_job(state, "urgent", steps=60, team="blue", priority=3),
        a_job(state, "last", steps=60, team="blue"),
    ]
    start_manager(state, JOBS)
    for _ in range(int(os.environ.get("TWOFOLD_KILLS", "8"))):
        moment_s = time.monotonic() + drawn.uniform(0.05, 0.9)
        until(lambda at_s=moment_s: time.monotonic() >= at_s)
        role = drawn.choice(["jobs", "jobs", "watchdog", "job-", "job-"])
        if role != "job-":  # whoever is left starts the other: both at once leave nobody
            until(lambda: all(processes.running(state, each, exact=True) for each in ("jobs", "watchdog")))
        found = processes.running(state, role, exact=role != "job-")
        if found:
            os.kill(drawn.choice(found).process_id, signal.SIGKILL)
    until(lambda: over(state))
    assert {each.state for each in jobs_of(state)} == {"finished"}
    assert [last_loss(each) for each in jobs] == [chain(150), chain(60), chain(60)]
    log_replays(state)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"log":"star',
        b'{"log":' + b"[" * 100_000,
        b"\xff\xfe",
        b'{"now_s":0.0,"event":{"type":"Woke"},"effects":[]}',
    ],
)
def test_a_log_that_is_none_is_refused_and_not_acted_on(state: Path, line: bytes) -> None:
    path = jobs_folder(state) / LOG
    path.write_bytes(line + b"\n")
    with pytest.raises(ShapeError, match=r"line 1 of `.*log\.jsonl` is none"):
        Driver(state)
    assert path.read_bytes() == line + b"\n"


def test_a_log_whose_answers_this_version_would_not_give_is_refused(state: Path) -> None:
    a_job(state, "one", steps=2)
    driver = Driver(state)
    until(lambda: over(state), driver)
    path = jobs_folder(state) / LOG
    path.write_text(path.read_text().replace('slot-0",1]]', 'slot-1",1]]', 1))
    with pytest.raises(ShapeError, match="where this version answers"):
        Driver(state)


def test_a_driver_that_is_killed_finds_its_gangs_and_they_run_on(state: Path) -> None:
    order = a_job(state, "on", steps=100, slot_count=2)
    first = Driver(state)
    until(lambda: job(state, "on").state == "running", first)
    before = {child.process_id for child in processes.running(state, "job-on")}
    second = Driver(state)  # the first is forgotten, as kill -9 forgets it
    assert second.brain.view.jobs["on"].attempt == 1 and set(second.gangs) == {"on"}
    second.look()
    assert before <= {child.process_id for child in processes.running(state, "job-on")}
    until(lambda: over(state), second)
    assert job(state, "on").restarts == 0 and last_loss(order) == chain(100)
    log_replays(state)


def test_a_slot_that_is_lost_is_swapped_for_the_spare_and_the_loss_is_the_same(state: Path) -> None:
    spared = replace(QUICK, faults=replace(QUICK.faults, spare_count=1))
    write_settings(state, replace(read_settings(state), cluster=spared, slot_count=3))
    order = a_job(state, "spared", steps=60, slot_count=2)
    driver = Driver(state)
    until(lambda: (Path(order.folder) / "checkpoint.json").exists(), driver)
    held = set(job(state, "spared").slots)
    [spare] = {f"slot-{number}" for number in range(3)} - held
    mark = jobs_folder(state) / "slots" / f"{max(held)}.lost"
    mark.parent.mkdir()
    mark.touch()
    until(lambda: over(state), driver)
    [swap] = effects(state, events.SwapNode)
    assert (swap.failed_node_id, swap.spare_node_id) == (max(held), spare)
    assert job(state, "spared").state == "finished" and last_loss(order) == chain(60)
    log_replays(state)
