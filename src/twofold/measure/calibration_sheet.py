"""Measured rows of one device and one software, ready to be priced again under named factors.

What a row leaves open is settled once, by the constants as they are; only the factors change after that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.catalog import Catalog
from twofold.core import InputError, TwofoldError
from twofold.inference import engine_era, model_kind, scale_engine
from twofold.measure.inference_rows import Case, read_case
from twofold.measure.memory_figures import counter, printed
from twofold.measure.predict_inference import METRICS, Batch, batches, best_layouts, price_batch
from twofold.measure.predict_training import Group, choose, evaluate, group_entries, read_all
from twofold.measure.truth import Row, measured_figures, number, text
from twofold.perf import Cluster, Constants, device, network, scale_cluster
from twofold.training import (
    Stack,
    load_stack,
    scale_stack,
    software_family,
    workload_memory,
    workload_step_time,
)

Array = NDArray[np.float64]
Half = Literal["training", "inference"]
Factors = Mapping[str, Array]  # name -> (draws, 1)
TRAINING_FACTORS = ("compute", "memory_bandwidth", "link", "fabric", "host", "memory_use")
INFERENCE_FACTORS = ("compute", "memory_bandwidth", "host", "communication", "prefill")
TRAINING_METRICS = ("step_time_s", "peak_mem_gib")


@dataclass(frozen=True, slots=True)
class Software:
    """What a calibration holds for: one accelerator under one software."""

    half: Half
    accelerator: str
    family: str  # of the accelerator
    name: str  # family of training frameworks, or engine
    era: str  # of an engine's releases, "" where it cannot be told
    version: str  # as the rows say it


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows that can be priced together; `place` says which of the rows given each one is."""

    software: Software
    place: NDArray[np.intp]
    kind: tuple[str, ...]  # dense moe mla, per row
    groups: "tuple[TrainingGroup, ...] | tuple[InferenceGroup, ...]"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is predicted of each row."""
        return TRAINING_METRICS if self.software.half == "training" else METRICS

    @property
    def factor_names(self) -> tuple[str, ...]:
        """What may be calibrated."""
        return TRAINING_FACTORS if self.software.half == "training" else INFERENCE_FACTORS

    def log_predicted(self, factors: Factors) -> dict[str, Array]:
        """Logarithm of every metric, (draws, rows); NaN where nothing is predicted."""
        count = max((values.shape[0] for values in factors.values()), default=1)
        out = {name: np.full((count, self.place.size), np.nan) for name in self.metrics}
        for group in self.groups:
            for name, values in group.priced(factors).items():
                out[name][:, group.index] = np.log(np.maximum(values, 1e-12))
        return out


@dataclass(frozen=True, slots=True)
class TrainingGroup:
    """Rows of one machine."""

    index: NDArray[np.int64]  # into the sheet
    group: Group
    cluster: Cluster
    stack: Stack

    def priced(self, factors: Factors) -> dict[str, Array]:
        """Step seconds, and the peak as the framework prints it, (draws, rows)."""
        cluster, stack = scale_cluster(self.cluster, factors), scale_stack(self.stack, factors)
        group = self.group
        step = workload_step_time(group.work, group.machine.precision, group.layouts, cluster, stack)
        held = workload_memory(group.work, group.layouts, stack)
        how = counter(group.machine.framework, group.machine.precision)
        return {"step_time_s": np.asarray(step.total_s), "peak_mem_gib": printed(held, how)}


@dataclass(frozen=True, slots=True)
class InferenceGroup:
    """Cases that one call prices."""

    index: NDArray[np.intp]
    batch: Batch

    def priced(self, factors: Factors) -> dict[str, Array]:
        """Every metric, (draws, rows)."""
        replica = self.batch.replica
        cluster, engine = scale_cluster(replica.cluster, factors), scale_engine(replica.engine, factors)
        return price_batch(replace(self.batch, replica=replace(replica, cluster=cluster, engine=engine)))


def sheets_of(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Sheet], dict[int, str]]:
    """The rows by device and software, largest group first, and why each other row cannot be read."""
    made = _training_sheets if half == "training" else _inference_sheets
    sheets, refused = made(rows, catalog, constants)
    return sorted(sheets, key=lambda sheet: -sheet.place.size), refused


def _training_sheets(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Sheet], dict[int, str]]:
    entries, refused = read_all(rows, catalog)
    groups = group_entries(entries, catalog)
    step_s, _, _, least_bytes = evaluate(groups, len(entries), catalog, constants)
    chosen = choose(entries, groups, step_s, least_bytes, len(rows))
    picked = [entries[i] for i in chosen if i >= 0]
    by_software: dict[tuple[str, str], list[int]] = {}
    for i, entry in enumerate(picked):
        name = software_family(entry.machine.framework, entry.machine.precision)
        by_software.setdefault((entry.machine.accelerator, name), []).append(i)
    sheets = []
    for (accelerator, name), members in by_software.items():
        own = [picked[i] for i in members]
        family = catalog.accelerator(accelerator).family
        version = _versions([entry.machine.framework for entry in own])
        sheets.append(
            Sheet(
                Software("training", accelerator, family, name, "", version),
                np.array([entry.row for entry in own]),
                tuple("moe" if entry.machine.moe else "dense" for entry in own),
                tuple(_training_group(group, catalog, constants) for group in group_entries(own, catalog)),
            )
        )
    return sheets, refused


def _training_group(group: Group, catalog: Catalog, constants: Constants) -> TrainingGroup:
    machine = group.machine
    accelerator = catalog.accelerator(machine.accelerator)
    links = network(accelerator, machine.node_size, machine.nic_bytes_per_s, machine.fabric, constants)
    stack = load_stack(constants, machine.framework, machine.precision, accelerator.family)
    return TrainingGroup(group.index, group, Cluster(device(accelerator, constants), links, 1), stack)


def _inference_sheets(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Sheet], dict[int, str]]:
    cases: list[Case] = []
    places: list[int] = []
    refused: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            cases.append(read_case(row, catalog, constants))
            places.append(place)
        except TwofoldError as error:
            refused[place] = f"{error.code}: {error.message}"
    cases = [case for case, _ in best_layouts(cases, constants)]
    by_software: dict[tuple[str, str, str], list[int]] = {}
    for i, case in enumerate(cases):
        key = (case.accelerator.name, case.engine, engine_era(case.engine, case.version))
        by_software.setdefault(key, []).append(i)
    sheets = []
    for (accelerator, name, era), members in by_software.items():
        own = [cases[i] for i in members]
        sheets.append(
            Sheet(
                Software(
                    "inference",
                    accelerator,
                    own[0].accelerator.family,
                    name,
                    era,
                    _versions([case.version for case in own]),
                ),
                np.array([places[i] for i in members]),
                tuple(model_kind(case.model) for case in own),
                tuple(InferenceGroup(batch.places, batch) for batch in batches(own, constants)),
            )
        )
    return sheets, refused


def _versions(told: Sequence[str]) -> str:
    """Every version that rows name, in order."""
    return ", ".join(sorted({version for version in told if version}))


def half_of(row: Row, columns: Sequence[str]) -> Half:
    """Which half a row measures: as its `half` column says, else by the columns of the table."""
    told = text(row, "half").lower()
    if told in ("training", "inference"):
        return told  # type: ignore[return-value]  # one of the two literals
    if told:
        raise InputError(f"`{told}` is no half", hint="write `training` or `inference`")
    return "training" if "step_time_s" in columns or "seq_len" in columns else "inference"


def measured_logs(sheet: Sheet, rows: Sequence[Row]) -> dict[str, Array]:
    """Logarithm of what was measured, by metric as it is predicted; NaN where a row does not say."""
    out = {name: np.full(sheet.place.size, np.nan) for name in sheet.metrics}
    for at, place in enumerate(sheet.place):
        for name, value in _measured(sheet.software.half, rows[place]):
            out[name][at] = np.log(value)
    return out


def _measured(half: Half, row: Row) -> list[tuple[str, float]]:
    if half == "training":
        found = ((name, number(row, name)) for name in TRAINING_METRICS)
        return [(name, value) for name, value in found if value]
    return measured_figures(row)
