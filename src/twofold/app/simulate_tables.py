"""CSV tables of a rehearsal: one row per request or job, and one per bucket of time."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from twofold.app.files import whole_file
from twofold.rehearse import PoolTask
from twofold.twin.cluster import JobRecord
from twofold.twin.serving import FleetResult, RequestRecord, TimelineRow

Record = Callable[[RequestRecord], None]
Placed = tuple[tuple[str, int], ...]  # node and accelerators on it
JobNote = Callable[[JobRecord, Placed], None]


@contextmanager
def request_table(path: Path | None) -> Iterator[Record | None]:
    """A function that writes a request as it ends; None where no table is wanted."""
    with _table(path, RequestRecord) as write:
        yield write


@contextmanager
def job_table(path: Path | None) -> Iterator[JobNote | None]:
    """A function that writes a job as it ends, with where it stood last; None where no table is wanted."""
    with _table(path, JobRecord, "placement") as write:
        yield write and (
            lambda job, placement: write(job, " ".join(f"{node}:{count}" for node, count in placement))
        )


@contextmanager
def _table(path: Path | None, kind: type, *more: str) -> Iterator[Callable[..., None] | None]:
    """What writes a value of a kind as a row, with what stands in further columns."""
    if path is None:
        yield None
        return
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([*(field.name for field in fields(kind)), *more])

        def write(value: Any, *cells: str) -> None:
            writer.writerow([*("" if each is None else each for each in astuple(value)), *cells])

        yield write


def timeline_table(path: Path, tasks: Sequence[PoolTask], results: Sequence[FleetResult]) -> None:
    """The run over time, every pool one after the other."""
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["service", "pool", *(field.name for field in fields(TimelineRow))])
        for task, result in zip(tasks, results, strict=True):
            where = [task.service.name, task.pool.pool.name]
            writer.writerows([*where, *astuple(row)] for row in result.timeline)
