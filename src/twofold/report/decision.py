"""The decision of a plan on 25 lines: what to rent, how sure, for how much, and what may go wrong.

`plan_lines` has all sections; nothing here computes but monthly shares of a year and sums of a ladder.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.answer.serving_plan import SHARED_POOL
from twofold.contracts.goals import metric_text
from twofold.contracts.results.plan import Action, Plan
from twofold.contracts.results.serving import ClassPlan, ServicePlan, SloOutcome
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_apart, format_memory, format_seconds, format_si, format_usd, likely
from twofold.report.figures import chance, hours_unit, percent, ranged, success_goal
from twofold.report.lines import DOT, INDENT, WIDTH, both_ends, field, heading
from twofold.report.serving import rehearsed_text, tier_pieces

WORTH_A_LINE = 0.01  # of the first year
LINES, HALVES = 25, 4  # on the screen, for so many runs and services; one more for each further one
FLEETS = ("rent", "use")  # actions that name machines
FLAGS = ("--full", "--details", "--money")
TWO = 2  # lines of a header, or of a fleet, at most
MONTHS = 12
MIDDLE = 0.5  # a confidence for which no step is slower than in the middle
LETTERS = "[80 % range] m measured, f fitted, v vendor's, a assumed"
LABEL = INDENT - 3  # characters of a label
SIZES = re.compile(r"(?:(?:TP|CP|PP|EP|DP) \d+(?: ×\d+)?|one accelerator)$")
LENGTHS = ("input", "output")
LEFT_OUT = "micro-batch"  # of a layout's pieces
# Leaves of the spec that decide, in the order in which they are told; the rest is in `--show-defaults`.
DECIDING = ("slo", "quantisation", *LENGTHS, "peak", "profile", "headroom", "availability", "success")


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a plan is shown; the first that fits is taken."""

    gap_count: int  # empty lines between header, decision and the rest
    risk_count: int  # at most
    other_count: int  # other ways, at most
    row_count: int  # that a text of several pieces may take
    half_count: int | None = None  # lines of a run or service; null: as many as it has classes


ROOMS = (
    Room(1, 3, 3, 2),
    Room(0, 3, 3, 2),
    Room(0, 3, 1, 2),
    Room(0, 3, 1, 1),
    Room(0, 2, 1, 1),
    Room(0, 1, 1, 1),
    Room(0, 1, 1, 1, 3),
    Room(0, 1, 1, 1, 2),
    Room(0, 1, 1, 1, 1),
)


def decision_lines(plan: Plan, spec: str = "SPEC") -> list[str]:
    """The screen that `twofold plan` prints; `spec` is how the commands that come next name it."""
    limit = LINES + max(0, len(plan.halves) - HALVES)
    for room in ROOMS:
        lines = _screen(plan, spec, room)
        if len(lines) <= limit:
            break
    return lines


def _screen(plan: Plan, spec: str, room: Room) -> list[str]:
    gap, rows = [""] * room.gap_count, room.row_count
    told: dict[str, list[str]] = {kind: [] for kind in ("also", "release", "or", "cost", "risk", "next")}
    for each in plan.told_for(spec).actions:
        told.setdefault(each.kind, []).append(each.text)
    simple = [text.partition(DOT)[2] for text in told["cost"]]
    risks, others = told["risk"][: room.risk_count], told["or"][: room.other_count]
    flags = [flag for flag in FLAGS if not any(flag in each for each in told["next"])]
    return [
        *_header(plan),
        *gap,
        *(_fitted("DO THIS", simple, rows) or ["DO THIS"]),
        *(line for half in plan.halves for line in _half_lines(plan, half, room)),
        *(_fitted("  also", told["also"], 1) if _is_much(plan) else []),
        *_fitted("  release", told["release"], rows),
        *(
            line
            for at, text in enumerate(others)
            for line in _fitted("" if at else "  or", [text], rows, "; ")
        ),
        *gap,
        *(line for at, text in enumerate(risks) for line in _fitted("" if at else "RISKS", [text], rows)),
        *_fitted("SURE", _ladder(plan), rows),
        *_fitted("" if plan.ladder else "SURE", _measuring(plan), rows),
        *_fitted("TWIN", _twin(plan), rows),
        *_fitted("ASSUMED", _assumed(plan), rows),
        *_fitted("NEXT", [*told["next"], *flags], rows),
        *_fitted("MARKS", [_marks(plan)], rows),
    ]


