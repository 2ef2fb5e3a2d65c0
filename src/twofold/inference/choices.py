"""Ways to serve that nobody decided on, priced on a planned pool's machines by the formulas that planned it:
drafts that the model checks, and prompts on workers of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twofold.inference.curve import load_axis
from twofold.inference.fleet import ReplicaCount
from twofold.inference.latency import Latency
from twofold.inference.parted import (
    MOST_MOVED,
    answering,
    most_prompts_per_s,
    moved_latency,
    moved_s,
    parted,
    prompts_latency,
    received,
)
from twofold.inference.replica import Replica, capacity, max_sequences
from twofold.inference.search import (
    LAYOUT_FIELDS,
    Array,
    PoolChoice,
    Sized,
    candidate_layouts,
    laid_out,
    limits,
    pick,
    servers_of,
    spanning_layouts,
)
from twofold.inference.slo import Slo, TrafficClass, merged_class, rate_limit, shared_rate_limit
from twofold.inference.steady import longest_ratio
from twofold.perf.types import one

MOST_DRAFTS = 5
# Of a goal on first tokens what workers for answers may take, and of one on whole answers those for prompts.
SHARES = (0.15, 0.35)
LOADS = np.linspace(0.02, 0.94, 47)  # of what a worker for prompts computes at most
ANSWERING_CHUNK = 2048.0  # workers for answers keep no room for long chunks
Goals = tuple[Slo, ...]  # of classes, in their order


def drafted(
    pool: PoolChoice, classes: tuple[TrafficClass, ...], accepts: Sequence[float], layers: float
) -> tuple[int, tuple[float, ...]]:
    """Tokens per draft that carry most at the middle of `accepts`; requests/s of a replica at each of them.

    (0, as planned) where no draft carries more, or no replica can be spared.

    Why      A longer draft costs its own time and more checked tokens, and is rarely accepted to its end;
             where a batch is large, checking is bound by FLOPs.
    """
    if pool.count.needed <= 1:
        return 0, (pool.limit_per_s,) * len(accepts)
    counts = np.arange(1.0, MOST_DRAFTS + 1)
    accept, proposed = np.meshgrid(np.asarray(accepts, float), counts, indexing="ij")
    drafts = {"draft_tokens": proposed, "draft_accept_fraction": accept}
    rates = limits(replace(pool.replica, **drafts, draft_layers=layers), classes).requests_per_s
    best = int(np.argmax(rates[len(accepts) // 2]))
    if rates[len(accepts) // 2, best] <= pool.limit_per_s:
        return 0, (pool.limit_per_s,) * len(accepts)
    return best + 1, tuple(map(float, rates[:, best]))


@dataclass(frozen=True, slots=True)
class Apart:
    """A pool as two kinds of workers: those that compute prompts, and those that answer."""

    classes: tuple[TrafficClass, ...]
    prompt_goals: Goals  # what the first kind may take of each goal
    answer_goals: Goals
    prefill: Replica
    decode: Replica
    prefill_count: ReplicaCount
    decode_count: ReplicaCount
    transfer_s: float  # of a mean prompt's cache, the wait for the link included

    @property
    def accelerators(self) -> int:
        """Of both kinds, spares included."""
        sides = (self.prefill, self.prefill_count), (self.decode, self.decode_count)
        return round(sum(one(replica.accelerator_count) * count.total for replica, count in sides))

    def limits(self, prefill: Replica, decode: Replica) -> tuple[Array, Array]:
        """Requests/s of one worker of each kind within its goals, for these under draws.

        Array fields end in an axis of length 1.
        """
        share = merged_class(self.classes).rate_per_s / self.decode_count.needed
        first = _prompts_per_s(self.classes, self.prompt_goals, decode, share, prefill)
        return first, _answers_per_s(self.classes, self.answer_goals, decode)


def apart(
    pool: PoolChoice,
    classes: tuple[TrafficClass, ...],
    sized: Sized,
    most: int,
    least: int = 1,
    server_counts: tuple[int, ...] = (),
) -> Apart | None:
    """The fewest accelerators that meet all classes with prompts on workers of their own; None: none does.

    Workers of both kinds have `least` to `most` accelerators, those of a server, or so many servers; formats
    and software as planned. Each goal is parted between them; what is found is priced whole, and dropped
    where a goal does not hold. Where one worker of each kind with its spares is no fewer than planned,
    nothing is looked for.
    Limits   quantiles of both parts are added: a little more than the whole has.
    """
    classes = tuple(replace(each, slo=each.slo.on_replica()) for each in classes)
    mixed, peak = merged_class(classes), pool.peak_per_s
    narrow = candidate_layouts(pool.replica.shape, most)
    wide = spanning_layouts(pool.replica, most, server_counts, staged=False)
    layouts = {name: np.concatenate([narrow[name], wide[name]]) for name in LAYOUT_FIELDS}
    sizes = layouts["tp"] * layouts["pp"] * layouts["dp"]
    usable = (sizes >= least) & ((sizes <= most) | (2.0 * sizes < pool.accelerators))
    swept = laid_out(pool.replica, {name: column[usable] for name, column in layouts.items()})
    longest = mixed.lengths.input_tokens * longest_ratio(swept, mixed.lengths)
    fits = (np.asarray(capacity(swept).kv_bytes) > 0) & (np.asarray(max_sequences(swept, longest)) >= 1.0)
    answers = fits & (np.asarray(swept.chunk_tokens) == ANSWERING_CHUNK)
    smallest = np.min(np.where(fits, swept.accelerator_count, np.inf))
    if 2 * smallest * sized(peak, np.inf).total >= pool.accelerators:
        return None
    found = []
    for share in SHARES:
        prompt_goals, answer_goals = zip(*(_parted_goals(each.slo, share) for each in classes), strict=True)
        decode = _fewest(swept, answers, peak, sized, partial(_answers_per_s, classes, answer_goals), most)
        if decode is None:
            continue
        told = classes, prompt_goals, decode[0], peak / decode[1].needed
        prefill = _fewest(swept, fits, peak, sized, partial(_prompts_per_s, *told), most)
        if prefill is None:
            continue
        moved = moved_latency(prefill[0], decode[0], classes, mixed, peak / decode[1].needed)
        workers = prefill[0], decode[0], prefill[1], decode[1]
        way = Apart(classes, prompt_goals, answer_goals, *workers, one(moved.mean_s))
        if _holds(way, peak):
            found.append(way)
            if not any(name.startswith("e2e") for each in classes for name in each.slo.latencies_s):
                break  # the other share moves little where whole answers have no goal
    return min(found, key=lambda each: each.accelerators, default=None)


def _parted_goals(slo: Slo, share: float) -> tuple[Slo, Slo]:
    """What workers for prompts and those for answers may take of each goal; TPOT is the latter's alone."""
    prompts: dict[str, float] = {}
    answers: dict[str, float] = {}
    for name, limit_s in slo.latencies_s.items():
        metric, _, which = name.partition("_")
        if metric == "ttft":
            prompts[name] = min(prompts.get(name, np.inf), (1.0 - share) * limit_s)
            answers[name] = share * limit_s
        elif metric == "e2e":
            first = prompts.get(f"ttft_{which}", np.inf)
            prompts[f"ttft_{which}"] = min(first, share * limit_s)
            answers[name] = (1.0 - share) * limit_s
        else:
            answers[name] = limit_s
    return Slo(prompts), Slo(answers)


