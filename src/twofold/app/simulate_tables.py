"""CSV tables of a rehearsal: one row per request or job, and one per bucket of time."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path

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
    if path is None:
        yield None
        return
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([field.name for field in fields(RequestRecord)])

        def record(request: RequestRecord) -> None:
            writer.writerow(["" if value is None else value for value in astuple(request)])

        yield record


@contextmanager
def job_table(path: Path | None) -> Iterator[JobNote | None]:
    """A function that writes a job as it ends, with where it stood last; None where no table is wanted."""
    if path is None:
        yield None
        return
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([*(field.name for field in fields(JobRecord)), "placement"])

        def note(job: JobRecord, placement: Placed) -> None:
            stood = " ".join(f"{node_id}:{count}" for node_id, count in placement)
            writer.writerow([*("" if value is None else value for value in astuple(job)), stood])

        yield note


def timeline_table(path: Path, tasks: Sequence[PoolTask], results: Sequence[FleetResult]) -> None:
    """The run over time, every pool one after the other."""
    with whole_file(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["service", "pool", *(field.name for field in fields(TimelineRow))])
        for task, result in zip(tasks, results, strict=True):
            where = [task.service.name, task.pool.pool.name]
            writer.writerows([*where, *astuple(row)] for row in result.timeline)
