"""Predict step time and peak memory of training rows, each with an 80 % range, or say why not.

Frameworks read different counters of memory: the whole device (context and communication buffers included),
what the allocator took, or what tensors held; and divide by 10⁹ or by 2³⁰."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.answer.stacks import cluster_on, stack_on
from twofold.catalog.catalog import Catalog
from twofold.core.errors import TwofoldError
from twofold.core.estimate import Source
from twofold.measure.training_rows import Entry, Machine, read_entries
from twofold.measure.truth import Row, read_each, refusal, text
from twofold.perf.constants import Constants, format_scope
from twofold.perf.known import Known, load_known
from twofold.perf.types import Cluster, Floats
from twofold.training.job import Workload
from twofold.training.layouts import Layouts, layouts_of
from twofold.training.memory import Memory
from twofold.training.search import Candidate, candidate
from twofold.training.stack import Stack, software_family

Values = NDArray[np.float64]
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
STATED_ANYWAY = {"zero", "interleaving", "network", "framework", "precision", "adapter rank"}
"""What a reading may fill in without making the layout an assumption."""


def counter(framework: str, precision: str) -> Counter:
    """The convention of a framework.

    >>> counter("torchtitan 0", "bf16").counts
    'reserved'
    """
    word = next((word for word in BY_WORD if word in framework.lower()), "")
    return BY_WORD.get(word) or BY_FAMILY.get(software_family(framework, precision), USUAL)


def printed(held: Memory, how: Counter) -> Values:
    """The number that a framework prints of what each layout holds."""
    counts = np.asarray(how.counts)
    counted = np.where(counts == "device", held.device_bytes, held.reserved_bytes)
    return np.asarray(np.where(counts == "allocated", held.allocated_bytes, counted) / how.unit_bytes)


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that share a machine, as arrays: one call prices them all."""

    machine: Machine
    index: NDArray[np.int64]  # into the entries
    work: Workload
    layouts: Layouts


@dataclass(frozen=True, slots=True)
class Settled:
    """A row under its likeliest reading, priced."""

    entry: Entry
    step_s: float
    peak_gib: float  # as its framework prints it
    states_gib: float  # of the peak
    least_step_s: float  # that its FLOPs take at the datasheet's peak


def predict_training(
    rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known | None = None
) -> list[Row]:
    """Each row with `pred_…` columns: middle, 80 % and 95 % range of step time and memory, basis, error.

    Reads what a user knows beforehand; measured columns, names of sources and notes change nothing. `known`
    is what the fit of these constants has seen, the shipped table where it is not given.
    """
    known = known or load_known()
    settled, refused = settled_entries(rows, catalog, constants)
    columns = {place: refusal("training", reason) for place, reason in refused.items()}
    for one in settled:
        row, machine = rows[one.entry.row], one.entry.machine
        software = software_family(machine.framework, machine.precision)
        arch, model = "moe" if machine.moe else "dense", seen_model(row, catalog)
        names = model, arch, machine.accelerator, machine.family, software
        scopes = {figure: known.training_scope(figure, *names) for figure in ("step", "memory")}
        columns[one.entry.row] = _columns(one, scopes, known, constants)
    return [row | columns[place] for place, row in enumerate(rows)]


def read_all(rows: Sequence[Row], catalog: Catalog) -> tuple[list[Entry], dict[int, str]]:
    """The readings of all rows, and the coded reason of each row that has none."""
    entries, refused = read_each(rows, lambda place, row: read_entries(place, row, catalog))
    return [entry for each in entries.values() for entry in each], refused


def group_entries(entries: Sequence[Entry]) -> list[Group]:
    """Entries by machine, as arrays."""
    members: dict[Machine, list[int]] = defaultdict(list)
    for i, entry in enumerate(entries):
        members[entry.machine].append(i)
    return [
        Group(
            machine,
            np.array(index),
            Workload.stacked([entries[i].work for i in index]),
            layouts_of([entries[i].layout for i in index]),
        )
        for machine, index in members.items()
    ]


