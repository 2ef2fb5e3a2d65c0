"""Ranges as wide as errors on rows that no fit saw: split-conformal, grouped by what is known of a row.

Every open row is predicted twice, by constants that never saw its configuration and by constants that
never saw its source. In both cases the row is near, made of known parts, or new to what that fit had seen;
its error goes to that class. Ranges run from quantiles of these errors, by what describes the row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fits.fitted import Fitted
from twofold.catalog import Catalog, load_catalog
from twofold.core import Estimate, Source, TwofoldError
from twofold.measure.blind import (
    ALL,
    FOLD_COUNT,
    SPREAD,
    BlindRow,
    fold_of,
    made_by_ranges,
    predict_blind,
    source_of,
    unfitted_spread,
)
from twofold.measure.inference_rows import read_case
from twofold.measure.predict_training import seen_model
from twofold.measure.truth import Row, measured_figures, number, read_rows, text
from twofold.perf import ConstantRow, Constants, Half, Known, engine_software, format_scope, read_scope
from twofold.perf.known import Seen, known_of
from twofold.training import software_family

FITTED_BY = "ranges"
Path_ = tuple[str, ...]  # values of a chain
Ends = tuple[float, float]
T = TypeVar("T")
RANGED = ("training_step", "training_memory", "serving")
TIERS = ("A", "B")
CLASSES = ("near", "parts", "new")  # from surest to least sure
LEAST_REST = 0.02  # of a measured peak: less beside the states is another convention, not memory
FEWEST_ROWS = 30  # fewer do not make a range of their own
FEWEST_SOURCES = 2  # of a class that stands for sources nobody saw
NARROWEST = 0.02  # in logarithms: releases of one software differ by as much
# Shares of errors below and above a range. Errors of whole sources lie together, so that quantiles of the few
# seen flatter: each end takes two per cent more. Memory is one-sided: too little ends a run.
ENDS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("", ""): (0.08, 0.92),
    ("", "_95"): (0.02, 0.98),
    ("memory", ""): (0.12, 0.95),
    ("memory", "_95"): (0.02, 0.98),
}
# What describes a row, from the widest group to the narrowest. A class comes first in all.
CHAINS: Mapping[str, tuple[str, ...]] = {
    "step": ("arch", "software"),
    "memory": ("software",),
    "serving": ("load", "basis", "model", "engine"),
}


@dataclass(frozen=True, slots=True)
class Errors:
    """log(measured / predicted) of one figure, with what was known of each row and whose it is."""

    log: NDArray[np.float64]
    scope: tuple[Mapping[str, str], ...]
    source: NDArray[np.str_]
    fold: NDArray[np.str_]
    row: NDArray[np.int64]  # a row errs once with its fold hidden, and once with its source

    @property
    def row_count(self) -> int:
        """Measured rows among the errors."""
        return int(np.unique(self.row).size)

    def kept(self, rows: NDArray[np.bool_]) -> "Errors":
        """Some of the rows."""
        scope = tuple(each for each, keep in zip(self.scope, rows, strict=True) if keep)
        return Errors(self.log[rows], scope, self.source[rows], self.fold[rows], self.row[rows])


def fit(truth: Path, constants: Constants) -> Fitted:
    """The interval rows of both halves, those that miss a source or a fold, and what was seen."""
    catalog, constants = load_catalog(), _before_ranges(constants)
    halves: tuple[Half, ...] = ("training", "inference")
    tables = {half: open_rows(truth / f"{half}.csv") for half in halves}
    seen = [row for half in halves for row in seen_rows(half, tables[half], catalog, constants)]
    known = known_of(seen)
    rows: list[ConstantRow] = []
    blind: list[BlindRow] = []
    for half in halves:
        errors = unseen_errors(half, tables[half], catalog, constants, known)
        rows += _all_rows(errors)
        for hidden, kept in _hidings(errors):
            blind += [
                BlindRow(half, hidden, row.name, row.scope, Estimate(row.value, row.low, row.high, "ratio"))
                for row in _all_rows(kept)
            ]
    return Fitted(rows, blind=tuple(blind), seen=tuple(seen))


def _before_ranges(constants: Constants) -> Constants:
    """Any ranges: predictions carry some, and errors must not depend on those that an earlier fit made."""
    names = [f"interval_{name}{share}_ratio" for name in RANGED for share in ("", "_95")]
    ends = 1.0, 0.8, 1.2, "ratio", Source.ASSUMED
    rows = [ConstantRow(*ends, name=name, scope="", rows=0, fitted_by=FITTED_BY) for name in names]
    kept = [row for row in constants.rows if not made_by_ranges(row.name)]
    return Constants.of(constants.version, [*kept, *rows, unfitted_spread()])


def open_rows(path: Path) -> list[Row]:
    """The rows of the tiers that may be fitted and scored."""
    return [row for row in read_rows(path) if text(row, "tier") in TIERS]


def seen_rows(half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[Seen]:
    """What these rows show together: model, accelerator and software, by whom, in which folds."""
    found: dict[tuple[str, str, str], tuple[set[str], set[str]]] = {}
    for row in rows:
        key = _identity(half, row, catalog, constants)
        if key:
            sources, folds = found.setdefault(key, (set(), set()))
            sources.add(text(row, "source"))
            folds.add(fold_of(row).partition("=")[2])
    return [
        Seen(half, *key, tuple(sorted(sources)), tuple(sorted(folds)))
        for key, (sources, folds) in sorted(found.items())
    ]


def _identity(half: Half, row: Row, catalog: Catalog, constants: Constants) -> tuple[str, str, str] | None:
    try:
        if half == "inference":
            case = read_case(row, catalog, constants)
            software = f"{case.engine} {engine_software(case.engine).era_of(case.version)}".strip()
            return case.model.name, case.accelerator.name, software
        accelerator = catalog.benchmark_accelerator(text(row, "gpu"))
    except TwofoldError:
        return None
    software = software_family(text(row, "framework"), text(row, "precision") or "bf16")
    return seen_model(row, catalog), accelerator.name, software


def unseen_errors(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known
) -> dict[str, Errors]:
    """Errors of every figure on rows whose configuration, and whose source, the constants never saw."""
    gathered: dict[str, list[tuple[float, Mapping[str, str], str, str, int]]] = {}
    for hidden_of in (fold_of, source_of):
        answers = predict_blind(half, rows, catalog, constants, hidden_of, ALL, known)
        for place, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            figures = _figures(half, row)
            if not figures or answer["pred_error"]:
                continue
            scope = dict(read_scope(answer["pred_group"]))
            whose = text(row, "source"), fold_of(row).partition("=")[2], place
            for name, kind, measured in figures:
                predicted = number(answer, f"pred_{name}")
                if kind == "memory":  # the states in it are counted: the rest is what can be off
                    counted = number(answer, "pred_states_gib") or 0.0
                    predicted = predicted and predicted - counted
                    measured = max(measured - counted, LEAST_REST * measured)
                if predicted:
                    told = {**scope, "metric": name.split("_")[0]} if kind == "serving" else scope
                    entry = (float(np.log(measured / predicted)), told, *whose)
                    gathered.setdefault(kind, []).append(entry)
    return {kind: _errors(found) for kind, found in gathered.items()}


def _figures(half: Half, row: Row) -> list[tuple[str, str, float]]:
    """(predicted column, kind of figure, measured value)."""
    if half == "inference":
        told = (*measured_figures(half, row), *answer_figures(row))
        return [(name, "serving", value) for name, value in told]
    columns = (("step_time_s", "step"), ("peak_mem_gib", "memory"))
    return [(name, kind, value) for name, kind in columns if (value := number(row, name))]


def answer_figures(row: Row) -> list[tuple[str, float]]:
    """(predicted metric, measured value) of whole answers: sums of what is fitted, so never fitted."""
    figures = ((name, number(row, name)) for name in ("e2e_p50_ms", "e2e_p99_ms"))
    return [(name, value) for name, value in figures if value]


def _errors(found: Sequence[tuple[float, Mapping[str, str], str, str, int]]) -> Errors:
    log, scope, source, fold, row = zip(*found, strict=True)
    return Errors(np.array(log), tuple(scope), np.array(source), np.array(fold), np.array(row))


def _hidings(errors: Mapping[str, Errors]) -> Iterator[tuple[str, dict[str, Errors]]]:
    """The errors without each source, and without each fold: what ranges stand on that are to hold these."""
    sources = sorted({str(each) for found in errors.values() for each in np.unique(found.source)})
    for name in sources:
        yield f"source={name}", {kind: each.kept(each.source != name) for kind, each in errors.items()}
    for fold in range(FOLD_COUNT):
        yield f"fold={fold}", {kind: each.kept(each.fold != str(fold)) for kind, each in errors.items()}


def _all_rows(errors: Mapping[str, Errors]) -> list[ConstantRow]:
    rows: list[ConstantRow] = []
    for kind, found in errors.items():
        if not found.log.size:
            continue
        if kind == "serving":
            metrics = np.array([each["metric"] for each in found.scope])
            for metric in np.unique(metrics):
                part = found.kept(metrics == metric)
                rows += interval_rows("serving", part, CHAINS[kind], {"metric": str(metric)})
        else:
            rows += interval_rows(f"training_{kind}", found, CHAINS[kind], {})
    return rows + spread_rows(rows)


def spread_rows(rows: Sequence[ConstantRow]) -> list[ConstantRow]:
    """The upper ends of memory ranges, as the factors by which a layout must fit.

    By software those of a model that nobody measured with it, which are the widest; without a row of its own
    a software takes the widest of all.
    """
    found = [row for row in rows if row.name == "interval_training_memory_ratio"]
    if not found:
        return []
    out = {"": max(found, key=lambda row: row.high)}
    for row in found:
        software = dict(read_scope(row.scope)).get("software")
        if software and row.high >= getattr(out.get(f"software={software}"), "high", 0.0):
            out[f"software={software}"] = row
    return [replace(row, name=SPREAD, scope=scope, value=row.high, low=1.0) for scope, row in out.items()]


def interval_rows(
    name: str, errors: Errors, chain: Sequence[str], always: Mapping[str, str]
) -> list[ConstantRow]:
    """The ranges of one figure, in every group that has errors enough, from all rows to the narrowest.

    Formula  quantiles of log(measured / predicted) at the shares of `ENDS`, every source with the same weight
    Why      Split-conformal: a further row of a group falls between quantiles as often as those seen did.
    Source   Vovk et al. 2005; Lei et al. 2018, distribution-free predictive inference.
    Limits   A group of fewer than 30 rows takes its parent's. What is less known is never narrower (INV-19):
             every group of a surer class has its row in the others, with the wider of both ends.
    """
    kind = name.partition("_")[2]
    rows: list[ConstantRow] = []
    for share in ("", "_95"):
        ends = ENDS.get((kind, share), ENDS["", share])
        full = f"interval_{name}{share}_ratio"
        rows.append(_row(full, always, quantiles(errors, ends), errors))
        surer: dict[Path_, Ends] = {}
        for known in CLASSES:
            of_class = np.array([each["known"] == known for each in errors.scope], bool)
            own = dict(groups(errors.kept(of_class), chain, known))
            wide: dict[Path_, Ends] = {}
            for path in sorted({*own, *surer}):
                found = _nearest(own, path)
                mine = [quantiles(found, ends)] if found else []
                before = _nearest(surer, path)
                both = [*mine, *([before] if before else [])]
                wide[path] = min(low for low, _ in both), max(high for _, high in both)
                scope = {**always, "known": known, **dict(zip(chain, path, strict=False))}
                rows.append(_row(full, scope, wide[path], found or errors))
            surer = wide
    return rows


def _nearest(found: Mapping[Path_, T], path: Path_) -> T | None:
    """What holds at `path`: its own, or that of the longest beginning of it."""
    held = (found.get(path[:length]) for length in range(len(path), -1, -1))
    return next((each for each in held if each is not None), None)


def groups(errors: Errors, chain: Sequence[str], known: str) -> Iterator[tuple[tuple[str, ...], Errors]]:
    """Every prefix of the chain's values that holds errors enough; the empty one first."""
    for length in range(len(chain) + 1):
        paths = [tuple(each[key] for key in chain[:length]) for each in errors.scope]
        for path in sorted(set(paths)):
            found = errors.kept(np.array([each == path for each in paths], bool))
            sources = np.unique(found.source).size
            if found.row_count >= FEWEST_ROWS and (known == "near" or sources >= FEWEST_SOURCES):
                yield path, found


