"""Predict step time and peak memory of training rows, each with an 80 % range, or say why not."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Catalog
from twofold.core import Source, TwofoldError
from twofold.measure.training_rows import Entry, Machine, read_entries
from twofold.measure.truth import Row
from twofold.perf import Cluster, Constants, device, network
from twofold.training import (
    Layouts,
    Memory,
    StepTime,
    Workload,
    layouts_of,
    load_stack,
    software_family,
    stack_workloads,
    workload_memory,
    workload_step_time,
)

Values = NDArray[np.float64]
STATED_ANYWAY = {"zero", "interleaving", "network", "framework", "precision"}
"""What a reading may fill in without making the layout an assumption."""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that share a machine, as arrays: one call prices them all."""

    machine: Machine
    index: NDArray[np.int64]  # into the entries
    work: Workload
    layouts: Layouts
    capacity_bytes: float
    family: str  # of the accelerator


def predict_training(rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[Row]:
    """Each row with `pred_…` columns: middle and 80 % range of step time and memory, basis, error.

    Reads what a user knows beforehand; measured columns, names of sources and notes change nothing.
    """
    entries, refused = read_all(rows, catalog)
    groups = group_entries(entries, catalog)
    step_s, memory_bytes, least_bytes = evaluate(groups, len(entries), catalog, constants)
    chosen = choose(entries, groups, step_s, least_bytes, len(rows))
    predicted = []
    for i, row in enumerate(rows):
        if i in refused:
            predicted.append(row | _blank() | {"pred_error": refused[i]})
        else:
            predicted.append(
                row
                | _filled(entries[chosen[i]], step_s[chosen[i]], memory_bytes[chosen[i]], catalog, constants)
            )
    return predicted


def read_all(rows: Sequence[Row], catalog: Catalog) -> tuple[list[Entry], dict[int, str]]:
    """The readings of all rows, and the coded reason of each row that has none."""
    entries: list[Entry] = []
    refused: dict[int, str] = {}
    for i, row in enumerate(rows):
        try:
            entries += read_entries(i, row, catalog)
        except TwofoldError as error:
            refused[i] = f"{error.code}: {error.message}"
    return entries, refused


def group_entries(entries: Sequence[Entry], catalog: Catalog) -> list[Group]:
    """Entries by machine, as arrays."""
    members: dict[Machine, list[int]] = defaultdict(list)
    for i, entry in enumerate(entries):
        members[entry.machine].append(i)
    groups = []
    for machine, index in members.items():
        accelerator = catalog.accelerator(machine.accelerator)
        work = stack_workloads([entries[i].work for i in index])
        layouts = layouts_of([entries[i].layout for i in index])
        groups.append(
            Group(machine, np.array(index), work, layouts, accelerator.memory_bytes, accelerator.family)
        )
    return groups


def evaluate(
    groups: Sequence[Group], count: int, catalog: Catalog, constants: Constants
) -> tuple[Values, Values, Values]:
    """Step seconds, peak bytes and the lower end of the peak's range, of every entry."""
    step_s, memory_bytes, least_bytes = np.empty((3, count))
    for group in groups:
        step, held = evaluate_group(group, catalog, constants)
        step_s[group.index] = step.total_s
        memory_bytes[group.index] = held.total_bytes
        least_bytes[group.index] = held.low_bytes
    return step_s, memory_bytes, least_bytes


def evaluate_group(group: Group, catalog: Catalog, constants: Constants) -> tuple[StepTime, Memory]:
    """One group through the model."""
    machine = group.machine
    accelerator = catalog.accelerator(machine.accelerator)
    links = network(accelerator, machine.node_size, machine.nic_bytes_per_s, machine.fabric, constants)
    cluster = Cluster(device(accelerator, constants), links, 1)  # each layout says how many it uses
    stack = load_stack(constants, machine.framework, machine.precision, accelerator.family)
    step = workload_step_time(group.work, machine.precision, group.layouts, cluster, stack)
    return step, workload_memory(group.work, group.layouts, stack)


def choose(
    entries: Sequence[Entry], groups: Sequence[Group], step_s: Values, least_bytes: Values, row_count: int
) -> NDArray[np.int64]:
    """Per row the fastest reading that may have fitted, or the smallest where none could; −1 without any.

    The run happened, so a reading is out only when even the lower end of its memory does not fit.
    """
    capacity = np.empty(len(entries))
    for group in groups:
        capacity[group.index] = group.capacity_bytes
    excess = np.maximum(least_bytes / capacity - 1.0, 0.0)
    row = np.array([entry.row for entry in entries], np.int64)
    order = np.lexsort((step_s, excess, row))
    chosen = np.full(row_count, -1, np.int64)
    rows, first = np.unique(row[order], return_index=True)
    chosen[rows] = order[first]
    return chosen


COLUMNS = ("pred_step_time_s", "pred_peak_mem_gib")


def _blank() -> Row:
    names = [name + end for name in COLUMNS for end in ("", "_low", "_high")]
    return dict.fromkeys([*names, "pred_basis", "pred_assumptions", "pred_error"], "")


def _filled(entry: Entry, step_s: float, memory_bytes: float, catalog: Catalog, constants: Constants) -> Row:
    machine = entry.machine
    scope = interval_scope(machine, catalog)
    values = {"pred_step_time_s": step_s, "pred_peak_mem_gib": memory_bytes / 2**30}
    out = _blank()
    for name, kind in zip(COLUMNS, ("step", "memory"), strict=True):
        spread = constants.estimate(f"interval_training_{kind}_ratio", **scope)
        low, high = np.log([spread.low, spread.high])
        if kind == "step":
            faster, slower = _kernel_doubt(machine, catalog, constants)
            low, high = -np.hypot(low, faster), np.hypot(high, slower)
        middle = values[name]
        out[name] = f"{middle:.6g}"
        out[f"{name}_low"] = f"{middle * np.exp(low):.6g}"
        out[f"{name}_high"] = f"{middle * np.exp(high):.6g}"
    out["pred_basis"] = "assumed" if set(entry.assumptions) - STATED_ANYWAY else "stated"
    out["pred_assumptions"] = ";".join(entry.assumptions)
    return out


def _kernel_doubt(machine: Machine, catalog: Catalog, constants: Constants) -> tuple[float, float]:
    """How much faster or slower, in logarithms, a device may be whose kernels nobody measured."""
    family = catalog.accelerator(machine.accelerator).family
    known = constants.estimate(
        "gemm_efficiency_fraction", accelerator=machine.accelerator, family=family, format="bf16"
    )
    if known.source is not Source.ASSUMED:
        return 0.0, 0.0  # the ranges of left-out sources hold it already
    return float(np.log(known.high / known.value)), float(np.log(known.value / known.low))


def interval_scope(machine: Machine, catalog: Catalog) -> dict[str, str]:
    """What decides how sure a prediction is: software known or not, device measured or not, dense or MoE."""
    return {
        "arch": "moe" if machine.moe else "dense",
        "software": software_family(machine.framework, machine.precision),
        "family": catalog.accelerator(machine.accelerator).family,
    }