def _is_much(plan: Plan) -> bool:
    """Whether what the year holds beside machines is worth a line of the decision."""
    total = plan.first_year_usd.value if plan.first_year_usd else 0.0
    return sum(each.usd or 0.0 for each in plan.actions if each.kind == "also") >= WORTH_A_LINE * total > 0.0


def _fitted(label: str, pieces: Sequence[str], rows: int, before: str = "") -> list[str]:
    """A field of at most so many rows: as many of its pieces as fit; a first one that does not is cut.

    Cut `before` the last such text of its last row, where that has one, so that no lease is told by half.
    """
    for count in range(len(pieces), 0, -1):
        lines = heading(label, *pieces[:count])
        if len(lines) <= rows:
            return lines
    lines = heading(label, *pieces[:1])[:rows]
    if not lines:
        return []
    last = lines[-1][: WIDTH - 2]
    return [*lines[:-1], f"{(before and last.rpartition(before)[0]) or last} …"]


def _header(plan: Plan) -> list[str]:
    """Name and models; the first year against the budget, and how sure the goals are."""
    models = list(dict.fromkeys(half.model for half in plan.halves))
    what = models[0] if len(models) == 1 else f"{len(models)} models"
    money = "no price"
    if plan.first_year_usd:
        budget = "" if plan.budget_usd is None else f" of {format_usd(plan.budget_usd)}"
        money = f"first year {ranged(plan.first_year_usd)}{budget}"
        holds = plan.budget_holds_probability
        if plan.budget_usd is not None and holds is not None and not likely(holds).startswith(">"):
            money += f" {chance(plan.first_year_usd.value <= plan.budget_usd, holds, _asked(plan))}"
    return both_ends(f"{plan.name}{DOT}{what}", DOT.join(filter(None, (money, sureness(plan)))))[:TWO]


def _asked(plan: Plan) -> float | None:
    return plan.confidence.asked_fraction if plan.confidence else None


def sureness(plan: Plan) -> str:
    """How probable the least probable goal is, and all at once."""
    chances = [run.run.deadline_holds_probability for run in plan.training]
    chances += [slo.holds_probability for each in plan.serving for one in each.classes for slo in one.slos]
    known, asked = [each for each in chances if each is not None], _asked(plan)
    if not known:
        return ""
    least = min(known)
    said = likely(least, asked)
    texts = [f"each goal {said if said.startswith('>') else f'≥ {said}'}"]
    if plan.confidence and len(known) > 1:
        texts.append(f"all {likely(plan.confidence.joint_probability)}")
    return f"{', '.join(texts)} sure" + (f" of {percent(asked)} asked" if asked and least < asked else "")


def _half_lines(plan: Plan, half: TrainingPlan | ServicePlan, room: Room) -> list[str]:
    """One run or service: machines, terms and cost on the first line, then how it stands there."""
    fleets = [each for each in plan.actions if each.kind in FLEETS and each.name == half.name]
    action = fleets[0] if fleets else Action("use", half.machine.accelerator, "", None)
    label, text = half.name, action.text
    if len(label) > LABEL:
        label = "serve" if isinstance(half, ServicePlan) else "train"
        text = f"{half.name}: {text}"
    if isinstance(half, TrainingPlan):
        head, rest = _headed(label, text, _run_costs(plan, half, action))
        return [*head, *_fitted("", [*rest, *_run_pieces(half)], room.row_count)][: room.half_count]
    head, rest = _headed(label, text, _service_costs(plan, half, action))
    asked = _asked(plan)
    if room.half_count is None:
        classes = _class_rows(half, asked)
    else:
        classes = [*_joined_rows(half, asked), *_rehearsed_rows(half)]
    tiers = _fitted("   before", tier_pieces(half.tiers), room.row_count)
    fleet = _fitted("", [*rest, *_fleet_pieces(half)], TWO)
    return [*head, *classes, *tiers, *fleet][: room.half_count]


