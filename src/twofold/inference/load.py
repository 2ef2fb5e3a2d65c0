"""What a replica does under load: static batches, closed loops, open arrivals, saturation, split phases.

One idea carries them: in a steady state each decoding sequence leaves after `output` steps and is replaced by
a prompt, so that a step decodes B sequences and prefills B·input/output tokens on average, whatever the rate.
Everything else follows from B: the step, the rate that keeps B busy, and the waits.
"""

from dataclasses import dataclass

import numpy as np

from twofold.inference.iteration import iteration_s, tokens_per_step
from twofold.inference.memory import max_sequences
from twofold.inference.types import Replica
from twofold.perf import Floats

NORMAL_P95, NORMAL_P99 = 1.645, 2.326
BURST_FRACTION = 0.1  # closed-loop benchmarks send about ten requests per slot, the first ones all at once


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and answer lengths of a class. Spreads are standard deviations over means (log-normal)."""

    input_tokens: Floats
    output_tokens: Floats
    input_spread: Floats = 0.0
    output_spread: Floats = 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency of a class, in seconds: its mean and upper quantiles."""

    mean_s: Floats
    p50_s: Floats
    p95_s: Floats
    p99_s: Floats


@dataclass(frozen=True, slots=True)
class Served:
    """What a replica delivers at one load. `utilisation_fraction` is of the rate that it can sustain."""

    ttft: Latency
    tpot: Latency
    e2e: Latency
    requests_per_s: Floats
    output_tokens_per_s: Floats
    batch_sequences: Floats  # decoding, on average
    step_s: Floats  # of a step that only decodes
    prefill_step_s: Floats  # of one that carries a prompt
    prefill_share_fraction: Floats  # of steps that carry prefill
    kv_fraction: Floats  # of the cache in use
    utilisation_fraction: Floats


@dataclass(frozen=True, slots=True)
class Steps:
    """The steady state at a batch: plain and prefill-carrying steps, and how they mix."""

    plain_s: Floats
    carrying_s: Floats
    carried_tokens: Floats
    share_fraction: Floats
    tpot_s: Floats
    full_s: Floats  # a step that carries a whole chunk


def batch_limit(replica: Replica, lengths: Lengths) -> Floats:
    """Sequences that decode at once: the scheduler's limit, or what the cache holds of half-finished ones.

    At least 1 where the model fits: a lone sequence is served, however long.
    """
    middle = lengths.input_tokens + np.asarray(lengths.output_tokens) / 2.0
    held = max_sequences(replica, middle, lengths.input_tokens)
    return np.where(np.asarray(held) > 0, np.clip(held, 1.0, replica.max_batch), 0.0)


def own_input_tokens(replica: Replica, lengths: Lengths) -> Floats:
    """Prompt tokens that must be computed: the shared prefix is found in the cache."""
    own: Floats = np.maximum(1.0, lengths.input_tokens * (1.0 - replica.cache.shared_prefix_fraction))
    return own


def chunk_tokens(replica: Replica) -> Floats:
    """Prefill tokens that one step of the replica may carry: each data-parallel rank has its own budget."""
    return replica.chunk_tokens * np.asarray(replica.dp)


