"""Whether a new request is taken at all, and when answers get worse for the sake of being given."""

import math
from dataclasses import dataclass
from enum import IntEnum

from twofold.policy.gate.events import RefusalReason, Refuse
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.pace import SPREAD_FRACTION, Pace
from twofold.policy.gate.settings import ClassKind, ClassSettings, DegradationSettings

UNAVAILABLE = (
    *(RefusalReason.NO_REPLICA, RefusalReason.EXPIRED, RefusalReason.SHED),
    RefusalReason.TIER_LATE,
)
STATUS = {reason: 503 if reason in UNAVAILABLE else 429 for reason in RefusalReason}
STATUS[RefusalReason.POISON] = 422  # clients ask again after the other two


def room_or_refusal(view: FleetView, request: Request, now_s: float) -> Refuse | None:
    """None when a healthy replica has room, else the refusal and when asking again may help.

    Without a healthy one that is when a probe may close the first circuit; with none, one shortest opening.
    """
    healthy = [each for each in view.replicas.values() if each.healthy and not view.is_smaller(each)]
    if any(replica.has_room for replica in healthy):
        return None
    if healthy:
        reason, again_s = RefusalReason.FULL, until_room_s(view)
    else:
        reason, again_s = RefusalReason.NO_REPLICA, view.settings.open_s
        circuits = [replica.circuit for replica in view.replicas.values() if not replica.draining]
        ends_s = [circuit.until_s for circuit in circuits if circuit.until_s is not None]
        if ends_s:
            again_s = max(min(ends_s) - now_s, 0.0) + view.settings.probe_every_s
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
    if (limit_s is None and request.deadline_s is None) or not view.at_home_count:
        return 0.0
    ahead_tokens = replica.unread_input_tokens if replica else 0
    ttft_s = pace.begin_s(view.beliefs, ahead_tokens + request.input_tokens - request.hit_tokens)
    if replica is None:
        if wait is None:
            return 0.0
        ttft_s += wait[0]
        spread_s = wait[1] + SPREAD_FRACTION * ttft_s
        request.predicted_s, request.spread_s = now_s - request.arrived_s + ttft_s, spread_s
        ttft_s += pace.late_s(kind.name, request.spread_s)
    # What passed tiers has used up a part of its time.
    lacking_s = -math.inf if limit_s is None else now_s - request.arrived_s + ttft_s - limit_s
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
        until_s = min(until_s, request.arrived_s + kind.ttft_slo_s - begin_s)
    if request.deadline_s is not None:
        until_s = min(until_s, request.deadline_s - begin_s - write_s)
    return max(until_s, now_s)


def in_time_elsewhere(view: FleetView, request: Request, now_s: float) -> bool:
    """Whether the hosted API takes such a request, and its stated times keep what that was promised."""
    hosted, kind = view.settings.overflow, request.kind
    if hosted is None or request.arrival.only_here:
        return False
    if hosted.class_names and kind.name not in hosted.class_names:
        return False
    begins_s = now_s + hosted.first_token_s
    if kind.ttft_slo_s is not None and begins_s > request.arrived_s + kind.ttft_slo_s:
        return False
    ends_s = begins_s + request.output_limit_tokens * hosted.output_token_s
    return request.deadline_s is None or ends_s <= request.deadline_s


def last_call_s(view: FleetView, request: Request, now_s: float) -> float:
    """Until when a request that is held is in time at the hosted API; infinite where it never is.

    Of what nothing is promised it is as late as its class may wait.
    """
    hosted, kind = view.settings.overflow, request.kind
    if hosted is None or not in_time_elsewhere(view, request, now_s):
        return math.inf
    begin_s = ends_s = math.inf
    if kind.ttft_slo_s is not None:
        begin_s = request.arrived_s + kind.ttft_slo_s - hosted.first_token_s
    if request.deadline_s is not None:
        writes_s = request.output_limit_tokens * hosted.output_token_s
        ends_s = request.deadline_s - hosted.first_token_s - writes_s
    return max(min(begin_s, ends_s), now_s)


MEMORY_COUNT = 50  # arrivals over which pressure is taken


class Level(IntEnum):
    """What is done at a level, besides all that is done at those below it."""

    NORMAL = 0
    NO_BULK = 1
    SHORTER = 2
    SMALLER = 3


@dataclass(slots=True)
class Ladder:
    """One level at a time, each after a lasting cause: one that flickers changes nothing."""

    settings: DegradationSettings
    level: int = 0
    pressed_fraction: float = 0.0  # of the arrivals lately: had to wait, or were refused
    pressed_since_s: float | None = None
    calm_since_s: float | None = None

    def arrived(self, pressed: bool) -> None:
        """A request that is not shed came."""
        self.pressed_fraction += (pressed - self.pressed_fraction) / MEMORY_COUNT

    def tick(self, held_count: int, in_flight_count: int, place_count: int, now_s: float) -> bool:
        """Whether the level changed; to be called every so often."""
        settings = self.settings
        calm = not held_count and in_flight_count < settings.calm_fraction * place_count
        pressed = not calm and self.pressed_fraction > settings.pressure_fraction
        self.calm_since_s = _since(self.calm_since_s, calm, now_s)
        self.pressed_since_s = _since(self.pressed_since_s, pressed, now_s)
        step = 0
        if self.pressed_since_s is not None and now_s - self.pressed_since_s >= settings.raise_after_s:
            step = 1 if self.level < settings.level_max else 0
        elif self.calm_since_s is not None and now_s - self.calm_since_s >= settings.lower_after_s:
            step = -1 if self.level else 0
        if not step:
            return False
        self.level += step
        self.pressed_since_s = self.calm_since_s = None  # what a step does must show before the next
        self.pressed_fraction = 0.0
        return True


def is_shed(level: int, each: ClassSettings) -> bool:
    """Whether requests of a class are refused at a level."""
    return level >= Level.NO_BULK and each.kind is ClassKind.BULK


def shortened_tokens(level: int, each: ClassSettings, output_limit_tokens: int) -> int:
    """The output limit that an answer keeps at a level; one token at least, where it had any."""
    if level < Level.SHORTER or each.output_fraction_min >= 1.0:
        return output_limit_tokens
    return min(output_limit_tokens, max(1, int(output_limit_tokens * each.output_fraction_min)))


def smaller_model(level: int, each: ClassSettings) -> str:
    """The model that may answer instead at a level; "": none."""
    return each.smaller_model if level >= Level.SMALLER else ""


def _since(since_s: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s
