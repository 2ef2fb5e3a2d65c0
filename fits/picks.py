"""What a wrong prediction costs: of measured configurations of one workload, pick the one that the prediction
calls best within a limit on TPOT, and hold it against the best that really keeps the limit.

A workload is a model under one length of prompts and answers in one source; its configurations differ in
machines, layout and clients. Throughput is by Little's law: clients × output / (TTFT + output × TPOT), per
accelerator.
Every row is predicted by constants that saw nothing of its source.

A rule takes the most of rate × worth, P the probability that the limit holds. The usual one believes
predictions (P ≥ 50 %), and the best of many within a limit is one that is too good. The sure one asks the
upper end of the range to keep the limit (P ≥ 90 %). The weighed one takes rate × (2P − 1): to break a limit
costs what to keep it brings. It was thought of on the rows that it is shown on; so every second source also
chooses a rule, which is scored on the others.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from twofold.core.estimate import Estimate
from twofold.measure.results import Column
from twofold.measure.truth import Row, number, source_of, text
from twofold.measure.validation import Part

LIMITS_MS = (10, 15, 25, 50)
FEWEST = 8  # configurations of a workload: fewer are no choice
TOLERANCE = 1.02  # two runs of one configuration differ by as much
# The probability that a rule asks for; None weighs by it instead.
RULES: Mapping[str, float | None] = MappingProxyType({"usual": 0.5, "sure": 0.9, "weighed": None})
CANDIDATES = {**RULES, **{f"P ≥ {share} %": share / 100 for share in (60, 70, 80)}}
MOST_BROKEN = 0.15  # of the picks of a rule that may be chosen
NEARLY = 1e-9  # of a probability: the upper end of a range is the limit itself
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
        said = Estimate(self.said_tpot_ms, 0.0, max(self.said_high_ms, self.said_tpot_ms), "ms")
        holds, asked = said.probability_within(limit_ms), CANDIDATES[rule]
        weight = max(2 * holds - 1, 0.0) if asked is None else float(holds >= asked - NEARLY)
        return self.said_rate_per_s * weight


Workloads = Mapping[tuple[str, ...], Sequence[Configuration]]
"""By source, model and lengths."""


@dataclass(frozen=True, slots=True)
class Picked:
    """Of the picks within one limit, by rule: how many break it, and what the median of the others loses."""

    limit_ms: int
    workload_count: int
    broken_fraction: Mapping[str, float]
    lost_fraction: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Crossed:
    """The rule that some sources chose, and what it brings there and on all others, over all limits.

    Each is what share of picks breaks the limit, and the mean that the others lose.
    """

    chosen_on: tuple[str, ...]
    rule: str
    there: tuple[float, float]
    scored_on: tuple[str, ...]
    elsewhere: tuple[float, float]
    believed: tuple[float, float]  # elsewhere, by the usual rule


def workloads(parts: Mapping[str, Part]) -> Workloads:
    """Rows that state TTFT, TPOT, clients and accelerators, by source, model and lengths."""
    if not {"ttft", "tpot"} <= parts.keys():
        return {}
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
    return {key: each for key, each in found.items() if len(each) >= FEWEST}


def _rate(row: Row, ttft_ms: float, tpot_ms: float) -> float:
    clients, output, count = (number(row, name) or 0.0 for name in ("concurrency", "osl_mean", "gpus_total"))
    return clients * output / (ttft_ms + tpot_ms * output) * 1e3 / count if count else 0.0


def outcomes(
    found: Sequence[Sequence[Configuration]], limit_ms: float, rule: str
) -> list[tuple[bool, float]]:
    """(broken, lost) of each workload in which the limit is a choice: some configurations keep it, not all.

    There is none where the rule refuses every configuration.
    """
    told = []
    for each in found:
        real = [one.rate_per_s for one in each if one.tpot_ms <= limit_ms * TOLERANCE]
        if not real or len(real) == len(each) or all(one.said_tpot_ms > limit_ms for one in each):
            continue
        pick = max(each, key=lambda one: one.worth(rule, limit_ms))
        if pick.worth(rule, limit_ms):
            told.append((pick.tpot_ms > limit_ms * TOLERANCE, 1 - pick.rate_per_s / max(real)))
    return told


def picked(found: Sequence[Sequence[Configuration]], limit_ms: int) -> Picked:
    """The picks of each rule within one limit."""
    told = {rule: outcomes(found, limit_ms, rule) for rule in RULES}
    lost = {rule: [loss for broken, loss in each if not broken] for rule, each in told.items()}
    shares = {rule: float(np.mean([b for b, _ in each])) if each else np.nan for rule, each in told.items()}
    medians = {rule: float(np.median(each)) if each else np.nan for rule, each in lost.items()}
    return Picked(limit_ms, len(told["usual"]), shares, medians)


def crossed(found: Workloads) -> list[Crossed]:
    """Every second source chooses the rule for the rest, and the rest for it.

    Of the rules that break at most `MOST_BROKEN` the one that loses least is chosen; without one, that which
    breaks least.
    """
    sources = sorted({key[0] for key in found})
    halves = tuple(sources[::2]), tuple(sources[1::2])

    def brought(half: tuple[str, ...], rule: str) -> tuple[float, float]:
        own = [each for key, each in found.items() if key[0] in half]
        told = [one for limit in LIMITS_MS for one in outcomes(own, limit, rule)]
        lost = [loss for broken, loss in told if not broken]
        return float(np.mean([b for b, _ in told])) if told else np.nan, float(np.mean(lost or [np.nan]))

    out = []
    for chosen_on, scored_on in (halves, halves[::-1]) if halves[1] else ():
        told = {rule: brought(chosen_on, rule) for rule in CANDIDATES}
        rule = min(told, key=lambda name: (max(told[name][0], MOST_BROKEN), told[name][1]))
        elsewhere = (brought(scored_on, each) for each in (rule, "usual"))
        out.append(Crossed(chosen_on, rule, told[rule], scored_on, *elsewhere))
    return out


def picks(parts: Mapping[str, Part]) -> list[Picked]:
    """A row for each limit that is a choice in any workload."""
    found = [*workloads(parts).values()]
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
