"""What a replica does under load: static batches, closed loops, open arrivals, saturation; or two stations,
one that prefills and one that decodes."""

from dataclasses import dataclass, replace

import numpy as np

from twofold.inference.curve import (
    LoadCurve,
    load_axis,
    met_at,
    price_curve,
    seen_by,
    served_at,
    with_arrays,
)
from twofold.inference.iteration import iteration_s, packs_prompts, tokens_per_step
from twofold.inference.latency import (
    Latency,
    Served,
    first_token_s,
    flat_latency,
    mean_ttft_s,
    served,
    token_s,
    tpot_latency,
    ttft_latency,
)
from twofold.inference.replica import Replica, max_sequences
from twofold.inference.steady import (
    Lengths,
    Steps,
    batch_limit,
    chunk_tokens,
    own_input_tokens,
    steady_steps,
    sustained_batch,
)
from twofold.perf.types import Floats

RATE_HALVINGS = 16
FAR_BELOW = 9.0  # cost at which a limit says nothing: who is that far below it was bound by something else
LIMIT_SHARES = tuple(float(share) for share in np.exp(np.linspace(np.log(0.02), 0.0, 61)))
HANDOFF_S = 0.01  # routing, registration and the first block of a cache transfer
BURST_FRACTION = 0.1  # closed-loop benchmarks send about ten requests per slot, the first ones all at once


@dataclass(frozen=True, slots=True)
class LimitHabits:
    """What is believed of a rate that somebody chose as the highest within a limit. Assumptions."""

    step_error_ratio: float  # of our step times, in the logarithm
    share_fraction: float  # of its limit that a mean TPOT reaches when its p99 just meets it
    share_error_ratio: float  # of that share, in the logarithm
    rarer_cost_count: float  # of a limit that not every benchmark with that data set has


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
    replica: Replica,
    lengths: Lengths,
    concurrency: Floats,
    burst_fraction: Floats = BURST_FRACTION,
    together_fraction: Floats = 0.0,
) -> Served:
    """`concurrency` clients that each send their next request when the last one ends.

    Formula  λ from C = λ·(TTFT(λ) + output·TPOT(B)), B = λ·output·TPOT(B); the first `burst_fraction` of
             requests arrive at once and wait for each other's prefill, the rest meets a steady queue
    Why      Little's law. Published closed-loop runs are short, so that their means hold the first burst.
    Shapes   arguments broadcast.
    Units    seconds, tokens/s over the whole replica.
    Source   SKETCHES, inference; fitted on public closed-loop runs.
    Limits   past the batch limit clients queue for a slot, and TTFT is that wait.
    """
    limit = batch_limit(replica, lengths)
    admitted = np.minimum(concurrency, np.maximum(limit, 1.0))
    replica = _fed_by(replica, lengths, admitted)
    batch = sustained_batch(replica, lengths, admitted)
    for _ in range(3):  # a fourth round moves results by less than 1 %
        steps = steady_steps(replica, lengths, np.maximum(batch, 1e-3), together_fraction=together_fraction)
        decode_s = lengths.output_tokens * steps.tpot_s
        rate = _sent_per_s(replica, lengths, steps, admitted)
        decoding = np.maximum(rate * decode_s, np.minimum(admitted, 1.0) * 0.5)
        batch = 0.5 * batch + 0.5 * sustained_batch(replica, lengths, decoding)
    ttft = ttft_latency(replica, lengths, steps, rate)
    outside = np.maximum(0.0, concurrency / rate - decode_s - ttft.mean_s)  # clients that wait for a slot
    burst, later = _burst_s(replica, lengths, steps, admitted)
    rounds = 1.0 - burst_fraction
    ttft = Latency(
        outside + rounds * ttft.mean_s + burst_fraction * np.maximum(burst, ttft.mean_s),
        outside + ttft.p50_s,
        outside + np.where(burst_fraction > 0.05, np.maximum(ttft.p95_s, burst), ttft.p95_s),
        outside + np.where(burst_fraction > 0.01, np.maximum(ttft.p99_s, 2.0 * burst), ttft.p99_s),
    )
    tpot = tpot_latency(replica, lengths, steps)
    # Those that wait together decode without prompts in between, but for those behind them in the burst.
    plain_s = steps.plain_s / tokens_per_step(replica) + later / np.maximum(lengths.output_tokens - 1.0, 1.0)
    together = rounds * tpot.mean_s + burst_fraction * np.minimum(plain_s, tpot.mean_s)
    tpot = replace(tpot, mean_s=together, p50_s=np.minimum(tpot.p50_s, together))
    decode_s = lengths.output_tokens * together
    rate = concurrency / (ttft.mean_s + decode_s)
    utilisation = np.minimum(1.0, concurrency / np.maximum(limit, 1.0))
    return served(replica, lengths, steps, batch, rate, ttft, tpot, utilisation)


