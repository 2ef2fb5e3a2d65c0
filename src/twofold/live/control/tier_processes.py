"""Servers of CPU tiers that a spec has started: which are to be started or ended, which it does not do."""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twofold.live import processes
from twofold.live.control.reconcile import next_failure
from twofold.live.control.store import Store

ROLE = "tier-"  # and the server's name


@dataclass(frozen=True, slots=True)
class TierProcess:
    """One server of a tier, as its process is told."""

    replica_id: str
    command: tuple[str, ...]
    port: int
    folder: str  # in which it runs

    @property
    def role(self) -> str:
        """By which its process and its log are found."""
        return ROLE + self.replica_id

    @property
    def digest(self) -> str:
        """Of all that it is told: equal ones need no restart."""
        return processes.digest_of([*self.command, self.folder])


def tier_process(replica_id: str, command: str, port: int, folder: str) -> TierProcess:
    """Of a line with `{port}` in it, split as a shell splits words.

    >>> tier_process("lookup-0", "serve --port {port}", 9001, "/srv").command
    ('serve', '--port', '9001')
    """
    words = tuple(word.replace("{port}", str(port)) for word in shlex.split(command))
    return TierProcess(replica_id, words, port, folder)


@dataclass(slots=True)
class _Kept:
    """One server. Mutable."""

    started_s: float
    runs: bool = True  # as far as we know
    failed_count: int = 0
    not_before_s: float = 0.0


@dataclass(slots=True)
class TierActions:
    """What follows from a look."""

    start: list[TierProcess] = field(default_factory=list)
    end: dict[str, str] = field(default_factory=dict)  # by role; the trouble, "": it is told something else
    died: list[str] = field(default_factory=list)  # roles


class TierKeeper:
    """Mutable: when each was started last, and how often it died in a row. A new one adopts what runs."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def look(
        self,
        wanted: Iterable[TierProcess],
        digests: Mapping[str, str],  # of what runs, by role
        troubles: Mapping[str, str],
        ending: Collection[str],
        now_s: float,
    ) -> TierActions:
        """Whoever is missing is started again, after a pause that doubles as for replicas."""
        found, roles = TierActions(), set()
        for each in wanted:
            role, kept = each.role, self._kept.get(each.role)
            roles.add(role)
            if role in ending:
                continue
            if role in digests:
                kept = self._kept.setdefault(role, _Kept(now_s))
                if digests[role] != each.digest or troubles.get(role):
                    found.end[role], kept.runs = troubles.get(role, ""), False
                continue
            if kept is not None and kept.runs:
                served_s, kept.runs = now_s - kept.started_s, False
                kept.failed_count, kept.not_before_s = next_failure(kept.failed_count, served_s, now_s)
                found.died.append(role)
            if kept is None or now_s >= kept.not_before_s:
                kept = self._kept.setdefault(role, _Kept(now_s))
                kept.started_s, kept.runs = now_s, True
                found.start.append(each)
        gone = (
            role for role in digests if role.startswith(ROLE) and role not in roles and role not in ending
        )
        found.end |= dict.fromkeys(gone, "")
        return found


def start_tier(tier: TierProcess, state: Path, store: Store) -> None:
    """Start one; why it cannot be is noted."""
    try:
        processes.start(
            tier.command, tier.role, state, digest=tier.digest, port=tier.port, folder=Path(tier.folder)
        )
    except OSError as error:
        store.note(tier.role, f"it cannot be started: {error.strerror}")
