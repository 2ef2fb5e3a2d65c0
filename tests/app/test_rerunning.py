"""A version is trained a second time from its lineage alone: equal bytes, or what is other, or why not."""

import json
import shutil
from pathlib import Path

import pytest

from tests.live.test_train_job import job_of
from twofold.app.registering import push_version
from twofold.app.releasing import registered
from twofold.app.rerunning import rerun_version
from twofold.core.errors import AlteredError, FileError, ValueRefusedError
from twofold.live.registry.registry import Registry
from twofold.live.seals import key_of
from twofold.live.training.artefact import package_digest
from twofold.live.training.sealing import key_beside
from twofold.live.training.train_job import LINEAGE, run_training, trained_model

for name in ("torch", "transformers", "psutil"):
    pytest.importorskip(name, reason="needs the extras [train] and [live]: `make extras`")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of three steps exported."""
    state = tmp_path_factory.mktemp("run")
    job = job_of(state, "first", rank_count=1, steps=3, global_batch_sequences=2)
    run_training(job, state, lambda _: None)
    return trained_model(job, state)


def changed(trained: Path, folder: Path, **changes: object) -> Path:
    """The same with another lineage."""
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("manifest.*"))
    said = json.loads((folder / LINEAGE).read_text())
    said["settings"] |= changes.pop("settings", {})  # type: ignore[operator]
    (folder / LINEAGE).write_text(json.dumps(said | changes))
    return folder


def test_a_version_trained_again_from_its_lineage_has_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    opened = Registry(tmp_path / "registry", make=True)
    described = registered(opened, "tiny", trained, key_of(key_beside(trained.parents[2]), make=False))
    assert ("code", f"sha256:{package_digest()}") in opened.trace("tiny:1")
    pushed = push_version(trained, "tiny", opened.folder, "ann", (), "", None, None)
    assert (pushed.version.version, pushed.note) == (described.version, "")  # as `up` registers it
    again = rerun_version("tiny:1", opened.folder, "", lambda _: None)
    assert again.weights_sha256 == described.stored.facts["weights_sha256"]
    assert (again.exit_code, again.differences) == (0, ())
    assert "equal" in " ".join(again.lines)


def test_weights_that_the_lineage_does_not_lead_to_are_told(trained: Path, tmp_path: Path) -> None:
    """One that says another seed, and other code."""
    said = json.loads((trained / LINEAGE).read_text())["software"]
    folder = changed(trained, tmp_path / "other", settings={"seed": 2}, software={**said, "code": "0" * 64})
    opened = Registry(tmp_path / "registry", make=True)
    opened.push(folder, "tiny", "ann")
    told: list[str] = []
    again = rerun_version("tiny", opened.folder, "", told.append)
    assert (again.exit_code, [each.what for each in again.differences]) == (3, ["software.code"])
    assert "✗ other" in " ".join(again.lines) and max(map(len, again.lines)) <= 100
    assert any("code is not what it was" in each for each in told)


def test_what_cannot_be_trained_again_is_refused_with_the_reason(trained: Path, tmp_path: Path) -> None:
    opened = Registry(tmp_path / "registry", make=True)
    cases = {
        "weights": ({"settings": {"weights": "ab" * 32}}, "began with weights"),
        "branch": ({"settings": {"branch_from": "ab" * 32}}, "went on from a checkpoint"),
        "files": ({"data": {"digest": "d", "sha256": ["a", "b"]}}, "read 2 files"),
        "job": ({"settings": {"steps": "many"}}, "tells of no job"),
    }
    for name, (changes, why) in cases.items():
        opened.push(changed(trained, tmp_path / name, **changes), name, "ann")
        with pytest.raises(ValueRefusedError, match=why):
            rerun_version(name, opened.folder, "", lambda _: None)
    opened.push(
        changed(trained, tmp_path / "data", data={"digest": "d" * 64, "sha256": ["a"]}), "data", "ann"
    )
    with pytest.raises(AlteredError, match="as asked for"):
        rerun_version("data", opened.folder, "", lambda _: None)
    (changed(trained, tmp_path / "none") / LINEAGE).unlink()
    opened.push(tmp_path / "none", "none", "ann")
    with pytest.raises(FileError, match=LINEAGE):
        rerun_version("none", opened.folder, "", lambda _: None)
