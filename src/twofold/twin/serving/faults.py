"""What goes wrong in a serving world, when, and what of it the gate's events show."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import events
from twofold.twin.heap import Heap
from twofold.twin.serving import fault_types
from twofold.twin.serving.fleet_replicas import REPLICA_CAUSES, Fleet
from twofold.twin.serving.fleet_state import Attempt, Kind, Replica
from twofold.twin.serving.fleet_types import FleetWorld


@dataclass(slots=True)
class Struck:
    """What a fault does at once: attempts that fail, what the gate hears, replicas that can speak again."""

    failed: list[tuple[Attempt, events.Cause]] = field(default_factory=list)
    signs: list[events.Event] = field(default_factory=list)
    freed: list[Replica] = field(default_factory=list)


def check(world: FleetWorld) -> None:
    """Raises ValueRefusedError where a fault can never be what it says."""
    zones = {group.order.zone for group in world.replicas}
    for pool in world.gate.scaling.pools if world.gate.scaling is not None else ():  # may start some later
        zones |= set(pool.zones)
    known = {f"r{number}" for number in range(sum(group.count for group in world.replicas))}
    for number, fault in enumerate(world.faults, 1):
        what = f"fault {number}, {type(fault).__name__}"
        from_s, until_s = fault_span_s(fault)
        if not isfinite(from_s) or from_s < 0 or until_s < from_s:
            raise ValueRefusedError(f"{what}: from {from_s:g} s until {until_s:g} s is no span of time")
        zone = getattr(fault, "zone", "")
        if zone and zone not in zones:
            raise ValueRefusedError(f"{what}: there is no zone `{zone}`", hint=f"zones: {_listed(zones)}")
        replica_id = getattr(fault, "replica_id", None)
        if replica_id is not None and replica_id not in known:
            last = f"r0 to r{len(known) - 1}" if known else "none"
            raise ValueRefusedError(f"{what}: there is no replica `{replica_id}`", hint=f"replicas: {last}")
        tier = getattr(fault, "tier", None)
        if tier is not None and tier not in (there := {each.name for each in world.tiers}):
            raise ValueRefusedError(f"{what}: there is no tier `{tier}`", hint=f"tiers: {_listed(there)}")
        cause = getattr(fault, "cause", None)
        if cause is not None and cause not in REPLICA_CAUSES:
            raise ValueRefusedError(
                f"{what}: `{cause}` is no cause", hint=f"causes: {_listed(REPLICA_CAUSES)}"
            )
        factor = getattr(fault, "factor", getattr(fault, "step_factor", 1.0))
        if not 0.0 < factor < inf:
            raise ValueRefusedError(f"{what}: a factor of {factor:g} is not above 0")
        if isinstance(fault, fault_types.RandomCrashes) and not 0.0 < fault.rate_per_replica_h < inf:
            raise ValueRefusedError(f"{what}: a rate of {fault.rate_per_replica_h:g} per hour is not above 0")
        if isinstance(fault, fault_types.Release) and not 0.0 <= fault.error_fraction <= 1.0:
            raise ValueRefusedError(f"{what}: {fault.error_fraction:g} is no fraction of errors")


def fault_span_s(fault: fault_types.Fault) -> tuple[float, float]:
    """From when until when; infinity: it does not end by itself."""
    match fault:
        case fault_types.ReplicaCrash(at_s=at_s) | fault_types.ColdStart(at_s=at_s):
            return at_s, at_s
        case (
            fault_types.ZoneLoss(at_s=at_s, back_after_s=back_s)
            | fault_types.Drain(at_s=at_s, back_after_s=back_s)
        ):
            return at_s, inf if back_s is None else at_s + back_s
        case fault_types.Release(at_s=at_s, withdrawn_s=withdrawn_s):
            return at_s, inf if withdrawn_s is None else withdrawn_s
        case _:
            return fault.from_s, fault.until_s


SPOKEN: dict[type, str] = {  # a fault in words, for what broke first
    fault_types.ReplicaCrash: "replica {0.replica_id} went down ({0.cause})",
    fault_types.SlowReplica: "replica {0.replica_id} became {0.factor:g} times slower",
    fault_types.ThermalThrottle: "{place} was throttled {0.factor:g} times",
    fault_types.ZoneLoss: "{place} was lost",
    fault_types.ColdStart: "the fleet started cold",
    fault_types.Partition: "{place} was cut off",
    fault_types.Drain: "{place} was drained",
    fault_types.StorageBrownout: "storage fell to {0.factor:.0%} of its bandwidth",
    fault_types.SlowTier: "the servers of CPU tier {0.tier} became {0.factor:g} times slower",
    fault_types.Release: "release {0.version} was offered",
}


def schedule(world: FleetWorld, heap: Heap) -> None:
    """Put every fault's begin and end on the heap; those of chance are drawn per replica and life."""
    for number, fault in enumerate(world.faults):
        if isinstance(fault, fault_types.RandomCrashes):
            continue
        from_s, until_s = fault_span_s(fault)
        heap.push(from_s, Kind.FAULT_BEGINS, (number, fault))
        if until_s < inf and not isinstance(fault, (fault_types.ReplicaCrash, fault_types.ColdStart)):
            heap.push(until_s, Kind.FAULT_ENDS, (number, fault))


