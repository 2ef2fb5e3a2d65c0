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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.live.test_disk import fill, mounted
from twofold.core.errors import BusyError
from twofold.live.jobs.progress import Listener
from twofold.live.processes import running, stop_all
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

MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 320,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
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
        shutil.copytree(self.job.folder, job.folder)
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
def test_a_disk_that_is_full_costs_checkpoints_and_no_loss(calm: Calm, seed: int) -> None:
    """A limit on the size of files stands for the disk: what is larger cannot be written."""
    import psutil

    job = job_of(calm.state, f"full-{seed}")
    drawn = random.Random(seed)
    first = 1 if seed == 0 else drawn.randrange(1, EVERY)
    last = 2 * EVERY + 1 if seed == 0 else drawn.randrange(first + EVERY, STEPS - 1)
    size_bytes = 100_000 if seed == 0 else drawn.choice((50_000, 100_000, 200_000))

    def limited(size_bytes: int) -> None:
        for child in running(calm.state, f"train-{job.name}"):
            process = psutil.Process(child.process_id)
            process.rlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))

    def hear(line: str) -> None:
        if line.startswith(f"step {first} "):
            limited(size_bytes)
        elif line.startswith(f"step {last} "):
            limited(resource.RLIM_INFINITY)

    losses = train(calm.state, job, hear)
    told = read_events(job.folder, NOT_SAVED)
    assert told and all("File too large" in event["reason"] for event in told), told
    queue = Listener(job.folder, 1, job.folder / "kept.json")
    assert queue.heard().failed_count == len(told)  # what waits for a checkpoint hears of it
    assert len(read_events(job.folder, "launched")) == 1
    assert {event["attempt"] for event in read_events(job.folder, "worker")} == {0}  # nobody died of it
    assert same_end(calm, job, losses)


def test_a_disk_without_room_for_a_line_costs_no_loss(calm: Calm) -> None:
    """A small disk is filled to the last byte after the first steps, until two checkpoints had no room."""
    job = job_of(calm.state, "no-room")
    job.folder.mkdir(parents=True)
    mounted(job.folder, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
    full, ended = threading.Event(), threading.Event()
    filler = job.folder / "filler"

    def make_room() -> None:
        """When the second checkpoint on the full disk is begun."""
        while not ended.wait(0.001):
            if full.is_set() and (job.folder / "checkpoints" / f"step-{2 * EVERY:06d}").exists():
                filler.unlink()
                return

    def hear(line: str) -> None:
        if line.startswith("step 1 "):
            fill(filler)
            for path in job.folder.glob("*.jsonl"):  # nor in the rest of a page that a file has already
                with path.open("ab", buffering=0) as file, suppress(OSError):
                    while file.write(b"\n"):
                        pass
            full.set()

    maker = threading.Thread(target=make_room)
    maker.start()
    try:
        losses = train(calm.state, job, hear)
        assert not filler.exists(), "the disk was never full while it saved"
        assert NOT_SAVED in {event["event"] for event in read_events(job.folder)}
        assert {event["attempt"] for event in read_events(job.folder, "worker")} == {0}  # nobody died of it
        assert losses.keys() == calm.losses.keys() and same_end(calm, job, losses)
    finally:
        ended.set()
        maker.join()
        subprocess.run(["umount", str(job.folder)], check=True)


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
    """A rank is killed while a checkpoint is written, the whole run later; then one is while it exports."""
    drawn = random.Random(seed)
    job = job_of(calm.state, f"killed-{seed}")
    ended = threading.Event()
    killer = threading.Thread(target=kill_in_saving, args=(job, drawn, ended))
    killer.start()
    losses = train(calm.state, job)
    ended.set()
    killer.join()
    kills = 1 + max(event["attempt"] for event in read_events(job.folder, "worker"))
    assert kills >= 2, "nobody was killed"
    assert same_end(calm, job, losses)
    shutil.rmtree(job.folder)
    job = calm.copy(f"killed-{seed}")  # only its export is left to do
    ended.clear()
    killer = threading.Thread(target=kill_in_exporting, args=(job, drawn, ended))
    killer.start()
    losses = train(calm.state, job)
    ended.set()
    killer.join()
    names = [event["event"] for event in read_events(job.folder)]
    again = names[len(names) - names[::-1].index("launched") :]  # beside what the calm run left
    assert again.count("worker") == 4 and again.count("exported") == 1, f"no export was cut: {again}"
    assert "worker" not in again[again.index("exported") :], again
    assert same_end(calm, job, losses)


def kill_in_saving(job: TrainJob, drawn: random.Random, ended: threading.Event) -> None:
    """Kill a rank as soon as a checkpoint is begun: which one, of all but the last, is drawn."""
    rank, step = drawn.randrange(2), EVERY * drawn.randrange(1, STEPS // EVERY)
    folder = job.folder / "checkpoints" / f"step-{step:06d}"
    while not ended.wait(0.002):
        if folder.exists() and not (folder / "manifest.json").exists():
            kill_rank(job, rank)
            return


def kill_in_exporting(job: TrainJob, drawn: random.Random, ended: threading.Event) -> None:
    """Kill the rank that writes the export at a drawn moment: it has begun and is not yet in its place."""
    delay_s = drawn.uniform(0.0, 0.005)
    while not ended.wait(0.0005):
        if (job.folder / f".{EXPORT}.partial").exists():
            ended.wait(delay_s)
            kill_rank(job, 0)
            return


def kill_rank(job: TrainJob, rank: int) -> None:
    """The rank's newest process, by its own word: to look for it would take longer than a save."""
    found = [event["process_id"] for event in read_events(job.folder, "worker") if event["rank"] == rank]
    os.kill(found[-1], signal.SIGKILL)


def test_the_newest_whole_checkpoint_is_found_whatever_lies_beside_it(calm: Calm) -> None:
    checkpoints = calm.job.folder / "checkpoints"
    (checkpoints / "step-999999").mkdir()  # begun, and cut at once
    try:
        newest, refused = survey(checkpoints, key_of(key_beside(calm.state), make=False))
    finally:
        (checkpoints / "step-999999").rmdir()
    assert newest == checkpoints / f"step-{STEPS:06d}" and len(refused) == 1
