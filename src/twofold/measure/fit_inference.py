"""Fit what serving engines add to the kernels: host times by engine and era, eager floors, a few factors.

Kernel efficiencies stay pinned. Everything is in logarithms: a robust loss on log(predicted / measured) with
equal weight per source, and a ridge that pulls each constant to its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Catalog, load_catalog
from twofold.core import Source, TwofoldError
from twofold.inference import Engine, model_kind
from twofold.measure.inference_rows import Case, read_case
from twofold.measure.left_out import Fitted, LeftOut, left_out_errors
from twofold.measure.predict_inference import (
    Batch,
    batches,
    best_layouts,
    case_engine,
    price_batch,
)
from twofold.measure.truth import Row, number, read_rows
from twofold.perf import ConstantRow, Constants, with_rows

Array = NDArray[np.float64]
FITTED_BY = "inference"
FITTED_TIERS = ("A", "B")
SOURCE_WEIGHT = 60.0  # rows that each source counts as, however many it has
ASSUMED_SHARE, OPEN_LAYOUT_SHARE = 0.5, 0.2  # of the weight, where a row leaves out lengths, or the layout
METRIC_WEIGHT = {"tpot": 1.0, "output": 1.0, "ttft": 0.4}
NOISE = 0.2  # log error of a good row: beyond it the loss turns from square to linear
ROUNDS = 6
LOWER, UPPER = np.log(0.05), np.log(20.0)  # how far a fit may leave its prior

# (name, scope): value, and the factor that its range spans either way. What no row can tell stays here. The
# scopes of one name form a tree, so that no question has two equally narrow answers.
PRIORS: dict[tuple[str, str], tuple[float, float]] = {
    ("serving_host_step_s", ""): (0.6e-3, 3.0),
    ("serving_host_step_s", "engine=vllm"): (0.6e-3, 2.0),
    ("serving_host_step_s", "engine=trtllm"): (0.6e-3, 2.0),
    ("serving_host_step_s", "engine=sglang"): (0.6e-3, 2.0),
    ("serving_host_layer_s", ""): (5e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm"): (5e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.3-"): (300e-6, 2.0),
    ("serving_host_layer_s", "engine=vllm;era=2024"): (40e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.4+"): (40e-6, 3.0),
    ("serving_host_layer_s", "engine=vllm;era=0.8+"): (20e-6, 4.0),
    ("serving_host_layer_s", "engine=vllm;era=0.12+"): (5e-6, 3.0),
    ("serving_host_layer_s", "engine=trtllm"): (5e-6, 3.0),
    ("serving_host_layer_s", "engine=trtllm;era=0.9-"): (40e-6, 4.0),
    ("serving_host_layer_s", "engine=trtllm;era=0.10+"): (15e-6, 4.0),
    ("serving_host_layer_s", "engine=sglang"): (5e-6, 3.0),
    ("serving_host_moe_layer_s", ""): (15e-6, 3.0),
    ("serving_host_moe_layer_s", "engine=vllm"): (30e-6, 3.0),
    ("serving_host_moe_layer_s", "engine=trtllm"): (15e-6, 3.0),
    ("serving_host_moe_layer_s", "engine=sglang"): (15e-6, 3.0),
    ("serving_host_sequence_s", ""): (8e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm"): (8e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.3-"): (40e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=2024"): (40e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.4+"): (40e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.8+"): (30e-6, 3.0),
    ("serving_host_sequence_s", "engine=vllm;era=0.12+"): (5e-6, 3.0),
    ("serving_host_sequence_s", "engine=trtllm"): (8e-6, 3.0),
    ("serving_host_sequence_s", "engine=sglang"): (8e-6, 3.0),
    ("serving_prefill_layer_s", ""): (300e-6, 3.0),
    ("serving_prefill_layer_s", "model=moe"): (500e-6, 3.0),
    ("serving_prefill_layer_s", "model=mla"): (1000e-6, 3.0),
    ("serving_prefill_factor", ""): (1.1, 1.2),
    ("serving_prefill_factor", "model=moe"): (1.2, 1.3),
    ("serving_prefill_factor", "format=mxfp4;model=moe"): (1.5, 1.3),
    ("serving_prefill_factor", "model=mla"): (1.4, 1.3),
    ("serving_launch_factor", ""): (0.6, 1.5),
    ("serving_launch_factor", "engine=vllm"): (0.6, 1.3),
    ("serving_launch_factor", "engine=trtllm"): (0.5, 1.3),
    ("serving_launch_factor", "engine=sglang"): (0.6, 1.3),
    ("serving_expert_read_gain", ""): (1.1, 1.15),
    ("serving_expert_read_gain", "format=mxfp4"): (1.3, 1.2),
    ("serving_expert_read_gain", "family=hopper;format=mxfp4"): (1.4, 1.2),
    ("serving_expert_pad_factor", ""): (0.6, 1.4),
    ("serving_expert_pad_factor", "format=mxfp4"): (0.4, 1.6),
    ("serving_weight_read_gain", ""): (1.0, 1.05),
    ("serving_weight_read_gain", "format=fp8"): (1.25, 1.15),
    ("serving_weight_read_gain", "engine=trtllm;format=fp8"): (1.4, 1.15),
    ("serving_weight_read_gain", "format=fp8_block"): (1.2, 1.15),
    ("serving_weight_read_gain", "format=nvfp4"): (1.25, 1.15),
    ("serving_device_factor", ""): (1.0, 1.02),
    ("serving_device_factor", "family=cdna3"): (1.0, 1.3),
    ("serving_device_factor", "engine=vllm;era=2024;family=cdna3"): (1.5, 1.5),
    ("serving_attention_factor", ""): (1.0, 1.2),
    ("serving_attention_factor", "model=mla"): (1.0, 1.5),
    ("serving_moe_factor", ""): (1.0, 1.1),
    ("serving_communication_factor", ""): (1.0, 1.3),
    ("serving_communication_factor", "family=ampere"): (1.0, 1.3),
    ("serving_communication_factor", "family=hopper"): (1.0, 1.3),
    ("serving_communication_factor", "family=blackwell"): (1.0, 1.3),
    ("serving_communication_factor", "family=cdna3"): (1.2, 1.5),
    ("serving_communication_factor", "engine=vllm;era=0.3-"): (1.3, 1.5),
    ("serving_communication_factor", "engine=vllm;era=2024"): (1.5, 1.5),
    ("serving_first_token_s", ""): (15e-3, 4.0),
    ("serving_first_token_s", "engine=vllm"): (15e-3, 4.0),
    ("serving_first_token_s", "engine=trtllm"): (15e-3, 4.0),
    ("serving_first_token_s", "engine=trtllm;model=mla"): (50e-3, 3.0),
    ("serving_first_token_s", "engine=sglang"): (30e-3, 4.0),
    ("serving_first_token_s", "engine=sglang;model=mla"): (60e-3, 3.0),
    ("serving_first_token_steps", ""): (0.5, 4.0),
    ("serving_first_token_steps", "engine=trtllm"): (3.0, 4.0),
}
# Not fitted: how engines divide memory. vLLM's share holds weights, buffers and cache; TensorRT-LLM takes
# most of what weights leave; SGLang leaves buffers outside its static share.
FIXED = {
    ("serving_memory_fraction", ""): (0.9, 1.05),
    ("serving_memory_fraction", "engine=trtllm"): (0.97, 1.03),
    ("serving_memory_fraction", "engine=sglang"): (0.92, 1.04),
}
UNITS = {
    "_s": "s",
    "_factor": "ratio",
    "_gain": "ratio",
    "_fraction": "fraction",
    "_steps": "count",
    "_low": "ratio",
    "_high": "ratio",
}


def prior_rows() -> list[ConstantRow]:
    """The constants before any fit: physics and published leads, marked assumed."""
    return [
        ConstantRow(
            name=name,
            scope=scope,
            value=value,
            low=value / spread,
            high=value * spread,
            unit=unit_of(name),
            source=Source.ASSUMED,
            rows=0,
            fitted_by=FITTED_BY,
            note="prior",
        )
        for (name, scope), (value, spread) in {**PRIORS, **FIXED}.items()
    ]


def unit_of(name: str) -> str:
    """The unit that a constant's name ends in."""
    return next(unit for ending, unit in UNITS.items() if name.endswith(ending))


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

    cases: tuple[Case, ...]
    groups: tuple[Batch, ...]
    targets: Targets
    keys: tuple[tuple[str, str], ...]  # the constants that are free


