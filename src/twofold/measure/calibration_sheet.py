"""Measured rows of one device and one software, ready to be priced again under named factors.

What a row leaves open is settled once, by the constants as they are; only the factors change after that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.catalog import Catalog
from twofold.core.errors import InputError
from twofold.measure.inference_rows import Case, read_cases
from twofold.measure.predict_inference import Batch, batches, best_layouts, price_batch
from twofold.measure.predict_training import (
    Group,
    counter,
    group_entries,
    hardware,
    price_group,
    printed,
    settled_entries,
)
from twofold.measure.training_rows import Entry
from twofold.measure.truth import METRICS, Row, measured_figures, text
from twofold.perf.constants import Constants
from twofold.perf.known import Half
from twofold.perf.shape import model_kind
from twofold.perf.software import engine_software
from twofold.perf.types import Cluster
from twofold.training.stack import Stack, software_family

Array = NDArray[np.float64]
Factors = Mapping[str, Array]  # name -> (draws, 1)
Priced = tuple[NDArray[np.int64], Callable[[Factors], dict[str, Array]]]  # places in the sheet, their metrics
FACTORS: Mapping[Half, tuple[str, ...]] = {  # what may be calibrated
    "training": ("compute", "memory_bandwidth", "link", "fabric", "host", "memory_use"),
    "inference": ("compute", "memory_bandwidth", "host", "communication", "prefill"),
}


@dataclass(frozen=True, slots=True)
class Software:
    """What a calibration holds for: one accelerator under one software."""

    accelerator: str
    family: str  # of the accelerator
    name: str  # family of training frameworks, or engine
    era: str  # of an engine's releases, "" where it cannot be told
    versions: str  # as the rows say them


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows that can be priced together; `place` says which of the rows given each one is."""

    half: Half
    software: Software
    place: NDArray[np.intp]
    kind: tuple[str, ...]  # dense moe mla, per row
    groups: tuple[Priced, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What is predicted of each row."""
        return METRICS[self.half]

    def log_predicted(self, factors: Factors) -> dict[str, Array]:
        """Logarithm of every metric, (draws, rows); NaN where nothing is predicted."""
        count = max((values.shape[0] for values in factors.values()), default=1)
        out = {name: np.full((count, self.place.size), np.nan) for name in self.metrics}
        for places, priced in self.groups:
            for name, values in priced(factors).items():
                out[name][:, places] = np.log(np.maximum(values, 1e-12))
        return out


def _priced_group(group: Group, cluster: Cluster, stack: Stack, factors: Factors) -> dict[str, Array]:
    """Step seconds of one machine's rows, and the peak as their framework prints it, (draws, rows)."""
    found = price_group(group, cluster.scaled(factors), stack.scaled(factors))
    how = counter(group.machine.framework, group.machine.precision)
    return {"step_time_s": np.asarray(found.step.total_s), "peak_mem_gib": printed(found.memory, how)}


def _priced_batch(batch: Batch, factors: Factors) -> dict[str, Array]:
    """Every metric of cases that one call prices, (draws, rows)."""
    replica = batch.replica
    cluster, engine = replica.cluster.scaled(factors), replica.engine.scaled(factors)
    return price_batch(replace(batch, replica=replace(replica, cluster=cluster, engine=engine)))


Stacked = tuple[Software, str, Entry | Case]
"""What a row ran on, in its own release; the kind of its model; the row under one reading."""


def sheets_of(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[list[Sheet], dict[int, str]]:
    """The rows by device and software, largest group first, and why each other row cannot be read."""
    read, refused = (_trained if half == "training" else _served)(rows, catalog, constants)
    by_stack: dict[Software, list[int]] = {}
    for place, (software, _, _) in read.items():
        by_stack.setdefault(replace(software, versions=""), []).append(place)
    sheets = []
    for stack, places in by_stack.items():
        own, kinds, cases = zip(*(read[place] for place in places), strict=True)
        versions = ", ".join(sorted({software.versions for software in own} - {""}))
        groups = tuple(_groups(cases, catalog, constants))
        sheets.append(Sheet(half, replace(stack, versions=versions), np.array(places), kinds, groups))
    return sorted(sheets, key=lambda sheet: -sheet.place.size), refused


def _trained(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[dict[int, Stacked], dict[int, str]]:
    settled, refused = settled_entries(rows, catalog, constants)
    read: dict[int, Stacked] = {}
    for entry in (one.entry for one in settled):
        machine = entry.machine
        name = software_family(machine.framework, machine.precision)
        software = Software(machine.accelerator, machine.family, name, "", machine.framework)
        read[entry.row] = software, "moe" if machine.moe else "dense", entry
    return read, refused


def _served(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[dict[int, Stacked], dict[int, str]]:
    cases, refused = read_cases(rows, catalog, constants)
    read: dict[int, Stacked] = {}
    for place, (case, *_) in zip(cases, best_layouts([*cases.values()], constants), strict=True):
        part, era = case.accelerator, engine_software(case.engine).era_of(case.version)
        software = Software(part.name, part.family, case.engine, era, case.version)
        read[place] = software, model_kind(case.model), case
    return read, refused


def _groups(read: Sequence[Entry | Case], catalog: Catalog, constants: Constants) -> Iterator[Priced]:
    """What one call prices each; the rows of one sheet are of one half."""
    for group in group_entries([one for one in read if isinstance(one, Entry)]):
        yield group.index, partial(_priced_group, group, *hardware(group.machine, catalog, constants))
    for batch in batches([one for one in read if isinstance(one, Case)], constants):
        yield batch.places, partial(_priced_batch, batch)


def half_of_row(row: Row, columns: Sequence[str]) -> Half:
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
        for name, value in measured_figures(sheet.half, rows[place]):
            out[name][at] = np.log(value)
    return out
