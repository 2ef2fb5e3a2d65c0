"""Ladders of a service: contexts, formats and tenancy of its plan's replica, hardware by model size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from twofold.answer import loads
from twofold.answer.context import Context, machine_of
from twofold.answer.ladder_training import Ladder, Rung, Value
from twofold.answer.offers import Offer, cluster_of, serving_offers
from twofold.answer.question import Given
from twofold.answer.quick_serve import ServingQuestion
from twofold.answer.ranges import serving_spread
from twofold.answer.refusals import machines_text
from twofold.answer.serve_tables import WEIGHT_FORMATS, figures_of, format_rows
from twofold.answer.serving_choice import ServingChoice, main_pool, named_offers, serving_stack
from twofold.answer.serving_replica import draw_replica
from twofold.catalog.types import Model
from twofold.core.estimate import Estimate
from twofold.inference.replica import Replica, chips_needed, max_sequences
from twofold.inference.search import Hardware, ModelVariant, search
from twofold.inference.slo import TrafficClass, bottleneck
from twofold.inference.steady import Lengths
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.software import engine_called, engine_software
from twofold.perf.types import Device, one

CONTEXTS = (8192, 32768, 131072)
ANSWER_TOKENS = 256.0
# A class of sizes, the parameters below which it lies, and a model that stands for it.
SIZE_CLASSES = (
    ("< 7 B", 7e9, "llama-3.2-3b"),
    ("7–70 B", 72e9, "qwen3-32b"),
    ("> 70 B", np.inf, "llama-3.1-405b"),
)
COMPARED_RATE_PER_S = 20.0  # parts are compared per device: a fleet of hundreds of replicas tells no more
SIZE_COLUMNS = (
    "accelerator_count", "weights_format", "feasible_formats", "tokens_per_s_per_accelerator",
    "usd_per_1k_tokens", "bound_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServingSite:
    """A service on the replica of its plan: the load is the batch that the replica decodes at peak."""

    choice: ServingChoice
    replica: Replica
    question: ServingQuestion  # of that replica's machines, its layout open


def serving_site(choice: ServingChoice, context: Context) -> ServingSite:
    """The replica that the plan of a service recommends for its interactive classes."""
    pool = main_pool(choice.fleet, choice.loads)
    traffic = next(load.traffic for load in choice.loads if load.name in pool.classes)
    replica = pool.replica
    software = engine_called(choice.entry.engine, context.catalog)
    question = ServingQuestion(
        model=choice.model,
        machines=_replica_machines(choice, pool.replica.accelerator_count, context),
        input_tokens=one(traffic.lengths.input_tokens),
        output_tokens=one(traffic.lengths.output_tokens),
        concurrency=max(1.0, float(round(one(pool.served.batch_sequences)))),
        weights_format=replica.weights_format,
        kv_format=replica.kv_format,
        engine_name=software,
        engine_version=engine_software(software).newest_release,
        chunk_tokens=one(replica.chunk_tokens),
    )
    return ServingSite(choice, replica, question)


def _replica_machines(choice: ServingChoice, accelerator_count: object, context: Context) -> Given:
    """The accelerators of one replica as machines of their own."""
    offer, count = choice.offer, round(float(np.max(np.asarray(accelerator_count, float))))
    per_node = min(count, offer.node.accelerator_count)
    nodes = -(-count // per_node)
    whole = cluster_of(offer, nodes, context.constants, context.catalog, context.spec.supply)
    cluster = replace(whole, accelerator_count=nodes * per_node)
    machine = machine_of(offer, nodes * per_node, context, per_node)
    return Given(offer.accelerator, offer.node, machine, offer.nic_bytes_per_s, cluster)


def context_of_service(site: ServingSite, context: Context) -> tuple[Ladder, ...]:
    """Longer contexts: cache bytes of one user, time to the first token of a lone one, users at once."""
    replica, model = site.replica, site.choice.model
    drawn = draw_replica(replica, model, context.constants, context.draws)
    rungs = []
    for length in CONTEXTS:
        lengths = Lengths(max(length - ANSWER_TOKENS, 1.0), ANSWER_TOKENS)
        alone = partial(loads.served, lengths=lengths, load=loads.MetBatch(1.0))
        lone = drawn.load(alone, lengths, "closed")
        users = min(one(max_sequences(replica, float(length))), one(replica.max_batch))
        values: dict[str, Value] = {
            "kv_bytes_per_user": one(replica.shape.kv_bytes(replica.kv_format, float(length))),
            "ttft_s": lone.latency("ttft", "mean").estimate("s"),
            "users_count": int(users),
        }
        beyond = length > model.max_context_tokens > 0
        none = "" if users >= 1 else "not one user fits"
        rungs.append(Rung(f"{length // 1024}k", values, "beyond the model's context" if beyond else none))
    title = f"context of {model.name} on one replica: {machines_text(site.question.machines)}"
    columns = ("kv_bytes_per_user", "ttft_s", "users_count")
    return (Ladder(title, "serving", site.choice.entry.name, columns, tuple(rungs)),)


def format_of_service(site: ServingSite, context: Context) -> tuple[Ladder, ...]:
    """Weight formats on the same accelerators under the same load."""
    machines, largest = site.question.machines, site.choice.offer.node.accelerator_count
    count = machines.accelerator_count
    needed = chips_needed(site.replica.shape, "bf16", machines.cluster.device.memory_bytes)
    # Doubled until 16-bit weights fit or the node has no more: as many as needed leave no room for a cache.
    while count <= needed and count * 2 <= largest:
        count *= 2
    if count > machines.accelerator_count:
        machines = _replica_machines(site.choice, count, context)
    question = replace(site.question, machines=machines)
    rows = format_rows(question, context.constants, context.draws, WEIGHT_FORMATS)
    accepted = ", ".join(site.choice.entry.quantisation or (site.choice.variant.published_format,))
    title = (
        f"weight formats of {site.choice.model.name} on {machines_text(question.machines)}, "
        f"{question.concurrency:g} requests at once"
    )
    columns = (
        "native", "weights_bytes", "sequences_count", "tpot_s", "output_tokens_per_s", "usd_per_1k_tokens",
    )  # fmt: skip
    notes = (f"this spec accepts {accepted}; quality is not compared here",)
    rungs = []
    for row in rows:
        values: dict[str, Value] = {
            "native": "yes" if row.supported else "no",
            "weights_bytes": row.weights_bytes,
            "scales_bytes": row.scales_bytes,
            "layout": row.layout,
            "sequences_count": None if row.max_sequences is None else int(row.max_sequences),
            "tpot_s": row.tpot_s,
            "output_tokens_per_s": row.output_tokens_per_s,
            "usd_per_1k_tokens": row.usd_per_1k_output_tokens,
        }
        rungs.append(Rung(row.weights_format, values, row.note))
    return (Ladder(title, "serving", site.choice.entry.name, columns, tuple(rungs), notes),)


def tenancy_of_service(site: ServingSite, context: Context) -> tuple[Ladder, ...]:
    """The same replica on bare metal and behind a hypervisor with the spec's overhead."""
    overhead, taken = context.spec.supply.virtual_overhead_fraction, site.choice.offer.overhead_fraction
    bare = site.replica.cluster.virtualised(1 / (1 + taken) - 1)
    rungs = []
    for label, share in (("bare metal", 0.0), ("virtual", overhead)):
        tenant = replace(site.replica, cluster=bare.virtualised(share))
        figures = figures_of(tenant, site.question, context.constants, context.draws)
        values: dict[str, Value] = {
            "overhead_fraction": share,
            "ttft_s": figures.seconds("ttft", "p95"),
            "tpot_s": figures.seconds("tpot", "p50"),
            "output_tokens_per_s": figures.rate("output_tokens_per_s").estimate("tok/s"),
            "usd_per_1k_tokens": figures.usd_per_1k_output_tokens(),
        }
        rungs.append(Rung(label, values))
    columns = ("overhead_fraction", "ttft_s", "tpot_s", "output_tokens_per_s", "usd_per_1k_tokens")
    title = f"tenancy: {machines_text(site.question.machines)}, one price for both"
    return (Ladder(title, "serving", site.choice.entry.name, columns, tuple(rungs)),)


