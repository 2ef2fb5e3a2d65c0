"""Quantities of fleets: replicas for a peak, what they need, and how soon they answer."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from twofold.core import InfeasibleError
from twofold.inference import cold_start_s, replicas_for, throughput_of
from twofold.perf import one
from twofold.verdicts.quantities_serving import limit, replica
from twofold.verdicts.quantities_serving_memory import gpus_to_serve
from twofold.verdicts.world import World


def replicas(world: World, peak_per_s: float, limit_per_s: float, zones: int = 1) -> int:
    """Replicas for a peak, with spares for failures and the loss of a zone."""
    return replicas_for(peak_per_s, limit_per_s, zones=zones).total


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
    count = gpus_to_serve(world, model, gpu, weights)
    while count <= 8:
        found = world.once(
            ("limit", model, gpu, count, weights, input, output),
            lambda n=count: limit(world, model, f"1x{n}x{gpu}", input=input, output=output, weights=weights),  # type: ignore[misc]
        )
        if found.requests_per_s > 0:
            return count * replicas(world, rate, found.requests_per_s)
        count *= 2
    raise InfeasibleError(f"no eight {gpu} keep the promises")


def replica_efficiency(world: World, model: str, on: str, count: int) -> float:
    """Throughput of `count` replicas behind a least-loaded router over `count` times one replica's."""
    found = limit(world, model, on)
    return float(throughput_of([count], found.requests_per_s, found.batch)[1][0])


def startup_s(world: World, model: str, on: str, bytes_per_s: float) -> float:
    """Seconds from a granted machine to the first answer, weights read at a rate."""
    return one(cold_start_s(replica(world, model, on), bytes_per_s))
