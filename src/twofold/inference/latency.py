"""Latencies of a steady replica: first token, further tokens, whole answers; means and upper quantiles.

Every formula here is a sum, a root of squares or a maximum of step times that never falls when a step or the
rate grows: where a difference of two steps enters, the smaller one is in the mean with at least its weight.
So faster hardware never answers later at the same rate (INV-2), whatever the kernels under it are.
"""

from dataclasses import dataclass

import numpy as np

from twofold.contracts.goals import QUANTILES
from twofold.core import record
from twofold.inference.iteration import tokens_per_step
from twofold.inference.physics import bounds_of
from twofold.inference.replica import Replica, max_sequences
from twofold.inference.steady import Lengths, Steps, admission_steps, chunk_tokens, own_input_tokens
from twofold.perf.types import Floats

NORMAL_P95, NORMAL_P99 = 1.645, 2.326
SMALLEST = np.finfo(np.float64).tiny


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

    def bounds(self, replica: Replica, lengths: Lengths, client_count: Floats = np.inf) -> dict[str, Floats]:
        """What the datasheet leaves possible at this batch: see `bounds_of`."""
        return bounds_of(replica, lengths, self.batch_sequences, client_count)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompts of the class whose latency is asked, among those of all that share the replica."""

    tokens: Floats  # that must be computed
    spread: Floats
    carrying_s: Floats  # a step that carries one of them
    carried_tokens: Floats  # by that step


FORMULAS = {  # of the latencies of `Served`, in the mean
    "ttft": "rest of a step + queue for prefill + own prefill + handling",
    "tpot": "(1 − q) × decode step + q × step with prefill",
    "e2e": "TTFT + (output − 1) × TPOT",
}
UPPER = {"p50": "the median"}
STEPS = ("decode_step_s", "prefill_step_s", "lengths", "rate")


def flat_latency(seconds: Floats) -> Latency:
    """The same for every request."""
    return Latency(seconds, seconds, seconds, seconds)


def quantile_factor(spread: Floats, normal: Floats) -> Floats:
    """A log-normal's quantile over its mean, for a standard deviation of `spread` means."""
    sigma = np.sqrt(np.log1p(np.square(spread)))
    return np.exp(normal * sigma - 0.5 * np.square(sigma))


def first_token_s(replica: Replica, step_s: Floats) -> Floats:
    """What passes between the end of prefill and the client's first token: handling, streaming interval."""
    return replica.engine.first_token_s + replica.engine.first_token_steps * np.asarray(step_s)


def ttft_latency(replica: Replica, lengths: Lengths, steps: Steps, rate_per_s: Floats) -> Latency:
    """Seconds to the first token at a rate of all requests, whose lengths are `lengths`.

    Formula  mean = admission + rest of a step + queue for prefill + own prefill + handling, with
             rest of a step = ½((1−φ)·t(0,B) + φ·t(S,B)), φ = min(1, λ·prefill of a prompt / ranks);
             queue = ρ²/(1−ρ)·t(chunk,B)/2, ρ = λ·prompt·t(chunk,B)/chunk;
             quantiles add (0.9·rest, queue·(2 or 3.6), step with the longer prompt − step) in quadrature
    Why      An arrival finds a step that carries a prompt for the share φ of time, and waits for half of what
             it finds. Prompts longer than the mean, and those that come during the same step, make of its
             own step a longer one (`longer_step_s`): deviations of tokens, in quadrature before they cost.
    Shapes   arguments broadcast.
    Units    requests/s of the whole replica; seconds out.
    Source   residual life and M/D/1 in heavy traffic; SKETCHES, inference; handling fitted.
    Limits   no load: half a step, the own prefill, handling. ρ is held at 0.98; callers add slot waits. For
             as many clients as there are, who send no more while they wait: see `arrivals` for the others.
    """
    rate, own = np.asarray(rate_per_s, float), own_input_tokens(replica, lengths)
    rest, queue, alone = _ttft_parts(replica, lengths, steps, rate)
    mean = rest + queue + alone
    together = np.sqrt(rate * steps.carrying_s) * own

    def upper(normal: float, exponential: float) -> Floats:
        longer = own * np.maximum(quantile_factor(lengths.input_spread, normal) - 1.0, 0.0)
        further = np.sqrt(np.square(longer) + np.square(together * normal))
        late = longer_step_s(steps, chunk_tokens(replica), further) - steps.carrying_s
        # `late` holds −1 step with the prompt, and the mean at least +1: together they never fall with it.
        spread = np.square(rest * 0.9) + np.square(queue * exponential) + np.square(late)
        whole: Floats = mean + np.sqrt(spread)
        return whole

    return Latency(mean, mean - 0.3 * queue, upper(NORMAL_P95, 2.0), upper(NORMAL_P99, 3.6))


