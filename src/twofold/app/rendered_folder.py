"""A folder of rendered files, with the digest of each beside them: what people changed is not overwritten."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from twofold.app.sources import whole_file
from twofold.core.errors import FileError, unread
from twofold.rendering.files import RenderedFile

MANIFEST = ".twofold-rendered.json"
SCHEMA = "twofold/rendered/1"


def write_rendered(files: tuple[RenderedFile, ...], folder: Path, force: bool = False) -> None:
    """Every file whole, in folders that are made; what is there and equal stays as it is.

    Without `force` a file is replaced only where it is as `render` left it, by the manifest of digests.
    Raises FileError that names all others before anything is written, and where a file cannot be written.
    """
    known = _digests(folder)
    if not force:
        changed = [each.path for each in files if not _is_equal(folder / each.path, each.text)]
        _refuse_overwriting(changed, folder, known)
    for each in files:
        _write(folder / each.path, each.text, executable=each.executable)
    # Files of another plan or target in the same folder stay known.
    now = known | {each.path: _sha256(each.text.encode()) for each in files}
    text = json.dumps({"schema": SCHEMA, "files": dict(sorted(now.items()))}, indent=1) + "\n"
    _write(folder / MANIFEST, text)


def _refuse_overwriting(paths: list[str], folder: Path, known: Mapping[str, str]) -> None:
    there = [path for path in paths if (folder / path).is_file()]
    others = [path for path in there if path not in known]
    edited = [path for path in there if path in known and _digest(folder / path) != known[path]]
    said = [f"{_named(edited, folder)} changed since `render` wrote" if edited else ""]
    said += [f"{_named(others, folder)} there that `render` did not write" if others else ""]
    if edited or others:
        hint = "name another folder, keep a copy, or add `--force` to replace what is there"
        raise FileError("; ".join(filter(None, said)) + ": nothing was written", hint=hint)


def _named(paths: list[str], folder: Path) -> str:
    return ", ".join(f"`{folder / path}`" for path in paths)


def _digests(folder: Path) -> dict[str, str]:
    """By path below the folder; empty where no manifest is there that can be read: then nothing is known."""
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
        return {str(path): str(digest) for path, digest in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _digest(path: Path) -> str:
    try:
        return _sha256(path.read_bytes())
    except OSError as error:
        raise unread(path, error) from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_equal(path: Path, text: str) -> bool:
    try:
        return path.is_file() and path.read_bytes() == text.encode()
    except OSError:
        return False


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    try:
        if not _is_equal(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as handle:
                handle.write(text)
        if executable and not os.access(path, os.X_OK):
            path.chmod(0o755)
    except OSError as error:
        raise FileError(f"cannot write `{path}`: {error.strerror}") from error
