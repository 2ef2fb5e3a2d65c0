"""Loads that a replica may be asked to carry, what it serves under each, and the steps that it does.

The formulas are `inference.regimes`; which of them answers a load is decided here, for all who ask.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from twofold.inference import regimes
from twofold.inference.iteration import Iteration, iteration_s
from twofold.inference.latency import Latency, Served, answer_latency
from twofold.inference.parted import parted
from twofold.inference.replica import Replica
from twofold.inference.slo import Slo, TrafficClass
from twofold.inference.steady import Lengths
from twofold.perf.types import Floats, one

SUSTAINED_FRACTION = 0.95  # of saturation, up to which a measured rate is taken at its word


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients that each send their next request when the last one ends."""

    client_count: Floats
    burst_fraction: Floats = regimes.BURST_FRACTION  # of the requests, that come first and at once
    together_fraction: Floats = 0.0  # of a chunk's worth of clients, whose prompts a step carries together


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests that arrive at random, whatever the replica does."""

    rate_per_s: Floats
    fleet_per_s: float = 0.0  # of all replicas behind one gate; 0: this one alone


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """A rate that somebody measured, so that it was sustained; or chose as the highest within a limit."""

    rate_per_s: Floats
    limits_s: tuple[Floats, ...] = ()  # on p99 of TPOT, of which it meets one
    habits: regimes.LimitHabits | None = None  # of those who choose so
    request_count: Floats = np.nan  # of a run that may be above capacity; NaN: the rate was sustained


@dataclass(frozen=True, slots=True)
class Burst:
    """So many requests at once, in front of a replica that is empty."""

    request_count: Floats


@dataclass(frozen=True, slots=True)
class Saturation:
    """All requests at once: as much as the replica carries."""


@dataclass(frozen=True, slots=True)
class StaticBatch:
    """One batch that starts and ends together."""

    sequences: Floats


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """A batch that was seen decoding, one request in for one out."""

    sequences: Floats


@dataclass(frozen=True, slots=True)
class MetBatch:
    """Random arrivals at the rate at which a request meets so many, itself included."""

    sequences: Floats


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Clients in a closed loop whose prompts other workers prefill; the replica is one that decodes."""

    client_count: Floats
    prefill: Replica
    prefill_worker_count: Floats
    decode_worker_count: Floats


@dataclass(frozen=True, slots=True)
class OpenDisaggregated:
    """Requests that arrive at random, prefilled by other workers; the replica is one that decodes."""

    rate_per_s: float  # at all workers together
    prefill: Replica
    prefill_worker_count: float
    decode_worker_count: float


Load = (
    ClosedLoop | OpenLoop | SustainedRate | Burst | Saturation | StaticBatch | HeldBatch | MetBatch
    | Disaggregated | OpenDisaggregated
)  # fmt: skip


def served(replica: Replica, lengths: Lengths, load: Load) -> Served:
    """What a replica delivers to requests of these lengths under a load; arrays over what the replica is."""
    match load:
        case ClosedLoop():
            return regimes.closed_loop(
                replica, lengths, load.client_count, load.burst_fraction, load.together_fraction
            )
        case OpenLoop():
            return regimes.open_loop(replica, lengths, load.rate_per_s, fleet_per_s=load.fleet_per_s)
        case SustainedRate():
            return _sustained(replica, lengths, load)
        case Burst():
            return regimes.finite_run(replica, lengths, load.request_count)
        case Saturation():
            return regimes.max_throughput(replica, lengths)
        case StaticBatch():
            return regimes.static_batch(replica, lengths, load.sequences)
        case HeldBatch():
            return regimes.held_batch(replica, lengths, load.sequences)
        case MetBatch():
            return regimes.at_batch(replica, lengths, load.sequences)
        case Disaggregated():
            workers = load.prefill_worker_count, load.decode_worker_count
            return regimes.disaggregated(load.prefill, replica, lengths, load.client_count, *workers)
        case OpenDisaggregated():
            own = TrafficClass("", lengths, load.rate_per_s, Slo(), one(replica.cache.shared_prefix_fraction))
            workers = load.prefill_worker_count, load.decode_worker_count
            return parted(load.prefill, replica, (own,), own, load.rate_per_s, *workers)
        case _:
            assert_never(load)


def bounds(replica: Replica, lengths: Lengths, load: Load, found: Served) -> dict[str, Floats]:
    """What the datasheet leaves possible of what was found: least `ttft`, `tpot`, `e2e`, most `output`."""
    clients = load.client_count if isinstance(load, ClosedLoop | Disaggregated) else np.inf
    if not isinstance(load, Disaggregated | OpenDisaggregated):
        return found.bounds(replica, lengths, clients)
    own = found.bounds(replica, lengths, clients / load.decode_worker_count)
    first = found.bounds(load.prefill, lengths)["ttft"]
    later, most = own["e2e"] - own["ttft"], own["output"] * load.decode_worker_count
    return {"ttft": first, "tpot": own["tpot"], "e2e": first + later, "output": most}


def _sustained(replica: Replica, lengths: Lengths, load: SustainedRate) -> Served:
    """Near saturation our error must not become a queue that was not there."""
    rate = np.minimum(load.rate_per_s, SUSTAINED_FRACTION * regimes.most_per_s(replica, lengths))
    found = regimes.open_loop(replica, lengths, rate)
    if load.habits is None:
        # The run's own queue where its requests were counted and its rate is too close to capacity for ours.
        above = np.asarray(load.rate_per_s > rate) & np.isfinite(load.request_count)
        if not np.any(above):
            return found
        run = regimes.finite_run(replica, lengths, load.request_count, load.rate_per_s)
        either: Served = _either(above, run, found)
        return either
    mean_s, limit_s = regimes.near_limit_s(replica, lengths, load.rate_per_s, load.limits_s, load.habits)
    # The rate was valid: whatever our queues say, 99 of 100 answers kept to its limit.
    later = (np.clip(each, mean_s, limit_s) for each in (found.tpot.p95_s, found.tpot.p99_s))
    tpot = Latency(mean_s, mean_s, *later)
    return replace(found, tpot=tpot, e2e=answer_latency(lengths, found.ttft, tpot))


def _either(mask: NDArray[np.bool_], one: Any, other: Any) -> Any:
    """Of two answers the one where `mask` holds, number by number."""
    if isinstance(one, float | np.ndarray):
        return np.where(mask, one, other)
    both = {f.name: _either(mask, getattr(one, f.name), getattr(other, f.name)) for f in fields(one)}
    return replace(one, **both)


def decode_step(replica: Replica, sequences: Floats, context_tokens: Floats) -> Iteration:
    """A step that decodes so many sequences of so much context and prefills none."""
    return iteration_s(replica, 0.0, 0.0, sequences, context_tokens)


def prefill_step(replica: Replica, tokens: Floats) -> Iteration:
    """A step that prefills one prompt of so many tokens and decodes none."""
    return iteration_s(replica, tokens, tokens / 2.0, 0.0, 0.0)
