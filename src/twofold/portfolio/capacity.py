"""Tables of capacity for a portfolio, from what the searches of a plan priced: no search of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.training_choice import TrainingChoice
from twofold.core.errors import InputError
from twofold.inference.fleet import ReplicaCount
from twofold.inference.search import Fleet, PoolChoice
from twofold.portfolio.demand import ClassDemand
from twofold.portfolio.listed import MAY_VANISH, kept_fraction, serves
from twofold.portfolio.offers import NodeOffer, may_join, paid_unit_h, stands_in
from twofold.portfolio.problem import (
    CampaignOption,
    CapacityOffer,
    ServingRate,
    is_hourly,
    unit_usd_per_h,
)

# a: an offer whose place nobody states is taken to be as far from users as another continent.
UNPLACED_RTT_S = 0.15
BYTES_PER_TB, HOUR_S = 1e12, 3600.0


@dataclass(frozen=True, slots=True)
class Pooled:
    """A pool of some fleet that a search found: its replicas on one accelerator serve a class."""

    accelerator: str
    pool: PoolChoice
    accelerators_per_replica: int


def pools_for(choice: ServingChoice, class_name: str) -> tuple[Pooled, ...]:
    """Every machine's best pool for a class, as the search priced them."""
    found: dict[tuple[str, int], Pooled] = {}
    for fleet in fleets_of(choice):
        for pool in fleet.pools:
            if class_name in pool.classes:
                size = int(np.max(pool.replica.accelerator_count))
                name = choice.offers[pool.offer].accelerator.name
                found.setdefault((pool.offer, size), Pooled(name, pool, size))
    return tuple(found.values())


def fleets_of(choice: ServingChoice) -> tuple[Fleet, ...]:
    """Every fleet that the search found, the one that it chose first."""
    best = (choice.result.best,) if choice.result.best else ()
    return (*best, choice.fleet, *choice.result.alternatives)


def best_pool(pools: Iterable[Pooled], offer: CapacityOffer) -> Pooled | None:
    """Of the pools that a unit of an offer has room for, the one with the highest rate; None: none has."""
    fitting = (
        pooled
        for pooled in pools
        if pooled.accelerator == offer.accelerator
        and pooled.accelerators_per_replica <= offer.accelerator_count
    )
    return max(fitting, key=lambda each: _unit_per_s(each, offer), default=None)


def _unit_per_s(pooled: Pooled, offer: CapacityOffer) -> float:
    """What the replicas that a unit has room for carry together."""
    return offer.accelerator_count // pooled.accelerators_per_replica * pooled.pool.limit_per_s


def reserve_of(choice: ServingChoice, class_name: str) -> float:
    """Replicas held over those that the peak takes: utilisation, zones and failures, as the plan has them."""
    pool = next(pool for pool in choice.fleet.pools if class_name in pool.classes)
    full = ReplicaCount.of(1e4, 1.0, at_once_count=pool.at_once_count).needed / 1e4  # what is kept free
    return full * pool.count.total / max(pool.count.needed, 1)


def promise_of(each: ClassDemand) -> tuple[str, float] | None:
    """The latency that the way to users adds to: first token or whole answer, and its limit."""
    targets = each.load.traffic.slo.latencies_s
    for metric in ("ttft", "e2e"):
        if f"{metric}_p95" in targets:
            return metric, targets[f"{metric}_p95"]
    return None


