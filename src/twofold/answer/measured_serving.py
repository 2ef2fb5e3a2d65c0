"""A service whose times are measured rows instead of a model: embeddings, vision, speech, anything else."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from twofold.answer.context import Context, carbon, facility_energy, machine_of, price_warnings
from twofold.answer.hosted_overflow import overflow_notes
from twofold.answer.measured_sizing import MIDDLE, chances, replicas_for
from twofold.answer.offers import Offer, owned_offer, rented_offer
from twofold.answer.serving_choice import ClassLoad, class_load, success_of
from twofold.contracts.goals import METRICS, QUANTILES, metric_text
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Loser, Part
from twofold.contracts.results.plan import Confidence, Rung
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.contracts.rows.measured_rows import read_service_rows
from twofold.contracts.spec.service import LatencyClass, Service
from twofold.core import record
from twofold.core.display import format_apart, format_seconds, format_si, likely
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.core.estimate import Estimate, Source, exact
from twofold.core.quantity import DAY_S, YEAR_H, YEAR_S
from twofold.inference.fleet import ReplicaCount
from twofold.inference.measured import MeasuredService
from twofold.perf.device import device

LENGTHS = ("input", "output")
ONE_ROW = "one row per batch size: ±{:.0f} % between runs is assumed, repeated rows would tell"
NEAR_SATURATION = 0.98  # of what a replica carries at most


def measured_plan(entry: Service, context: Context) -> ServicePlan:
    """Replicas, latency and cost of a measured workload on the machines it was measured on.

    Raises ValueRefusedError without `on`, InfeasibleError where a lone request misses its goal.
    """
    path = entry.model.measured
    assert path
    if entry.on is None:
        raise ValueRefusedError(
            f"`{entry.name}` is measured, but not where",
            hint="name the machines of one replica, for example `on: 1xL40S`",
        )
    named, own = _machines(entry, context)
    service = MeasuredService.of(read_service_rows(path), named.node.accelerator_count)
    loads, sure = _loads(entry, service), context.spec.margin_fraction or MIDDLE
    for load in loads:
        _check(entry, load, service)
    pools = [(load, replicas_for(entry, load, service, sure)[0]) for load in loads]
    enough = own is not None and sum(each.total for _, each in pools) <= (own.node_count_max or 0)
    return _plan(entry, own if own and enough else named, service, pools, context)


def held_for(entry: Service, context: Context) -> int:
    """Accelerators of one's own that a measured service may stand on."""
    _, own = _machines(entry, context)
    return own.held if own else 0


def measured_rungs(plan: ServicePlan, entry: Service, confidences: Iterable[float]) -> Iterator[Rung]:
    """A planned service at other confidences, on the same machines; at its own it is the plan."""
    assert entry.model.measured
    size, usd = plan.replica.accelerator_count, plan.cost_usd_per_year
    service = MeasuredService.of(read_service_rows(entry.model.measured), size)
    for sure in confidences:
        pools = [(load, *replicas_for(entry, load, service, sure)) for load in _loads(entry, service)]
        total = sum(count.total for _, count, _ in pools)
        yield Rung(
            name=plan.name,
            confidence=sure,
            replica_count=sum(count.needed for _, count, _ in pools),
            accelerator_count=total * size,
            usd_per_year=None if usd is None else usd.value * total / plan.replica_count,
            probability=min(
                chance
                for load, count, _ in pools
                for chance in (1.0, *chances(service, load, count.needed).values())
            ),
            binds="" if all(reached for *_, reached in pools) else Confidence.NOT_BY_REPLICAS,
        )


def _machines(entry: Service, context: Context) -> tuple[Offer, Offer | None]:
    """The machines that the spec names, for rent, and your own of them."""
    supply, catalog = context.spec.supply, context.catalog
    assert entry.on
    named = rented_offer(entry.on, catalog, supply, supply.shop.terms, entry.regions)
    return named, owned_offer(entry.on, named, catalog, supply, entry.regions)


def _loads(entry: Service, service: MeasuredService) -> tuple[ClassLoad, ...]:
    return tuple(class_load(name, _in_requests(name, each, service)) for name, each in entry.classes.items())