def steady_steps(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Steps:
    """The steps of a replica that keeps `batch_sequences` decoding.

    Formula  P = B·input/output prefill tokens per step, carried as chunks of S = min(chunk, max(prompt, P));
             share q = P/S of the steps carry one; TPOT = ((1−q)·t(0,B) + q·t(S,B)) / tokens per step
    Why      An engine prefills whole prompts or chunks at once: most steps carry none, some a lot. Spreading
             the prefill evenly over all steps is wrong by several per cent (SKETCHES).
    Shapes   lengths and batch broadcast with the replica.
    Units    tokens, seconds.
    Limits   q ≤ 1: past that the batch cannot be kept full, and callers lower it (`sustained_batch`).
    """
    own = own_input_tokens(replica, lengths)
    gained = tokens_per_step(replica)
    per_step = batch_sequences * own * gained / np.maximum(lengths.output_tokens, 1.0)
    # Data-parallel ranks step together: engines let each carry a prompt, or one would stall all the others.
    abreast = np.minimum(replica.dp, np.maximum(1.0, np.asarray(batch_sequences) / 2.0))
    carried = np.minimum(chunk_tokens(replica), np.maximum(own * abreast, per_step))
    share = np.minimum(1.0, per_step / carried)
    context = lengths.input_tokens + np.asarray(lengths.output_tokens) / 2.0
    attended = lengths.input_tokens - own / 2.0
    plain = iteration_s(replica, 0.0, 0.0, batch_sequences, context).total_s
    carrying = iteration_s(replica, carried, attended, batch_sequences, context).total_s
    tpot = ((1.0 - share) * plain + share * carrying) / gained
    full = iteration_s(replica, chunk_tokens(replica), attended, batch_sequences, context).total_s
    return Steps(plain, carrying, carried, share, tpot, np.maximum(full, carrying))


def _token_s(steps: Steps, chunk: Floats) -> Floats:
    """What each further prefill token adds to a step that already carries some.

    Steps that prefill start with launches that no token can hide, so that the first tokens tell nothing.
    """
    further = np.asarray(chunk) - steps.carried_tokens
    whole = np.maximum(steps.carrying_s - steps.plain_s, 0.0) / steps.carried_tokens
    room = further > 0.01 * np.asarray(chunk)
    return np.where(room, (steps.full_s - steps.carrying_s) / np.where(room, further, 1.0), whole)


def sustained_batch(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Floats:
    """The batch that prefill can keep full: with a full chunk in every step, chunk·output/input sequences."""
    own = own_input_tokens(replica, lengths)
    fed = chunk_tokens(replica) * lengths.output_tokens / (own * tokens_per_step(replica))
    return np.minimum(batch_sequences, np.maximum(fed, 1.0))


def static_batch(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Served:
    """One batch that starts and ends together: prefill of all prompts, then output − 1 steps.

    Batches that the cache cannot hold run in waves. Throughput counts the prefill, as published tables do.
    """
    longest = lengths.input_tokens + np.asarray(lengths.output_tokens)
    held = np.maximum(1.0, np.floor(max_sequences(replica, longest, lengths.input_tokens)))
    waves = np.ceil(batch_sequences / held)
    size = np.asarray(batch_sequences) / waves
    prompts = size * own_input_tokens(replica, lengths)
    attended = lengths.input_tokens - own_input_tokens(replica, lengths) / 2.0
    first = iteration_s(replica, prompts, attended, 0.0, 0.0).total_s
    middle = lengths.input_tokens + np.asarray(lengths.output_tokens) / 2.0
    step = iteration_s(replica, 0.0, 0.0, size, middle).total_s
    tpot = step / tokens_per_step(replica)
    later = np.maximum(0.0, np.asarray(lengths.output_tokens) - 1.0) * tpot
    total = waves * (first + later)
    rate = batch_sequences / total
    return Served(
        flat_latency(first + (waves - 1.0) / 2.0 * (first + later)),
        flat_latency(tpot),
        flat_latency(total),
        rate,
        rate * lengths.output_tokens,
        size,
        step,
        first,
        np.zeros_like(step),
        np.minimum(1.0, size / held),
        np.ones_like(step),
    )


def closed_loop(
    replica: Replica, lengths: Lengths, concurrency: Floats, burst_fraction: Floats = BURST_FRACTION
) -> Served:
    """`concurrency` clients that each send their next request when the last one ends.

    Formula  B from C = λ·(TTFT + output·TPOT), λ = B/(output·TPOT); the first `burst_fraction` of requests
             arrive at once and wait for each other's prefill, the rest meets a steady queue
    Why      Little's law. Published closed-loop runs are short, so that their means hold the first burst.
    Shapes   arguments broadcast.
    Units    seconds, tokens/s over the whole replica.
    Source   SKETCHES, inference; fitted on public closed-loop runs.
    Limits   past the batch limit clients queue for a slot, and TTFT is that wait.
    """
    limit = batch_limit(replica, lengths)
    admitted = np.minimum(concurrency, np.maximum(limit, 1.0))
    batch = sustained_batch(replica, lengths, admitted)
    for _ in range(3):  # B and TTFT settle each other; a fourth round moves results by less than 1 %
        steps = steady_steps(replica, lengths, np.maximum(batch, 1e-3))
        decode_s = lengths.output_tokens * steps.tpot_s
        rate = batch / decode_s
        ttft = _steady_ttft(replica, lengths, steps, rate)
        in_prefill = np.minimum(rate * ttft.mean_s, 0.9 * admitted)
        batch = 0.5 * batch + 0.5 * sustained_batch(
            replica, lengths, np.maximum(admitted - in_prefill, np.minimum(admitted, 1.0) * 0.5)
        )
    rate = batch / decode_s
    outside = np.maximum(0.0, concurrency / rate - decode_s - ttft.mean_s)  # clients that wait for a slot
    burst = _burst_s(replica, lengths, steps, admitted)
    rounds = 1.0 - burst_fraction
    ttft = Latency(
        outside + rounds * ttft.mean_s + burst_fraction * np.maximum(burst, ttft.mean_s),
        outside + ttft.p50_s,
        outside + np.where(burst_fraction > 0.05, np.maximum(ttft.p95_s, burst), ttft.p95_s),
        outside + np.where(burst_fraction > 0.01, np.maximum(ttft.p99_s, 2.0 * burst), ttft.p99_s),
    )
    tpot = _tpot(replica, lengths, steps, batch, 0.0)
    rate = concurrency / (ttft.mean_s + decode_s)
    utilisation = np.minimum(1.0, concurrency / np.maximum(limit, 1.0))
    return served(replica, lengths, steps, batch, rate, ttft, tpot, utilisation)


def open_loop(replica: Replica, lengths: Lengths, rate_per_s: Floats) -> Served:
    """Requests that arrive at random (Poisson) at `rate_per_s`, whatever the replica does.

    Formula  the batch that an arrival meets, itself included: B = 1 + λ·output·TPOT(B); found by bisection
    Why      In a steady state B depends on the rate only through how long a request decodes.
    Shapes   arguments broadcast.
    Units    requests/s of the whole replica.
    Limits   above the sustainable rate `utilisation_fraction` exceeds 1 and latencies are infinite.
    """
    limit = sustained_batch(replica, lengths, batch_limit(replica, lengths))
    low, high = np.ones(np.broadcast_shapes(np.shape(rate_per_s), np.shape(limit))), limit + 1.0
    for _ in range(12):  # halves the logarithm: a thousandth of the batch in the end
        middle = np.sqrt(low * high)
        steps = steady_steps(replica, lengths, middle)
        below = (middle - 1.0) < rate_per_s * lengths.output_tokens * steps.tpot_s
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return at_batch(replica, lengths, np.sqrt(low * high), rate_per_s)


def at_batch(
    replica: Replica, lengths: Lengths, met_sequences: Floats, rate_per_s: Floats | None = None
) -> Served:
    """Open arrivals at the rate at which a request meets a batch of `met_sequences`, itself included.

    The points of a load curve: callers sweep the batch instead of searching the rate.
    """
    limit = sustained_batch(replica, lengths, batch_limit(replica, lengths))
    met = np.maximum(met_sequences, 1.0)
    steps = steady_steps(replica, lengths, met)
    decode_s = lengths.output_tokens * steps.tpot_s
    rate = (met - 1.0) / decode_s if rate_per_s is None else np.asarray(rate_per_s, float)
    full = steady_steps(replica, lengths, np.maximum(limit, 1.0))
    most = np.where(limit > 0, limit / (lengths.output_tokens * full.tpot_s), 0.0)
    utilisation = np.where(most > 0, rate / np.maximum(most, 1e-30), np.inf)
    ttft = _steady_ttft(replica, lengths, steps, rate)
    slot_s = _slot_wait_s(limit, decode_s, utilisation, lengths)
    ttft = Latency(ttft.mean_s + slot_s, ttft.p50_s, ttft.p95_s + 3.0 * slot_s, ttft.p99_s + 4.6 * slot_s)
    tpot = _tpot(replica, lengths, steps, met, np.sqrt(np.maximum(met - 1.0, 0.0)))
    over = np.where(utilisation > 1.0, np.inf, 0.0)
    ttft = Latency(*(over + each for each in (ttft.mean_s, ttft.p50_s, ttft.p95_s, ttft.p99_s)))
    return served(
        replica, lengths, steps, np.minimum(met, np.maximum(limit, 1.0)), rate, ttft, tpot, utilisation
    )


def max_throughput(replica: Replica, lengths: Lengths) -> Served:
    """All requests queued at once: the batch is as large as cache, scheduler and prefill allow."""
    limit = np.maximum(batch_limit(replica, lengths), 1.0)
    batch = sustained_batch(replica, lengths, limit)
    steps = steady_steps(replica, lengths, batch)
    decode_s = lengths.output_tokens * steps.tpot_s
    rate = batch / decode_s
    ttft = _steady_ttft(replica, lengths, steps, rate)
    return served(
        replica,
        lengths,
        steps,
        batch,
        rate,
        ttft,
        _tpot(replica, lengths, steps, batch, 0.0),
        np.ones_like(rate),
    )


def first_token_s(replica: Replica, step_s: Floats) -> Floats:
    """What passes between the end of prefill and the client's first token: handling, streaming interval."""
    return replica.engine.first_token_s + replica.engine.first_token_steps * np.asarray(step_s)


def flat_latency(seconds: Floats) -> Latency:
    """The same for every request."""
    return Latency(seconds, seconds, seconds, seconds)


def quantile_factor(spread: Floats, normal: float) -> Floats:
    """A log-normal's quantile over its mean, for a standard deviation of `spread` means."""
    sigma = np.sqrt(np.log1p(np.square(spread)))
    factor: Floats = np.exp(normal * sigma - 0.5 * np.square(sigma))
    return factor


def _steady_ttft(replica: Replica, lengths: Lengths, steps: Steps, rate_per_s: Floats) -> Latency:
    """Residual step + queue for prefill + own prefill + handling; quantiles add deviations in quadrature."""
    own = own_input_tokens(replica, lengths)
    mean_step = (1.0 - steps.share_fraction) * steps.plain_s + steps.share_fraction * steps.carrying_s
    mean_square = (1.0 - steps.share_fraction) * np.square(steps.plain_s) + steps.share_fraction * np.square(
        steps.carrying_s
    )
    residual = mean_square / (2.0 * mean_step)
    chunk = chunk_tokens(replica)
    chunk_s, per_token = steps.full_s, _token_s(steps, chunk)
    busy = np.minimum(np.asarray(rate_per_s) * own * chunk_s / chunk, 0.98)
    queue = np.square(busy) / (1.0 - busy) * chunk_s / 2.0
    service = np.maximum(1.0, own / np.minimum(steps.carried_tokens, replica.chunk_tokens)) * steps.carrying_s
    mean = residual + queue + service + first_token_s(replica, steps.plain_s)
    together = np.sqrt(np.asarray(rate_per_s) * steps.carrying_s) * own * per_token

    def upper(normal: float, exponential: float) -> Floats:
        longer = own * (quantile_factor(lengths.input_spread, normal) - 1.0) * per_token
        parts = (residual * 0.9, queue * exponential, longer, together * normal)
        return mean + np.sqrt(sum(np.square(part) for part in parts))

    return Latency(mean, mean - 0.3 * queue, upper(NORMAL_P95, 2.0), upper(NORMAL_P99, 3.6))


def _burst_s(replica: Replica, lengths: Lengths, steps: Steps, admitted: Floats) -> Floats:
    """Mean first-token time of `admitted` prompts sent at once: prefilled one chunk after another."""
    own = own_input_tokens(replica, lengths)
    chunk = chunk_tokens(replica)
    chunks = np.maximum(admitted * own / chunk, own / steps.carried_tokens)
    # Decoding grows from nothing to the whole batch meanwhile: half of it on average.
    further = np.maximum(np.minimum(chunk, admitted * own) - steps.carried_tokens, 0.0)
    each = steps.carrying_s - 0.5 * steps.plain_s + further * _token_s(steps, chunk)
    return (chunks + 1.0) / 2.0 * each + first_token_s(replica, steps.plain_s)


def _slot_wait_s(limit: Floats, decode_s: Floats, utilisation: Floats, lengths: Lengths) -> Floats:
    """Mean wait for one of `limit` slots (Sakasegawa 1977): ρ^(√(2(c+1))) / (1−ρ) · S/c · (1+v²)/2 · ρ^−1."""
    slots = np.maximum(limit, 1.0)
    busy = np.minimum(utilisation, 0.999)
    variability = (1.0 + np.square(lengths.output_spread)) / 2.0
    wait: Floats = (
        busy ** (np.sqrt(2.0 * (slots + 1.0)) - 1.0) / (1.0 - busy) * decode_s / slots * variability
    )
    return wait


def _tpot(
    replica: Replica, lengths: Lengths, steps: Steps, batch: Floats, batch_deviation: Floats
) -> Latency:
    """Mean, and quantiles from fuller batches than usual and from more prompts than usual in between."""
    context = lengths.input_tokens + np.asarray(lengths.output_tokens) / 2.0
    output = np.maximum(lengths.output_tokens, 1.0)
    fuller: Floats = 0.0
    if np.any(np.asarray(batch_deviation) > 0):
        more = iteration_s(replica, 0.0, 0.0, batch + batch_deviation, context).total_s
        fuller = np.maximum(0.0, more - steps.plain_s) / tokens_per_step(replica)
    share = steps.share_fraction
    interrupted = np.sqrt(share * (1.0 - share) / output) * np.maximum(steps.carrying_s - steps.plain_s, 0.0)
    deviation = np.sqrt(np.square(fuller) + np.square(interrupted))
    mean = steps.tpot_s + 0.0 * deviation
    return Latency(mean, mean, mean + NORMAL_P95 * deviation, mean + NORMAL_P99 * deviation)


def served(
    replica: Replica,
    lengths: Lengths,
    steps: Steps,
    batch: Floats,
    rate: Floats,
    ttft: Latency,
    tpot: Latency,
    utilisation: Floats,
) -> Served:
    """Put a load's parts together: end-to-end times, throughput and the cache's share in use."""
    output = np.asarray(lengths.output_tokens, float)
    later = np.maximum(0.0, output - 1.0)

    def upper(name: str, normal: float) -> Floats:
        longer = later * tpot.mean_s * (quantile_factor(lengths.output_spread, normal) - 1.0)
        late = np.where(np.isfinite(ttft.mean_s), getattr(ttft, name), 0.0) - np.where(
            np.isfinite(ttft.mean_s), ttft.mean_s, 0.0
        )
        slow = later * (getattr(tpot, name) - tpot.mean_s)
        spread: Floats = mean + np.sqrt(np.square(longer) + np.square(late) + np.square(slow))
        return spread

    mean = ttft.mean_s + later * tpot.mean_s
    middle = ttft.p50_s + later * tpot.mean_s * quantile_factor(lengths.output_spread, 0.0)
    held = max_sequences(replica, lengths.input_tokens + output / 2.0, lengths.input_tokens)
    return Served(
        ttft=ttft,
        tpot=tpot,
        e2e=Latency(mean, middle, upper("p95_s", NORMAL_P95), upper("p99_s", NORMAL_P99)),
        requests_per_s=rate,
        output_tokens_per_s=rate * output,
        batch_sequences=batch,
        step_s=steps.plain_s,
        prefill_step_s=steps.carrying_s,
        prefill_share_fraction=steps.share_fraction,
        kv_fraction=np.minimum(1.0, batch / np.maximum(held, 1e-30)),
        utilisation_fraction=utilisation,
    )
