"""Where the numbers of a service come from: what was noted while they were computed, and its leaves."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twofold.answer.calibrated import service_scope
from twofold.answer.context import Context, region_of
from twofold.answer.derivation import (
    Leaves,
    Noted,
    assumed_leaf,
    cell_leaf,
    figures_of,
    listed_input,
    model_leaf,
    path_input,
    spec_leaf,
    spread_inputs,
    supply_leaves,
)
from twofold.answer.moved import cited, moved
from twofold.answer.ranges import serving_scope
from twofold.answer.runners_up import accepted_drafts
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool
from twofold.answer.serving_pools import drawn_pool, served_by
from twofold.answer.serving_replica import WARMING
from twofold.contracts.goals import METRICS, QUANTILES
from twofold.contracts.results.plan import Derivation, Input
from twofold.contracts.results.serving import ClassPlan, ServicePlan
from twofold.core import record
from twofold.core.display import format_count, format_seconds, format_si
from twofold.core.estimate import Source
from twofold.core.quantity import DAY_S
from twofold.inference.fleet import WARM_UP_RANGE_S, ReplicaCount
from twofold.inference.iteration import iteration_s
from twofold.inference.replica import capacity
from twofold.inference.search import PoolChoice
from twofold.inference.slo import merged_class
from twofold.inference.steady import attended_tokens, steady_steps
from twofold.perf.shape import model_kind
from twofold.perf.types import one

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
        **serving_scope("tpot", "open", choice.model, replica.cluster.device, replica.engine),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    supply = supply_leaves(leaves, plan.machine.price, region_of(choice.offer.price, context))
    if plan.machine.base_price:
        supply["base_listed"] = listed_input(plan.machine.base_price)
    for load, served in zip(choice.loads, plan.classes, strict=True):
        own = f"{at}.classes.{load.name}"
        pool = next(each for each in choice.fleet.pools if load.name in each.classes)
        again, names = _priced(choice, pool, load, context)
        known: Known = {name: leaves.moved(name, choice.offer) for name in names}
        known |= _of_class(choice, served, pool, leaves, own) | supply
        places = {name: name.removesuffix("_s") for name in again if name.startswith(STEPS)}
        noted = {**record.noted_of(book, f"classes.{load.name}"), **again}
        yield from Noted(own, noted, figures_of(served), known, CLASS_PLACES | places).rows()
    cluster, engine, names = moved(replica.cluster, replica.engine)
    with record.recording() as again:
        capacity(replace(replica, cluster=cluster, engine=engine))
    known = {name: leaves.moved(name, choice.offer) for name in names}
    known |= _of_machine(choice, plan, leaves, at) | supply | _of_choices(choice, leaves, at, context)
    held = {name: kept for name, kept in book.items() if not name.startswith("classes.")}
    yield from Noted(at, held | cited(again, names), figures_of(plan), known, PLACES).rows()
    yield from _of_curves(plan, at)


def _of_curves(plan: ServicePlan, at: str) -> Iterator[Derivation]:
    """Each point of a latency over the load: what is asked at the peak, asked at another rate."""
    seen: set[str] = set()
    for index, curve in enumerate(plan.latency_curves):
        key = curve.metric if curve.metric not in seen else f"{curve.metric}#{index}"
        seen.add(key)
        served = next(each for each in plan.classes if each.name == curve.class_name)
        peak = path_input(
            "at the peak",
            served.percentiles[curve.metric],
            f"{at}.classes.{served.name}.percentiles.{curve.metric}",
        )
        for number, point in enumerate(curve.points):
            rate = format_si(point.rate_per_s, "1/s")
            load = assumed_leaf("rate", rate, "on the planned replicas, shared as at the peak")
            formula = f"{curve.metric} as at the peak, at {rate}"
            path = f"{at}.latency_curves.{key}.points.{number}.latency"
            yield Derivation(path, formula, (load, peak))


def measured_serving_derivations(
    plan: ServicePlan, book: record.Book, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a service of measured rows: what these say, its traffic and its machines."""
    at, machine, cost = f"serving.{plan.name}", plan.machine, plan.cost_usd_per_year
    entry = next(each for each in context.spec.services if each.name == plan.name)
    part = context.catalog.accelerator(machine.accelerator)
    leaves = Leaves(context.constants, (("family", part.family), ("accelerator", part.name)))
    sizes = f"{plan.tried} batch sizes, and the spread of a further run"
    rows = Input("measured rows", sizes, "", Source.MEASURED.value, str(entry.model.measured))
    for served in plan.classes:
        own = f"{at}.classes.{served.name}"
        known = _of_traffic(served, own) | _of_count(served, own) | {"rows": rows}
        if cost:
            known["cost"] = path_input("cost", cost, f"{at}.cost_usd_per_year")
        noted = record.noted_of(book, f"classes.{served.name}")
        yield from Noted(own, noted, figures_of(served), known, CLASS_PLACES).rows()
    of_idle = cell_leaf(part, "idle_w") if part.idle_w else leaves.constant("idle_power_fraction")
    known = {
        "watts": (cell_leaf(part, "tdp_w"), of_idle, leaves.constant("serving_power_fraction")),
        "count": _count(plan),
        "rows": rows,
        **supply_leaves(leaves, machine.price, region_of(machine.price, context)),
    }
    held = {name: kept for name, kept in book.items() if not name.startswith("classes.")}
    yield from Noted(at, held, figures_of(plan), known, PLACES).rows()


