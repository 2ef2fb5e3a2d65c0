"""Ways to serve that a spec leaves open, on the machines of its plan: what each would save and need.

Every one is priced as the plan is, by the same loads, goals and spares; none is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from twofold.answer.context import Context
from twofold.answer.ranges import Drawn, Samples
from twofold.answer.serving_choice import ClassLoad, ServingChoice, server_counts
from twofold.answer.serving_pools import DrawnPool, carried_ratios, relative_need
from twofold.answer.serving_replica import draw_replica, layout_text, replica_plan
from twofold.catalog.types import EconomicFigure, Model
from twofold.contracts.results import serving
from twofold.core import record
from twofold.core.display import format_count, format_seconds
from twofold.core.estimate import Estimate, Source
from twofold.inference.choices import Apart, apart, drafted
from twofold.inference.fleet import ReplicaCount
from twofold.inference.replica import Replica, capacity
from twofold.inference.search import limits
from twofold.inference.slo import TrafficClass
from twofold.inference.steady import batch_limit
from twofold.perf.types import one

ACCEPTED, ACCEPTED_OWN = "draft tokens accepted", "draft tokens accepted from the own head"
FOREIGN_LAYERS = 1  # of a head that somebody else trained: EAGLE's
CACHES = (0.5, 1.0, np.inf)  # of what a fleet's caches hold, for a range: prefixes held twice; all that came
ROUTED = "requests routed by prefix"
# Accelerators, what is saved of those planned, needs, and workers of their own.
Weighed = tuple[int, Estimate, tuple[str, ...], tuple[serving.Workers, ...]]
Way = Callable[[Sequence[DrawnPool], ServingChoice, Context], Weighed | None]


def weighed(
    pools: Sequence[DrawnPool], choice: ServingChoice, cost: Estimate | None, context: Context
) -> tuple[serving.Choice, ...]:
    """What nobody decided on, the largest saving first."""
    found = []
    for name, (way, formula, *inputs) in WAYS.items():
        if name not in choice.entry.weigh:
            continue
        with record.recording():  # what they are priced with says nothing of the plan's own numbers
            what = way(pools, choice, context)
        if what is None:
            continue
        count, saved, needs, workers = what
        usd, at = None, f"choices.{name}"
        record.note(f"{at}.saved_fraction", saved, formula, *inputs)
        if cost is not None:
            usd = saved.times(cost.value, "USD")
            said = "what is saved of the accelerators × the cost of a year"
            record.note(f"{at}.saved_usd_per_year", usd, said, f"{at}.saved_fraction", "cost_usd_per_year")
        found.append(serving.Choice(name, saved, usd, count, needs, workers))
    return tuple(sorted(found, key=lambda each: -each.saved_fraction.value))


def _apart(pools: Sequence[DrawnPool], choice: ServingChoice, context: Context) -> Weighed | None:
    """Prompts on workers of their own, where that takes fewer; in all pools that can where none does."""
    node = choice.offer.replica_count_max
    told = node, node if choice.offer.fixed_count else 1, server_counts(choice.offer)
    asked = [
        None if _all_batch(pool) else (pool.pool, _classes(pool), _sized(choice, pool)) for pool in pools
    ]
    ways = [each and apart(*each, *told) for each in asked]
    own = [pool.pool.accelerators for pool in pools]
    fewer = [way if way and way.accelerators < count else None for way, count in zip(ways, own, strict=True)]
    taken = fewer if any(fewer) else ways
    if not any(taken):
        return None
    planned = [count * relative_need(pool) for count, pool in zip(own, pools, strict=True)]  # under draws
    needed, total, needs = list(planned), sum(own), []
    workers: list[serving.Workers] = []
    for place, (pool, way) in enumerate(zip(pools, taken, strict=True)):
        if way is None:
            continue
        needed[place] = _apart_need(way, pool, context)
        total += way.accelerators - own[place]
        sides = (way.prefill_count, way.prefill, "prompts"), (way.decode_count, way.decode, "answers")
        sizes = (f"{count.total} × {_size(each)} for {what}" for count, each, what in sides)
        moved = f"a cache moved in {format_seconds(way.transfer_s)}"
        needs.append(f"{' and '.join(pool.pool.classes)} on {', '.join(sizes)}, {moved}")
        workers += _workers(way, pool, choice)
    saved = Drawn(1.0 - total / sum(own), 1.0 - np.sum(needed, axis=0) / np.sum(planned, axis=0))
    return total, saved.estimate("ratio"), tuple(needs), tuple(workers)


def _workers(way: Apart, pool: DrawnPool, choice: ServingChoice) -> list[serving.Workers]:
    """Both kinds as the plan's schema writes them; a worker for prompts decodes nothing."""
    found = []
    sides = ("prefill", way.prefill, way.prefill_count), ("decode", way.decode, way.decode_count)
    for role, replica, count in sides:
        text = layout_text(replica, "one accelerator", f"chunks of {one(replica.chunk_tokens):.0f}")
        most = int(one(batch_limit(replica, pool.loads[0].traffic.lengths)))
        plan = replica_plan(replica, choice.entry.engine, most, text)
        classes, model = pool.pool.classes, pool.pool.variant
        name = f"{classes[0]}-{role}"
        found.append(serving.Workers(name, role, classes, model, plan, count.total, count.spare))
    return found


def _apart_need(way: Apart, pool: DrawnPool, context: Context) -> Samples:
    """Accelerators of both kinds of workers under every draw."""
    model, tables = pool.replica.model, (context.constants, context.draws)
    workers = way.prefill, way.decode
    under = way.limits(*(draw_replica(each, model, *tables).under_draws for each in workers))
    ratios = [carried_ratios(*map(np.ravel, each)) for each in zip(under, way.limits(*workers), strict=True)]
    first, then = (
        _size(each) * count.total / ratio
        for each, count, ratio in zip(workers, (way.prefill_count, way.decode_count), ratios, strict=True)
    )
    return first + then


