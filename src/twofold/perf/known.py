"""What the fits have seen: models, accelerators and software that were measured together, by half.

A prediction for what was seen together is surer than one for parts that were each seen elsewhere, and that
surer than one with a part nobody measured. The ranges are made by these three classes. How far a further
measurement may lie from those that were taken is the spread of repeated rows.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from io import StringIO
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, Literal

Half = Literal["training", "inference"]
KnownClass = Literal["near", "parts", "new"]
UPPER_DECILE = 0.9  # an 80 % range ends at the first and the last decile
# What one row of each kind leaves unknown: the same application on equal GPUs of one cluster varies by 8 % on
# average. Sinha et al. 2022, "Not All GPUs Are Created Equal", SC22.
ASSUMED_SPREAD_FRACTION = 0.08
FEW_SOURCES = 5  # fewer are no spread between sources: an 80 % range of four ends at the farthest of them


@dataclass(frozen=True, slots=True)
class Seen:
    """One figure of one model on one accelerator under one software, and who measured it."""

    half: str
    figure: str  # step, memory; of serving a metric and its load, `tpot closed`
    model: str
    accelerator: str
    software: str  # the family of training software; a serving engine with its era
    sources: tuple[str, ...]
    folds: tuple[str, ...]  # of configurations, in which its rows lie


@dataclass(frozen=True, slots=True)
class Known:
    """All that was seen."""

    together: frozenset[tuple[str, str, str, str, str]]
    accelerators: frozenset[tuple[str, str]]
    software: frozenset[tuple[str, str]]
    plenty: frozenset[tuple[str, str]]  # halves and figures that sources enough measured
    seen: tuple[Seen, ...]

    def of(self, half: Half, figure: str, model: str, accelerator: str, software: str) -> KnownClass:
        """`near` when these were seen together, `parts` when accelerator and software were, else `new`."""
        if (half, figure, model, accelerator, software) in self.together:
            return "near"
        both = (half, accelerator) in self.accelerators and (half, software) in self.software
        return "parts" if both else "new"

    def training_scope(
        self, figure: str, model: str, arch: str, accelerator: str, family: str, software: str
    ) -> dict[str, str]:
        """The scope in which the range of `step` or `memory` is read: what the fits saw, and what it is.

        `arch` is `dense` or `moe`; names are the catalogue's, `software` is a family of it.
        """
        return {
            "known": self.of("training", figure, model, accelerator, software),
            "arch": arch,
            "software": software,
            "family": family,
            "accelerator": accelerator,
        }

    def serving_scope(
        self,
        metric: str,
        load: str,
        model: str,
        kind: str,
        accelerator: str,
        family: str,
        engine: str,
        era: str,
    ) -> dict[str, str]:
        """The scope in which the range of a metric of serving is read: what the fits saw of it, what it is.

        `kind` is that of `model_kind`; `load` is static, closed, open, saturated or disaggregated; names are
        the catalogue's. Rows that leave something open say `basis=assumed`; here all is stated.
        """
        software = f"{engine} {era}".strip()
        return {
            "metric": metric,
            "known": self.of("inference", f"{metric} {load}", model, accelerator, software),
            "model": kind,
            "load": load,
            "basis": "stated",
            "engine": engine,
            "family": family,
            "accelerator": accelerator,
        }

    def group_of(self, half: Half, scopes: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """One scope for a row from those of its figures: which are near, and of which few sources speak."""
        first = next(iter(scopes.values()))
        classes = [scope["known"] for scope in scopes.values()]
        near = "+".join(figure for figure, known in zip(scopes, classes, strict=True) if known == "near")
        load = f" {first['load']}" if half == "inference" else ""
        few = "+".join(figure for figure in scopes if (half, f"{figure}{load}") not in self.plenty)
        shared = {key: value for key, value in first.items() if key != "metric"}
        shared["known"] = next(known for known in ("near", "parts", "new") if known in classes)
        return shared | ({"near": near} if near else {}) | ({"few_sources": few} if few else {})

    def without(self, hidden: str) -> "Known":
        """As before `hidden` was seen: `source=…`, `fold=…`, or `everything`."""
        key, _, name = hidden.partition("=")
        if key == "everything":
            return known_of(())
        column = "sources" if key == "source" else "folds"
        left: list[dict[str, Any]] = [
            {column: tuple(each for each in getattr(row, column) if each != name)} for row in self.seen
        ]
        pairs = zip(self.seen, left, strict=True)
        return known_of(replace(row, **each) for row, each in pairs if each[column])


def known_of(seen: Iterable[Seen]) -> Known:
    """The table of `seen`."""
    rows = tuple(seen)
    sources: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        sources.setdefault((row.half, row.figure), set()).update(row.sources)
    return Known(
        frozenset((row.half, row.figure, row.model, row.accelerator, row.software) for row in rows),
        frozenset((row.half, row.accelerator) for row in rows),
        frozenset((row.half, row.software) for row in rows),
        frozenset(figure for figure, told in sources.items() if len(told) >= FEW_SOURCES),
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
            row["figure"],
            row["model"],
            row["accelerator"],
            row["software"],
            tuple(row["sources"].split()),
            tuple(row["folds"].split()),
        )
        for row in csv.DictReader(StringIO(text))
    )


def spread_factor(groups: Iterable[Sequence[float]]) -> float:
    """The 80 % factor by which a further time may differ from the middle of its group.

    Formula  exp(t · σ · √(1 + 1/n)), t Student's last decile at the repeats' degrees of freedom
    Why      Errors of times are ratios. σ is pooled over the groups: each has few repeats.
    Units    groups of repeated times, any one unit.
    Source   prediction interval of a normal sample with unknown variance.
    Limits   no repeats: the assumed spread; equal repeats: 1.
    """
    rows = [[log(seconds) for seconds in times] for times in groups]
    freedom = sum(len(logs) - 1 for logs in rows)
    if freedom == 0:
        return 1.0 + ASSUMED_SPREAD_FRACTION
    square = sum((each - fmean(logs)) ** 2 for logs in rows for each in logs)
    per_group = sum(map(len, rows)) / len(rows)
    return exp(student_quantile(UPPER_DECILE, freedom) * sqrt(square / freedom * (1.0 + 1.0 / per_group)))


def student_quantile(fraction: float, freedom: int) -> float:
    """Student's quantile from the normal one.

    Formula  z + (z³+z)/4ν + (5z⁵+16z³+3z)/96ν² + (3z⁷+19z⁵+17z³−15z)/384ν³
    Source   Abramowitz & Stegun 1964, 26.7.5.
    Limits   many degrees of freedom ν: the normal quantile; at ν = 1 and the last decile 4 % too small.

    >>> round(student_quantile(0.9, 5), 2)
    1.48
    """
    z = NormalDist().inv_cdf(fraction)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
