"""`plan`, `explain` and `diff`: a spec becomes a plan, a plan tells where a number comes from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from twofold.app.local_tables import local_tables
from twofold.app.plan_files import PlanSource, plan_data
from twofold.app.sources import SpecSource, load
from twofold.catalog import Catalog
from twofold.contracts.results import Plan
from twofold.contracts.spec import Spec
from twofold.perf import Constants
from twofold.planner import Planned, PlanOptions, Rehearse, build_plan, with_money_detail
from twofold.planner import diff as changes
from twofold.planner import explain as explanation
from twofold.report import (
    Difference,
    Explanation,
    ShownData,
    ShownPlan,
    default_lines,
    detail_lines,
    detail_money_lines,
    plan_lines,
    shown_plan,
)


@dataclass(frozen=True, slots=True)
class Ready:
    """A spec with everything that it is planned with: its tables, and those that lie beside it."""

    spec: Spec
    digest: str
    catalog: Catalog
    constants: Constants
    options: PlanOptions

    def planned(self) -> Planned:
        """The plan with what it was chosen from. Raises InputError and InfeasibleError."""
        return build_plan(
            self.spec, self.catalog, self.constants, spec_digest=self.digest, options=self.options
        )


def ready(spec: SpecSource, today: date | None) -> Ready:
    """Read a spec and its tables, and what a plan says of the day and of what was measured here."""
    loaded = load(spec)
    tables = local_tables(loaded.device, loaded.calibration, today)
    options = PlanOptions(
        today=today, calibration=tables.summary, calibration_digest=tables.digest, notes=tables.notes
    )
    return Ready(loaded.spec, loaded.digest, loaded.catalog, tables.constants, options)


def plan(spec: SpecSource, today: date | None = None) -> ShownPlan:
    """Plan both halves of a spec: a path, YAML text, a mapping, or a Spec.

    With `today`, prices older than twelve months are warned of. Raises InputError for a spec that cannot be
    planned as written, InfeasibleError when nothing meets it.
    """
    return shown_plan(ready(spec, today).planned().plan)


def rehearsed_plan(
    spec: SpecSource, today: date | None = None, tell: Callable[[str], None] = lambda _: None
) -> ShownPlan:
    """The same plan, the best fleet of every service and its runner-up confirmed on the twin.

    `tell` hears how far that is. A fleet that misses a goal there is replaced by the cheapest that holds.
    """
    return shown_plan(_rehearsed(spec, today, tell).plan)


def _rehearsed(spec: SpecSource, today: date | None, tell: Callable[[str], None]) -> Planned:
    own = ready(spec, today)
    return replace(own, options=replace(own.options, rehearse=Rehearse.BEST_TWO, tell=tell)).planned()


def explain(plan: PlanSource, path: str) -> Explanation:
    """The derivation of one number of a plan, such as `training.pretrain.step_s`, down to catalogue rows."""
    return Explanation(path, explanation(plan_data(plan), path))


def diff(old: PlanSource, new: PlanSource, everything: bool = False) -> Difference:
    """What changed between two plans; a Difference that is false when nothing did.

    It prints what matters most, or with `everything` all changes in the order of a plan.
    """
    return Difference(changes(plan_data(old), plan_data(new)), everything)


def plan_screen(
    spec: Path,
    details: bool,
    money: bool,
    rehearse: bool,
    show_defaults: bool,
    today: date,
    tell: Callable[[str], None],
) -> ShownData[Plan]:
    """A plan with the screens that were asked for, one below the other."""
    made = _rehearsed(spec, today, tell) if rehearse else ready(spec, today).planned()
    answer = with_money_detail(made) if money else made.plan
    lines = plan_lines(answer, str(spec))
    if details:
        follows = money and answer.money is not None
        lines += ["", *detail_lines(answer, str(spec), money_follows=follows)]
    if money and answer.money:
        lines += ["", *detail_money_lines(answer.money)]
    if show_defaults:
        lines += ["", *default_lines(answer)]
    return ShownData(answer, tuple(lines))
