"""The real trainer under the queue: it makes room with a checkpoint, is killed, and ends at the same loss."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.live.test_jobs import QUICK, effects, job, log_replays, over
from tests.live.test_train_job import ignore, job_of
from twofold.live import processes
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.driver import Driver
from twofold.live.jobs.orders import JobOrder, QueueSettings, job_folder, submit, write_settings
from twofold.live.training.train_job import EXPORT, TrainJob, run_training
from twofold.live.training.training_record import read_events, read_steps, unequal_steps
from twofold.live.watchdog import JOBS, start_manager
from twofold.policy.cluster import events

PATIENCE_S = 240.0  # on a busy machine
STEPS = 900  # so many that four kills strike before the last
SEEDS = range(int(os.environ.get("TWOFOLD_FAULT_SEEDS", "1")))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    found = tmp_path / ".twofold"
    # A checkpoint about once a second: the trainer's steps take some milliseconds.
    settings = replace(QUICK, cadence=replace(QUICK.cadence, fixed_interval_s=1.0, wait_s=60.0))
    write_settings(found, QueueSettings(2, cluster=settings, report_s=0.5, grace_s=20.0))
    yield found
    bring_down(found)
    assert not processes.running(found)


def queued(state: Path, job_id: str, steps: int, **other: int) -> TrainJob:
    """A run of the tiny model in the queue, which writes its last checkpoint and those it is asked for."""
    folder = job_folder(state, job_id)
    told = replace(job_of(state, job_id, steps=steps, checkpoint_every_steps=steps), folder=folder / "run")
    fields = {key: value for key, value in asdict(told).items() if key not in ("folder", "model_config")}
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(json.dumps(fields))
    words = (
        str(folder / "order.json"),
        "--folder",
        str(told.folder),
        "--model-config",
        str(told.model_config),
    )
    command = processes.python_module("twofold.live.training.train_job", *words)
    submit(
        state,
        JobOrder(job_id, tuple(command), 2, 1, str(told.folder), saves=True, checkpoint_write_s=0.2, **other),
    )
    return told


def until(true: Callable[[], object], driver: Driver | None = None) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, "it did not happen"
        if driver is not None:
            driver.look()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def calm_loss(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last loss of the same run by itself, on as many threads."""
    state = tmp_path_factory.mktemp("calm")
    calm = job_of(state, "calm", steps=STEPS, checkpoint_every_steps=STEPS)
    run_training(calm, state, ignore)
    return read_steps(calm.folder)[-1].loss


def test_r_018_a_run_makes_room_with_a_checkpoint_and_ends_at_the_same_loss_without_a_lost_step(
    state: Path, calm_loss: str
) -> None:
    long = queued(state, "long", STEPS)
    driver = Driver(state)
    until(lambda: job(state, "long").state == "running", driver)
    urgent = queued(state, "urgent", 12, priority=4)
    until(lambda: over(state), driver)
    assert [job(state, each).state for each in ("long", "urgent")] == ["finished"] * 2
    assert events.StopJob("long", events.StopReason.PREEMPTED) in effects(state, events.StopJob)
    [stopped] = read_events(long.folder, "stopped")
    resumed = read_events(long.folder, "resumed")[-1]
    assert resumed["step"] == stopped["step"] > 0  # from the checkpoint that it was asked for
    assert not unequal_steps(read_steps(long.folder))
    assert read_steps(urgent.folder)[-1].step == 12
    assert read_steps(long.folder)[-1].loss == calm_loss
    log_replays(state)


@pytest.mark.parametrize("seed", SEEDS)
def test_worker_launcher_and_driver_killed_at_random_leave_the_last_loss_as_it_is(
    state: Path, calm_loss: str, seed: int
) -> None:
    """Kill -9 of each once, in an order and at moments that the seed draws; TWOFOLD_FAULT_SEEDS of them. The
    driver is killed again while a checkpoint is written, and while the run exports."""
    drawn = random.Random(seed)
    run = queued(state, "killed", STEPS)
    start_manager(state, JOBS)
    until(lambda: read_steps(run.folder))
    for role in drawn.sample(["worker", "launcher", "driver", "job"], 4):
        moment_s = time.monotonic() + drawn.uniform(0.1, 1.5)
        until(lambda at_s=moment_s: time.monotonic() >= at_s)
        assert job(state, "killed").state != "finished", f"it was over before a kill of the {role}"
        found = [False]  # one that is being started again has no process yet
        until(
            lambda role=role, found=found: (
                found.append(kill_one(state, run, role)) or any(found) or over(state)
            )
        )
        assert any(found), f"no {role} was killed"
        before = len(read_steps(run.folder))
        until(lambda known=before: len(read_steps(run.folder)) > known or over(state))
    writer = kill_driver_while(state, run, lambda: is_saving(run))
    writer = kill_driver_while(state, run, (run.folder / f".{EXPORT}.partial").exists, writer)
    os.kill(writer, signal.SIGCONT)
    until(lambda: over(state))
    assert job(state, "killed").state == "finished"
    assert not unequal_steps(read_steps(run.folder))
    assert read_steps(run.folder)[-1].loss == calm_loss
    log_replays(state)


def is_saving(run: TrainJob) -> bool:
    """Whether the newest checkpoint is begun and not whole."""
    found = sorted((run.folder / "checkpoints").glob("step-*"))
    return bool(found) and not (found[-1] / "manifest.json").exists()


def kill_driver_while(state: Path, run: TrainJob, is_so: Callable[[], bool], stopped: int = 0) -> int:
    """Kill the driver while it is so, which the rank that writes does not end meanwhile: it is stopped then,
    and its process number returned. The export follows on the last save at once, so one that is stopped
    already goes on only when all is ready here.
    """

    def drivers() -> list[int]:
        return [child.process_id for child in processes.running(state, JOBS, exact=True)]

    def writer_now() -> int:
        told = [event for event in read_events(run.folder, "worker") if event["rank"] == 0]
        return int(told[-1]["process_id"])

    until(drivers)
    killed, deadline_s, looked_s, writer = drivers()[0], time.monotonic() + PATIENCE_S, 0.0, writer_now()
    if stopped:
        os.kill(stopped, signal.SIGCONT)
    while True:
        while not is_so():
            now_s = time.monotonic()
            if now_s > looked_s + 0.3:  # what it waits for takes milliseconds, as this does
                assert now_s < deadline_s and not over(state), "it did not happen"
                looked_s, writer = now_s, writer_now()
            time.sleep(0.0002)
        os.kill(writer, signal.SIGSTOP)
        if is_so():
            os.kill(killed, signal.SIGKILL)
            until(lambda: set(drivers()) - {killed})
            return writer
        os.kill(writer, signal.SIGCONT)


def kill_one(state: Path, run: TrainJob, role: str) -> bool:
    """A worker of the trainer, its launcher, the driver, or the shell that the job runs under; whether there
    was one to kill."""
    if role == "driver":
        found = processes.running(state, JOBS, exact=True)
    elif role == "job":
        found = processes.running(state, "job-killed", exact=True, own=True)
    else:
        found = processes.running(run.folder.parent / ".state", "train-")
        workers = {event["process_id"] for event in read_events(run.folder, "worker")}
        found = [child for child in found if (child.process_id in workers) == (role == "worker")]
    for child in found[:1]:
        os.kill(child.process_id, signal.SIGKILL)
    return bool(found)
