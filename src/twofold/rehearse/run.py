"""Runs of a service's pools on the twin: each pool is a world of its own, with its classes' requests.

The gate's beliefs are put off as a scenario says, else as far as the plan may be off.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from twofold.contracts.goals import SuccessGoal
from twofold.contracts.results import serving
from twofold.contracts.results.serving import ClassPlan, ServicePlan, TierPlan
from twofold.contracts.rows.trace import TRACE_BLOCK_TOKENS
from twofold.contracts.spec.scenario import Scenario
from twofold.core.errors import ValueRefusedError
from twofold.gating.build import (
    BuiltGate,
    GatedPool,
    GateScope,
    build_gate,
    limits_of,
    policies_on,
)
from twofold.inference.spreads import LONGEST_RATIO, sigma_of
from twofold.policy.gate import settings as gates
from twofold.rehearse.faults import BASE_VERSION, REPLICAS_MAX, WorldPool, faults_of, replica_groups
from twofold.rehearse.gate import pool_groups
from twofold.rehearse.pools import (
    PoolWorld,
    RehearsalTables,
    measured_pools,
    measured_world,
    pool_world,
    smaller_world,
)
from twofold.rehearse.tenants import DECIDED, RolloutTally, TenantTally
from twofold.rehearse.traffic import (
    DRAWN_BLOCK_TOKENS,
    DrawnTraffic,
    TracedTraffic,
    Traffic,
    TrafficMix,
    check_ends,
    check_measured,
    drawn_parts,
    scan_trace,
)
from twofold.twin.serving import fault_types, fleet_types
from twofold.twin.serving.fleet import simulate_fleet

ANSWER = "decode"  # the part of a request's time that beliefs are of, with a range of its own fit
LEAST_FRACTION = 0.3  # too high and too low, however narrow the plan's own range
FINISHED_COUNT = 5000  # requests of a class that figures are made of, where no horizon is given
WARM_UP_RATIO = 1.5  # of the longest class's e2e p95: by then those of the empty start are gone
WARM_UP_S_MIN = 20.0  # at least; where requests are many, what so many of the rarest class need:
WARM_UP_COUNT = 10_000
MEASURED_RATIO = 4.0  # of the warm-up that is measured at least
HORIZON_S_MAX = 6 * 3600.0  # where no horizon is given
USUAL_E2E_S = 10.0  # p95 of a whole answer, where the plan expects none
INSTANT_S = 1e-6  # after the last request of a trace: it still arrives
HALF = "a random half of its minutes"


@dataclass(frozen=True, slots=True)
class RehearsalSettings:
    """What is rehearsed: a scenario, a seed, and whose traffic is replaced."""

    scenario: Scenario = field(default_factory=Scenario)
    seed: int = 0
    traces: Mapping[str, Path] = field(default_factory=dict)  # by class; a `class` column wins
    known: tuple[str, ...] = ()  # all classes of the plan, which a trace may name
    only: str | None = None  # the one class that sends requests
    halved: bool = False  # of each trace a half, drawn anew for each seed
    finished_count: int = FINISHED_COUNT


@dataclass(frozen=True, slots=True)
class PoolTask:
    """One run of one pool; its world and its traffic are what another process needs."""

    service: ServicePlan
    classes: tuple[ClassPlan, ...]
    pool: PoolWorld
    world: fleet_types.FleetWorld
    gate: BuiltGate  # with true beliefs, as the world has it
    traffic: TrafficMix
    origins: Mapping[str, str]  # by class: where its requests come from
    notes: tuple[str, ...] = ()  # what to know of their traces
    policies: tuple[str, ...] = ()  # that are on, the spec's own among them


def pool_tasks(
    service: ServicePlan, settings: RehearsalSettings, tables: RehearsalTables
) -> tuple[PoolTask, ...]:
    """A task for each gate that somebody sends requests to: one for a pool, or for all as a scenario wants.

    Raises ValueRefusedError for a plan of measured rows, which it does not carry, and for pools that cannot
    be put together, TraceError for a trace that cannot be replayed.
    """
    tasks = []
    if (own := tables.policies.get(service.name)) is not None:
        scenario = settings.scenario
        joined = scenario.model_copy(update={"policies": scenario.policies.over(own)})
        settings = replace(settings, scenario=joined)
    asking = [each for each in service.classes if settings.only in (None, each.name)]
    for pools, rules in pool_groups(service, pools_of(service), settings.scenario.policies):
        served = {name for pool in pools for name in pool.classes}
        classes = tuple(each for each in asking if each.name in served)
        if classes:
            make = measured_world if pools[0].replica.tp is None else pool_world
            worlds = [make(service, pool, tables, settings.scenario.engine) for pool in pools]
            hosted = tables.overflows.get(service.name)
            tiers = tiers_of(service, classes, asking)
            task = _task(service, classes, worlds, rules, settings, hosted, tiers)
            tasks.append(_with_smaller(task, pools[0], settings.scenario, tables))
    return tuple(tasks)


def pools_of(service: ServicePlan) -> tuple[serving.Pool, ...]:
    """The pools of a plan; one that was written before plans had pools has one for all its classes.

    Measured services have one for each class.
    """
    if service.pools:
        return service.pools
    if service.replica.tp is None:
        return measured_pools(service)
    names = tuple(each.name for each in service.classes)
    rate = sum(each.rate_per_replica_per_s.value for each in service.classes)
    counts = service.replica_count, service.spare_count
    return (serving.Pool(names[0], names, service.model, service.replica, *counts, rate, 0.0),)


def _task(
    service: ServicePlan,
    classes: tuple[ClassPlan, ...],
    worlds: Sequence[PoolWorld],
    rules: gates.PoolRules | None,
    settings: RehearsalSettings,
    hosted: gates.OverflowSettings | None,
    tiers: tuple[TierPlan, ...],
) -> PoolTask:
    """The pools behind one gate, ready for the twin; the first one's replica stands for all."""
    first, scenario, fleet = worlds[0], settings.scenario, settings.scenario.fleet
    names = ("",) if rules is None else tuple(world.pool.name for world in worlds)  # the only one needs none
    parts, origins, end_s, notes = _traffic(service, classes, first, settings)
    horizon_s, warm_up_s = _span_s(classes, end_s, settings)
    traffic = TrafficMix(parts, horizon_s, settings.seed)
    check_ends(horizon_s, scenario.metrics.every_s, traffic)
    block_tokens, drawn = _block_tokens(parts), [each for each in parts if isinstance(each, DrawnTraffic)]
    pools = tuple(
        WorldPool(
            name,
            world.pool.classes,
            replica_groups(world.pool, service.zones, fleet, name),
            world.model.in_flight_limit,
        )
        for name, world in zip(names, worlds, strict=True)
    )
    # The gate remembers prefixes in the traffic's blocks, as many as a replica's cache holds.
    routes = gates.RoutingSettings(
        seed=settings.seed,
        prefix_block_tokens=block_tokens,
        prefix_blocks_per_replica_count=max(1, round(first.cache_tokens // block_tokens)),
        pools=rules,
    )
    start_s = service.cold_start_s.value if service.cold_start_s else first.model.warm_up_s
    gated = tuple(_gated(pool) for pool in pools)
    built = build_gate(scenario, GateScope(gated, classes, start_s, routes, first.beliefs, hosted, tiers))
    waited = any(each.is_waited_for for each in classes)
    timeout_s = SuccessGoal.TIMEOUT_S if waited else SuccessGoal.BULK_TIMEOUT_S
    world = fleet_types.FleetWorld(
        models={(name, ""): each.model for name, each in zip(names, worlds, strict=True)},
        replicas=tuple(group for pool in pools for group in pool.groups),
        gate=built.settings,
        beliefs=built.beliefs,
        classes=tuple(class_model(each, scenario) for each in classes),
        storage=fleet_types.Storage(fleet.storage_bytes_per_s or inf, fleet.peer_bytes_per_s or 0.0),
        faults=faults_of(scenario, pools, horizon_s, [each.name for each in tiers]),
        metrics_every_s=scenario.metrics.every_s,
        metrics_delay_s=scenario.metrics.delay_s,
        first_token_timeout_s=timeout_s,
        prefix_block_tokens=block_tokens,
        cached_prompts=tuple(prompt for part in drawn for prompt in part.model.shared_prompts),
        tiers=tuple(map(tier_model, tiers)),
        horizon_s=horizon_s,
        warm_up_s=warm_up_s,
        seed=settings.seed,
    )
    together = {
        name: sum(getattr(each.pool, name) for each in worlds) for name in ("replica_count", "spare_count")
    }
    named = " + ".join(each.pool.name for each in worlds)
    shown = replace(first, pool=replace(first.pool, name=named, **together))
    if fleet.ramp_w_per_min is not None:
        shown = replace(shown, ramp_w_per_s=fleet.ramp_w_per_min / 60.0)
    on = policies_on(scenario.policies)
    return PoolTask(service, classes, shown, world, built, traffic, origins, notes, on)


def _with_smaller(
    task: PoolTask, pool: serving.Pool, scenario: Scenario, tables: RehearsalTables
) -> PoolTask:
    """The same with the replicas that answer in need, spread over the zones of the others."""
    told = scenario.policies.smaller
    if told is None:
        return task
    if told.replicas > REPLICAS_MAX:
        what = f"{told.replicas:,} replicas that answer in need are more than a rehearsal takes"
        raise ValueRefusedError(what, hint=f"write `replicas: {REPLICAS_MAX:,}` or fewer")
    model = smaller_world(task.service, pool, tables, scenario.engine, told, task.pool).model
    zones = tuple(dict.fromkeys(group.order.zone for group in task.world.replicas))
    counts = Counter(zones[n % len(zones)] for n in range(told.replicas))
    groups = (
        fleet_types.ReplicaGroup(count, fleet_types.replica_order(zone, "", told.label, BASE_VERSION))
        for zone, count in counts.items()
    )
    models = {**task.world.models, ("", told.label): model}
    world = replace(task.world, models=models, replicas=(*task.world.replicas, *groups))
    return replace(task, world=world)


def tiers_of(
    service: ServicePlan, classes: Sequence[ClassPlan], asking: Sequence[ClassPlan]
) -> tuple[TierPlan, ...]:
    """The tiers before one gate of a service: of `asking` classes that pass them, it serves `classes`.

    Limits   live, one gate stands before all pools. Here each has its own, and of a tier's servers the part
             that its classes are of the peak, at least one: chance that would have evened out between pools
             does not, and of fewer servers than pools too many are counted.
    """
    own, whole = (sum(each.peak_per_s for each in some) for some in (classes, asking))
    return tuple(
        replace(each, replica_count=max(1, round(each.replica_count * own / max(whole, 1e-9))))
        for each in service.tiers
    )


def tier_model(planned: TierPlan) -> fleet_types.TierModel:
    """A tier's servers as the twin runs them."""
    ratio = planned.work_s_p95 / planned.work_s
    longest_s = LONGEST_RATIO * planned.work_s_p95
    return fleet_types.TierModel(planned.name, planned.work_s, sigma_of(ratio), longest_s, planned.cores)


def _gated(pool: WorldPool) -> GatedPool:
    zones = tuple(group.order.zone for group in pool.groups)
    return GatedPool(pool.name, pool.replica_count, zones, pool.in_flight_limit)


def _traffic(
    service: ServicePlan, classes: Sequence[ClassPlan], pool: PoolWorld, settings: RehearsalSettings
) -> tuple[tuple[Traffic, ...], dict[str, str], float | None, tuple[str, ...]]:
    """Traces of the user, which end; then the plan's own traces; then what is drawn."""
    known = settings.known or tuple(each.name for each in service.classes)
    kept = tuple(each.name for each in classes)
    longest, scenario, halved = pool.context_tokens, settings.scenario.traffic, settings.halved
    parts: list[Traffic] = []
    origins: dict[str, str] = {}
    end_s: float | None = None
    notes: list[str] = []
    for name, path in settings.traces.items():
        last_s, found, said = scan_trace(path, name, known, longest)
        notes += said
        sent = [each for each in kept if each in found]
        if sent:
            scale = scenario.scale_ratio
            parts.append(TracedTraffic(path, name, kept, known, scale, False, longest, halved))
            origins |= dict.fromkeys(sent, f"{path.name}, {HALF}" if halved else path.name)
            end_s = max(end_s or 0.0, last_s / scale / (2 if halved else 1) + INSTANT_S)
    for planned in [each for each in classes if each.name not in origins]:
        own = Path(planned.trace) if planned.trace else None
        if own is not None and own.is_file() and scenario.arrivals == "poisson":
            name, scale = planned.name, planned.trace_scale_ratio * scenario.scale_ratio
            parts.append(TracedTraffic(own, name, (name,), known, scale, True, longest, halved))
            origins[name] = f"{own.name}, {HALF if halved else 'as the plan'}"
    tokens = _block_tokens(parts)
    for planned in [each for each in classes if each.name not in origins]:
        stream = 1000 * (1 + [each.name for each in service.classes].index(planned.name))
        parts += drawn_parts(planned, settings.scenario, longest, tokens, stream)
        origins[planned.name] = f"drawn, {scenario.arrivals}"
    return tuple(parts), origins, end_s, tuple(notes)


def _block_tokens(parts: Iterable[Traffic]) -> int:
    traced = any(isinstance(part, TracedTraffic) for part in parts)
    return TRACE_BLOCK_TOKENS if traced else DRAWN_BLOCK_TOKENS


def _span_s(
    classes: Sequence[ClassPlan], end_s: float | None, settings: RehearsalSettings
) -> tuple[float, float]:
    """Until when requests arrive, and from when on they are in the figures.

    The scenario's; else until the end of the user's traces; else what figures of the rarest class need. A
    warm-up that the scenario names is taken as it stands; else it leaves most of what is known to end.
    """
    scenario = settings.scenario
    planned = [each.percentiles.get("e2e_p95") for each in classes]
    slowest_s = max(each.value if each else USUAL_E2E_S for each in planned)
    level = "peak_per_s" if scenario.traffic.level == "peak" else "rate_per_s"
    rarest = max(min(getattr(each, level) for each in classes) * scenario.traffic.scale_ratio, 1e-9)
    warm_up_s = max(min(WARM_UP_S_MIN, WARM_UP_COUNT / rarest), WARM_UP_RATIO * slowest_s)
    # Of requests that all come at once none is of the warm-up.
    ends_s, most_s = end_s, 0.0 if end_s == INSTANT_S else 0.1 * (end_s or inf)
    if scenario.horizon_s is not None:
        ends_s, most_s = scenario.horizon_s, 0.2 * scenario.horizon_s
    warm_up_s = min(warm_up_s, most_s) if scenario.warm_up_s is None else scenario.warm_up_s
    if ends_s is not None:
        check_measured(ends_s, warm_up_s, at_once=ends_s == INSTANT_S)
        return ends_s, warm_up_s
    measured_s = max(settings.finished_count / rarest, MEASURED_RATIO * warm_up_s)
    return warm_up_s + min(measured_s, HORIZON_S_MAX), warm_up_s


def class_model(planned: ClassPlan, scenario: Scenario) -> fleet_types.ClassModel:
    limits, clients = limits_of(planned), scenario.clients
    client = fleet_types.ClientModel(
        retry=fleet_types.Retry(clients.retry),
        attempts_max=clients.attempts,
        backoff_s=min(clients.backoff_s, 30.0),
        patience_s=clients.patience_s or inf,
        answer_patience_s=clients.answer_patience_s or inf,
        timeout_s=clients.timeout_s or inf,
    )
    return fleet_types.ClassModel(
        planned.name,
        client,
        output_limit_tokens=max(16, round(4 * (planned.output_tokens or 512))),
        ttft_s=limits.get("ttft"),
        tpot_s=limits.get("tpot"),
        e2e_s=limits.get("e2e"),
    )


# What a run came to, what its tenants got (None: nobody asks), and the p95 of what came while a release was
# tried, by class and metric (empty: nothing was released).
TalliedRun = tuple[fleet_types.FleetResult, TenantTally | None, Mapping[str, float]]


def tallied_run(
    world: fleet_types.FleetWorld,
    traffic: TrafficMix,
    belief_factor: float,
    tallied_from_s: float | None = None,
    record: Callable[[fleet_types.RequestRecord], None] | None = None,
) -> TalliedRun:
    """One run as plain data, which another process can send back: the same world gives the same result.

    Tenants are told apart from `tallied_from_s` on; the trial of a release begins with its offer.
    """
    tenants = None if tallied_from_s is None else TenantTally(tallied_from_s)
    offered = [fault.at_s for fault in world.faults if isinstance(fault, fault_types.Release)]
    rollout = RolloutTally(min(offered)) if offered else None
    told = [each for each in (tenants and tenants.record, rollout and rollout.record, record) if each]

    def tell_all(request: fleet_types.RequestRecord) -> None:
        for each in told:
            each(request)

    believed = replace(world, belief_factor=belief_factor)
    result = simulate_fleet(believed, traffic.arrivals(), tell_all if told else None)
    decided_s = [result.first_effects_s[name] for name in DECIDED if name in result.first_effects_s]
    return result, tenants, rollout.p95_s(min(decided_s, default=inf)) if rollout else {}


def belief_factors(scenario: Scenario, tasks: Sequence[PoolTask]) -> tuple[float, ...]:
    """Times the world's own times: perfect ones, then what is put off; perfect ones alone for an error of 0.

    Formula  1 − error and 1 + error where the scenario says it; else ±30 %, or, where that is wider,
             low / value and high / value of what the plan predicts a request to take, in any class
    Why      a plan's range is what its fit was off by on rows left out: beliefs of that fit are as far off.
    """
    error = scenario.beliefs.error_fraction
    if error is not None:
        return (1.0, 1.0 - error, 1.0 + error) if error else (1.0,)
    ratios = [1.0 - LEAST_FRACTION, 1.0 + LEAST_FRACTION]
    for planned in (each for task in tasks for each in task.classes):
        answers = [part.value for part in planned.latency_budget if part.name == ANSWER]
        for each in answers or planned.percentiles.values():
            if 0.0 < each.low <= each.value <= each.high:
                ratios += each.low / each.value, each.high / each.value
    return 1.0, min(ratios), max(ratios)