def serving_rates(
    each: ClassDemand, choice: ServingChoice, offers: Iterable[NodeOffer], context: Context
) -> list[ServingRate]:
    """What one unit of every offer carries of a class, and how late it answers."""
    pools = pools_for(choice, each.load.name)
    tokens = float(np.max(np.asarray(each.load.traffic.lengths.output_tokens, float)))
    sent_bytes = context.catalog.economic("bytes of a streamed token").value
    found = []
    for node_offer in offers:
        offer = node_offer.offer
        if not serves(offer) and not (each.load.is_batch and offer.term in MAY_VANISH):
            continue  # what may be taken away at any minute promises nobody an answer
        pooled = best_pool(pools, offer) if stands_in(node_offer, choice.entry, context) else None
        if pooled is None:
            continue
        pool = pooled.pool
        spare = pool.count.total / max(pool.count.needed, 1) / 0.9 if each.load.is_batch else 1.0
        spare *= each.load.asked.slo.work_ratio
        found.append(
            ServingRate(
                offer.name,
                each.name,
                f"{pool.variant} {pool.replica.weights_format}",
                _unit_per_s(pooled, offer) * kept_fraction(offer) / spare,
                late_s(each, pool, offer, context),
                tokens * sent_bytes / BYTES_PER_TB * offer.egress_usd_per_tb,
            )
        )
    return found


def late_s(each: ClassDemand, pool: PoolChoice, offer: CapacityOffer, context: Context) -> float | None:
    """p95 of what the class promises, at the replica's share of the peak, the way to the users included."""
    promise = promise_of(each)
    if promise is None:
        return None
    own = float(np.max(np.asarray(getattr(pool.served, promise[0]).p95_s, float)))
    # The search holds its own promise; a shared pool's figures are of all its classes together.
    return min(own, promise[1]) + (way_s(each, offer, context) or 0.0)


def way_s(each: ClassDemand, offer: CapacityOffer, context: Context) -> float | None:
    """Round trip to the users; None where they are not stated."""
    if not each.users_region:
        return None
    try:
        return context.catalog.rtt_s(offer.region, each.users_region) if offer.region else UNPLACED_RTT_S
    except InputError:
        return UNPLACED_RTT_S


def training_options(
    choice: TrainingChoice, offers: Iterable[NodeOffer], context: Context
) -> tuple[CampaignOption, ...]:
    """Sizes that the search tried, on every offer of the same node and fabric; those that end in time.

    What the spec names with `on:` and machines of your own keep the size that was chosen.
    Any unit of a run that is taken away stops all of them. What its checkpoints cost is the same on all
    offers: the bill has it, as it has that of the plan's fleet.
    """
    limit_s = inf if choice.entry.time_limit_s is None else choice.entry.time_limit_s / choice.margin_ratio
    moved_tb = moved_weights_tb(float(choice.job.model.parameters), choice.job.kind)
    found: dict[tuple[str, int], CampaignOption] = {}
    bound = choice.entry.on is not None or choice.chosen.offer.owned
    for trial in (choice.chosen, *(() if bound else choice.others)):
        if trial.run is None or trial.run.total_s > limit_s:
            continue
        for node_offer in offers:
            offer, node = node_offer.offer, node_offer.node
            if (
                not stands_in(node_offer, choice.entry, context)
                or node.accelerator != trial.offer.accelerator.name
                or offer.accelerator_count != trial.offer.node.accelerator_count
                or not may_join(node_offer, trial.offer.node, trial.node_count)
            ):
                continue
            lost = (1.0 / kept_fraction(offer) - 1.0) * trial.node_count
            wall_h = trial.run.total_s / HOUR_S * (1.0 + lost)
            if wall_h * HOUR_S <= limit_s:
                extra_usd = moved_tb * offer.egress_usd_per_tb
                if is_hourly(offer):  # a contract of a run is paid beyond its hours
                    paid_h = paid_unit_h(node_offer, trial.node_count, wall_h, context.catalog)
                    extra_usd += unit_usd_per_h(offer) * (paid_h - trial.node_count * wall_h)
                option = CampaignOption(offer.name, trial.node_count, wall_h, extra_usd)
                found.setdefault((offer.name, trial.node_count), option)
    return tuple(found.values())


def moved_weights_tb(parameters: float, kind: str) -> float:
    """What leaves the provider when a run is over: two bytes a weight; adapters are next to nothing."""
    return 0.0 if kind == "lora" else 2.0 * parameters / 1e12