def _fed_by(replica: Replica, lengths: Lengths, clients: Floats) -> Replica:
    """The replica, whose steps carry no more than one prompt of each client where it packs prompts.

    Why      What a step of such an engine costs grows with the square of what it carries: a whole chunk,
             which no queue of so few clients ever fills, tells nothing of what their prompts cost.
    Limits   as many clients as fill a chunk: unchanged. Other engines' steps cost the same for each token.
    """
    if not packs_prompts(replica):
        return replica
    prompts = np.maximum(1.0, np.asarray(clients) / replica.dp) * own_input_tokens(replica, lengths)
    return replace(replica, chunk_tokens=np.minimum(replica.chunk_tokens, prompts))


def _sent_per_s(replica: Replica, lengths: Lengths, steps: Steps, admitted: Floats) -> Floats:
    """Requests/s that `admitted` clients send when steps take this long: λ·(TTFT(λ) + output·TPOT) = clients.

    TTFT rises with the rate, so that there is one, and halving finds it; prefill in full chunks is the most.
    Taken as batch/(output·TPOT) instead, the rate would grow with faster decoding past what clients whose
    prompts wait for prefill can send, and the queue with it.
    """
    decode_s = lengths.output_tokens * steps.tpot_s
    filled = chunk_tokens(replica) / (own_input_tokens(replica, lengths) * steps.full_s)
    low, high = 0.0 * (admitted / decode_s), np.minimum(admitted / decode_s, filled)
    for _ in range(RATE_HALVINGS):
        middle = 0.5 * (low + high)
        taken = middle * (mean_ttft_s(replica, lengths, steps, middle) + decode_s)
        low, high = np.where(taken <= admitted, middle, low), np.where(taken <= admitted, high, middle)
    return 0.5 * (low + high)


def open_loop(
    replica: Replica,
    lengths: Lengths,
    rate_per_s: Floats,
    own: tuple[Replica, Lengths] | None = None,
    fleet_per_s: float = 0.0,
) -> Served:
    """Requests that arrive at random (Poisson) at `rate_per_s`, whatever the replica does.

    Formula  the batch that an arrival meets, itself included: B = 1 + λ·output·TPOT(B), on the load curve
    Why      In a steady state B depends on the rate only through how long a request decodes.
    Shapes   arguments broadcast.
    Units    requests/s of the whole replica.
    Limits   above the sustainable rate `utilisation_fraction` exceeds 1 and first tokens never come; what
             decodes then is a full replica. `own` is the class that asks, where `lengths` are a mixture's.
             `fleet_per_s` is what replicas like this one get together from one gate; 0: this one alone.
    """
    return on_curve(open_curve(replica, lengths, own, fleet_per_s), rate_per_s)


def open_curve(
    replica: Replica,
    lengths: Lengths,
    own: tuple[Replica, Lengths] | None = None,
    fleet_per_s: float = 0.0,
) -> LoadCurve:
    """The load curve that `open_loop` reads, which holds for any rate."""
    # As far as the scheduler may go, whatever the cache holds: more memory must not move the curve's points.
    largest = float(np.max(sustained_batch(replica, lengths, replica.max_batch))) + 1.0
    curve = price_curve(load_axis(replica), load_axis(lengths), largest, fleet_per_s)
    return curve if own is None else seen_by(curve, load_axis(own[0]), load_axis(own[1]))


