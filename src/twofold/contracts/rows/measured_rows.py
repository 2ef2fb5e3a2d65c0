"""Rows that a user measured of a workload that no model describes: service times of batches, training steps.

Each table is CSV with the unit in the name of its column; every mistake of a file is found in one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from twofold.contracts.names import did_you_mean
from twofold.core.csv_lines import CsvLine, csv_lines
from twofold.core.errors import InputError, InputErrors, Place, TableError, unread

FILE_LIMIT_BYTES = 16 * 2**20
ERROR_LIMIT = 50


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """How long one replica takes for a batch, or how late it answers at a rate; None: not measured."""

    # Requests of the largest batch, or that come while the longest runs: planning takes memory for all.
    BATCH_MOST: ClassVar[int] = 100_000
    FEWER: ClassVar[str] = "count requests that hold more, as `unit` and `units_per_request` say"

    place: Place
    batch_size: float | None  # requests; None: the row is of a rate
    service_s: float | None  # from the batch's start to its end
    ttft_s: float | None = None  # from the batch's start to its first output
    tpot_s: float | None = None  # per further output
    rate_per_s: float | None = None  # requests that arrived, independently of each other
    e2e_p50_s: float | None = None
    e2e_p95_s: float | None = None
    e2e_p99_s: float | None = None
    unit: str = ""  # what a request holds: images, texts …
    units_per_request: float | None = None
    start_s: float | None = None  # of a replica, to its first answer


@dataclass(frozen=True, slots=True)
class StepRow:
    """How long a training step takes on so many accelerators; None is not measured."""

    place: Place  # of the accelerator's name
    accelerator: str  # as written
    accelerator_count: int
    global_batch_samples: int
    step_s: float
    memory_bytes: float | None  # peak, of the fullest accelerator
    checkpoint_bytes: float | None
    sample_bytes: float | None  # that storage delivers for one sample


@dataclass(frozen=True, slots=True)
class StartRow:
    """How long a replica took from the start of its process to its first answer; None is not told."""

    place: Place
    kind: str  # of START_KINDS
    accelerator: str  # as written
    engine: str
    start_s: float
    replica_count: int | None = None  # that served meanwhile …
    rate_per_s: float | None = None  # … so many requests
    memory_bytes: float | None = None  # of all of their processes before …
    memory_after_bytes: float | None = None  # … and with the new one


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a table of measured rows."""

    name: str
    meaning: str
    is_required: bool = False
    kind: type[float | str] = float  # int too
    is_whole: bool = False
    factor: float = 1.0  # to SI
    field: str = ""  # of the row, where it is not the column's name
    unless: str = ""  # another column, in whose rows a required one may be empty
    most: float = inf
    instead: str = ""  # what to write where it is more


_NOTE = _Column("note", "anything: a date, a commit, who ran it", kind=str)
SERVICE_COLUMNS = (
    _Column(
        *("batch_size", "requests that one batch answers", True),
        is_whole=True,
        unless="rate_per_s",
        most=ServiceRow.BATCH_MOST,
        instead=ServiceRow.FEWER,
    ),
    _Column("service_s", "seconds from the batch's start to its end", True, unless="rate_per_s"),
    _Column("ttft_s", "seconds from the batch's start to the first output"),
    _Column("tpot_s", "seconds per further output"),
    _Column("rate_per_s", "requests/s that one replica was sent, in rows without a batch"),
    *(
        _Column(f"e2e_p{share}_s", f"seconds of the whole answer at that rate, {share} of 100 requests")
        for share in (50, 95, 99)
    ),
    _Column("unit", "what a request holds, such as images", kind=str),
    _Column("units_per_request", "how many of them"),
    _Column("start_s", "seconds from the start of a replica to its first answer"),
    _NOTE,
)
STEP_COLUMNS = (
    _Column("accelerator", "its name in the catalogue", is_required=True, kind=str),
    _Column("accelerator_count", "accelerators that ran the step", True, int, is_whole=True),
    _Column("global_batch_samples", "samples of one step", True, int, is_whole=True),
    _Column("step_s", "seconds of one step", is_required=True),
    _Column("memory_gib", "peak of the fullest accelerator", factor=2.0**30, field="memory_bytes"),
    _Column("checkpoint_gb", "size of one checkpoint", factor=1e9, field="checkpoint_bytes"),
    _Column("sample_kb", "what storage delivers for one sample", factor=1e3, field="sample_bytes"),
    _NOTE,
)


START_KINDS = {
    "cold": "its files were put out of the file cache before, where no other process holds them",
    "warm": "its files were read a moment ago",
}
START_COLUMNS = (
    _Column("kind", f"one of {', '.join(START_KINDS)}", is_required=True, kind=str),
    _Column("accelerator", "its name in the catalogue", is_required=True, kind=str),
    _Column("engine", "as a spec names it", is_required=True, kind=str),
    _Column("start_s", "seconds from the start of the process to its first answer", is_required=True),
    _Column("replicas", "replicas that served meanwhile", kind=int, is_whole=True, field="replica_count"),
    _Column("rate_per_s", "requests/s that they were sent"),
    _Column("memory_gib", "of all replicas' processes before it", factor=2.0**30, field="memory_bytes"),
    _Column("memory_after_gib", "and with it", factor=2.0**30, field="memory_after_bytes"),
    _NOTE,
)


