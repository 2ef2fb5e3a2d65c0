"""A replica that keeps a batch decoding: its steps, how many of them carry prompts, and the largest batch.

In a steady state each decoding sequence leaves after `output` steps and is replaced by a prompt, so that a
step decodes B sequences and prefills B·input/output tokens on average, whatever the rate. Everything else
follows from B.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.inference.iteration import iteration_s, tokens_per_step
from twofold.inference.replica import Replica, max_sequences
from twofold.perf.types import Floats

Array = NDArray[np.float64]
# Of a step the tokens that it prefills, how many such a token attends to, and what a decoding sequence holds.
Step = tuple[Floats, Floats, Floats]
NEXT_TO_NONE = 1e-9  # tokens: what divides by prompts stays finite
LONGEST = 3.5  # standard deviations of a prompt's logarithm: one in four thousand


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and answer lengths of a class. Spreads are standard deviations over means (log-normal)."""

    input_tokens: Floats
    output_tokens: Floats
    input_spread: Floats = 0.0
    output_spread: Floats = 0.0

    @property
    def met_output_tokens(self) -> Floats:
        """The whole answer of a sequence that is met decoding: long ones are met for longer, output·(1 + w²).

        Source   residual life, Feller 1966.
        """
        return np.asarray(self.output_tokens) * (1.0 + np.square(self.output_spread))

    @property
    def mean_context_tokens(self) -> Floats:
        """What a decoding sequence holds on average: its prompt and half of its answer."""
        return self.input_tokens + self.met_output_tokens / 2.0


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
    held = max_sequences(replica, reserved_tokens(replica, lengths), lengths.input_tokens)
    return np.where(np.asarray(held) > 0, np.clip(held, 1.0, replica.max_batch), 0.0)


def cache_slots(replica: Replica, lengths: Lengths) -> Floats:
    """Slots that a cache shared by requests of random size is worth to who waits for room.

    Formula  held / z, z = 1 + (v·input / reserved)²
    Why      Requests that take z times as much room, z times as rarely, vary as much in sum.
    Source   Hayward's equivalent of peaked traffic (Fredericks 1980).
    """
    reserved = reserved_tokens(replica, lengths)
    held = max_sequences(replica, reserved, lengths.input_tokens)
    kept = np.maximum(1.0, lengths.input_tokens * (1.0 - replica.cache.shared_prefix_fraction))
    spread = lengths.input_spread * kept / reserved
    return np.maximum(1.0, held / (1.0 + np.square(spread)))


def reserved_tokens(replica: Replica, lengths: Lengths) -> Floats:
    """Cache that a running sequence keeps others from: its prompt, and as much of its answer as is set aside.

    Half of the answer where blocks are handed out as they fill; all of it where none may ever be taken back.
    """
    return lengths.input_tokens + replica.engine.reserved_output_fraction * lengths.met_output_tokens


