"""Names, versions, aliases, approvals, evaluations and what was done, in SQLite beside the layout.

A version is a number below a name, of one digest for ever; an alias (`serving`, `candidate`) is a version's
name that moves. Every change is a line of a chained log, written in the same transaction: either both are
there or neither.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twofold.core.errors import AlteredError, UnknownNameError, ValueRefusedError
from twofold.live.processes import private_opener
from twofold.live.registry.chain import BEGIN, chained, check_chain
from twofold.live.registry.seals import sealed

FILE = "registry.sqlite"
BUSY_S = 10.0
NAME_MAX = 64
LOG = "log"  # what its seals are for
TABLES = """
create table if not exists versions (
  name text not null, version integer not null, digest text not null, seal text not null,
  pushed_at text not null, pushed_by text not null,
  primary key (name, version), unique (name, digest));
create table if not exists aliases (
  number integer primary key autoincrement, name text not null, alias text not null, version integer not null,
  at text not null, who text not null, why text not null);
create table if not exists approvals (
  name text not null, version integer not null, who text not null, at text not null, why text not null,
  primary key (name, version, who));
create table if not exists evaluations (
  number integer primary key autoincrement, digest text not null, report text not null, at text not null);
create table if not exists log (
  number integer primary key autoincrement, line text not null, digest text not null, seal text not null);
