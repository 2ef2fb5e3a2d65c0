"""Real runs of a tiny model on two ranks: whatever is killed, the losses stay the same, bit for bit."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.tiny_llama import MODEL
from twofold.contracts.results.loop import TrainingMeasured
from twofold.core.errors import AlteredError, BusyError, FileError, RunError, ValueRefusedError
from twofold.live.processes import running, stop_all
from twofold.live.seals import key_of
from twofold.live.training import train_job
from twofold.live.training.artefact import check_files, write_manifest
from twofold.live.training.checkpoints import METADATA, state_digest, step_folder, step_of, survey
from twofold.live.training.run_watch import RunWatch
from twofold.live.training.sealing import UnsealedError, key_beside, write_sealed
from twofold.live.training.train_job import TrainJob, join_training, run_training, trained_model
from twofold.live.training.training_record import append_event, read_events, read_steps, unequal_steps

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

STEPS, EVERY = 48, 8

# A supervisor in a process of its own, that can be killed: it says each progress line.
SUPERVISOR = """
import sys
from dataclasses import replace
from pathlib import Path
from twofold.live.training.train_job import TrainJob, run_training
state, config = Path(sys.argv[1]), Path(sys.argv[2])
job = TrainJob("killed", state / "train" / "killed", config, *map(int, sys.argv[3:7]))
job = replace(job, checkpoint_every_steps=int(sys.argv[7]), corpus_bytes=int(sys.argv[8]))
job = replace(job, kill_rank=1, kill_after_step=int(sys.argv[9]))
run_training(job, state, lambda line: print(line, flush=True))
"""


def job_of(state: Path, name: str, **changes: object) -> TrainJob:
    config = state / "config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(MODEL), "utf-8")
    job = TrainJob(
        name=name,
        folder=state / "train" / name,
        model_config=config,
        rank_count=2,
        steps=STEPS,
        sequence_tokens=32,
        global_batch_sequences=4,
        checkpoint_every_steps=EVERY,
        corpus_bytes=60_000,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def ignore(_: str) -> None:
    """Progress that nobody reads."""


def losses_of(job: TrainJob) -> dict[int, str]:
    return {line.step: line.loss for line in read_steps(job.folder)}


@dataclass(frozen=True, slots=True)
class Runs:
    """One run that nobody disturbed, and one that lost all that it can lose.

    First a worker, then its supervisor, then a byte of its newest checkpoint, then its launcher.
    """

    state: Path
    calm: TrainJob
    calm_record: TrainingMeasured
    killed: TrainJob
    killed_record: TrainingMeasured
    orphan_count: int  # processes that the dead supervisor left
    altered_step: int  # of the checkpoint that was altered meanwhile
    refused: list[dict[str, object]]
    resumed_steps: list[int]


@dataclass(slots=True)
class KillLauncherOnce:
    """Progress that kills the workers' launcher at the first step it hears of."""

    state: Path
    done: bool = False

    def __call__(self, line: str) -> None:
        if line.startswith("step ") and not self.done:
            self.done = True
            launcher = min(child.process_id for child in running(self.state, "train-killed"))
            os.kill(launcher, signal.SIGKILL)


