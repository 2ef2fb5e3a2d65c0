"""Reads a chained file with its rotated ones, and names every place where it is not as it was written."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.live.chain import Link, digest_of_line
from twofold.live.chain_head import Head, head_path, read_head
from twofold.live.chained_file import TORN, UNVOUCHED, is_sealed
from twofold.live.line_file import note_of, written_files

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

    first: int  # number of the oldest line that is kept; 0: there is none
    number: int  # of the newest one
    line_count: int
    note_count: int  # of them: what the log says of itself
    lost_count: int  # that no disk would take, as the file itself says
    torn_count: int  # how often a restart cut off an end, as it says too
    unended_bytes: int  # behind the last line that is vouched for: being written, or left by a kill
    digest: str  # of the newest line: kept elsewhere, it vouches for all before
    sealed: bool  # by a key that is here; else the chain alone was checked
    kept_number: int = 0  # the newest that was kept elsewhere and is here as it was; 0: none
    headless: bool = False  # no head is here, and nothing was kept: nobody knows its ends
    broken: tuple[Place, ...] = ()


def check_chained(path: Path, key: bytes | None, kept: Sequence[Head] = ()) -> Checked:
    """Read all of it, while somebody writes to it too, and hold it against heads that were kept elsewhere.

    Raises OSError for what cannot be read.
    """
    head = read_head(path)
    for _ in range(TRIES):
        found = _Check(key, head, kept).run(path)
        now = read_head(path)
        if not found.broken or now == head:
            break
        head = now
    return found


@dataclass(slots=True)
class _Check:
    """One reading. Mutable: where it is, and what it has found."""

    key: bytes | None
    head: Head | None
    kept: Sequence[Head]
    places: list[Place] = field(default_factory=list)
    before: str | None = None  # the digest of the line before; None: nobody knows
    first: int = 0
    number: int = 0
    tally: Counter[str] = field(default_factory=Counter)  # lines, those that were lost, and notes by kind …
    loose: Counter[str] = field(default_factory=Counter)  # … and of the lines since the last vouched one
    vouched: tuple[int, str | None] = 0, None  # `number` and `before` behind that one
    loose_at: tuple[Path, int] | None = None  # where the first of these stands
    sure_number: int = 0  # of the last line that a seal, the head, or what was kept elsewhere vouches for
    told_number: int = -1  # of the newest line that a head of ours tells of
    unended_bytes: int = 0
    kept_number: int = 0
    blamed: bool = False  # the line before was named as changed
    found_head: bool = False  # the line that the head tells of is there

    def run(self, path: Path) -> Checked:
        digests: dict[int, set[str]] = {}
        if self.head is not None and self.head.is_by(self.key):
            self.before = self.head.origin
            self.vouched, self.told_number = (0, self.before), self.head.number
            for each in self.kept:
                if each.origin == self.head.origin:
                    digests.setdefault(each.number, set()).add(each.digest)
        for file, line_number, line in _lines(written_files(path)):
            if line.endswith(b"\n"):
                self._line(file, line_number, line[:-1], digests)
            elif file == path:
                self.unended_bytes += len(line)
            else:
                self._broken(
                    file, line_number, "it was changed: a file that was rotated ends with a whole line"
                )
        self._leave_loose()
        self._ends(path)
        lines, lost, torn = (self.tally[each] for each in ("lines", "lost lines", f"note {TORN}"))
        notes = self.tally.total() - lines - lost
        return Checked(
            *(self.first if lines else 0, self.number, lines, notes, lost, torn),
            *(self.unended_bytes, self.before or "", self.key is not None, self.kept_number),
            not self.kept and not head_path(path).exists(),
            tuple(self.places),
        )

    def _line(self, file: Path, line_number: int, line: bytes, kept: dict[int, set[str]]) -> None:
        self.loose["lines"] += 1
        link, digest = Link.of(line), digest_of_line(line)
        if link is None:
            self._broken(file, line_number, "it was changed: no line of a log ends so")
            self.before, self.number, self.blamed = digest, self.number + 1, True
            self._vouch()
            return
        note = note_of(line) or {}
        why = self._changed(link, digest, kept.get(link.number, set())) or self._moved(link, note)
        if why:
            self._broken(file, line_number, why)
        if note:
            self.loose[f"note {note['log']}"] += 1
        if note.get("log") == UNVOUCHED:
            why = f"the writer began here, and found other lines than it had left, behind {note.get('after')}"
            self._broken(file, line_number, why)
        self.before, self.number, self.first = digest, link.number, self.first or link.number
        if link.seal or link.number in kept or link.number == self.told_number:
            self.sure_number = link.number
        if link.seal or self.key is None or link.number <= self.told_number:
            self._vouch()
        else:
            self.loose_at = self.loose_at or (file, line_number)
            self.unended_bytes += len(line) + 1

    def _vouch(self) -> None:
        """All lines to here are the log's, unless they are named as changed."""
        self.tally.update(self.loose)
        self.loose.clear()
        self.vouched, self.loose_at, self.unended_bytes = (self.number, self.before), None, 0

    def _leave_loose(self) -> None:
        """Lines at the end that nothing vouches for are being written, or a kill left them: they say nothing;
        without a head of ours nobody knows that they are so few."""
        if self.loose_at is not None and self.told_number < 0:
            self._broken(*self.loose_at, "it has no seal")
        self.number, self.before = self.vouched

    def _changed(self, link: Link, digest: str, kept: set[str]) -> str:
        """Why it is not the line that was written; "" where nothing tells."""
        was_blamed, self.blamed = self.blamed, True
        if link.seal and not is_sealed(link, self.key):
            return "it was changed: its seal does not fit"
        if kept - {digest}:
            return f"it was changed: another number {link.number} was kept elsewhere"
        if self.head is not None and link.number == self.head.number:
            self.found_head = True
            if digest != self.head.digest:
                return "it was changed: the head knows another"
        if kept:
            self.kept_number = link.number
        self.blamed = was_blamed
        return ""

    def _moved(self, link: Link, note: dict[str, Any]) -> str:
        """Why it does not stand where it was written; "" where it does."""
        was_blamed, self.blamed = self.blamed, False
        if was_blamed or (not self.first and link.number > 1):
            return ""  # what was before it is named, or rotated away if the head says so
        if self.before is not None and link.before != self.before:
            return self._why(link) if self.first else "its head tells of a log that began otherwise"
        skipped = link.number - self.number - 1
        if skipped < 0 or (skipped and note.get("log") != "lost"):
            return self._why(link)
        self.loose["lost lines"] += skipped
        return ""

    def _why(self, link: Link) -> str:
        if link.number == self.number + 1:
            return f"number {self.number}, the line before it, was changed"
        if link.number == self.number + 2:
            return f"number {self.number + 1} is missing before it"
        if link.number > self.number:
            return f"numbers {self.number + 1} to {link.number - 1} are missing before it"
        return f"number {link.number} stands behind {self.number}"

    def _ends(self, path: Path) -> None:
        """Whether it has the ends that its head tells of, and what was kept elsewhere."""
        head = self.head
        if head is None:
            what = "cannot be read" if head_path(path).exists() else "is not there"
            self._broken(path, 0, f"`{head_path(path).name}` {what}: lines may be missing at either end")
        elif not head.is_by(self.key):
            self._broken(head_path(path), 1, "it was changed: its seal does not fit")
        else:
            self._end(path, head)
            for each in self.kept:
                if each.origin != head.origin:
                    self._broken(
                        path, 0, f"another log is in its place: of that one number {each.number} was kept"
                    )
                elif each.number > self.number:
                    self._broken(
                        path, 0, f"number {each.number} is missing at its end: it was kept elsewhere"
                    )

    def _end(self, path: Path, head: Head) -> None:
        if self.first > head.first:
            self._broken(path, 0, f"numbers {head.first} to {self.first - 1} are missing at its beginning")
        is_any = head.number >= head.first
        is_empty = not self.tally["lines"]
        if self.number < head.number and (is_any or not is_empty):
            begin = max(self.number + 1, head.first if is_empty else 0)
            self._broken(path, 0, f"numbers {begin} to {head.number} are missing at its end")
        elif is_any and not self.found_head and self.first <= head.number <= self.number:
            self._broken(path, 0, f"number {head.number} is not there, which the head tells of")

    def _broken(self, file: Path, line: int, why: str) -> None:
        """Name a place, and since which line nothing vouches for what stands before it."""
        if self.key is not None and self.sure_number < self.number:
            unsure = max(self.sure_number + 1, self.first)
            why += f"; nothing vouches for number {unsure} and those behind it"
        self.places.append(Place(file, line, why))


def _lines(files: list[Path]) -> Iterator[tuple[Path, int, bytes]]:
    """Lines with their breaks, the oldest first; what is being written now has no end yet."""
    for file in files:
        with suppress(FileNotFoundError), file.open("rb") as lines:  # rotated away meanwhile: it is missed
            for number, line in enumerate(lines, start=1):
                yield file, number, line
