"""Further tokens where requests come at random: who decodes shares the steps, and prefill comes in between.

The time per token of an answer is that of the steps it lives through. It is longer than the mean for who
meets a fuller batch, and for who has more prefill in between, which brings further prompts in turn. Step
times have weights that are never negative: faster hardware never answers later at the same rate (INV-2).
"""

from dataclasses import dataclass, replace

import numpy as np

from twofold.inference.iteration import tokens_per_step
from twofold.inference.latency import NORMAL_P95, NORMAL_P99, Latency, quantile_factor
from twofold.inference.replica import Replica
from twofold.inference.steady import Lengths, Steps, carried_tokens, chunk_tokens, own_input_tokens
from twofold.perf.types import Floats

# Between "a fuller batch" and "more prefill in between": the worst of four is within 4 % of the worst of all.
ANGLES = np.linspace(0.0, np.pi / 2.0, 4)
WINDOWS, ROUNDS = 2, 3  # of chance, and of the time that prefill takes, in which further prompts come


@dataclass(frozen=True, slots=True)
class Mix(Steps):
    """Steps, none with prefill shorter than one without, and the prompts that decide how they mix."""

    chunk_tokens: Floats
    own_tokens: Floats  # of a mean prompt
    input_spread: Floats
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
        input_spread=lengths.input_spread,
        output_tokens=np.maximum(lengths.output_tokens, 1.0),
        gained_tokens=tokens_per_step(replica),
        rate_per_s=np.asarray(rate_per_s, float),
        output_spread=lengths.output_spread,
        replica_count=replica_count,
    )


def token_s(mix: Mix, least_s: Floats, deviations: Floats) -> Floats:
    """Seconds per token where the prefill in between lies so many deviations above its mean.

    Formula  T = ((1−q)·t(0) + q·t(S))/gain, q = prompt·λT·gain/S·lognormal(√((1/n + v²)(1 + w²)/k)),
             k = λT·output; past one prompt per step along the line from t(S) to a full chunk
    Why      While an answer is generated k prompts come, whose tokens are a compound Poisson sum with the
             variance k·E[X²]: relative to its mean (1 + v²)/k. It is positive and skewed, as a log-normal is.
             Answers that spread by w have E[1/output] = (1 + w²)/mean: most are short, and see chance. A gate
             that sends each request to the least work of n replicas deals a stream out nearly in turns, so
             that how many come to one varies 1/n as much.
             The longer it takes, the more prompts come: a few rounds from `least_s`, none of which falls.
    Units    seconds; tokens per step and sequence.
    Source   Campbell 1909; delay busy periods, Conway, Maxwell & Miller 1967.
    Limits   no deviation and `least_s` the mean: the mean.
    """
    token = least_s
    room = np.maximum(mix.chunk_tokens - mix.carried_tokens, 1.0)
    second = (1.0 / mix.replica_count + np.square(mix.input_spread)) * (1.0 + np.square(mix.output_spread))
    # HOT: on all points of all curves of a search, half of its time: bench/inference.py
    for _ in range(WINDOWS):
        spread = np.sqrt(second / np.maximum(mix.rate_per_s * mix.output_tokens * token, 1e-9))
        above_s = token * np.maximum(quantile_factor(spread, deviations) - 1.0, 0.0)
        for _ in range(ROUNDS):
            tokens = mix.own_tokens * mix.gained_tokens * mix.rate_per_s * (token + above_s)
            share = np.minimum(1.0, tokens / mix.carried_tokens)
            further = np.minimum(np.maximum(tokens - mix.carried_tokens, 0.0) / room, 1.0)
            carrying = (1.0 - further) * mix.carrying_s + further * mix.full_s
            step_s = (1.0 - share) * mix.plain_s + share * carrying
            token = np.maximum(token, step_s / mix.gained_tokens)
    return token


def met_deviation(mix: Mix, tpot_s: Floats) -> Floats:
    """By how many sequences the batch that one arrival in a hundred meets is above its mean.

    Formula  √((z²·λ·output·T + (λ·output·(T_z − T))²)/n), T_z = `token_s` at z deviations
    Why      Arrivals are Poisson; and those who came while prefill held up the others are all still here. n
             replicas hold n times as many together and are held up at different times; a gate spreads both.
    """
    sent = mix.rate_per_s * mix.output_tokens
    held_up = sent * (token_s(replace(mix, output_spread=0.0), tpot_s, NORMAL_P99) - tpot_s)
    poisson = np.square(NORMAL_P99) * sent * tpot_s
    deviation: Floats = np.sqrt((poisson + np.square(held_up)) / mix.replica_count)
    return deviation


def arrivals_tpot(mix: Mix, tpot_s: Floats, fuller_plain_s: Floats, fuller_carrying_s: Floats) -> Latency:
    """Seconds per further token at random arrivals, around their mean `tpot_s`.

    Formula  quantile = max over θ of `token_s` at z·sin θ with t(·,B′), where
             t(·,B′) = t(·,B) + z·cos θ/2.326 · (t(·,B₉₉) − t(·,B))
    Why      Where steps are straight in batch and share, the worst direction is the root of the sum of
             squares of both deviations; here each step time keeps a weight that is not negative.
    Units    `fuller_*` are the steps at the batch B₉₉ that one arrival in a hundred meets.
    Limits   no prefill and no fuller batch: the mean for all.
    """
    shape = np.broadcast_shapes(*(np.shape(each) for each in (tpot_s, mix.rate_per_s, mix.output_tokens)))
    directions = (-1,) + (1,) * len(shape)
    batch, prefill = np.cos(ANGLES).reshape(directions), np.sin(ANGLES).reshape(directions)
    fuller_plain = np.maximum(fuller_plain_s, mix.plain_s)
    fuller_carrying = np.maximum(np.maximum(fuller_carrying_s, mix.carrying_s), fuller_plain)

    def upper(normal: float) -> Floats:
        part = batch * normal / NORMAL_P99
        plain = (1.0 - part) * mix.plain_s + part * fuller_plain
        carrying = (1.0 - part) * mix.carrying_s + part * fuller_carrying
        fuller = replace(mix, plain_s=plain, carrying_s=carrying, full_s=np.maximum(mix.full_s, carrying))
        found: Floats = np.max(token_s(fuller, tpot_s, normal * prefill), axis=0)
        return found

    # Equal ones may have lost their last bit on different ways.
    p95_s = np.maximum(tpot_s, upper(NORMAL_P95))
    return Latency(tpot_s, tpot_s, p95_s, np.maximum(p95_s, upper(NORMAL_P99)))
