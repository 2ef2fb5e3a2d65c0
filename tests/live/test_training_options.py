"""Real runs of a tiny model, each with one thing other: what must not change a loss does not."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.tiny_llama import MODEL
from twofold.app.planning import plan
from twofold.contracts.results.loop import TrainingMeasured
from twofold.core.errors import ValueRefusedError
from twofold.live.processes import stop_all
from twofold.live.training.train_job import TrainJob, run_training, trained_model
from twofold.live.training.training_record import read_events, read_steps

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

STEPS, EVERY = 12, 6


def job_of(state: Path, name: str, **changes: object) -> TrainJob:
    config = state / "config.json"
    config.write_text(json.dumps(MODEL), "utf-8")
    text = state / "text.jsonl"
    if not text.exists():
        words = ("fish", "one", "two", "red", "blue", "swims", "far", "near")
        lines = (" ".join(words[(at * place) % 7] for place in range(40)) for at in range(1, 200))
        text.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), "utf-8")
    job = TrainJob(name, state / "train" / name, config, 2, STEPS, 32, 8, checkpoint_every_steps=EVERY)
    return replace(job, **{"data": str(text), "warm_up_steps": 2, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that ended."""

    job: TrainJob
    record: TrainingMeasured
    losses: dict[int, float]


def ran(state: Path, name: str, **changes: object) -> Ran:
    job = job_of(state, name, **changes)
    try:
        record = run_training(job, state, lambda _: None)
    finally:
        stop_all(state)
    return Ran(job, record, {line.step: float.fromhex(line.loss) for line in read_steps(job.folder)})


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def plain(state: Path) -> Iterator[Ran]:
    yield ran(state, "plain", evaluate_every_steps=EVERY)


def test_text_that_is_held_out_is_evaluated(plain: Ran) -> None:
    told = read_events(plain.job.folder, "evaluated")
    assert [event["step"] for event in told] == [EVERY, STEPS]
    first, last = (float.fromhex(event["loss"]) for event in told)
    assert last < first < plain.record.first_loss
    assert plain.record.data is not None and plain.record.data.documents == 199


