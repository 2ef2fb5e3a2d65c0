"""`compare`: each half on the other's fleet, or one axis at a time."""

from datetime import date
from typing import Literal

from twofold.app.local_tables import local_tables
from twofold.app.planning import plan_options
from twofold.app.sources import SpecSource, load
from twofold.planner import Comparison, Ladders, build_plan, compare_along, compare_halves
from twofold.report import ShownData, comparison_lines, ladder_lines

Axis = Literal["fabric", "nodes", "context", "size", "format", "tenancy"]


def compare(
    spec: SpecSource, ladder: Axis | None = None, today: date | None = None
) -> ShownData[Comparison | Ladders]:
    """The 2×2 of a spec's halves on each other's fleets; with `ladder` the tables of one axis.

    Raises InputError for a spec that cannot be planned as written, InfeasibleError when nothing meets it.
    """
    loaded = load(spec)
    tables = local_tables(loaded.device, loaded.calibration, today)
    constants = tables.constants
    if ladder:
        along = compare_along(ladder, loaded.spec, loaded.catalog, constants)
        return ShownData(along, tuple(ladder_lines(along)))
    options = plan_options(tables, today)
    plan = build_plan(loaded.spec, loaded.catalog, constants, spec_digest=loaded.digest, options=options)
    halves = compare_halves(plan)
    return ShownData(halves, tuple(comparison_lines(halves)))
