"""What disks, other processes and kills do to a run: it ends with the very losses of a calm one, or says why.

One seed of each here; `TWOFOLD_FAULT_SEEDS=100` runs as many, killing at moments that the seed draws.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.live.test_disk import fill, mounted
from tests.tiny_llama import MODEL
from twofold.core.errors import BusyError
from twofold.live.jobs.progress import Listener
from twofold.live.processes import log_path, stop_all
from twofold.live.seals import key_of
from twofold.live.training.artefact import check_files
from twofold.live.training.checkpoints import survey
from twofold.live.training.sealing import key_beside
from twofold.live.training.train_job import (
    EXPORT,
    MEASURED,
    NOT_SAVED,
    TrainJob,
    run_training,
    trained_model,
)
from twofold.live.training.training_record import read_events, read_steps, unequal_steps

STEPS, EVERY = 16, 4
SEEDS = range(int(os.environ.get("TWOFOLD_FAULT_SEEDS", "1")))
Progress = Callable[[str], None]


def job_of(state: Path, name: str) -> TrainJob:
    config = state / "config.json"
    config.write_text(json.dumps(MODEL), "utf-8")
    job = TrainJob(name, state / "train" / name, config, 2, STEPS, 32, 4, checkpoint_every_steps=EVERY)
    return replace(job, corpus_bytes=60_000)


def train(state: Path, job: TrainJob, hear: Progress = lambda _: None) -> dict[int, str]:
    try:
        run_training(job, state, hear)
    finally:
        stop_all(state)
    lines = read_steps(job.folder)
    assert unequal_steps(lines) == []
    return {line.step: line.loss for line in lines}


@dataclass(frozen=True, slots=True)
class Calm:
    """A run that nothing happened to."""

    state: Path
    job: TrainJob
    losses: dict[int, str]

    def copy(self, name: str) -> TrainJob:
        """The same run under another name, as if it had just been killed before its export."""
        job = job_of(self.state, name)
        shutil.copytree(self.job.folder, job.folder, dirs_exist_ok=True)
        for path in (job.folder / EXPORT, job.folder / f".{EXPORT}.partial"):
            shutil.rmtree(path, ignore_errors=True)
        (job.folder / MEASURED).unlink()
        order = json.loads((job.folder / "job.json").read_text("utf-8"))
        order["job"]["name"] = name
        (job.folder / "job.json").write_text(json.dumps(order), "utf-8")
        return job


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    state = tmp_path_factory.mktemp("faults")
    job = job_of(state, "calm")
    yield Calm(state, job, train(state, job))


def same_end(calm: Calm, job: TrainJob, losses: dict[int, str]) -> bool:
    """Whether a run has the losses of the calm one to the last bit, and its weights."""
    wanted = {step: calm.losses[step] for step in losses}
    return losses == wanted and STEPS in losses and (
        check_files(trained_model(job, calm.state)) == check_files(trained_model(calm.job, calm.state))
    )  # fmt: skip


def nest_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_text("[" * 200_000, "utf-8")
    return "cannot be read"


def empty_manifest(folder: Path) -> str:
    (folder / "manifest.json").write_bytes(b"")
    return "cannot be read"


def change_weights(folder: Path) -> str:
    path = folder / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-7] + b"corrupt")
    return "other bytes"


def cut_weights(folder: Path) -> str:
    path = folder / "__1_0.distcp"
    path.write_bytes(path.read_bytes()[:-100])
    return f"has {path.stat().st_size:,} bytes, and {path.stat().st_size + 100:,} when it was written"


DAMAGE = (nest_manifest, change_weights, empty_manifest, cut_weights)


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_newest_checkpoints_and_a_half_export_are_passed_over(calm: Calm, seed: int) -> None:
    job = calm.copy(f"broken-{seed}")
    checkpoints = job.folder / "checkpoints"
    newest, before = sorted(checkpoints.iterdir(), reverse=True)[:2]
    damages = DAMAGE[:2] if seed == 0 else random.Random(seed).choices(DAMAGE, k=2)
    said = [damage(folder) for damage, folder in zip(damages, (newest, before), strict=True)]
    half = job.folder / f".{EXPORT}.partial"  # of an export that a kill -9 cut
    half.mkdir()
    (half / "model-00000.safetensors").write_bytes(b"half of the wei")
    with (job.folder / "steps.jsonl").open("a") as file:
        file.write('{"launch": 1, "atte')  # of a line that it tore
    losses = train(calm.state, job)
    refused = {event["checkpoint"]: event["reason"] for event in read_events(job.folder, "refused")}
    assert set(refused) == {newest.name, before.name}, refused
    assert said[0] in refused[newest.name] and said[1] in refused[before.name], refused
    assert read_events(job.folder, "resumed")[-1]["step"] == STEPS - 2 * EVERY
    assert same_end(calm, job, losses)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_on_the_size_of_files_costs_checkpoints_and_no_loss(calm: Calm, seed: int) -> None:
    """What is larger cannot be written for some steps: checkpoints, not lines."""
    import psutil

    job = job_of(calm.state, f"limited-{seed}")
    drawn = random.Random(seed)
    first = 1 if seed == 0 else drawn.randrange(1, EVERY)
    last = 2 * EVERY + 1 if seed == 0 else drawn.randrange(first + EVERY, STEPS - EVERY)
    size_bytes = 100_000 if seed == 0 else drawn.choice((50_000, 100_000, 200_000))

    def limit_and_lift(ended: threading.Event) -> None:
        """By the steps as they are written: lines are heard too late, and the export is to have room."""
        while len(read_events(job.folder, "worker") if job.folder.exists() else ()) < job.rank_count:
            if ended.wait(0.01):
                return
        ranks = [psutil.Process(each["process_id"]) for each in read_events(job.folder, "worker")]
        for step, size in ((first, size_bytes), (last, resource.RLIM_INFINITY)):
            while len(read_steps(job.folder)) < step:
                if ended.wait(0.002):
                    return
            for rank in ranks:
                rank.rlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    with beside(limit_and_lift):
        losses = train(calm.state, job)
    told = read_events(job.folder, NOT_SAVED)
    assert told and all("File too large" in event["reason"] for event in told), told
    queue = Listener(job.folder, 1, job.folder / "kept.json")
    assert queue.heard().failed_count == len(told)  # what waits for a checkpoint hears of it
    assert len(read_events(job.folder, "launched")) == 1
    assert {event["attempt"] for event in read_events(job.folder, "worker")} == {0}  # nobody died of it
    assert same_end(calm, job, losses)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_without_room_for_a_line_costs_no_loss(calm: Calm, seed: int) -> None:
    """A small disk is filled to the last byte after some steps, until checkpoints had no room."""
    job, drawn = job_of(calm.state, f"no-room-{seed}"), random.Random(seed)
    first = 1 if seed == 0 else drawn.randrange(1, EVERY)
    last = 2 * EVERY if seed == 0 else EVERY * drawn.choice((2, 3))
    full, filler = threading.Event(), job.folder / "filler"

    def make_room(ended: threading.Event) -> None:
        """When the last checkpoint on the full disk is begun."""
        while not ended.wait(0.001):
            if full.is_set() and (job.folder / "checkpoints" / f"step-{last:06d}").exists():
                filler.unlink()
                return

    def hear(line: str) -> None:
        if line.startswith(f"step {first} "):
            fill(filler)
            for path in job.folder.glob("*.jsonl"):  # nor in the rest of a page that a file has already
                with path.open("ab", buffering=0) as file, suppress(OSError):
                    while file.write(b"\n"):
                        pass
            full.set()

    with small_disk(job.folder):
        with beside(make_room):
            losses = train(calm.state, job, hear)
        assert not filler.exists(), "the disk was never full while it saved"
        assert NOT_SAVED in {event["event"] for event in read_events(job.folder)}
        assert {event["attempt"] for event in read_events(job.folder, "worker")} == {0}  # nobody died of it
        assert losses.keys() == calm.losses.keys() and same_end(calm, job, losses)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_that_is_full_when_it_exports_costs_no_loss(calm: Calm, seed: int) -> None:
    """There is room for lines and not for the weights, until the ranks were started again."""
    name, free_bytes = f"no-export-{seed}", random.Random(seed).randrange(60_000, 200_000)
    folder = job_of(calm.state, name).folder
    filler = folder / "filler"

    def make_room(ended: threading.Event) -> None:
        while not ended.wait(0.01):
            told = read_events(folder, "worker") if filler.exists() else []
            if told and told[-1]["attempt"] == 1:
                filler.unlink()
                return

    with small_disk(folder):
        job = calm.copy(name)
        before = len(read_events(folder))
        filler.write_bytes(b"x" * (shutil.disk_usage(folder).free - free_bytes))
        with beside(make_room):
            losses = train(calm.state, job)
        again = [event["event"] for event in read_events(folder)[before:]]
        assert again.count("worker") == 4 and again.count("exported") == 1, f"it had room: {again}"
        assert "No space left" in log_path(calm.state, f"train-{name}").read_text("utf-8")
        assert same_end(calm, job, losses)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 16 MiB there, which is gone afterwards."""
    folder.mkdir(parents=True)
    mounted(folder, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_trainer_of_one_folder_is_refused_and_harms_nothing(calm: Calm, seed: int) -> None:
    job, refused = job_of(calm.state, f"shared-{seed}"), []
    step = 2 if seed == 0 else random.Random(seed).randrange(1, STEPS)

    def hear(line: str) -> None:
        if line.startswith(f"step {step} "):
            with pytest.raises(BusyError):
                run_training(job, calm.state, lambda _: None)
            refused.append(line)

    losses = train(calm.state, job, hear)
    assert len(refused) == 1 and same_end(calm, job, losses)


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_in_saving_and_exporting_cost_no_loss(calm: Calm, seed: int) -> None:
    """While a checkpoint is written a rank is killed, or their launcher, as the seed draws; while another run
    exports, the other of the two."""
    drawn = random.Random(seed)
    in_saving, in_exporting = drawn.sample(["rank", "launcher"], 2)
    job = job_of(calm.state, f"killed-{seed}")
    with beside(kill_in_saving, job, in_saving, drawn):
        losses = train(calm.state, job)
    told = read_events(job.folder)
    assert len({(told["launch"], told["attempt"]) for told in told if told["event"] == "worker"}) == 2
    assert launches_of(told) == (2 if in_saving == "launcher" else 1), "nobody was killed"
    assert same_end(calm, job, losses)
    shutil.rmtree(job.folder)
    job = calm.copy(f"killed-{seed}")  # only its export is left to do
    before = len(read_events(job.folder))
    with beside(kill_in_exporting, job, in_exporting, drawn):
        losses = train(calm.state, job)
    told = read_events(job.folder)[before:]
    assert launches_of(told) == (2 if in_exporting == "launcher" else 1), told
    again = [event["event"] for event in told]
    assert again.count("worker") == 4 and again.count("exported") == 1, f"no export was cut: {again}"
    assert "worker" not in again[again.index("exported") :], again
    assert same_end(calm, job, losses)


def launches_of(told: list[dict[str, Any]]) -> int:
    return sum(event["event"] == "launched" for event in told)


@contextmanager
def beside(kill: Callable[..., None], *what: Any) -> Iterator[None]:
    """A thread that waits for its moment, until the run has ended."""
    ended = threading.Event()
    killer = threading.Thread(target=kill, args=(*what, ended))
    killer.start()
    try:
        yield
    finally:
        ended.set()
        killer.join()


def kill_in_saving(job: TrainJob, whom: str, drawn: random.Random, ended: threading.Event) -> None:
    """Kill as soon as a checkpoint is begun: which one, of all but the last, is drawn, and which rank."""
    rank, step = drawn.randrange(2), EVERY * drawn.randrange(1, STEPS // EVERY)
    folder = job.folder / "checkpoints" / f"step-{step:06d}"
    while not ended.wait(0.002):
        if folder.exists() and not (folder / "manifest.json").exists():
            kill(job, whom, rank)
            return


def kill_in_exporting(job: TrainJob, whom: str, drawn: random.Random, ended: threading.Event) -> None:
    """Kill the rank that writes the export, or its launcher, at a drawn moment: it has begun and is not yet
    in its place."""
    delay_s = drawn.uniform(0.0, 0.005)
    while not ended.wait(0.0005):
        if (job.folder / f".{EXPORT}.partial").exists():
            ended.wait(delay_s)
            kill(job, whom, 0)
            return


def kill(job: TrainJob, whom: str, rank: int) -> None:
    """The rank's newest process, by its own word, or its parent, the launcher: to look for them would take
    longer than a save."""
    import psutil

    found = [event["process_id"] for event in read_events(job.folder, "worker") if event["rank"] == rank]
    if whom == "launcher":
        os.kill(found[-1], signal.SIGSTOP)  # what it writes would be whole before the dead launcher is missed
        os.kill(psutil.Process(found[-1]).ppid(), signal.SIGKILL)
        return
    os.kill(found[-1], signal.SIGKILL)


def test_the_newest_whole_checkpoint_is_found_whatever_lies_beside_it(calm: Calm) -> None:
    checkpoints = calm.job.folder / "checkpoints"
    (checkpoints / "step-999999").mkdir()  # begun, and cut at once
    try:
        newest, refused = survey(checkpoints, key_of(key_beside(calm.state), make=False))
    finally:
        (checkpoints / "step-999999").rmdir()
    assert newest == checkpoints / f"step-{STEPS:06d}" and len(refused) == 1
