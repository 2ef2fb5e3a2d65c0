"""What every comparison shares: which rows, which measurement, whose errors.

A predictor hands back one `Answer` a row: what it predicts by figure, or why it cannot. Ours is asked about
the same rows, by constants of a fit that did not see their source where such a fit is stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.peers.stored import Line, Outcome, Told
from twofold.catalog.catalog import Catalog
from twofold.measure.blind import hidden_source, kept_blind, made_by_ranges, predict_blind, read_blind
from twofold.measure.truth import Row, number, read_rows, text
from twofold.measure.validation import means_where_they_are
from twofold.perf.constants import Constants

Answer = Mapping[str, float] | str  # by title of the figure, or the reason why there is none
SCORED_TIERS = ("A", "B")
FILES = {"training": "training.csv", "inference": "inference.csv"}


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared: columns of the measurement, of which the first one filled counts."""

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """Whose predictions are compared."""

    name: str
    version: str
    half: str  # training or inference


FIGURES = {
    "training": (Figure("Step time", ("step_time_s",)), Figure("Peak memory", ("peak_mem_gib",))),
    "inference": (
        Figure("TTFT", ("ttft_mean_ms", "ttft_p50_ms")),
        Figure("TPOT", ("tpot_mean_ms", "tpot_p50_ms")),
        Figure("Output tokens/s", ("output_tok_s",)),
    ),
}


def scored_rows(half: str, data: Path) -> list[Row]:
    """The open rows of tiers A and B, the statistic of each first token in the column where it belongs."""
    rows = [row for row in read_rows(data / FILES[half]) if text(row, "tier") in SCORED_TIERS]
    return means_where_they_are(rows) if half == "inference" else rows


def evenly(places: Sequence[int], most: int) -> list[int]:
    """At most `most` of the places, spread evenly over their order: no choice, the same every time.

    >>> evenly(range(10), 4)
    [0, 2, 5, 8]
    """
    step = max(1.0, len(places) / most)
    return [places[int(i * step)] for i in range(min(most, len(places)))]


def sample(rows: Sequence[Row], places: Iterable[int], most: int) -> list[int]:
    """Places of at most `most` rows of each source."""
    groups: dict[str, list[int]] = {}
    for place in places:
        groups.setdefault(text(rows[place], "source"), []).append(place)
    return sorted(place for group in groups.values() for place in evenly(group, most))


def measured(row: Row, figure: Figure) -> tuple[str, float] | None:
    """The column that holds the figure's measurement, and its value."""
    found = ((column, number(row, column)) for column in figure.columns)
    return next(((column, value) for column, value in found if value), None)


def ours(half: str, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[Row]:
    """The rows with our predictions, each by the constants that did not see its source."""
    return predict_blind(half, rows, catalog, constants, hidden_source, kept_blind())


def lines(tool: Tool, own: Sequence[Row], answers: Sequence[Answer]) -> list[Line]:
    """One line per figure and source, over the rows that were measured and that both tools answered."""
    found = []
    for figure in FIGURES[tool.half]:
        groups: dict[str, list[tuple[float, float]]] = {}
        for row, answer in zip(own, answers, strict=True):
            truth = measured(row, figure)
            if truth is None or isinstance(answer, str):
                continue
            column, value = truth
            theirs, predicted = answer.get(figure.title), number(row, f"pred_{column}")
            if theirs and predicted:
                groups.setdefault(text(row, "source"), []).append((theirs / value, predicted / value))
        for source, ratios in sorted(groups.items()):
            theirs_ratio, ours_ratio = np.array(ratios).T
            known = "source left out" if _left_out(tool.half, source) else "shipped"
            told = (tool.half, tool.name, tool.version, figure.title, source, len(ratios))
            found.append(Line(*told, *errors(theirs_ratio), known, *errors(ours_ratio)))
    return found


def _left_out(half: str, source: str) -> bool:
    """Whether a fit without the source is stored; ranges alone are none."""
    found = read_blind(kept_blind()).get((half, f"source={source}"), ())
    return any(not made_by_ranges(row.name) for row in found)


def errors(ratio: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean and median absolute error and geometric bias of predicted over measured."""
    error = np.abs(ratio - 1.0)
    return float(error.mean()), float(np.median(error)), float(np.exp(np.mean(np.log(ratio))) - 1.0)


def outcomes(tool: str, half: str, answers: Iterable[Answer]) -> list[Outcome]:
    """Rows by what became of them."""
    counts: dict[str, int] = {}
    for answer in answers:
        ended = answer if isinstance(answer, str) else "answered"
        counts[ended] = counts.get(ended, 0) + 1
    return [Outcome(half, tool, ended, count) for ended, count in counts.items()]


def kept_answers(tool: Tool, rows: Sequence[Row], answers: Sequence[Answer]) -> list[Told]:
    """What a peer answered, as it is stored."""
    return [
        Told(tool.half, tool.name, tool.version, text(row, "id"), title, value)
        for row, answer in zip(rows, answers, strict=True)
        if not isinstance(answer, str)
        for title, value in answer.items()
    ]


def stored_answers(rows: Sequence[Row], told: Iterable[Told]) -> list[Answer]:
    """The answers of one tool in the order of the rows."""
    found: dict[str, dict[str, float]] = {}
    for each in told:
        found.setdefault(each.id, {})[each.figure] = each.predicted
    return [found.get(text(row, "id"), "not asked") for row in rows]