def _row(name: str, scope: Mapping[str, str], ends: tuple[float, float], errors: Errors) -> ConstantRow:
    return ConstantRow(
        name=name,
        scope=format_scope(scope),
        value=1.0,
        low=float(np.exp(min(ends[0], -NARROWEST))),
        high=float(np.exp(max(ends[1], NARROWEST))),
        unit="ratio",
        source=Source.FITTED,
        rows=errors.row_count,
        fitted_by=FITTED_BY,
        note=" ".join(np.unique(errors.source)),
    )


def quantiles(errors: Errors, shares: Ends) -> Ends:
    """Two quantiles of errors."""
    return weighted_quantiles(errors.log, errors.source, shares, errors.row_count)


def weighted_quantiles(
    values: NDArray[np.float64], source: NDArray[np.str_], shares: Ends, row_count: int
) -> Ends:
    """Two quantiles, every source with the same weight, and conformal's one row more at either end."""
    names, place, counts = np.unique(source, return_inverse=True, return_counts=True)
    weight = (1.0 / counts / names.size)[place]
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) - weight[order] / 2
    margin = 1.0 / (row_count + 1)
    ends = np.clip([shares[0] - margin, shares[1] + margin], 0.0, 1.0)
    low, high = np.interp(ends, reached, values[order])
    return float(low), float(high)
