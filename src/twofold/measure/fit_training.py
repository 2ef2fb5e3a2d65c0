"""Fit what training software adds to the kernels: overlap, fusion, host time, fabrics, memory, and ranges.

Kernel efficiencies stay as the kernel tables fixed them. A fit minimises a robust loss of log(predicted /
measured) over rows of tiers A and B, every source with the same weight, with a ridge toward the priors of
`training_priors.csv`.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Catalog, load_catalog
from twofold.core import Source
from twofold.measure.left_out import Fitted, left_out_errors
from twofold.measure.memory_figures import counter, printed
from twofold.measure.predict_training import Group, choose, evaluate, group_entries, read_all
from twofold.measure.truth import Row, number, read_rows, text
from twofold.perf import Cluster, ConstantRow, Constants, Network, build_constants, device, network
from twofold.training import (
    Stack,
    software_family,
    workload_memory,
    workload_step_time,
)

FITTED_BY = "training"
NOISE = 0.10  # log error of a row that the model explains: software releases differ by that much
EFFECTIVE_ROWS = 12  # a source counts for at most this many rows
ROWS_PER_SOURCE = 160  # taken evenly from larger sources; more change no digit that matters
STEPS = 12  # Gauss-Newton iterations
FABRIC = "fabric_efficiency_fraction"
SPREAD = "training_memory_spread_factor"

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prior:
    """One constant before the fit, with physical bounds; `fitted` says by which fit, if any."""

    name: str
    scope: str
    value: float
    low: float
    high: float
    unit: str
    fitted: str  # yes memory interval no
    note: str

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The scope as a set of key-value pairs."""
        parts = (part.partition("=") for part in self.scope.split(";") if part)
        return frozenset((key, value) for key, _, value in parts)


@dataclass(frozen=True, slots=True)
class Truth:
    """Measured rows as groups of entries, with the logarithm of what was measured and the source of each."""

    groups: tuple[Group, ...]
    log_measured: tuple[Values, ...]  # per group
    sources: tuple[NDArray[np.str_], ...]
    moe: tuple[bool, ...]
    catalog: Catalog


def read_priors() -> list[Prior]:
    """The table of priors that ships beside this module."""
    content = (files("twofold.measure") / "training_priors.csv").read_text(encoding="utf-8")
    return [
        Prior(
            name=row["name"],
            scope=row["scope"],
            value=float(row["value"]),
            low=float(row["low"]),
            high=float(row["high"]),
            unit=row["unit"],
            fitted=row["fitted"],
            note=row["note"],
        )
        for row in csv.DictReader(StringIO(content))
    ]


def fit(truth: Path, constants: Constants) -> Fitted:
    """Every constant that training owns, fitted on the table under `truth`."""
    catalog = load_catalog()
    rows = [row for row in read_rows(truth / "training.csv") if text(row, "tier") in ("A", "B")]
    priors = read_priors()
    start = constants_of(priors, constants)
    step = read_truth(rows, "step_time_s", catalog, start)
    held = read_truth(rows, "peak_mem_gib", catalog, start)
    stepped = solve(priors, "yes", step, constants, step_log_error)
    fitted = solve(stepped, "memory", held, constants, memory_log_error)
    counts = rows_by_prior(priors, step, held)
    pairs = [pair for pair in zip(fitted, priors, strict=True) if pair[1].name != SPREAD]
    out = [constant_row(prior, old, counts) for prior, old in pairs]
    unseen_step = leave_one_out(priors, "yes", step, constants, step_log_error)
    unseen_memory = leave_one_out(stepped, "memory", held, constants, memory_log_error)
    figures = (("step time", step, unseen_step), ("peak memory", held, unseen_memory))
    left_out = [
        left_out_errors("training", name, by_source(measured, unseen)) for name, measured, unseen in figures
    ]
    return Fitted(out, left_out[0] + left_out[1])


def constants_of(priors: Sequence[Prior], constants: Constants) -> Constants:
    """The table with the priors in place of whatever it holds by their names: every fit starts cold."""
    names = {prior.name for prior in priors}
    kept = [row for row in constants.rows if row.name not in names]
    rows = [constant_row(prior, prior, {(prior.name, prior.scope): 0}) for prior in priors]
    return build_constants(constants.version, [*kept, *rows])


def read_truth(rows: Sequence[Row], column: str, catalog: Catalog, constants: Constants) -> Truth:
    """Rows that measured `column`, thinned per source, each under its likeliest reading before the fit."""
    measured = thin([row for row in rows if number(row, column) is not None])
    entries, _ = read_all(measured, catalog)
    groups = group_entries(entries, catalog)
    step_s, _, least_bytes = evaluate(groups, len(entries), catalog, constants)
    chosen = choose(entries, groups, step_s, least_bytes, len(measured))
    picked = [entries[i] for i in chosen if i >= 0]
    groups = group_entries(picked, catalog)
    scale = 2**30 if column == "peak_mem_gib" else 1.0
    log = np.array([np.log((number(measured[e.row], column) or np.nan) * scale) for e in picked])
    source = np.array([text(measured[e.row], "source") for e in picked])
    return Truth(
        groups=tuple(groups),
        log_measured=tuple(log[group.index] for group in groups),
        sources=tuple(source[group.index] for group in groups),
        moe=tuple(group.machine.moe for group in groups),
        catalog=catalog,
    )


