"""What a gate knows, as data: for people and programs that look, and for the controller."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twofold.live.gateway.gateway_config import GatewayReplica
from twofold.live.gateway.recent import Recent
from twofold.policy.gate.breaker import state_of
from twofold.policy.gate.fleet_view import Replica
from twofold.policy.gate.gate import Gate


def for_clients(
    gate: Gate,
    recent: Recent,
    now_s: float,
    overflow_usd: float,  # that the hosted API came to since the gateway's start
    unasked: str,  # why the hosted API that was named is not asked
) -> dict[str, Any]:
    """Replicas, tiers and the hosted API as they are, and what was counted since the start."""
    view = gate.view
    replicas = {
        replica.replica_id: {
            **_health(replica, now_s),
            "draining": replica.draining,
            "work_s": replica.work_s(view.beliefs),
        }
        for replica in view.replicas.values()
    }
    tiers = recent.tiers(now_s, gate.tiers, len(view.held)) if gate.tiers else {}
    counts = {"in_flight": len(view.requests), "held": len(view.held), "counts": asdict(view.counts)}
    hosted = _of_overflow(view.overflow, view.counts.overflowed, overflow_usd, unasked, now_s)
    return {**hosted, **tiers, "replicas": replicas, **counts}


def for_controller(
    data: dict[str, Any],  # what clients see
    gate: Gate,
    addresses: Mapping[str, GatewayReplica],
    recent: Recent,
    now_s: float,
) -> dict[str, Any]:
    """The same with addresses, what was heard of each replica and when, and figures of late."""
    view = gate.view
    kept_tokens = dict.fromkeys(view.replicas, 0)
    for request in view.requests.values():
        name = request.attempt.replica.replica_id
        kept_tokens[name] = kept_tokens.get(name, 0) + request.input_tokens + request.output_limit_tokens
    replicas = {}
    for name, replica in view.replicas.items():
        address, heard_s, added = addresses[name], recent.heard_s.get(name), replica.added
        replicas[name] = data["replicas"][name] | {
            "host": address.host,
            "port": address.port,
            "heard_ago_s": None if heard_s is None else now_s - heard_s,
            "kept_tokens": kept_tokens[name],
            "version": added.version,
            "zone": added.zone,
            "pool": added.pool,
            "model": added.model,
        }
    slo_s = next((kind.ttft_slo_s for kind in view.settings.classes), None)
    of_late = {"recent": recent.figures(now_s), "ttft_slo_s": slo_s, "releases": sorted(gate.releases)}
    return {**data, "replicas": replicas, **of_late}


def _health(replica: Replica, now_s: float) -> dict[str, Any]:
    return {
        "circuit": state_of(replica.circuit, now_s).value,
        "healthy": replica.healthy,
        "in_flight": replica.in_flight_count,
        "in_flight_limit": replica.in_flight_limit,
    }


def _of_overflow(
    hosted: Replica | None, sent: int, overflow_usd: float, unasked: str, now_s: float
) -> dict[str, Any]:
    if hosted is not None:
        return {"overflow": {**_health(hosted, now_s), "sent": sent, "usd": overflow_usd}}
    return {"overflow": {"healthy": False, "sent": 0, "usd": 0.0, "why": unasked}} if unasked else {}
