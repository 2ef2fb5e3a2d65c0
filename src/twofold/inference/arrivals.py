"""First tokens where requests come at random: prompts of random lengths queue for prefill.

A replica computes prompts one after another and up to a chunk of them per step, which is an M/G/1 queue whose
services are prefills. As in `latency`, every formula is built of sums, maxima and mixtures whose weights are
never negative, and of dimensionless functions that rise with utilisation: faster hardware never answers later
at the same rate (INV-2).
"""

from dataclasses import dataclass
from operator import mul

import numpy as np
from numpy.typing import NDArray

from twofold.inference.latency import (
    NORMAL_P95,
    NORMAL_P99,
    SMALLEST,
    Latency,
    Prompt,
    first_token_s,
    quantile_factor,
)
from twofold.inference.replica import Replica
from twofold.inference.steady import Lengths, Steps, admission_steps, chunk_tokens, own_input_tokens
from twofold.perf.types import Floats

Array = NDArray[np.float64]
MOST_BUSY = 0.98
# Gauss and Hermite's places and weights for a standard normal: means over log-normal lengths.
PLACES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True, slots=True)
class Ends:
    """Steps that tell what prompts shorter and longer than the mean cost, beside the same batch."""

    launch_s: Floats  # carries next to no prefill
    late_s: Floats  # carries a chunk of a prompt that is `longest_ratio` times the mean
    longest_ratio: Floats
    sole_s: Floats  # carries as much of one prompt as a step may


@dataclass(frozen=True, slots=True)
class _Queue:
    """What prompts of all classes do to one that arrives."""

    busy_fraction: Floats  # of time, if all prompts that meet others were computed in full chunks
    met_per_s: Floats  # requests that meet others, see `meeting_fraction`
    service_s: Floats  # of a mean prompt in full chunks, long ones counted as often as they weigh
    rest_s: Floats  # of the prefill or step under way
    shared_s: Floats  # steps made longer by who comes later, and begun again for each group of prompts
    backlog_s: Floats  # mean prefill found, of the one under way too
    found_s: Floats  # the median of what is under way


def normal_quantile(probability: Floats) -> Floats:
    """The standard normal's quantile within 0.02 from 0.5 % to 99.5 %.

    Formula  (p^0.135 − (1 − p)^0.135) / 0.1975
    Source   Tukey's lambda; Joiner & Rosenblatt 1971.
    """
    p = np.asarray(probability, float)
    return (p**0.135 - (1.0 - p) ** 0.135) / 0.1975


def backlog_quantile(busy_fraction: Floats, spread: Floats, level: float) -> Floats:
    """A quantile of the work that an arrival finds in an M/G/1 queue, in mean services.

    Formula  m·lognormal(k) at 1 − (1 − level)/ρ, with m = (1 + v²)/(2(1 − ρ)) and
             k² = 2ρ − 1 + 4/3·(1 − ρ)(1 + v²); 0 where no more than 1 − level of arrivals wait
    Why      P(wait) = ρ; Pollaczek and Khinchine give the mean of those that wait, Takács the second moment
             of all, 2(ρm)² + λE[S³]/(3(1 − ρ)). (1 + v²)³ is the third moment of a log-normal.
    Shapes   arguments broadcast. `spread` is the services' deviation over their mean, v.
    Source   Pollaczek 1930, Khinchine 1932, Takács 1962.
    Limits   ρ → 1: an exponential's mean and deviation. Within 10 % of a simulated queue up to v = 2.
    """
    second = 1.0 + np.square(spread)
    busy = np.asarray(busy_fraction, float)
    square = np.maximum(2.0 * busy - 1.0 + 4.0 / 3.0 * (1.0 - busy) * second, 0.0)
    within = 1.0 - (1.0 - level) / np.maximum(busy, SMALLEST)
    factor = quantile_factor(np.sqrt(square), normal_quantile(np.clip(within, 1e-6, level)))
    return np.where(within > 0.0, second / (2.0 * (1.0 - busy)) * factor, 0.0)