def sustained_batch(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Floats:
    """The batch that prefill can keep full: with a full chunk in every step, chunk·output/input sequences."""
    own = own_input_tokens(replica, lengths)
    fed = chunk_tokens(replica) * lengths.output_tokens / (own * tokens_per_step(replica))
    return np.minimum(batch_sequences, np.maximum(fed, 1.0))


def own_input_tokens(replica: Replica, lengths: Lengths) -> Floats:
    """Prompt tokens that must be computed: the shared prefix is found in the cache, a prompt that others
    computed leaves next to none.
    """
    cache = replica.cache
    least = np.where(np.asarray(cache.received_fraction) < 1.0, 1.0, NEXT_TO_NONE)
    missing = 1.0 - cache.shared_prefix_fraction - cache.received_fraction
    return np.maximum(least, lengths.input_tokens * missing)


def attended_tokens(replica: Replica, lengths: Lengths) -> Floats:
    """What a prefilled token attends to on average: the cached prefix and half of its computed prompt.

    A token drawn at random lies in a prompt that is 1 + v² times the mean (residual life, Feller 1966), and
    of each prompt the same part is cached.
    """
    own = own_input_tokens(replica, lengths)
    return (lengths.input_tokens - own / 2.0) * (1.0 + np.square(lengths.input_spread))


def chunk_tokens(replica: Replica) -> Floats:
    """Step tokens that one step of the replica may carry: each data-parallel rank has its own budget."""
    return replica.chunk_tokens * np.asarray(replica.dp)


def carried_tokens(
    replica: Replica,
    own_tokens: Floats,
    per_step_tokens: Floats,
    batch_sequences: Floats,
    together_fraction: Floats = 0.0,
) -> Floats:
    """Step tokens of a step that carries any: a prompt, or all that a step must carry, up to the chunk."""
    # Data-parallel ranks step together: engines let each carry a prompt, or one would stall all the others.
    abreast = np.minimum(replica.dp, np.maximum(1.0, np.asarray(batch_sequences) / 2.0))
    room = np.minimum(batch_sequences, chunk_tokens(replica) / own_tokens)
    abreast = np.maximum(abreast, 1.0 + together_fraction * np.maximum(room - 1.0, 0.0))
    together = np.maximum(abreast, gathered_prompts(replica, own_tokens, per_step_tokens / own_tokens))
    return np.minimum(chunk_tokens(replica), np.maximum(own_tokens * together, per_step_tokens))


def gathered_prompts(replica: Replica, own_tokens: Floats, prompts_per_step: Floats) -> Floats:
    """Prompts that a scheduler gathers before it lets them in: those that come while the first one waits."""
    enough = np.maximum(1.0, replica.admission.wait_tokens / own_tokens)
    return np.minimum(enough, 1.0 + np.asarray(prompts_per_step) * replica.admission.wait_steps)


def admission_steps(replica: Replica, own_tokens: Floats, prompts_per_step: Floats) -> Floats:
    """Decode steps that a prompt waits on average for its scheduler to look, and then for company.

    Formula  (poll − 1)/2 + min( n·(1 + a·n/2)/(1 + a·n), (g − 1)/(2a) ), a prompts per step, n = `wait_steps`
             and g = `wait_tokens` over a prompt
    Why      The first of a group waits n steps and the a·n that come meanwhile half as long; or the group is
             full before that, after (g − 1)/a steps, of which its members wait half.
    Limits   no wait configured: 0. A request that finds the replica empty waits less than this says.
    """
    admission, arrivals = replica.admission, np.maximum(np.asarray(prompts_per_step, float), 1e-12)
    met = arrivals * admission.wait_steps
    timed = admission.wait_steps * (1.0 + met / 2.0) / (1.0 + met)
    full = (np.maximum(1.0, admission.wait_tokens / own_tokens) - 1.0) / (2.0 * arrivals)
    steps: Floats = (np.maximum(admission.poll_steps, 1.0) - 1.0) / 2.0 + np.minimum(timed, full)
    return steps


def prefill_per_step_tokens(replica: Replica, lengths: Lengths, batch_sequences: Floats) -> Floats:
    """Prompt tokens that must be prefilled per step, on average, to keep the batch full."""
    computed = batch_sequences * own_input_tokens(replica, lengths) * tokens_per_step(replica)
    return computed / np.maximum(lengths.output_tokens, 1.0)


def steady_steps(
    replica: Replica,
    lengths: Lengths,
    batch_sequences: Floats,
    full_s: Floats | None = None,
    together_fraction: Floats = 0.0,
) -> Steps:
    """The steps of a replica that keeps `batch_sequences` decoding.

    Formula  P = B·input/output prefill tokens per step, carried as chunks of S = min(chunk, max(prompt, P));
             share q = P/S of the steps carry one; TPOT = ((1−q)·t(0,B) + q·t(S,B)) / tokens per step
    Why      An engine prefills whole prompts or chunks at once: most steps carry none, some a lot. Spreading
             the prefill evenly over all steps is wrong by several per cent (SKETCHES).
    Shapes   lengths and batch broadcast with the replica. `full_s` is priced unless it is given.
    Units    tokens, seconds.
    Limits   q ≤ 1: past that the batch cannot be kept full, and callers lower it (`sustained_batch`).
    """
    own, gained = own_input_tokens(replica, lengths), tokens_per_step(replica)
    per_step = prefill_per_step_tokens(replica, lengths, batch_sequences)
    carried = carried_tokens(replica, own, per_step, batch_sequences, together_fraction)
    share = np.minimum(1.0, per_step / carried)
    context = lengths.mean_context_tokens
    attended = attended_tokens(replica, lengths)
    plain = iteration_s(replica, 0.0, 0.0, batch_sequences, context).total_s
    carrying = iteration_s(replica, carried, attended, batch_sequences, context).total_s
    tpot = ((1.0 - share) * plain + share * carrying) / gained
    full = step_s(replica, batch_sequences, full_step(replica, lengths)) if full_s is None else full_s
    return Steps(plain, carrying, carried, share, tpot, np.maximum(full, carrying))


def step_s(replica: Replica, batch_sequences: Floats, step: Step) -> Floats:
    """Seconds of a step beside a batch that decodes."""
    tokens, attended, context = step
    return iteration_s(replica, tokens, attended, batch_sequences, context).total_s


def steps_s(replica: Replica, batch_sequences: Floats, steps: Sequence[Step], axes: int) -> Array:
    """Seconds of several steps beside the same batches, priced at once: [step, …], then `axes` more."""
    shape = np.broadcast_shapes((1,) * axes, *(np.shape(each) for step in steps for each in step))
    columns = (
        np.stack([np.broadcast_to(each, shape) for each in column]) for column in zip(*steps, strict=True)
    )
    tokens, attended, context = columns
    return np.asarray(step_s(replica, batch_sequences, (tokens, attended, context)), float)


def full_step(replica: Replica, lengths: Lengths) -> Step:
    """Carries a whole chunk."""
    return chunk_tokens(replica), attended_tokens(replica, lengths), lengths.mean_context_tokens


def sole_step(replica: Replica, lengths: Lengths) -> Step:
    """Carries a whole chunk of one prompt.

    Why      Ranks and stages work on a prompt each: one prompt leaves the others idle.
    Limits   a single rank and stage: `full_step`.
    """
    shared = np.asarray(replica.pp * replica.dp) > 1.0
    tokens = np.where(shared, replica.chunk_tokens, chunk_tokens(replica))
    second = 1.0 + np.square(lengths.input_spread)
    cached = (lengths.input_tokens - own_input_tokens(replica, lengths)) * second
    attended = attended_tokens(replica, lengths)
    attended = np.where(shared, np.maximum(attended, cached + tokens / 2.0), attended)
    return tokens, attended, lengths.mean_context_tokens


def launch_step(replica: Replica, lengths: Lengths) -> Step:
    """Carries next to no prefill: all that no token hides."""
    return np.minimum(1.0, own_input_tokens(replica, lengths)), 1.0, lengths.mean_context_tokens


def longest_ratio(replica: Replica, lengths: Lengths) -> Floats:
    """The longest prompt looked at, over the mean: one in four thousand, within the model's context."""
    sigma = np.sqrt(np.log1p(np.square(lengths.input_spread)))
    longest = np.exp(LONGEST * sigma - 0.5 * np.square(sigma))
    most = np.asarray(replica.shape.max_context_tokens) / np.maximum(lengths.input_tokens, 1.0)
    return np.maximum(1.0, np.minimum(longest, most))


def late_step(replica: Replica, lengths: Lengths) -> Step:
    """Carries a whole chunk of the longest prompt that is looked at."""
    mean = lengths.input_tokens - own_input_tokens(replica, lengths) / 2.0
    attended = np.maximum(mean * longest_ratio(replica, lengths), attended_tokens(replica, lengths))
    return chunk_tokens(replica), attended, lengths.mean_context_tokens
