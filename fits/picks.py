"""What a wrong prediction costs: of measured configurations of one workload, pick the one that the prediction
calls best within a limit on TPOT, and hold it against the best that really keeps the limit.

A workload is a model under one length of prompts and answers in one source; its configurations differ in
machines, layout and clients. Throughput is by Little's law: clients × output / (TTFT + output × TPOT), per
accelerator.
Every row is predicted by constants that saw nothing of its source.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold.measure.results import Column
from twofold.measure.truth import Row, number, source_of, text
from twofold.measure.validation import Part

LIMITS_MS = (10, 15, 25, 50)
FEWEST = 8  # configurations of a workload: fewer are no choice
TOLERANCE = 1.02  # two runs of one configuration differ by as much
HEAD = (
    f"{'TPOT limit':>10} {'workloads':>9} {'broken':>7} {'lost':>7} {'by upper end: broken':>21} {'lost':>7}"
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One measured row of a workload, as it was and as it was predicted."""

    tpot_ms: float
    rate_per_s: float  # output tokens per accelerator
    said_tpot_ms: float
    said_high_ms: float  # upper end of the 80 % range
    said_rate_per_s: float


@dataclass(frozen=True, slots=True)
class Picked:
    """Of the picks within one limit: how many break it, and what the median of the others loses."""

    limit_ms: int
    workload_count: int
    broken_fraction: float
    lost_fraction: float
    sure_broken_fraction: float  # where the upper end of the range has to keep the limit
    sure_lost_fraction: float


def workloads(parts: Mapping[str, Part]) -> list[list[Configuration]]:
    """Rows that state TTFT, TPOT, clients and accelerators, by source, model and lengths."""
    ttft, tpot = parts["ttft"], parts["tpot"]
    first = ttft.answers[Column.LEFT_OUT]
    place_of = {text(row, "id"): place for place, row in enumerate(ttft.rows)}
    values = tpot.answers[Column.LEFT_OUT]
    found: dict[tuple[str, ...], list[Configuration]] = defaultdict(list)
    for place, row in enumerate(tpot.rows):
        at = place_of.get(text(row, "id"))
        if at is None or not (values.answered[place] and first.answered[at]):
            continue
        rates = [
            _rate(row, float(a[at]), float(b[place]))
            for a, b in ((first.measured, values.measured), (first.predicted, values.predicted))
        ]
        if all(rates):
            told = values.measured[place], rates[0], values.predicted[place], values.high_80[place], rates[1]
            key = source_of(row), *(text(row, name) for name in ("model", "isl_mean", "osl_mean"))
            found[key].append(Configuration(*map(float, told)))
    return [each for each in found.values() if len(each) >= FEWEST]


def _rate(row: Row, ttft_ms: float, tpot_ms: float) -> float:
    clients, output, count = (number(row, name) or 0.0 for name in ("concurrency", "osl_mean", "gpus_total"))
    return clients * output / (ttft_ms + tpot_ms * output) * 1e3 / count if count else 0.0


def picked(found: Sequence[Sequence[Configuration]], limit_ms: int) -> Picked:
    """Over all workloads in which the limit is a choice: some configurations keep it, and not all."""
    broken: list[bool] = []
    lost: list[float] = []
    sure_broken: list[bool] = []
    sure_lost: list[float] = []
    for each in found:
        real = [one.rate_per_s for one in each if one.tpot_ms <= limit_ms * TOLERANCE]
        usual = [one for one in each if one.said_tpot_ms <= limit_ms]
        if not real or len(real) == len(each) or not usual:
            continue
        sure = [one for one in each if one.said_high_ms <= limit_ms]
        for choice, breaks, losses in ((usual, broken, lost), (sure, sure_broken, sure_lost)):
            if choice:
                pick = max(choice, key=lambda one: one.said_rate_per_s)
                breaks.append(pick.tpot_ms > limit_ms * TOLERANCE)
                if not breaks[-1]:
                    losses.append(1 - pick.rate_per_s / max(real))
    shares = (float(np.mean(each)) if each else np.nan for each in (broken, sure_broken))
    medians = (float(np.median(each)) if each else np.nan for each in (lost, sure_lost))
    (usual_broken, last_broken), (usual_lost, last_lost) = shares, medians
    return Picked(limit_ms, len(broken), usual_broken, usual_lost, last_broken, last_lost)


def picks(parts: Mapping[str, Part]) -> list[Picked]:
    """A row for each limit that is a choice in any workload."""
    if not {"ttft", "tpot"} <= parts.keys():
        return []
    found = workloads(parts)
    return [row for row in (picked(found, limit) for limit in LIMITS_MS) if row.workload_count]


def lines_of_picks(parts: Mapping[str, Part]) -> list[str]:
    """The table as text."""
    rows = picks(parts)
    cells = [
        f"{row.limit_ms:7} ms {row.workload_count:9} {row.broken_fraction:7.0%} {row.lost_fraction:7.1%} "
        f"{row.sure_broken_fraction:21.0%} {row.sure_lost_fraction:7.1%}"
        for row in rows
    ]
    return [HEAD, *cells, "goal: broken ≤ 15 %; by the upper end ≤ 10 %, lost ≤ 12 %"] if rows else []
