"""Rows of the lifecycle: what stands between a checkpoint and those who are served by it."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from twofold.cli import main
from twofold.core.errors import AlteredError
from twofold.live.registry.registry import Registry, ReleaseRefusedError
from twofold.policy.release.rules import Evaluation, Limits

TINY = Path(__file__).parent / "specs" / "tiny-chat"
GOOD = Evaluation(
    set_sha256="a" * 64, token_count=5000, loss_nats=2.0, drift_nats=0.0, calibration_error_fraction=0.0
)
ONE_OF_TWO = Limits(approvals_least=0, token_count_least=0, drift_most_nats=None)


def copied(folder: Path, value: int, tokenizer: str = "") -> Path:
    """The tiny model with other weights, and perhaps another tokenizer."""
    shutil.copytree(TINY, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes([value] * 4))
    if tokenizer:
        (folder / "tokenizer.json").write_text(f'{{"version": "{tokenizer}"}}')
    return folder


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """One that serves the tiny model."""
    opened = Registry(tmp_path / "registry", make=True)
    opened.push(TINY, "chat", "ann")
    opened.evaluated("chat", GOOD, "ann")
    opened.promote("chat", "ann", "", ONE_OF_TWO)
    return opened


def test_r_157_a_checkpoint_that_fails_its_evaluation_is_not_promoted(
    registry: Registry, tmp_path: Path
) -> None:
    worse = Evaluation(
        set_sha256="a" * 64, token_count=5000, loss_nats=2.1, drift_nats=0.0, calibration_error_fraction=0.0
    )
    registry.push(copied(tmp_path / "worse", 2), "chat", "ann")
    registry.evaluated("chat", worse, "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        registry.promote("chat", "ann", "", ONE_OF_TWO)
    ((rule, said),) = refused.value.lines
    assert rule == "loss"
    assert "2.1" in said
    assert registry.find("chat@serving").text == "chat:1"


def test_r_158_nothing_is_overwritten_and_another_tokenizer_is_found(
    registry: Registry, tmp_path: Path
) -> None:
    before = registry.find("chat:1")
    other = copied(tmp_path / "other", 2, tokenizer="2.0")
    assert registry.push(other, "chat", "ann").version.text == "chat:2"
    assert registry.find("chat:1") == before
    registry.evaluated("chat:2", GOOD, "ann")
    with pytest.raises(ReleaseRefusedError) as refused:
        registry.promote("chat:2", "ann", "", ONE_OF_TWO)
    assert [rule for rule, _ in refused.value.lines] == ["tokenizer"]
    blob = next(
        each
        for each in (registry.folder / "blobs" / "sha256").iterdir()
        if each.read_bytes() == (TINY / "model.safetensors").read_bytes()
    )
    blob.chmod(0o600)
    blob.write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(AlteredError):
        registry.pull("chat:1", tmp_path / "out")


def test_r_163_an_unapproved_change_is_blocked_and_logged(registry: Registry, tmp_path: Path) -> None:
    registry.push(copied(tmp_path / "next", 2), "chat", "ann")
    registry.evaluated("chat:2", GOOD, "ann")
    strict = Limits(token_count_least=0, drift_most_nats=None)
    with pytest.raises(ReleaseRefusedError, match="may not be `serving`") as refused:
        registry.promote("chat:2", "ann", "", strict)
    assert [rule for rule, _ in refused.value.lines] == ["approval"]
    last = json.loads(registry.tables.log()[-1])
    assert (last["what"], last["by"]) == ("refused promotion to serving", "ann")
    assert registry.find("chat@serving").text == "chat:1"


def test_r_164_versions_are_listed_fetched_and_verified_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(line: str) -> str:
        assert main([*shlex.split(line), "--registry", str(tmp_path / "registry")]) == 0, line
        return capsys.readouterr().out

    run(f"registry push {TINY} chat --by ann --from data=sha256:5f2c")
    assert "chat:1" in run("registry list")
    run(f"registry pull chat:1 {tmp_path / 'out'}")
    assert [(tmp_path / "out" / each.name).read_bytes() for each in TINY.iterdir()] == [
        each.read_bytes() for each in TINY.iterdir()
    ]
    assert "1 version, 3 files, 185 B" in run("registry verify")