def accepted_drafts(model: Model, context: Context) -> EconomicFigure:
    """How probably a drafted token is accepted: by whether the model's own head drafts."""
    return context.catalog.economic(ACCEPTED_OWN if model.mtp_layers else ACCEPTED)


def _drafted(pools: Sequence[DrawnPool], choice: ServingChoice, context: Context) -> Weighed | None:
    """Tokens that a small head proposes and the model checks, as many as carry most in each pool."""
    row = accepted_drafts(choice.model, context)
    layers = choice.model.mtp_layers or FOREIGN_LAYERS
    totals, needs = np.zeros(3), []
    for pool in pools:
        sized = _sized(choice, pool)
        tokens, rates = drafted(pool.pool, _classes(pool), (row.low, row.value, row.high), layers)
        totals += [_size(pool.pool.replica) * sized(pool.pool.peak_per_s, rate).total for rate in rates]
        if tokens:
            needs.append(f"{tokens} drafted a step for {' and '.join(pool.pool.classes)}")
    if not needs or len({choice.fleet.accelerators, *totals}) == 1:
        return None
    came = choice.model.mtp_layers > 0
    head = "the head that came with the model" if came else "a head: none came with the model"
    accepted = f"each accepted at {100 * row.value:.0f} %"
    return round(totals[1]), _saved(totals, choice), (*needs, accepted, head), ()


def _cached(pools: Sequence[DrawnPool], choice: ServingChoice, _: Context) -> Weighed | None:
    """Prompts whose beginning a replica holds, by the prefixes of a trace and the room in the caches.

    Limits   requests go to the replica that holds their prefix; what answers take of the cache is as planned.
    """
    if not any(load.prefix_hits for pool in pools for load in pool.loads):
        return None
    totals, needs = np.zeros(len(CACHES)), [ROUTED]
    for pool in pools:
        for place, part in enumerate(CACHES):
            count, found = _finding(pool, choice, part)
            totals[place] += _size(pool.pool.replica) * count.total
            needs += found if part == 1.0 else ()
    return round(totals[1]), _saved(totals, choice), tuple(needs), ()


def _finding(pool: DrawnPool, choice: ServingChoice, part: float) -> tuple[ReplicaCount, tuple[str, ...]]:
    """Replicas that a pool needs where prefixes stand in so much of its idle cache, and what they then find.

    Formula  n = needed(hits(n · idle cache)), from those planned, twice
    Why      Fewer replicas hold less, so that the second answer, of no fewer, carries itself.
    """
    chosen, count = pool.pool, pool.pool.count
    needs: tuple[str, ...] = ()
    idle = one(capacity(chosen.replica).kv_tokens) * (1.0 - one(chosen.served.kv_fraction))
    traced = [load for load in pool.loads if load.prefix_hits]
    for _ in range(2 if traced else 0):
        room = part * idle * count.needed
        found = {load.name: _hit_fraction(load, room) for load in traced}
        asked = tuple(
            replace(each, shared_prefix_fraction=found.get(each.name, each.shared_prefix_fraction))
            for each in _classes(pool)
        )
        count = _sized(choice, pool)(chosen.peak_per_s, float(limits(chosen.replica, asked).requests_per_s))
        needs = tuple(
            f"{100 * share:.0f} % of {name}'s input found in {format_count(room)} tokens of cache"
            for name, share in found.items()
        )
    return count, needs


def _hit_fraction(load: ClassLoad, cache_tokens: float) -> float:
    """Of the input, what caches of so many tokens find, at most what the largest of the trace did."""
    sizes, found = zip(*load.prefix_hits, strict=True)
    held = max(cache_tokens, 1e-9)  # where no cache is idle nothing is found
    return float(np.interp(np.log(held), np.log(sizes), found, left=0.0))


def _saved(totals: Samples, choice: ServingChoice) -> Estimate:
    """Of the accelerators planned, from what is needed at the low end, in the middle and at the high end."""
    low, middle, high = (1.0 - totals / choice.fleet.accelerators).tolist()
    return Estimate(middle, min(low, middle), max(high, middle), "ratio", Source.ASSUMED)


def _classes(pool: DrawnPool) -> tuple[TrafficClass, ...]:
    return tuple(load.asked for load in pool.loads)


def _all_batch(pool: DrawnPool) -> bool:
    return all(load.is_batch for load in pool.loads)


def _sized(choice: ServingChoice, pool: DrawnPool) -> Callable[..., ReplicaCount]:
    count, availability = pool.pool.count, choice.entry.availability_fraction
    promised = partial(ReplicaCount.of, zones=count.zones, availability_fraction=availability)
    return partial(promised, at_once_count=pool.pool.at_once_count)


def _size(replica: Replica) -> int:
    return round(one(replica.accelerator_count))


# By name: how it is weighed, how what it saves follows, and from what.
WAYS: Mapping[str, tuple[Way, str, *tuple[str, ...]]] = {
    "disaggregation": (
        _apart,
        "1 − accelerators of workers for prompts and for answers, within the same goals / those planned",
        *("count", "layout", "carried", "lengths", "fabric"),
    ),
    "drafts": (
        _drafted,
        "1 − accelerators of the same replicas with drafts / those planned",
        *("count", "layout", "carried", "acceptance"),
    ),
    "prefix_cache": (
        _cached,
        "1 − accelerators of the same replicas where prefixes are found / those planned",
        *("count", "layout", "carried", "prefixes"),
    ),
}
