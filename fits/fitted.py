"""What every fit hands over, and the table of constants of fits that did not see something."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from io import StringIO
from operator import attrgetter
from pathlib import Path

from twofold.core.errors import ConstantsError
from twofold.measure.blind import ALL, BlindRow, read_blind
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.known import Seen

DIGITS = 4


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rows that a fit owns, its constants where it did not see something, and what it has seen."""

    rows: list[ConstantRow]
    blind: tuple[BlindRow, ...] = ()
    seen: tuple[Seen, ...] = ()


def rounded(value: float) -> float:
    """Four significant digits: what another processor reproduces, and all that stands on them feels."""
    return float(f"{value:.{DIGITS}g}")


def replace_blind(
    half: str, rows: Iterable[BlindRow], owned: Callable[[str], bool], path: Path = ALL
) -> None:
    """Replace the rows of one half whose names are `owned`: fits and ranges each rewrite their own."""
    before = read_blind(path) if path.exists() else {}
    kept = [row for group in before.values() for row in group if row.half != half or not owned(row.name)]
    write_blind([*kept, *rows], path)


def write_blind(rows: Iterable[BlindRow], path: Path) -> None:
    """Write the whole table, sorted, four digits."""
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["half", "hidden", "name", "scope", "value", "low", "high"])
        for row in sorted(rows, key=attrgetter("half", "hidden", "name", "scope")):
            ends = row.estimate.value, row.estimate.low, row.estimate.high
            writer.writerow([row.half, row.hidden, row.name, row.scope, *(f"{end:.4g}" for end in ends)])
    read_blind.cache_clear()


def write_constants(path: Path, fitted_by: str, rows: Iterable[ConstantRow]) -> int:
    """Replace the rows that `fitted_by` owns; the version, which rises when a byte changes."""
    rows = tuple(rows)
    foreign = [row.name for row in rows if row.fitted_by != fitted_by]
    if foreign:
        raise ConstantsError(f"the fit '{fitted_by}' may not write rows of others: {foreign[0]}")
    text = path.read_text(encoding="utf-8")
    old = Constants.parse(text)
    new = Constants.of(old.version, [*(row for row in old.rows if row.fitted_by != fitted_by), *rows])
    if new.text == text:
        return old.version
    path.write_text(Constants.of(old.version + 1, new.rows).text, encoding="utf-8")
    return old.version + 1


def format_known(seen: Iterable[Seen]) -> str:
    """The CSV text: sorted, the same bytes for the same rows."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(Seen)])
    for row in sorted(seen, key=lambda row: (row.half, row.figure, row.model, row.accelerator, row.software)):
        told = row.half, row.figure, row.model, row.accelerator, row.software
        writer.writerow([*told, " ".join(row.sources), " ".join(row.folds)])
    return out.getvalue()
