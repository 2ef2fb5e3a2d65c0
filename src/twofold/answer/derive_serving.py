"""Where the numbers of a service come from, down to operators, catalogue rows and constants."""

from collections.abc import Iterator

from twofold.answer.calibrated import service_scope
from twofold.answer.context import Context
from twofold.answer.derivation import (
    Leaves,
    Table,
    accelerator_leaf,
    assumed_leaf,
    bandwidth_leaf,
    derived,
    grid_leaf,
    model_leaf,
    named,
    part_inputs,
    path_input,
    price_leaf,
    rows,
    spec_leaf,
    spread_inputs,
    step_input,
)
from twofold.answer.ranges import serving_scope
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool
from twofold.answer.serving_replica import READING, WARM_UP_RANGE_S, WARMING
from twofold.contracts import QUANTILES
from twofold.contracts.results import ClassPlan, Derivation, Input, ServicePlan
from twofold.core import DAY_S, format_count, format_seconds, format_si
from twofold.inference import PoolChoice, attended_tokens, iteration_s, merged_class, steady_steps
from twofold.perf import model_kind, one

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
QUANTILE = {q: f"the mean + deviations to {q}" for q in QUANTILES} | {"p50": "the median"}
USUAL_WAYS = {"edge": "a usual round trip to the region", "gateway": "what a usual gateway adds"}
LATENCY: Table = {
    "ttft": ("rest of a step + queue for prefill + own prefill + handling", "step carrying lengths rate"),
    "tpot": ("(1 − q) × decode step + q × step with prefill", "step carrying lengths rate"),
    "e2e": ("TTFT + (output − 1) × TPOT", "ttft tpot lengths"),
}
BUDGET = {"prefill": "carrying whole", "decode": "step lengths whole", "queue": "carrying rate whole"}
CLASS: Table = {
    "rate_per_replica_per_s": (
        "the largest rate on the load curve that meets every goal",
        "step carrying lengths goals",
    ),
    "holds_until_per_s": ("replicas × rate per replica", "replicas limit"),
    "slos.finish_within.predicted": ("a day's requests / what the replicas carry", "work holds"),
    "usd_per_1k_output_tokens": (
        "USD/h of the class's replicas / output tokens per hour",
        "price rate lengths limit",
    ),
}
MEMORY: Table = {
    "weights": ("weights in their format, scales included, over TP × PP", "layout parameters"),
    "buffers": ("a prefill chunk's tensors, logits, graphs, communication", "layout"),
    "adapters": ("LoRA weights held resident", "layout"),
    "KV cache": ("what is left of the usable memory", "layout memory"),
}
START: Table = {
    f"{READING}.value": ("weights / load bandwidth", "parameters rate"),
    f"{WARMING}.value": ("process start and graph capture", "warm"),
}
FLEET: Table = {
    "output_tokens_per_s_per_accelerator": ("a replica's output at peak / accelerators", "carried layout"),
    "peak_ratio": ("max(bytes / bandwidth, FLOPs / peak) / decode step", "bandwidth step"),
    "energy_j_per_year": (
        "power at the mean load × a year × node factor × PUE",
        "power share count node pue spread",
    ),
    "output_tokens_per_j": ("output tokens/s / accelerators' watts, at the peak", "power share count spread"),
    "carbon_gco2_per_year": ("energy × grid", "energy grid"),
    "machine.price.usd_per_accelerator_h": ("list price", "listed doubt"),
    "cost_usd_per_year": ("accelerators × price × 8760 h, by pool and hours in use", "count price carried"),
}


