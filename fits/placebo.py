"""Does a term help because of what it says, or because it is one more free constant?

    python -m fits.placebo TRUTH_FOLDER docs/placebo.csv [NAME …]

A constant with a scope (an engine's, a framework's, a family's) is a term: it claims that its rows differ
from others. Each is fitted three times: *without* (all rows share the widest constant), *shuffled* (as many
constants, but the rows of a source take the scope of other rows, drawn by lot), and *as it is*. Errors are
those of fits that did not see the source, or not the configuration. A term that a shuffled one equals says
nothing of machines that nobody has measured.
"""

import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fits import inference, serving_problem, training, training_truth
from fits.robust import Values
from fits.serving_problem import ENGINE_FIELDS
from fits.training_priors import Prior, read_priors
from fits.training_truth import FABRIC
from twofold.catalog.catalog import load_catalog
from twofold.measure.blind import fold_of, hidden_source
from twofold.measure.predict_inference import Batch
from twofold.measure.truth import measured_figures, number, read_tables, text
from twofold.perf.constants import Constants, load_constants

LOTS = (1, 2)  # seeds of the shuffled columns
ROWS_PER_SOURCE = 40  # fewer than the fits take: a term is judged by sources, not by rows
LEAST = 5e-4  # of an error: what moves it less is not told
HEAD = ("half", "figure", "term", "scopes", "sources", "left out", "without", "shuffled", "as it is", "helps")

Places = NDArray[np.int64]
Names = NDArray[np.str_]
Columns = Mapping[str, Places]
Fits = Callable[[str, Columns, Sequence[str]], Mapping[str, Values]]
"""A term, columns and what not to see, to the absolute log error of each figure by what was not seen."""


@dataclass(frozen=True, slots=True)
class Study:
    """One half's rows with the prior that each takes by the name of its constant."""

    half: str
    scopes: tuple[tuple[str, str], ...]  # name and scope of each prior
    columns: Columns
    hidden: Mapping[str, Names]  # by kind (source, configuration): what hides each row
    row_of: Places  # of each figure
    figure: Names  # its name
    fits: Fits


def main(arguments: Sequence[str]) -> int:
    """Write the table; names after the file limit it to these terms."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    truth, out, only = Path(arguments[0]), Path(arguments[1]), set(arguments[2:])
    constants = load_constants()
    with out.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(HEAD)
        for study in (*training_studies(truth, constants), serving_study(truth, constants)):
            for name in terms_of(study):
                if not only or name in only:
                    writer.writerows(judged(study, name))
                    handle.flush()
    return 0


def placebo_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The section of the accuracy page: a line for each term and figure, what helps nowhere last."""
    if not rows:
        return []
    lines = [
        "## Placebos",
        "",
        "Each constant that some rows have for themselves (an engine's, a framework's, a family's), fitted",
        "three ways: *without* (one constant for all), *shuffled* (as many constants, dealt by lot to rows",
        "of a source) and *as it is*. Mean errors over the sources that it touches, by fits that did not see",
        "the source, and by fits that did not see the configuration. `python -m fits.placebo` writes it.",
        "",
        "| half | figure | constant | scopes | sources | source left out: without, shuffled, as it is "
        "| configuration left out | helps |",
        "| --- | --- | --- | --: | --: | --- | --- | --- |",
    ]
    pairs: dict[tuple[str, str, str], dict[str, Mapping[str, str]]] = {}
    for row in rows:
        pairs.setdefault((row["half"], row["figure"], row["term"]), {})[row["left out"]] = row
    helping = {
        key: [kind for kind, row in both.items() if row["helps"] == "yes"] for key, both in pairs.items()
    }
    for key, both in sorted(pairs.items(), key=lambda each: not helping[each[0]]):
        one = next(iter(both.values()))
        shown = [_three(both.get(kind)) for kind in ("source", "configuration")]
        cells = [*key, one["scopes"], one["sources"], *shown, " and ".join(helping[key]) or "**neither**"]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _three(row: Mapping[str, str] | None) -> str:
    return ", ".join(row[way] for way in ("without", "shuffled", "as it is")) if row else "not moved"


def terms_of(study: Study) -> list[str]:
    """Names of constants of which some rows take a narrower scope than others."""
    return sorted(name for name, places in study.columns.items() if np.unique(places).size > 1)


def judged(study: Study, name: str) -> Iterable[list[str]]:
    """The lines of one term: errors on what its fits did not see, three ways."""
    own, source = study.columns[name], study.hidden["source"]
    widest = int(min(np.unique(own), key=lambda place: len(study.scopes[place][1])))
    touched = np.unique(source[own != widest])
    columns = [np.full_like(own, widest), *(shuffled(own, source, lot) for lot in LOTS), own]
    asked = np.isin(source, touched)
    hidden = sorted({str(each) for hides in study.hidden.values() for each in hides[asked]})
    errors = [study.fits(name, {**study.columns, name: column}, hidden) for column in columns]
    for figure, (kind, hides) in product(np.unique(study.figure), study.hidden.items()):
        without, *lots, term = (mean_of_sources(study, each, hides, touched, figure) for each in errors)
        if np.isnan(term) or max(without, *lots) - min(without, *lots, term) < LEAST:
            continue  # nothing of it is in this figure
        yield [
            *(study.half, str(figure), name, str(np.unique(own).size), str(touched.size), kind),
            f"{100 * without:.1f} %",
            f"{100 * np.mean(lots):.1f} %",
            f"{100 * term:.1f} %",
            "yes" if term < min(without, float(np.mean(lots))) - LEAST else "no",
        ]