def _of_count(served: ClassPlan, at: str) -> Known:
    """What the replicas of a class of measured rows follow from, and where they stand."""
    filled, said = f"{ReplicaCount.FILLED_FRACTION:g}", "the rest is left to chance"
    count = f"{served.replica_count:,}"
    return {
        "replicas": Input("replicas", count, f"{at}.replica_count", Source.MEASURED.value, ""),
        "peak": spec_leaf("peak", format_si(served.peak_per_s, "1/s"), f"{at}.traffic"),
        "filled": assumed_leaf("filled", filled, said),
    }


def _count(plan: ServicePlan) -> tuple[Input, ...]:
    machine = plan.machine
    own = assumed_leaf("accelerators", f"{machine.accelerator_count}", "replicas and spares × replica")
    if machine.held_fraction == 1.0:
        return (own,)
    held = f"{100 * machine.held_fraction:.3g} % of them on average"
    if machine.base_price:
        held += f", {machine.accelerator_count - machine.hourly_count} all year"
    return own, assumed_leaf("leased", held, "whole replicas for each hour's traffic, over a year")


def _priced(
    choice: ServingChoice, pool: PoolChoice, load: ClassLoad, context: Context
) -> tuple[record.Book, tuple[str, ...]]:
    """A class's latencies and the two kinds of steps under everything that may move them."""
    cluster, engine, names = moved(pool.replica.cluster, pool.replica.engine)
    under = replace(pool.replica, cluster=cluster, engine=engine)
    own = drawn_pool(pool, choice, context)
    with record.recording() as book:
        served_by(own.share_per_s, own.loads, load, under)
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


def _of_class(choice: ServingChoice, served: ClassPlan, pool: PoolChoice, leaves: Leaves, at: str) -> Known:
    """What the numbers of a class rest on, by the names that notes use."""
    traffic = merged_class([each.traffic for each in choice.loads if each.name in pool.classes])
    held, batch = one(traffic.lengths.mean_context_tokens), one(pool.served.batch_sequences)
    model = choice.model
    known = _of_traffic(served, at) | {
        "sequences": assumed_leaf(
            "batch", f"{batch:.0f} sequences of {held:,.0f} tokens", "what the rate keeps busy"
        ),
        "layers": model_leaf(model, "layers", model.layers),
        "parameters_active": model_leaf(
            model, "parameters_active", model.parameters_active, "active parameters"
        ),
    }
    known["tiers"] = tuple(
        spec_leaf(
            f"tier {each.name}",
            f"{each.place_count} places, {format_seconds(each.work_s)} each",
            f"serving.{choice.entry.name}.before.{each.name}",
        )
        for each in choice.searched.tiers
    )
    for part in served.latency_budget:
        usual = assumed_leaf(part.name, format_si(part.value.value, "s"), "the same for every request")
        known[part.name] = usual
    machine = pool.replica.cluster.device, pool.replica.engine
    for metric in METRICS:
        told = "tpot" if metric == "e2e" else metric  # a whole answer spreads as its tokens do
        scope = dict(leaves.scope) | serving_scope(told, "open", model, *machine)
        scoped = Leaves(leaves.constants, tuple(scope.items()))
        known[f"{metric}_spread"] = spread_inputs(
            scoped, "interval_serving_ratio", service_scope(*machine), told, model_kind(model)
        )
    return known


