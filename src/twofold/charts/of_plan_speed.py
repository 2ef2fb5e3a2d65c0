"""Pictures of how fast a run or a service is, and why: steps, memory, loads, goals, rooflines."""

from collections.abc import Iterator

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Rule
from twofold.contracts.goals import metric_text
from twofold.contracts.results import serving
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_seconds

WIDER = 2.0  # times that a roof reaches beyond the work below it


def speed_of_run(run: TrainingPlan) -> Iterator[Chart]:
    """The step, its memory, its work under the roofline, and how it scales."""
    yield from (*_step(run), *_memory(run), *_roofline(run), *_scaling(run))


def speed_of_service(service: serving.ServicePlan) -> Iterator[Chart]:
    """Goals, latencies over the load, memory, and where a request waits."""
    yield from (
        *_goals(service),
        *_loads(service),
        *_memory(service),
        *_roofline(service),
        *_budgets(service),
    )


def _step(run: TrainingPlan) -> Iterator[Chart]:
    """One optimiser step as a waterfall: each part begins where the one above it ends."""
    bars, at = [], 0.0
    for part in run.step_parts:
        bars.append(Bar(part.name, (Piece(part.name, part.value.value, at),)))
        at += part.value.value
    if bars:
        whole = Bar("step", (Piece("step", run.step_s.value, 0.0),), run.step_s.low, run.step_s.high)
        yield Bars(f"step.{run.name}", f"{run.name}: one step", Axis("time", "s"), (*bars, whole))


def _memory(half: TrainingPlan | serving.ServicePlan) -> Iterator[Chart]:
    """The memory of the fullest accelerator by what takes it, and how much there is."""
    taken = half.memory_bytes
    if not half.memory_parts or taken is None:
        return
    pieces = tuple(Piece(part.name, part.value.value) for part in half.memory_parts)
    bars = (Bar("one accelerator", pieces, taken.low, taken.high),)
    rules = (Rule("capacity", half.memory_capacity_bytes),)
    axis = Axis("memory", "memory B")
    yield Bars(f"memory.{half.name}", f"{half.name}: memory of one accelerator", axis, bars, rules)


def _roofline(half: TrainingPlan | serving.ServicePlan) -> Iterator[Chart]:
    """What the accelerator can do at most, this work as planned, and products that others timed."""
    roof = half.roofline
    if roof is None or not roof.planned:
        return
    ridge = roof.peak_flops_per_s / roof.memory_bytes_per_s
    work = [each.flops_per_byte for each in (*roof.planned, *roof.measured)]
    x = (min(*work, ridge) / WIDER, ridge, max(*work, ridge) * WIDER)
    most = tuple(min(roof.peak_flops_per_s, each * roof.memory_bytes_per_s) for each in x)
    points = tuple(
        Points(
            name,
            tuple(each.flops_per_byte for each in found),
            tuple(each.flops_per_s for each in found),
            tuple(each.what for each in found),
        )
        for name, found in (("as planned", roof.planned), ("measured products", roof.measured))
        if found
    )
    axes = Axis("FLOPs per byte", "", log=True), Axis("of one accelerator", "FLOP/s", log=True)
    title = f"{half.name}: work under the roof of {roof.accelerator} in {roof.number_format}"
    yield Curves(f"roofline.{half.name}", title, *axes, (Line("roof", x, most),), points)


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
    title = f"{run.name}: a step on more accelerators, its batch grown with them"
    yield Curves(f"scaling.{run.name}", title, x, y, (line,), (), planned)


def _goals(service: serving.ServicePlan) -> Iterator[Chart]:
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


def _loads(service: serving.ServicePlan) -> Iterator[Chart]:
    """Latencies of a class over its load, with their goals, the knee and what is planned."""
    for one in service.classes:
        curves = [each for each in service.latency_curves if each.class_name == one.name and each.points]
        if curves:
            goals = [Rule(f"{metric_text(each.metric)} goal", each.limit_s) for each in curves]
            knee = [Rule("knee", one.knee_per_s, upright=True)] if one.knee_per_s else []
            yield Curves(
                f"load.{service.name}.{one.name}",
                f"{service.name}: latency of {one.name} over its load",
                Axis("requests", "1/s"),
                Axis("latency", "s", log=True),
                tuple(map(_latency, curves)),
                (),
                (*goals, Rule("planned", one.peak_per_s, upright=True), *knee),
            )


def _latency(curve: serving.LatencyCurve) -> Line:
    return Line(
        metric_text(curve.metric),
        tuple(point.rate_per_s for point in curve.points),
        *(
            tuple(float(getattr(point.latency, end)) for point in curve.points)
            for end in ("value", "low", "high")
        ),
    )


def _budgets(service: serving.ServicePlan) -> Iterator[Chart]:
    """Where the time until the first token goes, class by class."""
    waited: list[serving.ClassPlan] = [
        each for each in service.classes if each.is_waited_for and each.latency_budget
    ]
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
