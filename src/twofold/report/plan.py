"""A plan on one screen of 100 columns: both halves, each on the other's fleet, why not something else."""

from collections import Counter
from dataclasses import dataclass, fields

from twofold.answer.refusals import reason_text
from twofold.contracts.results.plan import Confidence, Plan
from twofold.core.display import format_usd
from twofold.report.answers import Shown
from twofold.report.building import building_block
from twofold.report.compliance import compliance_lines
from twofold.report.figures import LETTERS, SURE_PROBABILITY, chance, percent, ranged
from twofold.report.lines import DOT, both_ends, field, heading, stacked, table
from twofold.report.money import money_lines
from twofold.report.portfolio import portfolio_lines
from twofold.report.serving import serving_lines
from twofold.report.training import note_lines, training_lines

SHOWN_LOSERS = 2  # of each run and service; `--details` has them all
FLIP_LIMIT_FRACTION = 0.2
MISSED = 3  # exit code


@dataclass(frozen=True, slots=True)
class ShownPlan(Plan, Shown):
    """A plan, schema `twofold/plan/1`, that prints as its one-screen form."""

    @classmethod
    def of(cls, plan: Plan) -> "ShownPlan":
        """The same plan, able to show itself."""
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})

    @property
    def lines(self) -> list[str]:
        """The one screen."""
        return plan_lines(self)

    @property
    def exit_code(self) -> int:
        """3 where a service was rehearsed and nothing that was tried holds: as `simulate` ends with then."""
        chosen = [each for service in self.serving for each in service.rehearsals if each.chosen]
        return 0 if all(each.holds for each in chosen) else MISSED


def plan_lines(plan: Plan, spec: str = "SPEC") -> list[str]:
    """The screen that `twofold plan` prints; `spec` is how the commands that come next name it."""
    runs = plan.training
    path = f"training.{runs[0].name}.step_s" if runs else f"serving.{plan.serving[0].name}.cost_usd_per_year"
    explain = f"twofold explain plan.json {path}"
    follow = heading("NEXT", f"twofold plan {spec} --out plan.json", explain, f"twofold compare {spec}")
    asked = plan.confidence.asked_fraction if plan.confidence else None
    blocks = [
        header_lines(plan),
        action_lines(plan, spec),
        confidence_lines(plan.confidence) if plan.confidence else [],
        *(training_lines(run, asked) for run in plan.training),
        *(serving_lines(service, plan.rehearsed, asked) for service in plan.serving),
        two_halves_lines(plan),
        portfolio_lines(plan.portfolio, plan.leasing) if plan.portfolio else [],
        money_lines(plan.money) if plan.money else [],
        building_block(plan.building) if plan.building else [],
        compliance_lines(plan.compliance) if plan.compliance else [],
        [*why_not_lines(plan), *plan_notes(plan), *number_lines(plan), *follow],
    ]
    return stacked(blocks)


def header_lines(plan: Plan) -> list[str]:
    """Name, models with their size, and the money of the first year."""
    halves = plan.halves
    models = []
    for half in halves:
        count = half.parameters
        size = "measured"  # of rows only the name is known
        if count is not None:  # billions and millions, as models are called
            size = f"{count / 1e9:.3g} B parameters" if count >= 1e9 else f"{count / 1e6:.3g} M parameters"
        models.append(f"{half.model}{DOT}{size}")
    what = models[0] if len(set(models)) == 1 else f"{len(set(models))} models"
    fleets = {1: "one fleet", 2: "two fleets"}.get(len(halves), f"{len(halves)} fleets")
    money = "no price"
    if plan.first_year_usd:
        budget, holds = "", plan.budget_holds_probability
        if plan.budget_usd is not None:
            budget = f" of {format_usd(plan.budget_usd)}"
            if holds is not None and holds < SURE_PROBABILITY:  # where it is sure, the line is kept short
                budget += f" {chance(plan.first_year_usd.value <= plan.budget_usd, holds)}"
        money = f"first year {ranged(plan.first_year_usd)}{budget}"
    return both_ends(f"{plan.name}{DOT}{what}", f"{fleets}, {money}")


