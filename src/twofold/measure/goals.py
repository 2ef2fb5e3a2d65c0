"""The goals of accuracy, which `goals.csv` lists, and how far the figures are from them.

A goal names a figure, the rows that it is about, a statistic, and a limit per column. A mean error is a mean
over sources, each weighing the same; a median is that of all rows. The other way to weigh is shown beside it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from twofold.measure import scores
from twofold.measure.evidence import Evidence
from twofold.measure.results import Column, Judged, Reached
from twofold.measure.truth import Facets, Row, read_rows
from twofold.measure.validation import Part
from twofold.perf.constants import read_scope

FILE = Path(__file__).parent / "goals.csv"
COVERED = (0.75, 0.90)  # share of rows that an 80 % range may hold
LEAST_COVERED_ROWS = 50  # smaller groups tell no coverage
# What must agree for two runs to differ by their layout alone, and what a layout is.
SAME_JOB = (
    "source", "model", "gpu", "gpus", "global_batch_seqs", "seq_len", "precision", "framework", "recompute",
)  # fmt: skip
LAYOUT = ("dp", "tp", "pp", "cp", "ep", "vpp", "sp", "zero_stage", "micro_batch")
SAME_CLUSTER = ("model", "gpus")


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table of goals. `only` and `never` name facets of the rows that count, and values."""

    title: str
    figures: tuple[str, ...]  # all that are measured where it is empty
    statistic: str
    only: Mapping[str, str]
    never: Mapping[str, str]
    known: bool  # where the source is left out, others must have had its accelerator and its framework
    at_least: bool  # the limit is a floor
    limits: Mapping[Column, float]  # a column without one only shows its figure

    def counts(self, facets: Facets) -> bool:
        """Whether a row is one that the goal is about."""
        return all(getattr(facets, name) == value for name, value in self.only.items()) and not any(
            getattr(facets, name) == value for name, value in self.never.items()
        )


Found = tuple[float | None, int, float | None]  # value, rows, otherwise


@cache
def read_goals() -> tuple[Goal, ...]:
    """The table of goals."""
    limited = (Column.SEEN, Column.LEFT_OUT, Column.CALIBRATED)
    return tuple(
        Goal(
            title=cells["title"],
            figures=tuple(cells["figures"].split(";")) if cells["figures"] else (),
            statistic=cells["statistic"],
            only=dict(read_scope(cells["only"])),
            never=dict(read_scope(cells["never"])),
            known=bool(cells["known"]),
            at_least=bool(cells["at_least"]),
            limits={column: float(cells[column]) for column in limited if cells[column]},
        )
        for cells in read_rows(FILE)
    )


def judge(evidence: Evidence) -> tuple[Judged, ...]:
    """Every goal that has rows, with what each column reached and by how much it is missed."""
    judged = []
    for goal in read_goals():
        reached = {column: _reached(goal, column, evidence) for column in Column}
        kept = {column: one for column, one in reached.items() if one.value is not None}
        if kept:
            judged.append(Judged(goal.title, goal.statistic, goal.at_least, kept))
    return tuple(judged)


def _reached(goal: Goal, column: Column, evidence: Evidence) -> Reached:
    if goal.statistic in OF_EVIDENCE:
        value, rows, otherwise = OF_EVIDENCE[goal.statistic](goal, column, evidence)
    else:  # of the first of the goal's figures that has rows, over those that were answered
        value, rows, otherwise = None, 0, None
        for part, mask in _selected(goal, column, evidence)[:1]:
            answered = mask & part.answers[column].answered
            value, rows, otherwise = OF_ROWS[goal.statistic](part, column, answered)
    limit = goal.limits.get(column)
    if value is None or limit is None:
        return Reached(value, rows, otherwise, limit, None)
    excess = limit - value if goal.at_least else value - limit
    return Reached(value, rows, otherwise, limit, max(excess, 0.0))


def _selected(goal: Goal, column: Column, evidence: Evidence) -> list[tuple[Part, scores.Mask]]:
    """The goal's rows per figure."""
    any_world = column in (Column.SEEN, Column.CALIBRATED) or not goal.known
    return [
        (part, part.mask(lambda facets: goal.counts(facets) and (any_world or facets.known == "yes")))
        for figure in goal.figures
        if (part := evidence.parts.get(figure)) is not None and column in part.answers
    ]


def _by_source(part: Part, column: Column, mask: scores.Mask) -> list[scores.Mask]:
    """The rows of `mask` that were answered, one mask a source."""
    sources = np.array([facets.source for facets in part.facets])
    answered = mask & part.answers[column].answered
    return [answered & (sources == one) for one in np.unique(sources[answered])]


def _over_sources(
    error: Callable[[scores.Values], float | None], part: Part, column: Column, mask: scores.Mask
) -> Found:
    """The mean over sources of the error within each; beside it that of all rows."""
    each = [error(part.where(column, inside)) for inside in _by_source(part, column, mask)]
    together = part.where(column, mask)
    return _mean(each), together.measured.size, error(together)


def _median_error(part: Part, column: Column, mask: scores.Mask) -> Found:
    """The median error of all rows; beside it the mean over sources of the medians within each."""
    of_sources, rows, together = _over_sources(scores.median_error, part, column, mask)
    return together, rows, of_sources


