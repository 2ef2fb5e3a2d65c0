"""`compare`: each half on the other's fleet, or one axis at a time."""

from datetime import date
from typing import Literal

from twofold.answer import Ladders, compare_along
from twofold.app.planning import ready
from twofold.app.sources import SpecSource
from twofold.planner import Comparison, compare_halves
from twofold.report import ShownData, comparison_lines, ladder_lines

Axis = Literal["fabric", "nodes", "context", "size", "format", "tenancy"]


def compare(
    spec: SpecSource, ladder: Axis | None = None, today: date | None = None
) -> ShownData[Comparison | Ladders]:
    """The 2×2 of a spec's halves on each other's fleets; with `ladder` the tables of one axis.

    Raises InputError for a spec that cannot be planned as written, InfeasibleError when nothing meets it.
    """
    own = ready(spec, today)
    if ladder:
        along = compare_along(ladder, own.spec, own.catalog, own.constants)
        return ShownData(along, tuple(ladder_lines(along)))
    halves = compare_halves(own.planned().plan)
    return ShownData(halves, tuple(comparison_lines(halves)))