def _headed(label: str, text: str, ends: Sequence[str]) -> tuple[list[str], list[str]]:
    """A line with as many of `ends` set right as it has room for, and the ends that are left."""
    left = f"  {label}".ljust(INDENT) + text
    if len(left) > WIDTH:
        return [f"{left[: WIDTH - 2]} …"], list(ends)
    for count in range(len(ends), -1, -1):
        right = DOT.join(ends[:count])
        if len(left) + 2 + len(right) <= WIDTH or not count:
            return both_ends(left, right), list(ends[count:])
    return [left], list(ends)


def _run_costs(plan: Plan, run: TrainingPlan, action: Action) -> list[str]:
    """What it costs, and when it is done against its deadline."""
    total_s = run.run.ends_s.value
    cost = (
        format_usd(action.usd)
        if action.usd
        else format_si(run.run.accelerator_h.value, hours_unit(run.machine.accelerator))
    )
    if run.deadline_s is None:
        return [cost, f"done in {format_seconds(total_s)}"]
    mark = chance(total_s <= run.deadline_s, run.run.deadline_holds_probability, _asked(plan))
    return [cost, f"done {_of(total_s, run.deadline_s)} {mark}"]


def _of(value_s: float, limit_s: float) -> str:
    """`325 of 500 ms`: a time and its limit, the unit once where both have the same."""
    value, limit = format_apart(value_s, limit_s, "s")
    digits, _, unit = value.rpartition(" ")
    return f"{digits if limit.endswith(f' {unit}') else value} of {limit}"


def _run_pieces(run: TrainingPlan) -> list[str]:
    """Layout, memory of what there is, step and MFU."""
    layout = [each for each in run.layout.text.split(DOT) if LEFT_OUT not in each] if run.layout else []
    held = run.memory_bytes
    return [
        run.calendar,
        *(layout or ["as measured"]),
        f"{_memory(held.value, run.memory_capacity_bytes)}" if held else "",
        f"{format_seconds(run.step_s.value)} a step",
        f"MFU {percent(run.mfu_fraction.value)}" if run.mfu_fraction else "",
    ]


def _memory(used_bytes: float, capacity_bytes: float) -> str:
    used, capacity = format_memory(used_bytes), format_memory(capacity_bytes)
    digits, _, unit = used.rpartition(" ")
    return f"{digits if capacity.endswith(f' {unit}') else used} of {capacity}"


def _service_costs(plan: Plan, service: ServicePlan, action: Action) -> list[str]:
    """A year, a month, and a million tokens of input and output together."""
    if not action.usd:
        return []  # as the text says
    usd = [f"{format_usd(action.usd)}/y", f"{format_usd(action.usd / MONTHS)} a month"]
    own = [each for each in plan.money.services if each.name == service.name] if plan.money else []
    priced = [
        (one.usd_per_mtok.value, one.tokens_per_day)
        for each in own
        for one in each.classes
        if one.usd_per_mtok and one.tokens_per_day
    ]
    if priced:
        mean = sum(price * count for price, count in priced) / sum(count for _, count in priced)
        usd.append(f"{format_usd(mean)}/Mtok in + out")
    return usd


def _class_rows(service: ServicePlan, asked: float | None) -> list[str]:
    """A line for each class: replicas × layout, its goals, and up to which rate they hold."""
    cells = [
        (one.name, _replicas(one), [*_goals(one, asked), _until(one), *_when(one, service)])
        for one in service.classes
    ]
    name_width, size_width = (max(len(cell[column]) for cell in cells) for column in (0, 1))
    lines = []
    for name, size, goals in cells:
        row = "  ".join((f"   {name.ljust(name_width)}", size.rjust(size_width), *goals))
        narrow = "  ".join((f"   {name}", size, *goals))
        fits = [each for each in (row, narrow) if len(each) <= WIDTH]
        lines += fits[:1] or field("", f"{name}  {size}", *goals)
        lines += _rehearsed_rows(service, name)
    return lines


