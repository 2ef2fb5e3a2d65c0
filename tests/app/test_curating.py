"""What was curated is replaced as a whole, by nobody's accident, and nothing else goes with it."""

import json
from pathlib import Path

import pytest

from tests.live.test_sampled import line
from twofold.app import feedback
from twofold.app.feedback import CANDIDATES, CURATED, FAILURES, curate_samples
from twofold.core.errors import FileError
from twofold.live.training.data_sources import documents


def test_what_was_curated_is_replaced_whole_and_by_force_alone(tmp_path: Path) -> None:
    """What a campaign reads each turn: new rows, and no moment without old or new ones."""
    samples, out = tmp_path / "samples.jsonl", tmp_path / "state" / "learned"
    lines = [line(n, prompt=f"question {n}", answer=" yes") for n in range(60)]
    samples.write_text("".join(f"{json.dumps(each)}\n" for each in lines[:20]))
    first = curate_samples(samples, out, force=True)  # nothing is there yet
    held = (out / CANDIDATES).open()  # as somebody has it who reads
    before = {name: (out / name).read_bytes() for name in CURATED}
    samples.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with pytest.raises(FileError, match="exists") as refused:
        curate_samples(samples, out)
    assert "--force" in refused.value.hint
    second = curate_samples(samples, out, force=True)
    assert held.read().encode() == before[CANDIDATES]
    held.close()
    read = list(documents(out / CANDIDATES, CANDIDATES, "text"))  # by the trainer's reader
    assert len(read) == len(second.found.candidates) > len(first.found.candidates)
    assert set(first.found.candidates[0].items()) <= set(second.found.candidates[0].items())
    assert not {row["text"] for row in second.found.regression} & set(read)
    assert {path.name for path in out.iterdir()} == set(CURATED)
    assert [path.name for path in out.parent.iterdir()] == ["learned"]
    assert out.stat().st_mode & 0o077 == 0 == (out / CANDIDATES).stat().st_mode & 0o077


def test_a_disk_that_is_full_leaves_what_was_curated_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, out = tmp_path / "samples.jsonl", tmp_path / "learned"
    samples.write_text(json.dumps(line(1, prompt="one", answer=" yes")) + "\n")
    curate_samples(samples, out)
    before = {name: (out / name).read_bytes() for name in CURATED}
    samples.write_text(json.dumps(line(2, prompt="two", answer=" no")) + "\n")
    written = feedback.write_whole

    def full(path: Path, text: str) -> None:
        if path.name == FAILURES:
            raise OSError(28, "No space left on device")
        written(path, text)

    monkeypatch.setattr(feedback, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        curate_samples(samples, out, force=True)
    assert {name: (out / name).read_bytes() for name in CURATED} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["learned", "samples.jsonl"]


def test_what_curate_did_not_write_is_not_replaced_by_force_either(tmp_path: Path) -> None:
    samples, out = tmp_path / "samples.jsonl", tmp_path / "learned"
    samples.write_text(json.dumps(line(1, prompt="one", answer=" yes")) + "\n")
    curate_samples(samples, out)
    (out / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "file").write_text("mine")
    for place, why in (
        (out, "notes.txt"),
        (tmp_path / "link", "no folder"),
        (tmp_path / "file", "no folder"),
    ):
        with pytest.raises(FileError, match=why):
            curate_samples(samples, place, force=True)
    assert (out / "notes.txt").read_text() == "mine" == (tmp_path / "file").read_text()
