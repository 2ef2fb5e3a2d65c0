"""Rows in MLflow's model registry, so that its own client, page and tools see the same versions and aliases.

A version of ours is a version of a registered model, an alias is one, approvals and evaluations are tags.
MLflow knows no transaction over several of these, so a commit is one entry of a registered model that is
the journal: it holds the lines of the log and all rows that belong to them, and is there whole or not at
all. What it says is then carried over to the models; where that was cut, whoever comes next does it. What
somebody else changes in MLflow differs from the log, which `tables.py` finds. Writers of one registry
wait for each other at a lock in its folder. Source: MLflow 3, `mlflow.client`.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twofold.core.extras import require_extra
from twofold.live.registry.stores import COLUMNS, Row, TablesError

JOURNAL = "twofold-journal"  # the registered model of which each version is a commit
LINES, ROWS, DONE = "twofold.lines", "twofold.rows", "twofold.carried-over"
VERSION, APPROVAL, EVALUATION = "twofold.version", "twofold.approval", "twofold.evaluation"
SOURCE = "oci:/"  # before a digest: a server takes no source without a path
LOCK = ".mlflow.lock"
PAGE = 1000
RESERVED = r"latest|v\d+"  # aliases that MLflow refuses
MOVED = ("", "", "moved in MLflow")  # when, who, why
SAID_MAX = 300  # characters of what went wrong: a server may answer with a page
LOGIN = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, say who asks"
REACHED = "see whether its registry is reached; what it has taken is finished by whoever comes next"


@contextmanager
def _refusing() -> Iterator[None]:
    """What MLflow's client raises is an error of the tables: an answer of others and a missing driver too."""
    from google.protobuf.json_format import ParseError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, ParseError, ValueError, ImportError) as error:
        status = error.get_http_status_code() if isinstance(error, MlflowException) else 0
        # Of questions that nobody answered, it is deep inside what is said.
        cause = re.search(r"\(Caused by \w+\(['\"](.*)['\"]\)", str(error))
        what = cause[1] if cause else str(error).strip().partition("\n")[0]
        if "Connection aborted" in what:  # a pair of Python's, of which the second says how
            what = "the connection was cut before it answered"
        hint = LOGIN if status in (401, 403) else REACHED
        raise TablesError(f"MLflow refuses: {what[:SAID_MAX]}", hint=hint) from error


class _Client:
    """MLflow's, whose failures are errors of the tables."""

    def __init__(self, uri: str) -> None:
        with _refusing():
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        held = getattr(self._client, name)

        def asked(*words: Any, **more: Any) -> Any:
            with _refusing():
                return held(*words, **more)

        return asked


def _read(told: dict[str, str], name: str) -> list[Any]:
    """What one of our tags says: a row, or several."""
    try:
        found = json.loads(told[name])
    except (KeyError, ValueError) as error:
        raise _changed(name) from error
    if not isinstance(found, list):
        raise _changed(name)
    return found


def _row(table: str, told: Any) -> Row:
    kinds = [int if column == "version" else str for column in COLUMNS[table]]
    if not isinstance(told, list) or [type(each) for each in told] != kinds:
        raise _changed(table)
    return tuple(told)


def _changed(what: str) -> TablesError:
    said = f"what MLflow keeps as `{what}` is not as it was written"
    return TablesError(said, hint="somebody changed tags there; restore its database from a copy")


