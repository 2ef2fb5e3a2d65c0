"""Answers that show themselves: as lines in a terminal, as the same lines in a notebook."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from html import escape

from twofold.contracts.results import Plan
from twofold.planner import Change
from twofold.report.differences import difference_lines
from twofold.report.differences_short import telling_lines
from twofold.report.plan import plan_lines


@dataclass(frozen=True, slots=True)
class ShownPlan(Plan):
    """A plan, schema `twofold/plan/1`, that prints as its one-screen form."""

    def __str__(self) -> str:
        return "\n".join(plan_lines(self))

    def _repr_html_(self) -> str:
        return as_html(plan_lines(self))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where one number of a plan comes from, as a tree of lines."""

    path: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return as_html(self.lines)


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two plans, in plan order; empty when nothing does. Prints what matters first."""

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "\n".join(telling_lines(self.changes))

    def _repr_html_(self) -> str:
        return as_html(telling_lines(self.changes))

    @property
    def all_lines(self) -> tuple[str, ...]:
        """Every change, in plan order."""
        return tuple(difference_lines(self.changes))


def shown_plan(plan: Plan) -> ShownPlan:
    """The same plan, able to show itself."""
    return ShownPlan(**{field.name: getattr(plan, field.name) for field in fields(plan)})


def as_html(lines: Iterable[str]) -> str:
    """Lines as a notebook shows them: their columns stay columns."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
