"""Ranges as wide as errors on sources that no fit saw, grouped by what is known of a row.

Every open row is predicted by constants that never saw its source, as the cluster of somebody new is. The
row is near, made of known parts, or new to what that fit had seen; its error goes to that class. What is
exchangeable is the source, not the row. For steps and serving see `left_out`; memory, whose two ends differ,
takes the spread between sources beside that within one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fits.fitted import Fitted
from fits.left_out import left_out, ranges_of
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import TwofoldError
from twofold.core.estimate import Estimate, Source
from twofold.measure.blind import (
    ALL,
    FOLD_COUNT,
    SPREAD,
    BlindRow,
    fold_of,
    hidden_source,
    made_by_ranges,
    predict_blind,
    unfitted_spread,
)
from twofold.measure.inference_rows import read_case
from twofold.measure.predict_training import seen_model
from twofold.measure.truth import Row, framework_of, measured_figures, number, read_tables, source_of, text
from twofold.perf.constants import ConstantRow, Constants, format_scope, read_scope
from twofold.perf.known import Half, Known, Seen, known_of, student_quantile
from twofold.perf.software import engine_software
from twofold.training.stack import software_family

FITTED_BY = "ranges"
Path_ = tuple[str, ...]  # values of a chain
Ends = tuple[float, float]
Entry = tuple[float, Mapping[str, str], str, str]
T = TypeVar("T")
RANGED = ("training_step", "training_memory", "serving")
TIERS = ("A", "B")
CLASSES = ("near", "parts", "new")  # from surest to least sure
LEAST_REST = 0.02  # of a measured peak: less beside the states is another convention, not memory
FARTHEST_REST = 0.4  # log error of the rest: what is further off holds other states than the row says
FEWEST_ROWS = 30  # fewer do not make a range of their own
FEWEST_SOURCES = 2  # that make a group of its own
POOL_SOURCES = 4  # how many sources a group's parent counts for, in the spread of a group
FEW_ROWS = 5  # of a source: their spread is that of all sources
DECILES_SD = 2.563  # standard deviations between the first and the last decile
NARROWEST = 0.02  # in logarithms: releases of one software differ by as much
# Shares of errors of memory below and above a range. It is one-sided: too little ends a run.
ENDS: Mapping[str, Ends] = {"": (0.1, 0.95), "_95": (0.025, 0.99)}
MEMORY_CHAIN = ("software",)  # what describes a row, from the widest group to the narrowest, below its class
# What tells rows that stray far from those that do not. Kinds of load, of model served, engines and software
# did not on sources left out: docs/ledger/ranges.csv.
CLASSES_OF: Mapping[str, tuple[str, ...]] = {"step": ("arch", "known"), "serving": ("basis", "known")}
TIMES = ("ttft", "tpot")  # of what tokens/s and whole answers are made: their ranges follow
SHARES = (0.8, 0.95)  # held by ranges of 80 and 95 %


@dataclass(frozen=True, slots=True)
class Errors:
    """log(measured / predicted) of one figure, with what was known of each row and whose it is."""

    log: NDArray[np.float64]
    scope: tuple[Mapping[str, str], ...]
    source: NDArray[np.str_]
    fold: NDArray[np.str_]

    def kept(self, rows: NDArray[np.bool_]) -> "Errors":
        """Some of the rows."""
        scope = tuple(each for each, keep in zip(self.scope, rows, strict=True) if keep)
        return Errors(self.log[rows], scope, self.source[rows], self.fold[rows])


def fit(truth: Path, constants: Constants) -> Fitted:
    """The interval rows of both halves, those that miss a source or a fold, and what was seen."""
    catalog, constants = load_catalog(), before_ranges(constants)
    halves: tuple[Half, ...] = ("training", "inference")
    tables = {half: open_rows(truth, half) for half in halves}
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


def before_ranges(constants: Constants) -> Constants:
    """Any ranges: predictions carry some, and errors must not depend on those that an earlier fit made."""
    names = [f"interval_{name}{share}_ratio" for name in RANGED for share in ("", "_95")]
    ends = 1.0, 0.8, 1.2, "ratio", Source.ASSUMED
    rows = [ConstantRow(*ends, name=name, scope="", rows=0, fitted_by=FITTED_BY) for name in names]
    kept = [row for row in constants.rows if not made_by_ranges(row.name)]
    return Constants.of(constants.version, [*kept, *rows, unfitted_spread()])


def open_rows(truth: Path, half: Half) -> list[Row]:
    """The rows of the tiers that may be fitted and scored."""
    return [row for row in read_tables(truth, f"{half}.csv") if text(row, "tier") in TIERS]


def seen_rows(half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[Seen]:
    """What these rows show together: model, accelerator and software, by whom, in which folds."""
    found: dict[tuple[str, str, str, str], tuple[set[str], set[str]]] = {}
    for row in rows:
        for key in _identities(half, row, catalog, constants):
            sources, folds = found.setdefault(key, (set(), set()))
            sources.add(source_of(row))
            folds.add(fold_of(row).partition("=")[2])
    return [
        Seen(half, *key, tuple(sorted(sources)), tuple(sorted(folds)))
        for key, (sources, folds) in sorted(found.items())
    ]


def _identities(
    half: Half, row: Row, catalog: Catalog, constants: Constants
) -> Iterator[tuple[str, str, str, str]]:
    """(figure, model, accelerator, software) of every figure that a row measured."""
    figures = dict.fromkeys(name.split("_")[0] for name, *_ in _figures(half, row))
    try:
        if half == "inference":
            case = read_case(row, catalog, constants)
            software = f"{case.engine} {engine_software(case.engine).era_of(case.version)}".strip()
            for metric in figures:
                yield f"{metric} {case.kind}", case.model.name, case.accelerator.name, software
            return
        accelerator = catalog.benchmark_accelerator(text(row, "gpu"))
    except TwofoldError:
        return
    software = software_family(framework_of(row), text(row, "precision") or "bf16")
    for _, kind, _ in _figures(half, row):
        yield kind, seen_model(row, catalog), accelerator.name, software


def unseen_errors(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known
) -> dict[str, Errors]:
    """Errors of every figure on rows whose source the constants never saw."""
    return errors_of(half, rows, predict_blind(half, rows, catalog, constants, hidden_source, ALL, known))


def errors_of(half: Half, rows: Sequence[Row], answers: Sequence[Row]) -> dict[str, Errors]:
    """Errors of every figure by the answers to the rows that measured it."""
    gathered: dict[str, list[Entry]] = {}
    for row, answer in zip(rows, answers, strict=True):
        figures = _figures(half, row)
        if not figures or answer["pred_error"]:
            continue
        scope = dict(read_scope(answer["pred_group"]))
        whose = source_of(row), fold_of(row).partition("=")[2]
        for name, kind, measured in figures:
            predicted = number(answer, f"pred_{name}")
            if kind == "memory":  # the states in it are counted: the rest is what can be off
                counted = number(answer, "pred_states_gib") or 0.0
                predicted = predicted and predicted - counted
                measured = max(measured - counted, LEAST_REST * measured)
            if predicted:
                figure = name.split("_")[0] if kind == "serving" else kind
                near = figure in scope.get("near", "").split("+")
                far = "parts" if scope["known"] == "near" else scope["known"]
                told = {**scope, "metric": figure, "known": "near" if near else far}
                log = float(np.log(measured / predicted))
                log = float(np.clip(log, -FARTHEST_REST, FARTHEST_REST)) if kind == "memory" else log
                gathered.setdefault(kind, []).append((log, told, *whose))
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


def _errors(found: Sequence[Entry]) -> Errors:
    log, scope, source, fold = zip(*found, strict=True)
    return Errors(np.array(log), tuple(scope), np.array(source), np.array(fold))


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
        if kind == "memory":
            rows += memory_rows(found)
        elif kind == "step":
            rows += left_out_rows("training_step", found, CLASSES_OF[kind], {})
        else:
            metrics = np.array([each["metric"] for each in found.scope])
            for metric in TIMES:
                part = found.kept(metrics == metric)
                rows += left_out_rows("serving", part, CLASSES_OF[kind], {"metric": metric})
    return rows + spread_rows(rows)


def left_out_rows(
    name: str, errors: Errors, keys: Sequence[str], always: Mapping[str, str]
) -> list[ConstantRow]:
    """The ranges of one figure in every class of these keys, and of all rows."""
    left = left_out(errors.log, errors.scope, errors.source, keys)
    return [
        _row(f"interval_{name}{share}_ratio", {**always, **classes}, ends, errors)
        for classes, found in ranges_of(left, SHARES)
        for share, ends in zip(("", "_95"), found, strict=True)
    ]


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


def memory_rows(errors: Errors, chain: Sequence[str] = MEMORY_CHAIN) -> list[ConstantRow]:
    """The ranges of memory, in every group that has sources enough, from all rows to the narrowest.

    Why      What is less known is never narrower (INV-19): every group of a surer class has its row in the
             others, with the wider of both ends.
    Limits   A group of fewer than 30 rows or 2 sources takes its parent's.
    """
    rows: list[ConstantRow] = []
    for share, ends in ENDS.items():
        full = f"interval_training_memory{share}_ratio"
        whole = spread_of(errors)
        rows.append(_row(full, {}, whole.ends(ends), errors))
        surer: dict[Path_, Ends] = {}
        for known in CLASSES:
            of_class = errors.kept(np.array([each["known"] == known for each in errors.scope], bool))
            own: dict[Path_, tuple[Spread, Errors]] = {(): (spread_of(of_class, whole), of_class)}
            for path, found in groups(of_class, chain):
                parent = _nearest(own, path[:-1])
                own[path] = spread_of(found, parent[0] if parent else whole), found
            wide: dict[Path_, Ends] = {}
            for path in sorted({*own, *surer}):
                spread, found = _nearest(own, path) or own[()]
                before = _nearest(surer, path)
                both = [spread.ends(ends), *([before] if before else [])]
                wide[path] = min(low for low, _ in both), max(high for _, high in both)
                scope = {"known": known, **dict(zip(chain, path, strict=False))}
                rows.append(_row(full, scope, wide[path], found if found.log.size else errors))
            surer = wide
    return rows


def _nearest(found: Mapping[Path_, T], path: Path_) -> T | None:
    """What holds at `path`: its own, or that of the longest beginning of it."""
    held = (found.get(path[:length]) for length in range(len(path), -1, -1))
    return next((each for each in held if each is not None), None)


def groups(errors: Errors, chain: Sequence[str]) -> Iterator[tuple[Path_, Errors]]:
    """Every prefix of the chain's values that holds rows and sources enough, the shorter ones first."""
    for length in range(1, len(chain) + 1):
        paths = [tuple(each[key] for key in chain[:length]) for each in errors.scope]
        for path in sorted(set(paths)):
            found = errors.kept(np.array([each == path for each in paths], bool))
            if found.log.size >= FEWEST_ROWS and np.unique(found.source).size >= FEWEST_SOURCES:
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
        rows=int(errors.log.size),
        fitted_by=FITTED_BY,
        note=" ".join(np.unique(errors.source)),
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of a group as random effects: of sources about the group, of rows about their source."""

    middle: float
    between: float  # variance
    within: float  # variance
    sources: float  # that it rests on, with those that its parent counts for

    def ends(self, shares: Ends) -> Ends:
        """Where the error of a row of a further source lies, in logarithms.

        Formula  μ + t(share; sources − 1)·√(τ²·(1 + 1/sources) + σ²)
        Source   prediction interval of a one-way random-effects model; Higgins, Thompson & Spiegelhalter 2009
        """
        spread = float(np.sqrt(self.between * (1 + 1 / self.sources) + self.within))
        freedom = max(round(self.sources) - 1, 1)
        low, high = (
            np.sign(share - 0.5) * student_quantile(max(share, 1 - share), freedom) for share in shares
        )
        return self.middle + float(low) * spread, self.middle + float(high) * spread


def spread_of(errors: Errors, parent: Spread | None = None) -> Spread:
    """The spread of a group of errors, shrunk to that of its parent.

    Formula  medians m of the J sources and their deviations s, from their deciles: μ = (Σm + k·μ₀)/(J + k),
             τ² = (Σ(m − μ)² + k·τ₀²)/(J − 1 + k), σ = (Σs + k·σ₀)/(J + k), k sources of the parent
    Why      Medians and deciles, because single runs that something else delayed must not widen every range.
    """
    names = np.unique(errors.source)
    if not names.size and parent:
        return parent
    each = [errors.log[errors.source == name] for name in names]
    middles = np.array([np.median(logs) for logs in each])
    own = [(np.quantile(logs, 0.9) - np.quantile(logs, 0.1)) / DECILES_SD for logs in each]
    told = [deviation for deviation, logs in zip(own, each, strict=True) if logs.size >= FEW_ROWS]
    pool = POOL_SOURCES if parent else 0
    before = parent or Spread(0.0, 0.0, 0.0, 0.0)
    count = names.size + pool
    middle = (float(np.sum(middles)) + pool * before.middle) / count
    about = float(np.sum(np.square(middles - middle)))
    between = (about + pool * before.between) / max(count - 1, 1)
    within = ((float(np.sum(told)) + pool * before.within**0.5) / max(len(told) + pool, 1)) ** 2
    return Spread(middle, between, within, count)
