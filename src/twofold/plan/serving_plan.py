"""The figures of one service on its chosen fleet, with ranges, bounds and reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twofold.contracts import Bound, ClassPlan, Count, Loser, Machine, Part, ServicePlan, SloOutcome
from twofold.contracts import Replica as ReplicaPlan
from twofold.core import Estimate, Source
from twofold.inference import (
    Capacity,
    Lengths,
    PoolChoice,
    Replica,
    SearchResult,
    Served,
    at_batch,
    batch_limit,
    bottleneck,
    capacity,
    cold_start_s,
    communication_bytes_per_token,
    fleet_cost,
    for_class,
    iteration_s,
    kv_bytes_per_token,
    latency_budget,
    max_throughput,
    open_loop,
    rate_limit,
    warm_pool,
    weights_bytes,
)
from twofold.perf import bytes_per_weight
from twofold.plan.context import Context, price_used, price_warnings
from twofold.plan.facility import carbon, facility_energy
from twofold.plan.ranges import Drawn, drawn, drawn_cluster, drawn_engine, serving_spread
from twofold.plan.serving_choice import ClassLoad, ServingChoice
from twofold.plan.uncertainty import Draws, Spread, flip_fraction

YEAR_S, HOUR_S, DAY_S = 8760 * 3600.0, 3600.0, 86400.0
QUANTILES = ("p50", "p95", "p99")
METRICS = ("ttft", "tpot", "e2e")
RESOURCES = {
    "bandwidth": "memory bandwidth",
    "compute": "compute",
    "capacity": "memory capacity",
    "link": "link",
    "host": "host",
}
WORST_FACTOR = (
    20.0  # a draw in which a replica saturates waits without end: shown as so many times the middle
)
FLIPS_FRACTION = 0.2
RUNNERS_UP = 3


@dataclass(frozen=True, slots=True)
class DrawnPool:
    """A pool of the fleet with its replica under every draw."""

    pool: PoolChoice
    loads: tuple[ClassLoad, ...]
    under_draws: Replica

    @property
    def share_per_s(self) -> float:
        """Requests/s that one of the needed replicas takes at peak."""
        return self.pool.peak_per_s / max(self.pool.count.needed, 1)


def service_plan(choice: ServingChoice, context: Context) -> ServicePlan:
    """Re-evaluate the chosen fleet over the draws and say everything about it."""
    pools = tuple(drawn_pool(pool, choice, context.draws) for pool in choice.fleet.pools)
    main = max(pools, key=lambda each: (not each.loads[0].is_batch, each.pool.accelerators))
    classes = tuple(_class_plan(load, _pool_of(load, pools), choice, context) for load in choice.loads)
    replica = main.pool.replica
    held = capacity(replica)
    start = _cold_start(main, context)
    power = _power(pools, context)
    cost = _yearly_cost(pools, choice, context)
    gains = _bounds(main)
    flips = _flips(main, choice, context)
    count = sum(pool.pool.count.total for pool in pools)
    energy_j = facility_energy(power.times(YEAR_S).estimate("J", Source.ASSUMED), choice.offer.price, context)
    return ServicePlan(
        name=choice.entry.name,
        model=choice.variant.name,
        parameters=choice.model.parameters,
        quality_note=choice.variant.quality_note,
        machine=_machine(choice, context),
        replica=_replica_plan(main.pool, choice),
        classes=classes,
        replica_count=count,
        spare_count=sum(pool.pool.count.spare for pool in pools),
        spare_reason=_spare_reason(choice),
        zones=choice.entry.zones,
        regions=choice.entry.regions or ((choice.offer.price.region,) if choice.offer.price else ()),
        memory_bytes=_memory(held),
        memory_parts=_memory_parts(held),
        memory_capacity_bytes=replica.cluster.device.memory_bytes,
        kv_bytes_per_token=_one(kv_bytes_per_token(replica.shape, replica.kv_format)),
        kv_utilisation_fraction=_one(main.pool.served.kv_fraction),
        batch_limit=_batch_limit(main, gains),
        cold_start_s=sum_of(start),
        warm_pool_count=_warm_pool(main, start, context),
        output_tokens_per_s_per_accelerator=_token_rate(main, context),
        output_tokens_per_j=_tokens_per_j(pools, power),
        peak_ratio=_peak_ratio(main, context),
        communication_exposed_fraction=_communication_fraction(main),
        pooling_loss_fraction=_pooling_loss(choice),
        cost_usd_per_year=cost,
        energy_j_per_year=energy_j,
        carbon_gco2_per_year=carbon(energy_j, choice.offer.price, context),
        bounds=tuple(Bound(RESOURCES[name], max(gain, 0.0) / (1 + gain)) for name, gain in gains.items()),
        tried=choice.result.candidates,
        rejected=tuple(Count(reason, number) for reason, number in choice.result.refused.items() if number),
        losers=(*_losers(choice.result), *choice.left_out),
        flip_fraction=flips,
        warnings=(*choice.warnings, *price_warnings(choice.offer, context), *_flip_warning(flips)),
        cold_start_parts=start,
        all_to_all_bytes_per_token=_one(communication_bytes_per_token(replica))
        if _one(replica.ep) > 1
        else 0.0,
    )


def _losers(result: SearchResult) -> tuple[Loser, ...]:
    """The other machines, nearest first: those that are merely dearer, then by how far they miss."""
    order = {"dearer": 0, "slo": 1, "memory": 2}
    ranked = sorted(
        result.losers, key=lambda each: (order.get(each.reason, 3), each.usd_per_h or 0.0, each.miss_ratio)
    )
    return tuple(Loser(each.offer, each.detail) for each in ranked)


def drawn_pool(pool: PoolChoice, choice: ServingChoice, draws: Draws) -> DrawnPool:
    """A pool with the classes it serves and its replica under every draw."""
    loads = tuple(load for load in choice.loads if load.name in pool.classes)
    return DrawnPool(pool, loads, drawn_replica(pool.replica, draws))


def drawn_replica(replica: Replica, draws: Draws) -> Replica:
    """The replica with a leading axis of draws on hardware and software."""
    return replace(
        replica,
        cluster=drawn_cluster(replica.cluster, draws),
        engine=drawn_engine(replica.engine, draws),
    )


def _pool_of(load: ClassLoad, pools: tuple[DrawnPool, ...]) -> DrawnPool:
    return next(pool for pool in pools if load.name in pool.pool.classes)


def served_by(pool: DrawnPool, load: ClassLoad, replica: Replica) -> Served:
    """One class on a replica at its share of the peak; where classes share a pool, in their common batch."""
    own = for_class(replica, load.traffic)
    if load.is_batch:
        return max_throughput(own, load.traffic.lengths)
    if len(pool.loads) == 1:
        return open_loop(own, load.traffic.lengths, pool.share_per_s)
    return at_batch(own, load.traffic.lengths, _one(pool.pool.served.batch_sequences) + 1.0)


def _class_plan(load: ClassLoad, pool: DrawnPool, choice: ServingChoice, context: Context) -> ClassPlan:
    middle, under = (served_by(pool, load, each) for each in (pool.pool.replica, pool.under_draws))
    percentiles = _percentiles(middle, under, choice, context)
    limit = _rate_limit(pool, load, choice, context)
    replicas = pool.pool.count.needed
    holds = limit.times(float(replicas))
    budget = _budget(middle, load, percentiles)
    return ClassPlan(
        name=load.name,
        rate_per_s=load.mean_rate_per_s,
        peak_per_s=load.peak_per_s,
        input_tokens=_one(load.traffic.lengths.input_tokens),
        output_tokens=_one(load.traffic.lengths.output_tokens),
        percentiles=percentiles,
        slos=_slos(load, percentiles, holds),
        replica_count=replicas,
        rate_per_replica_per_s=limit.estimate("1/s"),
        holds_until_per_s=holds.estimate("1/s"),
        knee_per_s=pool.pool.knee_per_s * replicas,
        usd_per_1k_output_tokens=_usd_per_1k(load, pool, choice, context),
        latency_budget=budget,
        replica_text=layout_text(pool.pool.replica),
    )


def _percentiles(
    middle: Served, under: Served, choice: ServingChoice, context: Context
) -> dict[str, Estimate]:
    """TTFT, TPOT and end to end: median, p95 and p99, each with its range."""
    found = {}
    for metric in METRICS:
        spread = spread_of(choice, metric, context)
        held, drawn_latency = getattr(middle, metric), getattr(under, metric)
        for which in QUANTILES:
            value, samples = (getattr(each, f"{which}_s") for each in (held, drawn_latency))
            found[f"{metric}_{which}"] = figure(value, samples, spread).estimate("s")
    return found


def spread_of(choice: ServingChoice, metric: str, context: Context) -> Spread | None:
    """How far left-out measurements lay; end to end is mostly decoding, so that TPOT's holds there."""
    asked = "tpot" if metric == "e2e" else metric
    return serving_spread(context.constants, choice.model, asked, "open")


