"""The charts of a plan, each from the numbers of its JSON alone; what a plan has not is left out."""

from collections.abc import Iterator
from math import isclose

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Rule, Span, Spans
from twofold.contracts.goals import metric_text
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_seconds, format_usd
from twofold.core.quantity import DAY_S

YEAR_D = 365.0
UNKNOWNS_MOST = 8  # bars of the tornado


def charts_of_plan(plan: Plan) -> tuple[Chart, ...]:
    """Every chart that the plan has numbers for, the decision's first."""
    found: list[Chart] = [*_calendar(plan), *_sizes(plan)]
    for run in plan.training:
        found += [*_front(run), *_step(run), *_memory(run), *_scaling(run)]
    for service in plan.serving:
        found += [*_goals(service), *_memory(service), *_budgets(service)]
    return (*found, *_unknowns(plan), *_owning(plan), *_bill(plan))


def _calendar(plan: Plan) -> Iterator[Chart]:
    """What is held from when to when in the first year: each run the first time, of a service all nodes."""
    spans = []
    for run in plan.training:
        days = (run.release_after_s or run.run.total_s.value) / DAY_S
        kind = f"{run.machine.node_count} × {run.machine.accelerators_per_node} {run.machine.accelerator}"
        spans.append(
            Span(run.name, kind, 0.0, days * DAY_S, format_usd(run.cost_usd.value) if run.cost_usd else "")
        )
    for service in plan.serving:
        machine, cost = service.machine, service.cost_usd_per_year
        kind = f"{machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"
        spans.append(Span(service.name, kind, 0.0, YEAR_D * DAY_S, format_usd(cost.value) if cost else ""))
    if spans:
        note = "a run that repeats: its first time; a service: the most nodes that it holds"
        axis = Axis("after the first day", "s")
        yield Spans("calendar", "what is held when", axis, tuple(spans), note)


def _sizes(plan: Plan) -> Iterator[Chart]:
    """Accelerators of each half at 50, 80 and 95 % confidence."""
    for name in dict.fromkeys(rung.name for rung in plan.ladder):
        rungs = [rung for rung in plan.ladder if rung.name == name]
        bars = tuple(
            Bar(
                f"{100 * rung.confidence:.3g} % sure", (Piece("accelerators", float(rung.accelerator_count)),)
            )
            for rung in rungs
        )
        bound: dict[str, list[str]] = {}
        for rung in rungs:
            if rung.binds:
                bound.setdefault(rung.binds, []).append(f"{100 * rung.confidence:.3g}")
        short = [f"{' and '.join(sure)} %: {why}" for why, sure in bound.items()]
        title = f"{name}: accelerators by how sure each goal is to be"
        yield Bars(f"sizes.{name}", title, Axis("accelerators", ""), bars, note="; ".join(short))


def _front(run: TrainingPlan) -> Iterator[Chart]:
    """Cost against time of what no other way beats, the planned one marked."""
    priced = [point for point in run.front if point.cost_usd is not None]
    if len(priced) < 2:
        return
    own = run.cost_usd.value if run.cost_usd else None
    taken = [index for index, point in enumerate(priced) if own and isclose(point.cost_usd or 0.0, own)]
    points = Points(
        "ways to train",
        tuple(point.wall_s for point in priced),
        tuple(point.cost_usd or 0.0 for point in priced),
        tuple(point.what for point in priced),
        frozenset(taken[:1]),
    )
    rules = (Rule("deadline", run.deadline_s, upright=True),) if run.deadline_s else ()
    title = f"{run.name}: cost against time"
    yield Curves(f"front.{run.name}", title, Axis("time", "s"), Axis("cost", "USD"), (), (points,), rules)


def _step(run: TrainingPlan) -> Iterator[Chart]:
    """One optimiser step as a waterfall: each part begins where the one above it ends."""
    bars, at = [], 0.0
    for part in run.step_parts:
        bars.append(Bar(part.name, (Piece(part.name, part.value.value, at),)))
        at += part.value.value
    if bars:
        whole = Bar("step", (Piece("step", run.step_s.value, 0.0),), run.step_s.low, run.step_s.high)
        yield Bars(f"step.{run.name}", f"{run.name}: one step", Axis("time", "s"), (*bars, whole))


