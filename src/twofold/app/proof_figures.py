"""A run of a scenario as the figures of a page, by the same code for the twin and for live."""

from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from twofold.core.estimate import Estimate, Source
from twofold.measure import proof_goals
from twofold.rehearse import as_measured

KINDS: Mapping[str, proof_goals.Goal] = {
    "TTFT p50": proof_goals.Goal.MIDDLE,
    "TTFT p95": proof_goals.Goal.TAIL,
    "TPOT p50": proof_goals.Goal.NONE,
    "E2E p50": proof_goals.Goal.MIDDLE,
    "E2E p95": proof_goals.Goal.TAIL,
    "finished": proof_goals.Goal.ENOUGH,
    "refused": proof_goals.Goal.COUNT,
    "retried": proof_goals.Goal.COUNT,
    "lost": proof_goals.Goal.COUNT,
    "routing recovers": proof_goals.Goal.ROUTING,
    "capacity back": proof_goals.Goal.CAPACITY,
    "rolled back": proof_goals.Goal.EXACT,
    "rolled back after": proof_goals.Goal.TAIL,
    "tried on": proof_goals.Goal.COUNT,
}
COUNTS = frozenset({"finished", "refused", "retried", "lost", "rolled back", "tried on"})
OF_KILLED = ("routing recovers", "capacity back")
OF_RELEASE = ("rolled back", "rolled back after", "tried on")
RANGE = (0.1, 0.9)
NORMAL_P90 = 1.2816
Figures = Mapping[str, float | None]


def unit_of(name: str) -> str:
    """Of a figure; none of a count."""
    return "" if name in COUNTS else "s"


def figures_of(ran: as_measured.Ran, *, killed: bool = False, released: bool = False) -> Figures:
    """All figures of a run, by name; None where nothing tells it."""
    finished = [each for each in ran.seen if each.outcome == as_measured.FINISHED]
    found: dict[str, float | None] = {}
    for name, metric in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s")):
        values = [value for each in finished if (value := getattr(each, metric)) is not None]
        for percent in (50,) if name == "TPOT" else (50, 95):
            found[f"{name} p{percent}"] = float(np.quantile(values, percent / 100)) if values else None
    found["finished"] = float(len(finished))
    found["refused"] = float(sum(each.outcome == as_measured.REFUSED for each in ran.seen))
    found["retried"] = float(ran.retried_count)
    found["lost"] = float(sum(each.outcome == as_measured.LOST for each in ran.seen))
    if killed:
        found |= dict(zip(OF_KILLED, (ran.routed_s, ran.back_s), strict=True))
    if released:
        is_back = float(ran.rolled_back_s is not None)
        found |= dict(zip(OF_RELEASE, (is_back, ran.rolled_back_s, float(ran.tried_count)), strict=True))
    return found


def frozen_figure(name: str, runs: Sequence[float | None], off_fraction: float) -> Estimate | None:
    """What the twin says of one figure: the middle of its runs, and their range.

    Formula  range of seconds: 10 % and 90 % over the runs, wider by what the fit is off, exp(±1.2816 · off)
    Limits   None where fewer than half of the runs come to it
    """
    found = [each for each in runs if each is not None]
    if not found or 2 * len(found) < len(runs):
        return None
    low, value, high = (float(each) for each in np.quantile(found, (RANGE[0], 0.5, RANGE[1])))
    if name not in COUNTS:
        low, high = low * exp(-NORMAL_P90 * off_fraction), high * exp(NORMAL_P90 * off_fraction)
    return Estimate(value, min(low, value), max(high, value), unit_of(name), Source.FITTED)