def mean_ttft_s(replica: Replica, lengths: Lengths, steps: Steps, rate_per_s: Floats) -> Floats:
    """The mean of `ttft_latency` alone."""
    rest, queue, alone = _ttft_parts(replica, lengths, steps, np.asarray(rate_per_s, float))
    return rest + queue + alone


def _ttft_parts(
    replica: Replica, lengths: Lengths, steps: Steps, rate: Floats
) -> tuple[Floats, Floats, Floats]:
    """Rest of a step, queue for prefill, and what a lone prompt takes: its own prefill and handling."""
    own, full = own_input_tokens(replica, lengths), steps.full_s
    prompt_steps = np.maximum(1.0, own / np.asarray(replica.chunk_tokens))  # a chunk each, on one rank
    found = np.minimum(1.0, rate * prompt_steps * steps.carrying_s / replica.dp)
    rest = 0.5 * ((1.0 - found) * steps.plain_s + found * steps.carrying_s)
    busy = np.minimum(rate * own * full / chunk_tokens(replica), 0.98)
    queue = np.square(busy) / (1.0 - busy) * full / 2.0
    service = prompt_steps * steps.carrying_s
    service = service + admission_steps(replica, own, rate * np.asarray(steps.plain_s)) * steps.plain_s
    return rest, queue, service + first_token_s(replica, steps.plain_s)


def longer_step_s(steps: Steps, chunk: Floats, further_tokens: Floats) -> Floats:
    """Seconds of prefill when the step that carries a prompt meets `further_tokens` more.

    Formula  on the straight line from (S, t(S)) to (chunk, t(chunk)); past the chunk, t(chunk)·tokens/chunk
    Why      A step that prefills starts with launches that no token can hide, so that its first tokens tell
             nothing of what the next ones cost. Weights of both ends are never negative.
    """
    full = np.maximum(steps.full_s, steps.carrying_s)
    room = np.maximum(np.asarray(chunk) - steps.carried_tokens, SMALLEST * 1e30)
    share = np.minimum(1.0, further_tokens / room)
    within = (1.0 - share) * steps.carrying_s + share * full
    found: Floats = within * np.maximum(1.0, (steps.carried_tokens + np.asarray(further_tokens)) / chunk)
    return found


def token_s(steps: Steps, chunk: Floats) -> Floats:
    """What each further prefill token adds to a step that already carries some, on the same line."""
    further = np.asarray(chunk) - steps.carried_tokens
    whole = np.maximum(steps.carrying_s - steps.plain_s, 0.0) / steps.carried_tokens
    room = further > 0.01 * np.asarray(chunk)
    return np.where(room, (steps.full_s - steps.carrying_s) / np.where(room, further, 1.0), whole)


def slot_wait_s(limit: Floats, decode_s: Floats, utilisation: Floats, lengths: Lengths) -> Floats:
    """Mean wait for one of `limit` slots (Sakasegawa 1977): ρ^(√(2(c+1))) / (1−ρ) · S/c · (1+v²)/2 · ρ^−1."""
    slots = np.maximum(limit, 1.0)
    busy = np.minimum(utilisation, 0.999)
    variability = (1.0 + np.square(lengths.output_spread)) / 2.0
    waiting = busy ** (np.sqrt(2.0 * (slots + 1.0)) - 1.0) / (1.0 - busy)
    return waiting * decode_s / slots * variability


