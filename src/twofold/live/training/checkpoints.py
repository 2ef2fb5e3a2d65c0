"""Which checkpoints of a run may be resumed from: only whole ones of our own, every byte still as written.

A distributed checkpoint is a folder that several ranks write at once, beside the training; a kill leaves any
part of it. Its manifest is written last, so a folder without one is a cut one. Digests and our key's seal of
them (`sealing.py`) are checked before any library opens a file; what is opened then may name only what a
checkpoint is made of (`safe_reading.py`).
"""

import hashlib
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.live.training.artefact import MANIFEST, FileEntry, manifest_text
from twofold.live.training.sealing import UnsealedError, check_sealed, sealed_entries, write_sealed

METADATA = ".metadata"  # the library's own index, written by its coordinator when all ranks are done
DIGEST_SUFFIX = ".sha256"  # of what a rank leaves beside a file that it wrote
KEPT_COUNT = 3  # newest complete ones; the last two could be lost to a bad disk and the run still resumes


def step_folder(checkpoints: Path, step: int) -> Path:
    """Where the state after `step` steps is kept."""
    return checkpoints / f"step-{step:06d}"


def step_of(folder: Path) -> int:
    """The number of steps behind a checkpoint, from its name."""
    return int(folder.name.removeprefix("step-"))


def complete(folder: Path, key: bytes) -> int:
    """Call a checkpoint complete and ours, once all ranks have written; returns its size in bytes.

    Files that were digested as they were written are not read again.
    """
    known = {}
    for path in folder.glob(f"*{DIGEST_SUFFIX}"):
        name = path.name.removesuffix(DIGEST_SUFFIX)
        known[name] = FileEntry(name, **json.loads(path.read_text("utf-8")))
        path.unlink()
    return sum(entry.size_bytes for entry in write_sealed(folder, folder.name, key, known))


def check_begun(checkpoints: Path, key: bytes) -> None:
    """Raise UnsealedError where a run has whole checkpoints and our key sealed none: it is not ours to begin
    anew. Reads no file of theirs."""
    unsealed = None
    for folder in reversed(_folders(checkpoints)):
        try:
            if sealed_entries(folder, key) is not None:
                return
        except UnsealedError as error:
            unsealed = unsealed or error
    if unsealed is not None:
        raise unsealed


def survey(checkpoints: Path, key: bytes) -> tuple[Path | None, dict[Path, str]]:
    """The newest checkpoint that is complete, ours and checked, and why each newer one is not.

    Raises UnsealedError where there are only such as somebody else wrote.
    """
    check_begun(checkpoints, key)
    refused: dict[Path, str] = {}
    for folder in reversed(_folders(checkpoints)):
        if not (folder / METADATA).exists():
            refused[folder] = f"`{METADATA}` is missing: the save was cut"
            continue
        try:
            check_sealed(folder, key)
            return folder, refused
        except TwofoldError as error:
            refused[folder] = error.message
    return None, refused


def state_digest(checkpoints: Path, key: bytes) -> str:
    """A SHA-256 of the state in the newest complete checkpoint of our own; "" without one.

    Of what each rank wrote, by its manifest: the library's index names the save, and differs from run to run.
    """
    for folder in reversed(_folders(checkpoints)):
        with suppress(UnsealedError):
            if (entries := sealed_entries(folder, key)) is not None:
                written = [entry for entry in entries if entry.path != METADATA]
                return hashlib.sha256(manifest_text(written).encode()).hexdigest()
    return ""


def remove(folder: Path) -> None:
    """Delete a checkpoint, its manifest first: a deletion that is cut leaves a cut checkpoint, not a lie."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder)


def prune(checkpoints: Path, key: bytes, kept_count: int = KEPT_COUNT) -> list[Path]:
    """Delete all but the newest `kept_count` checkpoints that are whole and ours; returns the deleted.

    One that somebody planted neither counts nor goes: it must not drive out those that a run resumes from.
    """
    whole = [folder for folder in _folders(checkpoints) if _is_ours(folder, key)]
    old = whole[: max(0, len(whole) - kept_count)]
    for folder in old:
        remove(folder)
    return old


def _is_ours(folder: Path, key: bytes) -> bool:
    """By its manifest and seal; its files are not read."""
    try:
        return sealed_entries(folder, key) is not None
    except UnsealedError:
        return False


def _folders(checkpoints: Path) -> list[Path]:
    if not checkpoints.is_dir():
        return []
    found = [path for path in checkpoints.iterdir() if re.fullmatch(r"step-\d{6,}", path.name)]
    return sorted(found, key=step_of)