def fit(truth: Path, constants: Constants) -> Fitted:
    """The engine constants fitted on the open rows, with ranges from the spread between sources left out."""
    constants = from_priors(constants)
    problem = read_problem(read_rows(truth / "inference.csv"), load_catalog(), constants)
    logs = solve(problem, constants, problem.targets.weight)
    left_out = leave_one_source_out(problem, constants)
    unseen = held_out_errors(problem, constants, left_out)
    fitted = _constant_rows(problem, logs, np.array(list(left_out.values())))
    fixed = [row for row in prior_rows() if (row.name, row.scope) in FIXED]
    return Fitted([*fitted, *fixed], left_out_lines(problem, unseen))


def left_out_lines(problem: Problem, error: Array) -> tuple[LeftOut, ...]:
    """The errors of sources left out, by figure, source and kind of model."""
    kinds = np.array([model_kind(problem.cases[place].model) for place in problem.targets.place])
    metric, source = problem.targets.metric, problem.targets.source
    lines: list[LeftOut] = []
    for each in np.unique(metric):
        keys = {(str(s), str(k)) for s, k in zip(source[metric == each], kinds[metric == each], strict=True)}
        groups = {key: error[(metric == each) & (source == key[0]) & (kinds == key[1])] for key in keys}
        lines += left_out_errors("inference", str(each), groups)
    return tuple(lines)


