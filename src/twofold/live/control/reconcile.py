"""From what a service is to be and what is seen of it to what is done next. Pure: no clock, process or file.

The controller looks a few times a second, asks `actions_of`, does what it says, and looks again; whatever was
killed in between, the controller included, the next look starts from what is there. So nothing here remembers
what was begun, and doing an action twice is harmless.

Replicas   one that is not there is started, once its pause after failures is over; one that answers is
           announced to the gateway; one in trouble is withdrawn and ended, and so comes again; one that
           is to leave, or was told something else, is withdrawn, drained, ended.
One by one of those that were told something else only one is replaced at a time, and only while all others
           serve: a new version rolls through without a gap.
Gateway    one that is missing, hangs or was told something else is started anew. Replicas are told to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from twofold.policy.machine import record

BACKOFF_S, BACKOFF_S_MAX = 1.0, 60.0
STEADY_S = 60.0  # of serving, after which earlier failures are forgotten
DRAIN_S = 30.0  # that a leaving replica's requests may take


@dataclass(frozen=True, slots=True)
class WantedReplica:
    """One replica that is to be there, or to leave in peace."""

    replica_id: str
    digest: str  # of what its process is to be told
    leaving: bool = False
    not_before_s: float = 0.0  # after failures


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """What is there of a replica: its processes, and what the gateway knows of it."""

    replica_id: str
    digest: str = ""
    has_process: bool = False
    has_remains: bool = False  # children of a process that is gone
    answers: bool = False  # a real completion was answered, and nothing spoke against it since
    trouble: str = ""  # why it cannot serve; "": nothing is known against it
    in_gateway: bool = False  # it is sent requests, at its present address
    in_flight_count: int = 0  # by the gateway's count
    draining_s: float = 0.0  # since it was withdrawn


@dataclass(frozen=True, slots=True)
class SeenGateway:
    """What is there of the gateway."""

    has_process: bool = False
    digest: str = ""
    answers: bool = False
    trouble: str = ""
    is_ending: bool = False  # nothing is to be done until it has


@record
class StartReplica:
    """Start its process."""

    replica_id: str


@record
class EndReplica:
    """End its processes: in peace, or at once with the trouble it is in."""

    replica_id: str
    trouble: str = ""


@record
class Announce:
    """Tell the gateway that it may be sent requests."""

    replica_id: str


@record
class Withdraw:
    """Tell the gateway to send it nothing more."""

    replica_id: str


@record
class Forget:
    """It has left: nobody wants it any more."""

    replica_id: str


@record
class StartGateway:
    """Start the gateway's process with the replicas that answer."""


@record
class EndGateway:
    """End the gateway's process: in peace, or at once with the trouble it is in."""

    trouble: str = ""


Action = StartReplica | EndReplica | Announce | Withdraw | Forget | StartGateway | EndGateway


def actions_of(
    wanted: Iterable[WantedReplica],
    seen: Iterable[SeenReplica],
    gateway_digest: str,
    gateway: SeenGateway,
    now_s: float,
    gateway_not_before_s: float = 0.0,
) -> list[Action]:
    """What is to be done now. At most one of starting and ending per replica, and at most one replacement."""
    wanted = list(wanted)
    by_id = {each.replica_id: each for each in seen}
    actions = _gateway_actions(gateway_digest, gateway, now_s, gateway_not_before_s)
    known = {each.replica_id for each in wanted}
    for stray in by_id.values():  # nobody wants it: an earlier service's, or left by a killed controller
        if stray.replica_id not in known:
            if stray.has_process or stray.has_remains:
                actions.append(EndReplica(stray.replica_id, "nobody wants it"))
            if stray.in_gateway:
                actions.append(Withdraw(stray.replica_id))
    staying = [each for each in wanted if not each.leaving]
    serving = [each for each in staying if _serves(by_id.get(each.replica_id))]
    stale = [each for each in serving if by_id[each.replica_id].digest != each.digest]
    replaced = _replaced(staying, by_id, serving, stale)
    for each in wanted:
        there = by_id.get(each.replica_id, SeenReplica(each.replica_id))
        actions += _replica_actions(each, there, each.replica_id == replaced, now_s)
    return actions


def next_failure(failed_count: int, served_s: float, now_s: float) -> tuple[int, float]:
    """How often it has failed in a row now, and before when it is not started again.

    The first restart comes at once: a crash is rare. From the second on the pause doubles up to a minute,
    for ever: capacity comes back unattended when the cause is gone.
    """
    count = 1 if served_s >= STEADY_S else failed_count + 1
    pause_s = 0.0 if count == 1 else min(BACKOFF_S * 2.0 ** min(count - 2, 16), BACKOFF_S_MAX)
    return count, now_s + pause_s


def _replaced(
    staying: list[WantedReplica],
    by_id: dict[str, SeenReplica],
    serving: list[WantedReplica],
    stale: list[WantedReplica],
) -> str:
    """The one replica that may be replaced now: one on its way out, or the next while all others serve."""
    begun = [
        each.replica_id
        for each in staying
        if (there := by_id.get(each.replica_id))
        and there.has_process
        and there.digest != each.digest
        and not there.in_gateway
    ]
    if begun:
        return begun[0]
    return stale[0].replica_id if stale and len(serving) == len(staying) else ""


def _serves(there: SeenReplica | None) -> bool:
    return there is not None and there.has_process and there.in_gateway and not there.trouble


def _replica_actions(wanted: WantedReplica, there: SeenReplica, replaced: bool, now_s: float) -> list[Action]:
    name = there.replica_id
    out: list[Action] = [Withdraw(name)] if there.in_gateway else []
    if not there.has_process:
        if there.has_remains:
            return [*out, EndReplica(name, "its process ended")]
        if wanted.leaving:
            return out or [Forget(name)]
        return [*out, StartReplica(name)] if now_s >= wanted.not_before_s else out
    if there.trouble:
        return [*out, EndReplica(name, there.trouble)]
    if wanted.leaving or (there.digest != wanted.digest and (replaced or not there.in_gateway)):
        drained = not there.in_flight_count or there.draining_s > DRAIN_S
        return out or ([EndReplica(name)] if drained else [])
    return [Announce(name)] if there.answers and not there.in_gateway else []


def _gateway_actions(digest: str, there: SeenGateway, now_s: float, not_before_s: float) -> list[Action]:
    if there.is_ending:
        return []
    if not there.has_process:
        return [StartGateway()] if now_s >= not_before_s else []
    if there.trouble:
        return [EndGateway(there.trouble)]
    return [EndGateway()] if there.digest != digest else []