def _in_requests(name: str, spec: LatencyClass, service: MeasuredService) -> LatencyClass:
    """A class whose rate counts what a request holds several of, with its rate in requests."""
    traffic = spec.traffic
    if traffic.unit is None or traffic.rate_per_s is None:
        return spec
    if traffic.unit != service.unit:
        rows = f"rows of {service.unit}" if service.unit else "rows that do not say what a request holds"
        hint = f"write `{service.unit or ''}/s`, or `unit` and `units_per_request` into the rows"
        raise ValueRefusedError(f"`{name}` counts {traffic.unit}, and is planned by {rows}", hint=hint)
    rate_per_s = traffic.rate_per_s / service.units_per_request
    return spec.model_copy(update={"traffic": traffic.model_copy(update={"rate_per_s": rate_per_s})})


def _check(entry: Service, load: ClassLoad, service: MeasuredService) -> None:
    """Raises InfeasibleError where a request alone misses a goal."""
    goals_s = load.traffic.slo.latencies_s
    if service.rate_limit(goals_s, load.traffic.slo.success) > 0:
        return
    lines = []
    for name, goal_s in goals_s.items():
        alone = service.quantile(0.0, name)
        if alone is not None and (alone_s := float(np.max(alone))) > goal_s:
            took, goal = format_seconds(alone_s), format_seconds(goal_s)
            told = f"a request alone takes {took}, {goal} is promised"
            lines.append(("binds", f"{metric_text(name)}: {told}"))
    if not lines:
        lines.append(("binds", "success: first tokens come later than the gateway waits for them"))
    raise InfeasibleError(f"no replica serves `{entry.name}` within its objectives", lines=tuple(lines))


def _plan(
    entry: Service,
    offer: Offer,
    service: MeasuredService,
    pools: Sequence[tuple[ClassLoad, ReplicaCount]],
    context: Context,
) -> ServicePlan:
    size, count = service.accelerators, sum(each.total for _, each in pools)
    machine = machine_of(offer, count * size, context, size)
    price = machine.price
    cost = price.usd_per_accelerator_h.times(count * size * YEAR_H, "USD") if price else None
    used = "machine.price.usd_per_accelerator_h"
    record.note("cost_usd_per_year", cost, "accelerators × price × 8760 h", "count", used)
    hardware = device(offer.accelerator, context.constants)
    watts = float(hardware.power_w(hardware.serving_power_fraction)) * count * size
    record.note("accelerators_j", watts * YEAR_S, "power while serving × a year", "watts", "count")
    energy_j = facility_energy(exact(watts * YEAR_S, "J", Source.MEASURED), offer.price, context)
    classes = []
    for load, own in pools:
        with record.noting(f"classes.{load.name}"):
            classes.append(_class(entry, load, own, service, cost, count))
            _note_counts(classes[-1], load, service, context.spec.margin_fraction or MIDDLE)
    rate = sum(load.mean_rate_per_s for load, _ in pools)
    name = entry.model.label
    return ServicePlan(
        name=entry.name,
        model=name,
        parameters=None,
        quality_note="",
        machine=machine,
        replica=_replica(size, service),
        classes=tuple(classes),
        replica_count=count,
        spare_count=sum(each.spare for _, each in pools),
        spare_reason=f"{100 * entry.availability_fraction:.6g} % available",
        zones=entry.zones,
        regions=entry.regions,
        memory_capacity_bytes=hardware.memory_bytes,
        batch_limit=None,
        cost_usd_per_year=cost,
        energy_j_per_year=energy_j,
        carbon_gco2_per_year=carbon(energy_j, offer.price, context),
        tried=len(service.batch_sizes),
        losers=(Loser("other machines", "not measured"),),
        cold_start_s=_start_s(service),
        warnings=(
            f"times of {name} are measured rows: memory{_unknown_start(service)} are not known",
            *_cannot_say(entry, service),
            *_falling(service),
            *([] if service.repeats_count else [ONE_ROW.format(100 * (service.spread_factor - 1))]),
            f"requests on average: {format_si(rate, '1/s')}{_of_units(service, rate)}",
            *price_warnings(offer, context, entry.regions, machine),
            *overflow_notes(entry, classes),
        ),
    )


def _start_s(service: MeasuredService) -> Estimate | None:
    """From the start of a replica to its first answer, where rows say it."""
    if service.start_s is None:
        return None
    spread = service.start_spread_factor
    start = Estimate(
        service.start_s, service.start_s / spread, service.start_s * spread, "s", Source.MEASURED
    )
    return record.note("cold_start_s", start, "median of the measured starts", "rows")


def _unknown_start(service: MeasuredService) -> str:
    return ", tokens and cold start" if service.start_s is None else " and tokens"


def _of_units(service: MeasuredService, rate_per_s: float) -> str:
    """What the requests hold together, where the rows say."""
    if not service.unit:
        return ""
    return f", {format_si(rate_per_s * service.units_per_request, '1/s')} of {service.unit}"


