"""What the published scripts of public benchmarks tell the scheduler: budgets of a step, waits for company.

Rows of a benchmark do not state these, but its scripts do: `benchmark_settings.csv` cites each. A row of the
table holds where all its conditions do, and a later one wins.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twofold.measure.truth import Row, number, text

FILE = Path(__file__).parent / "benchmark_settings.csv"
NOMINAL = re.compile(r" of (\d+)/(\d+)")  # as in `uniform 0.8-1.0 of 1024/8192 (nominal)`


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a script sets; 0 is the engine's own default."""

    chunk_tokens: float = 0.0  # of prefill in one step, beside what decodes
    wait_steps: float = 0.0
    wait_tokens: float = 0.0
    poll_steps: float = 0.0
    queued_clients: float = 0.0  # more than the engine may run at once


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of the table: a blank condition holds everywhere."""

    named: str  # in what a row says of its lengths
    same: tuple[tuple[str, str], ...]  # engine, model, family, format, input, output, data_parallel, drafts
    tp_below: float
    concurrency_from: float
    version_from: str
    setting: str
    value: float


SAME = ("engine", "model", "family", "format", "input", "output", "data_parallel", "drafts")


@cache
def _rules(path: Path = FILE) -> tuple[_Rule, ...]:
    with path.open(newline="", encoding="utf-8") as handle:
        return tuple(
            _Rule(
                named=cells["named"],
                same=tuple((name, cells[name]) for name in SAME if cells[name]),
                tp_below=float(cells["tp_below"] or "inf"),
                concurrency_from=float(cells["concurrency_from"] or 0.0),
                version_from=cells["version_from"],
                setting=cells["setting"],
                value=float(cells["value"]),
            )
            for cells in csv.DictReader(handle)
        )


def scheduler_settings(
    row: Row, engine: str, model: str, family: str, weights_format: str, input_tokens: float
) -> SchedulerSettings:
    """The settings of the benchmark that a row names by its lengths; defaults where it names none.

    `model` is dense, moe or mla; `input_tokens` is the mean prompt. An engine that does not split prompts
    carries whole ones: TensorRT-LLM's budget is rounded down to them.
    """
    nominal = NOMINAL.search(text(row, "isl_dist"))
    asked = {
        "engine": engine,
        "model": model,
        "family": family,
        "format": weights_format,
        "input": nominal.group(1) if nominal else "",
        "output": nominal.group(2) if nominal else "",
        "data_parallel": "yes" if (number(row, "dp") or 1.0) > 1 else "no",
        "drafts": "yes" if text(row, "spec_decode") == "1" else "no",
    }
    found: dict[str, float] = {}
    for rule in _rules():
        if _holds(rule, row, asked):
            found[rule.setting] = rule.value
    chunk = found.get("chunk_tokens", 0.0)
    if chunk and engine == "trtllm":
        chunk = max(1.0, chunk // input_tokens) * input_tokens
    ranks = found.get("wait_prompts_per_rank", 0.0) * (number(row, "dp") or 1.0)
    return SchedulerSettings(
        chunk_tokens=chunk,
        wait_steps=found.get("wait_steps", 0.0),
        wait_tokens=found.get("wait_tokens", ranks * input_tokens),
        poll_steps=found.get("poll_steps", 0.0),
        queued_clients=found.get("queued_clients", 0.0),
    )


def _holds(rule: _Rule, row: Row, asked: dict[str, str]) -> bool:
    return (
        rule.named in text(row, "isl_dist")
        and text(row, "mode").lower() == "aggregated"
        and all(asked[name] == value for name, value in rule.same)
        and (number(row, "tp") or 1.0) < rule.tp_below
        and (number(row, "concurrency") or 0.0) >= rule.concurrency_from
        and _release(text(row, "framework_version")) >= _release(rule.version_from)
    )


def _release(version: str) -> tuple[int, ...]:
    """Its leading numbers; none is before all others.

    >>> _release("1.2.0rc6.post2"), _release("gpt-oss-dev"), _release("")
    ((1, 2, 0), (), ())
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
    return tuple(int(each) for each in found.groups() if each) if found else ()