"""


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


class Tables:
    """The open file. Mutable: it is a connection."""

    def __init__(self, folder: Path, key: bytes) -> None:
        path = folder / FILE
        self._key = key
        if not path.exists():  # to close a file takes from a process all locks that it has on it elsewhere
            os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))
        self._file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        self._file.execute("pragma journal_mode=wal")
        self._file.execute("pragma synchronous=full")
        self._file.executescript(TABLES)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def add(self, name: str, digest: str, seal: str, by: str) -> Version:
        """The next version of a name, or the one that it has of this digest already."""
        check_name(name)
        with self.whole():
            for each in self.versions(name):
                if each.digest == digest:
                    return each
            newest = max((each.version for each in self.versions(name)), default=0)
            made = Version(name, newest + 1, digest, seal, now(), by)
            told = (made.name, made.version, made.digest, made.seal, made.pushed_at, made.pushed_by)
            self._file.execute("insert into versions values (?, ?, ?, ?, ?, ?)", told)
            self._log("push", made.text, by, {"digest": digest})
        return made

    def versions(self, name: str = "") -> list[Version]:
        """All, or those of one name; the oldest first."""
        rows = self._file.execute("select * from versions order by name, version").fetchall()
        return [Version(*row) for row in rows if not name or row[0] == name]

    def move(self, name: str, alias: str, version: int, by: str, why: str) -> AliasMove:
        """Let an alias mean a version. Raises UnknownNameError for one that is not there."""
        check_name(alias)
        with self.whole():
            if all(each.version != version for each in self.versions(name)):
                raise UnknownNameError(f"`{name}` has no version {version}", hint=f"`registry show {name}`")
            made = AliasMove(name, alias, version, now(), by, why)
            told = (name, alias, version, made.at, by, why)
            self._file.execute("insert into aliases values (null, ?, ?, ?, ?, ?, ?)", told)
            self._log("move", f"{name}:{version}", by, {"alias": alias, "why": why})
        return made

    def moves(self, name: str, alias: str) -> list[AliasMove]:
        """Each time that the alias came to mean another version, the oldest first."""
        asked = "select name, alias, version, at, who, why from aliases where name = ? and alias = ?"
        rows = self._file.execute(f"{asked} order by number", (name, alias))
        return [AliasMove(*row) for row in rows.fetchall()]

    def aliases(self, name: str) -> dict[str, int]:
        """What each alias of a name means now."""
        asked = "select alias, version from aliases where name = ? order by number"
        return dict(self._file.execute(asked, (name,)).fetchall())

    def approve(self, version: Version, by: str, why: str) -> None:
        """Somebody vouches for a version; twice is once."""
        with self.whole():
            told = (version.name, version.version, by, now(), why)
            self._file.execute("insert or replace into approvals values (?, ?, ?, ?, ?)", told)
            self._log("approve", version.text, by, {"digest": version.digest, "why": why})

    def approvals(self, version: Version) -> tuple[str, ...]:
        """Who vouches for it."""
        asked = "select who from approvals where name = ? and version = ? order by at"
        return tuple(row[0] for row in self._file.execute(asked, (version.name, version.version)))

    def evaluated(self, version: Version, report: Mapping[str, Any], by: str) -> None:
        """Keep what was measured of a model."""
        with self.whole():
            text = json.dumps(report, sort_keys=True)
            told = (version.digest, text, now())
            self._file.execute("insert into evaluations values (null, ?, ?, ?)", told)
            self._log("evaluate", version.text, by, {"digest": version.digest, "report": report})

    def evaluation(self, digest: str) -> dict[str, Any] | None:
        """What was measured of it last."""
        asked = "select report from evaluations where digest = ? order by number desc limit 1"
        row = self._file.execute(asked, (digest,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def refused(self, what: str, version: Version, by: str, rules: Mapping[str, str]) -> None:
        """Somebody asked for what a rule refuses: that is kept as well."""
        with self.whole():
            self._log(f"refused {what}", version.text, by, {"rules": dict(rules)})

    def log(self) -> list[str]:
        """Every line, the oldest first."""
        return [row[0] for row in self._file.execute("select line from log order by number").fetchall()]

    def newest(self) -> str:
        """The digest of the newest line."""
        row = self._file.execute("select digest from log order by number desc limit 1").fetchone()
        return str(row[0]) if row else BEGIN

    def check_log(self) -> None:
        """Raise AlteredError, with its number, for the first line that was changed, left out or put in."""
        newest, broken = check_chain(self.log())
        if broken is not None:
            raise AlteredError(
                f"line {broken.number} of the log: {broken.why}", hint="restore it from a copy"
            )
        row = self._file.execute("select seal from log order by number desc limit 1").fetchone()
        if newest != self.newest() or (row is not None and row[0] != sealed(self._key, LOG, newest)):
            raise AlteredError("the log was written anew by somebody else", hint="restore it from a copy")

    def check(self) -> None:
        """Raise AlteredError where the log was changed, or where a table says other than what it tells."""
        self.check_log()
        told: dict[str, list[tuple[str, ...]]] = {"push": [], "move": [], "approve": [], "evaluate": []}
        for said in map(json.loads, self.log()):
            more = {
                "push": (said.get("digest"), said["by"]),
                "move": (said.get("alias"), said["by"]),
                "approve": (said["by"],),
                "evaluate": (said.get("digest"), json.dumps(said.get("report"), sort_keys=True)),
            }
            if said["what"] in told:
                on = () if said["what"] == "evaluate" else (said["on"],)  # of bytes, whatever their name
                told[said["what"]].append((*on, *more[said["what"]]))
        here = {
            "push": "select name || ':' || version, digest, pushed_by from versions",
            "move": "select name || ':' || version, alias, who from aliases order by number",
            "approve": "select name || ':' || version, who from approvals",
            "evaluate": "select digest, report from evaluations order by number",
        }
        for what, asked in here.items():
            found, wanted = self._file.execute(asked).fetchall(), told[what]
            ordered = what in ("move", "evaluate")  # the last one counts; of others there is one each
            if found != wanted if ordered else set(found) != set(wanted):
                raise AlteredError(
                    f"a table holds another `{what}` than the log", hint="restore the registry from a copy"
                )

    def _log(self, what: str, on: str, by: str, more: Mapping[str, Any]) -> None:
        line, digest = chained(self.newest(), {"at": now(), "what": what, "on": on, "by": by, **more})
        seal = sealed(self._key, LOG, digest)
        self._file.execute("insert into log values (null, ?, ?, ?)", (line, digest, seal))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is read and written inside is of one moment, and all of it is written, or nothing."""
        if self._file.in_transaction:  # part of a larger whole
            yield
            return
        self._file.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._file.execute("rollback")
            raise
        self._file.execute("commit")


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
