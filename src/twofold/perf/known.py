"""What the fits have seen: models, accelerators and software that were measured together, by half.

A prediction for what was seen together is surer than one for parts that were each seen elsewhere, and that
surer than one with a part nobody measured. The ranges are made by these three classes.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Literal

Half = Literal["training", "inference"]
KnownClass = Literal["near", "parts", "new"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One model on one accelerator under one software, and who measured it."""

    half: str
    model: str
    accelerator: str
    software: str  # the family of training software; a serving engine with its era
    sources: tuple[str, ...]
    folds: tuple[str, ...]  # of configurations, in which its rows lie


@dataclass(frozen=True, slots=True)
class Known:
    """All that was seen."""

    together: frozenset[tuple[str, str, str, str]]
    accelerators: frozenset[tuple[str, str]]
    software: frozenset[tuple[str, str]]
    seen: tuple[Seen, ...]

    def of(self, half: Half, model: str, accelerator: str, software: str) -> KnownClass:
        """`near` when these were seen together, `parts` when accelerator and software were, else `new`."""
        if (half, model, accelerator, software) in self.together:
            return "near"
        both = (half, accelerator) in self.accelerators and (half, software) in self.software
        return "parts" if both else "new"

    def without(self, hidden: str) -> "Known":
        """As before `hidden` was seen: `source=…`, `fold=…`, or `everything`."""
        key, _, name = hidden.partition("=")
        if key == "everything":
            return known_of(())
        if key == "source":
            by_others = (replace(row, sources=_but(row.sources, name)) for row in self.seen)
            return known_of(row for row in by_others if row.sources)
        elsewhere = (replace(row, folds=_but(row.folds, name)) for row in self.seen)
        return known_of(row for row in elsewhere if row.folds)


def _but(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def known_of(seen: Iterable[Seen]) -> Known:
    """The table of `seen`."""
    rows = tuple(seen)
    return Known(
        frozenset((row.half, row.model, row.accelerator, row.software) for row in rows),
        frozenset((row.half, row.accelerator) for row in rows),
        frozenset((row.half, row.software) for row in rows),
        rows,
    )


def known_path() -> Path:
    """Where the shipped table lies."""
    return Path(str(files("twofold.perf") / "known.csv"))


@cache
def load_known() -> Known:
    """The table that ships with the package."""
    return parse_known(known_path().read_text(encoding="utf-8"))


def parse_known(text: str) -> Known:
    """Read the CSV."""
    return known_of(
        Seen(
            row["half"],
            row["model"],
            row["accelerator"],
            row["software"],
            tuple(row["sources"].split()),
            tuple(row["folds"].split()),
        )
        for row in csv.DictReader(StringIO(text))
    )