def hardware(machine: Machine, catalog: Catalog, constants: Constants) -> tuple[Cluster, Stack]:
    """What a machine's rows run on, and under which software."""
    accelerator = catalog.accelerator(machine.accelerator)
    between = machine.nic_bytes_per_s, machine.fabric
    one = cluster_on(accelerator, machine.node_size, *between, constants, 1)  # each layout says how many
    return stack_on(one, machine.framework, machine.precision, constants)


def price_group(group: Group, cluster: Cluster, stack: Stack) -> Candidate:
    """The layouts of a group with their steps and what each accelerator holds."""
    return candidate(group.work, group.machine.precision, group.layouts, cluster, stack)


def settled_entries(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Settled], dict[int, str]]:
    """Each row under its likeliest reading, and the coded reason of each row that has none.

    That is the fastest reading that may have fitted, or the smallest where none could: the run happened, so a
    reading is out only when even the lower end of its memory does not fit.
    """
    entries, refused = read_all(rows, catalog)
    step_s, peak_gib, states_gib, excess, least_s = np.empty((5, len(entries)))
    for group in group_entries(entries):
        i, machine = group.index, group.machine
        cluster, stack = hardware(machine, catalog, constants)
        found = price_group(group, cluster, stack)
        ranks = group.layouts.tp * group.layouts.cp * group.layouts.pp * group.layouts.dp
        least_s[i] = group.work.least_step_s(cluster.device, machine.precision, ranks)
        step_s[i], held = found.step.total_s, found.memory
        how = counter(machine.framework, machine.precision)
        peak_gib[i], states_gib[i] = printed(held, how), held.states_bytes / how.unit_bytes
        memory_bytes = catalog.accelerator(machine.accelerator).memory_bytes
        excess[i] = np.maximum(held.low_bytes / memory_bytes - 1.0, 0.0)
    row = np.array([entry.row for entry in entries], np.int64)
    order = np.lexsort((step_s, excess, row))
    chosen = order[np.unique(row[order], return_index=True)[1]]
    columns = zip(step_s, peak_gib, states_gib, least_s, strict=True)
    settled = [Settled(entry, *each) for entry, each in zip(entries, columns, strict=True)]
    return [settled[i] for i in chosen], refused


def _columns(
    one: Settled, scopes: Mapping[str, Mapping[str, str]], known: Known, constants: Constants
) -> Row:
    machine = one.entry.machine
    # How much faster or slower a device may be whose kernels nobody measured; of others the ranges of
    # left-out sources hold it already.
    kernels = constants.estimate(
        "gemm_efficiency_fraction", accelerator=machine.accelerator, family=machine.family, format="bf16"
    )
    doubt = np.log([kernels.value / kernels.low, kernels.high / kernels.value])
    doubt = doubt if kernels.source is Source.ASSUMED else np.zeros(2)
    out = refusal("training", "")
    for name, kind, middle, counted in (
        ("step_time_s", "step", one.step_s, 0.0),
        ("peak_mem_gib", "memory", one.peak_gib, one.states_gib),
    ):
        out[f"pred_{name}"] = f"{middle:.6g}"
        rest = max(middle - counted, 0.0)  # only what is estimated can be off
        for share in ("", "_95"):
            spread = constants.estimate(f"interval_training_{kind}{share}_ratio", **scopes[kind])
            low, high = np.log([spread.low, spread.high])
            if kind == "step":
                low, high = -np.hypot(low, doubt[1]), np.hypot(high, doubt[0])
            least = min(one.least_step_s, middle) if kind == "step" else 0.0
            out[f"pred_{name}_low{share}"] = f"{max(middle - rest + rest * np.exp(low), least):.6g}"
            out[f"pred_{name}_high{share}"] = f"{middle - rest + rest * np.exp(high):.6g}"
    return out | {
        "pred_states_gib": f"{one.states_gib:.6g}",
        "pred_basis": "assumed" if set(one.entry.assumptions) - STATED_ANYWAY else "stated",
        "pred_assumptions": ";".join(one.entry.assumptions),
        "pred_group": format_scope(known.group_of("training", scopes)),
    }


def seen_model(row: Row, catalog: Catalog) -> str:
    """The model's name in the catalogue, or as the row writes it."""
    named = text(row, "model")
    try:
        return catalog.benchmark_model(named).name
    except TwofoldError:
        return named.lower()
