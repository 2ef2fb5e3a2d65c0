"""What changed between two plans, as lines of a table."""

from collections.abc import Sequence
from typing import Any

from twofold.app.figures import ranged
from twofold.app.lines import table
from twofold.contracts import estimate_from
from twofold.plan import Change

_ESTIMATE = {"value", "low", "high", "unit", "source"}


def difference_lines(changes: Sequence[Change]) -> list[str]:
    """A row per change and their count; one line when nothing changed."""
    if not changes:
        return ["no change"]
    rows = [
        (change.path, _text(change.old), _text(change.new), _percent(change.relative_change_fraction))
        for change in changes
    ]
    count = f"{len(changes)} change{'s' if len(changes) > 1 else ''}"
    return [*table(("path", "old", "new", "change"), rows, numbers=(3,)), count]


def _text(leaf: Any) -> str:
    if isinstance(leaf, dict) and leaf.keys() == _ESTIMATE:
        return ranged(estimate_from(leaf))
    if leaf is None:
        return "–"
    return f"{leaf:.6g}" if isinstance(leaf, float) else str(leaf)


def _percent(fraction: float | None) -> str:
    return f"{100 * fraction:+.3g} %" if fraction else ""
