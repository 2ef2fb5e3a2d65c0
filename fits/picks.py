"""What a wrong prediction costs: of measured configurations of one workload, pick the one that the prediction
calls best within a limit on TPOT, and hold it against the best that really keeps the limit.

A workload is a model under one length of prompts and answers in one source; its configurations differ in
machines, layout and clients. Throughput is by Little's law: clients × output / (TTFT + output × TPOT), per
accelerator.
Every row is predicted by constants that saw nothing of its source.

Three rules choose. The usual one believes predictions, and the best of many within a limit is one that is too
good. The sure one asks the upper end of the range to keep the limit. The weighed one takes the most of
rate × (2P − 1), P the probability that the limit holds: to break it costs what to keep it brings.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twofold.core import Estimate
from twofold.measure.results import Column
from twofold.measure.truth import Row, number, source_of, text
from twofold.measure.validation import Part

LIMITS_MS = (10, 15, 25, 50)
FEWEST = 8  # configurations of a workload: fewer are no choice
TOLERANCE = 1.02  # two runs of one configuration differ by as much
RULES = ("usual", "sure", "weighed")
HEAD = f"{'TPOT limit':>10} {'workloads':>9} {'broken':>7} {'lost':>7} " + " ".join(
    f"{how:>21} {'lost':>7}" for how in ("by upper end: broken", "weighed: broken")
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One measured row of a workload, as it was and as it was predicted."""

    tpot_ms: float
    rate_per_s: float  # output tokens per accelerator
    said_tpot_ms: float
    said_high_ms: float  # upper end of the 80 % range
    said_rate_per_s: float

    def worth(self, rule: str, limit_ms: float) -> float:
        """What a rule takes the most of; nothing where it refuses the configuration."""
        if rule == "weighed":
            said = Estimate(self.said_tpot_ms, 0.0, max(self.said_high_ms, self.said_tpot_ms), "ms")
            return self.said_rate_per_s * max(2 * said.probability_within(limit_ms) - 1, 0.0)
        kept = (self.said_high_ms if rule == "sure" else self.said_tpot_ms) <= limit_ms
        return self.said_rate_per_s if kept else 0.0


@dataclass(frozen=True, slots=True)
class Picked:
    """Of the picks within one limit, by rule: how many break it, and what the median of the others loses."""

    limit_ms: int
    workload_count: int
    broken_fraction: Mapping[str, float]
    lost_fraction: Mapping[str, float]


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
    broken: dict[str, list[bool]] = {rule: [] for rule in RULES}
    lost: dict[str, list[float]] = {rule: [] for rule in RULES}
    for each in found:
        real = [one.rate_per_s for one in each if one.tpot_ms <= limit_ms * TOLERANCE]
        if not real or len(real) == len(each) or all(one.said_tpot_ms > limit_ms for one in each):
            continue
        for rule in RULES:
            pick = max(each, key=lambda one: one.worth(rule, limit_ms))
            if pick.worth(rule, limit_ms):
                broken[rule].append(pick.tpot_ms > limit_ms * TOLERANCE)
                if not broken[rule][-1]:
                    lost[rule].append(1 - pick.rate_per_s / max(real))
    shares = {rule: float(np.mean(each)) if each else np.nan for rule, each in broken.items()}
    medians = {rule: float(np.median(each)) if each else np.nan for rule, each in lost.items()}
    return Picked(limit_ms, len(broken["usual"]), shares, medians)


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
        f"{row.limit_ms:7} ms {row.workload_count:9}"
        + " ".join(
            f"{row.broken_fraction[rule]:{wide}.0%} {row.lost_fraction[rule]:7.1%}"
            for rule, wide in zip(RULES, (8, 21, 21), strict=True)
        )
        for row in rows
    ]
    return [HEAD, *cells, "goal: broken ≤ 15 %; by the upper end ≤ 10 %, lost ≤ 12 %"] if rows else []