def figure(middle: object, samples: object, spread: Spread | None) -> Drawn:
    """A figure whose samples may be infinite where a replica saturates."""
    value = float(np.max(np.asarray(middle, float)))
    raw: NDArray[np.float64] = np.nan_to_num(
        np.ravel(np.asarray(samples, float)), nan=value * WORST_FACTOR, posinf=value * WORST_FACTOR
    )
    return drawn(value, np.minimum(raw, value * WORST_FACTOR), spread)


def _rate_limit(pool: DrawnPool, load: ClassLoad, choice: ServingChoice, context: Context) -> Drawn:
    """Requests/s of one replica that still meet the goals of all that share it."""
    if load.is_batch:
        under = served_by(pool, load, pool.under_draws).requests_per_s
    else:
        under = rate_limit(pool.under_draws, load.traffic).requests_per_s
    rates = np.ravel(np.asarray(under, float))
    share = load.traffic.rate_per_s / sum(each.traffic.rate_per_s for each in pool.loads)
    middle = pool.pool.limit_per_s * share
    ratios = np.maximum(rates / max(float(np.median(rates)), 1e-30), 1e-3)
    return drawn(middle, middle * ratios, spread_of(choice, "output", context))


def _slos(load: ClassLoad, percentiles: Mapping[str, Estimate], holds: Drawn) -> tuple[SloOutcome, ...]:
    outcomes = []
    for name, limit_s in load.traffic.slo.targets().items():
        metric = name.replace("_s_", "_")
        predicted = percentiles[metric]
        outcomes.append(SloOutcome(metric, limit_s, predicted, predicted.value <= limit_s))
    window_s = load.traffic.slo.finish_within_s
    if window_s is not None:
        done = holds.inverse(load.mean_rate_per_s * DAY_S)
        outcomes.append(SloOutcome("finish_within", window_s, done.estimate("s"), done.middle <= window_s))
    return tuple(outcomes)


