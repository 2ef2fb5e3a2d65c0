"""A file of lines that rotates, survives kill -9 with whole lines, and never stops who writes to it."""

import errno
import json
import os
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from twofold.core.errors import ShapeError

LOST_LIMIT_BYTES = 8 << 20  # kept in memory while the disk refuses
LOST_LINE = b'{"log":"lost"'
FILE_COUNT_MAX = 100  # that a reader looks for, who is not told how many are kept
REFUSED = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class LineFile:
    """The writer. Mutable: it holds the lines that wait for the next flush, and the file.

    A disk that refuses (full, read-only, gone) must not stop the traffic: lines wait in memory up to a limit,
    then they are dropped, counted in `lost_lines`, and a `lost` line says so once the disk takes lines again,
    be it another one in the same place.
    """

    def __init__(self, path: Path, limit_bytes: int, file_count: int) -> None:
        self.path, self._limit_bytes, self._file_count = path, limit_bytes, file_count
        self.lost_lines = 0
        self._reported_lost_lines = 0
        self._waiting: list[str] = []
        self._unwritten = b""  # of a write that the disk took in part only
        self._begun = False  # its first line stands in the file in part
        self.refusal: OSError | None = None  # of the latest write
        self.cut_bytes, self._size_bytes = 0, 0
        self._file: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            self.refusal = error

    def stop(self) -> None:
        """Write what waits, and close."""
        self.flush()
        self.close()

    def close(self) -> None:
        """Let go of the file; what waits is forgotten."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def append(self, line: str) -> None:
        """A line without its line break; it waits for the next flush."""
        self._waiting.append(line)

    def flush(self) -> None:
        """Write the lines that wait, and whatever tells of them."""
        self.write_lines()

    def write_lines(self) -> None:
        """Write the lines that wait."""
        if not self._waiting and not self._unwritten:
            return
        if self.lost_lines > self._reported_lost_lines:
            self._waiting.insert(0, note_line("lost", lines=self.lost_lines))
            self._reported_lost_lines = self.lost_lines
        self._unwritten += self.encoded(self._waiting)
        self._waiting.clear()
        if written := self._written():
            self._size_bytes += written
            self._begun = not self._unwritten.endswith(b"\n", 0, written)
            self._unwritten = self._unwritten[written:]
        if len(self._unwritten) > LOST_LIMIT_BYTES:
            self._drop()
        if self._size_bytes > self._limit_bytes and not self._unwritten:
            self._rotate()

    def encoded(self, lines: list[str]) -> bytes:
        """What is written for these lines, now."""
        return "".join(f"{line}\n" for line in lines).encode()

    def head(self) -> str | None:
        """The first line of a file that goes on where another was full; None: it needs none."""
        return None

    def _written(self) -> int:
        """How many bytes the disk took; none when it refuses: the traffic goes on, the log says so later."""
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            written = os.write(self._file, self._unwritten)
        except OSError as error:
            self.refusal = error
            if self._file is not None and not _is_at(self._file, self.path):  # another disk is in its place
                self._move()
            return 0
        self.refusal = None
        return written

    def _move(self) -> None:
        """What is written next goes to the file that is at the path now; a line that was begun is lost."""
        self.close()
        if self._begun:
            _, _, self._unwritten = self._unwritten.partition(b"\n")
            self._begun, self.lost_lines = False, self.lost_lines + 1
        if (head := self.head()) is not None:
            self._unwritten = f"{head}\n".encode() + self._unwritten

    def _open(self) -> None:
        # The folder is not made anew: while a disk is exchanged, what is below its place is another one's.
        self.cut_bytes += _cut_torn_end(self.path)
        self._file, self._size_bytes = _opened(self.path)

    def _drop(self) -> None:
        """Forget what waits, all but the rest of a line that was begun."""
        begun, _, dropped = self._unwritten.partition(b"\n")
        self.lost_lines += dropped.count(b"\n") - dropped.count(LOST_LINE)
        self._unwritten = begun + b"\n"
        self._reported_lost_lines = 0  # the note may have been among what was dropped

    def _rotate(self) -> None:
        """log → log.1 → log.2 …, the oldest deleted."""
        files = numbered(self.path, self._file_count)
        try:
            files[-1].unlink(missing_ok=True)
            for older, newer in zip(files[::-1], files[-2::-1], strict=False):
                if newer.exists():
                    newer.rename(older)
            opened = _opened(self.path)
        except OSError:  # whatever the folder refuses, the log goes on in the file that is open
            return
        self.close()
        self._file, self._size_bytes = opened
        if (head := self.head()) is not None:
            self._waiting.insert(0, head)


def numbered(path: Path, file_count: int) -> list[Path]:
    """The files of a log, newest first: log, log.1, log.2 …"""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, file_count))]


def written_files(path: Path, file_count: int = FILE_COUNT_MAX) -> list[Path]:
    """Those of a log's files that are there, oldest first: in this order its lines were written."""
    return [file for file in numbered(path, file_count)[::-1] if file.exists()]


def note_line(kind: str, **what: Any) -> str:
    """A line that a log says of itself."""
    return json.dumps({"log": kind, **what}, separators=(",", ":"))


def note_of(line: bytes) -> dict[str, Any] | None:
    """What `note_line` made, read back; None for any other line. Raises ShapeError for a broken one."""
    if not line.startswith(b'{"log":'):
        return None
    try:
        note: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError) as error:
        hint = "read the log with the version that wrote it"
        raise ShapeError(f"a line of the log cannot be read: {error}", hint=hint) from error
    return note


def wall_text(at_s: float) -> str:
    """Seconds since 1970 as people read them: UTC, to the millisecond.

    >>> wall_text(1.5)
    '1970-01-01T00:00:01.500+00:00'
    """
    whole_us = int(at_s * 1e6 + 0.5)
    second = whole_us // 1_000_000
    return f"{_second_text(second)}.{str(1000 + (whole_us - second * 1_000_000) // 1000)[1:]}+00:00"


@lru_cache(maxsize=128)  # HOT: per request, of which a second has hundreds, told when they have ended
def _second_text(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one at the path, or none is there."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return not path.parent.is_dir()  # its disk is gone: this one may come back
    except OSError:
        return True


def _opened(path: Path) -> tuple[int, int]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return file, os.fstat(file).st_size


def _cut_torn_end(path: Path) -> int:
    """Cut off a line that a killed process left unfinished; how many bytes it had.

    Nothing is lost by it: what was not written whole was not acted on.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end, step = size, 1 << 16
        while end > 0:
            start = max(0, end - step)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)
        return size - end
