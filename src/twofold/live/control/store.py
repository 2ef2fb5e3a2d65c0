"""What a service is to be and what happened to it, in SQLite: survives whoever is killed while writing.

One file per state folder, in WAL mode: the controller writes, `up` says what it wants, `status` reads. Times
before which something is not started are of the machine's monotonic clock, which all processes share until it
is booted anew; a reader takes one that lies too far ahead for one of an earlier boot.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.live.disk import refuses
from twofold.live.processes import make_private, private_opener

FILE = "controller/service.sqlite"
HAPPENED_KEPT = 2000
OFFERED = "offered"  # the release that is to be tried, or is
TRIED = "offered to"  # the one that a gateway was last told of, and which gateway
CALLED_OFF = "called off"
BRING_BACK = "bring back"  # what all replicas are to run, as soon as the gate has ended what it tries
BUSY_S = 5.0
TABLES = """
create table if not exists kept (key text primary key, value text not null);
create table if not exists versions (version text primary key, engine text not null);
create table if not exists replicas (
  replica_id text primary key, version text not null, pool text not null, zone text not null,
  model text not null, leaving integer not null, by_gate integer not null, failed_count integer not null,
  not_before_s real not null, has_served integer not null);
create table if not exists happened (
  number integer primary key autoincrement, at_s real not null, role text not null, what text not null);
