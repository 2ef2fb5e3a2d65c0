"""The answer to a serving question as data: ranges, parts of memory and time, what limits it, cost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from twofold.answer.cold_start import cold_start, cold_start_parts
from twofold.answer.quick_serve import Chosen, ServingQuestion, choose, replica_plan, under_load
from twofold.answer.ranges import Drawn, drawn, serving_power_spread
from twofold.answer.serve_figures import Figures, figures_of, scales_bytes
from twofold.answer.serve_tables import (
    FormatRow,
    LayoutRow,
    ReplicasRow,
    SwitchRow,
    format_rows,
    layout_rows,
    replica_rows,
    switch_rows,
)
from twofold.answer.serving_memory import buffers_bytes, cache_bytes, taken_bytes
from twofold.answer.uncertainty import draw_factors
from twofold.contracts.results import Bound, Machine, Part
from twofold.contracts.results import Replica as ReplicaPlan
from twofold.core import Estimate, Source, exact
from twofold.inference import (
    LatencyBudget,
    Replica,
    ReplicaCount,
    Served,
    capacity,
    communication_bytes_per_token,
    exchange_bytes_per_token,
    fleet_cost,
    iteration_s,
    kv_bytes,
    kv_bytes_per_token,
    latency_budget,
    max_sequences,
    max_throughput,
    mean_context_tokens,
    relieved,
    weights_bytes,
)
from twofold.perf import Constants, bytes_per_weight, compute_format, one

SCHEMA = "twofold/estimate-serve/1"
# As a plan names a resource -> as `relieved` does.
RESOURCES = {
    "memory bandwidth": "bandwidth",
    "compute": "compute",
    "memory capacity": "capacity",
    "link": "link",
    "host": "host",
}


@dataclass(frozen=True, slots=True)
class ServingTables:
    """Which tables an answer carries; replicas by their numbers."""

    names: frozenset[str] = frozenset()  # formats layouts switches
    replica_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingEstimate:
    """The answer, schema `twofold/estimate-serve/1`."""

    schema: str
    model: str
    parameters: int
    machine: Machine
    replica: ReplicaPlan
    compute_format: str  # what the matrix units run
    fallback: str  # why that is not what was asked; "" when it is
    input_tokens: float
    output_tokens: float
    load: str
    client_count: int | None  # of a closed loop; None where requests arrive at random
    memory_parts: tuple[Part, ...]  # of one accelerator, adding up to its capacity
    memory_capacity_bytes: float
    weights_bytes: float  # of the whole model, scales included
    scales_bytes: float  # of them
    kv_bytes_per_token: float
    kv_bytes_per_sequence: float  # of this question's lengths
    max_sequences: Estimate  # that the cache holds at once
    batch_sequences: float  # decoding, on average
    batch_limit: str  # which of the two keeps a full replica from serving more: bandwidth or capacity
    kv_fraction: float  # of the cache in use
    percentiles: Mapping[str, Estimate]  # ttft_p50 … e2e_p99, s
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    output_tokens_per_s_per_accelerator: Estimate
    output_tokens_per_j: Estimate  # tokens/s per watt
    power_w: Estimate  # of all accelerators
    usd_per_1k_output_tokens: Estimate | None  # None: no price
    step_s: Estimate  # a step that only decodes
    step_parts: tuple[Part, ...]  # of it
    communication_exposed_fraction: float  # of it
    latency_budget: tuple[Part, ...]  # edge, gateway, queue, prefill, decode
    cold_start_s: Estimate
    cold_start_parts: tuple[Part, ...]
    communication_bytes_per_token: float  # that one accelerator sends
    all_to_all_bytes_per_token: float  # by expert parallelism, all layers, all devices
    bounds: tuple[Bound, ...]
    formats: tuple[FormatRow, ...]
    layouts: tuple[LayoutRow, ...]
    switches: tuple[SwitchRow, ...]
    replicas: tuple[ReplicasRow, ...]
    warnings: tuple[str, ...]


def estimate_serving(
    question: ServingQuestion, constants: Constants, tables: ServingTables = ServingTables()
) -> ServingEstimate:
    """Choose the layout that answers soonest at the load, and tell everything about it.

    Raises InfeasibleError where nothing fits or the rate saturates every layout.
    """
    chosen, draws = choose(question, constants), draw_factors(constants)
    figures = figures_of(chosen, question, constants, draws)
    replica, served, machines = chosen.replica, chosen.served, question.machines
    tokens = figures.rate("output_tokens_per_s")
    watts = power_w(replica, served)
    lay = serving_power_spread(constants, replica.cluster.device)
    power = drawn(watts, watts * np.ravel(draws["power"]), lay)
    runs_in = compute_format(replica.cluster.device, replica.weights_format, replica.activation_format)
    step, parts = decode_step(replica, served, question, figures)
    names = tables.names
    rate = question.load_bytes_per_s or constants.get("weights_load_bytes_per_s")
    reading = replica, rate, draws
    return ServingEstimate(
        schema=SCHEMA,
        model=question.model.name,
        parameters=question.model.parameters,
        machine=machines.machine,
        replica=replace(replica_plan(chosen), engine=question.engine_text),
        compute_format=runs_in.format,
        fallback=runs_in.reason,
        input_tokens=question.input_tokens,
        output_tokens=question.output_tokens,
        load=question.load_text,
        client_count=None if question.concurrency is None else round(question.concurrency),
        memory_parts=memory_parts(replica, constants),
        memory_capacity_bytes=replica.cluster.device.memory_bytes,
        weights_bytes=one(weights_bytes(replica.shape, replica.weights_format).total_bytes),
        scales_bytes=scales_bytes(replica),
        kv_bytes_per_token=one(kv_bytes_per_token(replica.shape, replica.kv_format)),
        kv_bytes_per_sequence=one(kv_bytes(replica.shape, replica.kv_format, question.context_tokens)),
        max_sequences=sequences_estimate(replica, question, constants),
        batch_sequences=one(served.batch_sequences),
        batch_limit=limit_of_batch(replica, question),
        kv_fraction=one(served.kv_fraction),
        percentiles=figures.percentiles(),
        requests_per_s=figures.rate("requests_per_s").estimate("1/s"),
        output_tokens_per_s=tokens.estimate("tok/s"),
        output_tokens_per_s_per_accelerator=tokens.times(1 / machines.accelerator_count).estimate("tok/s"),
        output_tokens_per_j=power.inverse(tokens).estimate("tok/J"),
        power_w=power.estimate("W"),
        usd_per_1k_output_tokens=figures.usd_per_1k_output_tokens(),
        step_s=step.estimate("s"),
        step_parts=parts,
        communication_exposed_fraction=sum(p.share_fraction for p in parts if p.name == "communication"),
        latency_budget=_budget(latency_budget(served, question.output_tokens), figures),
        cold_start_s=cold_start(*reading).estimate("s", Source.ASSUMED),
        cold_start_parts=cold_start_parts(*reading),
        communication_bytes_per_token=one(communication_bytes_per_token(replica)),
        all_to_all_bytes_per_token=all_to_all_bytes(replica),
        bounds=load_bounds(replica, served, question),
        formats=format_rows(question, constants, draws) if "formats" in names else (),
        layouts=layout_rows(question, constants, draws) if "layouts" in names else (),
        switches=switch_rows(chosen, question) if "switches" in names else (),
        replicas=replica_rows(chosen, question, figures, tables.replica_counts),
        warnings=_warnings(question, chosen, runs_in.reason),
    )


def memory_parts(replica: Replica, constants: Constants) -> tuple[Part, ...]:
    """One accelerator's memory: weights, their scales, buffers, cache, and what the engine leaves free."""
    held, whole = capacity(replica), replica.cluster.device.memory_bytes
    total = one(weights_bytes(replica.shape, replica.weights_format).total_bytes)
    scales = one(held.weights_bytes) * scales_bytes(replica) / total
    taken = taken_bytes(replica, constants)
    named = {
        "weights": exact(one(held.weights_bytes) - scales, "B", Source.VENDOR),
        "scales": exact(scales, "B", Source.VENDOR),
        "buffers": buffers_bytes(replica, constants),
        "KV cache": cache_bytes(replica, constants),
        "held back": Estimate(whole - taken.value, whole - taken.high, whole - taken.low, "B", taken.source),
    }
    return tuple(Part(name, value, value.value / whole) for name, value in named.items() if value.value > 0)


