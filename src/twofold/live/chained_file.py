"""A file of lines that are numbered and chained, with seals.

Each line carries the SHA-256 of the one before, so none is changed, moved or left out without a trace; with a
key the last of those that are written together is sealed as well, and so vouches for them all: whoever has no
key writes none. A file `….head` beside it says which lines it has, so that those missing at an end are found
too. The key stands elsewhere; without one the chain alone is there, which anybody can write anew. A log has
an origin, drawn at its start, that line 1 carries.
"""

import os
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from twofold.live.chain import Link, digest_of_line
from twofold.live.chain_head import Head, head_path, head_text, read_head
from twofold.live.disk import put_in_place
from twofold.live.line_file import LOST_LINE, REFUSED, LineFile, note_line, numbered
from twofold.live.seals import sealed

LINES = "lines"  # what the seals are for
UNVOUCHED = "unvouched"  # the note of a writer that found other lines than its head told
TORN = "torn"  # the note of one that cut off what a kill or a full disk left of lines written together
BLOCK_BYTES = 1 << 16  # of a file that is read from its end


def is_sealed(link: Link, key: bytes | None) -> bool:
    """Whether who has the key wrote a line; without a key nobody can tell."""
    return key is None or link.seal == sealed(key, LINES, link.unsealed_digest)


