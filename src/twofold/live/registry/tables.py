"""Names, versions, aliases, approvals, evaluations and what was done, in rows of a store.

A version is a number below a name, of one digest for ever; an alias (`serving`, `candidate`) is a version's
name that moves. Every change is a line of a chained log, written in the same transaction: either both are
there or neither. Rows are added and never changed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from twofold.core.errors import AlteredError, UnknownNameError, ValueRefusedError
from twofold.live.chain import chained, check_chain
from twofold.live.registry.stores import Row, Store, same
from twofold.live.seals import sealed

NAME_MAX = 64
LOG = "log"  # what its seals are for
ATTACH = "attach"
DECIDE = "decide"
LISTED_MOST = 8  # versions or names, in a hint
NOTHING = 0  # the version of an alias that means none any more


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a name."""

    name: str
    version: int
    digest: str
    seal: str
    pushed_at: str
    pushed_by: str

    @property
    def text(self) -> str:
        """As people write it."""
        return f"{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class AliasMove:
    """An alias came to mean this version."""

    name: str
    alias: str
    version: int
    at: str
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the log: what was done to a version, or refused."""

    at: str  # in UTC
    what: str
    on: str  # NAME:3; NAME:0 where an alias means nothing any more
    by: str
    alias: str = ""
    kind: str = ""  # of what was attached
    why: str = ""
    rules: tuple[tuple[str, str], ...] = ()  # that refused it, and what each found


class Tables:
    """What rows mean. Mutable: it holds a connection."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store, self._key, self._depth = store, key, 0
        self._attached: tuple[str, dict[str, list[tuple[str, str]]]] = ("", {})  # as of that line of the log

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def add(self, name: str, digest: str, seal: str, by: str) -> Version:
        """The next version of a name, or the one that it has of this digest already."""
        check_name(name)
        with self.whole():
            known = self.versions(name)
            for each in known:
                if each.digest == digest:
                    return each
            newest = max((each.version for each in known), default=0)
            made = Version(name, newest + 1, digest, seal, now(), by)
            row = (made.name, made.version, made.digest, made.seal, made.pushed_at, made.pushed_by)
            self._store.add("versions", row)
            self._log("push", made.text, by, {"digest": digest})
        return made

    def versions(self, name: str = "") -> list[Version]:
        """All, or those of one name; the oldest first."""
        rows: list[Any] = self._store.rows("versions")
        return [Version(*row) for row in rows if not name or row[0] == name]

    def held(self, name: str) -> str:
        """In words, which versions and aliases there are of a name; of one that is not there, which names."""
        known = self.versions(name) if name else []
        if known:
            aliases = "".join(f", {name}@{each}" for each in sorted(self.aliases(name)))
            return f"it holds {', '.join(each.text for each in known[-LISTED_MOST:])}{aliases}"
        names = sorted({each.name for each in self.versions()})
        return f"it holds {', '.join(names[:LISTED_MOST])}" if names else "it is empty"

    def move(self, name: str, alias: str, version: int, by: str, why: str) -> AliasMove:
        """Let an alias mean a version. Raises UnknownNameError for one that is not there."""
        check_name(alias)
        with self.whole():
            if all(each.version != version for each in self.versions(name)):
                raise UnknownNameError(f"`{name}` has no version {version}", hint=f"`registry show {name}`")
            made = AliasMove(name, alias, version, now(), by, why)
            self._store.add("aliases", (name, alias, version, made.at, by, why))
            self._log("move", f"{name}:{version}", by, {"alias": alias, "why": why})
        return made

    def clear(self, name: str, alias: str, by: str, why: str) -> None:
        """From now on an alias means nothing; where it does already, nothing happens."""
        with self.whole():
            if alias in self.aliases(name):
                self._store.add("aliases", (name, alias, NOTHING, now(), by, why))
                self._log("move", f"{name}:{NOTHING}", by, {"alias": alias, "why": why})

    def moves(self, name: str, alias: str) -> list[AliasMove]:
        """Each time that the alias came to mean another version, or `NOTHING`, the oldest first."""
        rows: list[Any] = self._store.rows("aliases")
        return [AliasMove(*row) for row in rows if row[:2] == (name, alias)]

    def aliases(self, name: str) -> dict[str, int]:
        """What each alias of a name means now."""
        rows: list[Any] = self._store.rows("aliases")
        held = {row[1]: row[2] for row in rows if row[0] == name}
        return {alias: version for alias, version in held.items() if version != NOTHING}

    def approve(self, version: Version, by: str, why: str) -> None:
        """Somebody vouches for a version; twice is once."""
        with self.whole():
            if by not in self.approvals(version):
                self._store.add("approvals", (version.name, version.version, by, now(), why))
            self._log("approve", version.text, by, {"digest": version.digest, "why": why})

    def approvals(self, version: Version) -> tuple[str, ...]:
        """Who vouches for it."""
        on = (version.name, version.version)
        return tuple(str(row[2]) for row in self._store.rows("approvals") if row[:2] == on)

    def evaluated(self, version: Version, report: Mapping[str, Any], by: str) -> None:
        """Keep what was measured of a model."""
        with self.whole():
            text = json.dumps(report, sort_keys=True)
            self._store.add("evaluations", (version.digest, text, now()))
            self._log("evaluate", version.text, by, {"digest": version.digest, "report": report})

    def evaluation(self, digest: str) -> dict[str, Any] | None:
        """What was measured of it last."""
        reports = [row[1] for row in self._store.rows("evaluations") if row[0] == digest]
        return dict(json.loads(str(reports[-1]))) if reports else None

    def attached(self, version: Version, kind: str, digest: str, by: str) -> None:
        """Something is said of a model beside it, such as a signature: the log alone tells of it."""
        with self.whole():
            self._log(ATTACH, version.text, by, {"digest": version.digest, "kind": kind, "attached": digest})

    def attachments(self) -> dict[str, list[tuple[str, str]]]:
        """Of each model's digest the kind and digest of what was attached, the oldest first."""
        newest = self.newest()
        if self._attached[0] != newest:
            found: dict[str, list[tuple[str, str]]] = {}
            for said in map(json.loads, self.log()):
                if said["what"] == ATTACH:
                    found.setdefault(said["digest"], []).append((said["kind"], said["attached"]))
            self._attached = newest, found
        return self._attached[1]

    def decided(self, version: Version, by: str, decision: str, why: str) -> None:
        """How a trial of a version ended; the log alone tells of it, by the name of the decision."""
        with self.whole():
            self._log(DECIDE, version.text, by, {"decision": decision, "why": why})

    def is_decided(self, decision: str) -> bool:
        """Whether the log tells of this decision."""
        told = map(json.loads, self.log())
        return any(said["what"] == DECIDE and said["decision"] == decision for said in told)

    def refused(self, what: str, version: Version, by: str, rules: Mapping[str, str]) -> None:
        """Somebody asked for what a rule refuses: that is kept as well."""
        with self.whole():
            self._log(f"refused {what}", version.text, by, {"rules": dict(rules)})

    def log(self) -> list[str]:
        """Every line, the oldest first."""
        return [str(row[0]) for row in self._store.rows("log")]

    def changes(self, name: str) -> list[Change]:
        """What the log tells of a name, the oldest first."""
        told = map(json.loads, self.log())
        return [_change(said) for said in told if str(said["on"]).rpartition(":")[0] == name]

    def added(self) -> dict[str, tuple[str, str]]:
        """Each version as people write it, and the digest of each attachment, the oldest first: on which
        version, and of which kind, "" for the version itself."""
        found: dict[str, tuple[str, str]] = {}
        for said in map(json.loads, self.log()):
            if said["what"] == "push":
                found.setdefault(str(said["on"]), (str(said["on"]), ""))
            elif said["what"] == ATTACH:
                found.setdefault(str(said["attached"]), (str(said["on"]), str(said["kind"])))
        return found

    def newest(self) -> str:
        """The digest of the newest line; "" while there is none."""
        row = self._store.newest("log")
        return str(row[1]) if row else ""

    def check_log(self) -> None:
        """Raise AlteredError, with its number, for the first line that was changed, left out or put in."""
        rows = self._store.rows("log")
        newest, broken = check_chain(str(row[0]) for row in rows)
        if broken is not None:
            raise AlteredError(
                f"line {broken.number} of the log: {broken.why}", hint="restore it from a copy"
            )
        if rows and rows[-1][1:] != (newest, sealed(self._key, LOG, newest)):
            raise AlteredError("the log was written anew by somebody else", hint="restore it from a copy")

    def check(self) -> None:
        """Raise AlteredError where the log was changed, or where a table says other than what it tells."""
        with self.whole():  # nobody writes between the two; the log is checked
            told, found = _told_by(self.log()), {what: self._said(what) for what in TOLD}
        for what in TOLD:
            if not same(found[what], told[what], ordered=what in LAST_COUNTS):
                raise AlteredError(
                    f"a table holds another `{what}` than the log", hint="restore the registry from a copy"
                )

    def _said(self, what: str) -> list[Row]:
        """The rows of which the log tells by this word, as far as it does."""
        rows = self._store.rows(TOLD[what])
        if what == "push":
            return [(f"{row[0]}:{row[1]}", row[2], row[5]) for row in rows]
        if what == "move":
            return [(f"{row[0]}:{row[2]}", row[1], row[4]) for row in rows]
        if what == "approve":
            return [(f"{row[0]}:{row[1]}", row[2]) for row in rows]
        return [row[:2] for row in rows]

    def _log(self, what: str, on: str, by: str, more: Mapping[str, Any]) -> None:
        line, digest = chained(self.newest(), {"at": now(), "what": what, "on": on, "by": by, **more})
        self._store.add("log", (line, digest, sealed(self._key, LOG, digest)))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is written inside, or nothing; what is inside of another is part of it.

        Raises AlteredError where the log is not as it was written.
        """
        self._depth += 1
        try:
            if self._depth > 1:
                yield
            else:
                with self._store.whole():
                    self.check_log()  # nothing is hung on a log that somebody else changed
                    yield
        finally:
            self._depth -= 1


def _change(said: Mapping[str, Any]) -> Change:
    at, what, on, by = (str(said[key]) for key in ("at", "what", "on", "by"))
    more = {key: str(said.get(key, "")) for key in ("alias", "kind", "why")}
    return Change(at, what, on, by, **more, rules=tuple(dict(said.get("rules", {})).items()))


TOLD = {"push": "versions", "move": "aliases", "approve": "approvals", "evaluate": "evaluations"}
LAST_COUNTS = ("move", "evaluate")  # of the others there is one each


def _told_by(log: list[str]) -> dict[str, list[Row]]:
    """What the log tells of each table."""
    told: dict[str, list[Row]] = {what: [] for what in TOLD}
    for said in map(json.loads, log):
        more: dict[str, Row] = {
            "push": (said.get("digest"), said["by"]),
            "move": (said.get("alias"), said["by"]),
            "approve": (said["by"],),
            "evaluate": (said.get("digest"), json.dumps(said.get("report"), sort_keys=True)),
        }
        if said["what"] in told:
            on = () if said["what"] == "evaluate" else (said["on"],)  # of bytes, whatever their name
            told[said["what"]].append((*on, *more[said["what"]]))
    return told


def check_name(name: str) -> None:
    """Raise ValueRefusedError for what is no name of a model or an alias."""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-._")
    is_other = name.isdigit() or name == "sha256"  # a version's number, or how a digest begins
    if not name or len(name) > NAME_MAX or set(name) - allowed or not name[0].isalnum() or is_other:
        what = f"`{name[:NAME_MAX]}` is no name of a model or an alias"
        hint = "write lower case letters, digits, `-`, `.` and `_`; neither a number nor `sha256`"
        raise ValueRefusedError(what, hint=hint)


def now() -> str:
    """This second, as the tables keep it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
