"""A plan that shows itself: as its decision in a terminal, with its pictures in a notebook."""

from dataclasses import dataclass, fields

from twofold.contracts.results.plan import Plan
from twofold.report.answers import Shown
from twofold.report.decision import decision_lines

MISSED = 3  # exit code


@dataclass(frozen=True, slots=True)
class ShownPlan(Plan, Shown):
    """A plan, schema `twofold/plan/1`, that prints as its decision."""

    @classmethod
    def of(cls, plan: Plan) -> "ShownPlan":
        """The same plan, able to show itself."""
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})

    @property
    def lines(self) -> list[str]:
        """The decision."""
        return decision_lines(self)

    @property
    def exit_code(self) -> int:
        """3 where a service was rehearsed and nothing that was tried holds: as `simulate` ends with then."""
        chosen = [each for service in self.serving for each in service.rehearsals if each.chosen]
        return 0 if all(each.holds for each in chosen) else MISSED

    def _repr_html_(self) -> str:
        """The decision with its pictures, as a cell of a notebook shows it."""
        from twofold.pages.plan_page import plan_cell  # pictures are of no use to a command

        return plan_cell(self)
