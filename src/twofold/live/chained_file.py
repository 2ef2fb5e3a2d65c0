"""A file of lines that are numbered and chained, each with a seal behind it.

A file `….head` beside it says which lines there are, so that those missing at its end are found as well. The
seals are by a key that stands elsewhere; without a key the chain alone is there.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from twofold.core.data import DataError, from_data
from twofold.live.chain import BEGIN, Link, digest_of_line, hung
from twofold.live.line_file import LineFile, note_line, numbered
from twofold.live.processes import private_opener
from twofold.live.seals import sealed

LINES = "lines"  # what the seals are for …
HEAD = "head"
HEAD_BYTES = 400  # it is written over in place
LAST_BYTES = 1 << 16  # of a file, in which its last line is
UNVOUCHED = "unvouched"  # the note of a writer that found other lines than its head told


@dataclass(frozen=True, slots=True)
class Head:
    """Which lines the file has, with those rotated away."""

    first: int = 1  # the number of the oldest one that is kept
    number: int = 0  # of the newest one; 0: there is none …
    digest: str = BEGIN  # … and what the next one carries
    seal: str = ""

    def text(self) -> str:
        """What is sealed."""
        return f"{self.first} {self.number} {self.digest}"


def is_sealed(link: Link, key: bytes | None) -> bool:
    """Whether who has the key wrote a line; without a key nobody can tell."""
    return key is None or link.seal == sealed(key, LINES, link.unsealed_digest)


class ChainedFile(LineFile):
    """The writer. Mutable: it holds the number and the digest of the line before, and its head's file.

    What it finds is not vouched for by going on behind it: where the file ends otherwise than the head says,
    a line says so, for good.
    """

    def __init__(self, path: Path, limit_bytes: int, file_count: int, key: bytes | None) -> None:
        """Raises OSError where the folder refuses."""
        super().__init__(path, limit_bytes, file_count)
        self._key, self._files = key, numbered(path, file_count)
        last, told = last_line(self._files), read_head(path)
        tail = Link.of(last)
        end = (tail.number, digest_of_line(last)) if tail else (0, BEGIN)
        is_ours = told is not None and (key is None or told.seal == sealed(key, HEAD, told.text()))
        if told is None or not is_ours:
            self._first = first_number(self._files) or 1
            self._number, self._before = end
            is_vouched = not last and told is None
        else:  # killed between a line and the head: then the lines are more, and the last one is sealed
            self._first = told.first
            is_more = end[0] > told.number
            self._number, self._before = end if is_more else (told.number, told.digest)
            is_vouched = end == (told.number, told.digest) or (
                is_more and tail is not None and is_sealed(tail, key)
            )
        self._head: int | None = None  # the open file; it is opened when it is first written
        if not is_vouched:
            self.append(note_line(UNVOUCHED, after=end[0]))

    def stop(self) -> None:
        """Write what waits, and close."""
        super().stop()
        self._close_head()

    def flush(self) -> None:
        """Write the lines that wait, then which ones there are."""
        super().flush()
        if not self._unwritten:
            self._write_head()

    def encoded(self, lines: list[str]) -> bytes:
        """Each with its number, the digest of the one before it, and its seal.

        HOT: per line of a request, at the flush.
        """
        made = []
        for line in lines:
            self._number += 1
            said = hung(f'{line[:-1]},"number":{self._number}}}', self._before).encode()
            if self._key is not None:
                seal = sealed(self._key, LINES, digest_of_line(said))
                said = said[:-1] + f',"seal":"{seal}"}}'.encode()
            self._before = digest_of_line(said)
            made.append(said + b"\n")
        return b"".join(made)

    def _drop(self) -> None:
        """What comes next hangs on the line that is kept; its number counts those that are lost."""
        first, lost_lines = Link.of(self._unwritten.partition(b"\n")[2].partition(b"\n")[0]), self.lost_lines
        super()._drop()
        if first is not None:
            self._before, self._number = first.before, first.number - 1 + self.lost_lines - lost_lines

    def _move(self) -> None:
        """On another disk in its place the lines go on by number; which is its first is looked up then."""
        super()._move()
        self._close_head()
        self._first = 0

    def _close_head(self) -> None:
        if self._head is not None:
            os.close(self._head)
        self._head = None

    def _rotate(self) -> None:
        """The head first: lines that are older than it says are no matter, lines that are missing are."""
        if self._files[-1].exists() or len(self._files) == 1:
            self._first = first_number(self._files[:-1]) or self._number + 1
            self._write_head()
        super()._rotate()

    def _write_head(self) -> None:
        self._first = self._first or first_number(self._files) or 1
        head = Head(self._first, self._number, self._before)
        seal = "" if self._key is None else sealed(self._key, HEAD, head.text())
        text = json.dumps({"first": head.first, "number": head.number, "digest": head.digest, "seal": seal})
        try:
            if self._head is None:
                self._head = private_opener(str(head_path(self.path)), os.O_WRONLY | os.O_CREAT)
            os.pwrite(self._head, f"{text.ljust(HEAD_BYTES - 1)}\n".encode(), 0)
        except OSError:  # as for lines: the traffic goes on, and the head is behind
            return


def head_path(path: Path) -> Path:
    """The file beside that says which lines there are."""
    return path.with_name(f"{path.name}.head")


def read_head(path: Path) -> Head | None:
    """What stands there; None without it, or where it is none."""
    try:
        return from_data(Head, json.loads(head_path(path).read_text("utf-8")))
    except (OSError, ValueError, DataError):
        return None


def first_number(files: list[Path]) -> int | None:
    """The number of the first line of the oldest file that has one."""
    for file in reversed(files):
        if file.exists():
            with file.open("rb") as lines:
                link = Link.of(lines.readline().rstrip(b"\n"))
            if link is not None:
                return link.number
    return None


def last_line(files: list[Path]) -> bytes:
    """The last whole line of the newest file that has one; empty without any."""
    for file in files:
        if file.exists() and (size := file.stat().st_size):
            with file.open("rb") as data:
                data.seek(max(0, size - LAST_BYTES))
                return data.read().rstrip(b"\n").rpartition(b"\n")[2]
    return b""
