"""Folders that are never opened before they are checked: each carries a manifest of what it holds.

A manifest lists every file with its size and SHA-256; the SHA-256 of the manifest names a model. Checkpoints,
the corpus and what a run exports have lists of ours; a model that the registry gave out has the registry's
own manifest, of an OCI image, so that its name there says which bytes it stands for here.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from twofold.core.errors import AlteredError, FileError

MANIFEST = "manifest.json"
COMPILED = {".pyc", ".so", ".pyd"}
SEAL = "manifest.seal"  # beside it, where a run of ours wrote the folder (`sealing.py`)
TITLE = "org.opencontainers.image.title"  # of a file, in the registry's manifests


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a folder: its path below it, with slashes, and what it holds."""

    path: str
    size_bytes: int
    sha256: str


def describe_files(folder: Path, known: Mapping[str, FileEntry] | None = None) -> tuple[FileEntry, ...]:
    """Every file below `folder`, sorted by path, manifest and seal apart. Raises FileError for a link.

    Those that are `known` are not read.
    """
    entries = []
    for name, path in plain_files(folder):
        if known and name in known:
            entries.append(known[name])
        else:
            entries.append(FileEntry(name, path.stat().st_size, sha256_of(path)))
    return tuple(sorted(entries, key=_path))


def plain_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file below `folder` by its path there, manifest and seal apart. Raises FileError for a link."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise FileError(f"`{path}` is not a plain file", hint="publish files, not links to them")
        if path.is_file() and name not in (MANIFEST, SEAL):
            yield name, path


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(paths: Iterable[Path]) -> str:
    """One SHA-256 of files by their names, sizes and bytes, wherever they are; links are followed."""
    entries = sorted(
        (FileEntry(each.name, each.stat().st_size, sha256_of(each)) for each in paths), key=_path
    )
    return hashlib.sha256(manifest_text(entries).encode()).hexdigest()


@cache
def package_digest() -> str:
    """One SHA-256 of this package's files by their paths and bytes, without what is compiled of them."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix not in COMPILED:
            digest.update(f"{path.relative_to(package).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _path(entry: FileEntry) -> str:
    return entry.path


def manifest_text(entries: Iterable[FileEntry]) -> str:
    """The manifest as it is stored and digested: one spelling for one content."""
    return json.dumps([asdict(entry) for entry in entries], indent=1, sort_keys=True) + "\n"


def write_manifest(folder: Path, known: Mapping[str, FileEntry] | None = None) -> tuple[FileEntry, ...]:
    """Describe `folder` and write its manifest last, whole: from then on it counts as complete."""
    entries = describe_files(folder, known)
    write_whole(folder / MANIFEST, manifest_text(entries))
    return entries


def check_files(folder: Path) -> tuple[FileEntry, ...]:
    """The entries of a folder whose files are what its manifest says.

    Raises AlteredError, naming the file, when one is missing, other than listed, or not listed at all.
    """
    listed = _read_manifest(folder)
    found = {entry.path: entry for entry in describe_files(folder)}
    for entry in listed:
        if entry.path not in found:
            raise _altered(folder, f"`{entry.path}` is missing")
        if found[entry.path] != entry:
            seen, wrote = found[entry.path].size_bytes, entry.size_bytes
            what = "other bytes than" if seen == wrote else f"{seen:,} bytes, and {wrote:,}"
            raise _altered(folder, f"`{entry.path}` has {what} when it was written")
    extra = sorted(set(found) - {entry.path for entry in listed})
    if extra:
        raise _altered(folder, f"`{extra[0]}` was added after it was written")
    return listed


def check_model(folder: Path, digest: str) -> None:
    """Raise AlteredError, naming the file, unless `folder` holds the bytes that `digest`, sha256:…, names."""
    try:
        found = f"sha256:{sha256_of(folder / MANIFEST)}"
    except OSError as error:
        raise _altered(folder, f"`{MANIFEST}` is missing") from error
    if found != digest:
        raise _altered(folder, f"`{MANIFEST}` is not that of {digest[:19]}")
    check_files(folder)


def entries_of(manifest: Any) -> tuple[FileEntry, ...]:
    """The files that a manifest lists, ours or the registry's. Raises KeyError, TypeError or ValueError."""
    if isinstance(manifest, dict):
        layers = [(each["annotations"][TITLE], each["size"], each["digest"]) for each in manifest["layers"]]
        entries = (FileEntry(name, int(size), _hex_of(digest)) for name, size, digest in layers)
        return tuple(sorted(entries, key=lambda entry: entry.path))
    return tuple(FileEntry(**each) for each in manifest)


def _hex_of(digest: str) -> str:
    algorithm, _, hexadecimal = digest.partition(":")
    if algorithm != "sha256" or len(hexadecimal) != 64 or set(hexadecimal) - set("0123456789abcdef"):
        raise ValueError(f"`{digest[:80]}` is no SHA-256 digest")
    return hexadecimal


def seal(partial: Path, target: Path) -> None:
    """Flush a finished folder to disk, make its files read-only, and give it its name in one step."""
    for path in sorted(partial.rglob("*"), reverse=True):
        flush(path)
        if path.is_file():
            path.chmod(0o444)
    flush(partial)
    partial.rename(target)
    flush(target.parent)


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old one or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, "utf-8")
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_manifest(folder: Path) -> tuple[FileEntry, ...]:
    try:
        return entries_of(json.loads((folder / MANIFEST).read_text("utf-8")))
    except FileNotFoundError as error:
        raise _altered(folder, f"`{MANIFEST}` is missing") from error
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _altered(folder, f"`{MANIFEST}` cannot be read: {error}") from error


def _altered(folder: Path, what: str) -> AlteredError:
    return AlteredError(f"{what} in `{folder}`", hint="delete that folder; what it held is made again")
