"""An OCI image layout: files by their SHA-256, manifests that list them, and an index of the manifests.

Any client of the format reads it (`skopeo inspect --raw oci:FOLDER:NAME`). A file is written under another
name and takes its own when it is whole; a manifest follows its files, the index follows the manifest. So a
reader, and whoever is killed, finds every listed thing complete. Source: OCI image specification 1.1,
image-layout.md, manifest.md; files are titled as `oras` does.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from twofold.core.errors import AlteredError, FileError
from twofold.live.processes import make_private
from twofold.live.training.artefact import (
    MANIFEST,
    TITLE,
    FileEntry,
    entries_of,
    flush,
    plain_files,
    sha256_of,
    write_whole,
)

LAYOUT, INDEX, LOCK = "oci-layout", "index.json", ".lock"
LAYOUT_TEXT = '{"imageLayoutVersion": "1.0.0"}\n'
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
ARTEFACT_TYPE = "application/vnd.twofold.model.v1"
FACTS_TYPE = "application/vnd.twofold.model.facts.v1+json"
FILE_TYPE = "application/octet-stream"
REFERENCE = "org.opencontainers.image.ref.name"
PARTIAL = ".partial-"
# Of a file that is copied: read at once, before and behind what is written at most, and between two flushes.
PIECE_BYTES, PIECES_MOST, FLUSHED_BYTES = 1 << 20, 16, 32 << 20
MANIFEST_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """One manifest as it is stored: its files, what is known of the model, and the digest that names both."""

    digest: str  # sha256:…
    files: tuple[FileEntry, ...]
    facts: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(each.size_bytes for each in self.files)


def check_place(folder: Path) -> None:
    """Raise FileError for what is no folder, AlteredError where what says that it is a layout is gone."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"`{folder}` is no folder", hint="name the folder of a registry, or a new one")
    if not (folder / LAYOUT).exists() and holds_any(folder):
        hint = f"write `{LAYOUT_TEXT.strip()}` into it"
        raise AlteredError(f"`{LAYOUT}` of the registry `{folder}` is gone", hint=hint)


def make_layout(folder: Path) -> None:
    """An empty layout, where there is none. Raises FileError for a folder that holds something else."""
    if (folder / LAYOUT).exists():
        return
    # Of one that was killed while it was made, there are just these.
    halves = {"blobs", INDEX, f".{INDEX}.partial", f".{LAYOUT}.partial", LOCK}
    if folder.exists() and {each.name for each in folder.iterdir()} - halves - {LAYOUT}:
        raise FileError(f"`{folder}` holds files, and no registry", hint="name an empty folder, or a new one")
    make_private(folder)
    with writing(folder):
        if (folder / LAYOUT).exists():  # somebody else was first
            return
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        write_whole(folder / INDEX, _index_text(()))
        write_whole(folder / LAYOUT, LAYOUT_TEXT)