def thin(rows: Sequence[Row]) -> list[Row]:
    """At most `ROWS_PER_SOURCE` rows of each source, evenly spaced."""
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(text(row, "source"), []).append(row)
    thinned = []
    for found in by_source.values():
        index = np.unique(
            np.linspace(0, len(found) - 1, min(len(found), ROWS_PER_SOURCE)).round().astype(int)
        )
        thinned += [found[i] for i in index]
    return thinned


@dataclass(frozen=True, slots=True)
class Bench:
    """One group ready for trials: its cluster on a perfect fabric, and which prior fills which field."""

    group: Group
    cluster: Cluster
    fields: Mapping[str, int]  # of Stack, into the priors
    fabric: int  # into the priors


LogError = Callable[[Group, Stack, Cluster, Values], Values]


def step_log_error(group: Group, stack: Stack, cluster: Cluster, log_measured: Values) -> Values:
    """log(predicted / measured) step time of one group."""
    step = workload_step_time(group.work, group.machine.precision, group.layouts, cluster, stack)
    return np.asarray(np.log(step.total_s) - log_measured)


def memory_log_error(group: Group, stack: Stack, _cluster: Cluster, log_measured: Values) -> Values:
    """log(predicted / measured) peak memory of one group, both as its framework prints it."""
    held = workload_memory(group.work, group.layouts, stack)
    how = counter(group.machine.framework, group.machine.precision)
    return np.asarray(np.log(printed(held, how) * 2**30) - log_measured)


def benches(priors: Sequence[Prior], truth: Truth, constants: Constants) -> list[Bench]:
    """Every group with its device and the indices of the constants that it uses."""
    return [_bench(priors, group, truth.catalog, constants) for group in truth.groups]


def _bench(priors: Sequence[Prior], group: Group, catalog: Catalog, constants: Constants) -> Bench:
    machine = group.machine
    accelerator = catalog.accelerator(machine.accelerator)
    whole = network(accelerator, machine.node_size, machine.nic_bytes_per_s, machine.fabric, constants)
    line_rate = replace(whole, nic_bytes_per_s=machine.nic_bytes_per_s)
    scope = _scope(group)
    return Bench(
        group=group,
        cluster=Cluster(device(accelerator, constants), line_rate, 1),
        fields={f.name: _narrowest(priors, f"training_{f.name}", scope) for f in fields(Stack)},
        fabric=_narrowest(priors, FABRIC, {("fabric", machine.fabric)}),
    )


def _scope(group: Group) -> set[tuple[str, str]]:
    """What the stack's constants of a group depend on."""
    machine = group.machine
    return {("software", software_family(machine.framework, machine.precision)), ("family", group.family)}


def _narrowest(priors: Sequence[Prior], name: str, scope: set[tuple[str, str]]) -> int:
    fitting = [i for i, prior in enumerate(priors) if prior.name == name and prior.pairs <= scope]
    return max(fitting, key=lambda i: len(priors[i].pairs))


def group_error(bench: Bench, values: Values, log_measured: Values, log_error: LogError) -> Values:
    """Log errors of one group under trial values of all constants."""
    stack = Stack(**{name: float(values[i]) for name, i in bench.fields.items()})
    links: Network = bench.cluster.network
    rated = replace(links, nic_bytes_per_s=links.nic_bytes_per_s * values[bench.fabric])
    return log_error(bench.group, stack, replace(bench.cluster, network=rated), log_measured)