def kill_supervisor_in_the_middle(state: Path, job: TrainJob) -> int:
    """Start a supervisor, let it lose a worker and recover, then kill -9 it; returns how many it left.

    What it left is frozen at once, so that the test decides what happens next.
    """
    numbers = (job.rank_count, job.steps, job.sequence_tokens, job.global_batch_sequences)
    arguments = [*numbers, job.checkpoint_every_steps, job.corpus_bytes, job.kill_after_step]
    strays = state / "strays"  # modules that lie where it is started, and must never be taken for others
    strays.mkdir()
    for name in ("dis", "json", "tokenizers", "torch", "safetensors"):
        (strays / f"{name}.py").write_text(f"open({str(state / 'stray')!r}, 'w').close()\n", "utf-8")
    command = [
        sys.executable,
        "-P",
        "-c",
        SUPERVISOR,
        str(state),
        str(job.model_config),
        *map(str, arguments),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=strays) as supervisor:
        assert supervisor.stdout is not None
        try:
            killed = False
            for line in supervisor.stdout:
                killed = killed or line.startswith("killing worker 1")
                if killed and line.startswith(f"step {2 * EVERY + 3} "):
                    break
            assert killed, "the supervisor ended without killing its worker"
        finally:
            supervisor.kill()
    left = running(state, "train-killed")
    for child in left:
        os.kill(child.process_id, signal.SIGSTOP)
    return len(left)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")
    state = tmp_path_factory.mktemp("loop")
    calm = job_of(state, "calm")
    killed = job_of(state, "killed", kill_rank=1, kill_after_step=EVERY + 2)
    try:
        calm_record = run_training(calm, state, ignore)
        orphan_count = kill_supervisor_in_the_middle(state, killed)
        key = key_of(key_beside(state), make=False)
        newest = survey(killed.folder / "checkpoints", key)[0]
        assert newest is not None
        path = newest / "__1_0.distcp"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        killed_record = run_training(killed, state, KillLauncherOnce(state))
        yield Runs(
            state,
            calm,
            calm_record,
            killed,
            killed_record,
            orphan_count,
            step_of(newest),
            read_events(killed.folder, "refused"),
            [event["step"] for event in read_events(killed.folder, "resumed")],
        )
    finally:
        stop_all(state)


def test_repeated_steps_have_the_very_same_losses(runs: Runs) -> None:  # INV-16
    lines = read_steps(runs.killed.folder)
    assert len(lines) > STEPS  # some were repeated, after either kill
    assert unequal_steps(lines) == []


def test_r_021_a_run_of_which_everything_was_killed_learns_what_a_calm_one_learns(runs: Runs) -> None:
    """INV-16: after a lost worker, supervisor and launcher, and an altered checkpoint."""
    assert losses_of(runs.killed) == losses_of(runs.calm)
    assert set(losses_of(runs.calm)) == set(range(1, STEPS + 1))
    assert runs.killed_record.last_loss == runs.calm_record.last_loss < runs.calm_record.first_loss
    # The weights too: both export the same bytes.
    killed, calm = (check_files(trained_model(job, runs.state)) for job in (runs.killed, runs.calm))
    assert killed == calm
    # And the state of the last checkpoint, by which a version of the registry is traced.
    key = key_of(key_beside(runs.state), make=False)
    states = [state_digest(job.folder / "checkpoints", key) for job in (runs.killed, runs.calm)]
    assert states[0] == states[1] != ""


def test_one_worker_is_killed_once_though_the_supervisor_died_in_between(runs: Runs) -> None:
    assert len(read_events(runs.killed.folder, "kill-ordered")) == 1
    recovery = runs.killed_record.recovery
    assert recovery is not None
    assert recovery.killed_rank == 1 and recovery.killed_after_step >= EVERY + 2
    assert recovery.equal_losses and recovery.kill_to_step_s > 0
    assert runs.calm_record.recovery is None
    assert runs.killed_record.course is not None and runs.calm_record.course is not None
    told = [each for each in runs.killed_record.course.stretches if each.what == "killed"]
    assert [each.until_s - each.from_s for each in told] == pytest.approx([recovery.kill_to_step_s])
    for record in (runs.killed_record, runs.calm_record):
        saved = [each for each in record.course.stretches if each.what == "checkpoint"]
        assert len(saved) == record.checkpoint_count


def test_an_altered_checkpoint_is_never_resumed_from(runs: Runs) -> None:
    assert any(event["checkpoint"] == f"step-{runs.altered_step:06d}" for event in runs.refused)
    assert runs.resumed_steps[0] == 0
    assert runs.resumed_steps[-1] < runs.altered_step