def holds_any(folder: Path) -> bool:
    """Whether anything was stored in a layout."""
    kept = folder / "blobs" / "sha256"
    return kept.exists() and any(not each.name.startswith(PARTIAL) for each in kept.iterdir())


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Nobody else writes meanwhile."""
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def put_folder(
    folder: Path,
    source: Path,
    facts_of: Callable[[Sequence[FileEntry]], Mapping[str, Any]],
    check: Callable[[str, Path], None],
) -> Stored:
    """Store every file of `source`, then what is known of them, then a manifest of them, inside of `writing`.

    `check` is told the name of each file and where its stored bytes are, before they count as stored.
    What is stored already is not written again. Raises FileError for links and an empty folder, and what
    `check` does.
    """
    kept = folder / "blobs" / "sha256"
    kept.mkdir(parents=True, exist_ok=True)
    for left in kept.glob(f"{PARTIAL}*"):  # by one that was killed
        left.unlink()
    sizes = {path.stat().st_size for path in kept.iterdir()}
    entries = [_put_file(folder, name, path, sizes, check) for name, path in plain_files(source)]
    if not entries:
        raise FileError(f"`{source}` holds no files", hint="push a folder with a checkpoint in it")
    return _put_manifest(folder, entries, put_text(folder, to_json(facts_of(entries))))


def _put_file(
    folder: Path, name: str, source: Path, sizes: set[int], check: Callable[[str, Path], None]
) -> FileEntry:
    """Store one file by the digest of what was stored: a source that changes meanwhile misleads nobody."""
    size_bytes = source.stat().st_size
    if size_bytes in sizes:  # it may be here: then reading is cheaper than writing
        digest = sha256_of(source)
        kept = blob(folder, digest)
        if kept.exists() and sha256_of(kept) == digest:  # one that was altered is put right below
            check(name, kept)
            return FileEntry(name, size_bytes, digest)
    partial = blob(folder, f"{PARTIAL}{os.getpid()}")
    try:
        digest = _copy(source, partial)
        check(name, partial)
        size_bytes = partial.stat().st_size
        _settle(partial, blob(folder, digest))
    finally:
        partial.unlink(missing_ok=True)
    return FileEntry(name, size_bytes, digest)


def _put_manifest(folder: Path, entries: Sequence[FileEntry], config: FileEntry) -> Stored:
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTEFACT_TYPE,
        "config": descriptor(config, FACTS_TYPE),
        "layers": [{**descriptor(each, FILE_TYPE), "annotations": {TITLE: each.path}} for each in entries],
    }
    return read_stored(folder, f"sha256:{put_text(folder, to_json(manifest)).sha256}")


def read_stored(folder: Path, digest: str) -> Stored:
    """A manifest by its digest; its own bytes and its facts are checked, its files are not.

    Raises AlteredError when either is missing or has other bytes, FileError when it is none of ours.
    """
    manifest = json.loads(checked_text(folder, digest))
    try:
        if manifest["artifactType"] != ARTEFACT_TYPE:
            raise KeyError(manifest["artifactType"])
        facts = json.loads(checked_text(folder, manifest["config"]["digest"]))
        files = entries_of(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{digest} is no model of ours: {error}", hint="push it by `registry push`"
        ) from error
    return Stored(digest, files, facts)


def check_stored(folder: Path, stored: Stored) -> None:
    """Read every file of a model. Raises AlteredError, naming the first that is not what it should be."""
    for each in stored.files:
        try:
            found = sha256_of(blob(folder, each.sha256))
        except OSError as error:
            raise _altered(f"`{each.path}` is missing", stored.digest) from error
        if found != each.sha256:
            raise _altered(f"`{each.path}` has other bytes than when it was pushed", stored.digest)


def take_out(
    folder: Path, stored: Stored, target: Path, check: Callable[[Path], None] = lambda _: None
) -> None:
    """Write a model's files and its manifest into a new folder, checked on the way; whole, or not at all.

    `check` is told the folder before it takes its name; what it raises leaves nothing.
    """
    if target.exists():
        raise FileError(f"`{target}` exists", hint="name a folder that does not")
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        for each in stored.files:
            copy = _inside(partial, each.path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy_checked(blob(folder, each.sha256), copy, each, stored.digest)
        write_whole(partial / MANIFEST, checked_text(folder, stored.digest))
        check(partial)
        partial.rename(target)
        flush(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_checked(source: Path, copy: Path, entry: FileEntry, digest: str) -> None:
    try:
        found = _copy(source, copy)
    except FileNotFoundError as error:
        raise _altered(f"`{entry.path}` is missing", digest) from error
    if found != entry.sha256:
        raise _altered(f"`{entry.path}` has other bytes than when it was pushed", digest)


def write_index(folder: Path, named: Mapping[str, str], attached: Mapping[str, str]) -> None:
    """The index: every named manifest, in the order of their names, then each attached one with its type.

    One whose manifest is gone is left out: `verify` names it.
    """
    write_whole(folder / INDEX, _text_of(folder, named, attached))


def _text_of(folder: Path, named: Mapping[str, str], attached: Mapping[str, str]) -> str:
    listed = [({REFERENCE: name}, named[name], ARTEFACT_TYPE) for name in sorted(named)]
    listed += [({}, digest, attached[digest]) for digest in sorted(attached)]
    return _index_text(
        [
            {**_listed(folder, digest, kind), **({"annotations": said} if said else {})}
            for said, digest, kind in listed
            if blob(folder, _hex(digest)).exists()
        ]
    )


def listed_names(folder: Path) -> set[str]:
    """The names in the index; none where there is none that can be read, of which `check_index` tells."""
    if not (folder / INDEX).is_file():  # a pipe is waited for
        return set()
    try:
        manifests = json.loads((folder / INDEX).read_text("utf-8"))["manifests"]
        return set(filter(None, map(_name_of, manifests)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()


def check_index(
    folder: Path, named: Mapping[str, str], attached: Mapping[str, str], added_last: Sequence[str]
) -> None:
    """Raise AlteredError where the index, or what says that the folder is a layout, is not as it was written.

    `added_last` are names and digests, the newest first: a kill may have left the index as it was before any
    of them, and the next push writes it.
    """
    hint = "restore it from a copy; the next push or evaluation writes it anew as well"
    if (folder / INDEX).exists() and not (folder / INDEX).is_file():  # a pipe is waited for
        raise AlteredError(f"`{INDEX}` is no file", hint=hint)
    try:
        found = (folder / INDEX).read_bytes().decode()
    except (OSError, ValueError) as error:
        why = "it is gone" if isinstance(error, FileNotFoundError) else "it is no text that can be read"
        raise AlteredError(f"`{INDEX}`: {why}", hint=hint) from error
    for count in range(len(added_last) + 1):
        there = [
            {each: kept[each] for each in kept if each not in added_last[:count]}
            for kept in (named, attached)
        ]
        if found == _text_of(folder, *there):
            break
    else:
        what = _difference(found, _text_of(folder, named, attached), added_last)
        raise AlteredError(f"`{INDEX}` {what}", hint=hint)
    if _layout_of(folder) != json.loads(LAYOUT_TEXT):
        hint = f"write `{LAYOUT_TEXT.strip()}` into it"
        raise AlteredError(f"`{LAYOUT}` no longer says which layout the folder is", hint=hint)


def _layout_of(folder: Path) -> object:
    if not (folder / LAYOUT).is_file():  # a pipe is waited for
        return None
    try:
        return json.loads((folder / LAYOUT).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _difference(found: str, written: str, added_last: Sequence[str]) -> str:
    """In words, the first of what an index says otherwise than the one that was written."""
    try:
        told, wanted = json.loads(found), json.loads(written)
        entries = [(_name_of(each) or str(each["digest"]), each) for each in told["manifests"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "is no index of a layout"
    names = [name for name, _ in entries]
    known = {_name_of(each) or each["digest"]: each for each in wanted["manifests"]}
    for name, each in entries:
        if name not in known:
            return f"lists `{name[:99]}`, which was neither pushed nor attached"
        if names.count(name) > 1:
            return f"lists `{name}` twice"
        if each.get("digest") != known[name]["digest"]:
            return f"has another `{name}` than was pushed: it says {str(each.get('digest'))[:19]}"
        for key in _unlike(each, known[name]):
            return f"has another `{key}` of `{name}` than was written"
    for key in _unlike({**told, "manifests": 0}, {**wanted, "manifests": 0}):
        return f"has another `{key}` than was written"
    for name in sorted(set(known) - set(names), key=lambda each: (each in added_last, each)):
        return f"leaves out `{name}`, of {known[name]['artifactType']}"
    return "says what was written in another order, or in other words"


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*one, *other}) if one.get(key) != other.get(key)]


def _name_of(entry: Mapping[str, Any]) -> str:
    """What an entry of the index calls a manifest; "" of one that is only attached."""
    return str((entry.get("annotations") or {}).get(REFERENCE) or "")


def blob(folder: Path, hexadecimal: str) -> Path:
    """Where a digest's bytes are."""
    return folder / "blobs" / "sha256" / hexadecimal