def from_priors(constants: Constants) -> Constants:
    """The constants as before any fit of this module."""
    others = tuple(row for row in constants.rows if row.fitted_by != FITTED_BY)
    return with_rows(replace(constants, rows=others), prior_rows())


def read_problem(rows: Sequence[Row], catalog: Catalog, constants: Constants) -> Problem:
    """Rows of the tiers that may be fitted; open layouts are settled once, by the priors."""
    kept: list[Row] = []
    cases: list[Case] = []
    for row in rows:
        if row.get("tier") in FITTED_TIERS:
            try:
                cases.append(read_case(row, catalog, constants))
            except TwofoldError:
                continue
            kept.append(row)
    keys = tuple(PRIORS)
    cases = [case for case, _ in best_layouts(cases, constants)]
    return Problem(tuple(cases), tuple(batches(cases, constants)), _targets(kept, cases), keys)


def _targets(rows: Sequence[Row], cases: Sequence[Case]) -> Targets:
    found: list[tuple[int, str, float, str, float]] = []
    for place, (row, case) in enumerate(zip(rows, cases, strict=True)):
        for metric, value in measured_figures(row):
            share = METRIC_WEIGHT[metric.split("_")[0]]
            if case.assumed:
                share *= OPEN_LAYOUT_SHARE if "layout" in case.assumed else ASSUMED_SHARE
            found.append((place, metric, float(np.log(value)), row["source"], share))
    columns = [np.array(column) for column in zip(*found, strict=True)]
    sources = columns[3]
    totals = {each: float(np.sum(sources == each)) for each in np.unique(sources)}
    weight = columns[4] * SOURCE_WEIGHT / np.array([totals[each] for each in sources])
    return Targets(columns[0], columns[1], columns[2], sources, weight)


def measured_figures(row: Row) -> list[tuple[str, float]]:
    """(predicted metric, measured value) of a row. A benchmark of ten requests per slot reports means."""
    figures = []
    closed = "uniform" in row.get("isl_dist", "") and row.get("mode") != "online"
    for metric in ("ttft", "tpot"):
        mean, middle = number(row, f"{metric}_mean_ms"), number(row, f"{metric}_p50_ms")
        if mean or middle:
            as_mean = mean or (middle if closed else None)
            figures.append((f"{metric}_mean_ms", as_mean) if as_mean else (f"{metric}_p50_ms", middle))
    throughput = number(row, "output_tok_s")
    paced = row.get("request_rate_rps")  # there the rate that was asked for is what comes out
    if throughput and not paced:
        figures.append(("output_tok_s", throughput))
    return [(name, value) for name, value in figures if value]


def _prior_logs(keys: Sequence[tuple[str, str]]) -> Array:
    return np.array([np.log(PRIORS[key][0]) for key in keys])


def with_logs(constants: Constants, keys: Sequence[tuple[str, str]], logs: Array) -> Constants:
    """The constants with the free ones replaced by their logarithms."""
    return constants.with_overrides({key: float(np.exp(log)) for key, log in zip(keys, logs, strict=True)})


def residuals(problem: Problem, constants: Constants, held: "_Held | None" = None) -> tuple[Array, "_Held"]:
    """log(predicted / measured) of every figure. Groups whose engine stayed the same keep their prices."""
    prices: list[dict[str, Array]] = []
    engines = []
    known: dict[tuple[str, ...], Engine] = {}
    for index, group in enumerate(problem.groups):
        first = group.cases[0]
        key = (
            first.engine,
            first.version,
            first.accelerator.family,
            model_kind(first.model),
            first.weights_format,
        )
        engine = known[key] = known.get(key) or case_engine(first, constants)
        engines.append(engine)
        if held is not None and held.engines[index] == engine:
            prices.append(held.prices[index])
        else:
            prices.append(price_batch(replace(group, replica=replace(group.replica, engine=engine))))
    log = {name: np.full(len(problem.cases), np.nan) for name in prices[0]}
    for group, price in zip(problem.groups, prices, strict=True):
        for name, column in price.items():
            log[name][group.places] = np.log(np.maximum(column, 1e-9))
    targets = problem.targets
    predicted = np.empty(targets.place.size)
    for name, column in log.items():
        chosen = targets.metric == name
        predicted[chosen] = column[targets.place[chosen]]
    error = predicted - targets.log_measured
    return np.where(np.isfinite(error), np.clip(error, -4.0, 4.0), 0.0), _Held(tuple(engines), tuple(prices))


