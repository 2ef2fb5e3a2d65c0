"""CPU tiers that a request passes before a replica is chosen for it: their places, and who waits for one.

Each tier has equal servers with so many places each, and one line of those who wait, first come, first
served, whatever their class. A server that fails requests has a circuit, as a replica has; while it is open
nothing is sent there, and after it one request at a time tries. Nothing is asked of a server but work, so
that none is probed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from twofold.policy.gate import breaker
from twofold.policy.gate.breaker import Circuit, CircuitState, state_of
from twofold.policy.gate.events import (
    AskTier,
    Cancel,
    Cause,
    Effect,
    RefusalReason,
    TierAnswered,
    TierFailed,
    TierPassed,
)
from twofold.policy.gate.fleet_view import Request
from twofold.policy.gate.settings import GateSettings, TierSettings


@dataclass(slots=True, eq=False)
class Server:
    """One replica of a tier. Mutable."""

    replica_id: str
    in_flight_count: int = 0
    circuit: Circuit = field(default_factory=Circuit)


@dataclass(slots=True, eq=False)
class Tier:
    """One tier. Mutable; bounded by its places and its line."""

    settings: TierSettings
    place: int  # among the tiers of its gate, from 0
    servers: tuple[Server, ...]
    waiting: "dict[int, Passing]" = field(default_factory=dict)  # by request, the first first
    working_count: int = 0
    passed_count: int = 0  # since the start, and so are these:
    failed_count: int = 0  # attempts
    refused_count: int = 0
    wait_s: float = 0.0  # of those that passed, for a place
    took_s: float = 0.0  # the same, waiting and work

    def free_server(self, now_s: float, but: Server | None = None) -> Server | None:
        """The one with the fewest requests that may have one more; of equal ones the first."""
        found: Server | None = None
        for server in self.servers:  # HOT: per request and tier
            count, until_s = server.in_flight_count, server.circuit.until_s
            if count >= self.settings.in_flight_limit or server is but:
                continue
            if until_s is not None and (now_s < until_s or count):
                continue
            if found is None or count < found.in_flight_count:
                found = server
        return found


@dataclass(slots=True, eq=False)
class Passing:
    """One request on its way through the tiers. Mutable."""

    request: Request
    tier: Tier
    entered_s: float  # this tier
    began_s: float = 0.0  # when a server had it first
    server: Server | None = None  # None: it waits
    era: int = 0  # of the server's circuit when it was asked
    attempt: int = 0  # at this tier, from 1


@dataclass(slots=True)
class Moved:
    """What follows for requests in tiers, for who decides about requests: told, refused, through, lost."""

    effects: list[Effect] = field(default_factory=list)
    refused: list[tuple[Request, RefusalReason, float]] = field(default_factory=list)  # and when to ask again
    through: list[Request] = field(default_factory=list)  # of all tiers
    lost: list[tuple[Request, Cause]] = field(default_factory=list)


class Tiers:
    """Mutable: who is where. Only events change it."""

    def __init__(self, settings: GateSettings) -> None:
        self._settings = settings
        self.tiers = tuple(
            Tier(each, place, tuple(map(Server, each.replica_ids)))
            for place, each in enumerate(settings.tiers)
        )
        self.inside: dict[int, Passing] = {}  # by request

    def enter(self, request: Request, now_s: float) -> Moved:
        """A request comes to the first tier; refused at once where its line is full."""
        moved = Moved()
        self._enter(request, self.tiers[0], now_s, moved)
        return moved

    def handle(self, event: TierAnswered | TierFailed, now_s: float) -> Moved | None:
        """A server answered, or failed; None: nobody waits for that any more."""
        passing = self.inside.get(event.request_id)
        if passing is None or passing.server is None:
            return None
        if event.tier != passing.tier.settings.name or event.attempt != passing.attempt:
            return None
        moved = Moved()
        if isinstance(event, TierAnswered):
            if event.input_tokens is not None:
                passing.request.input_tokens = event.input_tokens
            self._answered(passing, now_s, moved)
        else:
            self._failed(passing, event.cause, now_s, moved)
        self._drain(passing.tier, now_s, moved)
        return moved

    def left(self, request_id: int, now_s: float) -> Moved | None:
        """Its client waits no more; None: it is in no tier."""
        passing = self.inside.pop(request_id, None)
        if passing is None:
            return None
        moved, tier, server = Moved(), passing.tier, passing.server
        if server is None:
            del tier.waiting[request_id]
            moved.effects.append(Cancel(request_id, "", 0))
        else:
            self._freed(tier, server)
            moved.effects.append(Cancel(request_id, server.replica_id, passing.attempt))
        self._drain(tier, now_s, moved)
        return moved

    def woke(self, now_s: float) -> Moved:
        """Refuse who has waited for too long; let in who may try a server whose circuit was open."""
        moved = Moved()
        for tier in self.tiers:
            longest_s = tier.settings.wait_s_max
            while tier.waiting:
                first = next(iter(tier.waiting.values()))
                if first.entered_s + longest_s > now_s:
                    break
                self._out(first)
                self._refuse(first.request, tier, RefusalReason.TIER_LATE, now_s, moved)
            self._drain(tier, now_s, moved)
        return moved

    def next_due_s(self) -> float | None:
        """When somebody who waits has waited for too long, or may try a server again."""
        due_s: float | None = None
        for tier in self.tiers:
            if tier.waiting:
                first = next(iter(tier.waiting.values()))
                idle = (server.circuit.until_s for server in tier.servers if not server.in_flight_count)
                for at_s in (first.entered_s + tier.settings.wait_s_max, *filter(None, idle)):
                    due_s = at_s if due_s is None or at_s < due_s else due_s
        return due_s

    # --- what becomes of one request ---

    def _enter(self, request: Request, tier: Tier, now_s: float, moved: Moved) -> None:
        passing = Passing(request, tier, now_s)
        server = None if tier.waiting else tier.free_server(now_s)
        if server is not None:
            self.inside[request.request_id] = passing
            self._ask(passing, server, now_s, moved)
        elif len(tier.waiting) >= tier.settings.queue_limit_count:
            self._refuse(request, tier, RefusalReason.TIER_FULL, now_s, moved)
        else:
            self.inside[request.request_id] = tier.waiting[request.request_id] = passing

    def _ask(self, passing: Passing, server: Server, now_s: float, moved: Moved) -> None:
        tier = passing.tier
        if not passing.attempt:
            passing.began_s = now_s
        passing.attempt += 1
        passing.server, passing.era = server, server.circuit.era
        server.in_flight_count += 1
        tier.working_count += 1
        name, request_id = tier.settings.name, passing.request.request_id
        moved.effects.append(AskTier(request_id, name, server.replica_id, passing.attempt))

    def _answered(self, passing: Passing, now_s: float, moved: Moved) -> None:
        tier, server, request = passing.tier, passing.server, passing.request
        assert server is not None
        self._freed(tier, server)
        circuit = breaker.after_probe_answered(server.circuit, passing.era, now_s)
        server.circuit = breaker.after_response_ended(circuit, passing.era)
        wait_s, took_s = passing.began_s - passing.entered_s, now_s - passing.entered_s
        tier.passed_count += 1
        tier.wait_s, tier.took_s = tier.wait_s + wait_s, tier.took_s + took_s
        moved.effects.append(TierPassed(request.request_id, tier.settings.name, wait_s, took_s))
        del self.inside[request.request_id]
        if tier.place + 1 < len(self.tiers):
            self._enter(request, self.tiers[tier.place + 1], now_s, moved)
        else:
            moved.through.append(request)

    def _failed(self, passing: Passing, cause: Cause, now_s: float, moved: Moved) -> None:
        """Once more at another server that is free, as often as replicas are tried; else it is lost."""
        tier, server, settings = passing.tier, passing.server, self._settings
        assert server is not None
        self._freed(tier, server)
        tier.failed_count += 1
        half_open = state_of(server.circuit, now_s) is CircuitState.HALF_OPEN
        after = breaker.after_probe_failed if half_open else breaker.after_request_failed
        server.circuit = after(server.circuit, passing.era, cause, now_s, settings)
        other = tier.free_server(now_s, but=server)
        if other is not None and passing.attempt < settings.attempt_limit:
            self._ask(passing, other, now_s, moved)
            return
        del self.inside[passing.request.request_id]
        moved.lost.append((passing.request, cause))

    def _drain(self, tier: Tier, now_s: float, moved: Moved) -> None:
        while tier.waiting and (server := tier.free_server(now_s)) is not None:
            first = next(iter(tier.waiting.values()))
            del tier.waiting[first.request.request_id]
            self._ask(first, server, now_s, moved)

    def _out(self, passing: Passing) -> None:
        """Who waits is in this tier no more."""
        request_id = passing.request.request_id
        del passing.tier.waiting[request_id]
        del self.inside[request_id]

    def _freed(self, tier: Tier, server: Server) -> None:
        server.in_flight_count -= 1
        tier.working_count -= 1

    def _refuse(
        self, request: Request, tier: Tier, reason: RefusalReason, now_s: float, moved: Moved
    ) -> None:
        """Ask again once as much time has passed as the first of the line has waited: a line takes that."""
        tier.refused_count += 1
        first = next(iter(tier.waiting.values()), None)
        again_s = tier.settings.wait_s_max if first is None else now_s - first.entered_s
        moved.refused.append((request, reason, again_s))


# --- which tier holds the others up ---


@dataclass(frozen=True, slots=True)
class TierSpan:
    """What was seen of one tier over some span."""

    name: str
    passed_count: int
    wait_s_mean: float  # for a place
    work_s_mean: float  # at a server, however many it had
    took_s_p95: float  # both
    waiting_count: float  # at its end, or on average
    slo_s: float | None = None  # of `took_s_p95`

    @property
    def is_saturated(self) -> bool:
        """Whether requests wait for a place longer than they are worked on, or are through too late.

        Why      Of random arrivals that are served at random half of all time is waiting when places are
                 about busy enough for their line to grow without end at a little more; a goal that is missed
                 without a line says that the work itself has become slow.
        """
        missed = self.slo_s is not None and self.took_s_p95 > self.slo_s
        return missed or (self.wait_s_mean > self.work_s_mean and self.waiting_count >= 1.0)


def bottleneck(spans: Iterable[TierSpan], held_count: float) -> TierSpan | None:
    """The tier that holds requests up more than replicas do: the saturated one where most time goes.

    `held_count` requests wait for a replica: where more do than for the tier, replicas are the bottleneck.
    """
    late = [each for each in spans if each.is_saturated and each.waiting_count >= held_count]
    return max(late, key=lambda each: each.wait_s_mean + each.work_s_mean, default=None)


def replica_ids(name: str, count: int) -> tuple[str, ...]:
    """What a tier's servers are called, in every world.

    >>> replica_ids("retrieval", 2)
    ('retrieval-0', 'retrieval-1')
    """
    return tuple(f"{name}-{number}" for number in range(count))
