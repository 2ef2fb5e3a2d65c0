"""Predict step time and peak memory of training rows, each with an 80 % range, or say why not.

Frameworks read different counters of memory: the whole device (context and communication buffers included),
what the allocator took, or what tensors held; and divide by 10⁹ or by 2³⁰."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Catalog
from twofold.core import Source, TwofoldError
from twofold.measure.training_rows import Entry, Machine, read_entries
from twofold.measure.truth import Row, text
from twofold.perf import Cluster, Constants, Floats, Known, device, format_scope, load_known, network
from twofold.training import (
    Layouts,
    Memory,
    Stack,
    Workload,
    layouts_of,
    load_stack,
    memory,
    software_family,
    step_time,
)

GIB = float(2**30)


@dataclass(frozen=True, slots=True)
class Counter:
    """One convention, or one for each row."""

    counts: Literal["device", "reserved", "allocated"] | NDArray[np.str_]
    unit_bytes: Floats


BY_WORD = {"bridge": Counter("allocated", 1e9), "nemo": Counter("allocated", 1e9)}
"""Where one framework of a family differs: words of its name."""
BY_FAMILY = {
    "megatron": Counter("allocated", GIB),
    "megatron-legacy": Counter("device", 1e9),
    "nanotron": Counter("allocated", 1e9),
    "fsdp": Counter("reserved", GIB),
}
USUAL = Counter("reserved", GIB)


def counter(framework: str, precision: str) -> Counter:
    """The convention of a framework.

    >>> counter("torchtitan 0", "bf16").counts
    'reserved'
    """
    word = next((word for word in BY_WORD if word in framework.lower()), "")
    return BY_WORD.get(word) or BY_FAMILY.get(software_family(framework, precision), USUAL)


def printed_states(held: Memory, how: Counter) -> NDArray[np.float64]:
    """Weights, gradients and optimiser in the unit that a framework prints."""
    return np.asarray(held.states_bytes / how.unit_bytes)


def printed(held: Memory, how: Counter) -> NDArray[np.float64]:
    """The number that a framework prints of what each layout holds."""
    counts = np.asarray(how.counts)
    counted = np.where(counts == "device", held.device_bytes, held.reserved_bytes)
    return np.asarray(np.where(counts == "allocated", held.allocated_bytes, counted) / how.unit_bytes)


Values = NDArray[np.float64]
STATED_ANYWAY = {"zero", "interleaving", "network", "framework", "precision", "adapter rank"}
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


def predict_training(
    rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known | None = None
) -> list[Row]:
    """Each row with `pred_…` columns: middle, 80 % and 95 % range of step time and memory, basis, error.

    Reads what a user knows beforehand; measured columns, names of sources and notes change nothing. `known`
    is what the fit of these constants has seen, the shipped table where it is not given.
    """
    known = load_known() if known is None else known
    entries, refused = read_all(rows, catalog)
    groups = group_entries(entries, catalog)
    step_s, peak_gib, states_gib, least_bytes = evaluate(groups, len(entries), catalog, constants)
    chosen = choose(entries, groups, step_s, least_bytes, len(rows))
    predicted = []
    for i, row in enumerate(rows):
        if i in refused:
            predicted.append(row | _blank() | {"pred_error": refused[i]})
        else:
            entry = entries[chosen[i]]
            scope = interval_scope(entry.machine, seen_model(row, catalog), catalog, known)
            values = (step_s[chosen[i]], peak_gib[chosen[i]])
            exact = (0.0, states_gib[chosen[i]])
            predicted.append(row | _filled(entry, values, exact, scope, catalog, constants))
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
        work = Workload.stacked([entries[i].work for i in index])
        layouts = layouts_of([entries[i].layout for i in index])
        groups.append(
            Group(machine, np.array(index), work, layouts, accelerator.memory_bytes, accelerator.family)
        )
    return groups


def evaluate(
    groups: Sequence[Group], count: int, catalog: Catalog, constants: Constants
) -> tuple[Values, Values, Values, Values]:
    """Of every entry: step seconds; the peak as its framework prints it, and the states in it; the fewest
    bytes that it may take."""
    step_s, peak_gib, states_gib, least_bytes = np.empty((4, count))
    for group in groups:
        step_s[group.index], held = price_group(group, *hardware(group.machine, catalog, constants))
        how = counter(group.machine.framework, group.machine.precision)
        peak_gib[group.index], states_gib[group.index] = printed(held, how), printed_states(held, how)
        least_bytes[group.index] = held.low_bytes
    return step_s, peak_gib, states_gib, least_bytes


def hardware(machine: Machine, catalog: Catalog, constants: Constants) -> tuple[Cluster, Stack]:
    """What a machine's rows run on, and under which software."""
    accelerator = catalog.accelerator(machine.accelerator)
    links = network(accelerator, machine.node_size, machine.nic_bytes_per_s, machine.fabric, constants)
    cluster = Cluster(device(accelerator, constants), links, 1)  # each layout says how many it uses
    return cluster, load_stack(constants, machine.framework, machine.precision, accelerator.family)


