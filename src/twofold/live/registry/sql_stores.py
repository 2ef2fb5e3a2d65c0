"""Rows in SQLite or PostgreSQL: the same statements, but for how a number and a parameter are written.

Two writers wait for each other: SQLite locks its file, PostgreSQL the log.
"""

import os
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.extras import require_extra
from twofold.live.processes import private_opener
from twofold.live.registry.stores import COLUMNS, Row, TablesError
from twofold.live.server_urls import shown_url

FILE = "registry.sqlite"
WAIT_S = 10  # for another who writes, and for a server …
RETRY_S = 0.02  # … between two looks
ORDER = {"versions": "name, version", "approvals": "at, who"}  # of the others: their number
TABLES = (
    "create table if not exists versions (name text not null, version integer not null, digest text not null,"
    " seal text not null, pushed_at text not null, pushed_by text not null,"
    " primary key (name, version), unique (name, digest))",
    "create table if not exists aliases (number {number}, name text not null, alias text not null,"
    " version integer not null, at text not null, who text not null, why text not null)",
    "create table if not exists approvals (name text not null, version integer not null, who text not null,"
    " at text not null, why text not null, primary key (name, version, who))",
    "create table if not exists evaluations (number {number}, digest text not null, report text not null,"
    " at text not null)",
    "create table if not exists log (number {number}, line text not null, digest text not null,"
    " seal text not null)",
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two write differently."""

    number: str  # the type of a key that counts up
    mark: str  # where a parameter goes
    begin: tuple[str, ...]  # a transaction that writes


SQLITE = Dialect("integer primary key autoincrement", "?", ("begin immediate",))
POSTGRES = Dialect(
    "bigint generated always as identity primary key", "%s", ("begin", "lock table log in exclusive mode")
)


class SqlStore:
    """An open connection that commits by itself outside of `whole`. Mutable: it is one."""

    def __init__(self, connection: Any, dialect: Dialect, failed: type[Exception], *first: str) -> None:
        self._connection, self._dialect, self._failed = connection, dialect, failed
        self._finish = weakref.finalize(self, connection.close)
        for statement in (*first, *TABLES):
            self._ask(statement.format(number=dialect.number))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is added inside, or nothing."""
        try:
            for statement in self._dialect.begin:
                self._ask(statement)
            yield
            self._ask("commit")
        except BaseException:
            self._connection.rollback()
            raise

    def rows(self, table: str) -> list[Row]:
        """All rows, the oldest first; versions by name and number."""
        columns = ", ".join(COLUMNS[table])
        return self._ask(f"select {columns} from {table} order by {ORDER.get(table, 'number')}")

    def newest(self, table: str) -> Row | None:
        """The row that was added last."""
        columns, order = ", ".join(COLUMNS[table]), ORDER.get(table, "number")
        last_first = ", ".join(f"{each} desc" for each in order.split(", "))
        found = self._ask(f"select {columns} from {table} order by {last_first} limit 1")
        return found[0] if found else None

    def add(self, table: str, row: Row) -> None:
        """One row; a number below a name, or a name for a digest, that is taken is refused."""
        columns, marks = ", ".join(COLUMNS[table]), ", ".join(self._dialect.mark for _ in row)
        self._ask(f"insert into {table} ({columns}) values ({marks})", row)

    def close(self) -> None:
        """Let go of the connection."""
        self._finish()

    def _ask(self, statement: str, told: Row = ()) -> list[Row]:
        try:
            cursor = self._connection.execute(statement, told)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        except self._failed as error:
            raise _refused(error) from error


def _refused(error: Exception) -> TablesError:
    hint = "see whether they can be reached, and whether somebody else writes for long"
    if any(word in str(error) for word in ("not a database", "malformed", "unable to open")):
        hint = f"restore `{FILE}` of the registry's folder from a copy"
    return TablesError(f"the registry's tables: {error}".strip(), hint=hint)


def sqlite(folder: Path) -> SqlStore:
    """A file in the registry's folder that only its owner reads."""
    path = folder / FILE
    if not path.exists():  # to close a file takes from a process all locks that it has on it elsewhere
        os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))
    if not os.access(folder, os.W_OK):
        return _read_only(path)
    deadline_s = time.monotonic() + WAIT_S
    while True:
        # One thread uses it; what nobody closed is closed by whichever thread finds that it is garbage.
        try:
            file = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:  # a folder, or somebody else's
            raise _refused(error) from error
        try:
            return SqlStore(file, SQLITE, sqlite3.Error, "pragma journal_mode=wal", "pragma synchronous=full")
        except TablesError as error:  # SQLite does not wait by itself for who else begins a file's log
            if "locked" not in error.message or time.monotonic() > deadline_s:
                raise
            file.close()
            time.sleep(RETRY_S)


def _read_only(path: Path) -> SqlStore:
    """The same where nothing can be written, so that nobody else writes. Raises TablesError where what was
    written last is not in the file yet."""
    beside = path.with_name(f"{path.name}-wal")
    if beside.exists() and beside.stat().st_size:
        hint = "open it once where it can be written, or copy it to such a place"
        raise TablesError(f"the registry cannot be written, and `{beside.name}` holds rows of it", hint=hint)
    address = f"{path.resolve().as_uri()}?immutable=1"
    file = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    return SqlStore(file, replace(SQLITE, begin=("begin",)), sqlite3.Error)


def postgres(url: str) -> SqlStore:
    """A database of a server. Raises MissingExtraError without `postgres`, TablesError where none answers."""
    require_extra("postgres")
    import psycopg

    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=WAIT_S,
            options=_with_options(url, f"-c lock_timeout={WAIT_S}s"),
        )
    except psycopg.Error as error:
        what = str(error).strip().splitlines()[-1]
        hint = f"see {shown_url(url)}"
        raise TablesError(f"the registry's tables are not reached: {what}", hint=hint) from error
    return SqlStore(connection, POSTGRES, psycopg.Error)


def _with_options(url: str, more: str) -> str:
    """The options of an address, such as its search path, and more: a keyword would take their place."""
    from psycopg.conninfo import conninfo_to_dict

    return f"{conninfo_to_dict(url).get('options') or ''} {more}".strip()
