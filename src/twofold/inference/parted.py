"""Prompts on workers of their own, at random arrivals: computed there, moved, and answered elsewhere.

Two stations behind one gate. Each is priced as any replica is: the first never decodes, the second receives
every prompt and never prefills.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from twofold.inference import latency, steady
from twofold.inference.arrivals import Ends, arrivals_ttft
from twofold.inference.iteration import iteration_s
from twofold.inference.regimes import HANDOFF_S
from twofold.inference.replica import Replica
from twofold.inference.slo import TrafficClass, merged_class, shared_load
from twofold.perf.types import Floats

MOST_MOVED = 0.9  # of the time that a worker's links may be busy with caches


def answering(replica: Replica) -> Replica:
    """The replica as it only answers: what is before a first token leaves is counted where prompts are."""
    quiet = replace(replica.engine, first_token_s=0.0, first_token_steps=0.0)
    return replace(replica, engine=quiet)


def received(traffic: TrafficClass) -> TrafficClass:
    """A class as workers for answers see it: its prompts come computed."""
    return replace(traffic, received_fraction=1.0)


def most_prompts_per_s(replica: Replica, traffic: TrafficClass) -> Floats:
    """Prompts/s in full chunks, with nothing that decodes beside them."""
    found = traffic.on(replica)
    full_s = steady.step_s(found, 0.0, steady.full_step(found, traffic.lengths))
    return steady.chunk_tokens(found) / (steady.own_input_tokens(found, traffic.lengths) * full_s)


def prompts_latency(
    replica: Replica, classes: Sequence[TrafficClass], own: TrafficClass, rate_per_s: Floats
) -> latency.Latency:
    """Seconds until a prompt of class `own` is computed by a worker that computes those of all `classes`.

    Formula  `arrivals_ttft` where no sequence decodes: half an idle round, the queue, its own steps
    Why      A worker for prompts is a replica that lets each request go with its first token.
    Shapes   array fields end in an axis along which rates may lie.
    Units    requests/s of one worker.
    """
    mixed = merged_class(classes)
    found, lengths = mixed.on(replica), replace(mixed.lengths, output_tokens=1.0, output_spread=0.0)
    tokens, carrying = _lone(found, lengths)
    full, late, launch, sole = (
        steady.step_s(found, 0.0, each(found, lengths))
        for each in (steady.full_step, steady.late_step, steady.launch_step, steady.sole_step)
    )
    full, sole = np.maximum(full, carrying), np.maximum(sole, carrying)
    idle = iteration_s(found, 0.0, 0.0, 0.0, 0.0).total_s
    steps = steady.Steps(idle, carrying, tokens, np.zeros_like(idle), idle, full)
    ends = Ends(launch, np.maximum(late, full), steady.longest_ratio(found, lengths), sole)
    seen = own.on(replica)
    carried, own_s = _lone(seen, own.lengths)
    prompt = latency.Prompt(
        steady.own_input_tokens(seen, own.lengths), own.lengths.input_spread, own_s, carried
    )
    return arrivals_ttft(found, lengths, steps, ends, rate_per_s, prompt)


def _lone(replica: Replica, lengths: steady.Lengths) -> tuple[Floats, Floats]:
    """Tokens of the step that carries one mean prompt, or a chunk of it; and its seconds."""
    tokens = np.minimum(steady.own_input_tokens(replica, lengths), np.asarray(replica.chunk_tokens))
    return tokens, iteration_s(replica, tokens, steady.attended_tokens(replica, lengths), 0.0, 0.0).total_s


def moved_s(prefill: Replica, decode: Replica, traffic: TrafficClass) -> Floats:
    """Seconds that the cache of a mean prompt is under way, once its turn has come.

    Formula  bytes / (accelerators · network card), of the worker that has fewer accelerators
    Why      Each accelerator sends or gets its own part. A prefix that the worker holds is not sent again.
    """
    tokens = np.asarray(traffic.lengths.input_tokens) * (1.0 - traffic.shared_prefix_fraction)
    lanes = np.minimum(prefill.accelerator_count, decode.accelerator_count)
    moved_bytes = decode.shape.kv_bytes(decode.kv_format, tokens)
    return moved_bytes / lanes / decode.cluster.network.nic_bytes_per_s


def moved_latency(
    prefill: Replica, decode: Replica, classes: Sequence[TrafficClass], own: TrafficClass, rate_per_s: Floats
) -> latency.Latency:
    """Seconds from a computed prompt of class `own` to its cache at the worker that answers.

    Formula  10 ms + wait + `moved_s`, wait = ρ/(1−ρ)·S(1 + v²)/2, ρ = λ·S, S of all classes
    Why      What one worker for answers gets passes one after the other, at random.
    Units    requests/s that one worker for answers receives.
    Source   hand-off as `disaggregated`; Pollaczek 1930, Khinchine 1932.
    Limits   ρ is held at 0.9: callers refuse more. Layers that are sent while later ones are computed would
             hide a part.
    """
    mixed = merged_class(classes)
    each, mean_s = moved_s(prefill, decode, own), moved_s(prefill, decode, mixed)
    busy = np.minimum(np.asarray(rate_per_s) * mean_s, MOST_MOVED)
    wait = busy / (1.0 - busy) * mean_s * (1.0 + np.square(mixed.lengths.input_spread)) / 2.0
    mean = HANDOFF_S + wait + each

    def upper(normal: float, exponential: float) -> Floats:
        long_s = each * np.maximum(latency.quantile_factor(own.lengths.input_spread, normal), 1.0)
        return HANDOFF_S + exponential * wait + long_s

    return latency.Latency(mean, mean, upper(latency.NORMAL_P95, 3.0), upper(latency.NORMAL_P99, 4.6))


def parted(
    prefill: Replica,
    decode: Replica,
    classes: Sequence[TrafficClass],
    own: TrafficClass,
    rate_per_s: float,
    prefill_workers: float,
    decode_workers: float,
) -> latency.Served:
    """What class `own` gets where all `classes` come at `rate_per_s` to workers for prompts, then others.

    Formula  TTFT = prompt's + transfer + first step of the answer; quantiles add the deviations in quadrature
    Why      Who waits long for a prefill worker need not meet a busy link or a full batch.
    Units    requests/s of all workers together.
    Limits   no transfer and a free worker: the prefill alone. Above what a station carries first tokens never
             come.
    """
    share, mixed = rate_per_s / decode_workers, merged_class(classes)
    scale = rate_per_s / mixed.rate_per_s
    whole = tuple(replace(each, rate_per_s=each.rate_per_s * scale) for each in classes)
    answered = shared_load(answering(decode), [*map(received, whole)], received(own), share)
    computed = prompts_latency(prefill, whole, own, rate_per_s / prefill_workers)
    carried = rate_per_s / prefill_workers < np.asarray(most_prompts_per_s(prefill, mixed))
    carried = carried & (share * np.asarray(moved_s(prefill, decode, mixed)) < MOST_MOVED)
    first = np.isfinite(answered.ttft.mean_s)
    late = np.where(carried & first, 0.0, np.inf)
    joins = (np.where(first, getattr(answered.ttft, each.name), 0.0) for each in fields(latency.Latency))
    parts = computed, moved_latency(prefill, decode, whole, own, share), latency.Latency(*joins)
    mean = sum((each.mean_s for each in parts), late)

    def upper(name: str) -> Floats:
        above = (np.square(getattr(each, name) - each.mean_s) for each in parts)
        whole_s: Floats = mean + np.sqrt(sum(above, 0.0))
        return whole_s

    median = np.minimum(mean, sum((each.p50_s for each in parts), late))
    ttft = latency.Latency(mean, median, upper("p95_s"), upper("p99_s"))
    e2e = latency.answer_latency(own.lengths, ttft, answered.tpot)
    return replace(answered, ttft=ttft, e2e=e2e, requests_per_s=np.asarray(rate_per_s))