def test_a_launcher_that_was_killed_is_started_again(runs: Runs) -> None:
    assert len(read_events(runs.killed.folder, "launched")) == 3  # at first, after its supervisor, by itself
    assert len({(line.launch, line.attempt) for line in read_steps(runs.killed.folder)}) == 4


def test_a_stray_module_where_it_is_started_is_not_imported(runs: Runs) -> None:
    assert (runs.state / "strays" / "dis.py").exists()
    assert not (runs.state / "stray").exists()


def test_what_a_dead_supervisor_left_is_ended_first(runs: Runs) -> None:
    assert runs.orphan_count >= 3  # the launcher and both workers
    assert running(runs.state) == []


def test_the_record_adds_up_and_is_returned_at_once_afterwards(runs: Runs) -> None:  # INV-1
    record, launches = runs.killed_record, len(read_events(runs.killed.folder, "launched"))
    parts = record.parts
    named = parts.data_s + parts.forward_s + parts.backward_s + parts.communication_s + parts.optimiser_s
    # They are the median step without what checkpoints blocked.
    longest_s = max(line.checkpoint_s for line in read_steps(runs.killed.folder))
    assert 0 <= record.step_s_p50 - named - parts.other_s <= longest_s + 1e-9
    assert parts.communication_s > 0 and parts.forward_s > 0 and parts.backward_s > 0 and parts.other_s >= 0
    assert record.steps == STEPS and record.tokens_per_step == 4 * 32
    assert record.checkpoint_bytes > 3 * 4 * record.parameter_count  # weights and two moments, fp32
    assert run_training(runs.killed, runs.state, ignore) == record
    assert len(read_events(runs.killed.folder, "launched")) == launches


def test_the_artefact_holds_the_weights_once_and_its_tokenizer(runs: Runs) -> None:
    from safetensors import safe_open

    folder = trained_model(runs.calm, runs.state)
    with safe_open(folder / "model.safetensors", "np") as weights:
        names = weights.keys()
        count = sum(weights.get_tensor(name).size for name in names)
    assert count == runs.calm_record.parameter_count
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["vocab_size"] == MODEL["vocab_size"] and config["tie_word_embeddings"]
    assert (folder / "tokenizer.json").exists() and (folder / "generation_config.json").exists()


def test_an_artefact_that_was_altered_is_refused_and_one_that_is_gone_is_made_again(runs: Runs) -> None:
    folder = trained_model(runs.calm, runs.state)
    weights = folder / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(AlteredError, match=r"model\.safetensors"):
        run_training(runs.calm, runs.state, ignore)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert run_training(runs.calm, runs.state, ignore) == runs.calm_record
    assert weights.read_bytes() == good


def interrupted_at(stage: str, job: TrainJob, state: Path) -> None:
    """Run until a progress line begins with `stage`, and press Ctrl-C there."""

    def interrupt(line: str) -> None:
        if line.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_training(job, state, interrupt)


def test_an_interrupt_leaves_no_process_and_another_order_moves_its_run_aside(runs: Runs) -> None:
    job = job_of(runs.state, "interrupted")
    interrupted_at("starting", job, runs.state)
    assert len(read_events(job.folder, "launched")) == 1
    assert running(runs.state) == []
    interrupted_at("preparing", job_of(runs.state, "interrupted", steps=STEPS + 1), runs.state)
    aside = json.loads((runs.state / "train" / "interrupted.replaced" / "job.json").read_text("utf-8"))
    assert aside["job"]["steps"] == STEPS
    assert not read_events(job.folder, "launched")


