"""Only a whole checkpoint, every byte as written, is ever resumed from."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.core.errors import AlteredError, FileError
from twofold.live.training import sealing
from twofold.live.training.artefact import MANIFEST, SEAL, write_manifest
from twofold.live.training.checkpoints import (
    METADATA,
    complete,
    prune,
    remove,
    state_digest,
    step_folder,
    step_of,
    survey,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def saved(checkpoints: Path, step: int) -> Path:
    """A checkpoint of two ranks, complete."""
    folder = step_folder(checkpoints, step)
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(b"weights of rank 0 after %d" % step)
    (folder / "__1_0.distcp").write_bytes(b"weights of rank 1 after %d" % step)
    (folder / METADATA).write_bytes(b"index")
    complete(folder, KEY)
    return folder


def flip_a_byte(folder: Path) -> None:
    path = folder / "__1_0.distcp"
    content = bytearray(path.read_bytes())
    content[5] ^= 0x10
    path.write_bytes(content)


def plant(folder: Path) -> None:
    flip_a_byte(folder)
    write_manifest(folder)


def copy_of(other: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


WAYS_TO_BREAK: dict[str, Callable[[Path], Any]] = {
    "a file missing": lambda folder: (folder / "__0_0.distcp").unlink(),
    "no index": lambda folder: (folder / METADATA).unlink(),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "a torn manifest": lambda folder: (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:40]),
    "one bit flipped": flip_a_byte,
    "a file cut short": lambda folder: (folder / "__1_0.distcp").write_bytes(b"weights"),
    "planted, its manifest made to fit": plant,
    "another step's": lambda folder: copy_of(folder.with_name("step-000010"), folder),
    "sealed by another key": lambda folder: complete(folder, OTHER_KEY),
    "without a seal": lambda folder: (folder / SEAL).unlink(),
    "a seal that is none": lambda folder: (folder / SEAL).write_bytes(b"\xff\xfe"),
    "a file added": lambda folder: (folder / "__2_0.distcp").write_bytes(b"another rank"),
}


def test_the_newest_of_several_is_taken_by_number_not_by_name(tmp_path: Path) -> None:
    assert survey(tmp_path / "none yet", KEY)[0] is None
    for step in (9, 1_000_000, 30):
        saved(tmp_path, step)
    assert survey(tmp_path, KEY)[0] == step_folder(tmp_path, 1_000_000)
    assert step_of(step_folder(tmp_path, 1_000_000)) == 1_000_000


@pytest.mark.parametrize("way", WAYS_TO_BREAK)
def test_a_broken_checkpoint_is_passed_over_and_said(tmp_path: Path, way: str) -> None:
    older, newer = saved(tmp_path, 10), saved(tmp_path, 20)
    WAYS_TO_BREAK[way](newer)
    newest, refused = survey(tmp_path, KEY)
    assert newest == older
    assert [*refused] == [newer]
    assert all(refused.values())


CUT_OR_DAMAGED = ("a file missing", "no index", "no manifest", "a torn manifest", "one bit flipped",
                  "a file cut short", "a file added")  # fmt: skip


@pytest.mark.parametrize("way", CUT_OR_DAMAGED)
def test_a_run_with_only_a_broken_checkpoint_starts_over(tmp_path: Path, way: str) -> None:
    WAYS_TO_BREAK[way](saved(tmp_path, 10))
    assert survey(tmp_path, KEY)[0] is None


def test_pruning_keeps_the_newest_complete_ones_and_those_being_written(tmp_path: Path) -> None:
    folders = [saved(tmp_path, step) for step in (1, 2, 3, 4)]
    writing = step_folder(tmp_path, 5)
    writing.mkdir()
    assert prune(tmp_path, KEY, kept_count=2) == folders[:2]
    assert sorted(tmp_path.iterdir()) == [*folders[2:], writing]
    assert prune(tmp_path, KEY, kept_count=2) == []


def test_planted_checkpoints_do_not_drive_out_our_own(tmp_path: Path) -> None:
    ours = [saved(tmp_path, step) for step in (1, 2)]
    planted = [saved(tmp_path, step) for step in (3, 4, 5)]
    complete(planted[0], OTHER_KEY)
    (planted[1] / SEAL).unlink()
    plant(planted[2])
    assert prune(tmp_path, KEY, kept_count=1) == ours[:1]
    assert sorted(tmp_path.iterdir()) == [*ours[1:], *planted]


def test_a_checkpoint_of_another_run_is_not_ours_here(tmp_path: Path) -> None:
    """Of the same key and step: it would go on from what something else learnt (INV-41)."""
    one, other, renamed = (tmp_path / name for name in ("one", "other", "renamed"))
    for run, seed in ((one, 1), (other, 2), (renamed, 1)):
        run.mkdir()
        (run / "job.json").write_text(json.dumps({"job": {"name": run.name, "seed": seed}, "model": {}}))
    folder = complete_in(one, KEY)
    assert survey(one / "checkpoints", KEY)[0] == folder
    for run in (other, renamed):
        shutil.copytree(folder.parent, run / "checkpoints")
    assert survey(renamed / "checkpoints", KEY)[0] == renamed / "checkpoints" / folder.name
    with pytest.raises(sealing.UnsealedError, match="not sealed by our key"):
        survey(other / "checkpoints", KEY)


def test_a_removed_checkpoint_is_gone_and_the_one_before_is_newest(tmp_path: Path) -> None:
    older, newer = saved(tmp_path, 1), saved(tmp_path, 2)
    remove(newer)
    assert survey(tmp_path, KEY)[0] == older


@pytest.mark.parametrize(
    "way", ["planted, its manifest made to fit", "sealed by another key", "without a seal"]
)
def test_a_run_that_others_wrote_alone_is_not_begun_anew(tmp_path: Path, way: str) -> None:
    """An older build's, or one whose key is gone: starting over would delete it."""
    folder = saved(tmp_path, 10)
    WAYS_TO_BREAK[way](folder)
    with pytest.raises(
        sealing.UnsealedError, match=r"step-000010`.*(has no seal|not sealed by our key)"
    ) as caught:
        survey(tmp_path, KEY)
    assert isinstance(caught.value, AlteredError) and "move the folder away" in str(caught.value)
    assert state_digest(tmp_path, KEY) == ""
    assert (folder / MANIFEST).exists()