def on_curve(curve: LoadCurve, rate_per_s: Floats) -> Served:
    """What `open_loop` answers, off a curve that was priced before."""
    rate = load_axis(np.asarray(rate_per_s, float))
    met = met_at(curve, np.minimum(rate, curve.most_per_s))
    return _as_priced(curve.replica, curve.lengths, served_at(curve, met, rate))


def finite_run(
    replica: Replica, lengths: Lengths, request_count: Floats, rate_per_s: Floats = np.inf
) -> Served:
    """A run of so many requests that arrive evenly, faster than a replica ends them; or all at once.

    Formula  with M slots that each end a request in c, the k-th M of N requests (k from 0) wait
             (k − ½·min(1, w))·max(0, c − M/λ) for a slot, the first ones not; then max(lone, burst − M/2λ)
             for the prompt; the run takes N/λ + the last wait + TTFT + an answer met at its end
    Why      Above capacity no steady state is reached: each round of slots leaves the same backlog to the
             next. Answers that spread by w free their slots at random, half a round earlier at w = 1.
             Throughput is that of the whole run, with its end, in which slots are empty.
    Shapes   arguments broadcast.
    Units    requests; requests/s, infinite where all come at once.
    Source   the D/D/M queue.
    Limits   equal answers and N ≤ M: no wait but that for the prompts before.
    """
    limit = np.maximum(batch_limit(replica, lengths), 1.0)
    rounds = np.asarray(request_count, float) / limit
    batch = sustained_batch(replica, lengths, np.minimum(request_count, limit))
    steps = steady_steps(replica, lengths, batch)
    rate = batch / (lengths.output_tokens * steps.tpot_s)
    between = limit / np.asarray(rate_per_s, float)
    wait = np.maximum(0.0, limit / rate - between)
    whole, early = np.floor(rounds), 0.5 * np.minimum(lengths.output_spread, 1.0)
    met = whole * (rounds - (whole + 1.0) / 2.0) / rounds - early * np.maximum(1.0 - 1.0 / rounds, 0.0)
    burst, later = _burst_s(replica, lengths, steps, np.minimum(request_count, limit))
    lone = mean_ttft_s(replica, lengths, steps, 0.0 * rate)
    later = later * (between < 2.0 * burst)
    first = np.maximum(lone, burst - between / 2.0)
    late = [wait * np.maximum(np.floor(share * rounds) - early, 0.0) + first for share in (0.5, 0.95, 0.99)]
    ttft = Latency(wait * met + first, late[0], late[1] + first, late[2] + first)
    tpot = tpot_latency(replica, lengths, steps)
    alone = steps.plain_s / tokens_per_step(replica) + later / np.maximum(lengths.output_tokens - 1.0, 1.0)
    own = np.minimum(1.0, 1.0 / rounds)  # of requests, that find all slots free
    mean = own * np.minimum(alone, tpot.mean_s) + (1.0 - own) * tpot.mean_s
    tpot = replace(tpot, mean_s=mean, p50_s=mean)
    last = wait * np.maximum(rounds - 1.0, 0.0) + first + lengths.met_output_tokens * mean
    run_rate = request_count / (rounds * between + last)
    return served(replica, lengths, steps, batch, run_rate, ttft, tpot, np.ones_like(rate))


def at_batch(replica: Replica, lengths: Lengths, met_sequences: Floats) -> Served:
    """Open arrivals at the rate at which a request meets a batch of `met_sequences`, itself included."""
    met = np.maximum(np.asarray(met_sequences, float), 1.0)
    replica, lengths, met = load_axis(replica), load_axis(lengths), load_axis(met)
    curve = price_curve(replica, lengths, float(np.max(met)))
    return _as_priced(replica, lengths, served_at(curve, met))


def _as_priced(replica: Replica, lengths: Lengths, found: Served) -> Served:
    """What was read off a curve, without its axis; the steps as priced at their batch, not between two."""
    steps = steady_steps(replica, lengths, found.batch_sequences, full_s=0.0)
    exact = replace(found, step_s=steps.plain_s, prefill_step_s=np.maximum(steps.carrying_s, steps.plain_s))
    return with_arrays(exact, lambda each: each[..., 0])