def test_two_supervisors_of_one_job_do_not_fight(tmp_path: Path) -> None:
    import fcntl

    job = job_of(tmp_path, "busy")
    lock = job.folder.with_name("busy.lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="busy"):
            run_training(job, tmp_path, ignore)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"precision": "int4"}, "precision `int4`"),
        ({"global_batch_sequences": 3}, "3 sequences cannot be split evenly over 2 ranks"),
        ({"sequence_tokens": 65}, "sequences of 65 tokens exceed"),
        ({"kill_rank": 2}, "rank 2 cannot be killed"),
        ({"steps": 0}, "at least one step"),
    ],
)
def test_a_job_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueRefusedError, match=said):
        run_training(job_of(tmp_path, "refused", **change), tmp_path, ignore)
    assert not (tmp_path / "train").exists()


def test_a_configuration_that_is_no_models_or_not_there_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, "refused")
    for text, said in (('{"model_type": "llama"}', "vocab_size"), ('{"vocab_size": 320}', "model_type")):
        job.model_config.write_text(text, "utf-8")
        with pytest.raises(ValueRefusedError, match=said):
            run_training(job, tmp_path, ignore)
    job.model_config.write_text("[" * 100_000, "utf-8")
    with pytest.raises(FileError, match="cannot be read"):
        run_training(job, tmp_path, ignore)
    with pytest.raises(FileError, match=r"nowhere\.json"):
        run_training(replace(job, model_config=tmp_path / "nowhere.json"), tmp_path, ignore)
    with pytest.raises(FileError, match="train it first"):
        trained_model(job, tmp_path)


def test_what_an_older_build_or_another_key_saved_is_kept_and_no_worker_starts(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")
    pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")
    job, state = job_of(tmp_path / "state", "before"), tmp_path / "state"
    saved = step_folder(job.folder / "checkpoints", EVERY)
    saved.mkdir(parents=True)
    (saved / METADATA).write_bytes(b"index")
    write_manifest(saved)  # as builds of before wrote them
    with pytest.raises(UnsealedError, match="has no seal: a build from before") as caught:
        run_training(job, state, ignore)
    assert "with the build that began it" in str(caught.value)
    elsewhere = step_folder(tmp_path / "elsewhere" / "checkpoints", EVERY)
    elsewhere.mkdir(parents=True)
    (elsewhere / METADATA).write_bytes(b"index")
    write_sealed(elsewhere, elsewhere.name, b"other key" * 4)
    branch = replace(job, name="branch", folder=state / "train" / "branch", branch_from=str(elsewhere))
    with pytest.raises(UnsealedError, match="not sealed by our key"):
        run_training(branch, state, ignore)
    assert (saved / METADATA).exists() and not read_events(job.folder, "launched")
    assert not read_events(branch.folder, "launched")


def test_a_host_joins_with_the_key_of_the_first_one_alone(tmp_path: Path) -> None:
    job = job_of(tmp_path / "shared", "two", host_count=2, rendezvous="127.0.0.1:1")
    append_event(job.folder, "launched", launch=1)
    (job.folder / "job.json").write_text('{"thread_count": 1}', "utf-8")
    with pytest.raises(FileError, match=r"own-training\.key` is not there"):
        join_training(job, tmp_path / "own", ignore)


def test_a_full_disk_is_waited_for_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher is a stand-in that does nothing: its workers hang, and their lines might wait for room."""
    import psutil

    monkeypatch.setattr(train_job, "SILENCE_LIMIT_S", 0.05)
    monkeypatch.setattr(train_job, "FULL_LIMIT_S", 0.5)
    monkeypatch.setattr(train_job, "disk_trouble", lambda _: "full (a quota)")
    job = job_of(tmp_path, "full")
    watch, said = RunWatch(job.folder, 1), list[str]()
    idle = subprocess.Popen(["sleep", "600"])
    try:
        with pytest.raises(RunError, match=r"did nothing for \d+ s, the disk being full"):
            series = train_job.run_series(job, watch)
            train_job._watch(job, tmp_path, psutil.Process(idle.pid), watch, series, said.append)
    finally:
        idle.kill()
        idle.wait()
    assert said and all("make room" in line for line in said)
