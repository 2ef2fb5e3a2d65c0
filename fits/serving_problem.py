"""The serving rows that a fit reads, priced by the engine constants it tries, with slopes by constant.

Every engine field of a row comes from one constant, so that one pass with each field moved a little gives the
slopes of all figures by all constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fits.training_truth import thin
from twofold.catalog.catalog import Catalog
from twofold.inference.replica import Engine
from twofold.measure.inference_rows import Case, read_cases
from twofold.measure.predict_inference import Batch, batches, best_layouts, price_batch
from twofold.measure.truth import METRICS, Row, measured_figures, number, source_of, text
from twofold.perf.constants import Constants
from twofold.perf.shape import model_kind
from twofold.perf.software import engine_software

Array = NDArray[np.float64]
Key = tuple[str, str]  # name and scope of a constant
FITTED_TIERS = ("A", "B")
SOURCE_WEIGHT = 30.0  # rows that each source counts as, however many: priors hold where few agree
ROWS_PER_SOURCE = 150  # taken evenly from larger ones
ASSUMED_SHARE, OPEN_LAYOUT_SHARE = 0.5, 0.2  # of the weight, where a row leaves out lengths, or the layout
STEP = 0.1  # in the logarithm, for slopes: prices rise in stairs (chunks, whole steps), which it must span
WORST = 4.0  # largest log error that a figure may show
ENGINE_FIELDS = tuple(field.name for field in fields(Engine) if field.name not in ("name", "era"))


@dataclass(frozen=True, slots=True)
class Targets:
    """What was measured: for each figure its case, its metric, its logarithm, its source and weight."""

    place: NDArray[np.intp]
    metric: NDArray[np.str_]  # as predicted
    log_measured: Array
    source: NDArray[np.str_]
    weight: Array


@dataclass(frozen=True, slots=True)
class Problem:
    """The rows to fit, grouped once; only engine constants change between evaluations."""

    rows: tuple[Row, ...]
    cases: tuple[Case, ...]
    groups: tuple[Batch, ...]
    targets: Targets
    keys: tuple[Key, ...]  # the constants that are free
    used: NDArray[np.intp]  # [case, engine field]: which of them, −1 where a fixed one is


def read_problem(rows: Sequence[Row], catalog: Catalog, constants: Constants, keys: Sequence[Key]) -> Problem:
    """Rows of the tiers that may be fitted, thinned; open layouts are settled once, by the priors."""
    told = [row for row in rows if text(row, "tier") in FITTED_TIERS and measured_figures("inference", row)]
    thinned = thin(told, ROWS_PER_SOURCE)
    read, _ = read_cases(thinned, catalog, constants)
    kept = [thinned[place] for place in read]
    settled = best_layouts([*read.values()], constants)
    cases = [_at_its_batch(row, case) for row, (case, *_) in zip(kept, settled, strict=True)]
    return _problem(kept, cases, constants, tuple(keys))


def _at_its_batch(row: Row, case: Case) -> Case:
    """A row of random arrivals at the batch that its measured TPOT implies, by Little's law.

    Near saturation a small error of a step is a large one of TPOT at a given rate: it would drown the rest.
    """
    measured_ms = number(row, "tpot_mean_ms") or number(row, "tpot_p50_ms")
    if case.kind != "open" or not measured_ms:
        return case
    running = 1.0 + case.rate_per_s / case.replicas * case.output_tokens * measured_ms / 1e3
    return replace(case, kind="closed", fixed_batch=True, concurrency=running * case.replicas)


def _problem(rows: list[Row], cases: list[Case], constants: Constants, keys: tuple[Key, ...]) -> Problem:
    return Problem(
        rows=tuple(rows),
        cases=tuple(cases),
        groups=tuple(batches(cases, constants)),
        targets=_targets(rows, cases),
        keys=keys,
        used=_used(cases, keys, constants),
    )


def _targets(rows: Sequence[Row], cases: Sequence[Case]) -> Targets:
    found: list[tuple[int, str, float, str, float]] = []
    for place, (row, case) in enumerate(zip(rows, cases, strict=True)):
        for metric, value in measured_figures("inference", row):
            share = 1.0
            if case.assumed:
                share = OPEN_LAYOUT_SHARE if "layout" in case.assumed else ASSUMED_SHARE
            found.append((place, metric, float(np.log(value)), source_of(row), share))
    columns = [np.array(column) for column in zip(*found, strict=True)]
    sources = columns[3]
    totals = {each: float(np.sum(sources == each)) for each in np.unique(sources)}
    weight = columns[4] * SOURCE_WEIGHT / np.array([totals[each] for each in sources])
    return Targets(columns[0], columns[1], columns[2], sources, weight)


def columns_of(cases: Sequence[Case], scopes: Sequence[Key]) -> dict[str, NDArray[np.intp]]:
    """By name of a constant, which of `scopes` (name, scope) each case reads: the narrowest that fits it."""
    places: dict[str, list[tuple[frozenset[str], int]]] = {}
    for place, (name, scope) in enumerate(scopes):
        places.setdefault(name, []).append((frozenset(filter(None, scope.split(";"))), place))
    asked = [_asked(case) for case in cases]
    narrowest = {
        (name, told): max((len(scope), place) for scope, place in found if scope <= told)[1]
        for name, found in places.items()
        for told in set(asked)
        if any(scope <= told for scope, _ in found)
    }
    return {
        name: np.array([narrowest[name, told] for told in asked], dtype=np.intp)
        for name in places
        if all((name, told) in narrowest for told in set(asked))
    }


def _asked(case: Case) -> frozenset[str]:
    """What the constants of a case depend on."""
    asked = {
        "engine": case.engine,
        "era": engine_software(case.engine).era_of(case.version),
        "family": case.accelerator.family,
        "model": model_kind(case.model),
        "format": case.weights_format,
    }
    return frozenset(f"{key}={value}" for key, value in asked.items())


def _used(cases: Sequence[Case], keys: tuple[Key, ...], constants: Constants) -> NDArray[np.intp]:
    """Which free constant each engine field of each case reads: the narrowest of its name."""
    scopes = [(row.name, row.scope) for row in constants.rows]
    index = {key: place for place, key in enumerate(keys)}
    free = np.array([index.get(scope, -1) for scope in scopes], dtype=np.intp)
    columns = columns_of(cases, scopes)
    return np.array([free[columns[f"serving_{name}"]] for name in ENGINE_FIELDS]).T.reshape(
        len(cases), len(ENGINE_FIELDS)
    )


def log_errors(problem: Problem, logs: Array) -> Array:
    """log(predicted / measured) of every figure, 0 where a model does not fit."""
    error: Array = _priced(problem, logs[None, :], slopes=False)[0][0]
    return error


def log_errors_with_slopes(problem: Problem, trials: Array) -> tuple[Array, Array]:
    """The same for several trials, and [trial, figure, constant] what each constant's logarithm moves."""
    return _priced(problem, trials, slopes=True)


