"""A scenario's fleet and faults in the twin's terms: zones by number, replicas by id, spans by seconds."""

from collections.abc import Iterator, Sequence

from twofold.contracts import FaultEvent, FleetChange, Pool, Scenario
from twofold.core import ValueRefusedError
from twofold.twin import (
    Drain,
    Fault,
    Partition,
    RandomCrashes,
    Release,
    ReplicaCrash,
    ReplicaGroup,
    SlowReplica,
    StorageBrownout,
    ThermalThrottle,
    ZoneLoss,
)

BASE_VERSION = "base"


def replica_groups(pool: Pool, planned_zones: int, change: FleetChange) -> tuple[ReplicaGroup, ...]:
    """The replicas of a pool, spread over its zones as evenly as whole numbers allow, fullest first."""
    count = pool.replica_count
    if change.replicas is not None:
        count = change.replicas
    elif change.spares is not None:
        count = pool.replica_count - pool.spare_count + change.spares
    if count < 1:
        raise ValueRefusedError(
            f"pool `{pool.name}` has no replica", hint="write `replicas: 1` or more under `fleet`"
        )
    zones = min(change.zones or planned_zones, count)
    each, more = divmod(count, zones)
    return tuple(
        ReplicaGroup(each + (1 if zone < more else 0), zone_name(zone + 1), version=BASE_VERSION)
        for zone in range(zones)
    )


def zone_name(number: int) -> str:
    """Zones are counted from 1."""
    return f"zone-{number}"


def faults_of(scenario: Scenario, groups: Sequence[ReplicaGroup], horizon_s: float) -> tuple[Fault, ...]:
    """What goes wrong in a serving pool; what concerns training alone is left out.

    Raises ValueRefusedError for a zone or a replica that the pool does not have.
    """
    cold = _cold_start(groups) if scenario.fleet.start == "cold" else ()
    return (*cold, *(fault for event in scenario.faults for fault in _faults(event, groups, horizon_s)))


def _cold_start(groups: Sequence[ReplicaGroup]) -> tuple[Fault, ...]:
    """All replicas are lost as the run begins, and start again at once."""
    return tuple(ZoneLoss(0.0, group.zone, back_after_s=0.0) for group in groups)


def _faults(event: FaultEvent, groups: Sequence[ReplicaGroup], horizon_s: float) -> Iterator[Fault]:
    total = sum(group.count for group in groups)
    until_s = min(event.until_s, max(horizon_s, event.at_s))
    ids = [f"r{number}" for number in range(event.replicas)]
    if event.kind in ("replica-crash", "slow-replica") and event.replicas > total:
        raise ValueRefusedError(
            f"a {event.kind} of {event.replicas} replicas, where the pool has {total}",
            hint=f"write `replicas: {total}` or fewer",
        )
    match event.kind:
        case "replica-crash":
            yield from (ReplicaCrash(event.at_s, one, event.cause, event.back_after_s) for one in ids)
        case "random-crashes":
            rate_h = event.rate_per_s * 3600.0
            back_s = 60.0 if event.back_after_s is None else event.back_after_s
            yield RandomCrashes(rate_h, event.cause, back_s, event.at_s, event.until_s)
        case "slow-replica":
            yield from (SlowReplica(event.at_s, until_s, one, event.slowdown_ratio) for one in ids)
        case "thermal-throttle":
            zone = _zone(event, groups) if "zone" in event.model_fields_set else ""
            yield ThermalThrottle(event.at_s, until_s, event.slowdown_ratio, zone)
        case "zone-loss":
            yield ZoneLoss(event.at_s, _zone(event, groups), event.back_after_s)
        case "partition":
            yield Partition(event.at_s, until_s, _zone(event, groups))
        case "drain":
            yield Drain(event.at_s, _zone(event, groups), event.back_after_s)
        case "storage-brownout":
            yield StorageBrownout(event.at_s, until_s, max(event.bandwidth_fraction, 1e-6))
        case "release":
            yield Release(
                event.at_s,
                event.version,
                step_factor=event.slowdown_ratio,
                error_fraction=event.errors_fraction,
                quality_drop=event.quality_drop_fraction,
            )
        case "node-failure":
            return


def _zone(event: FaultEvent, groups: Sequence[ReplicaGroup]) -> str:
    if event.zone > len(groups):
        has = "1 zone" if len(groups) == 1 else f"{len(groups)} zones"
        raise ValueRefusedError(
            f"the {event.kind} of zone {event.zone} cannot be: the fleet has {has}",
            hint="write a lower `zone`, or more `zones` under `fleet`",
        )
    return zone_name(event.zone)