def tpot_latency(replica: Replica, lengths: Lengths, steps: Steps) -> Latency:
    """Seconds per further token where the batch is what it is: quantiles from more prefill in between.

    Formula  quantile = (1−q′)·t(0,B) + q′·t(S,B), per tokens gained,
             q′ = min(1, q + z·√(q(1 − q + v²)/output))
    Why      Whether one of an answer's steps carries a prompt is a coin of bias q, and prompts spread by v.
    Limits   no share: the mean for all. Random arrivals have fuller batches too: `sharing`.
    """
    share, output = steps.share_fraction, np.maximum(lengths.output_tokens, 1.0)
    carrying = np.maximum(steps.carrying_s, steps.plain_s)
    deviation = np.sqrt(share * (1.0 - share + np.square(lengths.input_spread)) / output)

    def upper(normal: float) -> Floats:
        raised = np.minimum(1.0, share + normal * deviation)
        step_s: Floats = (1.0 - raised) * steps.plain_s + raised * carrying
        return np.maximum(steps.tpot_s, step_s / tokens_per_step(replica))

    # Equal ones may have lost their last bit on different ways.
    p95_s = upper(NORMAL_P95)
    return Latency(steps.tpot_s, steps.tpot_s, p95_s, np.maximum(p95_s, upper(NORMAL_P99)))


def answer_latency(own: Lengths, ttft: Latency, tpot: Latency) -> Latency:
    """Seconds of whole answers of a class with `own` lengths.

    Formula  TTFT + (output − 1)·TPOT; quantiles add the deviations of both and of the length in quadrature
    Limits   infinite where first tokens never come.
    """
    later = np.maximum(0.0, np.asarray(own.output_tokens, float) - 1.0)
    finite = np.isfinite(ttft.mean_s)
    mean = ttft.mean_s + later * tpot.mean_s

    def upper(name: str, normal: float) -> Floats:
        longer = later * tpot.mean_s * (quantile_factor(own.output_spread, normal) - 1.0)
        late = np.where(finite, getattr(ttft, name), 0.0) - np.where(finite, ttft.mean_s, 0.0)
        slow = later * (getattr(tpot, name) - tpot.mean_s)
        found: Floats = mean + np.sqrt(np.square(longer) + np.square(late) + np.square(slow))
        return found

    middle = ttft.p50_s + later * tpot.mean_s * quantile_factor(own.output_spread, 0.0)
    return Latency(mean, middle, upper("p95_s", NORMAL_P95), upper("p99_s", NORMAL_P99))


def served(
    replica: Replica,
    lengths: Lengths,
    steps: Steps,
    batch: Floats,
    rate: Floats,
    ttft: Latency,
    tpot: Latency,
    utilisation: Floats,
    own: Lengths | None = None,
) -> Served:
    """Put a load's parts together: throughput of all requests, answers of the class with `own` lengths."""
    held = max_sequences(replica, lengths.mean_context_tokens, lengths.input_tokens)
    e2e = answer_latency(own or lengths, ttft, tpot)
    latencies = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    for metric, formula in FORMULAS.items():
        for q in QUANTILES:
            whole = f"ttft_{q}", f"tpot_{q}", "lengths", "e2e_spread"
            used = whole if metric == "e2e" else (*STEPS, f"{metric}_spread")
            said = f"{formula}; {UPPER.get(q, f'the mean + deviations to {q}')}"
            record.note(f"{metric}_{q}", getattr(latencies[metric], f"{q}_s"), said, *used)
    return Served(
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        requests_per_s=rate,
        output_tokens_per_s=rate * np.asarray(lengths.output_tokens, float),
        batch_sequences=batch,
        step_s=steps.plain_s,
        prefill_step_s=steps.carrying_s,
        prefill_share_fraction=steps.share_fraction,
        kv_fraction=np.minimum(1.0, batch / np.maximum(held, 1e-30)),
        utilisation_fraction=utilisation,
    )
