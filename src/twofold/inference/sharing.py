"""Further tokens where requests come at random: who decodes shares the steps, and prefill comes in between.

The time per token of an answer is that of the steps it lives through. It is longer than the mean for who
meets a fuller batch, and for who has more prefill in between, which brings further prompts in turn. Step
times have weights that are never negative: faster hardware never answers later at the same rate (INV-2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.inference.arrivals import prompt_work_spread
from twofold.inference.iteration import tokens_per_step
from twofold.inference.latency import NORMAL_P95, NORMAL_P99, Latency, quantile_factor
from twofold.inference.replica import Replica
from twofold.inference.steady import Lengths, Steps, carried_tokens, chunk_tokens, own_input_tokens
from twofold.perf.types import Floats

# Between "a fuller batch" and "more prefill in between": the worst of four is within 4 % of the worst of all.
ANGLES = np.linspace(0.0, np.pi / 2.0, 4)
# Between more prefill and longer caches, correlated by ½/√⅔ (`heavy_context_tokens`): either, or both alike.
TOGETHER = 0.5 / np.sqrt(2.0 / 3.0)
BOTH = np.sqrt((1.0 + TOGETHER) / 2.0)
PREFILL, CACHES = (1.0, BOTH, TOGETHER), (TOGETHER, BOTH, 1.0)
WINDOWS, ROUNDS = 2, 3  # of chance, and of the time that prefill takes, in which further prompts come


@dataclass(frozen=True, slots=True)
class Mix(Steps):
    """Steps, none with prefill shorter than one without, and the prompts that decide how they mix."""

    chunk_tokens: Floats
    own_tokens: Floats  # of a mean prompt
    work_spread: Floats  # of prompts
    output_tokens: Floats
    gained_tokens: Floats  # per step
    rate_per_s: Floats
    output_spread: Floats = 0.0
    replica_count: Floats = 1.0  # among which each request goes to the one with the least work


def mix_of(
    replica: Replica, lengths: Lengths, steps: Steps, rate_per_s: Floats, replica_count: Floats = 1.0
) -> Mix:
    """The mix at a rate of all requests.

    Data-parallel ranks carry a prompt each where their batch is large. How many do must not depend on the
    batch here, or faster hardware, whose batch is smaller, would have its prefill come in more steps (INV-2).
    """
    own = own_input_tokens(replica, lengths)
    abreast = carried_tokens(replica, own, 0.0 * own, replica.max_batch)
    return Mix(
        plain_s=steps.plain_s,
        share_fraction=steps.share_fraction,
        tpot_s=steps.tpot_s,
        carrying_s=np.maximum(steps.carrying_s, steps.plain_s),
        full_s=np.maximum(steps.full_s, steps.carrying_s),
        carried_tokens=np.maximum(steps.carried_tokens, abreast),
        chunk_tokens=chunk_tokens(replica),
        own_tokens=own,
        work_spread=prompt_work_spread(replica, lengths),
        output_tokens=np.maximum(lengths.output_tokens, 1.0),
        gained_tokens=tokens_per_step(replica),
        rate_per_s=np.asarray(rate_per_s, float),
        output_spread=lengths.output_spread,
        replica_count=replica_count,
    )


def token_s(mix: Mix, least_s: Floats, deviations: Floats) -> Floats:
    """Seconds per token where the prefill in between lies so many deviations above its mean.

    Formula  T = ((1−q)·t(0) + q·t(S))/gain, q = prompt·λ′U·gain/S·lognormal(√((d + v²)(1 + w²)/k)),
             U = T₀ + (T − T₀)/n, k = λ′U·output, λ′ = λ(1 − (1 − 1/n)/(1 + λT₀·output)),
             d = 1/n + (1 − 1/n)·tanh w; past one prompt per step on the line from t(S) to a full chunk
    Why      While an answer is generated k prompts come, whose work is a compound Poisson sum with the
             variance k·E[X²]: relative to its mean (1 + v²)/k. It is positive and skewed, as a log-normal is.
             Answers that spread by w have E[1/output] = (1 + w²)/mean: most are short, and see chance.
             The longer it takes, the more prompts come: a few rounds from T₀ = `least_s`, none falls.
             A gate that evens out what n replicas hold sends one a prompt as one of its answers ends. So few
             come by chance (1/n), and as answers of random length end together (tanh w, within 0.1 of
             renewal processes up to w = 2). They come by steps, not by time: of what holds one of n up, 1/n
             comes back to it. And one's own prompt is not among those that others' ends let in.
    Units    seconds; tokens per step and sequence.
    Source   Campbell 1909; delay busy periods, Conway, Maxwell & Miller 1967; renewal theory, Cox 1962.
    Limits   one replica, no deviation and `least_s` the mean: the mean.
    """
    token = least_s
    room, others = np.maximum(mix.chunk_tokens - mix.carried_tokens, 1.0), 1.0 - 1.0 / mix.replica_count
    dealt = 1.0 / mix.replica_count + others * np.tanh(mix.output_spread)
    second = (dealt + np.square(mix.work_spread)) * (1.0 + np.square(mix.output_spread))
    sent = mix.rate_per_s * mix.output_tokens * least_s
    came_per_s = mix.rate_per_s * (1.0 - others / (1.0 + sent))
    begun_per_s, tokens_per_s = (
        came_per_s * mix.output_tokens,
        mix.own_tokens * mix.gained_tokens * came_per_s,
    )
    waited_s = others * least_s
    # HOT: on all points of all curves of a search, half of its time: bench/inference.py
    for _ in range(WINDOWS):
        window_s = waited_s + token / mix.replica_count
        spread = np.sqrt(second / np.maximum(begun_per_s * window_s, 1e-9))
        above_s = window_s * np.maximum(quantile_factor(spread, deviations) - 1.0, 0.0)
        for _ in range(ROUNDS):
            tokens = tokens_per_s * (waited_s + token / mix.replica_count + above_s)
            share = np.minimum(1.0, tokens / mix.carried_tokens)
            further = np.minimum(np.maximum(tokens - mix.carried_tokens, 0.0) / room, 1.0)
            carrying = (1.0 - further) * mix.carrying_s + further * mix.full_s
            step_s = (1.0 - share) * mix.plain_s + share * carrying
            token = np.maximum(token, step_s / mix.gained_tokens)
    return token


def met_deviation(mix: Mix, tpot_s: Floats) -> Floats:
    """By how many sequences the batch that one arrival in a hundred meets is above its mean.

    Formula  √((z²·λ·output·T + (λ·output·(T_z − T))²)/n), T_z = `token_s` of one replica at z deviations
    Why      Arrivals are Poisson; and those who came while prefill held up the others are all still here. n
             replicas hold n times as many together and are held up at different times; a gate spreads both.
             To all of them together prompts come by chance, and the more, the longer they are held up.
    """
    sent = mix.rate_per_s * mix.output_tokens
    whole = replace(mix, output_spread=0.0, replica_count=1.0)
    held_up = sent * (token_s(whole, tpot_s, NORMAL_P99) - tpot_s)
    poisson = np.square(NORMAL_P99) * sent * tpot_s
    deviation: Floats = np.sqrt((poisson + np.square(held_up)) / mix.replica_count)
    return deviation


def heavy_context_tokens(lengths: Lengths, met_sequences: Floats) -> Floats:
    """What one of a batch holds, in the mean over the one answer in a hundred that meets most.

    Formula  context + input·(lognormal(v·√(⅓ + ⅔B)/B) at 2.326 − 1)
    Why      Each step reads the caches of all that decode. One's own is there all the time; of others, who
             begin a part t of an answer before or after, 1 − t, which leaves ⅔ of their variance. Those that
             come after bring the prefill in between too: of it and the caches ½ is common.
    Source   Campbell 1909.
    Limits   one sequence: its own prompt. Very many, or prompts that are all alike: the mean.
    """
    met = np.maximum(np.asarray(met_sequences, float), 1.0)
    spread = lengths.input_spread * np.sqrt(1.0 / 3.0 + met * 2.0 / 3.0) / met
    longer: Floats = lengths.input_tokens * np.maximum(quantile_factor(spread, NORMAL_P99) - 1.0, 0.0)
    return lengths.mean_context_tokens + longer


def arrivals_tpot(
    mix: Mix, tpot_s: Floats, usual: Sequence[Floats], fuller: Sequence[Floats], slower_s: Floats
) -> Latency:
    """Seconds per further token at random arrivals, around their mean `tpot_s`.

    Formula  mean = T − (T − t(0))·(1 − 1/n)/(1 + λT·output); quantile = max over θ and φ of `token_s` at
             z·sin θ·p(φ) with t(·,B′,H′), B′ z·cos θ/2.326 of the way from B to B₉₉, and
             H′ z·sin θ·c(φ)/2.326 of that from usual caches to `heavy_context_tokens`
    Why      Where steps are straight in batch, caches and share, the worst direction is the root of the sum
             of squares of all deviations; here each step time keeps a weight that is not negative. Behind a
             gate who prefills takes one of the places, and one fewer decodes beside it.
    Units    `usual` are steps without and with prefill, and both beside heavy caches; `fuller` the same at
             the batch B₉₉ that one arrival in a hundred meets, `slower_s` the mean there.
    Limits   no prefill, no fuller batch, prompts all alike: the mean for all.
    """
    shape = np.broadcast_shapes(*(np.shape(each) for each in (tpot_s, mix.rate_per_s, mix.output_tokens)))
    ones = (1,) * len(shape)
    batch, other = (each(ANGLES).reshape(-1, 1, *ones) for each in (np.cos, np.sin))
    prefill, caches = (other * np.reshape(each, (-1, *ones)) for each in (PREFILL, CACHES))
    low, high = (
        np.stack(np.broadcast_arrays(*each, tpot_s))[:-1, None, None, None] for each in (usual, fuller)
    )
    # Both quantiles at once, along a first axis: numpy's calls take most of the time.
    normal = np.reshape((NORMAL_P95, NORMAL_P99), (-1, 1, 1, *ones))
    part, heavy = batch * normal / NORMAL_P99, caches * normal / NORMAL_P99
    steps = (1.0 - part) * low + part * high
    plain, carrying = (1.0 - heavy) * steps[:2] + heavy * steps[2:]
    there = replace(mix, plain_s=plain, carrying_s=carrying, full_s=np.maximum(mix.full_s, carrying))
    least_s = (1.0 - part) * tpot_s + part * slower_s  # all replicas are fuller at once, and slower
    p95_s, p99_s = np.max(token_s(there, least_s, normal * prefill), axis=(1, 2))
    own = (1.0 - 1.0 / mix.replica_count) / (1.0 + mix.rate_per_s * mix.output_tokens * tpot_s)
    mean_s = (1.0 - own) * tpot_s + own * np.minimum(tpot_s, mix.plain_s / mix.gained_tokens)
    # Equal ones may have lost their last bit on different ways.
    p95_s = np.maximum(mean_s, p95_s)
    return Latency(mean_s, mean_s, p95_s, np.maximum(p95_s, p99_s))
