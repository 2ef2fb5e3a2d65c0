"""`compare`, and the search for a fleet alone: what a plan answers besides its own screen."""

from dataclasses import replace
from datetime import date
from typing import Literal

from twofold.answer import Ladders, compare_along
from twofold.app.planning import ready
from twofold.app.sources import SpecSource
from twofold.core import EmptyError
from twofold.planner import Comparison, compare_halves
from twofold.report import ShownData, ShownPlan, comparison_lines

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
        return ShownData(along, tuple(comparison_lines(along)))
    halves = compare_halves(own.planned().plan)
    return ShownData(halves, tuple(comparison_lines(halves)))


def search_fleets(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """The cheapest fleet that meets every class of each service of a spec, and why the others lost.

    Its training is left out. Raises InfeasibleError, with what binds, when nothing meets a service's goals.
    """
    own = ready(spec, today)
    if not own.spec.services:
        raise EmptyError("the spec has no service", hint="write `serving:`")
    return ShownPlan.of(replace(own, spec=own.spec.model_copy(update={"training": ()})).planned().plan)
