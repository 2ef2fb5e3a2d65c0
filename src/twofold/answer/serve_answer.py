"""The answer to a serving question as data: ranges, parts of memory and time, what limits it, cost."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twofold.answer import loads, serve_tables
from twofold.answer.calibrated import calibration_notes, service_scope, with_letters
from twofold.answer.quick_serve import Chosen, ServingQuestion, choose
from twofold.answer.ranges import Drawn, drawn, serving_power_spread
from twofold.answer.serving_replica import (
    cold_start,
    exchanged_bytes,
    layout_text,
    memory_by_part,
    parts_of,
    replica_plan,
    scales_bytes,
    taken_bytes,
)
from twofold.answer.uncertainty import draw_factors
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Bound, Machine, Part
from twofold.core.estimate import Estimate, Source, exact
from twofold.inference.fleet import LatencyBudget, replicas_power_w
from twofold.inference.latency import Served
from twofold.inference.replica import Replica, communication_bytes_per_token
from twofold.inference.slo import RESOURCES, relieved
from twofold.perf.constants import Constants
from twofold.perf.types import one

SCHEMA = "twofold/estimate-serve/1"
OPERATORS = {"gemm": "GEMM", "moe": "experts"}  # parts of a step that screens call otherwise


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
    replica: serving.Replica
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
    formats: tuple[serve_tables.FormatRow, ...]
    layouts: tuple[serve_tables.LayoutRow, ...]
    switches: tuple[serve_tables.SwitchRow, ...]
    replicas: tuple[serve_tables.ReplicasRow, ...]
    warnings: tuple[str, ...]


def estimate_serving(
    question: ServingQuestion, constants: Constants, tables: ServingTables = ServingTables()
) -> ServingEstimate:
    """Choose the layout that answers soonest at the load, and tell everything about it.

    Raises InfeasibleError where nothing fits or the rate saturates every layout.
    """
    chosen, draws = choose(question, constants), draw_factors(constants)
    replica, served, machines = chosen.replica, chosen.served, question.machines
    figures = serve_tables.figures_of(replica, question, constants, draws)
    tokens = figures.rate("output_tokens_per_s")
    watts = replicas_power_w(replica, served.batch_sequences, 1)
    lay = serving_power_spread(constants, replica.cluster.device)
    power = drawn(watts, watts * np.ravel(draws["power"]), lay)
    runs_in = replica.cluster.device.compute_format(replica.weights_format, replica.activation_format)
    step, parts = decode_step(replica, served, question, figures)
    rate = question.load_bytes_per_s or constants.get("weights_load_bytes_per_s")
    start, start_parts = cold_start(replica, rate, draws, constants)
    scope = service_scope(replica.cluster.device, replica.engine)
    notes = calibration_notes(constants, {"this": scope})
    exchanges = one(replica.shape.experts) > 0 and one(replica.ep) > 1  # between expert ranks
    estimate = ServingEstimate(
        schema=SCHEMA,
        model=question.model.name,
        parameters=question.model.parameters,
        machine=machines.machine,
        replica=replica_plan(
            replica, question.engine_text, round(one(replica.max_batch)), layout_text(replica, "TP 1")
        ),
        compute_format=runs_in.format,
        fallback=runs_in.reason,
        input_tokens=question.input_tokens,
        output_tokens=question.output_tokens,
        load=question.load_text,
        client_count=None if question.concurrency is None else round(question.concurrency),
        memory_parts=memory_parts(replica, constants),
        memory_capacity_bytes=replica.cluster.device.memory_bytes,
        weights_bytes=one(replica.shape.weights_bytes(replica.weights_format).total_bytes),
        scales_bytes=scales_bytes(replica),
        kv_bytes_per_token=one(replica.shape.kv_bytes_per_token(replica.kv_format)),
        kv_bytes_per_sequence=one(replica.shape.kv_bytes(replica.kv_format, question.context_tokens)),
        max_sequences=_sequences(replica, question, constants),
        batch_sequences=one(served.batch_sequences),
        batch_limit=limit_of_batch(replica, question),
        kv_fraction=one(served.kv_fraction),
        percentiles=figures.load.percentiles(),
        requests_per_s=figures.rate("requests_per_s").estimate("1/s"),
        output_tokens_per_s=tokens.estimate("tok/s"),
        output_tokens_per_s_per_accelerator=tokens.times(1 / machines.accelerator_count).estimate("tok/s"),
        output_tokens_per_j=power.inverse(tokens).estimate("tok/J"),
        power_w=power.estimate("W"),
        usd_per_1k_output_tokens=figures.usd_per_1k_output_tokens(),
        step_s=step.estimate("s"),
        step_parts=parts,
        communication_exposed_fraction=sum(p.share_fraction for p in parts if p.name == "communication"),
        latency_budget=_budget(LatencyBudget.of(served, question.output_tokens), figures),
        cold_start_s=start,
        cold_start_parts=start_parts,
        communication_bytes_per_token=one(communication_bytes_per_token(replica)),
        all_to_all_bytes_per_token=one(exchanged_bytes(replica)) if exchanges else 0.0,
        bounds=load_bounds(replica, served, question),
        formats=serve_tables.format_rows(question, constants, draws) if "formats" in tables.names else (),
        layouts=serve_tables.layout_rows(question, constants, draws) if "layouts" in tables.names else (),
        switches=serve_tables.switch_rows(chosen, question) if "switches" in tables.names else (),
        replicas=serve_tables.replica_rows(chosen, question, figures, tables.replica_counts),
        warnings=(*_warnings(question, chosen, runs_in.reason), *notes),
    )
    return with_letters(estimate, machines.accelerator.name, constants, scope)


def memory_parts(replica: Replica, constants: Constants) -> tuple[Part, ...]:
    """One accelerator's memory: weights, their scales, buffers, cache, and what the engine leaves free."""
    held, whole = memory_by_part(replica, constants), replica.cluster.device.memory_bytes
    total = one(replica.shape.weights_bytes(replica.weights_format).total_bytes)
    scales = held["weights"].value * scales_bytes(replica) / total
    taken = taken_bytes(replica, constants)
    named = {
        "weights": exact(held["weights"].value - scales, "B", Source.VENDOR),
        "scales": exact(scales, "B", Source.VENDOR),
        "buffers": held["buffers"],
        "KV cache": held["KV cache"],
        "held back": Estimate(whole - taken.value, whole - taken.high, whole - taken.low, "B", taken.source),
    }
    return parts_of(named, whole)


