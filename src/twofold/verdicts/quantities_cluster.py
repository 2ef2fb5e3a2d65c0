"""Quantities of queues, gangs, faults and arithmetic: small laws."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from math import ceil, comb

import numpy as np

from twofold.answer import loads
from twofold.answer.question import given
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.inference import stations
from twofold.inference.slo import Slo, TrafficClass, shared_load
from twofold.inference.steady import Lengths
from twofold.training.search import straggler_loss_fraction
from twofold.verdicts.quantities_serving import replica
from twofold.verdicts.world import World, one_of

ACCUMULATED_MAX = 1 << 16
COUNTED_MAX = 10_000  # servers or accelerators that the small laws below are summed over


def wait_share(world: World, servers: int, utilisation: float) -> float:
    """Mean wait of random arrivals at `servers` equal servers, in service times.

    Formula  C(c, a) / (c·(1 − ρ)), a = c·ρ, C Erlang's probability of waiting; M/M/c
    """
    if not 0 < utilisation < 1 or not 0 < servers <= COUNTED_MAX:
        raise InfeasibleError("a queue without end, or of more servers than are counted")
    return stations.erlang_wait_probability(servers, utilisation) / (servers * (1.0 - utilisation))


def servers_for(world: World, load: float, wait: float) -> int:
    """The fewest equal servers for a load of so many busy ones whose mean wait is at most `wait` services."""
    if not 0 < load < COUNTED_MAX or wait <= 0:
        raise InfeasibleError("no such number of servers")
    count = int(load) + 1
    while wait_share(world, count, load / count) > wait:
        count += 1
    return count


def stuck_share(world: World, gpus: int, needs: int) -> float:
    """How often two jobs of `needs` accelerators each deadlock on `gpus` when processes start one by one.

    Formula  1 − 2·C(m, n−m) / C(2m, n) for m ≤ n < 2m: n starts drawn from 2m, one job complete among them
    Why      Each job holds what it got and waits for the rest; no one gives up.
    """
    if not needs <= gpus < 2 * needs:
        return 0.0
    if needs > COUNTED_MAX:
        raise ValueRefusedError(f"jobs of more than {COUNTED_MAX:,} accelerators are not counted")
    return 1.0 - 2.0 * comb(needs, gpus - needs) / comb(2 * needs, gpus)


def straggler_loss(world: World, slower: float, slow_count: int, count: int) -> float:
    """Throughput that a job of `count` loses because `slow_count` of them take `slower` times as long."""
    return straggler_loss_fraction(np.array([1.0, slower]), [count - slow_count, slow_count])


def left_after_zone(world: World, replicas: int, zones: int) -> int:
    """Replicas that are left when the fullest of so many zones is lost."""
    return replicas - ceil(replicas / zones)


def beside_bulk(
    world: World, model: str, on: str, rate: float, bulk_rate: float, input: int = 500, bulk_input: int = 8000
) -> float:
    """p95 of the first token of short requests that share a replica with long ones, over having it alone."""
    made = replica(world, model, on)
    lengths = Lengths(float(input), 200.0)
    short = TrafficClass("short", lengths, rate, Slo())
    long = TrafficClass("long", Lengths(float(bulk_input), 500.0), bulk_rate, Slo())
    shared = shared_load(made, [short, long], short, rate + bulk_rate)
    alone = loads.served(made, lengths, loads.OpenLoop(rate))
    ratio = float(np.ravel(shared.ttft.p95_s)[0]) / float(np.ravel(alone.ttft.p95_s)[0])
    if not np.isfinite(ratio):
        raise InfeasibleError("the shared replica saturates")
    return ratio


def ridge(world: World, gpu: str) -> float:
    """FLOPs per byte above which 16-bit arithmetic binds, by the vendor's peaks."""
    return float(given(f"1x{gpu}", world.catalog, world.constants).cluster.device.ridge_flops_per_byte())


def passes(world: World, input: int, output: int, chunk: int = 8192) -> int:
    """Times that a request goes through the network: chunks of its prompt, then one for each token."""
    return ceil(input / chunk) + output - 1


def sum_error(world: World, number_format: str, count: int) -> float:
    """Relative error of adding 0.1 so many times, the sum kept in a format (`bf16`, `fp16` or `fp32`)."""
    if not 0 < count <= ACCUMULATED_MAX:
        raise ValueRefusedError(f"at most {ACCUMULATED_MAX:,} numbers are added")
    one_of(number_format, ("bf16", "fp16", "fp32"), "format of a sum")
    total = np.float32(0.0)
    for _ in range(count):
        total = _rounded(np.float32(total + np.float32(0.1)), number_format)
    return abs(float(total) - 0.1 * count) / (0.1 * count)


def _rounded(value: np.float32, number_format: str) -> np.float32:
    """A 32-bit number to the nearest of the format; bf16 keeps the upper half of the bits."""
    if number_format == "fp16":
        return np.float32(np.float16(value))
    if number_format == "fp32":
        return value
    bits = int(np.frombuffer(value.tobytes(), np.uint32)[0])
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.float32(np.frombuffer(np.uint32(kept).tobytes(), np.float32)[0])
