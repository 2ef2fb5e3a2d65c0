"""The gate of predictions: on the same rows as the committed figures, left-out errors may not get worse.

`figures.csv` holds them, by data, half, figure, kind of model and source; sources of few rows stand together.
`make accuracy` writes it. A group is named by a digest of its rows, so that other rows are never compared.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.measure.evidence import Evidence
from twofold.measure.results import Column, Gate, Moved
from twofold.measure.scores import mean_error, median_error
from twofold.measure.truth import read_rows, text
from twofold.measure.validation import Part

FILE = Path(__file__).parent / "figures.csv"
LEAST_ROWS = 20  # of a group that can fail the gate
OTHERS = "other sources"
WORSE_BY, IN_GROUPS = 0.01, 2  # more than one point in so many groups fails
MUCH_WORSE_BY = 0.03  # or more than three in one


@dataclass(frozen=True, slots=True)
class GateFigure:
    """Left-out errors of one group; `answered` of its `rows` got a prediction."""

    data: str  # sample or truth
    half: str
    figure: str
    arch: str
    source: str
    rows: int
    answered: int
    digest: str
    mean_error: float
    median_error: float

    @property
    def key(self) -> tuple[str, ...]:
        """Which group it is."""
        return self.data, self.half, self.figure, self.arch, self.source

    @property
    def name(self) -> str:
        """What the group is about."""
        return " · ".join(each for each in (self.figure, self.arch, self.source) if each)


def gate_of(data: str, halves: Iterable[str], evidence: Evidence) -> Gate:
    """The gate of `sample` or `truth`: the committed figures of some halves beside those of the evidence."""
    return compare(read_figures(data, halves), gate_figures(data, evidence))


def gate_figures(data: str, evidence: Evidence) -> list[GateFigure]:
    """The figures of every group, from rows predicted with their source left out."""
    found = []
    for part in evidence.parts.values():
        if Column.LEFT_OUT not in part.answers:
            continue
        # Sources of fewer rows than a gate can judge stand together.
        sizes = Counter((facets.arch, facets.source) for facets in part.facets)
        groups: dict[tuple[str, str], list[int]] = {}
        for place, facets in enumerate(part.facets):
            large = sizes[facets.arch, facets.source] >= LEAST_ROWS
            groups.setdefault((facets.arch, facets.source if large else OTHERS), []).append(place)
        found += [_figure(data, part, *key, places) for key, places in sorted(groups.items())]
    return found


def _figure(data: str, part: Part, arch: str, source: str, places: Sequence[int]) -> GateFigure:
    names = []
    for row in (part.rows[place] for place in places):
        measured = next(text(row, name) for name in part.figure.columns if text(row, name))
        names.append(f"{text(row, 'source')}/{text(row, 'id')}={measured}")
    mask = np.zeros(len(part.rows), bool)
    mask[list(places)] = True
    values = part.where(Column.LEFT_OUT, mask)
    return GateFigure(
        data=data,
        half=part.figure.half,
        figure=part.figure.name,
        arch=arch,
        source=source,
        rows=len(places),
        answered=values.measured.size,
        digest=hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:12],
        mean_error=round(mean_error(values) or 0.0, 4),
        median_error=round(median_error(values) or 0.0, 4),
    )


def compare(committed: Sequence[GateFigure], found: Iterable[GateFigure]) -> Gate:
    """The gate over groups of both sides.

    It fails where errors are worse by more than one point in two groups of 20 rows or by three in one, where
    such a group answers fewer rows than before, and where there is nothing to compare.
    """
    before = {each.key: each for each in committed}
    moved, unlike, compared = [], [], 0
    for after in found:
        old = before.pop(after.key, None)
        if old is None or old.digest != after.digest:
            unlike.append(after.name)
            continue
        compared += 1
        lost = old.answered - after.answered
        if lost > 0 or old.mean_error != after.mean_error:
            moved.append(Moved(after.name, after.rows, old.mean_error, after.mean_error, max(lost, 0)))
    unlike += [each.name for each in before.values()]
    moved.sort(key=lambda each: -each.points)
    return Gate(compared, tuple(moved), tuple(unlike), _failure(moved, unlike, compared))


def _failure(moved: Sequence[Moved], unlike: Sequence[str], compared: int) -> str:
    large = [each for each in moved if each.rows >= LEAST_ROWS]
    much = [each for each in large if each.points > 100 * MUCH_WORSE_BY]
    worse = [each for each in large if each.points > 100 * WORSE_BY]
    lost = [each for each in large if each.lost]
    if not compared or unlike:
        return f"{len(unlike)} groups hold other rows than the committed figures"
    if much:
        return f"{much[0].name} is worse by more than {100 * MUCH_WORSE_BY:.0f} points"
    if len(worse) >= IN_GROUPS:
        return f"{len(worse)} groups are worse by more than {100 * WORSE_BY:.0f} point"
    return f"{lost[0].name} answers {lost[0].lost} rows fewer" if lost else ""


def read_figures(data: str, halves: Iterable[str], path: Path = FILE) -> list[GateFigure]:
    """The committed figures of `sample` or `truth`, of some halves."""
    wanted = set(halves)
    kinds = {"rows": int, "answered": int, "mean_error": float, "median_error": float}
    return [
        GateFigure(**{name: kinds.get(name, str)(cell) for name, cell in cells.items()})
        for cells in (read_rows(path) if path.exists() else [])
        if cells["data"] == data and cells["half"] in wanted
    ]