class ChainedFile(LineFile):
    """The writer. Mutable: it holds the number and the digest of the line before, and what its head says.

    What it finds is not vouched for by going on behind it: where the file ends otherwise than the head says,
    a line says so, for good. More lines than the head tells of are its own where they are sealed: a kill came
    before the head was written.
    """

    def __init__(self, path: Path, limit_bytes: int, file_count: int, key: bytes | None) -> None:
        """Raises OSError where the folder refuses."""
        self._key, self._files, self._run = key, numbered(path, file_count), secrets.token_hex(8)
        self._head = read_head(path)  # as it was written last
        super().__init__(path, limit_bytes, file_count)
        self._is_head_due = False  # before the next line: nothing at its place tells of the log yet
        _, last = self._loose_end()
        if self._head is None and not last:
            self._origin = self._before = secrets.token_hex(32)
            self._first, self._number = 1, 0
            self._is_head_due = not self._write_head()
            if self.refusal is not None and self.refusal.errno not in REFUSED:
                raise self.refusal
        else:
            self._go_on(self._head, last)

    def flush(self) -> None:
        """Write the lines that wait, then which ones there are.

        HOT: a head costs as much as a hundred lines; between two of them `write_lines` does.
        """
        self.write_lines()
        if not self._unwritten and not self._is_head_due:
            self._write_head()

    def encoded(self, lines: list[str]) -> bytes:
        """Each with its number and the digest of the one before it; the last with a seal (`Link` reads them).

        HOT: per line of a request, at the flush; a seal takes three times as long as all else.
        """
        made = []
        for line in lines:
            self._number += 1
            made.append(f'{line[:-1]},"number":{self._number},"before":"{self._before}"}}'.encode())
            self._before = sha256(made[-1]).hexdigest()
        if made and self._key is not None:
            made[-1] = made[-1][:-1] + f',"seal":"{sealed(self._key, LINES, self._before)}"}}'.encode()
            self._before = sha256(made[-1]).hexdigest()
        return b"".join([each + b"\n" for each in made])

    def _go_on(self, told: Head | None, last: bytes) -> None:
        """Take the chain up where the lines end, or where the head says; say so where these are not one."""
        link = Link.of(last)
        end = (link.number, digest_of_line(last)) if link else (0, "")
        if told is None or not told.is_by(self._key):
            first = first_link(self._files)
            self._first = first.number if first else 1
            self._origin = first.before if first and first.number == 1 else secrets.token_hex(32)
            self._number, self._before = end if link else (0, self._origin)
            is_vouched = False
        else:
            self._first, self._origin = told.first, told.origin
            is_more = end[0] > told.number
            self._number, self._before = end if is_more else (told.number, told.digest)
            is_empty = not last and told.first > told.number
            is_more_of_us = is_more and link is not None and is_sealed(link, self._key)
            is_vouched = is_empty or is_more_of_us or end == (told.number, told.digest)
        if not is_vouched:
            self._waiting.insert(0, note_line(UNVOUCHED, after=end[0]))

    def _open(self) -> None:
        cut_bytes = self.cut_bytes
        super()._open()
        loose_bytes, _ = self._loose_end()
        if loose_bytes and self._file is not None:
            try:
                os.truncate(self._file, self._size_bytes - loose_bytes)
            except OSError:  # nothing may be written behind them: it is tried again at the next flush
                self.close()
                raise
            self._size_bytes -= loose_bytes
            self.cut_bytes += loose_bytes
        if self.cut_bytes > cut_bytes:
            self._waiting.insert(0, note_line(TORN, bytes=self.cut_bytes - cut_bytes))

    def _loose_end(self) -> tuple[int, bytes]:
        """How many bytes of whole lines at the end nothing vouches for, and the last line before them.

        Why      What was written with them is missing, and with it their seal: a kill or a full disk. They
                 hang on what is vouched for; others are somebody else's, and stay as they are.
        """
        head, key, loose = self._head, self._key, list[bytes]()
        last = last_line(self._files)
        if key is None or head is None or not head.is_by(key):
            return 0, last
        before = b""
        for line in backwards(self.path):
            link = Link.of(line)
            if link is None or link.seal or link.number <= head.number:
                before = line
                break
            loose.append(line)
        before = before or last_line(self._files[1:])
        link = Link.of(before)
        number, digest = (link.number, digest_of_line(before)) if link else (head.number, head.digest)
        for line in reversed(loose):
            link = Link.of(line)
            assert link is not None
            is_next = link.number == number + 1 or line.startswith(LOST_LINE)
            if link.before != digest or not is_next:
                return 0, last
            number, digest = link.number, digest_of_line(line)
        return sum(len(line) + 1 for line in loose), before

    def _written(self) -> int:
        """The head before the first line, so that no kill leaves lines that nothing tells of."""
        if self._is_head_due:
            first = Link.of(self._unwritten.partition(b"\n")[0])
            assert first is not None
            self._first = (first_link(self._files) or first).number
            if not self._write_head(first.number - 1, first.before):
                return 0
            self._is_head_due = False
        return super()._written()

    def _drop(self) -> None:
        """What comes next hangs on the line that is kept; its number counts those that are lost."""
        first, lost_lines = Link.of(self._unwritten.partition(b"\n")[2].partition(b"\n")[0]), self.lost_lines
        super()._drop()
        if first is not None:
            self._before, self._number = first.before, first.number - 1 + self.lost_lines - lost_lines

    def _move(self) -> None:
        """On another disk in its place the lines go on by number, and the head begins anew."""
        super()._move()
        self._head, self._is_head_due = None, True

    def _rotate(self) -> None:
        """The head first: lines that are older than it says are no matter, lines that are missing are."""
        first = self._first
        if self._files[-1].exists() or len(self._files) == 1:
            oldest = first_link(self._files[:-1])
            self._first = oldest.number if oldest else self._number + 1
            if not self._write_head():
                self._first = first
                return
        super()._rotate()

    def _write_head(self, number: int | None = None, digest: str = "") -> bool:
        """Whether it is there. A disk may refuse it: the traffic goes on, and the head is behind."""
        newest = (self._number, self._before) if number is None else (number, digest)
        head = Head(self._first, *newest, self._origin, self._run).by(self._key)
        if head != self._head:
            try:
                put_in_place(head_path(self.path), head_text(head))
            except OSError as error:
                self.refusal = error
                return False
            self._head = head
        return True


def first_link(files: list[Path]) -> Link | None:
    """The first line of the oldest file that begins with one; None without any."""
    for file in reversed(files):
        if file.exists():
            with file.open("rb") as lines:
                link = Link.of(lines.readline().rstrip(b"\n"))
            if link is not None:
                return link
    return None


def last_line(files: list[Path]) -> bytes:
    """The last whole line of the newest file that has one; empty without any."""
    return next((line for file in files for line in backwards(file)), b"")


def backwards(path: Path) -> Iterator[bytes]:
    """The whole lines of a file without their breaks, the last one first; none where it is not there."""
    if not path.exists():
        return
    with path.open("rb") as data:
        at, rest, is_end = data.seek(0, os.SEEK_END), b"", True
        while at:
            size = min(BLOCK_BYTES, at)
            at -= size
            data.seek(at)
            rest, *lines = (data.read(size) + rest).split(b"\n")
            if is_end and lines:
                lines.pop()  # what stands behind the last break
                is_end = False
            yield from reversed(lines)
        if not is_end:
            yield rest
