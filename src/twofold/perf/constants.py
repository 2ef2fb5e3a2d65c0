"""The fitted constants: one CSV, one row per constant and scope, each with its range and where it came from.

A scope such as `family=hopper;format=bf16` says where a row holds; an empty one holds everywhere. The
narrowest scope that fits a question answers it. Fits own rows by `fitted_by` and rewrite only their own.
"""

import csv
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from io import StringIO
from pathlib import Path

from twofold.core import ConstantsError, Estimate, Source

Scope = tuple[tuple[str, str], ...]  # sorted pairs


@dataclass(frozen=True, slots=True)
class ConstantRow:
    """One constant in one scope. `low`-`high` is its 80 % range, `rows` how many measurements it rests on."""

    name: str
    scope: str
    value: float
    low: float
    high: float
    unit: str
    source: Source
    rows: int
    fitted_by: str  # kernels training inference power none
    note: str = ""

    @property
    def pairs(self) -> Scope:
        """The scope as sorted key-value pairs."""
        return read_scope(self.scope)


@dataclass(frozen=True, slots=True)
class Constants:
    """A version of the table. Fields are data; ask with `get` and `estimate`."""

    version: int
    rows: tuple[ConstantRow, ...]
    digest: str
    by_name: Mapping[str, tuple[tuple[Scope, ConstantRow], ...]]
    # HOT: ten look-ups a predicted row; what was asked before is remembered, for as many scopes as there are.
    _asked: dict[tuple[str, Scope], ConstantRow] = field(default_factory=dict, repr=False, compare=False)

    def get(self, name: str, **scope: str) -> float:
        """The value of `name` where `scope` holds, by its narrowest row."""
        return self._row(name, scope).value

    def estimate(self, name: str, **scope: str) -> Estimate:
        """As `get`, with range, unit and source."""
        row = self._row(name, scope)
        return Estimate(row.value, row.low, row.high, row.unit, row.source)

    def has(self, name: str, **scope: str) -> bool:
        """Whether any row of `name` fits `scope`."""
        return any(set(pairs) <= set(scope.items()) for pairs, _ in self.by_name.get(name, ()))

    def with_overrides(self, values: Mapping[tuple[str, str], float]) -> "Constants":
        """The same table with new values by (name, scope), whose rows must exist: what a fit tries out."""
        keys = {(row.name, row.scope) for row in self.rows}
        for name, scope in values:
            if (name, scope) not in keys:
                raise ConstantsError(f"no constant '{name}' with scope '{scope}' to override")
        return build_constants(
            self.version,
            (replace(row, value=values.get((row.name, row.scope), row.value)) for row in self.rows),
        )

    def _row(self, name: str, scope: Mapping[str, str]) -> ConstantRow:
        question = name, tuple(sorted(scope.items()))
        if question not in self._asked:
            self._asked[question] = self._narrowest(name, scope)
        return self._asked[question]

    def _narrowest(self, name: str, scope: Mapping[str, str]) -> ConstantRow:
        asked = set(scope.items())
        fitting = [(len(pairs), row) for pairs, row in self.by_name.get(name, ()) if set(pairs) <= asked]
        where = ";".join(f"{key}={value}" for key, value in sorted(scope.items()))
        if not fitting:
            raise ConstantsError(f"no constant '{name}' for '{where}'")
        narrowest = max(size for size, _ in fitting)
        best = [row for size, row in fitting if size == narrowest]
        if len(best) > 1:
            scopes = " and ".join(f"'{row.scope}'" for row in best)
            raise ConstantsError(f"constant '{name}' is ambiguous for '{where}': {scopes} fit equally well")
        return best[0]


def read_scope(text: str) -> Scope:
    """`family=hopper;format=bf16` as sorted pairs."""
    return tuple(
        sorted((key, value) for key, _, value in (part.partition("=") for part in text.split(";") if part))
    )


def format_scope(scope: Mapping[str, str]) -> str:
    """The text that `read_scope` reads: sorted pairs.

    >>> format_scope({"format": "bf16", "family": "hopper"})
    'family=hopper;format=bf16'
    """
    return ";".join(f"{key}={value}" for key, value in sorted(scope.items()))


def build_constants(version: int, rows: Iterable[ConstantRow]) -> Constants:
    """The table of `rows`; a name that has two rows with one scope is an error."""
    rows = tuple(rows)
    index: dict[str, dict[Scope, ConstantRow]] = {}
    for row in rows:
        same_name, pairs = index.setdefault(row.name, {}), row.pairs
        if pairs in same_name:
            raise ConstantsError(f"constant '{row.name}' has two rows with scope '{row.scope}'")
        same_name[pairs] = row
    digest = hashlib.sha256(format_constants(version, rows).encode()).hexdigest()
    return Constants(version, rows, digest, {name: tuple(found.items()) for name, found in index.items()})


@cache
def load_constants() -> Constants:
    """The table that ships with the package."""
    return parse_constants(constants_path().read_text(encoding="utf-8"))


def constants_path() -> Path:
    """Where the shipped table lies."""
    return Path(str(files("twofold.perf") / "constants.csv"))


def parse_constants(text: str) -> Constants:
    """Read the CSV: a first line `# version N`, a header, rows."""
    first, _, table = text.partition("\n")
    version = first.removeprefix("# version ")
    if not version.isdigit():
        raise ConstantsError("the first line of the constants is not '# version N'")
    return build_constants(int(version), map(_parse_row, csv.DictReader(StringIO(table))))


def _parse_row(cells: dict[str, str]) -> ConstantRow:
    try:
        row = ConstantRow(
            name=cells["name"],
            scope=cells["scope"],
            value=float(cells["value"]),
            low=float(cells["low"]),
            high=float(cells["high"]),
            unit=cells["unit"],
            source=Source(cells["source"]),
            rows=int(cells["rows"]),
            fitted_by=cells["fitted_by"],
            note=cells["note"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ConstantsError(f"constants row '{cells.get('name')}' cannot be read: {error}") from error
    if not row.low <= row.value <= row.high:
        raise ConstantsError(f"constant '{row.name}' ({row.scope}) lies outside its own range")
    return row


def format_constants(version: int, rows: Iterable[ConstantRow]) -> str:
    """The CSV text: sorted, six digits, the same bytes for the same rows."""
    out = StringIO()
    out.write(f"# version {version}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(ConstantRow)])
    for row in sorted(rows, key=lambda row: (row.name, row.pairs)):
        numbers = [f"{number:.6g}" for number in (row.value, row.low, row.high)]
        writer.writerow(
            [row.name, row.scope, *numbers, row.unit, row.source.value, row.rows, row.fitted_by, row.note]
        )
    return out.getvalue()


def with_rows(constants: Constants, rows: Iterable[ConstantRow]) -> Constants:
    """`constants` with `rows` in place of those of the same name and scope, or added."""
    by_key = {(row.name, row.pairs): row for row in (*constants.rows, *rows)}
    return build_constants(constants.version, by_key.values())