def _memory(half: TrainingPlan | ServicePlan) -> Iterator[Chart]:
    """The memory of the fullest accelerator by what takes it, and how much there is."""
    taken = half.memory_bytes
    if not half.memory_parts or taken is None:
        return
    pieces = tuple(Piece(part.name, part.value.value) for part in half.memory_parts)
    bars = (Bar("one accelerator", pieces, taken.low, taken.high),)
    rules = (Rule("capacity", half.memory_capacity_bytes),)
    axis = Axis("memory", "memory B")
    yield Bars(f"memory.{half.name}", f"{half.name}: memory of one accelerator", axis, bars, rules)


def _scaling(run: TrainingPlan) -> Iterator[Chart]:
    """How a step shortens on more accelerators, with its range."""
    points = sorted(run.scaling, key=lambda each: each.accelerator_count)
    if len(points) < 2:
        return
    steps = [point.step_s for point in points]
    line = Line(
        "time of a step",
        tuple(float(point.accelerator_count) for point in points),
        tuple(step.value for step in steps),
        tuple(step.low for step in steps),
        tuple(step.high for step in steps),
    )
    x, y = Axis("accelerators", "", log=True), Axis("step", "s", log=True)
    planned = (Rule("planned", float(run.machine.accelerator_count), upright=True),)
    yield Curves(
        f"scaling.{run.name}", f"{run.name}: a step on more accelerators", x, y, (line,), (), planned
    )


def _goals(service: ServicePlan) -> Iterator[Chart]:
    """Each goal as a share of its limit, with its range: what ends before the line is kept."""
    bars = []
    for each in service.classes:
        for slo in each.slos:
            if slo.predicted is None or not slo.limit_s:
                continue
            name = f"{each.name} {metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}"
            low, value, high = (getattr(slo.predicted, end) / slo.limit_s for end in ("low", "value", "high"))
            bars.append(Bar(name, (Piece("predicted of its limit", value),), low, high))
    if bars:
        title, limit = f"{service.name}: goals at the peak", (Rule("limit", 1.0),)
        yield Bars(f"goals.{service.name}", title, Axis("of the limit", "fraction"), tuple(bars), limit)


def _budgets(service: ServicePlan) -> Iterator[Chart]:
    """Where the time until the first token goes, class by class."""
    waited: list[ClassPlan] = [each for each in service.classes if each.is_waited_for and each.latency_budget]
    bars = tuple(
        Bar(
            each.name,
            tuple(
                Piece(part.name, part.value.value) for part in each.latency_budget if part.name != "decode"
            ),
        )
        for each in waited
    )
    if bars:
        title = f"{service.name}: where a mean request waits before its first token"
        yield Bars(f"budget.{service.name}", title, Axis("time", "s"), bars)


def _unknowns(plan: Plan) -> Iterator[Chart]:
    """How far each unknown alone moves the first step and the first time per token."""
    halves = (("step_swing_fraction", "step"), ("tpot_swing_fraction", "time per token"))
    for field, of in halves:
        swings = [(each.name.replace("_", " "), getattr(each, field)) for each in plan.factors]
        ranked = sorted((each for each in swings if each[1]), key=lambda each: -each[1])[:UNKNOWNS_MOST]
        bars = tuple(Bar(name, (Piece(name, swing, -swing / 2),)) for name, swing in ranked)
        if bars:
            title = f"how far each unknown alone moves the first {of}"
            yield Bars(f"unknowns.{of.split()[0]}", title, Axis("width of its 80 % range", "fraction"), bars)


def _owning(plan: Plan) -> Iterator[Chart]:
    """Money spent over the years: owned beside rented."""
    owning = plan.money.owning if plan.money else None
    if owning is None or not owning.cash:
        return
    years = tuple(float(step.year) * YEAR_D * DAY_S for step in owning.cash)
    owned, rented = [0.0], [0.0]
    for step in owning.cash:
        owned.append(owned[-1] + step.owned_usd)
        rented.append(rented[-1] + step.rented_usd)
    lines = (
        Line("owned", years, tuple(owned[1:])),
        Line("rented", years, tuple(rented[1:])),
    )
    y = Axis("spent", "USD")
    yield Curves("owning", "owned or rented", Axis("after the first day", "s"), y, lines)


def _bill(plan: Plan) -> Iterator[Chart]:
    """The first year's bill by what it is for."""
    if plan.money is None:
        return
    sums: dict[str, float] = {}
    for line in plan.money.lines:
        whose = line.what.partition(":")[0]
        sums[whose] = sums.get(whose, 0.0) + line.total_usd
    bars = tuple(Bar(name, (Piece("first year", usd),)) for name, usd in sums.items() if usd)
    if bars:
        yield Bars("bill", "the bill of the first year", Axis("cost", "USD"), bars)