def price_group(group: Group, cluster: Cluster, stack: Stack) -> tuple[Floats, Memory]:
    """One group through the model: step seconds, and what each accelerator holds."""
    step = step_time(group.work, group.machine.precision, group.layouts, cluster, stack)
    return step.total_s, memory(group.work, group.layouts, stack)


def settled_entries(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Entry], dict[int, str]]:
    """Each row under its likeliest reading, and the coded reason of each row that has none."""
    entries, refused = read_all(rows, catalog)
    groups = group_entries(entries, catalog)
    step_s, _, _, least_bytes = evaluate(groups, len(entries), catalog, constants)
    chosen = choose(entries, groups, step_s, least_bytes, len(rows))
    return [entries[i] for i in chosen if i >= 0], refused


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


COLUMNS = {"pred_step_time_s": "step", "pred_peak_mem_gib": "memory"}
ENDS = ("_low", "_high", "_low_95", "_high_95")


def _blank() -> Row:
    names = [name + end for name in COLUMNS for end in ("", *ENDS)]
    return dict.fromkeys(
        [*names, "pred_states_gib", "pred_basis", "pred_assumptions", "pred_group", "pred_error"], ""
    )


def _filled(
    entry: Entry,
    values: tuple[float, float],
    exact: tuple[float, float],
    scope: Mapping[str, str],
    catalog: Catalog,
    constants: Constants,
) -> Row:
    out = _blank()
    doubt = _kernel_doubt(entry.machine, catalog, constants)
    for (name, kind), middle, counted in zip(COLUMNS.items(), values, exact, strict=True):
        out[name] = f"{middle:.6g}"
        rest = max(middle - counted, 0.0)  # only what is estimated can be off
        for share, low_end, high_end in (("", *ENDS[:2]), ("_95", *ENDS[2:])):
            spread = constants.estimate(f"interval_training_{kind}{share}_ratio", **scope)
            low, high = np.log([spread.low, spread.high])
            if kind == "step":
                low, high = -np.hypot(low, doubt[0]), np.hypot(high, doubt[1])
            out[name + low_end] = f"{middle - rest + rest * np.exp(low):.6g}"
            out[name + high_end] = f"{middle - rest + rest * np.exp(high):.6g}"
    out["pred_states_gib"] = f"{exact[1]:.6g}"
    out["pred_basis"] = "assumed" if set(entry.assumptions) - STATED_ANYWAY else "stated"
    out["pred_assumptions"] = ";".join(entry.assumptions)
    out["pred_group"] = format_scope(scope)
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


def seen_model(row: Row, catalog: Catalog) -> str:
    """The model's name in the catalogue, or as the row writes it."""
    named = text(row, "model")
    try:
        return catalog.benchmark_model(named).name
    except TwofoldError:
        return named.lower()


def interval_scope(machine: Machine, model: str, catalog: Catalog, known: Known) -> dict[str, str]:
    """What decides how sure a prediction is."""
    family = catalog.accelerator(machine.accelerator).family
    arch = "moe" if machine.moe else "dense"
    software = software_family(machine.framework, machine.precision)
    return known.training_scope(model, arch, machine.accelerator, family, software)
