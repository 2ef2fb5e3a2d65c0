"""All sections of a plan, behind its decision: each on the other's fleet, why not something else."""

from collections import Counter

from twofold.answer.refusals import reason_text
from twofold.contracts.results.plan import Confidence, Plan, Rung
from twofold.core.display import format_usd, likely
from twofold.report.building import building_block
from twofold.report.compliance import compliance_lines
from twofold.report.decision import decision_lines
from twofold.report.figures import LETTERS, percent, ranged
from twofold.report.lines import DOT, heading, listed, stacked, table, titled
from twofold.report.money import money_lines
from twofold.report.portfolio import portfolio_lines
from twofold.report.serving import serving_lines
from twofold.report.training import note_lines, training_lines

SHOWN_LOSERS = 2  # of each run and service; `--details` has them all
FLIP_LIMIT_FRACTION = 0.2


def plan_lines(plan: Plan, spec: str = "SPEC") -> list[str]:
    """What `twofold plan --full` prints: the decision, then every section behind it."""
    runs = plan.training
    path = f"training.{runs[0].name}.step_s" if runs else f"serving.{plan.serving[0].name}.cost_usd_per_year"
    explain = f"twofold explain plan.json {path}"
    follow = heading("EXPLAIN", f"twofold plan {spec} --out plan.json", explain, f"twofold compare {spec}")
    asked = plan.confidence.asked_fraction if plan.confidence else None
    blocks = [
        decision_lines(plan, spec),
        confidence_lines(plan.confidence) if plan.confidence else [],
        ladder_lines(plan),
        *(training_lines(run, asked, plan.own_usd(run.name)) for run in plan.training),
        *(serving_lines(each, plan.rehearsed, asked, plan.own_usd(each.name)) for each in plan.serving),
        two_halves_lines(plan),
        portfolio_lines(plan.portfolio) if plan.portfolio else [],
        money_lines(plan.money) if plan.money else [],
        building_block(plan.building) if plan.building and has_own(plan) else [],
        compliance_lines(plan.compliance) if plan.compliance else [],
        [*why_not_lines(plan), *plan_notes(plan), *number_lines(plan), *follow],
    ]
    return stacked(blocks)


def has_own(plan: Plan) -> bool:
    """Whether some machines are not rented: rented ones stand in somebody else's building."""
    return any(half.machine.price is None for half in plan.halves)


def ladder_lines(plan: Plan) -> list[str]:
    """What each run and service would take at each confidence."""
    rows = listed(
        plan.ladder,
        ("of", lambda rung: rung.name),
        (">sure", lambda rung: percent(rung.confidence)),
        (">replicas", lambda rung: f"{rung.replica_count}"),
        (">devices", lambda rung: f"{rung.accelerator_count:,}"),
        (">cost", lambda rung: _rung_cost(plan, rung)),
        (">holds", lambda rung: likely(rung.probability, rung.confidence)),
        ("", lambda rung: rung.binds),
    )
    return titled("LADDER", "on the same machines and layout; a service by the year, a run all of it", rows)


def _rung_cost(plan: Plan, rung: Rung) -> str:
    if rung.usd_per_year is not None:
        return format_usd(rung.usd_per_year)
    return "no price" if plan.own_usd(rung.name) is None else "your own"


def confidence_lines(sure: Confidence) -> list[str]:
    """What was asked, whether all holds at once, and what machines cannot buy."""
    together = f"all at once with {likely(sure.joint_probability)}"
    below = [
        f"{goal} {likely(probability, sure.asked_fraction)}: "
        f"{Confidence.NOT_BY_MACHINES if goal.endswith('deadline') else Confidence.NOT_BY_REPLICAS}"
        for goal, probability in sure.not_reached.items()
    ]
    every = "every goal holds with it" if not below else f"{len(below)} below it"
    return heading("CONFIDENCE", DOT.join((f"{percent(sure.asked_fraction)} asked", every, together)), *below)


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
        close = FLIP_LIMIT_FRACTION < half.flip_fraction <= 0.5
        if close and not any("draws" in text for text in half.warnings):
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