def test_a_kill_between_seal_and_manifest_leaves_a_cut_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = saved(tmp_path, 10), saved(tmp_path, 20)
    (newer / MANIFEST).unlink()
    (newer / SEAL).unlink()
    whole = sealing.write_whole

    def killed(path: Path, text: str) -> None:
        if path.name == MANIFEST:
            raise KeyboardInterrupt
        whole(path, text)

    monkeypatch.setattr(sealing, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        complete(newer, KEY)
    assert (newer / SEAL).exists()
    newest, refused = survey(tmp_path, KEY)
    assert newest == older and "is missing" in refused[newer]
    shutil.rmtree(older)
    assert survey(tmp_path, KEY)[0] is None  # alone it is begun anew: nothing whole is lost
    monkeypatch.undo()
    complete(newer, KEY)
    assert survey(tmp_path, KEY)[0] == newer


def test_a_key_that_is_gone_is_asked_for_and_one_is_made_for_a_run_without_seals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(sealing.KEY, raising=False)
    run, state = tmp_path / "state" / "train" / "one", tmp_path / "state"
    key = sealing.key_of_run(run, state)
    assert sealing.key_beside(state) == tmp_path / "state-training.key"
    complete_in(run, key)
    assert sealing.key_of_run(run, state) == key
    shared = tmp_path / "secret"
    sealing.key_beside(state).rename(shared)
    with pytest.raises(FileError, match="put it back"):
        sealing.key_of_run(run, state)
    monkeypatch.setenv(sealing.KEY, str(shared))  # as hosts that share no more than a run's folder have it
    assert sealing.key_of_run(run, state) == key


def complete_in(run: Path, key: bytes) -> Path:
    folder = step_folder(run / "checkpoints", 3)
    folder.mkdir(parents=True)
    (folder / METADATA).write_bytes(b"index")
    complete(folder, key)
    return folder