def max_throughput(replica: Replica, lengths: Lengths) -> Served:
    """All requests queued at once: the batch is as large as cache, scheduler and prefill allow."""
    limit = np.maximum(batch_limit(replica, lengths), 1.0)
    batch = sustained_batch(replica, lengths, limit)
    steps = steady_steps(replica, lengths, batch)
    rate = batch / (lengths.output_tokens * steps.tpot_s)
    ttft = ttft_latency(replica, lengths, steps, rate)
    tpot = tpot_latency(replica, lengths, steps)
    return served(replica, lengths, steps, batch, rate, ttft, tpot, np.ones_like(rate))


def most_per_s(replica: Replica, lengths: Lengths) -> Floats:
    """Requests/s that arrivals may bring for good: those of the largest batch; of an engine that packs
    prompts, whose steps cost the square of what they carry, those of the best one."""
    largest = max_throughput(replica, lengths).requests_per_s
    if not packs_prompts(replica):
        return largest
    # The curve is straight between its batches, and none where not one sequence is held.
    best = np.asarray(open_curve(replica, lengths).most_per_s)[..., 0]
    return np.asarray(np.maximum(largest, best))


def held_batch(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Served:
    """A replica that was seen to decode `batch_sequences`: no queue in front, one request in for one out.

    Formula  λ = B/(output·TPOT(B)); the median gap between tokens is a plain step where most steps are plain
    Why      Where the running batch itself is known, neither arrivals nor slots have to be modelled.
    """
    steps = steady_steps(replica, lengths, batch_sequences)
    rate = batch_sequences / (lengths.output_tokens * steps.tpot_s)
    ttft = ttft_latency(replica, lengths, steps, rate)
    tpot = tpot_latency(replica, lengths, steps)
    plain = np.minimum(steps.plain_s / tokens_per_step(replica), tpot.mean_s)
    tpot = replace(tpot, p50_s=np.where(steps.share_fraction < 0.5, plain, tpot.mean_s))
    return served(replica, lengths, steps, batch_sequences, rate, ttft, tpot, np.ones_like(rate))


def near_limit_s(
    replica: Replica, lengths: Lengths, rate_per_s: Floats, limits_s: tuple[Floats, ...], habits: LimitHabits
) -> tuple[Floats, Floats]:
    """Time per token at a rate that somebody chose as the highest that meets one of `limits_s` on its p99:
    its mean, and the limit that its p99 meets.

    Formula  argmin over T and limits L of (ln s/e)² + min(9, (ln(T/(u·L))/d)²) + r but for the first L, with
             s = T/t(B), B = 1 + λ·output·T, and e, u, d, r as in `LimitHabits`
    Why      Near saturation a step time that is off by a tenth moves TPOT severalfold at the same rate; that
             the limit was just met tells more. s is how wrong our steps would have to be for T.
    Shapes   arguments broadcast; a limit of 0 is none.
    Units    requests/s of the whole replica; seconds.
    Source   Little's law; rules of public benchmarks, whose submitters report the highest valid rate.
    Limits   steps known exactly: the TPOT of `open_loop`.
    """
    best, met_s, least = np.asarray(0.0), np.asarray(np.inf), np.asarray(np.inf)
    for place, limit_s in enumerate(limits_s):
        for share in LIMIT_SHARES:
            tpot = share * np.maximum(limit_s, 1e-9)
            met = 1.0 + np.asarray(rate_per_s) * lengths.output_tokens * tpot
            # Beyond what the scheduler runs at once requests wait outside, at no cost per token.
            batch = np.minimum(met, replica.max_batch)
            priced_s = steady_steps(replica, lengths, batch, full_s=0.0).tpot_s
            off = np.log(tpot / priced_s) / habits.step_error_ratio
            usual = np.log(share / habits.share_fraction) / habits.share_error_ratio
            below = np.minimum(np.square(usual), FAR_BELOW)
            cost = np.square(off) + below + habits.rarer_cost_count * (place > 0)
            cost = np.where(np.asarray(limit_s) > 0, cost, np.inf)
            best, met_s = np.where(cost < least, tpot, best), np.where(cost < least, limit_s, met_s)
            least = np.minimum(cost, least)
    return best, met_s


def disaggregated(
    prefill: Replica,
    decode: Replica,
    lengths: Lengths,
    concurrency: Floats,
    prefill_workers: Floats = 1.0,
    decode_workers: Floats = 1.0,
) -> Served:
    """Prefill workers hand finished caches to decode workers; clients in a closed loop share both.

    Formula  B per decode worker from Little's law; prefill as a first-come queue of `prefill_workers`
             servers; hand-off 10 ms + cache bytes over the decode worker's network
    Why      Two stations in a loop: the slower one sets the rate.
    Units    seconds; rate over all workers.
    Source   SKETCHES, disaggregated.
    Limits   near prefill saturation a small error in its rate becomes a queue: take TTFT as a range.
    """
    own = own_input_tokens(prefill, lengths)
    attended = lengths.input_tokens - own / 2.0
    prompts = np.maximum(1.0, np.floor(prefill.chunk_tokens / own)) * prefill.dp
    one_s = iteration_s(prefill, own, attended, 0.0, 0.0).total_s
    full_s = iteration_s(prefill, own * prompts, attended, 0.0, 0.0).total_s
    most = prefill_workers * prompts / full_s
    gained = tokens_per_step(decode)
    cap = batch_limit(decode, lengths) * decode_workers
    moved_bytes = decode.shape.kv_bytes(decode.kv_format, lengths.input_tokens)
    transfer_s = HANDOFF_S + moved_bytes / decode.accelerator_count / decode.cluster.network.nic_bytes_per_s
    in_decode = np.minimum(concurrency, np.maximum(cap, 1.0))
    for _ in range(12):
        batch = np.maximum(in_decode / decode_workers, np.minimum(1.0, in_decode))
        step_s = iteration_s(decode, 0.0, 0.0, batch, lengths.mean_context_tokens).total_s
        decode_s = lengths.output_tokens * step_s / gained
        rate = np.minimum(in_decode / decode_s, most)
        busy = np.minimum(rate / most, 0.98)
        waiting = busy ** np.sqrt(2.0 * (prefill_workers + 1.0)) / (1.0 - busy)
        queue_s = waiting * full_s / (2.0 * prefill_workers)
        first_s = one_s + queue_s + transfer_s + first_token_s(prefill, step_s)
        wanted = np.clip(np.minimum(concurrency - rate * first_s, rate * decode_s), 0.3, np.maximum(cap, 1.0))
        in_decode = 0.5 * in_decode + 0.5 * wanted
    starved = np.maximum(0.0, concurrency / rate - decode_s - first_s)  # what is not decoding waits in front
    burst_s = concurrency / 2.0 / most
    mean_s = first_s + (1.0 - BURST_FRACTION) * starved + BURST_FRACTION * np.maximum(burst_s, starved)
    usual_s = first_s + starved
    ttft = Latency(mean_s, usual_s, usual_s + 3.0 * queue_s, usual_s + 4.6 * queue_s)
    tpot_s = step_s / gained
    rate = concurrency / (mean_s + decode_s)
    steps = Steps(step_s, full_s, own, 0.0 * step_s, tpot_s, full_s)
    return served(decode, lengths, steps, batch, rate, ttft, flat_latency(tpot_s), rate / most)


def _burst_s(replica: Replica, lengths: Lengths, steps: Steps, admitted: Floats) -> tuple[Floats, Floats]:
    """`admitted` prompts sent at once, prefilled one chunk after another: the mean time to a first token, and
    the prefill of others that comes after it."""
    own = own_input_tokens(replica, lengths)
    chunk = chunk_tokens(replica)
    chunks = np.maximum(admitted * own / chunk, own / steps.carried_tokens)
    # Decoding grows from nothing to the whole batch meanwhile: half of it on average.
    further = np.maximum(np.minimum(chunk, admitted * own) - steps.carried_tokens, 0.0)
    each = steps.carrying_s - 0.5 * steps.plain_s + further * token_s(steps, chunk)
    later = np.maximum(chunks - 1.0, 0.0) / 2.0 * each
    return (chunks + 1.0) / 2.0 * each + first_token_s(replica, steps.plain_s), later
