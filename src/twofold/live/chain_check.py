"""Reads a chained file with its rotated ones, and names every place where it is not as it was written."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from twofold.live.chain import Link, digest_of_line
from twofold.live.chained_file import HEAD, UNVOUCHED, Head, head_path, is_sealed, read_head
from twofold.live.line_file import note_of, written_files
from twofold.live.seals import sealed

TRIES = 3  # of a file that is being written


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is not as it was written."""

    file: Path
    line: int  # of the file, from 1; 0: the file as a whole
    why: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that was read to its end."""

    first: int  # number of the oldest line that is kept
    number: int  # of the newest one
    line_count: int
    lost_count: int  # that no disk would take, as the file itself says
    digest: str  # of the newest line: kept elsewhere, it vouches for all before
    sealed: bool  # by a key that is here
    broken: tuple[Place, ...] = ()


def check_chained(path: Path, key: bytes | None) -> Checked:
    """Read all of it, while somebody writes to it too. Raises OSError for what cannot be read."""
    head = read_head(path)
    for _ in range(TRIES):
        found = _Check(key).run(path, head)
        now = read_head(path)
        if not found.broken or now == head:
            break
        head = now
    return found


@dataclass(slots=True)
class _Check:
    """One reading. Mutable: where it is, and what it has found."""

    key: bytes | None
    places: list[Place] = field(default_factory=list)
    before: str | None = None  # the digest of the line before; None: nobody knows
    number: int = 0
    count: int = 0
    lost_count: int = 0
    blamed: bool = False  # the line before was named as changed
    found_head: bool = False  # the line that the head tells of is there

    def run(self, path: Path, head: Head | None) -> Checked:
        files = written_files(path)
        first = 0
        for file, line_number, line in _lines(files):
            self._line(file, line_number, line, head)
            first = first or self.number
        if head is None:
            self._broken(path, 0, f"`{head_path(path).name}` is not there: its end may be missing")
        else:
            self._end(path, head, first)
        digest = self.before or ""
        return Checked(
            first, self.number, self.count, self.lost_count, digest, self.key is not None, tuple(self.places)
        )

    def _line(self, file: Path, line_number: int, line: bytes, head: Head | None) -> None:
        self.count += 1
        tail, digest = Link.of(line), digest_of_line(line)
        if tail is None:
            self._broken(file, line_number, "it was changed: no line of a log ends so")
            self.before, self.number, self.blamed = digest, self.number + 1, True
            return
        note = note_of(line) or {}
        if note.get("log") == UNVOUCHED:
            why = f"the writer began here, and found other lines than it had left, behind {note.get('after')}"
            self._broken(file, line_number, why)
        elif not is_sealed(tail, self.key):
            why = "it was changed: its seal does not fit" if tail.seal else "it has no seal"
            self._broken(file, line_number, why)
        elif self.before is not None and tail.before != self.before and not self.blamed:
            self._broken(file, line_number, self._why(tail))
        elif note.get("log") == "lost":
            self.lost_count += max(0, tail.number - self.number - 1)
        self.blamed = not is_sealed(tail, self.key)
        self.before, self.number = digest, tail.number
        if head is not None and tail.number == head.number:
            self.found_head = True
            if digest != head.digest and not self.blamed:
                self._broken(file, line_number, "it was changed: the head knows another")
                self.blamed = True

    def _why(self, tail: Link) -> str:
        if tail.number == self.number + 1:
            return f"number {self.number}, the line before it, was changed"
        if tail.number == self.number + 2:
            return f"number {self.number + 1} is missing before it"
        if tail.number > self.number:
            return f"numbers {self.number + 1} to {tail.number - 1} are missing before it"
        return f"number {tail.number} stands behind {self.number}"

    def _end(self, path: Path, head: Head, first: int) -> None:
        if self.key is not None and head.seal != sealed(self.key, HEAD, head.text()):
            self._broken(head_path(path), 1, "it was changed: its seal does not fit")
            return
        if first > head.first:
            self._broken(path, 0, f"numbers {head.first} to {first - 1} are missing at its beginning")
        elif head.number >= max(first, 1) and not self.found_head and self.number >= head.number:
            self._broken(path, 0, f"number {head.number} is not there, which the head tells of")
        if self.number < head.number:
            self._broken(path, 0, f"numbers {self.number + 1} to {head.number} are missing at its end")

    def _broken(self, file: Path, line: int, why: str) -> None:
        self.places.append(Place(file, line, why))


def _lines(files: list[Path]) -> Iterator[tuple[Path, int, bytes]]:
    """Whole lines, the oldest first; what is being written now has no end yet."""
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.endswith(b"\n"):
                    yield file, number, line[:-1]
