"""What a gate believes of a replica's speed, and how much it sends to one: at the load that the plan expects.

Both follow from the plan alone, so that a rehearsal and a gateway believe and send the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from operator import mul

from twofold.contracts.results import serving
from twofold.inference.fleet import is_on_replica
from twofold.inference.measured import MeasuredService
from twofold.inference.replica import Replica
from twofold.inference.table import ServiceTable
from twofold.perf.types import one
from twofold.policy.gate.settings import Beliefs

# Requests sent to a replica over those that are in it while it just keeps its goals: room for chance, and
# no more, since further ones would slow all that it has.
IN_FLIGHT_RATIO = 1.5
DECODE = "decode"  # the part in which its answer is written
CHUNK_TOKENS = 2048.0  # of prompts beside which a token is judged
MOST_FRACTION = 0.95  # of what a replica carries at most, where beliefs are still finite


@dataclass(frozen=True, slots=True)
class MetLoad:
    """What a request meets on a replica."""

    batch_sequences: float  # whose answers are written at once, its own among them
    context_tokens: float  # that each of them holds, on average


def half_full(table: ServiceTable) -> MetLoad:
    """Half of the largest batch, its caches together as full as they may be: where no plan says more."""
    return MetLoad(table.max_batch / 2.0, table.kv_tokens / max(1.0, table.max_batch))


def planned_load(service: serving.ServicePlan, pool: serving.Pool, table: ServiceTable) -> MetLoad:
    """What a request meets at the pool's peak, as the plan has it.

    Formula  batch: 1 + peak rate · mean seconds of writing an answer / replicas that are needed (Little's
             law; an arrival meets the mean, and adds itself); context: input + what is written when it is met
    Why      the largest batch is what memory holds: of a small model on a large machine hundreds, where
             three requests run. What nobody will see is no belief.
    Limits   a class whose lengths or times the plan does not know is met half full.
    """
    served = [each for each in service.classes if each.name in pool.classes]
    writing_s = [_seconds(each, only=DECODE) for each in served]
    lengths = [(each.input_tokens, each.output_tokens) for each in served]
    if not all(writing_s) or not all(output for _, output in lengths):
        return half_full(table)
    needed = max(1, pool.replica_count - pool.spare_count)
    shares = [each.peak_per_s * lasts_s / needed for each, lasts_s in zip(served, writing_s, strict=True)]
    held = [
        # A sequence met decoding is half through an answer of E[n²]/E[n] tokens: long ones last.
        (each.input_tokens or 0.0) + (each.output_tokens or 0.0) * (1.0 + each.output_spread_ratio**2) / 2.0
        for each in served
    ]
    together = sum(shares)
    mean_held = float(sum(map(mul, shares, held))) / together if together else max(held)
    return MetLoad(1.0 + together, mean_held)


def replica_beliefs(replica: Replica, table: ServiceTable, met: MetLoad) -> Beliefs:
    """What a token takes on a replica under a load: beside its neighbours, not alone.

    Formula  input: (step with a chunk − step without) / chunk; output: the step without; first token: the
             engine's own delay and steps
    """
    batch = min(max(met.batch_sequences, 1.0), max(table.max_batch, 1.0))
    held = min(met.context_tokens, float(table.context_tokens[-1]), table.kv_tokens / batch)
    chunk = max(1.0, min(table.chunk_tokens, CHUNK_TOKENS))
    plain, carrying = (one(table.step_s(tokens, batch, held)) for tokens in (0.0, chunk))
    engine = replica.engine
    return Beliefs(
        input_token_s=max(0.0, carrying - plain) / chunk,
        output_token_s=plain,
        first_token_s=one(engine.first_token_s) + (1.0 + one(engine.first_token_steps)) * plain,
    )


def measured_beliefs(service: serving.ServicePlan, pool: serving.Pool, rows: MeasuredService) -> Beliefs:
    """What a request adds to a busy replica, put on its input, and what it takes at the peak to be answered.

    Formula  input token: service time of the largest batch / its requests / input tokens of a request
             first token: the mean that the rows give at the peak, spread over those that are needed
    """
    served = [each for each in service.classes if each.name in pool.classes]
    inputs = [each.input_tokens or 1.0 for each in served]
    request_s = rows.service_s[-1] / rows.batch_sizes[-1]
    needed = max(1, pool.replica_count - pool.spare_count)
    rate_per_s = min(sum(each.peak_per_s for each in served) / needed, MOST_FRACTION * rows.saturation_per_s)
    answered = rows.latency(rate_per_s, "ttft") or rows.latency(rate_per_s)
    assert answered is not None
    return Beliefs(
        input_token_s=request_s / (sum(inputs) / len(inputs)),
        output_token_s=0.0,
        first_token_s=one(answered.mean_s),
    )


def in_flight_limit(service: serving.ServicePlan, pool: serving.Pool, max_batch: float) -> int:
    """Requests that one replica may have at once, so that what it has keeps its goals.

    Formula  1.5 · rate within the goals · mean time of a request (Little's law), at most two batches
    Limits   classes that only promise a day's end fill two batches: nobody waits for a token. Beside classes
             that somebody waits for they fill one: the gate, which knows who goes first, holds the rest.
    """
    classes = [each for each in service.classes if each.name in pool.classes]
    mean_s = _mean_seconds(classes)
    waited_for = [each.is_waited_for for each in classes]
    batches = 2.0 if all(waited_for) or not any(waited_for) else 1.0
    inside = IN_FLIGHT_RATIO * pool.rate_per_replica_per_s * mean_s if any(waited_for) and mean_s else inf
    return max(1, ceil(min(inside, batches * max_batch)))


def _mean_seconds(classes: Sequence[serving.ClassPlan]) -> float:
    """Of a request on its replica, by how often each class asks."""
    together_s = sum(_seconds(each) * each.peak_per_s for each in classes)
    return together_s / max(sum(each.peak_per_s for each in classes), 1e-9)


def _seconds(planned: serving.ClassPlan, only: str = "") -> float:
    """Of a class's request on its replica, or in one part of its time there."""
    names = [part.name for part in planned.latency_budget if is_on_replica(part.name)]
    wanted = [only] if only else names
    return float(sum(part.value.value for part in planned.latency_budget if part.name in wanted))
