"""The figures of one service on its chosen fleet, with ranges, bounds and reasons."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from twofold.answer import loads, serving_pools
from twofold.answer.calibrated import with_letters
from twofold.answer.context import Context, carbon, facility_energy, machine_of, price_used, price_warnings
from twofold.answer.hosted_overflow import overflow_notes
from twofold.answer.load_curves import latency_curves, weighed_fleets
from twofold.answer.quick_serve import read_rate_bytes_per_s
from twofold.answer.ranges import Drawn
from twofold.answer.rooflines import serving_roofline
from twofold.answer.runners_up import weighed
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool, models_of, success_of
from twofold.answer.serving_replica import (
    cold_start,
    exchanged_bytes,
    layout_text,
    memory_by_part,
    parts_of,
    replica_plan,
    taken_bytes,
)
from twofold.answer.tiers import binding, tier_warnings
from twofold.answer.uncertainty import flip_fraction, flip_warning
from twofold.contracts.goals import stated_goal
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Bound, Count, Loser, Machine, Part
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.core import record
from twofold.core.display import format_usd
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import DAY_S, YEAR_S
from twofold.inference.fleet import BUDGET, OF_TIER, LatencyBudget, warm_pool
from twofold.inference.replica import Replica, communication_bytes_per_token
from twofold.inference.search import PoolChoice
from twofold.inference.slo import RESOURCES, bottleneck, merged_class
from twofold.inference.steady import batch_limit
from twofold.perf.formats import peak_format
from twofold.perf.types import one

RUNNERS_UP = 3
SHARED_POOL = "one pool for"  # starts what a class says of its replicas where others use them too
SELDOM_FRACTION = 0.1  # of the draws: what a range leaves out on either side


def service_plan(choice: ServingChoice, context: Context) -> ServicePlan:
    """Re-evaluate the chosen fleet over the draws and say everything about it."""
    pools = tuple(serving_pools.drawn_pool(pool, choice, context) for pool in choice.fleet.pools)
    main = next(each for each in pools if each.pool is main_pool(choice.fleet, choice.loads))
    pool_of = {load.name: pool for pool in pools for load in pool.loads}
    limits = {load.name: serving_pools.carried_by(pool_of[load.name], load) for load in choice.loads}
    classes = _class_plans(choice, pool_of, limits, context)
    replica, fleet, ramp_s = main.pool.replica, choice.fleet, context.constants.get("traffic_ramp_s")
    memory = memory_by_part(replica, context.constants)
    read_rate = read_rate_bytes_per_s(context.catalog)
    start, start_parts = cold_start(replica, read_rate, context.draws, context.constants)
    power = serving_pools.mean_power(pools, choice, context)
    cost = serving_pools.yearly_cost(pools, choice, context)
    gains = _gains(main) if context.in_full else {}
    flips = _flips(main, choice, context)
    growth = sum(load.peak_per_s - load.mean_rate_per_s for load in main.loads if not load.is_batch)
    replicas, spare = (sum(getattr(pool.pool.count, name) for pool in pools) for name in ("total", "spare"))
    tiers = _tiers_of(choice, pool_of, limits)
    energy_j = facility_energy(power.times(YEAR_S).estimate("J", Source.ASSUMED), choice.offer.price, context)
    plan = ServicePlan(
        name=choice.entry.name,
        model=choice.variant.name,
        parameters=choice.model.parameters,
        quality_note=choice.variant.quality_note,
        machine=(machine := _machine(choice, context)),
        replica=_replica_plan(main, choice),
        classes=classes,
        replica_count=record.note("replica_count", replicas, "", "loaded", "spares"),
        spare_count=spare,
        spare_reason=_spare_reason(choice, context) if spare else "",
        zones=choice.entry.zones,
        regions=choice.entry.regions or ((choice.offer.price.region,) if choice.offer.price else ()),
        memory_bytes=taken_bytes(replica, context.constants),
        memory_parts=parts_of(memory, sum(each.value for each in memory.values())),
        memory_capacity_bytes=replica.cluster.device.memory_bytes,
        kv_bytes_per_token=one(replica.shape.kv_bytes_per_token(replica.kv_format)),
        kv_utilisation_fraction=one(main.pool.served.kv_fraction),
        cold_start_s=start,
        warm_pool_count=warm_pool(start.value, growth / ramp_s, main.pool.limit_per_s),
        output_tokens_per_j=serving_pools.tokens_per_j(pools, context),
        # Accelerators of a pool for each class over those of one for all; below 0 where pools save some.
        pooling_loss_fraction=(
            fleet.separate_accelerators / fleet.merged_accelerators - 1 if fleet.merged_accelerators else 0.0
        ),
        cost_usd_per_year=cost,
        energy_j_per_year=energy_j,
        carbon_gco2_per_year=carbon(energy_j, choice.offer.price, context),
        bounds=tuple(Bound(RESOURCES[name], max(gain, 0.0) / (1 + gain)) for name, gain in gains.items()),
        tried=choice.result.candidates,
        rejected=tuple(
            Count(" ".join(map(stated_goal, reason.split())), number)
            for reason, number in choice.result.refused.items()
            if number
        ),
        losers=(*choice.other_variants, *_losers(choice), *choice.left_out),
        flip_fraction=flips,
        warnings=(
            *choice.warnings,
            *_offer_warnings(choice, machine, flips, context, classes, limits),
            *tier_warnings(choice.entry, tiers),
        ),
        cold_start_parts=start_parts,
        network_bytes_per_token=one(communication_bytes_per_token(replica)),
        choices=weighed(pools, choice, cost, context) if context.in_full else (),
        pools=tuple(_pool_plan(pool, choice, context) for pool in pools),
        tiers=tiers,
        **(_pictured(pools, main, choice) if context.in_full else {}),
        **_of_decoding(main, gains, choice, context),
    )
    return with_letters(plan, choice.offer.accelerator.name, context.constants, choice.scope)


def _tiers_of(
    choice: ServingChoice, pools: Mapping[str, serving_pools.DrawnPool], limits: Mapping[str, Drawn]
) -> tuple[serving.TierPlan, ...]:
    """Its CPU tiers, that one marked which binds before the class that replicas hold least of its peak."""
    held = {name: limit.middle * pools[name].pool.count.needed for name, limit in limits.items()}
    return binding(choice.searched.tiers, min(held[load.name] / load.peak_per_s for load in choice.loads))


def _pictured(
    pools: tuple[serving_pools.DrawnPool, ...], main: serving_pools.DrawnPool, choice: ServingChoice
) -> dict[str, Any]:
    """What only pictures and data show."""
    return {
        "latency_curves": latency_curves(pools),
        "weighed": weighed_fleets(choice),
        "roofline": serving_roofline(main),
    }


def _gains(main: serving_pools.DrawnPool) -> dict[str, float]:
    """What more of each resource gains the busiest class of a pool."""
    return bottleneck(main.pool.replica, max(main.loads, key=lambda each: each.traffic.rate_per_s).traffic)


def _machine(choice: ServingChoice, context: Context) -> Machine:
    """The nodes that a service stands on: whole ones as leased, what is held all year at its own price."""
    held = choice.held
    if held is None:
        return machine_of(choice.offer, choice.fleet.accelerators, context)
    size = choice.offer.node.accelerator_count
    machine = machine_of(choice.offer, (held.unit_count - held.base_count) * size, context)
    return replace(
        machine,
        node_count=held.unit_count,
        accelerator_count=held.unit_count * size,
        held_fraction=held.mean_fraction,
        base_price=price_used(held.base, context, held.base_count * size, part="base_")
        if held.base
        else None,
        base_node_count=held.base_count,
        base_answered_fraction=held.base_answered_fraction,
    )


def _pool_plan(pool: serving_pools.DrawnPool, choice: ServingChoice, context: Context) -> serving.Pool:
    chosen, replica = pool.pool, _replica_plan(pool, choice)
    return serving.Pool(
        name=chosen.classes[0],
        classes=chosen.classes,
        model=chosen.variant,
        replica=replica,
        replica_count=chosen.count.total,
        spare_count=chosen.count.spare,
        rate_per_replica_per_s=chosen.limit_per_s,
        virtual_overhead_fraction=choice.offer.overhead_fraction,
        repository=_repository(chosen.variant, replica.weights_format or "", choice, context),
    )


def _repository(model: str, weights_format: str, choice: ServingChoice, context: Context) -> str:
    """What the spec calls a model of it; where several have one shape, that published as it is served."""
    references = choice.entry.model, *(each.model for each in choice.entry.variants)
    known = zip(models_of(choice.entry, context), references, strict=True)
    fits = {shape.native_format: each.repository for (shape, _), each in known if shape.name == model}
    return fits.get(weights_format, next(iter(fits.values()), ""))


def _losers(choice: ServingChoice) -> Iterator[Loser]:
    """The other machines, nearest first: those that are merely dearer, then by how far they miss."""
    order, leased = {"dearer": 0, "slo": 1, "memory": 2}, choice.held
    for rival in choice.rivals:
        assert leased
        usd = leased.usd_per_year
        more = f"{100 * (rival.usd_per_year / usd - 1):+,.0f} %" if usd else "+0 %"
        yield Loser(rival.fleet.pools[0].offer, f"{more}, {format_usd(rival.usd_per_year)}/y as leased")
    said = {rival.fleet.pools[0].offer for rival in choice.rivals} | {choice.fleet.pools[0].offer}
    ranked = sorted(
        (each for each in choice.result.losers if not leased or each.offer not in said),
        key=lambda each: (order.get(each.reason, 3), each.usd_per_h or 0.0, each.miss_ratio),
    )
    yield from (Loser(each.offer, each.detail) for each in ranked)


def _offer_warnings(
    choice: ServingChoice,
    machine: Machine,
    flips: float,
    context: Context,
    classes: tuple[ClassPlan, ...],
    limits: Mapping[str, Drawn],
) -> tuple[str, ...]:
    """What to know of the offer, of those that lost narrowly, of its edges and of a hosted API beside it."""
    told = price_warnings(choice.offer, context, choice.entry.regions, machine)
    narrowly = flip_warning(flips, "another machine is cheaper")
    return (*told, *narrowly, *_edge_warnings(limits), *overflow_notes(choice.entry, classes))


def _edge_warnings(limits: Mapping[str, Drawn]) -> Iterator[str]:
    """Which classes sit at the edge of what their replicas can do: the ends of their ranges are cut there."""
    most = f"costs count at most {1 / serving_pools.LEAST_CARRIED_FRACTION:.0f} times the replicas"
    for name, limit in limits.items():
        if (share := serving_pools.missing_fraction(limit)) > SELDOM_FRACTION:
            hardly = f"in {share:.0%} of the draws a replica hardly meets its goals at any rate"
            yield f"`{name}` is at the edge: {hardly}; {most}"


def _class_plans(
    choice: ServingChoice,
    pools: Mapping[str, serving_pools.DrawnPool],
    limits: Mapping[str, Drawn],
    context: Context,
) -> tuple[ClassPlan, ...]:
    """Every class, by what is known of its pool and its limit."""
    return tuple(
        _class_plan(load, pools[load.name], limits[load.name], choice, context) for load in choice.loads
    )


def _class_plan(
    load: ClassLoad, pool: serving_pools.DrawnPool, limit: Drawn, choice: ServingChoice, context: Context
) -> ClassPlan:
    with record.noting(f"classes.{load.name}"):
        return _class_figures(load, pool, limit, choice, context)


def _class_figures(
    load: ClassLoad, pool: serving_pools.DrawnPool, limit: Drawn, choice: ServingChoice, context: Context
) -> ClassPlan:
    found = pool.load(load)
    goals = load.traffic.slo
    percentiles = found.percentiles()
    replicas = pool.pool.count.needed
    holds = limit.times(float(replicas))
    lengths, traffic = load.traffic.lengths, choice.entry.classes[load.name].traffic
    outcomes = []
    for metric, limit_s in goals.latencies_s.items():
        figure = found.latency(*metric.split("_"))
        outcomes.append(_outcome(metric, limit_s, figure, "at the peak rate", metric))
    if goals.finish_within_s is not None:
        done = holds.inverse(load.mean_rate_per_s * DAY_S)
        said, used = "a day's requests / what the replicas carry", ("work", "holds_until_per_s")
        outcomes.append(_outcome("finish_within", goals.finish_within_s, done, said, *used))
    # Where a mean request's time goes; ranges follow the end-to-end figure's.
    tiers = tuple((each.name, each.mean_s) for each in choice.searched.tiers) if goals.before else ()
    parts = LatencyBudget.of(found.middle, one(lengths.output_tokens), tiers=tiers)
    whole = percentiles["e2e_p50"]
    low, high = whole.low / whole.value, whole.high / whole.value
    budget = tuple(
        Part(name, Estimate(value, value * low, value * high, "s"), value / parts.total_s)
        for name, value in parts.by_name().items()
    )
    for part in budget:
        follows = BUDGET.get(part.name, (OF_TIER, "tiers"))
        record.note(f"latency_budget.{part.name}.value", part.value, *follows, "e2e_p50")
    said, used = "the largest rate on the load curve that meets every goal", ("lengths", "goals")
    carried = limit.estimate("1/s")
    record.note("rate_per_replica_per_s", carried, said, "decode_step_s", "prefill_step_s", *used)
    kept = holds.estimate("1/s")
    record.note(
        "holds_until_per_s", kept, "replicas × rate per replica", "replicas", "rate_per_replica_per_s"
    )
    return ClassPlan(
        name=load.name,
        rate_per_s=load.mean_rate_per_s,
        peak_per_s=load.peak_per_s,
        input_tokens=one(lengths.input_tokens),
        output_tokens=one(lengths.output_tokens),
        percentiles=percentiles,
        slos=tuple(outcomes),
        replica_count=replicas,
        rate_per_replica_per_s=carried,
        holds_until_per_s=kept,
        knee_per_s=pool.pool.knee_per_s * replicas * pool.share_of(load),
        usd_per_1k_output_tokens=serving_pools.usd_per_1k(load, pool, choice, context),
        latency_budget=budget,
        replica_text=pool_text(pool.pool, choice),
        input_spread_ratio=one(lengths.input_spread),
        output_spread_ratio=one(lengths.output_spread),
        shared_prefix_fraction=traffic.shared_prefix_fraction,
        profile=traffic.profile,
        trace=str(traffic.trace) if traffic.trace else None,
        trace_scale_ratio=traffic.scale_ratio,
        success=success_of(load, pool.loads, choice.entry, percentiles),
        outlasts_zone=load.traffic.outlasts_zone,
    )


def _outcome(metric: str, limit_s: float, figure: Drawn, formula: str, *inputs: str) -> serving.SloOutcome:
    """A goal, what is predicted for it, and in what share of the draws it holds."""
    at, predicted, holds = f"slos.{metric}", figure.estimate("s"), figure.probability_within(limit_s)
    record.note(f"{at}.predicted", predicted, formula, *inputs)
    said = "share of the draws, stretched as the range is, that are within the goal"
    record.note(f"{at}.holds_probability", holds, said, f"{at}.predicted", "goals")
    met = predicted.value <= limit_s
    return serving.SloOutcome(metric, limit_s, predicted, met, holds_probability=holds)


def _of_decoding(
    main: serving_pools.DrawnPool, gains: Mapping[str, float], choice: ServingChoice, context: Context
) -> dict[str, Any]:
    """Figures of the step that only decodes, of the replicas that carry the peak.

    Formula  peak ratio: max(bytes / bandwidth, FLOPs / peak) / step; bytes: weights and caches of the batch,
             once; the peak is that of the format that the products run in
    Why      One of two memory limits holds the batch: reading it in time, or keeping it (R-167).
    """
    replica, served = main.pool.replica, main.pool.served
    device = replica.cluster.device
    batch, ranks = one(served.batch_sequences), one(replica.accelerator_count)
    # What a sequence that decodes holds on average, of all the classes that the pool was sized for.
    held = one(merged_class([load.traffic for load in main.loads]).lengths.mean_context_tokens)
    weights = one(replica.shape.weights_bytes(replica.weights_format).total_bytes)
    cache = batch * held * one(replica.shape.kv_bytes_per_token(replica.kv_format))
    bytes_s = (weights + cache) / ranks / one(device.memory_bytes_per_s)
    runs_in = device.compute_format(replica.weights_format, replica.activation_format).format
    peak = one(device.peak_flops_per_s[peak_format(runs_in)])
    flops_s = 2 * choice.model.parameters_active * batch / ranks / peak
    ideal = min(max(bytes_s, flops_s) / one(served.step_s), 1.0)
    step = loads.decode_step(replica, served.batch_sequences, held)
    rate = one(served.output_tokens_per_s) / ranks
    full = one(served.kv_fraction) > 0.9
    draws = {name: np.ravel(context.draws[name]) for name in ("traffic", "memory_bandwidth")}
    each = Drawn(rate, rate * draws["traffic"]).estimate("tok/s")
    reached = Drawn(ideal, ideal * draws["memory_bandwidth"]).within(most=1.0).estimate("ratio")
    said = "max(bytes / bandwidth, FLOPs / peak) / decode step"
    used = "layout", "bandwidth", "parameters_active", "peak", "decode_step_s"
    name = "output_tokens_per_s_per_accelerator"
    return {
        name: record.note(
            name, each, "a replica's output at peak / accelerators", "carried", "lengths", "layout"
        ),
        "peak_ratio": record.note("peak_ratio", reached, said, *used),
        "communication_exposed_fraction": one(step.communication_s) / one(step.total_s),
        "batch_limit": _batch_limit(full, gains) if gains else None,
        "all_to_all_bytes_per_token": _all_to_all_bytes(replica),
    }


def _batch_limit(full: bool, gains: Mapping[str, float]) -> str:
    return "capacity" if full or gains["capacity"] > gains["bandwidth"] else "bandwidth"


def _replica_plan(pool: serving_pools.DrawnPool, choice: ServingChoice) -> serving.Replica:
    replica = pool.pool.replica
    limit = batch_limit(replica, pool.loads[0].traffic.lengths)
    return replica_plan(replica, choice.entry.engine, int(one(limit)), _replica_text(replica))


def _replica_text(replica: Replica) -> str:
    """`TP 4 · fp8 weights · bf16 KV · chunks of 8192`."""
    return layout_text(replica, "one accelerator", f"chunks of {one(replica.chunk_tokens):.0f}")


def pool_text(pool: PoolChoice, choice: ServingChoice) -> str:
    """The replicas of a pool: their layout, their model where pools differ in it, and who else they serve.

    The same for all classes of a pool, so that a sum over classes can count each pool once.
    """
    other = [f"model {pool.variant}"] if pool.variant != choice.variant.name else []
    shared = [f"{SHARED_POOL} {' and '.join(pool.classes)}"] if len(pool.classes) > 1 else []
    return " · ".join([_replica_text(pool.replica), *other, *shared])


def _spare_reason(choice: ServingChoice, context: Context) -> str:
    """What asks for the spares: the price of an hour down, or the availability; and the zones."""
    zones, availability = choice.entry.zones, choice.entry.availability_fraction
    kept = f"{100 * availability:.6g} % available"
    asked = {each.name: each.availability_fraction for each in context.spec.services}
    usd = context.spec.supply.economics.downtime_usd_per_h
    if usd and availability > asked.get(choice.entry.name, availability):
        kept += f", which costs least at {format_usd(usd)} an hour down"
    if zones == 1:
        return kept
    waits = [load.name for load in choice.loads if not load.traffic.outlasts_zone]
    but = f"; {' and '.join(waits)} may wait for it" if waits else ""
    return f"{kept}, and one of {zones} zones may fail{but}"


def _all_to_all_bytes(replica: Replica) -> float:
    """Dispatch and combine of one token over all expert layers, the part that stays on the rank left out."""
    if one(replica.ep) <= one(replica.tp):
        return 0.0
    return one(exchanged_bytes(replica)) / one(replica.tp) * (1 - 1 / one(replica.ep))


def _flips(main: serving_pools.DrawnPool, choice: ServingChoice, context: Context) -> float:
    """In what part of the draws the best fleet of another machine is cheaper."""
    if choice.held is None or choice.entry.on:
        return 0.0
    rivals = choice.rivals[:RUNNERS_UP]
    largest = [max(each.fleet.pools, key=lambda pool: pool.accelerators) for each in rivals]
    costs = [
        each.usd_per_year * serving_pools.relative_need(serving_pools.drawn_pool(pool, choice, context))
        for each, pool in zip(rivals, largest, strict=True)
    ]
    own = choice.held.usd_per_year * serving_pools.relative_need(main)
    return flip_fraction(own, np.stack(costs, axis=1)) if costs else 0.0
