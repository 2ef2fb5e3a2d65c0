"""Training text where it lies: text, JSON lines or Parquet, on a disk or behind any address fsspec knows.

A file is a shard. Its kind is told by its name; what is packed is unpacked. A text file is one document, a
line of a JSON file or a row of a Parquet table is one, with the text in a column of its own.
"""

import bz2
import gzip
import hashlib
import json
import lzma
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from twofold.core.errors import FileError, MissingExtraError, Place, ValueRefusedError

READ_BYTES = 1 << 20
PARQUET_ROWS = 1024
PACKED: Mapping[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LINES, TABLES = (".jsonl", ".ndjson", ".json"), (".parquet",)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that was copied: which bytes it had, and how long they took to come."""

    sha256: str
    size_bytes: int
    fetch_s: float


def list_files(data: str) -> tuple[str, ...]:
    """The files that a pattern, a folder or several of them with commas between mean, each pattern by name.

    `data/*.jsonl`, `s3://bucket/part-*.parquet`, `https://host/a.jsonl,https://host/b.jsonl`. Raises
    FileError where nothing is found, MissingExtraError for an address whose library is not installed.
    """
    found: list[str] = []
    for pattern in filter(None, (part.strip() for part in data.split(","))):
        found += _matching(pattern)
    if not found:
        raise FileError(f"`{data}` names no file", hint="give files, or a pattern in quotes: 'text/*.jsonl'")
    if len(set(found)) < len(found):
        twice = Counter(found).most_common(1)[0][0]
        raise ValueRefusedError(f"`{twice}` is named twice", hint="a document is read once an epoch")
    return tuple(found)


def _matching(pattern: str) -> list[str]:
    fs, path = _file_system(pattern)
    if not any(mark in path for mark in "*?["):
        try:
            if not fs.isdir(path):
                return [fs.unstrip_protocol(path)] if fs.exists(path) else []
        except OSError as error:
            raise FileError(
                f"`{pattern}` cannot be reached: {error}", hint="see whether it is there"
            ) from error
        path = f"{path.rstrip('/')}/*"
    names = sorted(name for name, what in fs.glob(path, detail=True).items() if what["type"] == "file")
    return [fs.unstrip_protocol(name) for name in names]


def fingerprint(file: str) -> str:
    """What changes when a file does, without reading it: its size and what its system calls its version."""
    fs, path = _file_system(file)
    try:
        told = fs.info(path)
    except OSError as error:
        raise FileError(f"`{file}` cannot be reached: {error}", hint="see whether it is there") from error
    names = ("size", "mtime", "ETag", "etag", "md5", "LastModified")
    return json.dumps({name: str(told[name]) for name in names if name in told}, sort_keys=True)


def fetch(file: str, target: Path) -> Fetched:
    """Copy a file, digested on the way. Raises FileError when it cannot be read to its end."""
    fs, path = _file_system(file)
    how = (
        {"block_size": 0} if file.startswith("http") else {}
    )  # one answer from end to end: not every server seeks
    digest, size_bytes, began_s = hashlib.sha256(), 0, time.perf_counter()
    with target.open("wb") as copy:
        try:
            with fs.open(path, "rb", **how) as source:
                while part := source.read(READ_BYTES):
                    digest.update(part)
                    copy.write(part)
                    size_bytes += len(part)
        except (OSError, ValueError) as error:
            raise FileError(f"`{file}` cannot be read: {error}", hint="see whether it is there") from error
    return Fetched(digest.hexdigest(), size_bytes, time.perf_counter() - began_s)


def documents(path: Path, name: str, column: str) -> Iterator[str]:
    """The texts of a copied file, whose own name tells its kind. Empty ones are left out.

    Raises FileError with the line for what holds no text in `column`.
    """
    kind, packed = kind_of(name)
    if kind in TABLES:
        texts: Iterable[str] = _table(path, name, column)
    elif kind in LINES:
        texts = _lines(path, name, column, packed)
    else:
        texts = _whole(path, packed)
    return (text for text in _decoded(texts, name) if text)


def kind_of(name: str) -> tuple[str, str]:
    """The ending that tells a file's kind, and that of its packing: `a.jsonl.gz` gives `.jsonl`, `.gz`."""
    endings = PurePosixPath(name.lower().partition("?")[0]).suffixes
    packed = endings.pop() if endings and endings[-1] in PACKED else ""
    return endings[-1] if endings else "", packed


def _decoded(texts: Iterable[str], name: str) -> Iterator[str]:
    try:
        yield from texts
    except UnicodeDecodeError as error:
        raise FileError(f"`{name}` is not UTF-8 text: {error}", hint="convert it, or leave it out") from error


def _open_text(path: Path, packed: str) -> Any:
    return PACKED.get(packed, open)(path, "rt", encoding="utf-8", newline="")


def _whole(path: Path, packed: str) -> Iterator[str]:
    with _open_text(path, packed) as file:
        yield file.read()


def _lines(path: Path, name: str, column: str, packed: str) -> Iterator[str]:
    with _open_text(path, packed) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"no JSON: {error}", place=Place(name, number, 1)) from error
            text = row.get(column) if isinstance(row, dict) else None
            if not isinstance(text, str):
                what = f"no text under `{column}`"
                raise FileError(
                    what, place=Place(name, number, 1), hint="name the column that holds the text"
                )
            yield text


def _table(path: Path, name: str, column: str) -> Iterator[str]:
    if find_spec("pyarrow") is None:
        hint = "pip install 'twofold[data]': it reads Parquet"
        raise MissingExtraError("`pyarrow` is not installed", hint=hint)
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(path)
    except (ArrowInvalid, OSError) as error:
        raise FileError(f"`{name}` is no Parquet file: {error}") from error
    if column not in table.schema_arrow.names:
        hint = f"it has {', '.join(table.schema_arrow.names[:8])}"
        raise FileError(f"`{name}` has no column `{column}`", hint=hint)
    for batch in table.iter_batches(PARQUET_ROWS, columns=[column]):
        for text in batch.column(0).to_pylist():
            if text is not None and not isinstance(text, str):
                raise FileError(f"column `{column}` of `{name}` holds no text", hint="name one that does")
            yield text or ""


def _file_system(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, path = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise MissingExtraError(
            f"`{address}` cannot be opened: {error}", hint="install its library"
        ) from error
    return fs, str(path)
