"""The fitted constants: one CSV, one row per constant and scope, each with its range and where it came from.

A scope such as `family=hopper;format=bf16` says where a row holds; an empty one holds everywhere. The
narrowest scope that fits a question answers it. Fits own rows by `fitted_by` and rewrite only their own.
"""

import csv
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Self

from twofold.core import errors
from twofold.core.estimate import Estimate, Source

Scope = tuple[tuple[str, str], ...]  # sorted pairs
COLUMNS = ("name", "scope", "value", "low", "high", "unit", "source", "rows", "fitted_by", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRow(Estimate):
    """One constant in one scope: its value, its 80 % range, and how many measurements it rests on."""

    name: str
    scope: str
    rows: int
    fitted_by: str  # kernels training inference power none
    note: str = ""

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise errors.ConstantsError(f"constant '{self.name}' ({self.scope}) lies outside its own range")

    @property
    def plain(self) -> Estimate:
        """The number with its range, unit and source alone."""
        return Estimate(self.value, self.low, self.high, self.unit, self.source)

    @property
    def pairs(self) -> Scope:
        """The scope as sorted key-value pairs."""
        return read_scope(self.scope)


@dataclass(frozen=True, slots=True)
class Constants:
    """A version of the table. Fields are data; ask with `get` and `estimate`."""

    version: int
    rows: tuple[ConstantRow, ...]
    by_name: Mapping[str, tuple[tuple[Scope, ConstantRow], ...]]
    # HOT: ten look-ups a predicted row; what was asked before is remembered, for as many scopes as there are.
    _asked: dict[tuple[str, Scope], ConstantRow] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, version: int, rows: Iterable[ConstantRow]) -> Self:
        """The table of `rows`; a name that has two rows with one scope is an error."""
        rows = tuple(rows)
        index: dict[str, dict[Scope, ConstantRow]] = {}
        for row in rows:
            same_name, pairs = index.setdefault(row.name, {}), row.pairs
            if pairs in same_name:
                raise errors.ConstantsError(f"constant '{row.name}' has two rows with scope '{row.scope}'")
            same_name[pairs] = row
        return cls(version, rows, {name: tuple(found.items()) for name, found in index.items()})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the CSV: a first line `# version N`, a header, rows."""
        first, _, table = text.partition("\n")
        version = first.removeprefix("# version ")
        if not version.isdigit():
            raise errors.ConstantsError("the first line of the constants is not '# version N'")
        return cls.of(int(version), map(_parse_row, csv.DictReader(StringIO(table))))

    @property
    def text(self) -> str:
        """The CSV: sorted, six digits, the same bytes for the same rows."""
        out = StringIO()
        out.write(f"# version {self.version}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in sorted(self.rows, key=lambda row: (row.name, row.pairs)):
            numbers = [f"{number:.6g}" for number in (row.value, row.low, row.high)]
            origin = row.unit, row.source.value, row.rows, row.fitted_by, row.note
            writer.writerow([row.name, row.scope, *numbers, *origin])
        return out.getvalue()

    @property
    def digest(self) -> str:
        """What tells one table from another."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def with_rows(self, rows: Iterable[ConstantRow]) -> Self:
        """The table with `rows` in place of those of the same name and scope, or added."""
        by_key = {(row.name, row.pairs): row for row in (*self.rows, *rows)}
        return self.of(self.version, by_key.values())

    def get(self, name: str, **scope: str) -> float:
        """The value of `name` where `scope` holds, by its narrowest row."""
        return self.row(name, **scope).value

    def estimate(self, name: str, **scope: str) -> Estimate:
        """As `get`, with range, unit and source."""
        return self.row(name, **scope).plain

    def has(self, name: str, **scope: str) -> bool:
        """Whether any row of `name` fits `scope`."""
        return any(set(pairs) <= set(scope.items()) for pairs, _ in self.by_name.get(name, ()))

    def row(self, name: str, **scope: str) -> ConstantRow:
        """As `get`, with all that the table says of it."""
        question = name, tuple(sorted(scope.items()))
        if question in self._asked:
            return self._asked[question]
        asked = set(scope.items())
        fitting = [(len(pairs), row) for pairs, row in self.by_name.get(name, ()) if set(pairs) <= asked]
        if not fitting:
            raise errors.ConstantsError(f"no constant '{name}' for '{format_scope(scope)}'")
        narrowest = max(size for size, _ in fitting)
        best = [row for size, row in fitting if size == narrowest]
        if len(best) > 1:
            scopes = " and ".join(f"'{row.scope}'" for row in best)
            said = f"constant '{name}' is ambiguous for '{format_scope(scope)}'"
            raise errors.ConstantsError(f"{said}: {scopes} fit equally well")
        self._asked[question] = best[0]
        return best[0]


def read_scope(text: str) -> Scope:
    """`family=hopper;format=bf16` as sorted pairs."""
    parts = (part.partition("=") for part in text.split(";") if part)
    return tuple(sorted((key, value) for key, _, value in parts))


def format_scope(scope: Mapping[str, str]) -> str:
    """The text that `read_scope` reads: sorted pairs.

    >>> format_scope({"format": "bf16", "family": "hopper"})
    'family=hopper;format=bf16'
    """
    return ";".join(f"{key}={value}" for key, value in sorted(scope.items()))


@cache
def load_constants() -> Constants:
    """The table that ships with the package."""
    return Constants.parse(constants_path().read_text(encoding="utf-8"))


def constants_path() -> Path:
    """Where the shipped table lies."""
    return Path(str(files("twofold.perf") / "constants.csv"))


def _parse_row(cells: dict[str, str]) -> ConstantRow:
    try:
        value, low, high = (float(cells[name]) for name in ("value", "low", "high"))
        words = {name: cells[name] for name in ("name", "scope", "unit", "fitted_by", "note")}
        source = Source(cells["source"])
        return ConstantRow(value, low, high, source=source, rows=int(cells["rows"]), **words)
    except (KeyError, ValueError, TypeError) as error:
        raise errors.ConstantsError(f"constants row '{cells.get('name')}' cannot be read: {error}") from error