def _fewest(
    swept: Replica,
    fits: NDArray[np.bool_],
    peak_per_s: float,
    sized: Sized,
    carried: Callable[[Replica], Array],
    server_size: int,
) -> tuple[Replica, ReplicaCount] | None:
    """The layout whose workers, spares included, take the fewest accelerators, and their count."""
    if not np.any(fits):
        return None
    kept = laid_out(swept, {name: getattr(swept, name)[fits] for name in LAYOUT_FIELDS})
    rates = np.ravel(carried(load_axis(kept)))
    sizes, servers = (
        np.broadcast_to(each, rates.shape) for each in (kept.accelerator_count, servers_of(kept, server_size))
    )
    counts = [
        sized(peak_per_s, float(rate), int(count)) if rate > 0 else None
        for rate, count in zip(rates, servers, strict=True)
    ]
    totals = [np.inf if n is None else n.total * float(size) for n, size in zip(counts, sizes, strict=True)]
    best = int(np.argmin(totals))
    count = counts[best]
    return None if count is None else (pick(kept, best), count)


def _answers_per_s(classes: tuple[TrafficClass, ...], goals: Goals, decode: Replica) -> Array:
    """Requests/s that one worker for answers carries within its part of the goals."""
    quiet = answering(decode)
    told = [replace(received(each), slo=slo) for each, slo in zip(classes, goals, strict=True)]
    found = rate_limit(quiet, told[0]) if len(told) == 1 else shared_rate_limit(quiet, told)
    return found.requests_per_s


def _prompts_per_s(
    classes: tuple[TrafficClass, ...], goals: Goals, decode: Replica, received_per_s: float, prefill: Replica
) -> Array:
    """Requests/s that one worker for prompts carries within its part of the goals, the transfer included.

    Formula  the largest of `LOADS` at which no promised quantile exceeds its target; 0 where the first does,
             or where the links of a worker for answers cannot take `received_per_s`
    """
    mixed = merged_class(classes)
    rates = LOADS * np.asarray(most_prompts_per_s(prefill, mixed))
    meets = np.asarray(received_per_s * np.asarray(moved_s(prefill, decode, mixed)) < MOST_MOVED)
    for own, slo in zip(classes, goals, strict=True):
        computed = prompts_latency(prefill, classes, own, rates)
        moved = moved_latency(prefill, decode, classes, own, received_per_s)
        for name, limit_s in slo.latencies_s.items():
            meets = meets & (_at(computed, name) + _at(moved, name) <= limit_s)
    # The first rate that misses ends what is carried, whatever comes after it.
    held = np.logical_and.accumulate(np.broadcast_to(meets, rates.shape), axis=-1)
    most: Array = np.max(np.where(held, rates, 0.0), axis=-1)
    return most


def _at(latency: Latency, goal: str) -> Array:
    return np.asarray(getattr(latency, f"{goal.partition('_')[2]}_s"), float)


def _holds(way: Apart, peak_per_s: float) -> bool:
    """Whether every goal of every class holds when the whole is priced at its peak."""
    counts = way.prefill_count.needed, way.decode_count.needed
    for own in way.classes:
        found = parted(way.prefill, way.decode, way.classes, own, peak_per_s, *counts)
        for name, limit_s in own.slo.latencies_s.items():
            if not one(_at(getattr(found, name.partition("_")[0]), name)) <= limit_s:
                return False
    return True