def _sequences(replica: Replica, question: ServingQuestion, constants: Constants) -> Estimate:
    """Requests of these lengths that the cache holds at once, over the range of what the cache gets."""
    middle = one(question.held_by(replica))
    cache = memory_by_part(replica, constants)["KV cache"]
    whole = max(cache.value, 1.0)
    return Estimate(middle, middle * min(cache.low / whole, 1.0), middle * max(cache.high / whole, 1.0), "1")


def limit_of_batch(replica: Replica, question: ServingQuestion) -> str:
    """Which of a device's two limits keeps a full replica from serving more: `capacity` or `bandwidth`.

    `capacity` where a larger cache, which admits more sequences, gains more requests than faster memory does;
    `bandwidth` where the cache is not what is short.
    """

    def carried(resource: str) -> float:
        larger = relieved(replica, resource)
        return one(loads.served(larger, question.lengths, loads.Saturation()).requests_per_s)

    return "capacity" if carried("capacity") > carried("bandwidth") else "bandwidth"


def load_bounds(replica: Replica, served: Served, question: ServingQuestion) -> tuple[Bound, ...]:
    """What 20 % more of each resource would take off a whole answer at this load."""
    base = one(served.e2e.mean_s)
    gains = {
        name: 1 - one(question.served_by(relieved(replica, resource)).e2e.mean_s) / base
        for resource, name in RESOURCES.items()
    }
    return tuple(Bound(name, max(gain, 0.0)) for name, gain in sorted(gains.items(), key=lambda g: -g[1]))


def decode_step(
    replica: Replica, served: Served, question: ServingQuestion, figures: serve_tables.Figures
) -> tuple[Drawn, tuple[Part, ...]]:
    """A step that only decodes at the batch of this load, and its parts; it spreads as TPOT does."""
    step = loads.decode_step(replica, served.batch_sequences, question.lengths.mean_context_tokens)
    later = figures.load.latency("tpot", "mean")
    whole = later.times(one(step.total_s) / later.middle)
    named = {OPERATORS.get(name, name): one(value) for name, value in step.by_name().items()}
    shares = {name: value / whole.middle for name, value in named.items() if value > 0}
    return whole, tuple(Part(name, whole.times(share).estimate("s"), share) for name, share in shares.items())


def _budget(budget: LatencyBudget, figures: serve_tables.Figures) -> tuple[Part, ...]:
    """Where a request's time goes; the network's share is assumed, the rest ranges as its metric does."""
    first, later = figures.load.latency("ttft", "mean"), figures.load.latency("tpot", "mean")
    ranging = {"queue": first, "prefill": first, "decode": later}
    parts = []
    for name, value in budget.by_name().items():
        whole = ranging.get(name)
        figure = whole.times(value / whole.middle).estimate("s") if whole and value > 0 else exact(value, "s")
        parts.append(Part(name, figure, value / budget.total_s))
    return tuple(parts)


def _warnings(question: ServingQuestion, chosen: Chosen, fallback: str) -> tuple[str, ...]:
    used, count = round(one(chosen.replica.accelerator_count)), question.machines.accelerator_count
    idle = [f"{count - used} of {count} accelerators stay idle: no layout uses them"] if used < count else []
    return (*question.machines.warnings, *([fallback] if fallback else []), *idle)
