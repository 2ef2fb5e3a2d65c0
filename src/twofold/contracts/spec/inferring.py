"""Writes the spec that a running system implies: an engine's line, a request log, Slurm's accounting.

What the source does not say is written with `# assumed`, so that nobody takes it for a fact.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from statistics import median

from twofold.contracts.names import Names, fold
from twofold.contracts.rows.trace import read_log
from twofold.contracts.rows.trace_rows import opened_lines
from twofold.contracts.rows.trace_rows import seconds as read_seconds
from twofold.contracts.spec.command_line import COMMAND
from twofold.contracts.spec.infer_command import (
    ASSUMED_MODEL,
    ASSUMED_SLO,
    COMMENT,
    catalog_model,
    spec_name,
    spec_of_command,
    written,
    yaml_text,
)
from twofold.contracts.spec.infer_manifest import GIVE, STARTERS, launched
from twofold.contracts.spec.infer_trainer import TRAINER, spec_of_trainer
from twofold.contracts.spec.reader import read_text
from twofold.core import errors
from twofold.core.display import format_seconds
from twofold.core.errors import Place
from twofold.core.quantity import DAY_S

RUN_LIMIT = 8  # the runs with the most GPU-hours; the rest is noise to a plan
JOB_LIMIT = 5_000_000
SACCT_HINT = "sacct --parsable2 --format=JobID,JobName,Start,Elapsed,NNodes,AllocTRES"
ASSUMED_PARAMETERS = 8.03e9  # of the assumed model
ASSUMED_FLOPS_PER_S = 400e12  # per GPU, while it trains
FROM = "give a file with an engine's line or script, a requests.jsonl or a sacct.csv"
# As our own files say of a server or a trainer that no catalogue knows.
OWN_SOFTWARE = re.compile(r"\byour (?:own )?(?:server|training software)\b")
_ELAPSED = re.compile(r"(?:(\d{1,4})-)?(\d{1,3}):(\d{2}):(\d{2})(?:\.\d+)?")
_GPUS = re.compile(r"gres/gpu(?::([\w.-]+))?[=:](\d{1,6})")


def infer_spec(source: str, names: Names | None = None) -> str:
    """The spec's text. `source` is a command line, or a path to one, to requests.jsonl or to sacct.csv."""
    known = names or Names()
    if COMMAND.search(source):
        return spec_of_command(source, known)
    path = Path(source)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise errors.unread(source, error, FROM) from error
    if not S_ISREG(mode):
        what, hint = "is a folder", FROM
        if not S_ISDIR(mode):
            what = "is a pipe, a socket or a device, and no file"
            hint = "write what it gives to a file, and name that"
        raise errors.FileError(f"`{source}` {what}", hint=hint)
    if path.suffix == ".gz" or path.stem.endswith(".jsonl") or path.suffix in (".jsonl", ".ndjson"):
        with opened_lines(path) as lines:
            return spec_of_requests(lines, source, known)
    text = read_text(path) if path.suffix not in (".csv", ".psv", ".txt", ".log") else ""
    if behind := launched(path, text):
        text, source = behind[0], str(behind[1])
    if COMMAND.search(text):
        return spec_of_command(text, known, file=source)
    if TRAINER.search(text):
        return spec_of_trainer(text, known, file=source)
    if own := OWN_SOFTWARE.search(text):
        what = f"`{path.name[:64]}` starts {own[0]}: nothing in it says a model"
        hint = "plan it by what you measured of it: `model: {measured: FILE.csv}` in a spec of your own"
        raise errors.InferenceSourceError(what, hint=hint)
    if path.suffix in STARTERS and not (path.suffix == ".json" and not text.startswith("{\n")):
        raise errors.InferenceSourceError(f"`{path.name[:64]}` alone tells no engine and no run", hint=GIVE)
    with opened_lines(path) as lines:
        first = next(lines, "")
        if COMMAND.search(first):
            return spec_of_command(first + "".join(lines), known, file=source)
        if first.lstrip().startswith("{"):
            return spec_of_requests(chain([first], lines), source, known)
        if "jobid" in first.lower():
            return spec_of_jobs(chain([first], lines), source, known)
    raise errors.InferenceSourceError(
        f"`{source[:64]}` is neither a command of an engine or trainer, nor requests.jsonl, nor sacct.csv",
        hint="twofold init --from 'vllm serve MODEL …' | requests.jsonl | sacct.csv",
    )