def size_of_classes(site: ServingSite, context: Context) -> tuple[Ladder, ...]:
    """For each class of model sizes which hardware serves it cheapest within the promise, and why."""
    load = next((each for each in site.choice.loads if not each.is_batch), site.choice.loads[0])
    traffic = replace(load.traffic, rate_per_s=min(load.traffic.rate_per_s, COMPARED_RATE_PER_S))
    regions = site.choice.entry.regions or context.spec.supply.shop.regions
    parts: dict[str, list[Offer]] = {}  # of each part the nodes of every size
    for offer in serving_offers(context.catalog, context.spec.supply, regions).offers:
        parts.setdefault(offer.accelerator.name, []).append(offer)
    own, lower, ladders = site.choice.model, 0.0, []
    for label, upper, name in SIZE_CLASSES:  # the spec's own model stands for its class
        model = own if lower <= own.parameters < upper else context.catalog.model(name)
        formats = {part: _formats_that_fit(model, offers, context) for part, offers in parts.items()}
        found = [
            _hardware_rung(part, parts[part], " ".join(fitting), model, traffic, site, context)
            for part, fitting in formats.items()
            if fitting
        ]
        rungs = tuple(rung for *_, rung in sorted(found, key=lambda each: each[:2]))  # failures last
        small = [part for part, fitting in formats.items() if not fitting]
        notes = (
            "bound by: and what 20 % more of it gains",
            "*: widened to 16 bits for the products: less to read, no faster to multiply",
            *([f"no format fits one node of {', '.join(small)}"] if small else []),
        )
        title = f"{label}: {model.name} within the promise of `{traffic.name}`, cheapest token first"
        ladders.append(Ladder(title, "serving", site.choice.entry.name, SIZE_COLUMNS, rungs, notes))
        lower = upper
    return tuple(ladders)


