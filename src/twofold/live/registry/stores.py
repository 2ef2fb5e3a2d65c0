"""Where the registry's rows are kept: what a store must do, and which one an address names.

A store adds rows and reads them back in the order in which they were added; it changes none. What the rows
mean is `tables.py`'s, so that a store is small, and one kit of tests holds for all.
"""

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from twofold.core.errors import FileError, InputError, ValueRefusedError
from twofold.live.processes import private_opener

Row = tuple[str | int, ...]
COLUMNS: dict[str, tuple[str, ...]] = {
    "versions": ("name", "version", "digest", "seal", "pushed_at", "pushed_by"),
    "aliases": ("name", "alias", "version", "at", "who", "why"),
    "approvals": ("name", "version", "who", "at", "why"),
    "evaluations": ("digest", "report", "at"),
    "log": ("line", "digest", "seal"),
}
ADDRESS = "tables.url"  # in the registry's folder, where its tables are not
MLFLOW = "mlflow+"  # before an address that MLflow understands
POSTGRES = ("postgresql://", "postgres://")
SECRET = re.compile("pass(?!file)|pwd|secret|token|scram", re.IGNORECASE)  # in the name of an option


class TablesError(InputError):
    """Tables that cannot be reached, or that refuse what they are told."""

    code = "E-tables"


class Store(Protocol):
    """Rows of `COLUMNS`. Raises TablesError for what it cannot do."""

    def whole(self) -> AbstractContextManager[None]:
        """What is added inside is there whole or not at all, and nobody else adds meanwhile."""

    def rows(self, table: str) -> list[Row]:
        """All rows, the oldest first; versions by name and number."""

    def newest(self, table: str) -> Row | None:
        """The row that was added last."""

    def add(self, table: str, row: Row) -> None:
        """Only inside of `whole`."""

    def close(self) -> None:
        """Let go of what is held open."""


def open_store(folder: Path, url: str = "") -> Store:
    """The store of a registry: SQLite in its folder, or at `url`, or at the address that its folder keeps.

    Raises ValueRefusedError for an address of no kind that is known or with a password in it, FileError for
    another than the folder keeps.
    """
    from twofold.live.registry import sql_stores

    kept = folder / ADDRESS
    told = kept.read_text("utf-8").strip() if kept.exists() else ""
    for each in filter(None, (told, url)):
        check_address(each)
    has_file = (folder / sql_stores.FILE).exists()
    if url and url != told and (told or has_file):
        where = told or sql_stores.FILE
        raise FileError(f"the registry's tables are in `{where}`", hint="leave `--tables` out")
    address = told or url
    if not address:
        return sql_stores.sqlite(folder)
    if address.startswith(POSTGRES):
        return sql_stores.postgres(address)
    from twofold.live.registry.mlflow_store import MlflowStore

    return MlflowStore(address.removeprefix(MLFLOW), folder)


def check_address(text: str) -> None:
    """Raise ValueRefusedError for what is no address of tables, or holds a password: it ends in a file, in
    errors and on screens. What it is refused for is not shown.

    >>> check_address("postgresql://ann@db.example.com:5432/tables?sslmode=require")
    >>> check_address("mlflow+sqlite:///models.db")
    """
    address = text.removeprefix(MLFLOW)
    scheme, _, rest = address.partition("://")
    if not text.startswith((MLFLOW, *POSTGRES)):
        known = scheme if rest and re.fullmatch("[a-zA-Z0-9+.-]+", scheme) else ""
        what = f"`{known}://…` is" if known else "what stands there is"
        raise ValueRefusedError(
            f"{what} no address of tables", hint=f"write {POSTGRES[0]}… or {MLFLOW}sqlite:///…"
        )
    authority, names = rest.partition("/")[0], parse_qsl(address.partition("?")[2], keep_blank_values=True)
    is_login = "@" in authority and scheme in ("http", "https")
    # Of those who read it, some let a password hold what ends a host for others.
    if is_login or re.match("[^/@?]*:[^@]*@", rest) or any(SECRET.search(name) for name, _ in names):
        hint = "leave it out: PGPASSWORD or ~/.pgpass holds it, MLFLOW_TRACKING_PASSWORD that of a server"
        raise ValueRefusedError(
            "the address of the tables holds a password", hint=f"{hint}; write `%40` for an `@` elsewhere"
        )
    try:
        urlsplit(address)
        hosts = re.split("[/?]", rest)[0].rpartition("@")[2].split(",")
        ports = [re.sub(r"^\[.*\]|^[^:]*", "", each) for each in hosts]
        is_read = all(re.fullmatch(r"|:\d*", each) for each in ports)
    except ValueError:
        is_read = False
    if not is_read:
        raise ValueRefusedError(
            "the address of the tables cannot be read", hint=f"write {POSTGRES[0]}USER@HOST:PORT/DATABASE"
        )


def keep_address(folder: Path, url: str) -> None:
    """From now on the registry's tables are there."""
    path = folder / ADDRESS
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", opener=private_opener) as file:
        file.write(url + "\n")
    partial.replace(path)


def tables_exist(folder: Path) -> bool:
    """Whether a registry's tables were made before; a file without a byte holds none, and no address."""
    from twofold.live.registry import sql_stores

    files = (folder / name for name in (sql_stores.FILE, ADDRESS))
    return any(each.exists() and each.stat().st_size for each in files)


def same(rows: Iterable[Row], others: Iterable[Row], *, ordered: bool) -> bool:
    """Whether rows are the same, in the same order where that counts."""
    return list(rows) == list(others) if ordered else set(rows) == set(others)