def spec_of_requests(lines: Iterable[str], file: str, names: Names) -> str:
    """A service with the log's rate, peak and lengths.

    Every line needs an arrival and both lengths; of our gateway's log, those without are left out.
    """
    trace, logged = read_log(lines, Path(file))
    model, note = catalog_model(logged, names) if logged else (ASSUMED_MODEL, f"{COMMENT}assumed")
    text = [
        f"# Inferred from {file}: {trace.request_count:,} requests in {format_seconds(trace.duration_s)}",
        *(f"# {note}" for note in trace.notes),
        f"name: {spec_name(model.rsplit('/', 1)[-1])}",
        f"model: {yaml_text(model)}{note}",
        "",
        "serving:",
        f"  availability: 99.9 %{COMMENT}assumed",
        f"  zones: 1{COMMENT}assumed",
        f"  quantisation: [fp8, bf16]{COMMENT}assumed",
        "  classes:",
        "    chat:",
        "      traffic:",
        f"        rate: {trace.mean_rate_per_s:.6g} /s",
        f"        peak: {min(trace.peak_ratio, 1000.0):.3g}x{COMMENT}busiest minute over the mean",
        f"        profile: flat{COMMENT}assumed: a log shows its own hours only",
        f"        input: {_lengths(trace.input.mean_tokens, trace.input.p95_tokens)}",
        f"        output: {_lengths(trace.output.mean_tokens, trace.output.p95_tokens)}",
        ASSUMED_SLO,
    ]
    return written(text)


def _lengths(mean_tokens: float, p95_tokens: float) -> str:
    mean = max(1.0, mean_tokens)
    return f"{{mean: {mean:.0f} tok, p95: {max(p95_tokens, mean * 0.5, 1.0):.0f} tok}}"


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    elapsed_s: float
    node_count: int
    gpu_count: int
    gpu_type: str
    start_s: float | None

    @property
    def gpu_h(self) -> float:
        return self.gpu_count * self.elapsed_s / 3600


def spec_of_jobs(lines: Iterable[str], file: str, names: Names) -> str:
    """Training runs, one per job name, on the nodes they had; tokens are worked back from GPU-hours."""
    jobs_by_name: dict[str, list[_Job]] = defaultdict(list)
    for count, job in enumerate(_jobs(lines, file)):
        if count >= JOB_LIMIT:
            what = f"`{file}` has more than {JOB_LIMIT:,} jobs"
            raise errors.InferenceSourceError(what, hint="export fewer days")
        jobs_by_name[spec_name(job.name)].append(job)
    if not jobs_by_name:
        what, place = f"`{file}` holds no job with GPUs", Place(file, 1, 1)
        raise errors.InferenceSourceError(what, place=place, hint=SACCT_HINT)
    ranked = sorted(jobs_by_name.items(), key=lambda item: -sum(job.gpu_h for job in item[1]))
    gpu_h = sum(job.gpu_h for jobs in jobs_by_name.values() for job in jobs)
    job_count = sum(map(len, jobs_by_name.values()))
    head = [
        f"# Inferred from {file}: {job_count:,} jobs with GPUs, {gpu_h:,.0f} GPU-h",
        f"name: cluster{COMMENT}assumed",
        f"model: {ASSUMED_MODEL}{COMMENT}assumed: accounting does not know models",
        "",
        "training:",
    ]
    if len(ranked) > RUN_LIMIT:
        head.insert(1, f"# the {RUN_LIMIT} job names with the most GPU-hours, of {len(ranked)}")
    runs = [line for name, jobs in ranked[:RUN_LIMIT] for line in _run(name, jobs, names)]
    return written([*head, *runs])