def _formats_that_fit(model: Model, offers: Sequence[Offer], context: Context) -> list[str]:
    """Formats in which the weights fit the largest node of a part; those that are widened have a star."""
    largest = max(offers, key=lambda each: each.node.accelerator_count)
    device = cluster_of(largest, 1, context.constants, context.catalog, context.spec.supply).device
    return [
        starred(fmt, device)
        for fmt in WEIGHT_FORMATS
        if chips_needed(ModelShape.of(model), fmt, device.memory_bytes) <= largest.node.accelerator_count
    ]


def starred(fmt: str, device: Device) -> str:
    """A format's name, with a star where products of it run in 16 bits."""
    return f"{fmt}*" if device.widens(fmt) else fmt


def _hardware_rung(
    part: str,
    offers: Sequence[Offer],
    formats: str,
    model: Model,
    traffic: TrafficClass,
    site: ServingSite,
    context: Context,
) -> tuple[bool, float, Rung]:
    """How a part serves a model under one promise: whether it fails, dollars per token, the row."""
    entry, supply, constants = site.choice.entry, context.spec.supply, context.constants
    hardware = []
    for name, offer in named_offers(offers).items():
        stack = serving_stack(offer, entry.engine, constants, context.catalog, supply, model_kind(model))
        price, size = offer.usd_per_accelerator_h, offer.replica_count_max
        hardware.append(Hardware(name, *stack, price, entry.quantisation, size))
    found = search([ModelVariant.of(model)], [traffic], hardware, availability_fraction=0.0)
    if found.best is None:
        why = found.binding.removeprefix("memory: ").partition(": ")[2] or found.binding
        return True, inf, Rung(part, {"feasible_formats": formats}, why)
    pool = found.best.pools[0]
    chosen = next(each for each in hardware if each.name == pool.offer)
    device, driven = chosen.cluster.device, chosen.engine
    price = chosen.price_usd_per_accelerator_h
    binds, gain = next(iter(bottleneck(pool.replica, traffic).items()))
    count = one(pool.replica.accelerator_count)
    tokens = pool.limit_per_s * float(np.mean(traffic.lengths.output_tokens)) / count
    cost = None if price is None else price / 3600.0 / tokens * 1e3
    spread = serving_spread(constants, model, "output", "saturated", device, driven)
    low, high = (spread.low_factor, spread.high_factor) if spread else (1.0, 1.0)
    values: dict[str, Value] = {
        "feasible_formats": formats,
        "accelerator_count": round(count),
        "weights_format": starred(pool.replica.weights_format, device),
        "tokens_per_s_per_accelerator": _between(tokens, low, high, "tok/s"),
        "usd_per_1k_tokens": None if cost is None else _between(cost, 1 / high, 1 / low, "USD"),
        "bound_by": f"{binds} +{100 * gain:.0f} %",
    }
    return False, cost or inf, Rung(part, values)


def _between(value: float, low: float, high: float, unit: str) -> Estimate:
    return Estimate(value, value * min(low, 1.0), value * max(high, 1.0), unit)
