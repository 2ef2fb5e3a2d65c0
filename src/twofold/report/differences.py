"""What changed between two plans, as lines of a table."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from twofold.answer import unit_of
from twofold.core import Estimate, format_si, from_data
from twofold.planner import Change
from twofold.report.figures import ranged
from twofold.report.lines import table

_ESTIMATE = {"value", "low", "high", "unit", "source"}
HALVES = ("training", "serving")
_DIGEST_LETTERS = 12  # tell two digests apart


def difference_lines(changes: Sequence[Change]) -> list[str]:
    """A row per change, below the run or service that it is of, and their count; or that nothing changed."""
    if not changes:
        return ["no change"]
    rows: list[tuple[str, ...]] = []
    for owner, owned in groupby(changes, lambda change: owner_of(change.path)):
        rows += [(owner, "", "", "")] if owner else []
        rows += [difference_row(change, owner, "  " if owner else "") for change in owned]
    lines = table(("path", "old", "new", "change"), rows, numbers=(3,))
    return [*lines, count_line(len(changes))]


def count_line(count: int) -> str:
    """`3 changes`."""
    return f"{count:,} change{'s' if count > 1 else ''}"


def owner_of(path: str) -> str:
    """`training.pretrain` of its figures; nothing of what belongs to the whole plan."""
    half, *names = path.split(".")
    return f"{half}.{names[0]}" if half in HALVES and len(names) > 1 else ""


def difference_row(change: Change, owner: str, indent: str) -> tuple[str, ...]:
    """A change with its path below its owner's, both values, and by how much the middle moved."""
    path = indent + (change.path.removeprefix(f"{owner}.") if owner else change.path)
    old, new = (_text(change.path, leaf) for leaf in (change.old, change.new))
    return path, old, new, _percent(change.relative_change_fraction)


def _text(path: str, leaf: Any) -> str:
    unit = unit_of(path)
    if isinstance(leaf, dict) and leaf.keys() == _ESTIMATE:
        estimate = from_data(Estimate, leaf)
        return ranged(replace(estimate, unit=_shown_unit(path, estimate.unit) if unit is None else unit))
    if leaf is None:
        return "–"
    if isinstance(leaf, float):
        return f"{leaf:.6g}" if unit is None else format_si(leaf, unit)
    return leaf[:_DIGEST_LETTERS] if path.startswith("digests.") else str(leaf)


def _shown_unit(path: str, unit: str) -> str:
    """Ratios and counts are plain numbers; memory counts in GiB."""
    return {"1": "", "ratio": "", "B": "memory B" if ".memory_" in path else "B"}.get(unit, unit)


def _percent(fraction: float | None) -> str:
    if not fraction:
        return ""
    return f"{100 * fraction:+,.0f} %" if abs(fraction) >= 1 else f"{100 * fraction:+.3g} %"