"""


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica that is wanted."""

    replica_id: str
    version: str
    pool: str = ""
    zone: str = ""
    model: str = ""
    leaving: bool = False
    by_gate: bool = False  # the gate asked for it, `up` did not
    failed_count: int = 0  # in a row
    not_before_s: float = 0.0
    has_served: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that happened, in words; `at_s` is Unix time."""

    number: int
    at_s: float
    role: str
    what: str


class Store:
    """The open file. Mutable: it is a connection. Raises sqlite3.Error, OSError where there is no reading it.

    On a disk that takes nothing it is read, as far as another process that has it open left its index there.
    """

    def __init__(self, state: Path) -> None:
        self._path = path = state / FILE
        try:
            make_private(state)
            make_private(path.parent)
            if (
                not path.exists()
            ):  # to close a file takes from a process all locks that it has on it elsewhere
                os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))
        except OSError as error:
            if not refuses(error) or not path.exists():
                raise
        self._file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        self._opened = path.stat()
        try:
            self._file.execute("pragma journal_mode=wal")
            self._file.execute("pragma synchronous=normal")
            self._file.executescript(TABLES)
        except sqlite3.OperationalError:
            self._file.execute("select count(*) from replicas")

    def is_replaced(self) -> bool:
        """Whether another file is in its place, as when another disk was mounted there."""
        try:
            return not os.path.samestat(self._opened, self._path.stat())
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is written inside, or nothing; what is inside of another is part of it."""
        if self._file.in_transaction:
            yield
            return
        self._file.execute("begin immediate")
        try:
            yield
            self._file.execute("commit")
        except BaseException:
            self._file.rollback()  # of what a full disk has not taken back by itself
            raise

    def changes(self) -> int:
        """A number that is another one when another process has written."""
        return int(self._file.execute("pragma data_version").fetchone()[0])

    def keep(self, key: str, value: str) -> None:
        """Keep a text under a name."""
        self._file.execute("insert or replace into kept values (?, ?)", (key, value))

    def kept(self, key: str) -> str:
        """What was kept under this name; "" where nothing was."""
        row = self._file.execute("select value from kept where key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def offer(self, version: str) -> None:
        """A release is to be tried, also one that was decided or called off before; `TRIED` and `CALLED_OFF`
        know it no more."""
        with self.whole():
            self.keep(OFFERED, version)
            self.keep(TRIED, "")
            self.keep(CALLED_OFF, " ".join(each for each in self.called_off() if each != version))

    def called_off(self) -> list[str]:
        """Releases whose trials people ended: however those are decided, they are not to run."""
        return self.kept(CALLED_OFF).split()

    def call_off(self) -> None:
        """Whatever is offered, or was offered last, is not to run."""
        with self.whole():
            known = [self.kept(OFFERED), *self.kept(TRIED).split()[:1], *self.called_off()]
            self.keep(CALLED_OFF, " ".join(sorted({*filter(None, known)})))
            self.keep(OFFERED, "")

    def no_longer_offered(self, version: str) -> None:
        """Its trial is decided or called off; another one that is offered by now stays so."""
        self._file.execute("delete from kept where key = ? and value = ?", (OFFERED, version))

    def want(self, service: str, version: str, engine: str, replicas: list[ReplicaRow]) -> None:
        """From now on the service is this one; replicas that the gate asked for stay as they are."""
        with self.whole():
            self.keep("service", service)
            self.keep(BRING_BACK, "")
            self._file.execute("insert or replace into versions values (?, ?)", (version, engine))
            old = {each.replica_id: each for each in self.replicas() if not each.by_gate and not each.model}
            self._file.execute("delete from replicas where by_gate = 0 and model = ''")
            for each in replicas:
                before = old.pop(each.replica_id, None)
                self.put(before if before is not None and _is_same(before, each) else each)
            for gone in old.values():
                self.put(_on_leave(gone))

    def want_smaller(self, engines: Mapping[str, str], replicas: Sequence[ReplicaRow]) -> None:
        """Replicas of smaller models are to be these, of such engines by version; the others stay."""
        with self.whole():
            for version, engine in engines.items():
                self.add_version(version, engine)
            there = {each.replica_id: each for each in self.replicas() if each.model}
            for each in replicas:
                before = there.pop(each.replica_id, None)
                if before is None or before.leaving or not _is_same(before, each):
                    self.put(each)
            for gone in there.values():
                self.put(_on_leave(gone))

    def add_version(self, version: str, engine: str) -> None:
        """What a replica of a version is told, as JSON."""
        self._file.execute("insert or replace into versions values (?, ?)", (version, engine))

    def version(self, version: str) -> str:
        """The engine of a version, as JSON; "" for one that is unknown."""
        row = self._file.execute("select engine from versions where version = ?", (version,)).fetchone()
        return str(row[0]) if row else ""

    def versions(self) -> list[str]:
        """All that are known, the newest first."""
        return [row[0] for row in self._file.execute("select version from versions order by rowid desc")]

    def replicas(self) -> list[ReplicaRow]:
        """All that are wanted or leave, by id."""
        rows = self._file.execute("select * from replicas order by replica_id").fetchall()
        return [_row_of(row) for row in rows]

    def put(self, row: ReplicaRow) -> None:
        """Want this replica, or know it otherwise."""
        self._file.execute(
            "insert or replace into replicas values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(row.replica_id, row.version, row.pool, row.zone, row.model),
                *(row.leaving, row.by_gate, row.failed_count, row.not_before_s, row.has_served),
            ),
        )

    def forget(self, replica_id: str) -> None:
        """Nobody wants it any more."""
        self._file.execute("delete from replicas where replica_id = ?", (replica_id,))

    def note(self, role: str, what: str, at_s: float | None = None) -> int:
        """Something happened, now or at that Unix time; its number, to say later how it went on."""
        told = (time.time() if at_s is None else at_s, role, what)
        number = self._file.execute("insert into happened values (null, ?, ?, ?)", told).lastrowid or 0
        self._file.execute("delete from happened where number <= ?", (number - HAPPENED_KEPT,))
        return number

    def add_to_note(self, number: int, more: str) -> None:
        """How something that was noted went on."""
        self._file.execute("update happened set what = what || ? where number = ?", (more, number))

    def happened(self, count: int) -> list[Happened]:
        """The newest, oldest of them first."""
        rows = self._file.execute("select * from happened order by number desc limit ?", (count,))
        return [Happened(*row) for row in rows.fetchall()[::-1]]


def _is_same(one: ReplicaRow, other: ReplicaRow) -> bool:
    """Whether they are the same replica of the same thing."""
    return (one.version, one.pool, one.model) == (other.version, other.pool, other.model)


def _on_leave(row: ReplicaRow) -> ReplicaRow:
    return ReplicaRow(row.replica_id, row.version, row.pool, row.zone, row.model, leaving=True)


def _row_of(row: tuple[Any, ...]) -> ReplicaRow:
    name, version, pool, zone, model, leaving, by_gate, failed_count, not_before_s, has_served = row
    told = bool(leaving), bool(by_gate), failed_count, not_before_s, bool(has_served)
    return ReplicaRow(name, version, pool, zone, model, *told)