def shuffled(column: Places, source: Names, seed: int) -> Places:
    """The column with the scopes of rows of one source and one scope dealt anew among all such groups."""
    names = np.char.add(np.char.add(source, " "), column.astype(str))
    _, first, group = np.unique(names, return_index=True, return_inverse=True)
    dealt: Places = np.random.default_rng(seed).permutation(column[first])[group]
    return dealt


def mean_of_sources(
    study: Study, errors: Mapping[str, Values], hides: Names, touched: Names, figure: str
) -> float:
    """Mean over sources of the mean error of one figure, each row by the fit that did not see it."""
    hidden, source = hides[study.row_of], study.hidden["source"][study.row_of]
    unseen = np.full(hidden.size, np.nan)
    for name, error in errors.items():
        unseen = np.where((hidden == name) & (study.figure == figure), error, unseen)
    told = [unseen[(source == name) & np.isfinite(unseen)] for name in touched]
    means = [float(np.mean(each)) for each in told if each.size]
    return float(np.mean(means)) if means else np.nan


def training_studies(truth: Path, constants: Constants) -> list[Study]:
    """Steps and peak memory."""
    rows = [row for row in read_tables(truth, "training.csv") if text(row, "tier") in ("A", "B")]
    priors = read_priors()
    start = training.constants_of(priors, constants)
    studies = []
    for kind, column in zip(training.KINDS, (training_truth.STEP, training_truth.MEMORY), strict=True):
        measured = training_truth.thin(
            [row for row in rows if number(row, column) is not None], ROWS_PER_SOURCE
        )
        told = training_truth.read_truth(measured, column, load_catalog(), start)
        placed = training_truth.columns_of(priors, told)
        columns = {f"training_{name}": places for name, places in placed.stack.items()}
        studies.append(
            Study(
                "training",
                tuple((prior.name, prior.scope) for prior in priors),
                {**columns, FABRIC: placed.fabric},
                {"source": np.char.add("source=", told.source), "configuration": told.fold},
                np.arange(len(told.source)),
                np.full(len(told.source), column),
                partial(fit_training, priors, kind, told),
            )
        )
    return studies


def fit_training(
    priors: Sequence[Prior],
    kind: str,
    truth: training_truth.Truth,
    name: str,
    columns: Columns,
    hidden: Sequence[str],
) -> Mapping[str, Values]:
    """Errors of fits of steps or memory whose rows take the priors of `columns`.

    Where no row takes a narrower constant and some of those were free, the widest is: one constant for all.
    """
    mine = columns[name]
    if np.unique(mine).size == 1 and any(prior.fitted == kind for prior in priors if prior.name == name):
        widest = priors[mine[0]]
        free = kind if 0 < widest.low < widest.high else widest.fitted
        priors = [replace(prior, fitted=free) if prior is widest else prior for prior in priors]
    stack = {key.removeprefix("training_"): column for key, column in columns.items() if key != FABRIC}
    placed = training_truth.Columns(stack, columns[FABRIC])
    found = {}
    for each in hidden:
        fitted = training.fit_kind(priors, kind, truth, each, placed)
        values = np.array([[prior.value for prior in fitted]])
        found[each] = np.abs(training_truth.log_errors(truth, placed, values)[0])
    return found


def serving_study(truth: Path, constants: Constants) -> Study:
    """All figures of serving rows."""
    constants = inference.from_priors(constants)
    keys = [prior.key for prior in inference.free_priors()]
    rows = [row for row in read_tables(truth, "inference.csv") if measured_figures("inference", row)]
    rows = training_truth.thin([row for row in rows if text(row, "tier") in ("A", "B")], ROWS_PER_SOURCE)
    problem = serving_problem.read_problem(rows, load_catalog(), constants, keys)
    scopes = [prior.key for prior in inference.read_priors()]
    columns = serving_problem.columns_of(problem.cases, scopes)
    return Study(
        "inference",
        tuple(scopes),
        columns,
        {
            "source": np.array([hidden_source(row) for row in problem.rows]),
            "configuration": np.array([fold_of(row) for row in problem.rows]),
        },
        problem.targets.place,
        np.array([name.split("_")[0] for name in problem.targets.metric]),
        partial(fit_serving, problem),
    )


def fit_serving(
    problem: serving_problem.Problem, name: str, columns: Columns, hidden: Sequence[str]
) -> Mapping[str, Values]:
    """Errors of fits of engine constants whose rows take the priors of `columns`."""
    priors = inference.read_priors()
    index = {key: place for place, key in enumerate(problem.keys)}
    field = name.removeprefix("serving_")
    used = problem.used.copy()
    used[:, ENGINE_FIELDS.index(field)] = [index.get(priors[place].key, -1) for place in columns[name]]
    value = np.array([priors[place].value for place in columns[name]])

    def told(group: Batch) -> Batch:
        fixed: dict[str, Any] = {field: value[group.places]}
        return replace(group, replica=replace(group.replica, engine=replace(group.replica.engine, **fixed)))

    asked = replace(problem, used=used, groups=tuple(told(group) for group in problem.groups))
    weights = inference.hidden_weights(asked)
    logs = inference.solve(asked, np.array([weights[each] for each in hidden]))
    errors = [np.abs(serving_problem.log_errors(asked, log)) for log in logs]
    return dict(zip(hidden, errors, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