def _budget(served: Served, load: ClassLoad, percentiles: Mapping[str, Estimate]) -> tuple[Part, ...]:
    """Where a mean request's time goes; ranges follow the end-to-end figure's."""
    parts = latency_budget(served, _one(load.traffic.lengths.output_tokens))
    named = {
        "edge": parts.edge_s,
        "gateway": parts.gateway_s,
        "queue": parts.queue_s,
        "prefill": parts.prefill_s,
        "decode": parts.decode_s,
    }
    whole = percentiles["e2e_p50"]
    low, high = whole.low / whole.value, whole.high / whole.value
    return tuple(
        Part(name, Estimate(value, value * low, value * high, "s"), value / parts.total_s)
        for name, value in named.items()
    )


def _usd_per_1k(load: ClassLoad, pool: DrawnPool, choice: ServingChoice, context: Context) -> Estimate | None:
    """Money of the class's share of its pool, over the tokens that leave it on a mean day."""
    hourly = _hourly_cost(pool, choice, context)
    if hourly is None:
        return None
    weights = {each.name: each.mean_rate_per_s * _tokens(each) for each in pool.loads}
    share = weights[load.name] / sum(weights.values())
    tokens_per_h = load.mean_rate_per_s * _one(load.traffic.lengths.output_tokens) * HOUR_S
    return hourly.times(share / tokens_per_h * 1e3).estimate("USD", Source.FITTED)


