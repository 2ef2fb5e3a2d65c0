"""A plan on one screen of 100 columns: both halves, each on the other's fleet, why not something else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

from twofold.answer import reason_text
from twofold.contracts.results import Action, Count, Plan, ServicePlan, TrainingPlan
from twofold.core import format_usd
from twofold.report.answers import Shown
from twofold.report.building import building_block
from twofold.report.compliance import compliance_lines
from twofold.report.figures import LETTERS, percent, ranged
from twofold.report.lines import DOT, both_ends, field, heading, stacked, table
from twofold.report.money import money_lines
from twofold.report.portfolio import portfolio_lines
from twofold.report.serving import serving_lines
from twofold.report.training import training_lines

SHOWN_LOSERS = 2  # of each run and service; `--details` has them all
FLIP_LIMIT_FRACTION = 0.2
MORE_BELOW = "more below"
MOST_ACTION_LINES = 6
CUT_FIRST = ("then", "release", "risk", "rent", "use", "cost")


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


def plan_lines(plan: Plan, spec: str = "SPEC") -> list[str]:
    """The screen that `twofold plan` prints; `spec` is how the commands that come next name it."""
    blocks = [
        header_lines(plan),
        action_lines(plan, spec),
        *(training_lines(run) for run in plan.training),
        *(serving_lines(service, plan.rehearsed) for service in plan.serving),
        two_halves_lines(plan),
        portfolio_lines(plan.portfolio, plan.money.portfolio if plan.money else None)
        if plan.portfolio
        else [],
        money_lines(plan.money) if plan.money else [],
        building_block(plan.building) if plan.building else [],
        compliance_lines(plan.compliance) if plan.compliance else [],
        [*why_not_lines(plan), *note_lines(plan), *number_lines(plan), *next_lines(plan, spec)],
    ]
    return stacked(blocks)


def header_lines(plan: Plan) -> list[str]:
    """Name, models with their size, and the money of the first year."""
    halves = halves_of(plan)
    models = list(dict.fromkeys(_model_text(half) for half in halves))
    what = models[0] if len(models) == 1 else f"{len(models)} models"
    fleets = {1: "one fleet", 2: "two fleets"}.get(len(halves), f"{len(halves)} fleets")
    money = f"first year {ranged(plan.first_year_usd)}" if plan.first_year_usd else "no price"
    budget = (
        f" of {format_usd(plan.budget_usd)}" if plan.first_year_usd and plan.budget_usd is not None else ""
    )
    return both_ends(f"{plan.name}{DOT}{what}", f"{fleets}, {money}{budget}")


def action_lines(plan: Plan, spec: str) -> list[str]:
    """The block DO THIS on at most six lines; `--details` and `--json` have what found no room."""
    texts = [(each.kind, _dated(each).replace("SPEC", spec).split(DOT)) for each in plan.actions]
    while len(lines := _block(texts)) > MOST_ACTION_LINES:
        long = [text for kind in CUT_FIRST for text in texts if text[0] == kind and _can_be_cut(text[1])]
        if long:
            kind, pieces = long[0]
            pieces[-2 if pieces[-1] == MORE_BELOW else -1 :] = [] if kind == "risk" else [MORE_BELOW]
        elif any(kind == "then" for kind, _ in texts):
            texts = [text for text in texts if text[0] != "then"]
        else:
            return lines[:MOST_ACTION_LINES]
    return lines


def _can_be_cut(pieces: Sequence[str]) -> bool:
    return len(pieces) > (2 if pieces[-1] == MORE_BELOW else 1)


def _block(texts: Sequence[tuple[str, list[str]]]) -> list[str]:
    lines: list[str] = []
    for kind, pieces in texts:
        label = kind if lines else f"DO THIS {kind}"
        lines += field(kind, pieces) if lines else heading(label, pieces)
    return lines


def _dated(action: Action) -> str:
    return f"{action.when}, {action.text}" if action.kind == "rent" and action.when else action.text


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
    for half in halves_of(plan):
        tried = f"{half.name}: {half.tried:,} tried{_fallen(half.rejected)}"
        losers = [f"{loser.what}: {loser.why}" for loser in half.losers[:SHOWN_LOSERS]]
        lines += heading("" if lines else "WHY NOT", [tried, *losers])
    return lines


def note_lines(plan: Plan) -> list[str]:
    """Warnings, and choices that the unknown could turn."""
    notes = dict.fromkeys(plan.warnings)
    for half in halves_of(plan):
        notes |= dict.fromkeys(f"{half.name}: {warning}" for warning in half.warnings)
        if half.flip_fraction > FLIP_LIMIT_FRACTION and not any("draws" in text for text in half.warnings):
            share = percent(half.flip_fraction)
            notes[f"{half.name}: the choice is close: a runner-up wins in {share} of the draws"] = None
    lines: list[str] = []
    for note in notes:
        lines += heading("" if lines else "NOTE", [note])
    return lines


def number_lines(plan: Plan) -> list[str]:
    """What the letters mean, what these numbers rest on, and how far below the datasheets they are."""
    letters = "; ".join(f"{source} {meaning}" for source, meaning in LETTERS.items())
    peaks = [
        f"{half.name} reaches {ranged(half.peak_ratio, 'fraction')} of the datasheet's peak"
        for half in halves_of(plan)
        if half.peak_ratio  # measured times have no datasheet to be held against
    ]
    rows = dict.fromkeys(half.model for half in halves_of(plan) if half.parameters is None)
    measured = plan.calibration or (f"rows of {', '.join(rows)}" if rows else "none measured here")
    return heading("NUMBERS", [f"80 % ranges; {letters}", measured, *peaks])


def next_lines(plan: Plan, spec: str) -> list[str]:
    """What to ask next, as commands."""
    paths = [f"training.{run.name}.step_s" for run in plan.training]
    paths += [f"serving.{service.name}.cost_usd_per_year" for service in plan.serving]
    explain = f"twofold explain plan.json {paths[0]}"
    return heading("NEXT", [f"twofold plan {spec} --out plan.json", explain, f"twofold compare {spec}"])


def halves_of(plan: Plan) -> tuple[TrainingPlan | ServicePlan, ...]:
    """Runs, then services."""
    return (*plan.training, *plan.serving)


def _model_text(half: TrainingPlan | ServicePlan) -> str:
    """What is trained or served, with its size; of measured rows only their name."""
    if half.parameters is None:
        return f"{half.model}{DOT}measured"
    return f"{half.model}{DOT}{parameters_text(half.parameters)}"


def parameters_text(count: int) -> str:
    """`70.6 B parameters`: billions and millions, as models are called."""
    return f"{count / 1e9:.3g} B parameters" if count >= 1e9 else f"{count / 1e6:.3g} M parameters"


def _fallen(rejected: Sequence[Count]) -> str:
    """`, 752 exceed memory, 765 slower`; rules of how numbers divide count as one reason."""
    counts: Counter[str] = Counter()
    for one in rejected:
        counts[reason_text(one.reason)] += one.count
    return "".join(f", {count:,} {reason}" for reason, count in counts.items())
