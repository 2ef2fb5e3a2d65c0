"""Predictions beside measurements: every row once per column, by constants that saw it in one way or another.

A column says what the constants knew: another configuration of the row's source, everything but its source,
nothing but priors. Rows of sources that no fit saw are left out of all fits as they are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import FileError, TableError, TwofoldError
from twofold.measure.blind import (
    OF_THE_SAMPLE,
    all_hidden,
    fold_of,
    hidden_source,
    kept_blind,
    made_by_ranges,
    predict_blind,
    read_blind,
)
from twofold.measure.calibration_after import after_calibration
from twofold.measure.results import FIGURES, Column, Figure, Line, Refusals
from twofold.measure.scores import Mask, Values, score
from twofold.measure.truth import (
    ENDS,
    Facets,
    Row,
    facets_of,
    fitted_sources,
    half_of,
    number,
    read_rows,
    read_tables,
    source_of,
    text,
)
from twofold.perf.constants import load_constants
from twofold.perf.known import Half

SAMPLE = Path(__file__).parent / "sample"
TABLES = ("training", "inference")  # halves whose rows are in one table of that name
SCORED_TIERS = ("", "A", "B")  # C is context: rows that failed a check, or that say too little
# Their unnamed statistic behaves as a mean over the run, its first burst included.
TTFT_IS_MEAN = {"inferencex"}
CHUNK_ROWS = 1024  # between two reports of progress


@dataclass(frozen=True, slots=True)
class Data:
    """Measurements to validate on, by half; `kernels` is a folder that holds kernel tables."""

    name: str
    rows: Mapping[str, tuple[Row, ...]]
    context_rows: int  # left out for their tier
    blind: Path  # the constants of fits that did not see something
    kernels: Path | None = None

    @property
    def unkept(self) -> tuple[str, ...]:
        """Halves with rows that a fit saw, where no fit is kept that missed a source of them."""
        return tuple(
            half
            for half, rows in self.rows.items()
            if "source" not in kept_fits(half, self.blind) and has_seen(half, rows)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One figure: the rows that measured it, and what each column answered; lists of one length."""

    figure: Figure
    rows: tuple[Row, ...]
    facets: tuple[Facets, ...]
    assumed: Mask  # the prediction rests on something that the row does not state
    answers: Mapping[Column, Values]

    def where(self, column: Column, mask: Mask) -> Values:
        """The rows of `mask` that the column answered."""
        values = self.answers[column]
        return values.where(mask & values.answered)

    def mask(self, wanted: Callable[[Facets], bool]) -> Mask:
        """The rows whose facets are wanted."""
        return np.fromiter((wanted(each) for each in self.facets), bool, len(self.facets))


def read_data(path: Path | None, half: str = "") -> Data:
    """The packaged sample, a folder of truth tables, or one table of the user's runs.

    Raises FileError for a path that is not there, TableError for a table that is neither training nor
    inference, or another half than asked.
    """
    if path is not None and not path.exists():
        raise FileError(f"`{path}` does not exist", hint="name a CSV table of runs, or a folder of them")
    kernels: Path | None = None
    if path is not None and not path.is_dir():
        rows = read_rows(path)
        rows_of = {half_of(rows[0], path, half): rows}
    else:
        folder = path or SAMPLE
        tables = {each: read_tables(folder, f"{each}.csv") for each in TABLES if half in ("", each)}
        rows_of = {each: rows for each, rows in tables.items() if rows}
        kernels = folder if half in ("", "kernels") and any(folder.glob("kernels_*.csv")) else None
        if not rows_of and not kernels and half == "kernels":
            where = f"`{folder}`" if path else "the packaged sample"
            hint = "name a folder that holds kernels_gemm.csv and its like with --data"
            raise TableError(f"{where} holds no tables of kernels", hint=hint)
        if not rows_of and not kernels:
            wanted = f"table of {half} runs" if half else " or ".join(f"`{each}.csv`" for each in TABLES)
            raise TableError(f"`{folder}` holds no {wanted}", hint="name the file itself")
    scored = {
        each: tuple(means_where_they_are([row for row in rows if text(row, "tier") in SCORED_TIERS]))
        for each, rows in rows_of.items()
    }
    context = sum(map(len, rows_of.values())) - sum(map(len, scored.values()))
    if path is None:
        return Data("the packaged sample", scored, context, OF_THE_SAMPLE, kernels)
    return Data(str(path), scored, context, kept_blind(), kernels)


def means_where_they_are(rows: Sequence[Row]) -> list[Row]:
    """The rows with TTFT in the mean's column for the sources whose statistic behaves as a mean."""
    return [
        row | {"ttft_mean_ms": row.get("ttft_p50_ms", ""), "ttft_p50_ms": ""}
        if row.get("source") in TTFT_IS_MEAN and not row.get("ttft_mean_ms")
        else row
        for row in rows
    ]


def has_seen(half: str, rows: Iterable[Row]) -> bool:
    """Whether a fit saw the source of any row."""
    return bool(fitted_sources(half) & {source_of(row) for row in rows})


