"""What is kept elsewhere of a chained file: which lines it had, in each run of its writer.

The file alone cannot tell that all of it is an older copy, or another file by the same key, or that there was
one.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.core.data import from_data, to_data
from twofold.live.chain_check import Checked, check_chained
from twofold.live.chain_head import Head, head_path, read_head
from twofold.live.line_file import written_files

RUNS_MAX = 100


@dataclass(frozen=True, slots=True)
class KeptHeads:
    """The newest head of each run, the oldest first."""

    heads: tuple[Head, ...] = ()

    @classmethod
    def of(cls, text: str) -> "KeptHeads":
        """What `text` gave. Raises ValueError for anything else."""
        return cls(tuple(from_data(Head, each) for each in json.loads(text or "[]")))

    @property
    def text(self) -> str:
        """As it is kept."""
        return json.dumps(to_data(self.heads))

    def after(self, head: Head) -> "KeptHeads":
        """With this one too.

        A run that goes on behind an older copy leaves what is kept of the run before. A head whose line is
        rotated away tells nothing any more.
        """
        heads = self.heads
        if heads and heads[-1].run == head.run:
            if head.number < heads[-1].number:
                return self
            heads = heads[:-1]
        telling = (each for each in heads if each.origin != head.origin or each.number >= head.first)
        return replace(self, heads=(*telling, head)[-RUNS_MAX:])

    def looked(self, path: Path, key: bytes) -> "tuple[KeptHeads, str]":
        """With the head that a file has now; and what is wrong with that, "" where nothing is."""
        head, heads = read_head(path), self.heads
        # A writer whose file was taken away writes its head anew, and its lines where the file went.
        if head is None or (head.number >= head.first and not written_files(path)):
            return self, f"the log of requests is gone, up to number {heads[-1].number}" if heads else ""
        if not head.is_by(key):
            return self, "the head of the log of requests was changed"
        is_another = any(each.origin != head.origin for each in heads)
        return self.after(head), "another log is in the place of the log of requests" if is_another else ""

    def know(self, path: Path) -> bool:
        """Whether there is anything of a file, or was."""
        return bool(self.heads or written_files(path) or head_path(path).exists())

    def check(self, path: Path, key: bytes | None) -> Checked:
        """Read all of a file, and hold it against them. Raises OSError for what cannot be read."""
        return check_chained(path, key, self.heads)
