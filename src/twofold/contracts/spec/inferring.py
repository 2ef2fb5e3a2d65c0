"""Writes the spec that a running system implies: a `vllm serve` line, a request log, Slurm's accounting.

What the source does not say is written with `# assumed`, so that nobody takes it for a fact.
"""

import re
from itertools import chain
from pathlib import Path

from twofold.contracts import Names
from twofold.contracts.rows import opened_lines
from twofold.contracts.spec.infer_command import spec_of_command
from twofold.contracts.spec.infer_jobs import spec_of_jobs
from twofold.contracts.spec.infer_requests import spec_of_requests
from twofold.contracts.spec.reader import read_text
from twofold.core import InferenceSourceError

_COMMAND = re.compile(r"(^|\s|/)(vllm\s+serve|vllm\.entrypoints\.\S+)(\s|$)")


def infer_spec(source: str, names: Names | None = None) -> str:
    """The spec's text. `source` is a command line, or a path to one, to requests.jsonl or to sacct.csv."""
    known = names or Names()
    if _COMMAND.search(source):
        return spec_of_command(source, known)
    path = Path(source)
    if path.suffix == ".gz" or path.stem.endswith(".jsonl") or path.suffix in (".jsonl", ".ndjson"):
        with opened_lines(path) as lines:
            return spec_of_requests(lines, source, known)
    text = read_text(path) if path.suffix not in (".csv", ".psv", ".txt", ".log") else ""
    if _COMMAND.search(text):
        return spec_of_command(text, known, file=source)
    with opened_lines(path) as lines:
        first = next(lines, "")
        if _COMMAND.search(first):
            return spec_of_command(first + "".join(lines), known, file=source)
        if first.lstrip().startswith("{"):
            return spec_of_requests(chain([first], lines), source, known)
        if "jobid" in first.lower():
            return spec_of_jobs(chain([first], lines), source, known)
    raise InferenceSourceError(
        f"`{source[:64]}` is neither a `vllm serve` command, nor requests.jsonl, nor sacct.csv",
        hint="twofold init --from 'vllm serve MODEL …' | requests.jsonl | sacct.csv",
    )