def _cannot_say(entry: Service, service: MeasuredService) -> Iterator[str]:
    """Goals that the rows cannot judge, or only from above, and the column that would."""
    goals = [(name, goal) for name, each in entry.classes.items() for goal in each.slo.latencies_s()]
    for metric, column, what in (
        ("ttft", service.ttft_s, "counts to the end of the answer"),
        ("tpot", service.tpot_s, "is not known: the fleet is sized without it"),
    ):
        wanted = [f"{metric_text(goal)} of {name}" for name, goal in goals if goal.startswith(metric)]
        if wanted and column is None:
            yield f"{', '.join(wanted)} {what}: measure `{metric}_s` beside `service_s`"


def _falling(service: MeasuredService) -> Iterator[str]:
    """Two rows of which the larger batch is faster, and how goals are judged then."""
    if service.falling is None:
        return
    name, small, large = service.falling
    sizes, times = service.batch_sizes, getattr(service, name)
    large_s, small_s = format_apart(times[large], times[small], "s")
    rows = f"`{name}` of a batch of {sizes[large]:g} is {large_s}, of {sizes[small]:g} {small_s}"
    yield f"{rows}: less load may answer later, so that goals are judged at every rate up to the peak"


def _replica(size: int, service: MeasuredService) -> serving.Replica:
    text = f"measured · batches up to {service.batch_sizes[-1]:g}"
    largest = int(service.batch_sizes[-1])
    return serving.Replica(size, None, None, None, None, None, None, None, largest, None, text)


def _class(
    entry: Service,
    load: ClassLoad,
    count: ReplicaCount,
    service: MeasuredService,
    cost: Estimate | None,
    replicas: int,
) -> ClassPlan:
    rate, traffic = load.peak_per_s / max(count.needed, 1), entry.classes[load.name].traffic
    whole = service.latest(rate)
    assert whole
    goals_s = load.traffic.slo.latencies_s
    held = {"e2e": service.service_s, "ttft": service.ttft_s, "tpot": service.tpot_s}
    named = [f"{metric}_{which}" for metric in METRICS if held[metric] for which in QUANTILES]
    figures = {name: figure for name in named if (figure := _latency_s(service, rate, name))}
    # After the latencies at this rate, which are noted first: here they are asked for at every rate.
    limits = _between(service, lambda other: other.rate_limit(goals_s, load.traffic.slo.success), "1/s")
    said = "the largest rate up to which every goal is met that the rows can judge"
    record.note("rate_per_replica_per_s", limits, said, "rows", "goals")
    holds = limits.times(count.needed, "1/s")
    window_s, holding = load.traffic.slo.finish_within_s, chances(service, load, count.needed)
    outcomes = []
    for name, goal_s in goals_s.items():  # without a prediction where the rows cannot say
        found = _latency_s(service, rate, name)
        # Without a measured first output the answer comes whole.
        as_read = name if name in figures else name.replace("ttft", "e2e")
        outcomes.append(_outcome(name, goal_s, found, holding.get(name), "at the peak rate", as_read))
    if window_s is not None:
        work = load.mean_rate_per_s * DAY_S / count.needed
        # Where the rate may be nothing, the far end is that of its middle.
        ends_s = work / limits.value, work / limits.high, work / (limits.low or limits.value)
        done_s = Estimate(*ends_s, "s", limits.source)
        said, used = "a day's requests / what the replicas carry", ("work", "holds_until_per_s")
        outcomes.append(_outcome("finish_within", window_s, done_s, holding["finish_within"], said, *used))
    lengths, share = load.traffic.lengths, count.total / replicas
    # A default length is no property of what was measured: an embedding has no 211 output tokens.
    is_said = {name: traffic.trace is not None or name in traffic.model_fields_set for name in LENGTHS}
    output_tokens = float(np.max(lengths.output_tokens)) if is_said["output"] else None
    per_1k = None
    if cost and output_tokens:
        tokens_per_y = load.mean_rate_per_s * output_tokens * YEAR_S
        per_1k = cost.times(share / tokens_per_y * 1e3, "USD")
        said = "the class's replicas and spares of the cost / output tokens"
        record.note("usd_per_1k_output_tokens", per_1k, said, "cost", "replicas", "work", "lengths")
    return ClassPlan(
        name=load.name,
        rate_per_s=load.mean_rate_per_s,
        peak_per_s=load.peak_per_s,
        input_tokens=float(np.max(lengths.input_tokens)) if is_said["input"] else None,
        output_tokens=output_tokens,
        percentiles=figures,
        slos=tuple(outcomes),
        replica_count=count.needed,
        rate_per_replica_per_s=limits,
        holds_until_per_s=holds,
        knee_per_s=None,
        usd_per_1k_output_tokens=per_1k,
        latency_budget=_latency_budget(float(np.max(whole.mean_s)), service),
        replica_text=_replica(service.accelerators, service).text,
        success=success_of(load, (load,), entry, figures),
        outlasts_zone=load.traffic.outlasts_zone,
        spare_count=count.spare,
    )