def columns_of(half: str, rows: Iterable[Row], blind: Path) -> tuple[Column, ...]:
    """The columns that can be shown: those that fits without something were kept for."""
    kept = kept_fits(half, blind)
    found = [Column.SEEN] if "fold" in kept and has_seen(half, rows) else []
    found.append(Column.LEFT_OUT)
    found += [Column.PRIORS] if "everything" in kept else []
    return (*found, Column.CALIBRATED)


def kept_fits(half: str, blind: Path) -> frozenset[str]:
    """Whether `blind` has constants of fits that did not see a `source`, a `fold`, or `everything`."""
    return frozenset(
        hidden.partition("=")[0]
        for (kind, hidden), rows in read_blind(blind).items()
        if kind == half and not all(made_by_ranges(row.name) for row in rows)
    )


def predict_column(
    half: str,
    rows: Sequence[Row],
    column: Column,
    blind: Path,
    done: Callable[[int], None] | None = None,
) -> list[Row]:
    """Each row as `column` answers it, blank where the column has nothing to say of it.

    `done` is told now and then how many rows are predicted. Rows go in order of what is hidden from them.
    """
    catalog, constants = load_catalog(), load_constants()
    answers: list[Row] = [{} for _ in rows]
    if column is Column.CALIBRATED:  # rows know their place by their id on the way
        kind: Half = "training" if half == "training" else "inference"
        numbered = [row | {"id": str(place)} for place, row in enumerate(rows)]
        for answer in after_calibration(kind, numbered, catalog, constants, blind):
            answers[int(answer["id"])] = answer
        return answers
    hidden = {Column.SEEN: fold_of, Column.LEFT_OUT: hidden_source, Column.PRIORS: all_hidden}[column]
    ours = fitted_sources(half)
    wanted = [
        place
        for place, row in enumerate(rows)
        if column is not Column.SEEN or source_of(row) in ours  # others were not shown to any fit
    ]
    wanted.sort(key=lambda place: hidden(rows[place]))
    for start in range(0, len(wanted), CHUNK_ROWS):
        places = wanted[start : start + CHUNK_ROWS]
        asked = [rows[place] for place in places]
        answered = predict_blind(half, asked, catalog, constants, hidden, blind)
        for place, answer in zip(places, answered, strict=True):
            answers[place] = answer
        if done:
            done(start + len(places))
    return answers


def parts_of(
    half: str, rows: Sequence[Row], answers: Mapping[Column, Sequence[Row]], catalog: Catalog
) -> tuple[Part, ...]:
    """One part for each figure of the half that any row measured."""
    facets = facets_of(half, rows, catalog)
    assumed = np.array([row.get("pred_basis") == "assumed" for row in answers[Column.LEFT_OUT]], bool)
    parts = []
    for figure in (each for each in FIGURES if each.half == half):
        measured = [
            (place, name)
            for place, row in enumerate(rows)
            if (name := next((each for each in figure.columns if number(row, each)), None))
        ]
        if not measured:
            continue
        values = {}
        for column, answered in answers.items():
            told = [
                [number(rows[place], name), *(number(answered[place], f"pred_{name}{end}") for end in ENDS)]
                for place, name in measured
            ]
            values[column] = Values(*np.array(told, float).T)  # None becomes NaN
        places = [place for place, _ in measured]
        kept_rows, kept_facets = tuple(rows[i] for i in places), tuple(facets[i] for i in places)
        parts.append(Part(figure, kept_rows, kept_facets, assumed[places], values))
    return tuple(parts)


def lines_of(part: Part, by: Sequence[str]) -> list[Line]:
    """The scores of every group of rows with the same facets `by`, stated and assumed rows apart."""
    groups: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for place, (facets, assumed) in enumerate(zip(part.facets, part.assumed, strict=True)):
        groups.setdefault((facets.key(by), bool(assumed)), []).append(place)
    found = []
    for (group, assumed), places in groups.items():
        mask = np.zeros(len(part.facets), bool)
        mask[places] = True
        scores = {column: score(values.where(mask)) for column, values in part.answers.items()}
        basis = "assumed" if assumed else "stated"
        found.append(Line(part.figure.half, part.figure.name, group, basis, scores))
    first = Column.LEFT_OUT if Column.LEFT_OUT in part.answers else Column.SEEN
    return sorted(found, key=lambda line: -(line.scores[first].mean_error or 0.0))  # the worst first


def refusals_of(half: str, rows: Sequence[Row], answers: Sequence[Row], catalog: Catalog) -> Refusals:
    """Why rows of a half got no answer, and how many would have been called too large for their memory.

    A planner decides on the upper end of the range; a row that was measured did fit.
    """
    codes = Counter(text(answer, "pred_error").partition(":")[0] for answer in answers)
    codes.pop("", None)
    not_fitting = codes["E-memory"]
    for row, answer in zip(rows, answers, strict=True):
        if high_gib := number(answer, "pred_peak_mem_gib_high"):  # of training rows alone
            with suppress(TwofoldError):
                part = catalog.benchmark_accelerator(text(row, "gpu"))
                not_fitting += high_gib * 2**30 > part.memory_bytes
    return Refusals(half, len(rows), dict(sorted((+codes).items())), not_fitting)