def _priced(problem: Problem, trials: Array, slopes: bool) -> tuple[Array, Array]:
    moved = 1 + (len(ENGINE_FIELDS) if slopes else 0)
    log = {name: np.full((len(trials), moved, len(problem.cases)), np.nan) for name in METRICS["inference"]}
    for group in problem.groups:
        free = _free_fields(group, problem) if slopes else []
        held = _moved_engine(group, problem, trials, free)
        prices = price_batch(replace(group, replica=replace(group.replica, engine=held)))
        rows = [0, *(1 + column for column in free)]
        shape = (len(trials), len(rows), group.places.size)
        for name, price in prices.items():
            value = np.log(np.maximum(np.broadcast_to(price, (shape[0] * shape[1], shape[2])), 1e-9))
            value = value.reshape(shape)
            log[name][:, :, group.places] = value[:, :1]  # what a field does not move
            log[name][np.ix_(np.arange(shape[0]), np.array(rows), group.places)] = value
    targets = problem.targets
    predicted = np.empty((len(trials), moved, targets.place.size))
    for name, column in log.items():
        chosen = targets.metric == name
        predicted[..., chosen] = column[..., targets.place[chosen]]
    error = predicted[:, 0] - targets.log_measured
    valid = np.isfinite(error)
    slope = np.zeros((len(trials), targets.place.size, len(problem.keys)))
    for field in range(moved - 1):
        rise = np.where(valid, (predicted[:, 1 + field] - predicted[:, 0]) / STEP, 0.0)
        key = problem.used[targets.place, field]
        free_figures = np.flatnonzero(key >= 0)  # each of another figure: no pair twice
        slope[:, free_figures, key[free_figures]] += rise[:, free_figures]
    return np.where(valid, np.clip(error, -WORST, WORST), 0.0), slope


def _free_fields(group: Batch, problem: Problem) -> list[int]:
    used = problem.used[group.places]
    idle = ("host_moe_layer_s", "expert_read_gain", "expert_pad_factor", "moe_factor")
    plain = not group.cases[0].is_moe  # dense models read nothing of experts
    return [
        column
        for column, name in enumerate(ENGINE_FIELDS)
        if np.any(used[:, column] >= 0) and not (plain and name in idle)
    ]


def _moved_engine(group: Batch, problem: Problem, trials: Array, free: list[int]) -> Engine:
    """The group's engine on a first axis: each trial as it is, then with each of its `free` fields moved."""
    used = problem.used[group.places]  # [case, field]
    values: dict[str, Any] = {}
    for column, name in enumerate(ENGINE_FIELDS):
        own = used[:, column]
        told = np.asarray(getattr(group.replica.engine, name), float)
        at = np.where(own >= 0, np.exp(trials[:, np.maximum(own, 0)]), told)  # [trial, case]
        rows = np.repeat(at[:, None, :], 1 + len(free), axis=1)
        if column in free:
            rows[:, 1 + free.index(column)] *= np.where(own >= 0, np.exp(STEP), 1.0)
        values[name] = rows.reshape(-1, own.size)
    return replace(group.replica.engine, **values)
