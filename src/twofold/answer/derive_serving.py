"""Where the numbers of a service come from: what was noted while they were computed, and its leaves."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twofold.answer.calibrated import service_scope
from twofold.answer.context import Context, region_of
from twofold.answer.derivation import (
    Leaves,
    Noted,
    assumed_leaf,
    figures_of,
    model_leaf,
    path_input,
    spec_leaf,
    spread_inputs,
    supply_leaves,
)
from twofold.answer.moved import cited, moved
from twofold.answer.ranges import serving_scope
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool
from twofold.answer.serving_pools import drawn_pool, served_by
from twofold.answer.serving_replica import WARM_UP_RANGE_S, WARMING
from twofold.contracts import METRICS, QUANTILES
from twofold.contracts.results import ClassPlan, Derivation, Input, ServicePlan
from twofold.core import DAY_S, format_count, format_seconds, format_si, record
from twofold.inference import (
    PoolChoice,
    attended_tokens,
    capacity,
    iteration_s,
    merged_class,
    steady_steps,
)
from twofold.perf import model_kind, one

STEPS = ("decode_step", "prefill_step")
PLACES = {  # of what was noted, where a plan calls it otherwise
    "usable_bytes": "memory_bytes",
    "weights_bytes": "memory_parts.weights.value",
    "buffers_bytes": "memory_parts.buffers.value",
    "adapter_bytes": "memory_parts.adapters.value",
    "kv_bytes": "memory_parts.KV cache.value",
    "meter_j": "energy_j_per_year",
    "carbon_gco2": "carbon_gco2_per_year",
}
CLASS_PLACES = {f"{m}_{q}": f"percentiles.{m}_{q}" for m in METRICS for q in QUANTILES}
Known = dict[str, Input | Sequence[Input]]


def serving_derivations(
    choice: ServingChoice, plan: ServicePlan, book: record.Book, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a service with what it follows from."""
    at, main = f"serving.{plan.name}", main_pool(choice.fleet, choice.loads)
    replica = main.replica
    scope = {
        "era": replica.engine.era,
        "accelerator": choice.offer.accelerator.name,
        "format": plan.replica.weights_format or "",
        "fabric": choice.offer.node.fabric,
        **serving_scope(choice.model, "open", replica.cluster.device, replica.engine),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    books = {load.name: record.Book() for load in choice.loads}
    for name, kept in book.items():
        of = next((each for each in books if name.startswith(f"classes.{each}.")), None)
        if of is not None:
            books[of][name.removeprefix(f"classes.{of}.")] = kept
    for load, served in zip(choice.loads, plan.classes, strict=True):
        own, pool = f"{at}.classes.{load.name}", _pool_of(choice, load)
        again, names = _priced(choice, pool, load, context)
        known: Known = {name: leaves.moved(name, choice.offer) for name in names}
        known |= _of_class(choice, load, served, pool, leaves, own)
        places = {name: name.removesuffix("_s") for name in again if name.startswith(STEPS)}
        noted = {**books[load.name], **again}
        yield from Noted(own, noted, figures_of(served), known, CLASS_PLACES | places).rows()
    cluster, engine, names = moved(replica.cluster, replica.engine)
    with record.recording() as again:
        capacity(replace(replica, cluster=cluster, engine=engine))
    known = {name: leaves.moved(name, choice.offer) for name in names}
    known |= _of_machine(choice, plan, leaves, at, context)
    held = {name: kept for name, kept in book.items() if not name.startswith("classes.")}
    yield from Noted(at, held | cited(again, names), figures_of(plan), known, PLACES).rows()


def _pool_of(choice: ServingChoice, load: ClassLoad) -> PoolChoice:
    return next(pool for pool in choice.fleet.pools if load.name in pool.classes)


def _priced(
    choice: ServingChoice, pool: PoolChoice, load: ClassLoad, context: Context
) -> tuple[record.Book, tuple[str, ...]]:
    """A class's latencies and the two kinds of steps under everything that may move them."""
    cluster, engine, names = moved(pool.replica.cluster, pool.replica.engine)
    under = replace(pool.replica, cluster=cluster, engine=engine)
    with record.recording() as book:
        served_by(drawn_pool(pool, choice, context), load, under)
    kept = {name: note for name, note in book.items() if name in CLASS_PLACES}
    # As the pool was sized: all of its classes as one stream, the prefill that its ranks carry together.
    traffic = merged_class([each.traffic for each in choice.loads if each.name in pool.classes])
    middle, lengths = traffic.on(pool.replica), traffic.lengths
    held, batch = one(lengths.mean_context_tokens), one(pool.served.batch_sequences)
    carried = one(steady_steps(middle, lengths, batch).carried_tokens)
    attended = one(attended_tokens(middle, lengths))
    for step, prefill in zip(STEPS, ((0.0, 0.0), (carried, attended)), strict=True):
        with record.recording() as parts:
            _ = iteration_s(traffic.on(under), *prefill, batch, held).total_s
        called = {name: f"{step}_s" if name == "step_s" else f"{step}.{name}" for name in parts}
        for name, note in parts.items():
            inputs = tuple(called.get(each, each) for each in note.inputs)
            kept[called[name]] = replace(note, inputs=inputs)
    return cited(kept, names), names


def _of_class(
    choice: ServingChoice, load: ClassLoad, served: ClassPlan, pool: PoolChoice, leaves: Leaves, at: str
) -> Known:
    """What the numbers of a class rest on, by the names that notes use."""
    at_peak = f"{at}.traffic, over {served.replica_count} replicas"
    promised = ", ".join(f"{slo.metric} ≤ {format_seconds(slo.limit_s)}" for slo in served.slos)
    traffic = merged_class([each.traffic for each in choice.loads if each.name in pool.classes])
    held, batch = one(traffic.lengths.mean_context_tokens), one(pool.served.batch_sequences)
    price, model = choice.offer.price, choice.model
    where = f"prices.csv {price.provider} {price.instance} {price.region}" if price else ""
    usd = format_si(choice.offer.usd_per_accelerator_h or 0.0, "USD/h")
    known: Known = {
        "lengths": _lengths(served, at),
        "rate": spec_leaf("peak", format_si(served.peak_per_s, "1/s"), at_peak),
        "goals": spec_leaf("goals", promised, f"{at}.slo"),
        "replicas": assumed_leaf(
            "replicas", f"{served.replica_count}", "peak / (0.9 × rate per replica), rounded up"
        ),
        "work": spec_leaf(
            "work", format_count(load.mean_rate_per_s * DAY_S), f"{at}.traffic, requests a day"
        ),
        "hourly_price": Input("list price", usd, "", "v", where),
        "sequences": assumed_leaf(
            "batch", f"{batch:.0f} sequences of {held:,.0f} tokens", "what the rate keeps busy"
        ),
        "layers": model_leaf(model, "layers", model.layers),
        "parameters_active": model_leaf(
            model, "parameters_active", model.parameters_active, "active parameters"
        ),
    }
    for part in served.latency_budget:
        usual = assumed_leaf(part.name, format_si(part.value.value, "s"), "the same for every request")
        known[part.name] = usual
    stack = service_scope(pool.replica.cluster.device, pool.replica.engine)
    for metric in METRICS:
        told = "tpot" if metric == "e2e" else metric  # a whole answer spreads as its tokens do
        scoped = Leaves(leaves.constants, (*leaves.scope, ("metric", told)))
        known[f"{metric}_spread"] = spread_inputs(
            scoped, "interval_serving_ratio", stack, told, model_kind(model)
        )
    return known


def _lengths(served: ClassPlan, at: str) -> Input:
    tokens = f"{served.input_tokens:,.0f} in, {served.output_tokens:,.0f} out"
    return spec_leaf("lengths", tokens, f"{at}.traffic.input, output")


def _of_machine(choice: ServingChoice, plan: ServicePlan, leaves: Leaves, at: str, context: Context) -> Known:
    """What memory, start and cost rest on: the model, the machine and the layout on it."""
    offer, model = choice.offer, choice.model
    main, pool = max(plan.classes, key=lambda each: each.replica_count), main_pool(choice.fleet, choice.loads)
    carried, low_high_s = f"{at}.classes.{main.name}.rate_per_replica_per_s", WARM_UP_RANGE_S
    logged = "engines log {:.0f}–{:.0f} s of start, capture and first requests".format(*low_high_s)
    warm_s = next(part.value.value for part in plan.cold_start_parts if part.name == WARMING)
    step = f"{at}.classes.{pool.classes[0]}.decode_step"
    known: Known = {
        "parameters": model_leaf(model, "parameters", model.parameters),
        "parameters_active": model_leaf(
            model, "parameters_active", model.parameters_active, "active parameters"
        ),
        "watts": (
            *leaves.moved("tdp_w", offer),
            *leaves.moved("idle_w", offer),
            leaves.constant("serving_power_fraction"),
        ),
        "power_spread": leaves.unknown("power"),
        "bandwidth": leaves.moved("memory_bytes_per_s", offer),
        "peak": leaves.moved(f"peak_flops_per_s.{plan.replica.weights_format}", offer),
        "layout": assumed_leaf("replica", plan.replica.text, "the cheapest that meets the goals"),
        "count": assumed_leaf(
            "accelerators", f"{plan.machine.accelerator_count}", "replicas and spares × replica"
        ),
        "load_rate": leaves.constant("weights_load_bytes_per_s"),
        "warm": assumed_leaf("warm-up", format_seconds(warm_s), logged),
        "carried": path_input("per replica", main.rate_per_replica_per_s, carried),
        "decode_step_s": Input("decode step", format_si(one(pool.served.step_s), "s"), step, "f", ""),
        "lengths": _lengths(main, f"{at}.classes.{main.name}"),
    }
    return known | supply_leaves(leaves, plan.machine.price, region_of(offer.price, context))