def prompt_s(replica: Replica, ends: Ends, prompt: Prompt, factor: Floats = 1.0) -> Floats:
    """Seconds that a lone prompt of `factor` times the mean length takes from its first step to its last.

    Formula  n·t(tokens/n), n = max(1, tokens/chunk); t on straight lines from a step that carries next to no
             prefill to one that carries a mean prompt, and on to a whole chunk of one prompt
    Shapes   arguments broadcast.
    Limits   the mean length: as many steps as it has chunks, each as priced.
    """
    rank, tokens = np.asarray(replica.chunk_tokens, float), np.asarray(prompt.tokens, float)
    asked = tokens * factor
    steps, usual_steps = np.maximum(1.0, asked / rank), np.maximum(1.0, tokens / rank)
    within, usual = asked / steps, tokens / usual_steps
    launch = np.minimum(ends.launch_s, prompt.carrying_s)
    full = np.maximum(chunk_s(ends, ends.sole_s, prompt.spread, factor), prompt.carrying_s)
    part = np.minimum(1.0, within / usual)
    # Several ranks and stages share a chunk of many prompts, and leave one prompt to one of them.
    shared = np.asarray(replica.pp * replica.dp) > 1.0
    room = np.where(shared, rank - usual, chunk_tokens(replica) - prompt.carried_tokens)
    room = np.maximum(room, 1.0)
    # Of a prompt of several chunks all but the last are full, wherever the line to them ends.
    further = np.maximum((within - usual) / room, (asked - np.maximum(tokens, rank)) / rank)
    further = np.minimum(np.maximum(further, 0.0), 1.0)
    each = (1.0 - part) * launch + part * ((1.0 - further) * prompt.carrying_s + further * full)
    seconds: Floats = steps * each
    return seconds


def chunk_s(ends: Ends, full_s: Floats, spread: Floats, factor: Floats) -> Floats:
    """A whole chunk of a prompt `factor` times as long as the mean: between a usual and a late one.

    Why      Attention alone depends on how far behind its prompt's start a token stands, in proportion. A
             usual token lies in a prompt 1 + v² times as long as the mean.
    """
    usual = 1.0 + np.square(spread)
    longest = np.maximum(ends.longest_ratio - usual, 1e-9)
    share = np.minimum(np.maximum(factor - usual, 0.0) / longest, 1.0)
    found: Floats = (1.0 - share) * full_s + share * np.maximum(ends.late_s, full_s)
    return found