class MlflowStore:
    """A client, and what is added but not yet committed. Mutable."""

    def __init__(self, uri: str, folder: Path) -> None:
        """Raises MissingExtraError without `mlflow`, TablesError for an address that it cannot open."""
        require_extra("mlflow")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers that it is used
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        # A question whose answer was lost may have been done: asked twice, it makes two versions of one.
        os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
        self._lock = folder / LOCK
        self._pending: list[tuple[str, Row]] = []
        self._client = _Client(uri)
        self._make(JOURNAL)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is added inside, or nothing."""
        with self._lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._finish_what_was_cut()
            try:
                yield
                if self._pending:
                    self._commit()
            finally:
                self._pending = []

    def rows(self, table: str) -> list[Row]:
        """All rows, the oldest first; versions by name and number."""
        return [*_READ[table](self), *(row for name, row in self._pending if name == table)]

    def newest(self, table: str) -> Row | None:
        """The row that was added last."""
        found = self.rows(table)
        return found[-1] if found else None

    def add(self, table: str, row: Row) -> None:
        """Kept until the end of `whole`. Refused before that is what MLflow would not carry over."""
        if table == "versions":
            self._check_number(str(row[0]), int(row[1]))
        if table == "aliases" and re.fullmatch(RESERVED, str(row[1])):
            raise TablesError(f"MLflow keeps the alias `{row[1]}` for itself", hint="name it otherwise")
        self._pending.append((table, row))

    def close(self) -> None:
        """There is nothing to let go of."""

    def _commit(self) -> None:
        lines = [row for table, row in self._pending if table == "log"]
        rows = [[table, *row] for table, row in self._pending if table != "log"]
        tags = {LINES: json.dumps(lines), ROWS: json.dumps(rows)}
        entry = self._client.create_model_version(
            JOURNAL, f"{SOURCE}{JOURNAL}", tags=tags, await_creation_for=0
        )
        self._pending = []
        self._carry_over(entry)

    def _finish_what_was_cut(self) -> None:
        entries = self._entries()
        if entries and DONE not in entries[-1].tags:
            self._carry_over(entries[-1])

    def _carry_over(self, entry: Any) -> None:
        """What a commit says, told to the models; twice is once."""
        for index, (table, *row) in enumerate(self._rows_in(entry)):
            _TELL[table](self, row, f"{int(entry.version):08}.{index:04}")
        self._client.set_model_version_tag(JOURNAL, str(entry.version), DONE, "yes")

    def _tell_version(self, row: list[Any], _place: str) -> None:
        name, version, digest = row[:3]
        if any(told[:2] == (name, version) for told in self._versions()):
            return
        self._make(name)
        self._check_number(name, version)
        tags = {VERSION: json.dumps(row)}
        self._client.create_model_version(name, f"{SOURCE}{digest}", tags=tags, await_creation_for=0)

    def _check_number(self, name: str, version: int) -> None:
        """MLflow counts by itself; it must come to the same."""
        kept = [int(each.version) for each in self._all(f"name='{name}'")]
        added = [int(row[1]) for table, row in self._pending if table == "versions" and row[0] == name]
        newest = max([*kept, *added], default=0)
        if newest + 1 != version or name == JOURNAL:
            what = f"MLflow has `{name}` otherwise than it was pushed here"
            raise TablesError(what, hint="push under another name")

    def _tell_alias(self, row: list[Any], _place: str) -> None:
        name, alias, version = row[:3]
        if version:
            self._client.set_registered_model_alias(name, alias, str(version))
        else:
            self._client.delete_registered_model_alias(name, alias)

    def _tell_approval(self, row: list[Any], place: str) -> None:
        self._client.set_model_version_tag(row[0], str(row[1]), f"{APPROVAL}.{place}", json.dumps(row))

    def _tell_evaluation(self, row: list[Any], place: str) -> None:
        for name, version, digest, *_ in self._versions():
            if digest == row[0]:
                self._client.set_model_version_tag(
                    str(name), str(version), f"{EVALUATION}.{place}", json.dumps(row)
                )
                return

    def _versions(self) -> list[Row]:
        told = [_row("versions", _read(each.tags, VERSION)) for each in self._ours()]
        return sorted(told, key=lambda row: row[:2])

    def _aliases(self) -> list[Row]:
        """Every move that the journal tells of, then what MLflow itself says otherwise."""
        moves = [row for row in self._told() if row[0] == "aliases"]
        now = {(name, alias): version for _, name, alias, version, *_ in moves}
        found: dict[tuple[str, str], int] = {}
        for name in sorted({str(row[0]) for row in self._versions()}):
            held = self._client.get_registered_model(name).aliases
            found |= {(name, alias): int(version) for alias, version in held.items()}
        other = [
            (*key, found.get(key, 0), *MOVED) for key in now | found if found.get(key, 0) != now.get(key, 0)
        ]
        return [*(tuple(row[1:]) for row in moves), *other]

    def _tagged(self, table: str, prefix: str) -> list[Row]:
        """Rows in tags of versions, in the order of their commits."""
        found = [
            (key, _row(table, _read(each.tags, key)))
            for each in self._ours()
            for key in each.tags
            if key.startswith(f"{prefix}.")
        ]
        return [row for _, row in sorted(found)]

    def _lines(self) -> list[Row]:
        return [_row("log", row) for entry in self._entries() for row in _read(entry.tags, LINES)]

    def _told(self) -> list[list[Any]]:
        return [row for entry in self._entries() for row in self._rows_in(entry)]

    def _rows_in(self, entry: Any) -> list[list[Any]]:
        """Those of a commit, each behind the name of its table."""
        told = _read(entry.tags, ROWS)
        if any(not isinstance(row, list) or not row or str(row[0]) not in _TELL for row in told):
            raise _changed(ROWS)
        return [[table, *_row(table, row)] for table, *row in told]

    def _entries(self) -> list[Any]:
        found = self._all(f"name='{JOURNAL}'")
        return sorted(found, key=lambda entry: int(entry.version))

    def _ours(self) -> list[Any]:
        return [each for each in self._all("") if each.name != JOURNAL and VERSION in each.tags]

    def _all(self, asked: str) -> list[Any]:
        found, token = [], None
        while True:
            page = self._client.search_model_versions(asked, max_results=PAGE, page_token=token)
            found += list(page)
            token = page.token
            if not token:
                return found

    def _make(self, name: str) -> None:
        if not self._client.search_registered_models(f"name='{name}'"):
            self._client.create_registered_model(name)


_READ: dict[str, Callable[[MlflowStore], list[Row]]] = {
    "versions": MlflowStore._versions,
    "aliases": MlflowStore._aliases,
    "approvals": lambda store: store._tagged("approvals", APPROVAL),
    "evaluations": lambda store: store._tagged("evaluations", EVALUATION),
    "log": MlflowStore._lines,
}
_TELL: dict[str, Callable[[MlflowStore, list[Any], str], None]] = {
    "versions": MlflowStore._tell_version,
    "aliases": MlflowStore._tell_alias,
    "approvals": MlflowStore._tell_approval,
    "evaluations": MlflowStore._tell_evaluation,
}
