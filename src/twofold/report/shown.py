"""Answers that show themselves: as lines in a terminal, as the same lines in a notebook."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from twofold.contracts.results import Plan
from twofold.core import to_data
from twofold.planner import Change
from twofold.report.answers import Shown
from twofold.report.differences import difference_lines
from twofold.report.differences_short import telling_lines
from twofold.report.plan import plan_lines

CHANGED = 4  # exit code


@dataclass(frozen=True, slots=True)
class ShownPlan(Plan, Shown):
    """A plan, schema `twofold/plan/1`, that prints as its one-screen form."""

    @property
    def lines(self) -> list[str]:
        """The one screen."""
        return plan_lines(self)


@dataclass(frozen=True, slots=True)
class Explanation(Shown):
    """Where one number of a plan comes from, as a tree of lines."""

    schema: ClassVar[str] = "twofold/explain/1"
    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference(Shown):
    """What differs between two plans, in plan order; empty when nothing does. Prints what matters first."""

    schema: ClassVar[str] = "twofold/diff/1"
    changes: tuple[Change, ...]
    everything: bool = False  # prints every change, in plan order

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def lines(self) -> list[str]:
        """The changes that matter most, or all of them."""
        return difference_lines(self.changes) if self.everything else telling_lines(self.changes)

    @property
    def as_data(self) -> dict[str, Any]:
        """Every change."""
        return {"changes": to_data(self.changes)}

    @property
    def exit_code(self) -> int:
        """Whether anything changed."""
        return CHANGED if self.changes else 0


def shown_plan(plan: Plan) -> ShownPlan:
    """The same plan, able to show itself."""
    return ShownPlan(**{field.name: getattr(plan, field.name) for field in fields(plan)})