def read_start_rows(path: Path) -> tuple[StartRow, ...]:
    """Measured starts of replicas. Raises TableError or InputErrors with file:line:column, FileError."""
    rows = tuple(StartRow(**cells) for cells in _rows(path, START_COLUMNS))
    wrong: list[InputError] = [
        TableError(
            f"`{row.kind[:40]}` is no kind of start", place=row.place, hint=f"one of {', '.join(START_KINDS)}"
        )
        for row in rows
        if row.kind not in START_KINDS
    ]
    if wrong:
        raise wrong[0] if len(wrong) == 1 else InputErrors(wrong[:ERROR_LIMIT])
    return rows


def read_service_rows(path: Path) -> tuple[ServiceRow, ...]:
    """Measured batches of a service. Raises TableError or InputErrors with file:line:column, FileError."""
    rows = tuple(ServiceRow(**cells) for cells in _rows(path, SERVICE_COLUMNS))
    late: list[InputError] = [
        TableError(f"the first output after {first:g} s, all after {row.service_s:g} s", place=row.place)
        for row in rows
        if row.service_s is not None and (first := row.ttft_s or 0.0) > row.service_s
    ]
    late += [
        TableError(
            "a row of a rate needs all quantiles", place=row.place, hint="e2e_p50_s, e2e_p95_s, e2e_p99_s"
        )
        for row in rows
        if row.rate_per_s is not None and not (row.e2e_p50_s and row.e2e_p95_s and row.e2e_p99_s)
    ]
    if late:
        raise late[0] if len(late) == 1 else InputErrors(late[:ERROR_LIMIT])
    return rows


def read_step_rows(path: Path) -> tuple[StepRow, ...]:
    """Measured steps of a training run. Raises TableError or InputErrors with file:line:column, FileError."""
    return tuple(StepRow(**cells) for cells in _rows(path, STEP_COLUMNS))


def _rows(path: Path, columns: Sequence[_Column]) -> list[dict[str, Any]]:
    """The fields of every row; its place is that of its first required cell."""
    try:
        with path.open("rb") as opened:
            data = opened.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise unread(path, error) from error
    lines = csv_lines(data, str(path), FILE_LIMIT_BYTES, TableError)
    header = next(lines, CsvLine(str(path), 1, "", []))
    slots = _slots(header, columns)
    rows: list[dict[str, Any]] = []
    errors: list[InputError] = []
    for line in lines:
        row, wrong = _read(line, slots, columns)
        rows.append(row)
        errors += wrong
        if len(errors) >= ERROR_LIMIT:
            break
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors[:ERROR_LIMIT])
    if not rows:
        names = ", ".join(column.name for column in columns if column.is_required)
        raise TableError("no measured rows", place=header.place(), hint=f"one row each: {names}")
    return rows


def _slots(header: CsvLine, columns: Sequence[_Column]) -> dict[str, int]:
    """Column name → its place in a row; a name that is no column is a mistake, not a remark."""
    known = [column.name for column in columns]
    said = f"columns: {', '.join(known)}"
    errors: list[InputError] = []
    for index, name in enumerate(header.cells):
        if name not in known:
            what, hint = f"`{name[:64]}` is not a column of measured rows", did_you_mean(name, known, said)
            errors.append(TableError(what, place=header.place(index), hint=hint))
        elif name in header.cells[:index]:
            errors.append(TableError(f"column `{name}` stands twice", place=header.place(index)))
        if len(errors) == ERROR_LIMIT:
            break
    missing = [column.name for column in columns if column.is_required and column.name not in header.cells]
    if missing:
        names = " and ".join(f"`{name}`" for name in missing)
        what = f"measured rows need the column{'s' if len(missing) > 1 else ''} {names}"
        errors.append(TableError(what, place=header.place(), hint=said))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return {name: index for index, name in enumerate(header.cells)}


def _read(
    line: CsvLine, slots: dict[str, int], columns: Sequence[_Column]
) -> tuple[dict[str, Any], list[InputError]]:
    """The fields of a row, numbers in SI and None where a cell is empty, and what is wrong with it."""
    if len(line.cells) != len(slots):
        wrong = f"{len(line.cells)} cells where the header has {len(slots)}"
        return {}, [TableError(wrong, place=line.place(), hint="leave a cell empty: `8,,0.12`")]
    row: dict[str, Any] = {"place": line.place(slots[columns[0].name])}
    errors: list[InputError] = []
    for column in columns:
        index = slots.get(column.name)
        text = "" if index is None else line.cells[index]
        value = text if column.kind is str else _number(text, column)
        if column is not _NOTE:
            row[column.field or column.name] = value
        other = slots.get(column.unless) if column.unless else None
        is_needed = column.is_required and (other is None or not line.cells[other])
        if index is not None and ((is_needed and not text) or (text and value is None)):
            what = "whole number from 1" if column.is_whole else "number above 0"
            said = f"`{text[:40]}` is not a {what}" if text else f"`{column.name}` has no value"
            hint = f"{column.name}: {column.meaning}"
            errors.append(TableError(said, place=line.place(index), hint=hint))
        elif index is not None and isinstance(value, int | float) and value > column.most:
            said = f"`{column.name}` is {value:,.0f}: at most {column.most:,.0f} are planned"
            errors.append(TableError(said, place=line.place(index), hint=column.instead))
    return row, errors


def _number(text: str, column: _Column) -> float | None:
    """The cell's number in SI, None where it is none that the column takes."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 < value < 1e15 or (column.is_whole and value != int(value)):
        return None
    return int(value) if column.kind is int else value * column.factor
