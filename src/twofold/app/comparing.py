"""`compare`: each half on the other's fleet, or one axis at a time."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

from twofold.app.local_tables import local_tables
from twofold.app.planning import plan_options
from twofold.app.sources import SpecSource, load
from twofold.planner import Comparison, Ladders, build_plan, compare_along, compare_halves
from twofold.report import as_html, comparison_lines, ladder_lines

Axis = Literal["fabric", "nodes", "context", "size", "format", "tenancy"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison as data, and the lines that a terminal or a notebook shows of it."""

    data: Comparison | Ladders
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return as_html(self.lines)


def compare(spec: SpecSource, ladder: Axis | None = None, today: date | None = None) -> Compared:
    """The 2×2 of a spec's halves on each other's fleets; with `ladder` the tables of one axis.

    Raises InputError for a spec that cannot be planned as written, InfeasibleError when nothing meets it.
    """
    loaded = load(spec)
    tables = local_tables(loaded.device, loaded.calibration, today)
    constants = tables.constants
    if ladder:
        along = compare_along(ladder, loaded.spec, loaded.catalog, constants)
        return Compared(along, tuple(ladder_lines(along)))
    options = plan_options(tables, today)
    plan = build_plan(loaded.spec, loaded.catalog, constants, spec_digest=loaded.digest, options=options)
    halves = compare_halves(plan)
    return Compared(halves, tuple(comparison_lines(halves)))
