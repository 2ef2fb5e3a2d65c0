"""Traces of training jobs: when each was submitted, how long it ran, on how many accelerators."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.contracts.rows.trace import in_order
from twofold.contracts.rows.trace_rows import columns_of, counted, csv_table, opened_lines, seconds
from twofold.core import errors
from twofold.core.errors import Place

ACCELERATORS_MAX = 1_000_000
# The spellings that published traces use, ours first; those behind `gpus` may be left out.
NAMES: Mapping[str, tuple[str, ...]] = {
    "submit_s": ("submit_s", "submit_time", "submitted_s", "submit"),
    "duration_s": ("duration_s", "duration", "run_s", "run_time", "elapsed_s"),
    "gpus": ("gpus", "accelerators", "gpu_count", "num_gpus", "gpu_num"),
    "state": ("state", "status"),
    "kind": ("kind", "type"),
    "team": ("team", "vc", "queue", "user", "group"),
}
NEEDED = ("submit_s", "duration_s", "gpus")


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a trace. A fraction of an accelerator shares one."""

    submit_s: float
    duration_s: float  # that it ran, its time in the queue left out
    accelerator_count: float
    state: str = ""  # completed failed cancelled …: how it ended in the trace; "" where it does not say
    kind: str = ""
    team: str = ""


def read_jobs(path: Path) -> Iterator[JobRow]:
    """The jobs of a csv or csv.gz in the order of submission, the first one at 0 s; errors name the line.

    Memory does not grow with the file. Jobs without accelerators, which clusters run beside, are left out.
    """
    file = str(path)
    first_s: float | None = None
    with opened_lines(path) as lines:
        rows = in_order(_numbered(lines, file), file, lambda job: job.submit_s)
        for _, job in rows:
            if job.accelerator_count > 0:
                first_s = job.submit_s if first_s is None else first_s
                yield replace(job, submit_s=job.submit_s - first_s)
    if first_s is None:
        raise errors.TraceError(f"`{file}` holds no job with accelerators", place=Place(file, 1, 1))


def _numbered(lines: Iterator[str], file: str) -> Iterator[tuple[int, JobRow]]:
    hint = f"columns: {', '.join(NAMES)}; the last three may be left out"
    header, rows = csv_table(lines, file, hint)
    columns = columns_of(header, NAMES, NEEDED, Place(file, 1, 1), hint)
    for line, cells in rows:
        place = Place(file, line, 1)
        texts = {field: cells[column].strip() for field, column in columns.items()}
        duration_s = seconds(texts["duration_s"], place)
        if duration_s < 0:
            raise errors.TraceError(f"a job ran {duration_s:g} s", place=place, hint="write seconds from 0")
        submit_s = seconds(texts["submit_s"], place)
        accelerators = counted(texts["gpus"], place, "accelerators", ACCELERATORS_MAX)
        told = (texts.get(field, "") for field in ("state", "kind", "team"))
        yield line, JobRow(submit_s, duration_s, accelerators, *told)