def sequences_estimate(replica: Replica, question: ServingQuestion, constants: Constants) -> Estimate:
    """Requests of these lengths that the cache holds at once, over the range of what the cache gets."""
    middle = one(max_sequences(replica, question.context_tokens, question.input_tokens))
    cache = cache_bytes(replica, constants)
    whole = max(cache.value, 1.0)
    return Estimate(middle, middle * min(cache.low / whole, 1.0), middle * max(cache.high / whole, 1.0), "1")


def limit_of_batch(replica: Replica, question: ServingQuestion) -> str:
    """Which of a device's two limits keeps a full replica from serving more: `capacity` or `bandwidth`.

    `capacity` where a larger cache, which admits more sequences, gains more requests than faster memory does;
    `bandwidth` where the cache is not what is short.
    """

    def carried(resource: str) -> float:
        return one(max_throughput(relieved(replica, resource), question.lengths).requests_per_s)

    return "capacity" if carried("capacity") > carried("bandwidth") else "bandwidth"


def load_bounds(replica: Replica, served: Served, question: ServingQuestion) -> tuple[Bound, ...]:
    """What 20 % more of each resource would take off a whole answer at this load."""
    base = one(served.e2e.mean_s)
    gains = {
        name: 1 - one(under_load(relieved(replica, resource), question).e2e.mean_s) / base
        for name, resource in RESOURCES.items()
    }
    return tuple(Bound(name, max(gain, 0.0)) for name, gain in sorted(gains.items(), key=lambda g: -g[1]))


