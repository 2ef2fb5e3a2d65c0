"""The charts of a plan, each from the numbers of its JSON alone; what a plan has not is left out."""

from collections.abc import Iterator

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Span, Spans
from twofold.charts.of_plan_money import money_of_plan, ways_of_run, ways_of_service
from twofold.charts.of_plan_speed import speed_of_run, speed_of_service
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_usd
from twofold.core.quantity import YEAR_S

UNKNOWNS_MOST = 8  # bars of the tornado
REPEATS_MOST = 53  # of a run that are drawn one by one: every week


def charts_of_plan(plan: Plan) -> tuple[Chart, ...]:
    """Every chart that the plan has numbers for, the decision's first."""
    found: list[Chart] = [*_calendar(plan), *_sizes(plan)]
    for run in plan.training:
        found += [*ways_of_run(run, plan.own_usd(run.name)), *speed_of_run(run)]
    for service in plan.serving:
        found += [*ways_of_service(service), *speed_of_service(service)]
    return (*found, *_unknowns(plan), *money_of_plan(plan), *_day(plan))


def _calendar(plan: Plan) -> Iterator[Chart]:
    """What is held from when to when in the first year: every time of a run, the base of a service apart."""
    times = {each.name: each.runs_per_year for each in plan.money.runs} if plan.money else {}
    spans = [span for run in plan.training for span in _held_by_run(run, times.get(run.name, 1.0))]
    spans += [span for service in plan.serving for span in _held_by_service(service)]
    if spans:
        note = "runs begin as evenly as they repeat; by the hour: the most nodes at once"
        yield Spans("calendar", "what is held when", Axis("after the first day", "s"), tuple(spans), note)


def _held_by_run(run: TrainingPlan, times: float) -> Iterator[Span]:
    """Each time of a run within a year; as one stretch where it repeats more often than can be seen."""
    machine = run.machine
    kind = f"{machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"
    cost, held_s = format_usd(run.cost_usd.value) if run.cost_usd else "", run.release_after_s
    held_s = held_s or run.run.total_s.value
    if times > REPEATS_MOST:
        yield Span(run.name, kind, 0.0, YEAR_S, f"{times:,.0f} times {cost}".strip())
        return
    every_s = YEAR_S / max(times, 1.0)
    for time in range(max(round(times), 1)):
        start_s = time * every_s
        yield Span(run.name, kind, start_s, max(min(start_s + held_s, YEAR_S), start_s), cost)


def _held_by_service(service: ServicePlan) -> Iterator[Span]:
    """A service's nodes: those that it holds all year, and those that come and go by the hour."""
    machine, cost = service.machine, service.cost_usd_per_year
    usd, base = format_usd(cost.value) if cost else "", machine.base_node_count
    of = f"{machine.accelerators_per_node} {machine.accelerator}"
    if base:
        yield Span(f"{service.name}, all year", f"{base} × {of}", 0.0, YEAR_S)
    rest = machine.node_count - base
    if not base and machine.node_count * machine.accelerators_per_node != machine.accelerator_count:
        yield Span(service.name, f"{machine.accelerator_count} × {machine.accelerator}", 0.0, YEAR_S, usd)
    elif rest:
        mean = machine.held_fraction * machine.node_count - base
        told = f"{mean:.1f} on average, " if mean < rest * (1.0 - 1e-9) else ""
        row = f"{service.name}, by the hour" if told else service.name
        yield Span(row, f"{rest} × {of}", 0.0, YEAR_S, f"{told}{usd}".strip(", "))


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


def _unknowns(plan: Plan) -> Iterator[Chart]:
    """How far each unknown alone moves the first step and the first time per token."""
    halves = (("step_swing_fraction", "step"), ("tpot_swing_fraction", "time per token"))
    for field, of in halves:
        swings = [(each.name.replace("_", " "), getattr(each, field)) for each in plan.factors]
        ranked = sorted((each for each in swings if each[1]), key=lambda each: -each[1])[:UNKNOWNS_MOST]
        bars = tuple(Bar(name, (Piece(name, swing, -swing / 2),)) for name, swing in ranked)
        if bars:
            title = f"how far each unknown alone moves the first {of}"
            axis, note = Axis(f"moves the first {of} by", "fraction"), "beside a bar stands its whole length"
            yield Bars(f"unknowns.{of.split()[0]}", title, axis, bars, note=note)


def _day(plan: Plan) -> Iterator[Chart]:
    """Power at the meter and carbon in each hour of a mean day."""
    if plan.building is None:
        return
    year, hours = plan.building.year, tuple(float(hour) for hour in range(24))
    told = (
        ("power", "power at the meter by the hour of a mean day", "power", "W", year.power_by_hour_w),
        ("carbon", "carbon by the hour of a mean day", "an hour", "gCO2", year.carbon_by_hour_gco2),
    )
    for key, title, label, unit, values in told:
        if len(values) == len(hours):
            line = Line(key, hours, values)
            yield Curves(key, title, Axis("hour of the day", ""), Axis(label, unit), (line,), note=year.place)
