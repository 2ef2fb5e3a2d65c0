"""Measured training rows as one batch: what hardware takes is priced once, whatever a fit then tries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fits.robust import Values
from fits.training_priors import Prior, narrowest
from twofold.catalog.catalog import Catalog
from twofold.measure.blind import fold_of
from twofold.measure.predict_training import (
    Counter,
    Group,
    counter,
    group_entries,
    hardware,
    printed,
    settled_entries,
)
from twofold.measure.truth import Row, number, source_of
from twofold.perf.constants import Constants
from twofold.perf.types import Network
from twofold.training.job import Workload
from twofold.training.layouts import Layouts
from twofold.training.memory import memory
from twofold.training.stack import Stack, stack_scope
from twofold.training.step import BareStep, bare_step, bare_step_time, step_traffic

ROWS_PER_SOURCE = 160  # taken evenly from larger sources; more change no digit that matters
FABRIC = "fabric_efficiency_fraction"
TRAVEL = ("gradient_bytes", "bucket_bytes")  # of the stack: what traffic alone depends on
STEP, MEMORY = "step_time_s", "peak_mem_gib"

Scope = frozenset[tuple[str, str]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Truth:
    """Measured rows, one entry each, under their likeliest reading before the fit."""

    column: str  # what was measured
    rows: tuple[Row, ...]
    work: Workload
    layouts: Layouts
    bare: BareStep
    network: Network  # one entry per row; its NIC rate is the line's
    scopes: tuple[Scope, ...]  # of the stack's constants
    fabrics: tuple[Scope, ...]
    counter: Counter  # of memory, one entry per row
    log_measured: Values
    source: NDArray[np.str_]
    fold: NDArray[np.str_]
    moe: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which prior fills which field of each row's stack, and its fabric's efficiency."""

    stack: Mapping[str, NDArray[np.int64]]
    fabric: NDArray[np.int64]


def read_truth(rows: Sequence[Row], column: str, catalog: Catalog, constants: Constants) -> Truth:
    """Rows that measured `column`, thinned per source."""
    measured = thin([row for row in rows if number(row, column) is not None], ROWS_PER_SOURCE)
    settled, _ = settled_entries(measured, catalog, constants)
    entries = [one.entry for one in settled]
    groups = group_entries(entries)
    order = np.concatenate([group.index for group in groups])
    picked = [measured[entries[i].row] for i in order]
    priced = [_priced(group, catalog, constants) for group in groups]
    counters = [counter(g.machine.framework, g.machine.precision) for g in groups for _ in g.index]
    return Truth(
        column=column,
        rows=tuple(picked),
        work=joined([group.work for group in groups]),
        layouts=joined([group.layouts for group in groups]),
        bare=joined([bare for bare, _ in priced]),
        network=joined([links for _, links in priced]),
        scopes=_by_row(groups, _stack_scope),
        fabrics=_by_row(groups, lambda group: frozenset({("fabric", group.machine.fabric)})),
        counter=Counter(
            np.array([each.counts for each in counters]), np.array([each.unit_bytes for each in counters])
        ),
        log_measured=np.log([number(row, column) or np.nan for row in picked]),
        source=np.array([source_of(row) for row in picked]),
        fold=np.array([fold_of(row) for row in picked]),
        moe=np.concatenate([np.full(len(group.index), group.machine.moe) for group in groups]),
    )


def thin(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many rows of each source, evenly spaced."""
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(source_of(row), []).append(row)
    thinned = []
    for found in by_source.values():
        index = np.linspace(0, len(found) - 1, min(len(found), most)).round().astype(int)
        thinned += [found[i] for i in np.unique(index)]
    return thinned


def _priced(group: Group, catalog: Catalog, constants: Constants) -> tuple[BareStep, Network]:
    """What hardware takes for each row of a group, and each row's links at line rate."""
    machine, count = group.machine, len(group.index)
    cluster, stack = hardware(machine, catalog, constants)
    links = replace(cluster.network, nic_bytes_per_s=machine.nic_bytes_per_s)
    cluster = replace(cluster, network=links)
    bare = bare_step(group.work, machine.precision, group.layouts, cluster, stack)
    return _spread(bare, count), _spread(links, count)


def _spread(value: T, count: int) -> T:
    """A dataclass of numbers with every number as an array of `count`; names stay."""
    if is_dataclass(value):
        parts: dict[str, Any] = {f.name: _spread(getattr(value, f.name), count) for f in fields(value)}
        return replace(value, **parts)  # type: ignore[type-var]
    return value if isinstance(value, str) else np.broadcast_to(value, (count,))  # type: ignore


def joined(parts: Sequence[T]) -> T:
    """Dataclasses of arrays, nested or not, as one with the arrays end to end; names are the first's."""
    first = parts[0]
    if is_dataclass(first):
        found: dict[str, Any] = {f.name: joined([getattr(p, f.name) for p in parts]) for f in fields(first)}
        return replace(first, **found)  # type: ignore[type-var]
    return first if isinstance(first, str) else np.concatenate(parts)  # type: ignore


def _by_row(groups: Sequence[Group], scope_of: Callable[[Group], Scope]) -> tuple[Scope, ...]:
    return tuple(scope_of(group) for group in groups for _ in group.index)


def _stack_scope(group: Group) -> Scope:
    """What the stack's constants of a group depend on."""
    machine = group.machine
    return frozenset(stack_scope(machine.framework, machine.precision, machine.family).items())


def columns_of(priors: Sequence[Prior], truth: Truth) -> Columns:
    """Which prior each row takes for each of its constants."""

    def places(name: str, scopes: Sequence[Scope]) -> NDArray[np.int64]:
        found = {scope: narrowest(priors, name, set(scope)) for scope in set(scopes)}
        return np.array([found[scope] for scope in scopes])

    stack = {f.name: places(f"training_{f.name}", truth.scopes) for f in fields(Stack)}
    return Columns(stack, places(FABRIC, truth.fabrics))


def log_errors(truth: Truth, columns: Columns, values: Values) -> Values:
    """log(predicted / measured) of every row under trial values, (trials, constants) to (trials, rows)."""
    trial: dict[str, Any] = {name: values[:, places] for name, places in columns.stack.items()}
    stack = Stack(**trial)
    if truth.column == MEMORY:
        return memory_log_error(truth, stack)
    # Few trials change what travels or how fast: traffic is priced once for each that does.
    travel = [columns.fabric, *(columns.stack[name] for name in TRAVEL)]
    _, first, which = np.unique(values[:, np.unique(travel)], axis=0, return_index=True, return_inverse=True)
    rate = truth.network.nic_bytes_per_s * values[first][:, columns.fabric]
    links = replace(truth.network, nic_bytes_per_s=rate)
    travelling: dict[str, Any] = {name: trial[name][first] for name in trial}
    traffic = step_traffic(truth.work, truth.layouts, links, Stack(**travelling))
    shape = rate.shape
    taken: dict[str, Any] = {
        f.name: np.broadcast_to(getattr(traffic, f.name), shape)[which.ravel()] for f in fields(traffic)
    }
    bare = replace(truth.bare, traffic=replace(traffic, **taken))
    step = bare_step_time(truth.work, truth.layouts, bare, stack)
    return np.asarray(np.log(step.total_s) - truth.log_measured)


def memory_log_error(truth: Truth, stack: Stack) -> Values:
    """log(predicted / measured) peak memory, both as the row's framework prints it."""
    held = memory(truth.work, truth.layouts, stack)
    return np.asarray(np.log(printed(held, truth.counter)) - truth.log_measured)