@dataclass(frozen=True, slots=True)
class _Held:
    engines: tuple[object, ...]
    prices: tuple[dict[str, Array], ...]


def solve(problem: Problem, constants: Constants, weight: Array) -> Array:
    """Damped Gauss–Newton from the priors, reweighted each round: the logarithms of the free constants.

    Formula  minimise Σ w·ρ(r/noise) + Σ ((θ − parent's θ − prior ratio)/σ)², ρ soft from square to linear
    Why      A constant that its rows do not tell stays where its parent and its prior put it.
    """
    keys = problem.keys
    prior = _prior_logs(keys)
    ridge, pull = _ridge(keys, prior)
    logs, damping = prior.copy(), 1e-2

    def cost(error: Array, at: Array) -> float:
        soft = 2.0 * (np.sqrt(1.0 + np.square(error / NOISE)) - 1.0)
        return float(np.sum(weight * soft) + np.sum(np.square(ridge @ at - pull)))

    error, held = residuals(problem, with_logs(constants, keys, logs))
    now = cost(error, logs)
    for _ in range(ROUNDS):
        slope = _slopes(problem, constants, logs, error, held)
        row_weight = weight / NOISE**2 / np.sqrt(1.0 + np.square(error / NOISE))
        normal = slope.T @ (slope * row_weight[:, None]) + ridge.T @ ridge
        gradient = slope.T @ (row_weight * error) + ridge.T @ (ridge @ logs - pull)
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            new = np.clip(logs + np.clip(step, -0.7, 0.7), prior + LOWER, prior + UPPER)
            new_error, new_held = residuals(problem, with_logs(constants, keys, new), held)
            after = cost(new_error, new)
            if after < now:
                break
            damping *= 5.0
        if after >= now:
            break
        gain, logs, error, held, now = now - after, new, new_error, new_held, after
        damping = max(damping / 5.0, 1e-4)
        if gain < 3e-3 * now:
            break
    return logs


def _slopes(
    problem: Problem, constants: Constants, logs: Array, error: Array, held: _Held, step: float = 0.02
) -> Array:
    columns = []
    for index in range(logs.size):
        moved = logs.copy()
        moved[index] += step
        columns.append(
            (residuals(problem, with_logs(constants, problem.keys, moved), held)[0] - error) / step
        )
    return np.array(columns).T


def _ridge(keys: Sequence[tuple[str, str]], prior: Array) -> tuple[Array, Array]:
    """Rows of (constant − its parent)/σ, and what the priors put there."""
    index = {key: place for place, key in enumerate(keys)}
    ridge = np.zeros((len(keys), len(keys)))
    for place, (name, scope) in enumerate(keys):
        sigma = np.log(PRIORS[name, scope][1])
        ridge[place, place] = 1.0 / sigma
        parent = _parent(name, scope, index)
        if parent is not None:
            ridge[place, parent] = -1.0 / sigma
    return ridge, ridge @ prior


def _parent(name: str, scope: str, index: dict[tuple[str, str], int]) -> int | None:
    """The row of the same name with the longest scope inside this one."""
    pairs = set(scope.split(";")) if scope else set()
    inside = [
        (len(other), place)
        for (other_name, other), place in index.items()
        if other_name == name and other != scope and set(filter(None, other.split(";"))) < pairs
    ]
    return max(inside)[1] if inside else None


def leave_one_source_out(problem: Problem, constants: Constants) -> dict[str, Array]:
    """A fit from a cold start without each source in turn."""
    targets = problem.targets
    return {
        str(source): solve(problem, constants, np.where(targets.source == source, 0.0, targets.weight))
        for source in np.unique(targets.source)
    }


def held_out_errors(problem: Problem, constants: Constants, left_out: dict[str, Array]) -> Array:
    """Each figure's log error by the fit that never saw its source."""
    error = np.zeros(problem.targets.place.size)
    for source, logs in left_out.items():
        unseen = problem.targets.source == source
        error[unseen] = residuals(problem, with_logs(constants, problem.keys, logs))[0][unseen]
    return error


def _constant_rows(problem: Problem, logs: Array, left_out: Array) -> list[ConstantRow]:
    spread = np.std(left_out, axis=0)
    rows = []
    for index, row in enumerate(prior_rows()[: logs.size]):
        assert (row.name, row.scope) == problem.keys[index]
        value = float(np.exp(logs[index]))
        width = float(np.exp(1.28 * np.hypot(spread[index], 0.05)))
        moved = abs(logs[index] - np.log(row.value)) > 1e-3
        rows.append(
            replace(
                row,
                value=value,
                low=value / width if moved else value / (row.high / row.value),
                high=value * (width if moved else row.high / row.value),
                source=Source.FITTED if moved else Source.ASSUMED,
                rows=problem.targets.place.size if moved else 0,
                note="serving rows, tiers A and B" if moved else "prior",
            )
        )
    return rows