def _run(name: str, jobs: list[_Job], names: Names) -> list[str]:
    longest = max(jobs, key=lambda job: job.gpu_h)
    tokens = longest.gpu_h * 3600 * ASSUMED_FLOPS_PER_S / (6 * ASSUMED_PARAMETERS)
    basis = f"{longest.gpu_h:,.1f} GPU-h at {ASSUMED_FLOPS_PER_S / 1e12:g} TFLOP/s per GPU"
    longest_h, count = max(longest.elapsed_s / 3600, 0.01), len(jobs)
    lasted = f"{longest_h:.3g} h" if longest_h >= 1 else f"{60 * longest_h:.3g} min"
    counted = f"{tokens / 1e9:.3g} Gtok" if tokens >= 1e9 else f"{max(tokens / 1e6, 1e-3):.3g} Mtok"
    lines = [
        f"  - name: {name}",
        f"    kind: {'finetune' if re.search('tune|sft|lora', name, re.I) else 'pretrain'}{COMMENT}assumed",
        f"    tokens: {counted}{COMMENT}assumed: {basis}",
        f"    deadline: {lasted}{COMMENT}what the longest of {count} took",
        f"    {_machines(longest, names)}",
    ]
    starts = sorted(job.start_s for job in jobs if job.start_s is not None)
    if len(starts) >= 3:
        every_s = median(later - earlier for earlier, later in pairwise(starts))
        if every_s >= 60:
            lines.append(f"    repeats: every {every_s / DAY_S:.3g} d{COMMENT}median of {len(starts)} starts")
    return lines


def _machines(job: _Job, names: Names) -> str:
    """The nodes it had; a comment where accounting does not name an accelerator that the catalogue knows."""
    per_node = ceil(job.gpu_count / job.node_count)
    known = {fold(name): name for name in names.accelerators}
    accelerator = known.get(fold(job.gpu_type)) if job.gpu_type else None
    if accelerator:
        return f"on: {job.node_count}x{per_node}x{accelerator}"
    shape, kind = f"{job.node_count}x{per_node}", job.gpu_type or "GPU"
    return f"# on: {shape}xH100-SXM{COMMENT}it had {shape}x{kind}; name your accelerator to keep it"


def _jobs(lines: Iterable[str], file: str) -> Iterator[_Job]:
    """Jobs with GPUs; steps such as 17.batch are parts of theirs."""
    lines = iter(lines)
    first = next(lines, "")
    separator = "|" if "|" in first else ","
    header = [name.strip().lower() for name in next(csv.reader([first], delimiter=separator), [])]
    for needed in ("jobid", "elapsed", "alloctres"):
        if needed not in header:
            place = Place(file, 1, 1)
            raise errors.InferenceSourceError(f"no column `{needed}`", place=place, hint=SACCT_HINT)
    rows = csv.reader(lines, delimiter=separator)
    for row in rows:
        place = Place(file, rows.line_num + 1, 1)
        if not row:
            continue
        if len(row) < len(header):
            what = f"{len(row)} cells where the header has {len(header)}"
            raise errors.InferenceSourceError(what, place=place)
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        gpus = _GPUS.findall(cells["alloctres"])
        if gpus and "." not in cells["jobid"]:
            yield _job(cells, gpus, place)


def _job(cells: dict[str, str], gpus: list[tuple[str, str]], place: Place) -> _Job:
    match = _ELAPSED.fullmatch(cells["elapsed"])
    if not match:
        hint = "Slurm writes [days-]hours:minutes:seconds"
        raise errors.InferenceSourceError(f"`{cells['elapsed'][:32]}` is not a time", place=place, hint=hint)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    nodes = cells.get("nnodes") or "1"
    if not re.fullmatch(r"\d{1,6}", nodes) or int(nodes) == 0:
        raise errors.InferenceSourceError(f"`{nodes[:32]}` is not a count of nodes", place=place)
    start = cells.get("start") or ""
    return _Job(
        name=cells.get("jobname") or "job",
        elapsed_s=float(((days * 24 + hours) * 60 + minutes) * 60 + seconds),
        node_count=int(nodes),
        gpu_count=max(int(count) for _, count in gpus),
        gpu_type=next((kind for kind, _ in gpus if kind), ""),
        start_s=read_seconds(start, place) if start and start != "Unknown" else None,
    )