def _of_traffic(served: ClassPlan, at: str) -> Known:
    """What the spec says of a class, and the replicas that this takes."""
    promised = ", ".join(f"{slo.metric} ≤ {format_seconds(slo.limit_s)}" for slo in served.slos)
    at_peak = f"{at}.traffic, over {served.replica_count} replicas"
    work, sized = (
        format_count(served.rate_per_s * DAY_S),
        "peak / (rate per replica − room for chance, a tenth at most), rounded up",
    )
    return {
        "lengths": _lengths(served, at),
        "rate": spec_leaf("peak", format_si(served.peak_per_s, "1/s"), at_peak),
        "goals": spec_leaf("goals", promised, f"{at}.slo"),
        "replicas": assumed_leaf("replicas", f"{served.replica_count}", sized),
        "work": spec_leaf("work", work, f"{at}.traffic, requests a day"),
    }


def _lengths(served: ClassPlan, at: str) -> Input:
    found = {"in": served.input_tokens, "out": served.output_tokens}
    tokens = ", ".join(f"{count:,.0f} {way}" for way, count in found.items() if count is not None)
    return spec_leaf("lengths", tokens, f"{at}.traffic.input, output")


def _of_machine(choice: ServingChoice, plan: ServicePlan, leaves: Leaves, at: str) -> Known:
    """What memory, start and cost rest on: the model, the machine and the layout on it."""
    offer, model = choice.offer, choice.model
    main, pool = max(plan.classes, key=lambda each: each.replica_count), main_pool(choice.fleet, choice.loads)
    carried = f"{at}.classes.{main.name}.rate_per_replica_per_s"
    warm = next(part.value for part in plan.cold_start_parts if part.name == WARMING)
    is_measured, (low_s, high_s) = warm.source is Source.MEASURED, WARM_UP_RANGE_S
    logged = f"engines log {low_s:.0f}–{high_s:.0f} s of start, capture and first requests"
    warm_leaf = assumed_leaf("warm-up", format_seconds(warm.value), logged)
    if is_measured:
        warm_leaf = Input("warm-up", format_seconds(warm.value), "", "m", "measured starts")
    step = f"{at}.classes.{pool.classes[0]}.decode_step"
    return {
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
        "count": _count(plan),
        "loaded": tuple(
            assumed_leaf(
                f"for {' and '.join(each.classes)}",
                f"{each.replica_count - each.spare_count}",
                f"peak / ({format_si(each.rate_per_replica_per_s, '1/s')} − room for chance), rounded up",
            )
            for each in plan.pools
        ),
        "spares": assumed_leaf("spares", f"{plan.spare_count}", plan.spare_reason or "none are needed"),
        "load_rate": leaves.constant("weights_load_bytes_per_s"),
        "warm": warm_leaf,
        "carried": path_input("per replica", main.rate_per_replica_per_s, carried),
        "decode_step_s": Input("decode step", format_si(one(pool.served.step_s), "s"), step, "f", ""),
        "lengths": _lengths(main, f"{at}.classes.{main.name}"),
    }


def _of_choices(choice: ServingChoice, leaves: Leaves, at: str, context: Context) -> Known:
    """What ways to serve that nobody decided on rest on, beside what the plan does."""
    accepted = accepted_drafts(choice.model, context)
    share, row = f"each at {100 * accepted.value:.0f} %", f"economics.csv {accepted.item}"
    return {
        "fabric": leaves.moved("nic_bytes_per_s", choice.offer),
        "acceptance": Input("accepted", share, "", "a", row),
        "prefixes": tuple(
            spec_leaf("prefixes", "equal leading blocks", f"{at}.classes.{load.name}.traffic.trace")
            for load in choice.loads
            if load.prefix_hits
        ),
    }
