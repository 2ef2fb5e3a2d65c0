"""What stands beside a file of chained lines: which lines it has, by the key of their seals."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.core.data import DataError, from_data, to_data
from twofold.live.chain import BEGIN
from twofold.live.seals import sealed

HEAD = "head"  # what its seal is for


@dataclass(frozen=True, slots=True)
class Head:
    """Which lines the file has, with those rotated away."""

    first: int = 1  # the number of the oldest one that is kept
    number: int = 0  # of the newest one; below `first`: there is none …
    digest: str = BEGIN  # … and what the next one carries
    origin: str = BEGIN  # what the first line of all carries
    run: str = ""  # drawn by each writer
    seal: str = ""

    def by(self, key: bytes | None) -> "Head":
        """The same with its seal."""
        told = f"{self.first} {self.number} {self.digest} {self.origin} {self.run}"
        return replace(self, seal="" if key is None else sealed(key, HEAD, told))

    def is_by(self, key: bytes | None) -> bool:
        """Whether who has the key wrote it; without a key nobody can tell."""
        return key is None or self == self.by(key)


def head_path(path: Path) -> Path:
    """The file beside that says which lines there are."""
    return path.with_name(f"{path.name}.head")


def head_text(head: Head) -> str:
    """As it is written, and no otherwise."""
    return f"{json.dumps(to_data(head))}\n"


def read_head(path: Path) -> Head | None:
    """What stands there; None without it, or where no writer wrote it so."""
    try:
        text = head_path(path).read_bytes().decode()
        head = from_data(Head, json.loads(text))
    except (OSError, ValueError, DataError, RecursionError):
        return None
    return head if head_text(head) == text else None
