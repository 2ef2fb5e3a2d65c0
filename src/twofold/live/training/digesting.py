"""Writes a distributed checkpoint and digests its bytes as they pass: nobody reads them again for that.

Beside each file a rank leaves its digest; whoever completes the checkpoint makes the manifest of them.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from twofold.live.training.checkpoints import DIGEST_SUFFIX


class _DigestingFile(io.FileIO):
    """A file whose bytes are digested as they are written. One that seeks has no digest."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self.sha256, self.size_bytes, self.is_straight = hashlib.sha256(), 0, True
        self.failed: OSError | None = None  # why a write of it did not succeed

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        try:
            while written < len(view):  # a raw file may take less than all
                written += super().write(view[written:]) or 0
        except OSError as error:
            self.failed = error
            raise
        self.sha256.update(view)
        self.size_bytes += written
        return written

    def seek(self, offset: int, whence: int = 0) -> int:
        self.is_straight = False
        return super().seek(offset, whence)


class _DigestingFileSystem(FileSystem):  # type: ignore[misc]
    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        path = Path(path)
        if mode != "wb" or path.name.startswith("."):  # the index is small, and renamed
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with _DigestingFile(path) as file:
            try:
                yield file
            except RuntimeError as error:  # the library's archive says so of a write that failed, and not why
                raise file.failed or error from error
        if file.is_straight:
            said = {"size_bytes": file.size_bytes, "sha256": file.sha256.hexdigest()}
            path.with_name(path.name + DIGEST_SUFFIX).write_text(json.dumps(said), "utf-8")


class DigestingWriter(FileSystemWriter):  # type: ignore[misc]
    """The library's writer of files, over files that digest."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fs = _DigestingFileSystem()
