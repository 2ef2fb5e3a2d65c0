"""The three tables of a comparison: errors by source, what peers answered, and what became of the rows."""

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

ANSWERS, OUTCOMES = "answers.csv", "outcomes.csv"  # beside the results


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """Errors of one tool and of ours on the same rows of one source; fractions of the measured value."""

    half: str  # training or inference
    tool: str
    version: str
    figure: str
    source: str
    rows: int
    mean_error: float
    median_error: float
    bias: float
    ours_constants: str  # source left out, or shipped where no such fit is stored
    ours_mean_error: float
    ours_median_error: float
    ours_bias: float


@dataclass(frozen=True, slots=True, order=True)
class Told:
    """One number that a peer predicted, kept so that ours can be scored anew without the peer."""

    half: str
    tool: str
    version: str
    id: str  # of the row
    figure: str
    predicted: float


@dataclass(frozen=True, slots=True, order=True)
class Outcome:
    """How many of the scored rows ended how."""

    half: str
    tool: str
    outcome: str
    rows: int


T = TypeVar("T", Line, Told, Outcome)


def read(path: Path, kind: type[T]) -> list[T]:
    """Every line of a table; none where there is no file."""
    if not path.exists():
        return []
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}
    with path.open(newline="", encoding="utf-8") as handle:
        return [kind(**{name: types[name](row[name]) for name in types}) for row in csv.DictReader(handle)]


def replace(path: Path, kind: type[T], new: Sequence[T]) -> None:
    """Put the lines of these tools in the place of their old ones."""
    tools = {each.tool for each in new}
    kept: list[T] = [each for each in read(path, kind) if each.tool not in tools]
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([field.name for field in fields(kind)])
        for each in sorted([*kept, *new]):
            writer.writerow([f"{cell:.4g}" if isinstance(cell, float) else cell for cell in astuple(each)])
