"""Only a whole checkpoint, every byte as written, is ever resumed from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.live.training.artefact import MANIFEST
from twofold.live.training.checkpoints import (
    METADATA,
    complete,
    prune,
    remove,
    step_folder,
    step_of,
    survey,
)


def saved(checkpoints: Path, step: int) -> Path:
    """A checkpoint of two ranks, complete."""
    folder = step_folder(checkpoints, step)
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(b"weights of rank 0 after %d" % step)
    (folder / "__1_0.distcp").write_bytes(b"weights of rank 1 after %d" % step)
    (folder / METADATA).write_bytes(b"index")
    complete(folder)
    return folder


def flip_a_byte(folder: Path) -> None:
    path = folder / "__1_0.distcp"
    content = bytearray(path.read_bytes())
    content[5] ^= 0x10
    path.write_bytes(content)


WAYS_TO_BREAK: dict[str, Callable[[Path], None]] = {
    "a file missing": lambda folder: (folder / "__0_0.distcp").unlink(),
    "no index": lambda folder: (folder / METADATA).unlink(),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "a torn manifest": lambda folder: (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:40]),
    "one bit flipped": flip_a_byte,
    "a file cut short": lambda folder: (folder / "__1_0.distcp").write_bytes(b"weights"),
    "a file added": lambda folder: (folder / "__2_0.distcp").write_bytes(b"another rank"),
}


def test_the_newest_of_several_is_taken_by_number_not_by_name(tmp_path: Path) -> None:
    assert survey(tmp_path / "none yet")[0] is None
    for step in (9, 1_000_000, 30):
        saved(tmp_path, step)
    assert survey(tmp_path)[0] == step_folder(tmp_path, 1_000_000)
    assert step_of(step_folder(tmp_path, 1_000_000)) == 1_000_000


@pytest.mark.parametrize("way", WAYS_TO_BREAK)
def test_a_broken_checkpoint_is_passed_over_and_said(tmp_path: Path, way: str) -> None:
    older, newer = saved(tmp_path, 10), saved(tmp_path, 20)
    WAYS_TO_BREAK[way](newer)
    newest, refused = survey(tmp_path)
    assert newest == older
    assert [*refused] == [newer]
    assert all(refused.values())


@pytest.mark.parametrize("way", WAYS_TO_BREAK)
def test_a_run_with_only_a_broken_checkpoint_starts_over(tmp_path: Path, way: str) -> None:
    WAYS_TO_BREAK[way](saved(tmp_path, 10))
    assert survey(tmp_path)[0] is None


def test_pruning_keeps_the_newest_complete_ones_and_those_being_written(tmp_path: Path) -> None:
    folders = [saved(tmp_path, step) for step in (1, 2, 3, 4)]
    writing = step_folder(tmp_path, 5)
    writing.mkdir()
    assert prune(tmp_path, kept_count=2) == folders[:2]
    assert sorted(tmp_path.iterdir()) == [*folders[2:], writing]
    assert prune(tmp_path, kept_count=2) == []


def test_a_removed_checkpoint_is_gone_and_the_one_before_is_newest(tmp_path: Path) -> None:
    older, newer = saved(tmp_path, 1), saved(tmp_path, 2)
    remove(newer)
    assert survey(tmp_path)[0] == older