def solve(
    priors: Sequence[Prior],
    kind: str,
    truth: Truth,
    constants: Constants,
    log_error: LogError,
    without: str = "",
) -> list[Prior]:
    """The priors with their fitted values, the rows of source `without` unseen.

    Formula  min Σ_sources Σ_rows w·ρ(log error / noise)² + Σ ((log value − log prior) / spread)²
    Why      A constant that the rows do not tell stays at its prior; spread is a quarter of its bounds.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # developers only

    free = [i for i, prior in enumerate(priors) if prior.fitted == kind]
    base = np.array([prior.value for prior in priors])
    tried = benches(priors, truth, constants)
    weights = _weights(truth, without)
    used = [g for g, weight in enumerate(weights) if weight.any()]
    users = {i: [g for g in used if i == tried[g].fabric or i in tried[g].fields.values()] for i in free}
    free = [i for i in free if users[i]]
    low, high = (np.log([getattr(priors[i], end) for i in free]) for end in ("low", "high"))
    center, spread = np.log(base[free]), (high - low) / 4

    def values_at(theta: Values) -> Values:
        values = base.copy()
        values[free] = np.exp(theta)
        return values

    def misfit(theta: Values, groups: Sequence[int]) -> dict[int, Values]:
        values = values_at(theta)
        return {
            g: weights[g] * soften(group_error(tried[g], values, truth.log_measured[g], log_error) / NOISE)
            for g in groups
        }

    starts = np.cumsum([0] + [len(weights[g]) for g in used])

    def residuals(theta: Values) -> Values:
        found = misfit(theta, used)
        return np.concatenate([*(found[g] for g in used), (theta - center) / spread])

    def jacobian(theta: Values) -> Values:
        now = misfit(theta, used)
        out = np.zeros((starts[-1] + len(free), len(free)))
        for column, i in enumerate(free):
            moved = theta.copy()
            moved[column] += 1e-4
            for g, there in misfit(moved, users[i]).items():
                at = starts[used.index(g)]
                out[at : at + len(there), column] = (there - now[g]) / 1e-4
            out[starts[-1] + column, column] = 1 / spread[column]
        return out

    found = least_squares(
        residuals, np.clip(center, low + 1e-6, high - 1e-6), jac=jacobian, bounds=(low, high), max_nfev=STEPS
    )
    values = values_at(found.x)
    return [replace(prior, value=float(value)) for prior, value in zip(priors, values, strict=True)]


def soften(error: Values) -> Values:
    """Residual whose square is the soft-L1 loss: quadratic when small, linear when large."""
    return np.asarray(np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1)))


def _weights(truth: Truth, without: str) -> list[Values]:
    """Square-root weights: every source counts for its rows up to `EFFECTIVE_ROWS`."""
    names, counts = np.unique(np.concatenate(truth.sources), return_counts=True)
    weight = {
        name: 0.0 if name == without else np.sqrt(min(count, EFFECTIVE_ROWS) / count)
        for name, count in zip(names, counts, strict=True)
    }
    return [np.array([weight[source] for source in sources]) for sources in truth.sources]


def errors(priors: Sequence[Prior], truth: Truth, constants: Constants, log_error: LogError) -> list[Values]:
    """log(predicted / measured) per group."""
    values = np.array([prior.value for prior in priors])
    return [
        group_error(bench, values, log_measured, log_error)
        for bench, log_measured in zip(benches(priors, truth, constants), truth.log_measured, strict=True)
    ]


def leave_one_out(
    priors: Sequence[Prior], kind: str, truth: Truth, constants: Constants, log_error: LogError
) -> list[Values]:
    """As `errors`, each row predicted by a fit from a cold start that never saw its source."""
    left_out = [np.full(len(log), np.nan) for log in truth.log_measured]
    for source in np.unique(np.concatenate(truth.sources)):
        fitted = solve(priors, kind, truth, constants, log_error, without=str(source))
        for g, error in enumerate(errors(fitted, truth, constants, log_error)):
            left_out[g] = np.where(truth.sources[g] == source, error, left_out[g])
    return left_out


def by_source(truth: Truth, found: Sequence[Values]) -> dict[tuple[str, str], Values]:
    """Log errors by (source, dense or moe)."""
    out: dict[tuple[str, str], list[float]] = {}
    for sources, moe, values in zip(truth.sources, truth.moe, found, strict=True):
        for source, value in zip(sources, values, strict=True):
            out.setdefault((str(source), "moe" if moe else "dense"), []).append(float(value))
    return {key: np.array(values) for key, values in out.items()}


def rows_by_prior(priors: Sequence[Prior], *truths: Truth) -> dict[tuple[str, str], int]:
    """How many measured rows each constant rests on."""
    counts = dict.fromkeys(((prior.name, prior.scope) for prior in priors), 0)
    for truth, kind in zip(truths, ("yes", "memory"), strict=True):
        for group in truth.groups:
            names = {prior.name for prior in priors if prior.fitted == kind}
            for name in names:
                where = {("fabric", group.machine.fabric)} if name == FABRIC else _scope(group)
                used = priors[_narrowest(priors, name, where)]
                counts[used.name, used.scope] += len(group.index)
    return counts


def constant_row(prior: Prior, before: Prior, counts: Mapping[tuple[str, str], int]) -> ConstantRow:
    """A prior or its fitted value as a row of the table; the range narrows with the rows behind it."""
    rows = counts[prior.name, prior.scope]
    fitted = rows > 0 and prior.fitted in ("yes", "memory")
    narrow = 1 / np.sqrt(1 + rows / EFFECTIVE_ROWS) if fitted else 1.0
    low = prior.value * (before.low / before.value) ** narrow if before.value else 0.0
    high = prior.value * (before.high / before.value) ** narrow if before.value else 0.0
    return ConstantRow(
        name=prior.name,
        scope=prior.scope,
        value=prior.value,
        low=max(low, min(before.low, prior.value)),
        high=min(high, max(before.high, prior.value)),
        unit=prior.unit,
        source=Source.FITTED if fitted else Source.ASSUMED,
        rows=rows if fitted else 0,
        fitted_by=FITTED_BY,
        note=prior.note,
    )
