"""By how much coverage flatters itself, because errors of other sources come from fits that saw the held one.

    python -m fits.nested TRUTH_FOLDER

The range of a source stands on errors of all others. Each of these is of a fit that did not see its own
source, but saw the one whose range is made. Here every pair of sources is left out of a fit of its own, so
that nothing in a range has seen the rows that it is held against. Takes a quarter of an hour.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from fits import inference, training, training_truth
from fits.fitted import write_blind
from fits.left_out import left_out, ranges_of
from fits.ranges import (
    CLASSES_OF,
    SHARES,
    TIMES,
    Errors,
    before_ranges,
    errors_of,
    open_rows,
    seen_rows,
    unseen_errors,
)
from fits.serving_problem import read_problem
from fits.training_priors import read_priors
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.measure.blind import BlindRow, predict_blind
from twofold.measure.truth import Row, source_of
from twofold.perf.constants import Constants, load_constants
from twofold.perf.known import Half, Known, known_of

Pair = tuple[str, str]
FEWEST_ROWS = 4  # of a source whose mean counts
AT_ONCE = 12  # fits of serving side by side


def main(truth: Path) -> None:
    """A line for each figure: rows held, mean of sources and width, as made and nested."""
    catalog, constants = load_catalog(), before_ranges(load_constants())
    halves: tuple[Half, ...] = ("training", "inference")
    for half in halves:
        rows = open_rows(truth, half)
        known = known_of(seen_rows(half, rows, catalog, constants))
        plain = unseen_errors(half, rows, catalog, constants, known)
        fits = pair_fits(half, rows, catalog, constants)
        others = nested_errors(half, rows, catalog, constants, known, fits)
        for figure, errors in by_figure(plain):
            found = {source: dict(by_figure(each)).get(figure) for source, each in others.items()}
            for how, told in (("as made", {}), ("nested", found)):
                print(f"{figure:10} {how:8} {held(figure, errors, told)}", flush=True)


def pair_fits(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> Mapping[Pair, tuple[BlindRow, ...]]:
    """The constants of fits that saw neither of two sources."""
    found: dict[Pair, tuple[BlindRow, ...]] = {}
    if half == "training":
        priors = read_priors()
        truth = training_truth.read_truth(
            rows, training_truth.STEP, catalog, training.constants_of(priors, constants)
        )
        for pair in pairs_of(truth.source):
            source = np.where(np.isin(truth.source, pair), "both", truth.source)
            fitted = training.fit_kind(priors, "yes", replace(truth, source=source), "source=both")
            found[pair] = tuple(training.blind_rows("source=" + "+".join(pair), fitted, priors))
        return found
    keys = [prior.key for prior in inference.free_priors()]
    problem = read_problem(rows, catalog, inference.from_priors(constants), keys)
    targets = problem.targets
    pairs = list(pairs_of(targets.source))
    for start in range(0, len(pairs), AT_ONCE):
        some = pairs[start : start + AT_ONCE]
        weights = [np.where(np.isin(targets.source, pair), 0.0, targets.weight) for pair in some]
        for pair, logs in zip(some, inference.solve(problem, np.array(weights)), strict=True):
            hidden = {"source=" + "+".join(pair): logs}
            found[pair] = inference.blind_rows(hidden, np.zeros(logs.size))
    return found


def pairs_of(source: NDArray[np.str_]) -> Iterator[Pair]:
    """Every two sources."""
    return combinations(map(str, np.unique(source)), 2)


def nested_errors(
    half: Half,
    rows: Sequence[Row],
    catalog: Catalog,
    constants: Constants,
    known: Known,
    fits: Mapping[Pair, tuple[BlindRow, ...]],
) -> dict[str, dict[str, Errors]]:
    """For each source the errors of all others, by fits that saw neither it nor theirs."""
    found: dict[str, list[tuple[Row, Row]]] = {}
    with TemporaryDirectory() as folder:
        blind = Path(folder) / "pairs.csv"
        write_blind([row for each in fits.values() for row in each], blind)
        for pair in fits:
            own = [row for row in rows if source_of(row) in pair]
            seen = known.without(f"source={pair[0]}").without(f"source={pair[1]}")

            def neither(_row: Row, hidden: str = "source=" + "+".join(pair)) -> str:
                return hidden

            answers = predict_blind(half, own, catalog, constants, neither, blind, seen)
            for row, answer in zip(own, answers, strict=True):
                held = pair[1] if source_of(row) == pair[0] else pair[0]
                found.setdefault(held, []).append((row, answer))
    return {held: errors_of(half, *zip(*each, strict=True)) for held, each in found.items()}


def by_figure(errors: Mapping[str, Errors]) -> Iterator[tuple[str, Errors]]:
    """Steps, and the times of serving that have ranges of their own."""
    for kind, found in errors.items():
        metrics = np.array([each.get("metric", "step") for each in found.scope])
        told = [name for name in ("step", *TIMES) if kind in CLASSES_OF and np.any(metrics == name)]
        yield from ((name, found.kept(metrics == name)) for name in told)


def held(figure: str, errors: Errors, others: Mapping[str, Errors | None]) -> str:
    """Rows held, mean of sources and median width of the 80 % ranges that each source's others make."""
    keys = CLASSES_OF["step" if figure == "step" else "serving"]
    inside, widths, each = [], [], []
    for source in np.unique(errors.source):
        mine = errors.kept(errors.source == source)
        told = others.get(str(source)) or errors.kept(errors.source != source)
        made = ranges_of(left_out(told.log, told.scope, told.source, keys), SHARES)
        ends = np.array([_ends(made, scope) for scope in mine.scope])
        kept = (ends[:, 0] <= mine.log) & (mine.log <= ends[:, 1])
        inside += [*kept]
        widths += [*np.exp(ends[:, 1] - ends[:, 0])]
        if kept.size >= FEWEST_ROWS:
            each.append(float(np.mean(kept)))
    return f"rows {np.mean(inside):6.1%} sources {np.mean(each):6.1%} width {np.median(widths):.2f}"


def _ends(
    made: Sequence[tuple[Mapping[str, str], Sequence[tuple[float, float]]]], scope: Mapping[str, str]
) -> tuple[float, float]:
    """Of the narrowest classes that a row is of."""
    fitting = [(len(classes), ends[0]) for classes, ends in made if classes.items() <= scope.items()]
    return max(fitting)[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