def _listed(folder: Path, digest: str, artefact_type: str) -> dict[str, Any]:
    size_bytes = blob(folder, _hex(digest)).stat().st_size
    return {
        "mediaType": MANIFEST_TYPE,
        "artifactType": artefact_type,
        "digest": digest,
        "size": size_bytes,
    }


def _index_text(manifests: Sequence[Mapping[str, Any]]) -> str:
    return to_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}) + "\n"


def _copy(source: Path, target: Path) -> str:
    """Write a file's bytes anew, flushed to disk; the SHA-256 of what was written.

    The digest is made, and the disk read and waited for, beside each other.
    """
    digest, hashed, unflushed_bytes = hashlib.sha256(), deque[Future[None]](), 0
    with (
        source.open("rb", buffering=0) as old,
        target.open("wb", buffering=0) as new,
        ThreadPoolExecutor(1) as hashing,
        ThreadPoolExecutor(1) as flushing,
    ):
        flushed = flushing.submit(lambda: None)
        for piece in _read_ahead(old):
            hashed.append(hashing.submit(digest.update, piece))
            rest = memoryview(piece)
            while rest:
                rest = rest[new.write(rest) :]
            if len(hashed) > PIECES_MOST:
                hashed.popleft().result()
            unflushed_bytes += len(piece)
            if unflushed_bytes >= FLUSHED_BYTES and flushed.done():
                flushed.result()
                flushed, unflushed_bytes = flushing.submit(os.fsync, new.fileno()), 0
        for each in (*hashed, flushed, flushing.submit(os.fsync, new.fileno())):
            each.result()
    return digest.hexdigest()


