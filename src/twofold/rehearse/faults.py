"""A scenario's fleet and faults in the twin's terms: zones by number, replicas and nodes by id, seconds."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from twofold.contracts.results import serving
from twofold.contracts.spec.scenario import NODE_HANG, Scenario
from twofold.contracts.spec.scenario_fleet import ClusterChange
from twofold.contracts.spec.scenario_parts import FaultEvent, FleetChange
from twofold.core.display import format_seconds
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.policy.cluster import events
from twofold.twin.cluster import cluster_types
from twofold.twin.serving import fault_types, fleet_types

BASE_VERSION = "base"
REPLICAS_MAX = 20_000  # of a pool: all of them are scraped and routed to


@dataclass(frozen=True, slots=True)
class WorldPool:
    """One pool of a world, whose replicas are counted on from those of the pools before it."""

    name: str  # in the twin; "" where it is the only one
    classes: tuple[str, ...]  # that it serves
    groups: tuple[fleet_types.ReplicaGroup, ...]
    in_flight_limit: int  # of a replica

    @property
    def replica_count(self) -> int:
        """When the run begins."""
        return sum(group.count for group in self.groups)


def replica_groups(
    pool: serving.Pool, planned_zones: int, change: FleetChange, name: str = ""
) -> tuple[fleet_types.ReplicaGroup, ...]:
    """The replicas of a pool, spread over its zones as evenly as whole numbers allow, fullest first.

    `name` is the pool's in a world of several.
    """
    count = pool.replica_count
    if change.replicas is not None:
        count = change.replicas
    elif change.spares is not None:
        count = pool.replica_count - pool.spare_count + change.spares
    if count < 1:
        raise ValueRefusedError(
            f"pool `{pool.name}` has no replica", hint="write `replicas: 1` or more under `fleet`"
        )
    if count > REPLICAS_MAX:
        raise ValueRefusedError(
            f"{count:,} replicas of pool `{pool.name}` are more than a rehearsal takes",
            hint=f"write {REPLICAS_MAX:,} or fewer: a part of a fleet behaves like the whole",
        )
    zones = min(change.zones or planned_zones, count)
    each, more = divmod(count, zones)
    return tuple(
        fleet_types.ReplicaGroup(
            each + (zone < more), fleet_types.replica_order(f"zone-{zone + 1}", name, version=BASE_VERSION)
        )
        for zone in range(zones)
    )


def faults_of(
    scenario: Scenario, pools: Sequence[WorldPool], horizon_s: float, tiers: Collection[str] = ()
) -> tuple[fault_types.Fault, ...]:
    """What goes wrong in a world of serving pools; what concerns other pools or training is left out.

    Raises ValueRefusedError for a zone or a replica that a pool does not have.
    """
    zones_count = max(len(pool.groups) for pool in pools)
    found: list[fault_types.Fault] = []
    if scenario.fleet.start == "cold":
        found.append(fault_types.ColdStart())
    for event in scenario.faults:
        until_s = min(event.until_s, max(horizon_s, event.at_s))
        if event.kind == "slow-tier":
            if event.tier is not None and event.tier in tiers:
                found.append(fault_types.SlowTier(event.at_s, until_s, event.tier, event.slowdown_ratio))
        elif event.kind == "release" and event.pool is None:
            found += _of_pool(event, replace(pools[0], name=""), 0, until_s)  # of every pool behind the gate
        elif "pool" not in event.may_say:
            found += _of_all(event, zones_count, until_s)
        else:
            before = 0
            for pool in pools:
                if event.pool is None or event.pool in pool.classes:
                    found += _of_pool(event, pool, before, until_s)
                before += pool.replica_count
    return tuple(found)


def _of_pool(event: FaultEvent, pool: WorldPool, before: int, until_s: float) -> Iterator[fault_types.Fault]:
    """What befalls some replicas of one pool, or its releases; `before` it in the world stand so many."""
    total, at_s, back_s = pool.replica_count, event.at_s, event.back_after_s
    ids = [f"r{before + number}" for number in range(event.replicas)]
    if "replicas" in event.may_say and event.replicas > total:
        raise ValueRefusedError(
            f"a {event.kind} of {event.replicas} replicas, where the pool has {total}",
            hint=f"write `replicas: {total}` or fewer",
        )
    match event.kind:
        case "replica-crash":
            yield from (fault_types.ReplicaCrash(at_s, one, event.cause, back_s) for one in ids)
        case "random-crashes":
            rate_h, back_s = event.rate_per_s * 3600.0, 60.0 if back_s is None else back_s
            yield fault_types.RandomCrashes(rate_h, event.cause, back_s, at_s, event.until_s, pool.name)
        case "slow-replica":
            yield from (fault_types.SlowReplica(at_s, until_s, one, event.slowdown_ratio) for one in ids)
        case "release":
            yield fault_types.Release(
                at_s,
                event.version,
                pool.name,
                step_factor=event.slowdown_ratio,
                error_fraction=event.errors_fraction,
                quality_drop=event.quality_drop_fraction,
            )


def _of_all(event: FaultEvent, zones_count: int, until_s: float) -> Iterator[fault_types.Fault]:
    """What befalls a zone or the store of weights, whatever pools have replicas there."""
    if "zone" in event.may_say and event.zone > zones_count:
        has = "1 zone" if zones_count == 1 else f"{zones_count} zones"
        raise ValueRefusedError(
            f"the {event.kind} of zone {event.zone} cannot be: the fleet has {has}",
            hint="write a lower `zone`, or more `zones` under `fleet`",
        )
    at_s, zone = event.at_s, f"zone-{event.zone}"
    match event.kind:  # any other is of training alone
        case "thermal-throttle":
            zone = zone if "zone" in event.model_fields_set else ""
            yield fault_types.ThermalThrottle(at_s, until_s, event.slowdown_ratio, zone)
        case "zone-loss":
            yield fault_types.ZoneLoss(at_s, zone, event.back_after_s)
        case "partition":
            yield fault_types.Partition(at_s, until_s, zone)
        case "drain":
            yield fault_types.Drain(at_s, zone, event.back_after_s)
        case "storage-brownout":
            yield fault_types.StorageBrownout(at_s, until_s, max(event.bandwidth_fraction, 1e-6))


NODE_NAME = "node-"  # and its number, from 0


def slow_nodes(change: ClusterChange, node_count: int) -> tuple[cluster_types.SlowNode, ...]:
    """Those that the scenario names. Raises ValueRefusedError for one that the cluster does not have."""
    absent = next((slow.node for slow in change.slow if slow.node >= node_count), None)
    if absent is not None:
        hint = f"its {node_count} nodes are numbered from 0"
        raise ValueRefusedError(f"the cluster has no node {absent} that could be slow", hint=hint)
    return tuple(
        cluster_types.SlowNode(
            f"{NODE_NAME}{slow.node}",
            from_s=slow.at_s,
            until_s=inf if slow.for_s is None else slow.at_s + slow.for_s,
            device_factor=slow.device_ratio,
            link_factor=slow.link_ratio,
        )
        for slow in change.slow
    )


def node_stalls(
    faults: Sequence[FaultEvent], node_count: int, horizon_s: float
) -> tuple[cluster_types.NodeStall, ...]:
    """Nodes on which all stands still when the scenario says so, the first ones; raises ValueRefusedError."""
    return tuple(
        cluster_types.NodeStall(event.at_s, f"{NODE_NAME}{number}")
        for event in faults
        if event.kind == NODE_HANG
        for number in range(_first_nodes(event, node_count, horizon_s))
    )


def _first_nodes(event: FaultEvent, node_count: int, horizon_s: float) -> int:
    """How many nodes it befalls. Raises ValueRefusedError for more than there are, and after the horizon."""
    if event.nodes > node_count:
        verb = "hang" if event.kind == NODE_HANG else "fail"
        raise ValueRefusedError(
            f"{event.nodes} nodes are to {verb}, where the cluster has {node_count}",
            hint=f"write `nodes: {node_count}` or fewer for the {event.kind}",
        )
    if event.at_s >= horizon_s:
        raise ValueRefusedError(
            f"the {event.kind} begins after the {format_seconds(horizon_s)} that are simulated",
            hint="write an earlier `at`, or a longer `horizon`",
        )
    return event.nodes


def node_losses(
    faults: Sequence[FaultEvent], node_count: int, detection_s: float, horizon_s: float
) -> tuple[cluster_types.NodeLoss, ...]:
    """Nodes that fail when the scenario says so, the first ones each time.

    Raises ValueRefusedError for more than the cluster has, for a failure after the horizon, and for a node
    that is back before anybody knows of its failure; UnknownNameError for a cause that nodes do not have.
    """
    found: list[cluster_types.NodeLoss] = []
    for event in faults:
        if event.kind == NODE_HANG:
            continue
        failing_count = _first_nodes(event, node_count, horizon_s)
        if event.back_after_s is not None and event.back_after_s < detection_s:
            raise ValueRefusedError(
                f"a node that is back after {format_seconds(event.back_after_s)} has not been missed yet",
                hint=f"write {format_seconds(detection_s)} or more: so long a failure takes to be known",
            )
        known = [cause.value for cause in events.FaultCause if cause is not events.FaultCause.INPUT]
        cause = events.FaultCause.HOST
        if "cause" in event.model_fields_set:
            if event.cause not in known:
                what = f"`{event.cause[:64]}` is no cause of a {event.kind}"
                raise UnknownNameError(what, hint=f"causes: {', '.join(known)}")
            cause = events.FaultCause(event.cause)
        back_s = inf if event.back_after_s is None else event.back_after_s
        found += (
            cluster_types.NodeLoss(event.at_s, f"{NODE_NAME}{number}", cause, back_s)
            for number in range(failing_count)
        )
    return tuple(found)
