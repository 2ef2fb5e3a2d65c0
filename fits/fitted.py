"""What every fit hands over, and the table of constants of fits that did not see something."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path

from twofold.measure.blind import ALL, BlindRow, read_blind
from twofold.perf import ConstantRow
from twofold.perf.known import Seen


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rows that a fit owns, its constants where it did not see something, and what it has seen."""

    rows: list[ConstantRow]
    blind: tuple[BlindRow, ...] = ()
    seen: tuple[Seen, ...] = ()


def replace_blind(
    half: str, rows: Iterable[BlindRow], owned: Callable[[str], bool], path: Path = ALL
) -> None:
    """Replace the rows of one half whose names are `owned`: fits and ranges each rewrite their own."""
    before = read_blind(path) if path.exists() else {}
    kept = [row for group in before.values() for row in group if row.half != half or not owned(row.name)]
    write_blind([*kept, *rows], path)


def write_blind(rows: Iterable[BlindRow], path: Path) -> None:
    """Write the whole table, sorted, four digits."""
    names = [field.name for field in fields(BlindRow)]
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(names)
        for row in sorted(rows, key=attrgetter("half", "hidden", "name", "scope")):
            cells = (getattr(row, name) for name in names)
            writer.writerow([f"{cell:.4g}" if isinstance(cell, float) else cell for cell in cells])
    read_blind.cache_clear()