def serving_derivations(choice: ServingChoice, plan: ServicePlan, context: Context) -> Iterator[Derivation]:
    """Every estimate of a service with what it follows from."""
    at = f"serving.{plan.name}"
    replica = main_pool(choice.fleet, choice.loads).replica
    scope = {
        "era": replica.engine.era,
        "accelerator": choice.offer.accelerator.name,
        "format": plan.replica.weights_format or "",
        **serving_scope(choice.model, "open", replica.cluster.device, replica.engine),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    for load, served in zip(choice.loads, plan.classes, strict=True):
        pool = next(pool for pool in choice.fleet.pools if load.name in pool.classes)
        yield from _class(choice, load, served, pool, leaves, f"{at}.classes.{load.name}")
        yield from _step(choice, pool, leaves, f"{at}.classes.{load.name}")
    known = _of_machine(choice, plan, leaves, at)
    formula = " + ".join(part.name for part in plan.memory_parts)
    taken = leaves.constant("serving_memory_fraction", "range of what the engine takes")
    yield derived(f"{at}.memory_bytes", formula, *part_inputs(plan.memory_parts, f"{at}.memory_parts"), taken)
    held = {f"{part.name}.value": MEMORY[part.name] for part in plan.memory_parts}
    yield from rows(f"{at}.memory_parts", held, known)
    parts = part_inputs(plan.cold_start_parts, f"{at}.cold_start_parts")
    yield derived(f"{at}.cold_start_s", "bytes / bandwidth + warm-up", *parts)
    yield from rows(f"{at}.cold_start_parts", START, known)
    yield from rows(at, FLEET, known)


def _class(
    choice: ServingChoice, load: ClassLoad, served: ClassPlan, pool: PoolChoice, leaves: Leaves, at: str
) -> Iterator[Derivation]:
    known = _of_class(choice, load, served, pool, at)
    stack = service_scope(pool.replica.cluster.device, pool.replica.engine)
    for name, estimate in served.percentiles.items():
        metric, _, which = name.partition("_")
        formula, used = LATENCY[metric]
        told = "tpot" if metric == "e2e" else metric  # a whole answer spreads as its tokens do
        scoped = Leaves(leaves.constants, (*leaves.scope, ("metric", told)))
        spread = spread_inputs(scoped, "interval_serving_ratio", stack, told, model_kind(choice.model))
        how = f"{formula}; {QUANTILE[which]}"
        yield derived(f"{at}.percentiles.{name}", how, *named(used, known), *spread)
        for slo in served.slos:
            if slo.metric == name:
                own = path_input(name, estimate, f"{at}.percentiles.{name}")
                yield derived(f"{at}.slos.{name}.predicted", "at the peak rate", own)
    yield from rows(at, CLASS, known)
    for part in served.latency_budget:
        fixed = assumed_leaf(part.name, format_si(part.value.value, "s"), USUAL_WAYS.get(part.name, ""))
        used = BUDGET.get(part.name, "fixed whole")
        inputs = named(used, {**known, "fixed": fixed})
        yield derived(f"{at}.latency_budget.{part.name}.value", "of a mean request", *inputs)


def _of_class(
    choice: ServingChoice, load: ClassLoad, served: ClassPlan, pool: PoolChoice, at: str
) -> dict[str, Input]:
    """What the numbers of a class follow from, by the names that tables use."""
    tokens = f"{served.input_tokens:,.0f} in, {served.output_tokens:,.0f} out"
    at_peak = f"{at}.traffic, over {served.replica_count} replicas"
    promised = ", ".join(f"{slo.metric} ≤ {format_seconds(slo.limit_s)}" for slo in served.slos)
    each = served.rate_per_replica_per_s
    known = {
        "step": step_input("decode step", one(pool.served.step_s), "s", f"{at}.decode_step"),
        "carrying": step_input(
            "step with prefill", one(pool.served.prefill_step_s), "s", f"{at}.prefill_step"
        ),
        "lengths": spec_leaf("lengths", tokens, f"{at}.traffic.input, output"),
        "rate": spec_leaf("peak", format_si(served.peak_per_s, "1/s"), at_peak),
        "limit": path_input("per replica", each, f"{at}.rate_per_replica_per_s"),
        "goals": spec_leaf("goals", promised, f"{at}.slo"),
        "replicas": assumed_leaf(
            "replicas", f"{served.replica_count}", "peak / (0.9 × rate per replica), rounded up"
        ),
        "holds": path_input("holds", served.holds_until_per_s, f"{at}.holds_until_per_s"),
        "whole": path_input("end to end", served.percentiles["e2e_p50"], f"{at}.percentiles.e2e_p50"),
    }
    for name in ("ttft", "tpot"):
        path = f"{at}.percentiles.{name}_p50"
        known[name] = path_input(name.upper(), served.percentiles[f"{name}_p50"], path)
    if load.is_batch:
        work = format_count(load.mean_rate_per_s * DAY_S)
        known["work"] = spec_leaf("work", work, f"{at}.traffic, requests a day")
    if served.usd_per_1k_output_tokens:
        usd, price = choice.offer.usd_per_accelerator_h or 0.0, choice.offer.price
        where = f"prices.csv {price.provider} {price.instance} {price.region}" if price else ""
        known["price"] = Input("list price", format_si(usd, "USD/h"), "", "v", where)
    return known


def _step(choice: ServingChoice, pool: PoolChoice, leaves: Leaves, at: str) -> Iterator[Derivation]:
    """The two kinds of steps as sums of operators."""
    # As the pool was sized: all of its classes as one stream, the prefill that its ranks carry together.
    traffic = merged_class([each.traffic for each in choice.loads if each.name in pool.classes])
    replica, lengths = traffic.on(pool.replica), traffic.lengths
    context, batch = one(lengths.mean_context_tokens), one(pool.served.batch_sequences)
    carried = steady_steps(replica, lengths, batch).carried_tokens
    steps = {
        "decode_step": iteration_s(replica, 0.0, 0.0, batch, context),
        "prefill_step": iteration_s(replica, carried, attended_tokens(replica, lengths), batch, context),
    }
    sequences = assumed_leaf(
        "batch", f"{batch:.0f} sequences of {context:,.0f} tokens", "what the rate keeps busy"
    )
    for name, step in steps.items():
        parts = {part: value for part, each in step.by_name().items() if (value := one(each)) > 0}
        named = [step_input(part, value, "s", f"{at}.{name}.{part}") for part, value in parts.items()]
        yield derived(f"{at}.{name}", " + ".join(parts), *named)
        for part in parts:
            meaning, constants = OPERATORS[part]
            fitted = (leaves.constant(constant) for constant in constants)
            yield derived(f"{at}.{name}.{part}", meaning, sequences, *_hardware(part, choice), *fitted)


def _hardware(part: str, choice: ServingChoice) -> list[Input]:
    accelerator, model = choice.offer.accelerator, choice.model
    if part == "host":
        return [model_leaf(model, "layers", model.layers)]
    if part == "communication":
        label, rate = accelerator.scaleup_name or "PCIe", accelerator.scaleup_bytes_per_s
        return [accelerator_leaf(accelerator, "scaleup_bytes_per_s", rate, "B/s", label)]
    bandwidth = bandwidth_leaf(accelerator)
    if part in ("gemm", "moe"):
        return [
            model_leaf(model, "parameters_active", model.parameters_active, "active parameters"),
            bandwidth,
        ]
    return [bandwidth]


def _of_machine(choice: ServingChoice, plan: ServicePlan, leaves: Leaves, at: str) -> dict[str, Input]:
    """What memory, start and cost follow from: the model, the machine and the layout on it."""
    accelerator, model, price = choice.offer.accelerator, choice.model, plan.machine.price
    main, pool = max(plan.classes, key=lambda each: each.replica_count), main_pool(choice.fleet, choice.loads)
    carried = f"{at}.classes.{main.name}.rate_per_replica_per_s"
    step = f"{at}.classes.{pool.classes[0]}.decode_step"
    low_s, high_s = WARM_UP_RANGE_S
    logged = f"engines log {low_s:.0f}–{high_s:.0f} s of start, capture and first requests"
    warm_s = next(part.value.value for part in plan.cold_start_parts if part.name == WARMING)
    known = {
        "parameters": model_leaf(model, "parameters", model.parameters),
        "memory": accelerator_leaf(accelerator, "memory_bytes", accelerator.memory_bytes, "memory B"),
        "power": accelerator_leaf(accelerator, "tdp_w", accelerator.tdp_w, "W", "power limit"),
        "bandwidth": bandwidth_leaf(accelerator),
        "layout": assumed_leaf("replica", plan.replica.text, "the cheapest that meets the goals"),
        "count": assumed_leaf(
            "accelerators", f"{plan.machine.accelerator_count}", "replicas and spares × replica"
        ),
        "rate": leaves.constant("weights_load_bytes_per_s"),
        "warm": assumed_leaf("warm-up", format_seconds(warm_s), logged),
        "carried": path_input("per replica", main.rate_per_replica_per_s, carried),
        "step": step_input("decode step", one(pool.served.step_s), "s", step),
        "share": leaves.constant("serving_power_fraction"),
        "node": leaves.constant("node_power_factor"),
        "pue": leaves.constant("pue_ratio"),
        "spread": leaves.unknown("power"),
        "energy": path_input("energy", plan.energy_j_per_year, f"{at}.energy_j_per_year"),
    }
    if plan.carbon_gco2_per_year:
        known["grid"] = grid_leaf(price)
    if price and plan.cost_usd_per_year:
        path = f"{at}.machine.price.usd_per_accelerator_h"
        known["listed"], known["doubt"] = price_leaf(price), leaves.unknown("price")
        known["price"] = path_input("price", price.usd_per_accelerator_h, path)
    return known