def confidence_lines(sure: Confidence) -> list[str]:
    """What was asked, whether all holds at once, and what machines cannot buy."""
    joint = sure.joint_probability
    together = f"all at once with {percent(joint) if joint < SURE_PROBABILITY else '>99 %'}"
    below = [
        f"{goal} {percent(probability)}: not by {'machines' if goal.endswith('deadline') else 'replicas'}:"
        " measure, or another machine"
        for goal, probability in sure.not_reached.items()
    ]
    every = "every goal holds with it" if not below else f"{len(below)} below it"
    return heading("CONFIDENCE", DOT.join((f"{percent(sure.asked_fraction)} asked", every, together)), *below)


def action_lines(plan: Plan, spec: str) -> list[str]:
    """The block DO THIS: a line or two for each thing to do, and the command that comes next."""
    lines: list[str] = []
    for each in plan.actions:
        dated = f"{each.when}, {each.text}" if each.when else each.text
        pieces = dated.replace("SPEC", spec).split(DOT)
        lines += field(each.kind, *pieces) if lines else heading(f"DO THIS {each.kind}", *pieces)
    return lines


def two_halves_lines(plan: Plan) -> list[str]:
    """Each half on its own and on the other's fleet."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for cell in plan.cross:
        cells.setdefault((cell.half, cell.name), {})[cell.fleet] = cell.text
    if not cells:
        return []
    rows = [
        (name, texts.get("training", "–"), texts.get("serving", "–")) for (_, name), texts in cells.items()
    ]
    first, *rest = table(("TWO HALVES", "on the training fleet", "on the serving fleet"), rows)
    return [first.replace("  TWO HALVES", "TWO HALVES  ", 1), *rest]


def why_not_lines(plan: Plan) -> list[str]:
    """What lost and by how much; how many candidates fell to which reason."""
    lines: list[str] = []
    for half in plan.halves:
        # Rules of how numbers divide count as one reason.
        counts: Counter[str] = Counter()
        for one in half.rejected:
            counts[reason_text(one.reason)] += one.count
        fallen = "".join(f", {count:,} {reason}" for reason, count in counts.items())
        losers = [f"{loser.what}: {loser.why}" for loser in half.losers[:SHOWN_LOSERS]]
        lines += heading("" if lines else "WHY NOT", f"{half.name}: {half.tried:,} tried{fallen}", *losers)
    return lines


def plan_notes(plan: Plan) -> list[str]:
    """Warnings, and choices that the unknown could turn."""
    notes = dict.fromkeys(plan.warnings)
    for half in plan.halves:
        notes |= dict.fromkeys(f"{half.name}: {warning}" for warning in half.warnings)
        if half.flip_fraction > FLIP_LIMIT_FRACTION and not any("draws" in text for text in half.warnings):
            share = percent(half.flip_fraction)
            notes[f"{half.name}: the choice is close: a runner-up wins in {share} of the draws"] = None
    return note_lines(tuple(notes))


def number_lines(plan: Plan) -> list[str]:
    """What the letters mean, what these numbers rest on, and how far below the datasheets they are."""
    letters = "; ".join(f"{source} {meaning}" for source, meaning in LETTERS.items())
    if plan.calibration:  # what follows from measurements has their letter too
        letters = letters.replace("measured", "measured or calibrated", 1)
    peaks = [
        f"{half.name} reaches {ranged(half.peak_ratio, 'fraction')} of the datasheet's peak"
        for half in plan.halves
        if half.peak_ratio  # measured times have no datasheet to be held against
    ]
    rows = dict.fromkeys(half.model for half in plan.halves if half.parameters is None)
    measured = plan.calibration or (f"rows of {', '.join(rows)}" if rows else "none measured here")
    return heading("NUMBERS", f"80 % ranges; {letters}", measured, *peaks)