def _rehearsed_rows(service: ServicePlan, pool: str = "") -> list[str]:
    """Where the twin asks for other replicas than were planned; of one pool, or of all."""
    needs = (each for each in service.replica_needs if pool in ("", each.pool))
    return [line for need in needs for line in field("", rehearsed_text(need, service))]


def _when(one: ClassPlan, service: ServicePlan) -> list[str]:
    """Work of a day runs on the machines that the others leave."""
    return ["in the others' valleys"] if one.name in service.in_valleys else []


def _joined_rows(service: ServicePlan, asked: float | None) -> list[str]:
    """All classes on one line, the one with the least sure goal first, each with that goal."""

    def sure(slo: SloOutcome) -> float:
        return 1.0 if slo.holds_probability is None else slo.holds_probability

    least = [(min(one.slos, key=sure), one) for one in service.classes if one.slos]
    least.sort(key=lambda each: sure(each[0]))
    texts = [f"{one.name} {_replicas(one)} {_goal(slo, asked)}" for slo, one in least]
    return _fitted("", texts, 1)


def _replicas(one: ClassPlan) -> str:
    """`12 × TP 4`; classes of one pool share their replicas."""
    pieces = one.replica_text.split(DOT)
    sizes = [each for each in pieces if SIZES.match(each)]
    shared = " shared" if SHARED_POOL in one.replica_text else ""
    layout = " ".join(sizes).replace("one accelerator", "TP 1") or pieces[0] or "measured"
    return f"{one.replica_count} × {layout}{shared}"


def _goals(one: ClassPlan, asked: float | None) -> list[str]:
    """Each goal; that answers are whole only where they are not, or a rehearsal said so."""
    texts = [_goal(slo, asked) for slo in one.slos]
    kept = one.success
    if kept.met is False or kept.rehearsed_met is False:
        texts.append(f"{success_goal(kept.goal_fraction)} ✗")
    return texts


def _goal(slo: SloOutcome, asked: float | None) -> str:
    """`TTFT p95 325 of 500 ms ✓ 84 %`; on the twin, its figure in place of the probability."""
    name = metric_text(slo.metric)
    if slo.predicted is None or slo.met is None:
        return f"{name} {format_seconds(slo.limit_s)} not measured"
    text = f"{name} {_of(slo.predicted.value, slo.limit_s)}"
    if slo.rehearsed and slo.rehearsed.met is not None and slo.rehearsed.value_s is not None:
        paced = slo.metric == "finish_within" and slo.rehearsed.met  # it cannot end before its window does
        seen = "twin keeps up" if paced else f"twin {format_seconds(slo.rehearsed.value_s)}"
        return f"{text} {chance(slo.rehearsed.met, None)} {seen}"
    return f"{text} {chance(slo.met, slo.holds_probability, asked)}"


def _until(one: ClassPlan) -> str:
    return f"holds to {format_si(one.holds_until_per_s.value, '1/s')}"


def _fleet_pieces(service: ServicePlan) -> list[str]:
    """Spares and what they survive, what is held on average, and what a rehearsal said."""
    machine, spare = service.machine, f"{service.spare_count} spare"
    held = machine.held_fraction * machine.node_count
    chosen = [each for each in service.rehearsals if each.chosen]
    if chosen and chosen[0].holds and _rehearsed_rows(service):
        chosen = []  # the lines below its classes say it
    return [
        f"{spare}: {service.spare_reason}" if service.spare_count else "no spare",
        f"{held:.1f} nodes held on average" if machine.held_fraction < 1.0 else "",
        *(f"rehearsed: {'every goal holds' if each.holds else 'a goal is missed ✗'}" for each in chosen),
    ]


