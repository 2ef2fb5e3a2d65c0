"""`kind: finetune` of a spec, run by `jobs`: from the weights beside the spec, on data of its own."""

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("transformers", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")

from tests.live.test_training_options import Ran, plain, state  # noqa: F401  (fixtures)
from twofold.app.jobs import submit_job
from twofold.app.loop_settings import train_settings
from twofold.app.looping import up
from twofold.app.sources import load
from twofold.core.errors import ValueRefusedError
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.listing import jobs_of
from twofold.live.training.train_job import trained_model
from twofold.live.training.training_record import read_steps

PATIENCE_S = 240.0
SPEC = """\
model: ./config.json
training:
  kind: KIND
  name: tune
  steps: 6
  sequence: 32 tok
  global_batch: 8 seq
  precision: fp32
  framework: pytorch-fsdp
  repeats: every 8 weeks
  data: texts/*.jsonl
  on: 1x2xthis-machine
"""
SERVING = """\
serving:
  on: 1xthis-machine
  classes: {a: {traffic: {rate: 1 /s, input: 16 tok, output: 8 tok}}}
"""


def a_spec(folder: Path, base: Ran, kind: str = "finetune") -> Path:
    shutil.copytree(trained_model(base.job, base.job.folder.parents[1]), folder)
    (folder / "texts").mkdir()
    shutil.copy(base.job.data, folder / "texts" / "a.jsonl")
    (folder / "twofold.yaml").write_text(SPEC.replace("KIND", kind))
    return folder / "twofold.yaml"


def finished(spec: Path) -> Path:
    """The folder of the run that a spec's queue has, once it is over."""
    state = spec.parent / ".twofold"  # noqa: F811
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (found := jobs_of(state)[0]).is_over:
            assert time.monotonic() < deadline_s, found
            time.sleep(0.2)
    finally:
        bring_down(state)
    assert found.state == "finished"
    return state / "jobs" / "runs" / found.job_id / "run"


def test_adapters_are_trained_by_a_queue_beside_weights_that_stay(
    plain: Ran,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("peft", reason="needs the extra [train]: `make extras`")
    from safetensors import safe_open

    spec = a_spec(tmp_path / "tuned", plain, "lora")
    spec.write_text(spec.read_text().replace("1x2x", "1x1x"))  # a library less to import
    submit_job(spec)
    folder = finished(spec)
    losses = [float.fromhex(line.loss) for line in read_steps(folder)]
    assert len(losses) == 6 and losses[0] < plain.record.first_loss * 0.95  # not random weights
    exported = trained_model(replace(plain.job, folder=folder), folder.parent / ".state")
    with safe_open(exported / "adapter_model.safetensors", "np") as weights:
        assert weights.keys() and all("lora_" in name for name in weights.keys())  # noqa: SIM118
    assert json.loads((exported / "adapter_config.json").read_text("utf-8"))["r"] == 16


def test_r_161_a_fine_tune_that_repeats_completes_from_the_weights_that_it_is_given(
    plain: Ran,  # noqa: F811
    tmp_path: Path,
) -> None:
    spec = a_spec(tmp_path / "tuned", plain)
    shown = submit_job(spec)
    assert shown.campaign is not None and shown.campaign.name == "tune"
    folder = finished(spec)
    losses = [float.fromhex(line.loss) for line in read_steps(folder)]
    assert len(losses) == 6 and losses[0] < plain.record.first_loss * 0.95  # not random weights
    assert any(
        trained_model(replace(plain.job, folder=folder), folder.parent / ".state").glob("*.safetensors")
    )


def test_a_fine_tune_without_weights_or_of_adapters_that_nobody_serves_is_refused(
    plain: Ran,  # noqa: F811
    tmp_path: Path,
) -> None:
    spec = a_spec(tmp_path / "tuned", plain, "lora")
    told = train_settings(load(spec).spec, spec.parent / ".twofold")
    assert told.adapter_rank == 16 and told.weights == str(spec.parent)
    assert told.data == f"{spec.parent}/texts/*.jsonl"
    spec.write_text(spec.read_text() + SERVING)
    with pytest.raises(ValueRefusedError, match="trains adapters"):
        up(spec, program=sys.executable, tell=lambda _: None)
    for weights in spec.parent.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ValueRefusedError, match="begins with weights"):
        train_settings(load(spec).spec, spec.parent / ".twofold")
