"""Which pools of a service stand behind one gate: the plan's, one for all classes, or two."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from twofold.contracts.results import Pool, ServicePlan
from twofold.contracts.scenario import FleetChange
from twofold.core import ValueRefusedError
from twofold.policy.gate import PoolRules
from twofold.rehearse.gate import is_bulk

AS_PLANNED = "leave `pools` out of `fleet`: then each pool of the plan is rehearsed behind a gate of its own"


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """Pools that one gate serves from, and by which rules it chooses between two."""

    pools: tuple[Pool, ...]
    rules: PoolRules | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """All that it serves."""
        return tuple(name for pool in self.pools for name in pool.classes)


def pool_groups(service: ServicePlan, pools: Sequence[Pool], change: FleetChange) -> tuple[PoolGroup, ...]:
    """The plan's pools, put together as a scenario wants them.

    `shared` and `priority` make one pool of all replicas; its replicas are those of the first pool that
    answers somebody who waits. `split` has that one and one for bulk work, which the gate lets help each
    other. Raises ValueRefusedError where pools are of different replicas, or nothing can be parted.
    """
    if change.pools == "planned":
        return tuple(PoolGroup((pool,)) for pool in pools)
    bulk_names = tuple(each.name for each in service.classes if is_bulk(each))
    waited = [pool for pool in pools if not set(pool.classes) <= set(bulk_names)]
    bulk = [pool for pool in pools if pool not in waited]
    if change.pools == "split":
        if not waited or not bulk:
            raise ValueRefusedError(
                f"`{service.name}` has no pool for bulk work beside one for answers that somebody waits for",
                hint="split classes that only promise a day's end, `finish_within`, from others",
            )
        latency_pool, bulk_pool = _one(waited, service), _one(bulk, service)
        if not _alike(latency_pool, bulk_pool):
            raise _different(service)
        rules = PoolRules(latency_pool.name, bulk_pool.name, bulk_names, change.borrow_fraction)
        return (PoolGroup((latency_pool, bulk_pool), rules),)
    return (PoolGroup((_one([*waited, *bulk], service),)),)


def _one(pools: Sequence[Pool], service: ServicePlan) -> Pool:
    """Pools of equal replicas as one; the rate of a replica is what keeps all of them within their goals."""
    return reduce(lambda first, other: _joined(first, other, service), pools)


def _joined(first: Pool, other: Pool, service: ServicePlan) -> Pool:
    if not _alike(first, other):
        raise _different(service)
    needed = [pool.replica_count - pool.spare_count for pool in (first, other)]
    rates = [pool.rate_per_replica_per_s for pool in (first, other)]
    rate_per_s = sum(count * rate for count, rate in zip(needed, rates, strict=True)) / max(sum(needed), 1)
    fewest = min(first.replica.max_batch, other.replica.max_batch)  # the longest requests fill a cache first
    return replace(
        first,
        replica=replace(first.replica, max_batch=fewest),
        classes=(*first.classes, *other.classes),
        replica_count=first.replica_count + other.replica_count,
        spare_count=first.spare_count + other.spare_count,
        rate_per_replica_per_s=rate_per_s,
    )


def _alike(first: Pool, other: Pool) -> bool:
    """Whether replicas of one could serve the other's classes: equal but for how many sequences they take."""
    bare = [replace(pool.replica, max_batch=0, chunk_tokens=None, text="") for pool in (first, other)]
    return first.model == other.model and bare[0] == bare[1]


def _different(service: ServicePlan) -> ValueRefusedError:
    return ValueRefusedError(
        f"the pools of `{service.name}` are of different replicas: no gate can send the same request to both",
        hint=AS_PLANNED,
    )