def _note_counts(one: ClassPlan, load: ClassLoad, service: MeasuredService, sure: float) -> None:
    """How many replicas a class takes and what they hold, with the numbers put in.

    Formula  ⌈peak / (u · rate per replica)⌉, u = `ReplicaCount.FILLED_FRACTION`; more where a goal holds too
             seldom with them
    """
    count, rate_per_s = one.replica_count, one.rate_per_replica_per_s.value
    middle, peak_per_s = ReplicaCount.of(load.peak_per_s, rate_per_s).needed, load.peak_per_s
    numbers = f"⌈{peak_per_s:,.6g} / ({ReplicaCount.FILLED_FRACTION:g} × {rate_per_s:,.6g})⌉"
    said, used = f"⌈peak / (filled × rate per replica)⌉ = {numbers}", ["peak", "filled"]
    if count > middle:
        told = [likely(min(chances(service, load, each).values()), sure) for each in (count, count - 1)]
        fewest = f"{told[0]} with {count:,}, {told[1]} with {count - 1:,}"
        said = (
            f"the fewest with which every goal holds with {100 * sure:.3g} %: {fewest}; of the middle {said}"
        )
        used += ["rows", "goals"]
    record.note("replica_count", count, said, *used, "rate_per_replica_per_s")
    said = f"replicas × rate per replica = {count:,} × {rate_per_s:,.6g}"
    record.note("holds_until_per_s", one.holds_until_per_s, said, "replicas", "rate_per_replica_per_s")


def _latency_budget(mean_s: float, service: MeasuredService) -> tuple[Part, ...]:
    """What a request waits, and what it takes in the smallest batch."""
    alone_s, spread = min(service.service_s[0], mean_s), service.spread_factor
    queued = "time of a request at the peak rate − that of the smallest batch"
    parts = []
    for name, value, said, *used in (
        ("queue", mean_s - alone_s, queued, "rows", "rate"),
        ("service", alone_s, "time of the smallest batch", "rows"),
    ):
        waits = Estimate(value, value / spread, value * spread, "s", Source.MEASURED)
        record.note(f"latency_budget.{name}.value", waits, said, *used)
        parts.append(Part(name, waits, value / mean_s))
    return tuple(parts)


def _outcome(
    goal: str, limit_s: float, found: Estimate | None, holds: float | None, formula: str, *inputs: str
) -> serving.SloOutcome:
    """A goal, what is predicted for it, and how probably it holds; nothing where the rows cannot say."""
    if found is None:
        return serving.SloOutcome(goal, limit_s, None, None)
    at = f"slos.{goal}"
    record.note(f"{at}.predicted", found, formula, *inputs)
    said = "that a further run is no slower than still keeps the goal at this rate"
    record.note(f"{at}.holds_probability", holds, said, "rows", "goals")
    return serving.SloOutcome(goal, limit_s, found, found.value <= limit_s, holds_probability=holds)


def _latency_s(service: MeasuredService, rate_per_s: float, goal: str) -> Estimate | None:
    """A latency with what it would be if all times were as short or as long as a further run's may be.

    Where longer times could not carry the rate at all, the far end is that of a replica hardly carrying it.
    """
    if service.quantile(rate_per_s, goal) is None:
        return None

    def at(other: MeasuredService) -> float:
        carried = min(rate_per_s, max(NEAR_SATURATION * other.saturation_per_s, 0.0))
        value = other.quantile(rate_per_s if other is service else carried, goal)
        assert value is not None
        return float(np.max(value))

    return _between(service, at, "s")


def _between(service: MeasuredService, figure: Callable[[MeasuredService], float], unit: str) -> Estimate:
    """A figure of the rows, and what it is over the spread of a further run."""
    spread, middle = service.spread_factor, figure(service)
    ends = [figure(service.slowed(factor)) for factor in (1.0 / spread, spread)]
    return Estimate(middle, min(middle, *ends), max(middle, *ends), unit, Source.MEASURED)