def arrivals_ttft(
    replica: Replica,
    lengths: Lengths,
    steps: Steps,
    ends: Ends,
    rate_per_s: Floats,
    prompt: Prompt | None = None,
    replica_count: Floats = 1.0,
) -> Latency:
    """Seconds to the first token at a rate of all requests, whose lengths are `lengths`.

    Formula  mean = rest + ρ·W + shared + own prefill + admission + handling, W = ρ·S(1 + v²)/(2(1 − ρ)),
             rest = ½((1−φ)·t(0,B) + φ·√(E[T²](1 + v²))), φ = min(1, λ·E[T]/ranks), T = `prompt_s`;
             quantiles add in quadrature what a step may last, what the backlog W, a long prompt of one's own
             and a long one that joins the same step have above their means
    Why      Pollaczek and Khinchine's wait is what is left of the prefill under way, ½λE[S²], and what waits
             before one, ρ·W. Engines compute who came by the start of a step together with who came first, so
             that later ones lengthen it too, and each group pays for its launches. Of `replica_count` behind
             one gate it is the queue of those alone that meet others (`meeting_fraction`).
    Shapes   arguments broadcast. `prompt` is of the class that asks; None: of any request.
    Units    requests/s of the whole replica; seconds out.
    Source   Pollaczek 1930, Khinchine 1932; residual life, Feller 1966; gated service, Takagi 1986.
    Limits   no load: half a step, the own prefill, handling. ρ is held at 0.98; callers add slot waits.
    """
    rate, own = np.asarray(rate_per_s, float), own_input_tokens(replica, lengths)
    plain = np.asarray(steps.plain_s)
    everyone = Prompt(own, lengths.input_spread, steps.carrying_s, steps.carried_tokens)
    axes = max(map(np.ndim, (rate, plain, own, lengths.input_spread)))
    lone = np.asarray(prompt_s(replica, ends, everyone, _factors(everyone.spread, axes)), float)
    queue = _queue(replica, lengths, steps, ends, rate, lone, replica_count)
    mine, asked = lone, prompt or everyone
    if prompt is not None:
        mine = np.asarray(prompt_s(replica, ends, prompt, _factors(prompt.spread, axes)), float)
    own_s = _mean(mine)
    late = admission_steps(replica, own, rate * plain) * plain + first_token_s(replica, plain)
    mean = queue.rest_s + queue.busy_fraction * queue.backlog_s + queue.shared_s + own_s + late

    def upper(level: float, normal: float, exponential: float) -> Floats:
        above = backlog_quantile(queue.busy_fraction, lengths.input_spread, level) * queue.service_s
        waits = np.maximum(above - queue.backlog_s, 0.0) + exponential * queue.shared_s
        long_s = prompt_s(replica, ends, asked, quantile_factor(asked.spread, normal))
        longer = np.maximum(long_s - own_s, 0.0)
        joins = _joining_s(queue, lengths.input_spread, steps.full_s, level)
        parts = np.square(0.45 * plain) + np.square(waits) + np.square(longer) + np.square(joins)
        found: Floats = mean + np.sqrt(parts)
        return found

    usually = backlog_quantile(queue.busy_fraction, lengths.input_spread, 0.5) * queue.service_s
    p50_s = queue.found_s + usually + 0.5 * queue.shared_s + mine[len(mine) // 2] + late
    return Latency(mean, np.minimum(p50_s, mean), upper(0.95, NORMAL_P95, 2.0), upper(0.99, NORMAL_P99, 3.6))


def _factors(spread: Floats, axes: int) -> Floats:
    """Lengths at `PLACES`, over their mean, before so many axes; one where all are equal."""
    ones = (1,) * axes
    return quantile_factor(spread, PLACES.reshape(-1, *ones)) if np.any(spread) else np.ones((1, *ones))


def _mean(values: Floats) -> Floats:
    """Over log-normal lengths, of values at `_factors`."""
    each = np.asarray(values)
    found: Floats = each[0] if len(each) == 1 else sum(map(mul, WEIGHTS, each))
    return found


def prompt_work_spread(replica: Replica, lengths: Lengths) -> Floats:
    """How far the work of prompts spreads: its deviation over its mean.

    Formula  work of f times the mean = f·(1 + f·a), a = 2·heads·width·layers·attended/weights of a token
    Why      A prompt's token meets its weights with 2 FLOPs each, and every token before it with 4 per head,
             its width and layer: the work of prompts grows faster than they do. It must not depend on the
             hardware (INV-2), on which attention takes a little longer than its FLOPs say.
    Shapes   arguments broadcast.
    Limits   short prompts, or no layers that attend to all: the spread of their lengths.
    """
    shape = replica.shape
    layers = shape.softmax_layers - shape.sliding_layers
    attended = lengths.input_tokens - own_input_tokens(replica, lengths) / 2.0
    idle = shape.expert_weights * (1.0 - shape.experts_topk / np.maximum(shape.experts, 1.0))
    weights = shape.total_weights - idle
    longer = 2.0 * shape.heads * shape.qk_head_dim * layers * attended / weights
    factors = _factors(lengths.input_spread, max(np.ndim(longer), np.ndim(lengths.input_spread)))
    works = factors * (1.0 + factors * longer)
    found: Floats = np.sqrt(np.maximum(_mean(np.square(works)) / np.square(_mean(works)) - 1.0, 0.0))
    return found


def meeting_fraction(replica_count: Floats, busy_fraction: Floats, in_flight: Floats) -> Floats:
    """Of the requests that a gate sends to one of n replicas those that take it as it is, prompts and all.

    Formula  h = g + (1 − g)/√n, g = B/(B + ¼)·∫ w(1 − w)/(1 − ρw) dw for w from 0 to 1, B = `in_flight`
    Why      A gate evens out how many are in flight: k or k + 1 on each replica, and k − 1 where one of k has
             just ended. Those places are filled first, and are a queue of their own: with a share w of them
             at k, i are open w^i·(1 − w) of the time. Who comes chooses among these, and meets prompts if
             all have some, ρ^(i − 1) as often; where none is open there are many to choose from. While a
             replica computes prompts it gets those alone that must take it.
    Shapes   arguments broadcast; n need not be whole.
    Limits   one replica: 1. Of 2 to 32 that fill up so, simulated: within 0.1.
    """
    busy = np.clip(busy_fraction, 1e-3, MOST_BUSY)
    places = 0.5 / busy - (1.0 - busy) / np.square(busy) * (-np.log1p(-busy) / busy - 1.0)
    held = np.asarray(in_flight, float)
    many = places * held / (held + 0.25)
    found: Floats = many + (1.0 - many) / np.sqrt(replica_count)
    return found


def _queue(
    replica: Replica,
    lengths: Lengths,
    steps: Steps,
    ends: Ends,
    rate: Floats,
    lone: Array,
    replica_count: Floats,
) -> _Queue:
    """The queue of all prompts, each of which takes `lone` seconds if it comes alone.

    Formula  S = tokens·t(chunk)/(chunk − B·split), split = min(1, prompt/chunk): who decodes takes its tokens
             from the chunks that prompts fill; shared = min(ρ/(1 + ρ)·W, ½ρ·t(chunk))
             + (1 − split)·ρ/(1 − ρ)·t(0+)
    Why      In gated service with exhaustible groups E[W] = ½E[C²]/E[C]·(1 + 2ρ) over cycles C, of which the
             queue holds 1 + ρ parts and who comes later the rest; a cycle of c launches takes c/(1 − ρ).
             Full chunks hide launches and have no room for who comes later.
    """
    own, spread = own_input_tokens(replica, lengths), lengths.input_spread
    second, plain = 1.0 + np.square(spread), np.asarray(steps.plain_s)
    split = np.minimum(1.0, own / np.asarray(replica.chunk_tokens))
    batch = rate * lengths.output_tokens * steps.tpot_s
    chunk = np.maximum(chunk_tokens(replica) - split * batch, 0.5 * chunk_tokens(replica))
    factors = _factors(spread, np.ndim(lone) - 1)
    alone = np.minimum(1.0, own * factors / np.asarray(replica.chunk_tokens))  # of a chunk, one prompt's
    whole_s = (1.0 - alone) * steps.full_s + alone * np.maximum(ends.sole_s, steps.full_s)
    services = own * factors / chunk * chunk_s(ends, whole_s, spread, factors)
    service = np.sqrt(_mean(np.square(services)) / second)
    mean_s = _mean(services)
    met = rate * meeting_fraction(replica_count, rate * mean_s, batch)
    busy = np.minimum(met * mean_s, MOST_BUSY)
    backlog = busy / (1.0 - busy) * service * second / 2.0
    found = np.minimum(1.0, met * _mean(lone) / replica.dp)
    under_way = np.sqrt(_mean(np.square(lone)) * second)
    median = lone[len(lone) // 2]
    usual = np.minimum(1.0, met * median / replica.dp)
    later = np.minimum(busy / (1.0 + busy) * backlog, 0.5 * busy * steps.full_s)
    again = (1.0 - split) * busy / (1.0 - busy) * np.minimum(ends.launch_s, steps.carrying_s)
    return _Queue(
        busy,
        met,
        service,
        0.5 * ((1.0 - found) * plain + found * under_way),
        later + again,
        backlog,
        0.5 * ((1.0 - usual) * plain + usual * median),
    )


def _joining_s(queue: _Queue, spread: Floats, full_s: Floats, level: float) -> Floats:
    """By how much a long prompt that comes later lengthens a step at a quantile: a chunk at most.

    Why      λ·rest prompts come before the step begins; a quantile of all is one of them, further up.
    """
    within = 1.0 - (1.0 - level) / np.clip(queue.met_per_s * queue.rest_s, 1e-9, 1.0)
    factor = quantile_factor(spread, normal_quantile(np.clip(within, 1e-6, level)))
    joining = np.minimum(full_s, queue.service_s * np.maximum(factor - 1.0, 0.0))
    return np.where(within > 0.0, joining, 0.0)