def _of_rows(
    of: Callable[[scores.Values], float | None], part: Part, column: Column, mask: scores.Mask
) -> Found:
    """A statistic of all rows, with no other way to weigh them: kernels of one table have one source."""
    values = part.where(column, mask)
    return of(values), values.measured.size, of(values)


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else None


def _keys(part: Part, columns: Sequence[str], mask: scores.Mask) -> list[tuple[str, ...]]:
    rows: list[Row] = [row for row, inside in zip(part.rows, mask, strict=True) if inside]
    return [tuple(row.get(name, "") for name in columns) for row in rows]


def _regret(of: Callable[[Sequence[float]], float], part: Part, column: Column, mask: scores.Mask) -> Found:
    """Over all sets of runs that differ by their layout alone."""
    values = part.where(column, mask)
    sets, layouts = (_keys(part, names, mask) for names in (SAME_JOB, LAYOUT))
    found = list(scores.regrets(sets, layouts, values.measured, values.predicted).values())
    return (float(of(found)) if found else None), len(found), max(found, default=None)


def _ranked(columns: Sequence[str], part: Part, column: Column, mask: scores.Mask) -> Found:
    """A mean of Spearman over groups of rows that agree in `columns`."""
    values = part.where(column, mask)
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, key in enumerate(_keys(part, columns, mask)):
        groups.setdefault(key, []).append(place)
    each = [
        scores.spearman(values.measured[places], values.predicted[places])
        for places in groups.values()
        if len(places) >= scores.LEAST_RANKED
    ]
    return _mean(each), values.measured.size, scores.spearman(values.measured, values.predicted)


def _groups_off(_goal: Goal, column: Column, evidence: Evidence) -> Found:
    """How many groups of a figure and a source are not covered as they should be; all sources count."""
    found = covered_groups(evidence.parts.values(), column)
    off = sum(not COVERED[0] <= share <= COVERED[1] for *_, share in found)
    return (float(off) if found else None), len(found), None


def covered_groups(parts: Iterable[Part], column: Column) -> list[tuple[str, str, int, float]]:
    """Figure, source, rows and covered share of every group that is large enough to tell."""
    found = []
    for part in parts:
        if column not in part.answers:
            continue
        every = np.ones(len(part.facets), bool)
        for mask in _by_source(part, column, every):
            values = part.answers[column].where(mask)
            share = scores.coverage(values.measured, values.low_80, values.high_80)
            if values.measured.size >= LEAST_COVERED_ROWS and share is not None:
                source = part.facets[int(np.flatnonzero(mask)[0])].source
                found.append((part.figure.name, source, values.measured.size, share))
    return found


def _refused(_goal: Goal, column: Column, evidence: Evidence) -> Found:
    rows = sum(each.rows for each in evidence.refusals)
    if column is not Column.LEFT_OUT or not rows:
        return None, 0, None
    share = sum(each.not_fitting for each in evidence.refusals) / rows
    return share, rows, share


def _above_one(_goal: Goal, column: Column, evidence: Evidence) -> Found:
    values = [row.value for row in evidence.constants.rows if row.name.endswith("efficiency_fraction")]
    return (float(sum(value > 1.0 for value in values)) if column is Column.SEEN else None), len(values), None


def _priors_better(goal: Goal, column: Column, evidence: Evidence) -> Found:
    """How many figures and kinds of model are predicted better from priors alone than from other sources."""
    if column is not Column.LEFT_OUT:
        return None, 0, None
    worse, compared = 0, 0
    for part, mask in _selected(goal, column, evidence):
        if Column.PRIORS not in part.answers:
            continue
        for arch in sorted({facets.arch for facets in part.facets}):
            inside = mask & part.mask(lambda facets, arch=arch: facets.arch == arch)  # type: ignore[misc]
            both = inside & part.answers[Column.LEFT_OUT].answered & part.answers[Column.PRIORS].answered
            fitted, priors = (
                _mean(scores.mean_error(part.where(each, source)) for source in _by_source(part, each, both))
                for each in (Column.LEFT_OUT, Column.PRIORS)
            )
            if fitted is not None and priors is not None:
                compared, worse = compared + 1, worse + (priors < fitted)
    return (float(worse) if compared else None), compared, None


OF_ROWS: Mapping[str, Callable[[Part, Column, scores.Mask], Found]] = MappingProxyType(
    {
        "mean error": partial(_over_sources, scores.mean_error),
        "mean error of rows": partial(_of_rows, scores.mean_error),
        "median error": _median_error,
        "mean regret": partial(_regret, np.mean),
        "median regret": partial(_regret, np.median),
        "Spearman in sources": partial(_ranked, ("source",)),
        "Spearman in clusters": partial(_ranked, SAME_CLUSTER),
        "share above": partial(_of_rows, lambda values: scores.share_above(values.measured, values.high_80)),
        "width": partial(_of_rows, lambda values: scores.width(values.low_80, values.high_80)),
    }
)
OF_EVIDENCE: Mapping[str, Callable[[Goal, Column, Evidence], Found]] = MappingProxyType(
    {
        "groups off": _groups_off,
        "share refused": _refused,
        "constants above 1": _above_one,
        "priors better": _priors_better,
    }
)