def _tokens(load: ClassLoad) -> float:
    return _one(load.traffic.lengths.input_tokens) + _one(load.traffic.lengths.output_tokens)


def _hourly_cost(pool: DrawnPool, choice: ServingChoice, context: Context) -> Drawn | None:
    """USD/h of a pool with its spares, averaged over the day: on demand, a batch pool rests after its window.

    Draws: dearer machines, more traffic, and replicas that carry less than thought.
    """
    if pool.pool.usd_per_h is None or choice.offer.price is None:
        return None
    window_s = max((load.traffic.slo.finish_within_s or DAY_S) for load in pool.loads)
    rests = choice.offer.price.term in ("on_demand", "spot") and all(load.is_batch for load in pool.loads)
    hours = min(window_s, DAY_S) / DAY_S if rests else 1.0
    middle = pool.pool.usd_per_h * hours
    limit = _rate_limit(pool, pool.loads[0], choice, context)
    carried = np.ravel(context.draws["traffic"]) * limit.middle / limit.samples
    # Half of a surprise is absorbed: fleets are sized to 90 % of what they carry, and spares help.
    return Drawn(middle, middle * np.ravel(context.draws["price"]) * np.sqrt(carried))


def _yearly_cost(pools: tuple[DrawnPool, ...], choice: ServingChoice, context: Context) -> Estimate | None:
    hourly = [_hourly_cost(pool, choice, context) for pool in pools]
    known = [each for each in hourly if each is not None]
    if len(known) < len(hourly):
        return None
    total = Drawn(sum(each.middle for each in known), np.sum([each.samples for each in known], axis=0))
    return total.times(YEAR_S / HOUR_S).estimate("USD")


def _power(pools: tuple[DrawnPool, ...], context: Context) -> Drawn:
    """Watts of all accelerators at the mean load."""
    total = 0.0
    for pool in pools:
        rate = sum(load.mean_rate_per_s for load in pool.loads)
        total += fleet_cost(pool.pool.replica, pool.pool.served, pool.pool.count, None, rate).power_w
    return Drawn(total, total * np.ravel(context.draws["power"]))


def _tokens_per_j(pools: tuple[DrawnPool, ...], power: Drawn) -> Estimate:
    tokens = sum(
        load.mean_rate_per_s * _one(load.traffic.lengths.output_tokens)
        for pool in pools
        for load in pool.loads
    )
    return power.inverse(tokens).estimate("tok/J", Source.ASSUMED)


def _token_rate(main: DrawnPool, context: Context) -> Estimate:
    """Output tokens/s per accelerator of the replicas that carry the peak."""
    rate = _one(main.pool.served.output_tokens_per_s) / _one(main.pool.replica.accelerator_count)
    traffic = np.ravel(context.draws["traffic"])
    return Drawn(rate, rate * traffic).estimate("tok/s")


