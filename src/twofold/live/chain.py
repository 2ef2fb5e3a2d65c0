"""A log whose lines are chained: each carries the SHA-256 of the one before, so a changed byte is found.

A chain tells that a line was changed, left out or put in between. That all of it is new shows at its
newest line, which is sealed by a key (`seals.py`). That lines are missing at its end shows by a copy alone.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BEGIN = "0" * 64


@dataclass(frozen=True, slots=True)
class Link:
    """What a chained line says of its place, and what a seal on it is for."""

    before: str  # the digest of the line before
    number: int  # 0: it has none
    seal: str  # "": it has none
    unsealed_digest: str  # of the line without its seal

    @classmethod
    def of(cls, line: bytes) -> "Link | None":
        """None where it is no such line."""
        try:
            said = json.loads(line)
            before, number, seal = said["before"], said.get("number", 0), said.get("seal", "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if type(number) is not int or not isinstance(before, str) or not isinstance(seal, str):
            return None
        bare = line.removesuffix(f',"seal":"{seal}"}}'.encode("utf-8", "replace")) + b"}" if seal else line
        return cls(before, number, seal, digest_of_line(bare))


@dataclass(frozen=True, slots=True)
class Broken:
    """The first line that does not hang on the one before it."""

    number: int  # counts from 1
    why: str


def chained(before: str, said: Mapping[str, Any]) -> tuple[str, str]:
    """A line that hangs on the digest of the line before it, "" for the first, and its own digest.

    Raises ValueError for a key that is the chain's own.
    """
    if "before" in said:
        raise ValueError("`before` is the chain's own key")
    line = hung(json.dumps(said, sort_keys=True, separators=(",", ":")), before or BEGIN)
    return line, digest_of_line(line.encode())


def hung(line: str, before: str) -> str:
    """A line of JSON, an object that says something, that hangs on the digest of the line before it."""
    return f'{line[:-1]},"before":"{before}"}}'


def digest_of_line(line: bytes) -> str:
    """What the next line carries."""
    return hashlib.sha256(line).hexdigest()


def check_chain(lines: Iterable[str], before: str = BEGIN) -> tuple[str, Broken | None]:
    """The digest of the last line, and the first line that is broken; None where all hang together."""
    for number, line in enumerate(lines, start=1):
        link = Link.of(line.encode())
        if link is None:
            return before, Broken(number, "it cannot be read")
        if link.before != before:
            return before, Broken(number, "it does not follow the line before it")
        before = digest_of_line(line.encode())
    return before, None
