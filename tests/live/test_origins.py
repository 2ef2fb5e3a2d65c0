"""`registry push` of what a run exported: its sealed lineage says what it was made from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.test_registry import model
from twofold.cli import main
from twofold.live.seals import key_of
from twofold.live.training import sealing
from twofold.live.training.artefact import SEAL
from twofold.live.training.origins import told_origins

PLACES = {  # a run's folder, and the state that its key lies beside
    "trainer": ("runs/fish", "runs/.state"),
    "jobs": (".twofold/jobs/runs/tiny-1/run", ".twofold/jobs/runs/tiny-1/.state"),
    "up": (".twofold/train/tiny", ".twofold"),
}


def exported(folder: Path, place: str) -> Path:
    """What a run in this place exported: a model, its lineage and its last checkpoint, all sealed."""
    run, state = (folder / name for name in PLACES[place])
    export, step = model(run / "hf", 3), run / "checkpoints" / "step-00000003"
    lineage = {"data": {"digest": "text"}, "software": {"code": "c" * 64}}
    (export / "lineage.json").write_text(json.dumps(lineage))
    step.mkdir(parents=True)
    (step / "__0_0.distcp").write_bytes(b"state")
    key = key_of(sealing.key_beside(state), make=True)
    for sealed in (step, export):
        sealing.write_sealed(sealed, sealed.name, key)
    return export


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["registry", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("place", PLACES)
def test_trace_leads_from_what_a_run_exported_to_data_code_run_and_checkpoint(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export, registry = exported(tmp_path, place), ("--registry", tmp_path / "registry")
    pushed = said(capsys, "push", export, "tiny", *registry)
    assert "note" not in pushed and "made from  checkpoint sha256:" in pushed
    steps = [line.split() for line in said(capsys, "trace", "tiny", *registry).splitlines()]
    assert [what for what, _ in steps] == ["tiny:1", "data", "code", "run", "checkpoint"]
    assert dict(steps)["code"] == f"sha256:{'c' * 64}"
    assert all(len(digest) == len("sha256:") + 64 for _, digest in steps)
    monkeypatch.chdir(export)
    assert said(capsys, "push", ".", "tiny", *registry).startswith("tiny:1 ")  # from within, and no other one


def test_what_is_typed_counts_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export, registry = exported(tmp_path, "jobs"), ("--registry", tmp_path / "registry")
    said(capsys, "push", export, "tiny", "--from", "data=sha256:mine", *registry)
    lines = said(capsys, "trace", "tiny", *registry).splitlines()
    assert [line.split() for line in lines[1:]] == [["data", "sha256:mine"]]


def without_seal(export: Path) -> None:
    (export / SEAL).unlink()


def with_another_lineage(export: Path) -> None:
    (export / "lineage.json").write_text('{"data": {"digest": "other"}}')


def with_other_weights(export: Path) -> None:
    weights = export / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")


def by_somebody_else(export: Path) -> None:
    sealing.write_sealed(export, export.name, b"other key" * 4)


def without_key(export: Path) -> None:
    (sealing.key_beside(export.parents[1] / ".state")).unlink()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_seal, "has no seal"),
        (with_another_lineage, "`lineage.json`"),
        (with_other_weights, "`model.safetensors`"),
        (by_somebody_else, "not sealed by our key"),
        (without_key, "is not there"),
    ],
)
def test_a_lineage_that_our_key_does_not_vouch_for_tells_nothing_and_the_screen_says_why(
    change: Callable[[Path], None], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export, registry = exported(tmp_path, "jobs"), ("--registry", tmp_path / "registry")
    change(export)
    pushed = " ".join(said(capsys, "push", export, "tiny", *registry).split())
    assert "made from " not in pushed.partition("note")[0]
    assert why in pushed and "write `--from`" in pushed
    assert len(said(capsys, "trace", "tiny", *registry).splitlines()) == 1
    assert why in json.loads(said(capsys, "push", export, "tiny", "--json", *registry))["note"]
    assert not (export.parents[1] / ".state-training.key").exists() or change is not without_key


def test_a_model_of_elsewhere_has_no_lineage_and_no_note(tmp_path: Path) -> None:
    assert told_origins(model(tmp_path / "foreign")) == ({}, "")
