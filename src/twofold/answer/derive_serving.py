"""Where the numbers of a service come from, down to operators, catalogue rows and constants."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from twofold.answer.calibrated import service_scope, spread_inputs
from twofold.answer.cold_start import READING, WARM_UP_RANGE_S, WARMING
from twofold.answer.context import Context
from twofold.answer.derivation import (
    Leaves,
    accelerator_leaf,
    assumed_leaf,
    derived,
    model_leaf,
    part_inputs,
    path_input,
    price_leaf,
    spec_leaf,
    step_input,
)
from twofold.answer.ranges import serving_scope
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool
from twofold.catalog import Accelerator
from twofold.contracts.results import ClassPlan, Derivation, Input, ServicePlan
from twofold.core import DAY_S, format_count, format_seconds, format_si
from twofold.inference import (
    Iteration,
    PoolChoice,
    attended_tokens,
    for_class,
    iteration_s,
    mean_context_tokens,
    merged_class,
    model_kind,
    steady_steps,
)
from twofold.perf import one

# What each operator of a step takes from the device and from the constants.
OPERATORS = {
    "gemm": (
        "weights read once, 2 FLOPs per weight and token",
        ("gemm_memory_efficiency_fraction", "gemm_efficiency_fraction"),
    ),
    "attention": ("cached keys and values read once per sequence", ("decode_efficiency_fraction",)),
    "moe": ("weights of the experts touched", ("grouped_memory_efficiency_fraction",)),
    "communication": ("all-reduces of each layer", ("link_efficiency_fraction", "collective_launch_s")),
    "elementwise": ("norms, rotary, activations", ("memory_efficiency_fraction",)),
    "host": (
        "scheduling and launches",
        ("serving_host_step_s", "serving_host_layer_s", "serving_host_sequence_s"),
    ),
}
QUANTILE = {"p50": "the median", "p95": "the mean + deviations to p95", "p99": "the mean + deviations to p99"}
USUAL_WAYS = {"edge": "a usual round trip to the region", "gateway": "what a usual gateway adds"}
MEMORY = {
    "weights": "weights in their format, scales included, over TP × PP",
    "buffers": "a prefill chunk's tensors, logits, graphs, communication",
    "adapters": "LoRA weights held resident",
    "KV cache": "what is left of the usable memory",
}


def serving_derivations(choice: ServingChoice, plan: ServicePlan, context: Context) -> Iterator[Derivation]:
    """Every estimate of a service with what it follows from."""
    at = f"serving.{plan.name}"
    accelerator = choice.offer.accelerator
    replica = main_pool(choice.fleet, choice.loads).replica
    scope = {
        "era": replica.engine.era,
        "accelerator": accelerator.name,
        "format": plan.replica.weights_format or "",
        **serving_scope(choice.model, "open", replica.cluster.device, replica.engine),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    for load, served in zip(choice.loads, plan.classes, strict=True):
        pool = next(pool for pool in choice.fleet.pools if load.name in pool.classes)
        yield from _class(choice, load, served, pool, leaves, f"{at}.classes.{load.name}")
        yield from _step(choice, pool, leaves, f"{at}.classes.{load.name}")
    yield from _memory(plan, leaves, at, choice)
    yield from _start(plan, leaves, at, choice)
    yield from _fleet(plan, leaves, at, choice)


def _spread_inputs(metric: str, choice: ServingChoice, pool: PoolChoice, leaves: Leaves) -> tuple[Input, ...]:
    """What the range of a latency is read from; a whole answer spreads as its tokens do."""
    told = "tpot" if metric == "e2e" else metric
    scoped = Leaves(leaves.constants, (*leaves.scope, ("metric", told)))
    engine = pool.replica.engine
    stack = service_scope(pool.replica.cluster.device.name, engine.name, engine.era)
    return spread_inputs(scoped, "interval_serving_ratio", stack, told, model_kind(choice.model))


def _class(
    choice: ServingChoice, load: ClassLoad, served: ClassPlan, pool: PoolChoice, leaves: Leaves, at: str
) -> Iterator[Derivation]:
    step = step_input("decode step", _seconds(pool.served.step_s), "s", f"{at}.decode_step")
    carrying = step_input(
        "step with prefill", _seconds(pool.served.prefill_step_s), "s", f"{at}.prefill_step"
    )
    lengths = spec_leaf(
        "lengths",
        f"{served.input_tokens:,.0f} in, {served.output_tokens:,.0f} out",
        f"{at}.traffic.input, output",
    )
    rate = spec_leaf(
        "peak", format_si(served.peak_per_s, "1/s"), f"{at}.traffic, over {served.replica_count} replicas"
    )
    for name, estimate in served.percentiles.items():
        metric, _, which = name.partition("_")
        spread = _spread_inputs(metric, choice, pool, leaves)
        inputs = _latency_inputs(metric, served, at, (step, carrying, lengths, rate))
        formula = f"{_latency_formula(metric)}; {QUANTILE[which]}"
        yield derived(f"{at}.percentiles.{name}", formula, *inputs, *spread)
        for slo in served.slos:
            if slo.metric == name:
                own = path_input(name, estimate, f"{at}.percentiles.{name}")
                yield derived(f"{at}.slos.{name}.predicted", "at the peak rate", own)
    limit = path_input("per replica", served.rate_per_replica_per_s, f"{at}.rate_per_replica_per_s")
    promised = ", ".join(f"{slo.metric} ≤ {format_seconds(slo.limit_s)}" for slo in served.slos)
    goals = spec_leaf("goals", promised, f"{at}.slo")
    yield derived(
        f"{at}.rate_per_replica_per_s",
        "the largest rate on the load curve that meets every goal",
        step,
        carrying,
        lengths,
        goals,
    )
    replicas = assumed_leaf(
        "replicas", f"{served.replica_count}", "peak / (0.9 × rate per replica), rounded up"
    )
    yield derived(f"{at}.holds_until_per_s", "replicas × rate per replica", replicas, limit)
    for slo in served.slos:
        if slo.metric == "finish_within":
            work = spec_leaf(
                "work", format_count(load.mean_rate_per_s * DAY_S), f"{at}.traffic, requests a day"
            )
            holds = path_input("holds", served.holds_until_per_s, f"{at}.holds_until_per_s")
            yield derived(
                f"{at}.slos.finish_within.predicted",
                "a day's requests / what the replicas carry",
                work,
                holds,
            )
    if served.usd_per_1k_output_tokens:
        yield derived(
            f"{at}.usd_per_1k_output_tokens",
            "USD/h of the class's replicas / output tokens per hour",
            _price(choice),
            rate,
            lengths,
            limit,
        )
    whole = path_input("end to end", served.percentiles["e2e_p50"], f"{at}.percentiles.e2e_p50")
    for part in served.latency_budget:
        text = format_si(part.value.value, "s")
        fixed = assumed_leaf(part.name, text, USUAL_WAYS.get(part.name, ""))
        steps = {"prefill": (carrying,), "decode": (step, lengths), "queue": (carrying, rate)}
        inputs = steps.get(part.name, (fixed,))
        yield derived(f"{at}.latency_budget.{part.name}.value", "of a mean request", *inputs, whole)


def _latency_formula(metric: str) -> str:
    return {
        "ttft": "rest of a step + queue for prefill + own prefill + handling",
        "tpot": "(1 − q) × decode step + q × step with prefill",
        "e2e": "TTFT + (output − 1) × TPOT",
    }[metric]


def _latency_inputs(metric: str, served: ClassPlan, at: str, usual: tuple[Input, ...]) -> tuple[Input, ...]:
    if metric != "e2e":
        return usual
    parts = {name: served.percentiles[f"{name}_p50"] for name in ("ttft", "tpot")}
    return (
        *(path_input(name.upper(), each, f"{at}.percentiles.{name}_p50") for name, each in parts.items()),
        usual[2],
    )


def _step(choice: ServingChoice, pool: PoolChoice, leaves: Leaves, at: str) -> Iterator[Derivation]:
    """The two kinds of steps as sums of operators."""
    # As the pool was sized: all of its classes as one stream, the prefill that its ranks carry together.
    traffic = merged_class([each.traffic for each in choice.loads if each.name in pool.classes])
    replica, lengths = for_class(pool.replica, traffic), traffic.lengths
    context, batch = one(mean_context_tokens(lengths)), one(pool.served.batch_sequences)
    carried = steady_steps(replica, lengths, batch).carried_tokens
    steps = {
        "decode_step": iteration_s(replica, 0.0, 0.0, batch, context),
        "prefill_step": iteration_s(replica, carried, attended_tokens(replica, lengths), batch, context),
    }
    sequences = assumed_leaf(
        "batch", f"{batch:.0f} sequences of {context:,.0f} tokens", "what the rate keeps busy"
    )
    for name, step in steps.items():
        parts = _operators(step)
        named = [step_input(part, value, "s", f"{at}.{name}.{part}") for part, value in parts.items()]
        yield derived(f"{at}.{name}", " + ".join(parts), *named)
        for part in parts:
            meaning, constants = OPERATORS[part]
            yield derived(
                f"{at}.{name}.{part}",
                meaning,
                sequences,
                *_hardware(part, choice),
                *(leaves.constant(constant) for constant in constants),
            )


def _operators(step: Iteration) -> dict[str, float]:
    named = {field.name.removesuffix("_s"): _seconds(getattr(step, field.name)) for field in fields(step)}
    return {name: value for name, value in named.items() if value > 0}


def _hardware(part: str, choice: ServingChoice) -> list[Input]:
    accelerator, model = choice.offer.accelerator, choice.model
    if part == "host":
        return [model_leaf(model, "layers", model.layers)]
    if part == "communication":
        label = accelerator.scaleup_name or "PCIe"
        return [
            accelerator_leaf(
                accelerator, "scaleup_bytes_per_s", accelerator.scaleup_bytes_per_s, "B/s", label
            )
        ]
    bandwidth = _bandwidth(accelerator)
    if part in ("gemm", "moe"):
        return [
            model_leaf(model, "parameters_active", model.parameters_active, "active parameters"),
            bandwidth,
        ]
    return [bandwidth]


def _bandwidth(accelerator: Accelerator) -> Input:
    rate = accelerator.memory_bytes_per_s
    return accelerator_leaf(accelerator, "memory_bytes_per_s", rate, "B/s", "memory bandwidth")


def _memory(plan: ServicePlan, leaves: Leaves, at: str, choice: ServingChoice) -> Iterator[Derivation]:
    formula = " + ".join(part.name for part in plan.memory_parts)
    taken = leaves.constant("serving_memory_fraction", "range of what the engine takes")
    yield derived(f"{at}.memory_bytes", formula, *part_inputs(plan.memory_parts, f"{at}.memory_parts"), taken)
    accelerator, model = choice.offer.accelerator, choice.model
    held = {
        "weights": model_leaf(model, "parameters", model.parameters),
        "KV cache": accelerator_leaf(accelerator, "memory_bytes", accelerator.memory_bytes, "memory B"),
    }
    layout = assumed_leaf("replica", plan.replica.text, "the cheapest that meets the goals")
    for part in plan.memory_parts:
        own = [held[part.name]] if part.name in held else []
        yield derived(f"{at}.memory_parts.{part.name}.value", MEMORY[part.name], layout, *own)


def _start(plan: ServicePlan, leaves: Leaves, at: str, choice: ServingChoice) -> Iterator[Derivation]:
    parts = part_inputs(plan.cold_start_parts, f"{at}.cold_start_parts")
    yield derived(f"{at}.cold_start_s", "bytes / bandwidth + warm-up", *parts)
    parameters = model_leaf(choice.model, "parameters", choice.model.parameters)
    rate = leaves.constant("weights_load_bytes_per_s")
    yield derived(f"{at}.cold_start_parts.{READING}.value", "weights / load bandwidth", parameters, rate)
    low_s, high_s = WARM_UP_RANGE_S
    logged = f"engines log {low_s:.0f}–{high_s:.0f} s of start, capture and first requests"
    warm_s = next(part.value.value for part in plan.cold_start_parts if part.name == WARMING)
    warm = assumed_leaf("warm-up", format_seconds(warm_s), logged)
    yield derived(f"{at}.cold_start_parts.{WARMING}.value", "process start and graph capture", warm)


def _fleet(plan: ServicePlan, leaves: Leaves, at: str, choice: ServingChoice) -> Iterator[Derivation]:
    main = max(plan.classes, key=lambda each: each.replica_count)
    carried = path_input(
        "per replica", main.rate_per_replica_per_s, f"{at}.classes.{main.name}.rate_per_replica_per_s"
    )
    size = assumed_leaf("replica", plan.replica.text, "the cheapest that meets the goals")
    pool = main_pool(choice.fleet, choice.loads)
    step_path = f"{at}.classes.{pool.classes[0]}.decode_step"
    step = step_input("decode step", _seconds(pool.served.step_s), "s", step_path)
    accelerator = choice.offer.accelerator
    power = accelerator_leaf(accelerator, "tdp_w", accelerator.tdp_w, "W", "power limit")
    bandwidth = _bandwidth(accelerator)
    share = leaves.constant("serving_power_fraction")
    spread = leaves.unknown("power")
    count = assumed_leaf("accelerators", f"{plan.machine.accelerator_count}", "replicas and spares × replica")
    yield derived(
        f"{at}.output_tokens_per_s_per_accelerator",
        "a replica's output at peak / accelerators",
        carried,
        size,
    )
    yield derived(f"{at}.peak_ratio", "max(bytes / bandwidth, FLOPs / peak) / decode step", bandwidth, step)
    yield derived(
        f"{at}.energy_j_per_year",
        "power at the mean load × a year × node factor × PUE",
        power,
        share,
        count,
        leaves.constant("node_power_factor"),
        leaves.constant("pue_ratio"),
        spread,
    )
    energy = path_input("energy", plan.energy_j_per_year, f"{at}.energy_j_per_year")
    yield derived(
        f"{at}.output_tokens_per_j",
        "output tokens/s / accelerators' watts, at the peak",
        power,
        share,
        count,
        spread,
    )
    price = plan.machine.price
    if plan.carbon_gco2_per_year:
        place = price.region if price else ""
        grid = assumed_leaf("grid", "gCO2 per kWh", f"regions.csv {place} grid_gco2_per_kwh")
        yield derived(f"{at}.carbon_gco2_per_year", "energy × grid", energy, grid)
    if price and plan.cost_usd_per_year:
        path = f"{at}.machine.price.usd_per_accelerator_h"
        yield derived(path, "list price", price_leaf(price), leaves.unknown("price"))
        used = path_input("price", price.usd_per_accelerator_h, path)
        yield derived(
            f"{at}.cost_usd_per_year",
            "accelerators × price × 8760 h, by pool and hours in use",
            count,
            used,
            carried,
        )


def _price(choice: ServingChoice) -> Input:
    usd = choice.offer.usd_per_accelerator_h or 0.0
    price = choice.offer.price
    where = f"prices.csv {price.provider} {price.instance} {price.region}" if price else ""
    return Input("list price", format_si(usd, "USD/h"), "", "v", where)


def _seconds(value: object) -> float:
    return float(np.ravel(np.asarray(value, float))[0])
