"""What public benchmarks' scripts set: budgets of a step, waits for company, prompts that come again.

Rows of a benchmark do not state these, but its scripts do: `benchmark_settings.csv` cites each. A row of the
table holds where all its conditions do, and a later one wins.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from twofold.measure.truth import Row, number, read_rows, text

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
    prepared_prompts: float = 0.0  # that clients send in turn, again and again
    stage_s: float = 0.0  # at one rate
    block_tokens: float = 0.0  # of the prefix cache: no part of one is found
    cache_bytes: float = 0.0  # of one number of the KV cache

    def found_fraction(self, rate_per_s: float, input_tokens: float) -> float:
        """Of the input, what a prefix cache holds where the same prompts come again: 0 if they do not.

        Formula  (1 − n/(λ·T)) · b·⌊(input − 1)/b⌋/input, n prompts at a rate λ for T, in blocks of b tokens
        Why      Each prompt is computed when it first comes. Later all whole blocks are found but that of its
                 last token, which is always computed: the next token depends on it.
        Limits   a cache that holds all n beside what runs. No prompt comes twice: 0.
        """
        if not self.prepared_prompts:
            return 0.0
        again = max(0.0, 1.0 - self.prepared_prompts / max(rate_per_s * self.stage_s, 1e-9))
        whole = self.block_tokens * ((input_tokens - 1.0) // self.block_tokens)
        return again * max(0.0, whole) / input_tokens


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of the table: a blank condition holds everywhere."""

    named: str  # in what a row says of its lengths
    checkpoint: str  # in its model's name: the script of one model
    mode: str
    same: tuple[tuple[str, str], ...]  # engine, model, family, format, input, output, data_parallel, drafts
    tp_below: float
    concurrency_from: float
    version_from: str
    setting: str
    value: float


SAME = ("engine", "model", "family", "format", "input", "output", "data_parallel", "drafts")


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            named=cells["named"],
            checkpoint=cells["checkpoint"],
            mode=cells["mode"],
            same=tuple((name, cells[name]) for name in SAME if cells[name]),
            tp_below=float(cells["tp_below"] or "inf"),
            concurrency_from=float(cells["concurrency_from"] or 0.0),
            version_from=cells["version_from"],
            setting=cells["setting"],
            value=float(cells["value"]),
        )
        for cells in read_rows(FILE)
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
    found = {rule.setting: rule.value for rule in _rules() if _holds(rule, row, asked)}
    if "chunk_tokens" in found and engine == "trtllm":
        found["chunk_tokens"] = max(1.0, found["chunk_tokens"] // input_tokens) * input_tokens
    ranks = found.pop("wait_prompts_per_rank", 0.0) * (number(row, "dp") or 1.0)
    return SchedulerSettings(**{"wait_tokens": ranks * input_tokens} | found)


def _holds(rule: _Rule, row: Row, asked: dict[str, str]) -> bool:
    return (
        rule.named in text(row, "isl_dist")
        and rule.checkpoint in text(row, "model")
        and text(row, "mode").lower() == rule.mode
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
