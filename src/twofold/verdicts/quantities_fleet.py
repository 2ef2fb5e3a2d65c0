"""Quantities of what serving must hold and of fleets: weights, caches, replicas for a peak, their start."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from twofold.answer.quick_serve import ServingQuestion, make_replica
from twofold.core.errors import InfeasibleError
from twofold.inference.curve import load_axis
from twofold.inference.fleet import ReplicaCount, cold_start_s, throughput_of
from twofold.inference.replica import CacheOptions, capacity, max_sequences
from twofold.inference.slo import rate_limit
from twofold.inference.steady import Lengths
from twofold.perf.shape import ModelShape
from twofold.perf.types import one
from twofold.verdicts.machines import machines
from twofold.verdicts.quantities_serving import PROMISED, limit, replica
from twofold.verdicts.world import World

SPLITS = (1, 2, 4, 8)


def kv_cache(world: World, model: str, context: int, kv: str = "bf16", sequences: int = 1) -> float:
    """Cache bytes of sequences of `context` tokens."""
    return sequences * one(ModelShape.of(world.catalog.model(model)).kv_bytes(kv, float(context)))


def kv_cache_without_groups(world: World, model: str, context: int) -> float:
    """Cache bytes of one sequence, were every query head to keep keys and values of its own."""
    shape = ModelShape.of(world.catalog.model(model))
    return one(replace(shape, kv_heads=shape.heads).kv_bytes("bf16", float(context)))


def weights(world: World, model: str, number_format: str = "bf16") -> float:
    """Bytes of a model's weights, scales included."""
    return one(ModelShape.of(world.catalog.model(model)).weights_bytes(number_format).total_bytes)


def weights_read_fraction(world: World, model: str, batch: int = 1) -> float:
    """Share of a model's weights that each token of a decode step of `batch` sequences accounts for.

    Every weight is read once for the whole batch; of the experts those that any sequence visits.
    """
    shape = world.catalog.model(model)
    if not shape.experts:
        return 1.0 / batch
    parts = ModelShape.of(shape).weights_bytes("bf16")
    touched = 1.0 - (1.0 - shape.experts_topk / shape.experts) ** batch
    total, experts = one(parts.total_bytes), one(parts.experts_bytes)
    return (total - experts + experts * touched) / total / batch


def sequences(
    world: World,
    model: str,
    on: str,
    context: int,
    weights: str = "bf16",
    kv: str = "bf16",
    block: int = 16,
    offload: float = 0.0,
) -> float:
    """Sequences of `context` tokens that the cache holds at once; `block` tokens are set aside together."""
    made = replica(world, model, on, weights, kv)
    made = replace(made, cache=CacheOptions(block_tokens=float(block), offload_bytes=offload))
    return one(max_sequences(made, float(context)))


def holds(
    world: World, model: str, on: str, weights: str = "bf16", context: int = 4096, users: int = 1
) -> bool:
    """Whether weights and the cache of so many users fit the machines."""
    try:
        return sequences(world, model, on, context, weights) >= users
    except InfeasibleError:
        return False


def gpus_to_serve(
    world: World, model: str, gpu: str, weights: str = "bf16", context: int = 4096, users: int = 8
) -> int:
    """The fewest accelerators, a power of two, that hold the weights and `users` of `context` tokens."""

    def compute() -> int | None:
        sizes = (1, 2, 4, 8, 16, 32)
        return next((n for n in sizes if holds(world, model, f"1x{n}x{gpu}", weights, context, users)), None)

    found = world.once(("fewest", model, gpu, weights, context, users), compute)
    if found is None:
        raise InfeasibleError(f"{model} does not fit 32 {gpu}")
    return found


def buffers_bytes(world: World, model: str, on: str) -> float:
    """Bytes of one accelerator beside weights and cache: a chunk's activations, logits, graphs."""
    return one(capacity(replica(world, model, on)).buffers_bytes)


def replicas(world: World, peak_per_s: float, limit_per_s: float, zones: int = 1) -> int:
    """Replicas for a peak, with spares for failures and the loss of a zone."""
    return ReplicaCount.of(peak_per_s, limit_per_s, zones=zones).total


def carried(
    world: World, model: str, gpu: str, weights: str = "bf16", input: int = 1000, output: int = 200
) -> Mapping[int, float]:
    """Requests/s within 1 s and 50 ms per token of one replica on 1, 2, 4 and 8 accelerators, all at once."""

    def compute() -> Mapping[int, float]:
        found, served = machines(world, f"8x{gpu}"), world.catalog.model(model)
        splits = np.array([tp for tp in SPLITS if served.heads % tp == 0], float)
        question = ServingQuestion(served, found, 0.0, 0.0, weights_format=weights)
        made = load_axis(replace(make_replica(question, world.constants), tp=splits))
        traffic = replace(PROMISED, lengths=Lengths(float(input), float(output)))
        rates = np.asarray(rate_limit(made, traffic).requests_per_s, float)
        finite = np.where(np.isfinite(rates), rates, 0.0)
        return {int(tp): float(rate) for tp, rate in zip(splits, finite, strict=True)}

    return world.once(("carried", model, gpu, weights, input, output), compute)


def gpus_for_rate(
    world: World,
    model: str,
    gpu: str,
    rate: float,
    weights: str = "bf16",
    input: int = 1000,
    output: int = 200,
) -> int:
    """Accelerators whose replicas carry a peak of `rate` requests/s within 1 s and 50 ms per token."""
    fewest = gpus_to_serve(world, model, gpu, weights)
    if fewest > max(SPLITS):
        raise InfeasibleError(f"{model} does not fit eight {gpu}")
    for count, limit_per_s in carried(world, model, gpu, weights, input, output).items():
        if count >= fewest and limit_per_s > 0:
            return count * replicas(world, rate, limit_per_s)
    raise InfeasibleError(f"no eight {gpu} keep the promises")


def replica_efficiency(world: World, model: str, on: str, count: int) -> float:
    """Throughput of `count` replicas behind a least-loaded router over `count` times one replica's."""
    found = limit(world, model, on)
    return float(throughput_of([count], found.requests_per_s, found.batch)[1][0])


def startup_s(world: World, model: str, on: str, bytes_per_s: float) -> float:
    """Seconds from a granted machine to the first answer, weights read at a rate."""
    return one(cold_start_s(replica(world, model, on), bytes_per_s))