def begin(
    fleet: Fleet, number: int, fault: fault_types.Fault, world: FleetWorld, heap: Heap, now_s: float
) -> Struck:
    """Let a fault happen; those of chance are drawn where replicas start."""
    hit, struck = _hit(fleet, fault), Struck()
    match fault:
        case fault_types.ReplicaCrash():
            for replica in hit:
                struck.failed += fleet.crash(replica, fault.cause, fault.back_after_s, now_s)
        case fault_types.ZoneLoss():
            # Nothing starts in the zone before its end; of two losses at once the longer one counts.
            until_s = fault_span_s(fault)[1]
            fleet.lost_zones[fault.zone] = max(until_s, fleet.lost_zones.get(fault.zone, 0.0))
            for replica in hit:
                struck.failed += fleet.crash(replica, "power", fault.back_after_s, now_s)
        case fault_types.ColdStart():
            for replica in hit:
                struck.failed += fleet.crash(replica, "power", 0.0, now_s)
        case fault_types.SlowReplica() | fault_types.ThermalThrottle():
            if isinstance(fault, fault_types.ThermalThrottle):
                fleet.throttles[number] = (fault.zone, fault.factor)
            for replica in hit:
                replica.factors[number] = fault.factor
                fleet.set_speed(replica, now_s)
        case fault_types.Partition():  # answers that had begun stall until it ends, or for good
            fleet.cut_zones[fault.zone] = fleet.cut_zones.get(fault.zone, 0) + 1
            for replica in hit:
                replica.cut += 1
                replica.stamp += 1
                for attempt in replica.attempts.values():
                    if attempt.begun:
                        stalled = (attempt, replica, replica.stamp)
                        heap.push(now_s + world.stall_timeout_s, Kind.STALLED, stalled)
        case fault_types.Drain():
            # The gate hears at once that nothing new may come; machines of other names stand for these later.
            fleet.drained[number] = []
            for replica in hit:
                struck.signs.append(events.ReplicaRemoved(replica.replica_id))
                again = replace(replica.order, replica_id=f"{replica.replica_id}-again")
                fleet.drained[number].append(again)
                fleet.stop(replica, now_s)
        case fault_types.StorageBrownout():
            fleet.brown_out(number, fault.factor, now_s)
        case fault_types.Release():
            struck.signs.append(events.ReleaseOffered(fault.version, fault.pool))
        case _:
            pass
    return struck


def end(fleet: Fleet, number: int, fault: fault_types.Fault, now_s: float) -> Struck:
    """Let a fault be over."""
    struck = Struck()
    match fault:
        case fault_types.ZoneLoss():
            if fleet.lost_zones.get(fault.zone, inf) <= now_s:  # with the last loss the zone is back
                del fleet.lost_zones[fault.zone]
        case fault_types.SlowReplica() | fault_types.ThermalThrottle():
            fleet.throttles.pop(number, None)
            for replica in fleet.replicas.values():
                if replica.factors.pop(number, None) is not None:
                    fleet.set_speed(replica, now_s)
        case fault_types.Partition():
            fleet.cut_zones[fault.zone] -= 1
            for replica in _hit(fleet, fault):
                replica.cut -= 1
                if not replica.cut:
                    struck.freed.append(replica)
        case fault_types.Drain():
            for asked in fleet.drained.pop(number, []):
                fleet.start(asked, now_s)
        case fault_types.StorageBrownout():
            fleet.brown_out(number, None, now_s)
        case fault_types.Release():
            struck.signs.append(events.ReleaseWithdrawn(fault.version))
        case _:
            pass
    return struck


def _hit(fleet: Fleet, fault: fault_types.Fault) -> list[Replica]:
    """The replicas that it befalls: one, a zone's, or all."""
    if isinstance(fault, (fault_types.ReplicaCrash, fault_types.SlowReplica)):
        replica = fleet.replicas.get(fault.replica_id)
        return [] if replica is None else [replica]
    zone = getattr(fault, "zone", "")
    return [replica for replica in fleet.replicas.values() if zone in ("", replica.zone)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(name or '""' for name in names)) or "none"