OTHERS = {
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "qwen3": {key: value for key, value in MODEL.items() if key not in ("model_type", "vocab_size")},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_models_of_other_kinds_are_trained_and_exported_as_what_they_are(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    (tmp_path / "its.json").write_text(json.dumps({"model_type": kind, "vocab_size": 320, **OTHERS[kind]}))
    run = ran(tmp_path, kind, model_config=tmp_path / "its.json", rank_count=1, steps=4, recompute="full")
    assert run.record.last_loss < run.record.first_loss
    read = AutoModelForCausalLM.from_pretrained(trained_model(run.job, tmp_path))
    assert read.config.model_type == kind


def test_thrift_changes_no_loss_by_more_than_the_last_bits(state: Path, plain: Ran) -> None:
    thrifty = ran(state, "thrifty", micro_batch_sequences=2, recompute="full", evaluate_every_steps=4)
    assert thrifty.losses == pytest.approx(plain.losses, rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_r_001_half_precision_ends_within_2_percent(state: Path, plain: Ran, precision: str) -> None:
    half = ran(state, precision, precision=precision, recompute="selective")
    assert half.losses != plain.losses
    assert half.record.last_loss == pytest.approx(plain.record.last_loss, rel=0.02)


def test_r_037_two_runs_branch_off_one_checkpoint(state: Path, plain: Ran) -> None:
    checkpoint = str(plain.job.folder / "checkpoints" / f"step-{EVERY:06d}")
    same = ran(state, "same", branch_from=checkpoint, rank_count=1)
    other = ran(state, "other", branch_from=checkpoint, rank_count=1, peak_learning_rate=1e-5)
    for branch in (same, other):
        (event,) = read_events(branch.job.folder, "branched")
        assert event["step"] == EVERY and len(event["sha256"]) == 64
        assert sorted(branch.losses) == list(range(EVERY + 1, STEPS + 1))
    # The same weights, moments and text, whatever the count of ranks: the same run but for the order of sums.
    assert same.losses == pytest.approx({step: plain.losses[step] for step in same.losses}, rel=1e-5)
    assert other.losses[EVERY + 1] == pytest.approx(same.losses[EVERY + 1], rel=1e-6)
    assert other.record.last_loss > same.record.last_loss * 1.001  # it hardly learns


CADENCE = """
model: llama-3.1-8b
training: {{name: refresh, kind: finetune, tokens: 4 Gtok, on: 2x8xH100-SXM, repeats: every {weeks} weeks}}
"""


def test_r_161_a_run_goes_on_from_weights_on_new_text_and_how_often_changes_the_year(
    state: Path, plain: Ran
) -> None:
    base = trained_model(plain.job, state)
    new = state / "new.jsonl"
    new.write_text("".join(f'{{"text": "{word} swims far {word} near"}}\n' * 60 for word in ("red", "blue")))
    with_tokenizer = {"data": str(new), "model_config": base / "config.json"}
    tuned = ran(state, "patched", weights=str(base), **with_tokenizer)
    fresh = ran(state, "fresh", **with_tokenizer)
    assert tuned.record.steps == STEPS
    assert tuned.losses[1] < 0.95 * fresh.losses[1]  # words that the old text had as well
    assert tuned.record.last_loss < tuned.record.first_loss
    lineage = json.loads((trained_model(tuned.job, state) / "lineage.json").read_text("utf-8"))
    assert lineage["settings"]["weights"]  # a digest: which weights it began with

    often, seldom = (plan(CADENCE.format(weeks=weeks)).first_year_usd for weeks in (4, 13))
    assert often is not None and seldom is not None
    assert often.value > 2.5 * seldom.value


def test_adapters_are_trained_beside_weights_that_stay(state: Path, plain: Ran) -> None:
    pytest.importorskip("peft", reason="needs the extra [train]: `make extras`")
    from safetensors import safe_open

    base = trained_model(plain.job, state)
    tuned = ran(state, "tuned", weights=str(base), adapter_rank=4, peak_learning_rate=1e-2)
    assert tuned.record.first_loss < plain.record.first_loss * 0.9  # it begins with what the base has learnt
    assert tuned.record.last_loss < tuned.record.first_loss
    assert tuned.record.checkpoint_bytes < plain.record.checkpoint_bytes / 2  # nothing frozen is kept again
    folder = trained_model(tuned.job, state)
    with safe_open(folder / "adapter_model.safetensors", "np") as weights:
        assert weights.keys() and all("lora_" in name for name in weights.keys())  # noqa: SIM118
    assert json.loads((folder / "adapter_config.json").read_text("utf-8"))["r"] == 4


def test_r_027_equal_hashes_are_equal_losses_though_one_run_was_told_to_stop(state: Path, plain: Ran) -> None:
    job = job_of(state, "stopped", checkpoint_every_steps=100, evaluate_every_steps=EVERY)
    order = {name: getattr(job, name) for name in ("name", "rank_count", "steps", "sequence_tokens",
             "global_batch_sequences", "checkpoint_every_steps", "data", "warm_up_steps",
             "evaluate_every_steps")}  # fmt: skip
    (state / "order.json").write_text(json.dumps(order), "utf-8")
    told = ["-m", "twofold.live.training.train_job", str(state / "order.json"), "--folder", str(job.folder)]
    command = [sys.executable, "-P", *told, "--model-config", str(job.model_config)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("step 2 "):
            first.send_signal(signal.SIGTERM)
            break
    first.communicate()
    assert first.returncode == 128 + signal.SIGTERM
    (event,) = read_events(job.folder, "stopped")
    saved = job.folder / "checkpoints" / f"step-{event['step']:06d}"
    assert 2 <= event["step"] < STEPS and (saved / "manifest.json").exists()
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    losses = {line.step: float.fromhex(line.loss) for line in read_steps(job.folder)}
    assert losses == plain.losses and len(read_steps(job.folder)) == STEPS  # none was repeated
    assert (job.folder / "measured.json").exists()
    ours, theirs = (json.loads((run / "hf" / "lineage.json").read_text("utf-8"))
                    for run in (job.folder, plain.job.folder))  # fmt: skip
    assert ours == theirs and ours["data"]["digest"] and ours["software"]["torch"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"micro_batch_sequences": 3}, "the 4 sequences of a rank are not whole micro-batches of 3"),
        ({"recompute": "half"}, "recompute `half`"),
        ({"compute": "fast"}, "compute `fast`"),
        ({"weights": "nowhere"}, "`nowhere` holds no weights"),
        ({"branch_from": "step-000001"}, "is no whole checkpoint"),
        ({"host_count": 2}, "need an address to meet at"),
    ],
)
def test_options_that_cannot_be_had_are_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueRefusedError, match=said):
        run_training(job_of(tmp_path, "refused", **change), tmp_path, lambda _: None)