def decode_step(
    replica: Replica, served: Served, question: ServingQuestion, figures: Figures
) -> tuple[Drawn, tuple[Part, ...]]:
    """A step that only decodes at the batch of this load, and its parts; it spreads as TPOT does."""
    context = mean_context_tokens(question.lengths)
    step = iteration_s(replica, 0.0, 0.0, served.batch_sequences, context)
    later = figures.latency("tpot", "mean")
    whole = later.times(one(step.total_s) / later.middle)
    named = {
        "GEMM": step.gemm_s,
        "attention": step.attention_s,
        "experts": step.moe_s,
        "communication": step.communication_s,
        "elementwise": step.elementwise_s,
        "host": step.host_s,
    }
    shares = {name: one(value) / whole.middle for name, value in named.items() if one(value) > 0}
    return whole, tuple(Part(name, whole.times(share).estimate("s"), share) for name, share in shares.items())


def power_w(replica: Replica, served: Served) -> float:
    """Watts of all accelerators at the load."""
    return fleet_cost(replica, served, ReplicaCount(1, 0, 1), None, one(served.requests_per_s)).power_w


def all_to_all_bytes(replica: Replica) -> float:
    """Bytes that one token sends through all expert layers under expert parallelism; 0 without it."""
    if one(replica.shape.experts) == 0 or one(replica.ep) <= 1:
        return 0.0
    sent = bytes_per_weight(replica.activation_format)
    return one(exchange_bytes_per_token(replica.shape, replica.ep, sent)) * one(replica.shape.moe_layers)


def _budget(budget: LatencyBudget, figures: Figures) -> tuple[Part, ...]:
    """Where a request's time goes; the network's share is assumed, the rest ranges as its metric does."""
    first, later = figures.latency("ttft", "mean"), figures.latency("tpot", "mean")
    named: dict[str, tuple[float, Drawn | None]] = {
        "edge": (budget.edge_s, None),
        "gateway": (budget.gateway_s, None),
        "queue": (budget.queue_s, first),
        "prefill": (budget.prefill_s, first),
        "decode": (budget.decode_s, later),
    }
    parts = []
    for name, (value, whole) in named.items():
        ranges = whole is not None and value > 0
        figure = whole.times(value / whole.middle).estimate("s") if whole and ranges else exact(value, "s")
        parts.append(Part(name, figure, value / budget.total_s))
    return tuple(parts)


def _warnings(question: ServingQuestion, chosen: Chosen, fallback: str) -> tuple[str, ...]:
    used, count = round(one(chosen.replica.accelerator_count)), question.machines.accelerator_count
    idle = [f"{count - used} of {count} accelerators stay idle: no layout uses them"] if used < count else []
    return (*question.machines.warnings, *([fallback] if fallback else []), *idle)
