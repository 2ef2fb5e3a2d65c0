"""Which pools of a service stand behind one gate: the plan's, one for all classes, or two."""

from collections.abc import Sequence
from dataclasses import replace
from operator import mul

from twofold.contracts.results import serving
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.spec.scenario_policies import Policies
from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import settings

# Pools that one gate serves from, and by which rules it chooses between two.
PoolGroup = tuple[tuple[serving.Pool, ...], settings.PoolRules | None]


def pool_groups(
    service: ServicePlan, pools: Sequence[serving.Pool], policies: Policies
) -> tuple[PoolGroup, ...]:
    """The plan's pools, put together as a scenario wants them.

    `shared` and `priority` make one pool of all replicas; its replicas are those of the first pool that
    answers somebody who waits. `split` has that one and one for bulk work, which the gate lets help each
    other. Raises ValueRefusedError where pools are of different replicas, or nothing can be parted.
    """
    wanted = policies.pools
    if wanted.kind == "planned":
        return tuple(((pool,), None) for pool in pools)
    bulk_names = tuple(each.name for each in service.classes if not each.is_waited_for)
    waited = [pool for pool in pools if not set(pool.classes) <= set(bulk_names)]
    bulk = [pool for pool in pools if pool not in waited]
    if wanted.kind == "split" and not (waited and bulk):
        raise ValueRefusedError(
            f"`{service.name}` has no pool for bulk work beside one for answers that somebody waits for",
            hint="split classes that only promise a day's end, `finish_within`, from others",
        )
    # Replicas of one could serve the other's classes: equal but for how many sequences they take.
    bare = [(pool.model, replace(pool.replica, max_batch=0, chunk_tokens=None, text="")) for pool in pools]
    if any(each != bare[0] for each in bare):
        raise ValueRefusedError(
            f"the pools of `{service.name}` are of different replicas: no gate can send the same request to"
            " both",
            hint="leave `pools` out of `policies`: then each pool of the plan has a gate of its own",
        )
    if wanted.kind != "split":
        return (((_joined([*waited, *bulk]),), None),)
    latency_pool, bulk_pool = _joined(waited), _joined(bulk)
    rules = settings.PoolRules(latency_pool.name, bulk_pool.name, bulk_names, wanted.borrow_fraction)
    return (((latency_pool, bulk_pool), rules),)


def _joined(pools: Sequence[serving.Pool]) -> serving.Pool:
    """Pools of equal replicas as one; the rate of a replica is what keeps all of them within their goals."""
    whole = pools[0]
    for other in pools[1:]:
        needed = [pool.replica_count - pool.spare_count for pool in (whole, other)]
        rates = [pool.rate_per_replica_per_s for pool in (whole, other)]
        fewest = min(whole.replica.max_batch, other.replica.max_batch)  # the longest requests fill a cache
        whole = replace(
            whole,
            replica=replace(whole.replica, max_batch=fewest),
            classes=(*whole.classes, *other.classes),
            replica_count=whole.replica_count + other.replica_count,
            spare_count=whole.spare_count + other.spare_count,
            rate_per_replica_per_s=sum(map(mul, needed, rates)) / max(sum(needed), 1),
        )
    return whole