def _ladder(plan: Plan) -> list[str]:
    """What each confidence takes, all runs and services together."""
    texts, several = [], len(plan.halves) > 1
    planned = {rung.name: rung.accelerator_count for rung in plan.ladder if rung.confidence == _asked(plan)}
    for sure in sorted({rung.confidence for rung in plan.ladder}):
        rungs = [rung for rung in plan.ladder if rung.confidence == sure]
        bound = [f"{each.name} {each.binds}" if several else each.binds for each in rungs if each.binds]
        usd = [each.usd_per_year for each in rungs if each.usd_per_year is not None]
        # What has no price grows in machines: those that are as planned are not told again.
        sizes = [f"≈ {format_usd(sum(usd))}"] if usd else []
        sizes += [
            f"{each.name} on {each.accelerator_count:,} accelerators"
            if several
            else f"{each.accelerator_count:,} accelerators"
            for each in rungs
            if each.usd_per_year is None and each.accelerator_count != planned.get(each.name)
        ]
        size = ", ".join(sizes)
        if plan.serving and not several:
            count = rungs[0].replica_count
            size = f"{count:,} replica{'s' if count != 1 else ''}, {size}"
        size += "".join(f", {each.gate}" for each in rungs if each.gate)
        if all(each.accelerator_count == planned.get(each.name) for each in rungs):
            size = "this" if sure == _asked(plan) else "the same"
        texts.append(f"{percent(sure)}: {'; '.join(bound) or size}")
    return texts


def _measuring(plan: Plan) -> list[str]:
    """What an hour of measuring on one node is expected to save."""
    texts = []
    for each in plan.measure_first:
        saved = f", worth {format_usd(each.usd_per_year)}/y" if each.usd_per_year else ""
        fewer = f"{each.replica_count} → {each.expected_replica_count:.2g} replicas expected"
        texts.append(f"measure first: {each.what}, {fewer}{saved}")
    return texts


def _twin(plan: Plan) -> list[str]:
    """In which world a rehearsed plan's figures are (`simulate` has another), and what their marks say."""
    if not any(each.rehearsals for each in plan.serving):
        return []
    asked, marks = _asked(plan), "✓ held ✗ missed"
    if asked is None or asked <= MIDDLE:
        return [f"{marks} at the peak, spares away"]
    return [f"steps as slow as {percent(asked)} sure asks; `simulate` has middle ones", marks]


def _assumed(plan: Plan) -> list[str]:
    """What decides and nobody wrote: goals, lengths, peaks, headroom; and the day of the prices."""
    dates = sorted(half.machine.price.date for half in plan.halves if half.machine.price)
    texts = [plan.calibration] if plan.calibration else []
    texts += [f"prices of {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"] if dates and dates[-1] else []
    rows = {one.name for each in plan.serving for one in each.classes if one.input_tokens is None}
    found: dict[str, dict[str, list[str]]] = {leaf: {} for leaf in DECIDING}
    for path, value in plan.defaults:
        parts = path.split(".")
        leaf = next((each for each in DECIDING if each in parts[-2:]), "")
        leaf = parts[-1] if parts[-1] in DECIDING else leaf
        whose = _whose(parts)
        if leaf and not (whose in rows and leaf in LENGTHS):
            said = value if leaf == parts[-1] else f"{parts[-1].replace('_', ' ')} {value}"
            found[leaf].setdefault(whose, []).append(said)
    for leaf, values in found.items():
        alike: dict[str, list[str]] = {}
        for whose, each in values.items():
            alike.setdefault(", ".join(each), []).append(whose)
        texts += [f"{leaf} {said} ({', '.join(names)})" for said, names in alike.items()]
    if plan.serving and not any(found[leaf] for leaf in ("slo", "peak", *LENGTHS)):
        texts.insert(1, "goals, lengths and peaks are yours")
    return texts


def _whose(parts: Sequence[str]) -> str:
    """The class, run or service that a path of the spec is of."""
    return parts[3] if "classes" in parts[:3] and len(parts) > 3 else parts[1] if len(parts) > 1 else parts[0]


def _marks(plan: Plan) -> str:
    """What the marks and letters mean; where the twin gave all marks there is no probability to tell of."""
    asked = _asked(plan)
    goals = [slo for each in plan.serving for one in each.classes for slo in one.slos]
    if goals and all(slo.rehearsed for slo in goals) and not any(run.deadline_s for run in plan.training):
        return LETTERS
    sure = f"✓ ≥ {percent(asked)} ~ ≥ 50 % ✗ less" if asked else "✓ ≥ 50 % sure ✗ less"
    return f"{sure}{DOT}{LETTERS}"