def _machine(choice: ServingChoice, context: Context) -> Machine:
    node, used = choice.offer.node, choice.fleet.accelerators
    return Machine(
        accelerator=choice.offer.accelerator.name,
        node=node.name,
        node_count=-(-used // node.accelerator_count),
        accelerators_per_node=node.accelerator_count,
        accelerator_count=used,
        fabric=node.fabric,
        price=price_used(choice.offer, context),
    )


def _replica_plan(pool: PoolChoice, choice: ServingChoice) -> ReplicaPlan:
    replica = pool.replica
    limit = batch_limit(replica, choice.loads[0].traffic.lengths)
    return ReplicaPlan(
        accelerator_count=round(_one(replica.accelerator_count)),
        tp=round(_one(replica.tp)),
        pp=round(_one(replica.pp)),
        ep=round(_one(replica.ep)),
        dp=round(_one(replica.dp)),
        weights_format=replica.weights_format,
        kv_format=replica.kv_format,
        engine=choice.entry.engine,
        max_batch=int(_one(limit)),
        chunk_tokens=round(_one(replica.chunk_tokens)),
        text=layout_text(replica),
    )


def layout_text(replica: Replica) -> str:
    """A replica on one line: `TP 4 · fp8 weights · bf16 KV · chunks of 8192`."""
    sizes = {"TP": replica.tp, "PP": replica.pp, "EP": replica.ep, "DP": replica.dp}
    shown = [f"{name} {_one(size):.0f}" for name, size in sizes.items() if _one(size) > 1] or [
        "one accelerator"
    ]
    formats = f"{replica.weights_format} weights · {replica.kv_format} KV"
    return " · ".join([*shown, formats, f"chunks of {_one(replica.chunk_tokens):.0f}"])


def _spare_reason(choice: ServingChoice) -> str:
    zones, availability = choice.entry.zones, choice.entry.availability_fraction
    if not sum(pool.count.spare for pool in choice.fleet.pools):
        return ""
    return f"{availability:.3%} available" + (f", and one of {zones} zones may fail" if zones > 1 else "")


def _memory(held: Capacity) -> Estimate:
    used = (
        _one(held.weights_bytes) + _one(held.buffers_bytes) + _one(held.adapter_bytes) + _one(held.kv_bytes)
    )
    return Estimate(used, used, used, "B", Source.FITTED)


def _memory_parts(held: Capacity) -> tuple[Part, ...]:
    parts = {
        "weights": _one(held.weights_bytes),
        "buffers": _one(held.buffers_bytes),
        "adapters": _one(held.adapter_bytes),
        "KV cache": _one(held.kv_bytes),
    }
    total = sum(parts.values())
    return tuple(
        Part(name, Estimate(value, value, value, "B", Source.FITTED), value / total)
        for name, value in parts.items()
        if value
    )


def _bounds(main: DrawnPool) -> dict[str, float]:
    """What 20 % more of each resource adds to the rate within the goals, most first."""
    load = max(main.loads, key=lambda each: each.traffic.rate_per_s)
    return bottleneck(main.pool.replica, load.traffic)


def _batch_limit(main: DrawnPool, gains: Mapping[str, float]) -> str:
    """Which of the two memory limits holds the batch: reading it in time, or keeping it (R-167)."""
    full = _one(main.pool.served.kv_fraction) > 0.9
    return "capacity" if full or gains["capacity"] > gains["bandwidth"] else "bandwidth"


def _cold_start(main: DrawnPool, context: Context) -> tuple[Part, ...]:
    """Seconds to load the weights and to warm up."""
    rate = context.constants.get("weights_load_bytes_per_s")
    replica = main.pool.replica
    load_s = _one(weights_bytes(replica.shape, replica.weights_format).total_bytes) / rate
    total_s = _one(cold_start_s(replica, rate))
    samples = load_s / np.ravel(context.draws["storage"])
    loading = Drawn(load_s, samples).estimate("s", Source.ASSUMED)
    warming = Drawn(total_s - load_s, (total_s - load_s) / np.ravel(context.draws["host"])).estimate(
        "s", Source.ASSUMED
    )
    return (Part("load weights", loading, load_s / total_s), Part("warm up", warming, 1 - load_s / total_s))


def sum_of(parts: tuple[Part, ...]) -> Estimate:
    """The total of parts whose ranges are added: they go together."""
    values = [part.value for part in parts]
    return Estimate(
        sum(each.value for each in values),
        sum(each.low for each in values),
        sum(each.high for each in values),
        values[0].unit,
        values[0].source,
    )


def _warm_pool(main: DrawnPool, start: tuple[Part, ...], context: Context) -> int:
    growth = sum(load.peak_per_s - load.mean_rate_per_s for load in main.loads if not load.is_batch)
    ramp_s = context.constants.get("traffic_ramp_s")
    return warm_pool(sum_of(start).value, growth / ramp_s, main.pool.limit_per_s)


def _peak_ratio(main: DrawnPool, context: Context) -> Estimate:
    """The roofline's time of a decode step over the predicted one.

    Formula  max(bytes / bandwidth, FLOPs / peak) / step; bytes: weights and caches of the batch, once
    """
    replica, served = main.pool.replica, main.pool.served
    device = replica.cluster.device
    batch, ranks = _one(served.batch_sequences), _one(replica.accelerator_count)
    lengths = main.loads[0].traffic.lengths
    context_tokens = _one(lengths.input_tokens) + _one(lengths.output_tokens) / 2
    weights = _one(weights_bytes(replica.shape, replica.weights_format).total_bytes)
    cache = batch * context_tokens * _one(kv_bytes_per_token(replica.shape, replica.kv_format))
    bytes_s = (weights + cache) / ranks / _one(device.memory_bytes_per_s)
    peak = max(_one(value) for value in device.peak_flops_per_s.values())
    flops_s = 2 * weights / bytes_per_weight(replica.weights_format) * batch / ranks / peak
    ideal = min(max(bytes_s, flops_s) / _one(served.step_s), 1.0)
    noise = np.ravel(context.draws["memory_bandwidth"])
    return Drawn(ideal, ideal * noise).estimate("ratio")


def _communication_fraction(main: DrawnPool) -> float:
    lengths: Lengths = main.loads[0].traffic.lengths
    context_tokens = _one(lengths.input_tokens) + _one(lengths.output_tokens) / 2
    step = iteration_s(main.pool.replica, 0.0, 0.0, main.pool.served.batch_sequences, context_tokens)
    return _one(step.communication_s) / _one(step.total_s)


def _all_to_all_bytes(replica: Replica) -> float:
    return _one(communication_bytes_per_token(replica)) if _one(replica.ep) > 1 else 0.0


def _pooling_loss(choice: ServingChoice) -> float:
    merged = choice.fleet.merged_accelerators
    return max(0.0, choice.fleet.accelerators / merged - 1) if merged else 0.0


def _flips(main: DrawnPool, choice: ServingChoice, context: Context) -> float:
    """In what part of the draws the best fleet of another machine is cheaper."""
    if choice.fleet.usd_per_h is None or choice.entry.on:
        return 0.0
    own = choice.fleet.usd_per_h * _relative_need(main.pool, main.loads, context)
    rivals = [fleet for fleet in choice.result.alternatives if fleet.usd_per_h is not None][:RUNNERS_UP]
    costs = []
    for fleet in rivals:
        pool = max(fleet.pools, key=lambda each: each.accelerators)
        loads = tuple(load for load in choice.loads if load.name in pool.classes)
        costs.append((fleet.usd_per_h or 0.0) * _relative_need(pool, loads, context))
    return flip_fraction(own, np.stack(costs, axis=1)) if costs else 0.0


def _relative_need(pool: PoolChoice, loads: tuple[ClassLoad, ...], context: Context) -> NDArray[np.float64]:
    """Replicas needed under every draw over those needed in the middle."""
    under = drawn_replica(pool.replica, context.draws)
    load = max(loads, key=lambda each: each.traffic.rate_per_s)
    if load.is_batch:
        rate = max_throughput(for_class(under, load.traffic), load.traffic.lengths).requests_per_s
    else:
        rate = rate_limit(under, load.traffic).requests_per_s
    rates: NDArray[np.float64] = np.maximum(np.ravel(np.asarray(rate, float)), 1e-9)
    need: NDArray[np.float64] = np.median(rates) / rates
    return need


def _flip_warning(flips: float) -> tuple[str, ...]:
    if flips <= FLIPS_FRACTION:
        return ()
    return (f"the choice is close: another machine is cheaper in {flips:.0%} of the draws",)


def _one(value: object) -> float:
    """The number of a single candidate."""
    return float(np.ravel(np.asarray(value, float))[0])
