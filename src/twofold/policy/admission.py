"""Whether a new request is taken at all."""

from twofold.policy.events import RefusalReason, Refuse
from twofold.policy.fleet_view import FleetView, Request

STATUS = {RefusalReason.FULL: 429, RefusalReason.NO_REPLICA: 503}


def room_or_refusal(view: FleetView, request: Request, now_s: float) -> Refuse | None:
    """None when a healthy replica has room, else the refusal and when asking again may help."""
    healthy = False
    for replica in view.replicas.values():
        if replica.healthy:
            if replica.has_room:
                return None
            healthy = True
    reason = RefusalReason.FULL if healthy else RefusalReason.NO_REPLICA
    again_s = until_room_s(view) if healthy else until_trial_s(view, now_s)
    return Refuse(request.request_id, reason, STATUS[reason], min(again_s, view.settings.retry_after_s_max))


def until_room_s(view: FleetView) -> float:
    """Predicted seconds until a healthy full replica frees a place: the least of their mean works.

    Formula  min over healthy replicas of work_s / in_flight_count
    Why      a replica that does one thing at a time needs this long per request; one that does several at
             once frees its first place sooner, so this asks for patience rather than for a storm.
    """
    return min(
        replica.work_s(view.beliefs) / replica.in_flight_count
        for replica in view.replicas.values()
        if replica.healthy
    )


def until_trial_s(view: FleetView, now_s: float) -> float:
    """Seconds until a probe may close the first circuit; with no replica at all, one shortest opening."""
    ends = [
        r.circuit.until_s for r in view.replicas.values() if not r.draining and r.circuit.until_s is not None
    ]
    if not ends:
        return view.settings.open_s
    return max(min(ends) - now_s, 0.0) + view.settings.probe_every_s
