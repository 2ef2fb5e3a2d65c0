"""What a run wrote is believed by the seal beside its manifest: its digests under a key of our own, and which
run it was.

A manifest says which bytes a folder has, and whoever plants some writes another; the key lies beside the
state, outside of every run. The seal is written first, so that a kill in between leaves a folder without a
manifest, which was never believed. Ranks are told by the launcher of their host where the key is.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from twofold.core.errors import AlteredError
from twofold.live.seals import check_seal, key_of, sealed
from twofold.live.training.artefact import (
    MANIFEST,
    SEAL,
    FileEntry,
    check_files,
    describe_files,
    entries_of,
    manifest_text,
    write_whole,
)

KEY = "TWOFOLD_TRAINING_KEY"  # names its file, where hosts do not share what is beside the state
TRAINED = "trained"  # what these seals are for
CHECKPOINTS = "checkpoints"  # of a run: a folder of folders
ORDER = "job.json"  # in a run's folder: what it trains
ELSE = "put back the key that sealed it, or name that by `" + KEY + "`; what you know and want, "
ELSE += "`twofold registry push` takes; else move the folder away"


class UnsealedError(AlteredError):
    """What a run is said to have written, without the seal of our key: nothing of it is opened."""

    code = "E-unsealed"


def key_beside(state: Path) -> Path:
    """The file of the key that seals what runs of this state write."""
    state = state.absolute()
    return Path(os.environ.get(KEY) or state.with_name(f"{state.name}-training.key")).absolute()


def key_of_run(run: Path, state: Path) -> bytes:
    """The key that seals what a run writes; made where there is none and nothing of the run was sealed.

    Raises FileError for one that is gone: a new key would know nothing of what it sealed.
    """
    is_sealed = any(run.glob(f"*/{SEAL}")) or any(run.glob(f"*/*/{SEAL}"))
    return key_of(key_beside(state), make=not is_sealed)


def write_sealed(
    folder: Path, name: str, key: bytes, known: Mapping[str, FileEntry] | None = None
) -> tuple[FileEntry, ...]:
    """Describe a folder that will be called `name`, write its seal, and its manifest last."""
    entries = describe_files(folder, known)
    write_whole(folder / SEAL, sealed(key, TRAINED, _told(folder, name, entries)) + "\n")
    write_whole(folder / MANIFEST, manifest_text(entries))
    return entries


def check_sealed(folder: Path, key: bytes) -> tuple[FileEntry, ...]:
    """The entries of a folder whose files are what its manifest says, and whose manifest this key sealed.

    Raises AlteredError, naming the file, UnsealedError for one that somebody else wrote.
    """
    entries = check_files(folder)
    _check(folder, entries, key)
    return entries


def sealed_entries(folder: Path, key: bytes) -> tuple[FileEntry, ...] | None:
    """What a manifest lists that this key sealed, no file read; None of one that cannot be read.

    Raises UnsealedError.
    """
    try:
        entries = entries_of(json.loads((folder / MANIFEST).read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    _check(folder, entries, key)
    return entries


def _check(folder: Path, entries: tuple[FileEntry, ...], key: bytes) -> None:
    try:
        seal = (folder / SEAL).read_text("utf-8").strip()
    except FileNotFoundError as error:
        what = f"`{folder}` has no seal: a build from before there were seals wrote it, or somebody else"
        hint = f"finish the run with the build that began it; {ELSE}"
        raise UnsealedError(what, hint=hint) from error
    except (OSError, ValueError) as error:
        raise UnsealedError(f"the seal of `{folder}` cannot be read: {error}", hint=ELSE) from error
    try:
        check_seal(key, TRAINED, _told(folder, folder.name, entries), seal)
    except AlteredError as error:
        what = f"`{folder}` is not sealed by our key for this run"
        what += ": it is of elsewhere, of another run or build, or somebody changed it"
        raise UnsealedError(what, hint=ELSE) from error


def _told(folder: Path, name: str, entries: tuple[FileEntry, ...]) -> str:
    """What is sealed. The name is part of it: it says which step a checkpoint is of. So is the run: what was
    sealed of another one does not fit here."""
    return f"{_order_digest(folder)}\n{name}\n{manifest_text(entries)}"


def _order_digest(folder: Path) -> str:
    """Of what the run of a checkpoint or an export trains, whatever it is called; "" where nothing says."""
    run = folder.parent.parent if folder.parent.name == CHECKPOINTS else folder.parent
    try:
        order = json.loads((run / ORDER).read_text("utf-8"))
        trained = {name: value for name, value in order["job"].items() if name != "name"}
        text = json.dumps([trained, order["model"]], sort_keys=True)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
