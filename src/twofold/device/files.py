"""The folder of a measured device: its catalogue rows, its constants, and which machine it was measured on.

Written whole or not at all, read back only when its digest is right.
"""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.core.data import from_data, to_data, to_json
from twofold.core.errors import AlteredError, FileError
from twofold.core.estimate import Estimate

SCHEMA = "twofold/device/1"
RECORD = "device.json"
TABLES = ("accelerators.csv", "nodes.csv", "constants.csv")
GOOD_FOR_DAYS = 90  # drivers, libraries and neighbours change
BUSY_LOAD_PER_CORE = 0.75
MEMORY_TOLERANCE = 0.05  # kernels reserve a little more or less from start to start


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one machine from another."""

    processor: str
    core_count: int
    memory_bytes: int
    accelerator: str = ""  # the kind that was measured, where it is not the processor itself

    @property
    def words(self) -> str:
        """As people name a machine."""
        part = f", {self.accelerator}" if self.accelerator else ""
        return f"{self.processor}, {self.core_count} cores, {self.memory_bytes / 2**30:.1f} GiB{part}"

    def is_same(self, other: "Identity") -> bool:
        """Whether both are one machine; what it was asked to measure does not matter."""
        alike = abs(self.memory_bytes - other.memory_bytes) <= MEMORY_TOLERANCE * self.memory_bytes
        return alike and (self.processor, self.core_count) == (other.processor, other.core_count)


@dataclass(frozen=True, slots=True)
class FitError:
    """How far the fitted constants are off what was measured, in one group of operators."""

    group: str
    rows: int
    median_fraction: float  # of |predicted / measured - 1|
    worst_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Estimate):
    """One measured figure in words, with the range of its repeats."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What `device.json` says."""

    name: str  # of the accelerator row
    measured_on: date
    identity: Identity
    software: str  # torch 2.13.0, transformers 5.23.0
    rank_count: int
    duration_s: float
    fit: tuple[FitError, ...]
    digest: str  # of the three tables
    load_average: float = 0.0  # processes that wanted a core when the measurement began
    figures: tuple[Figure, ...] = ()
    kernels: tuple[Figure, ...] = ()  # in other number formats, over the usual one
    missing: tuple[str, ...] = ()  # operations that have no kernel in a format: gemm of prompts in fp8

    @property
    def is_disturbed(self) -> bool:
        """Whether others used much of the machine when the measurement began."""
        return self.load_average > BUSY_LOAD_PER_CORE * self.identity.core_count

    @property
    def summary(self) -> str:
        """For the NUMBERS of a plan."""
        return f"{self.name} measured here on {self.measured_on}: {self.identity.words}"


def this_identity(accelerator: str = "") -> Identity:
    """The machine that this process runs on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Identity(_processor(), os.cpu_count() or 1, int(pages), accelerator)


def _processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def notes_about(record: DeviceRecord, today: date | None, here: Identity | None = None) -> tuple[str, ...]:
    """What to know before trusting a measured device: old, of another machine than `here`, or disturbed."""
    notes = []
    if not record.identity.is_same(here or this_identity()):
        notes.append(
            f"`{record.name}` was measured on another machine ({record.identity.words}): "
            "`twofold measure device` measures this one"
        )
    if today and (today - record.measured_on).days > GOOD_FOR_DAYS:
        age_days = (today - record.measured_on).days
        notes.append(
            f"`{record.name}` was measured {age_days} days ago: `twofold measure device` measures it again"
        )
    if record.is_disturbed:
        notes.append(
            f"`{record.name}` was measured while others used the machine (load {record.load_average:.1f} on "
            f"{record.identity.core_count} cores): `twofold measure device` when it is quiet is truer"
        )
    return tuple(notes)


def digest_of(tables: Mapping[str, str]) -> str:
    """SHA-256 over the three tables by name."""
    digest = hashlib.sha256()
    for name in TABLES:
        data = tables[name].encode()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def write_device(folder: Path, tables: Mapping[str, str], record: DeviceRecord) -> None:
    """Replace `folder` by one with these tables and this record; no interruption leaves half of one."""
    fresh, old = (folder.with_name(f".{folder.name}.{word}") for word in ("unfinished", "old"))
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name in TABLES:
        (fresh / name).write_text(tables[name], "utf-8")
    text = to_json({"schema": SCHEMA, **to_data(record)}, only_ascii=True)
    (fresh / RECORD).write_text(text, "utf-8")
    if folder.exists():
        folder.replace(old)
    fresh.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_device(folder: Path) -> tuple[DeviceRecord, str]:
    """The record and the text of the constants. Raises FileError or AlteredError if it is not whole."""
    try:
        data = json.loads((folder / RECORD).read_text("utf-8"))
        tables = {name: (folder / name).read_text("utf-8") for name in TABLES}
        record = from_data(DeviceRecord, data, more=True)
    except (OSError, ValueError) as error:
        raise FileError(
            f"`{folder}` is not a measured device: {error}",
            hint="measure again with `twofold measure device`",
        ) from error
    if digest_of(tables) != record.digest:
        raise AlteredError(
            f"the tables in `{folder}` are not those that were measured",
            hint="measure again with `twofold measure device`; rows of your own belong into `catalog/`",
        )
    return record, tables["constants.csv"]
