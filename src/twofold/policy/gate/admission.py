"""Whether a new request is taken at all."""

import math

from twofold.policy.gate.events import RefusalReason, Refuse
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.pace import SPREAD_FRACTION, Pace

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
        (
            replica.work_s(view.beliefs) / replica.in_flight_count
            for replica in view.replicas.values()
            if replica.healthy and replica.in_flight_count
        ),
        default=view.settings.retry_after_s_max,
    )


def until_trial_s(view: FleetView, now_s: float) -> float:
    """Seconds until a probe may close the first circuit; with no replica at all, one shortest opening."""
    ends = [
        r.circuit.until_s for r in view.replicas.values() if not r.draining and r.circuit.until_s is not None
    ]
    if not ends:
        return view.settings.open_s
    return max(min(ends) - now_s, 0.0) + view.settings.probe_every_s


def lacking_s(
    view: FleetView,
    pace: Pace,
    request: Request,
    replica: Replica | None,
    wait: tuple[float, float] | None,
    now_s: float,
) -> float:
    """By how many seconds a request would miss the first token or the deadline that it was promised.

    `replica`: where it would begin at once; without one it must `wait`, mean and spread; None: nobody knows.
    What waits is judged by the margin that lately kept as many within their prediction as was asked for. What
    begins at once is not, and an idle fleet tries everything: else no wrong prediction would be put right.
    """
    kind, limit_s = request.kind, request.kind.ttft_slo_s
    if (limit_s is None and request.deadline_s is None) or not view.requests:
        return 0.0
    ahead_tokens = replica.unread_input_tokens if replica else 0
    ttft_s = pace.begin_s(view.beliefs, ahead_tokens + request.input_tokens - request.hit_tokens)
    if replica is None:
        if wait is None:
            return 0.0
        ttft_s += wait[0]
        request.predicted_s, request.spread_s = ttft_s, wait[1] + SPREAD_FRACTION * ttft_s
        ttft_s += pace.late_s(kind.name, request.spread_s)
    lacking_s = -math.inf if limit_s is None else ttft_s - limit_s
    if request.deadline_s is not None:
        end_s = ttft_s + pace.write_s(view.beliefs, kind.name, request.output_limit_tokens)
        lacking_s = max(lacking_s, now_s + end_s - request.deadline_s)
    return max(lacking_s, 0.0)


def expires_s(view: FleetView, pace: Pace | None, request: Request, now_s: float) -> float:
    """Until when holding a request makes sense: its class may wait so long, and it can still be in time."""
    kind = request.kind
    until_s = now_s + kind.wait_s_max
    begin_s = write_s = 0.0
    if pace:
        begin_s = pace.begin_s(view.beliefs, request.input_tokens)
        write_s = pace.write_s(view.beliefs, kind.name, request.output_limit_tokens)
    if kind.ttft_slo_s is not None:
        until_s = min(until_s, now_s + kind.ttft_slo_s - begin_s)
    if request.deadline_s is not None:
        until_s = min(until_s, request.deadline_s - begin_s - write_s)
    return max(until_s, now_s)