def _read_ahead(file: FileIO) -> Iterator[bytes]:
    """Pieces of a file, the next ones read while one is worked on."""
    with ThreadPoolExecutor(1) as reading:
        count = min(PIECES_MOST, os.fstat(file.fileno()).st_size // PIECE_BYTES + 1)
        pieces = deque(reading.submit(file.read, PIECE_BYTES) for _ in range(count))
        while piece := pieces.popleft().result():
            pieces.append(reading.submit(file.read, PIECE_BYTES))
            yield piece


def _settle(partial: Path, target: Path) -> None:
    """Give what is whole its name."""
    partial.chmod(0o444)
    partial.rename(target)
    flush(target.parent)


def put_text(folder: Path, text: str) -> FileEntry:
    """Store a small text."""
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    target = blob(folder, digest)
    if not target.exists() or sha256_of(target) != digest:
        partial = blob(folder, f"{PARTIAL}{os.getpid()}")
        partial.write_bytes(data)
        flush(partial)
        _settle(partial, target)
    return FileEntry("", len(data), digest)


def checked_text(folder: Path, digest: str) -> str:
    """A small text by its digest. Raises AlteredError when it is missing or has other bytes."""
    path = blob(folder, _hex(digest))
    try:
        if path.stat().st_size > MANIFEST_BYTES_MAX:
            raise _altered(f"its manifest {digest[:19]} is larger than any of ours")
        data = path.read_bytes()
    except OSError as error:
        raise _altered(f"its manifest {digest[:19]} is missing") from error
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise _altered(f"its manifest {digest[:19]} has other bytes than its name says")
    return data.decode()


def _inside(folder: Path, name: str) -> Path:
    """A file's path below a folder; a manifest that somebody else wrote may name one outside."""
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or not name:
        raise FileError(f"a file is called `{name}`: that is no place below its folder", hint="refuse it")
    return path


def _hex(digest: str) -> str:
    algorithm, _, hexadecimal = digest.partition(":")
    if algorithm != "sha256" or len(hexadecimal) != 64 or set(hexadecimal) - set("0123456789abcdef"):
        raise FileError(
            f"`{digest}` is no SHA-256 digest", hint="write `sha256:` and 64 digits of hexadecimal"
        )
    return hexadecimal


def descriptor(entry: FileEntry, media_type: str) -> dict[str, Any]:
    """How a manifest names a file."""
    return {"mediaType": media_type, "digest": f"sha256:{entry.sha256}", "size": entry.size_bytes}


def to_json(data: object) -> str:
    """One spelling for one content."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _altered(what: str, digest: str = "") -> AlteredError:
    what = f"{what} in {digest[:19]}" if digest else what
    return AlteredError(what, hint="restore it from a copy, or push that version anew")
