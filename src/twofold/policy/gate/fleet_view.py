"""What a gate knows of its fleet: the replicas, the requests in flight, and the counts. Mutable, and says so.

Only the gate changes it; decisions and the driver's status page read it. Work is kept as whole tokens: adding
and taking away a million times leaves exactly nothing, and new beliefs price old work too.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from twofold.policy.gate.breaker import Circuit
from twofold.policy.gate.events import Cause, Effect, ReplicaAdded, ReplicaReported, RequestArrived
from twofold.policy.gate.settings import Beliefs, ClassSettings, GateSettings

UNREPORTED_PROBES_MAX = 64  # of one replica; beyond, the driver lost one and the oldest is forgotten
ANY_CLASS = ClassSettings()


@dataclass(slots=True)
class Replica:
    """One replica. Mutable: `FleetView` keeps its sums equal to the requests that it has."""

    added: ReplicaAdded  # as it was announced last
    circuit: Circuit = field(default_factory=Circuit)
    draining: bool = False  # removed, but it still has requests
    in_flight_count: int = 0
    unread_input_tokens: int = 0  # of its requests without a first byte
    output_limit_tokens: int = 0  # of all its requests
    doubted_count: int = 0  # doubts since it last began an answer
    probe_eras: dict[int, int] = field(default_factory=dict)  # by number, of unreported probes: era when sent
    report: ReplicaReported | None = None  # the newest; old by the time it comes
    ejected_until_s: float | None = None  # None: not ejected
    zone_lost: bool = False  # its zone is failed over
    places_fraction: float = 1.0  # of the announced ones, learnt
    number: int = field(default=0, compare=False)  # of all that were added: one that is back has another
    replica_id: str = field(init=False)
    in_flight_limit: int = field(init=False)  # of its announced places, those that are filled (places.py)

    def __post_init__(self) -> None:
        self.replica_id, self.in_flight_limit = self.added.replica_id, self.added.in_flight_limit

    @property
    def healthy(self) -> bool:
        """Whether new requests may go here, room apart."""
        return (
            self.circuit.until_s is None
            and not self.draining
            and self.ejected_until_s is None
            and not self.zone_lost
        )

    @property
    def has_room(self) -> bool:
        return self.in_flight_count < self.in_flight_limit

    def work_s(self, beliefs: Beliefs) -> float:
        """Predicted seconds of what it still has to do, one request after the other.

        Formula  unread_input_tokens · input_token_s + output_limit_tokens · output_token_s
        Why      an answer that has started has read its input; how much of its output limit it will use
                 nobody knows before it ends.
        """
        return (
            self.unread_input_tokens * beliefs.input_token_s
            + self.output_limit_tokens * beliefs.output_token_s
        )


def most_common_version(replicas: Iterable[Replica]) -> str:
    """What most of them run, of equally many the last by name; "" without any."""
    counts = Counter(replica.added.version for replica in replicas)
    return max(counts, key=lambda version: (counts[version], version), default="")


class Attempt:
    """One sending of a request to a replica, made once the replica's counts hold that request."""

    def __init__(
        self,
        number: int,  # among those of its request, from 1
        replica: Replica,
        era: int = 0,  # of the replica's circuit when it was sent
        hit_tokens: int = 0,  # of the input, believed to be cached there
        sent_s: float = 0.0,
    ) -> None:
        self.number, self.replica, self.era, self.hit_tokens = number, replica, era, hit_tokens
        self.sent_s = sent_s
        self.ahead_tokens = replica.unread_input_tokens  # that it had to read then, its own included
        self.beside_count = replica.in_flight_count  # requests that it had then, this one included

    def __repr__(self) -> str:
        return f"Attempt({self.number} at {self.replica.replica_id!r})"


NOT_SENT = Attempt(0, Replica(ReplicaAdded("", 1)))
Doubt = tuple[Attempt, Cause]  # one that failed before its first byte


class Request:
    """One request that was neither refused nor has ended. Mutable: it moves between replicas.

    HOT: per request; a dataclass sets all these when it is made, of which most stay.
    """

    attempt: Attempt = NOT_SENT  # the latest, or of two that run the one that was spoken of last
    sent_count: int = 0  # attempts so far
    started: bool = False  # the first byte of the answer came
    started_s: float = 0.0
    rival: Attempt | None = None  # another attempt that runs beside it
    late: Attempt | None = None  # its first attempt, where a hedge answered sooner
    doubts: tuple[Doubt, ...] = ()  # the replica's fault, or its own? At most one per attempt
    version: str | None = None  # the release that it is to try; None: what runs by now
    hit_tokens: int = 0  # of its input, believed to be cached where it was routed to last
    charged_tokens: int = 0  # its input and its output limit when it came
    shortened_tokens: int | None = None  # the output limit that it was given instead of its own
    answer_era: int | None = None  # of the cache when it came; None: its answer is not kept
    queued: bool = False  # it was held, and charged to its tenant's flow
    believed_s: float = 0.0  # from sending to its first token, as beliefs have it
    predicted_s: float | None = None  # from its arrival to its first token, when it had to wait …
    spread_s: float = 1.0  # … and how far off that usually is

    def __init__(
        self,
        request_id: int,
        arrival: RequestArrived,  # as its client asked
        arrived_s: float = 0.0,
        kind: ClassSettings = ANY_CLASS,  # of its class, or of the one that stands for it
    ) -> None:
        self.request_id, self.arrival, self.arrived_s, self.kind = request_id, arrival, arrived_s, kind
        self.input_tokens, self.output_limit_tokens = arrival.input_tokens, arrival.output_limit_tokens
        self.model, self.deadline_s = arrival.model, arrival.deadline_s  # by when its last token is due

    def __repr__(self) -> str:
        return f"Request({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


@dataclass(slots=True)
class Counts:
    """Since the start (INV-13).

    Formula  arrived = finished + refused + gave_up + left + in flight + held + in tiers
    """

    arrived: int = 0
    finished: int = 0
    given_again: int = 0  # of the finished: answered from what was kept
    refused: int = 0
    gave_up: int = 0
    left: int = 0
    ignored: int = 0  # events that came late or twice, and changed nothing
    overflowed: int = 0  # attempts that were sent to the hosted API
    smaller: int = 0  # … and to replicas of smaller models


@dataclass(slots=True)
class FleetView:
    """All that a decision may look at. Mutable; bounded by the replicas and their limits."""

    settings: GateSettings
    beliefs: Beliefs
    replicas: dict[str, Replica] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)  # in flight, by id
    held: dict[int, Request] = field(default_factory=dict)  # in the gate, by id
    tiered: dict[int, Request] = field(default_factory=dict)  # in the tiers before it, by id
    active_count: int = 0  # of replicas that are not draining
    known_count: int = 0  # replicas so far
    place_count: int = 0  # of all healthy replicas, taken or free; as of the last count
    counts: Counts = field(default_factory=Counts)
    overflow: Replica | None = None  # the hosted API: none of `replicas`, and no place of the fleet
    smaller_models: frozenset[str] = frozenset()  # that may answer in need: who has one is in no pool
    in_need: bool = False  # they do now

    def __post_init__(self) -> None:
        named = {each.smaller_model for each in self.settings.classes}
        self.smaller_models = frozenset(named - {""})
        hosted = self.settings.overflow
        if hosted is not None:
            self.overflow = Replica(ReplicaAdded(hosted.replica_id, hosted.in_flight_limit))

    @property
    def at_home_count(self) -> int:
        """Requests in flight at the fleet's own replicas."""
        return len(self.requests) - (self.overflow.in_flight_count if self.overflow is not None else 0)

    def known(self, replica_id: str) -> Replica | None:
        """A replica, or the hosted API, by its id."""
        hosted = self.overflow
        return (
            hosted
            if hosted is not None and replica_id == hosted.replica_id
            else self.replicas.get(replica_id)
        )

    def beliefs_of(self, replica: Replica) -> Beliefs:
        """What is believed of a replica, or stated of the hosted API."""
        hosted = self.settings.overflow
        if hosted is None or replica is not self.overflow:
            return self.beliefs
        return Beliefs(0.0, hosted.output_token_s, hosted.first_token_s)

    def is_smaller(self, replica: Replica) -> bool:
        """Whether it has a smaller model, and so answers in need alone."""
        return replica.added.model in self.smaller_models

    def members(self, pool: str) -> list[Replica]:
        """Replicas of a pool that stay; each is of the pool without a name. Smaller models are of none."""
        staying = [r for r in self.replicas.values() if not r.draining and not self.is_smaller(r)]
        return [r for r in staying if not pool or r.added.pool == pool]

    def add_replica(self, added: ReplicaAdded) -> None:
        """A new replica, other facts of a known one, or one that was draining and is back, in a new era."""
        replica = self.replicas.get(added.replica_id)
        if replica is None:
            self.known_count += 1
            replica = self.replicas[added.replica_id] = Replica(added, number=self.known_count)
            self.active_count += 1
        if replica.added.in_flight_limit != added.in_flight_limit:
            replica.in_flight_limit = added.in_flight_limit
            replica.places_fraction = 1.0
        replica.added = added
        if replica.draining:
            replica.draining = False
            self.active_count += 1
            replica.circuit = Circuit(era=replica.circuit.era + 1)

    def remove_replica(self, replica: Replica) -> None:
        """Drains: forgotten once its last request is."""
        if not replica.draining:
            replica.draining = True
            self.active_count -= 1
        self._forget_if_drained(replica)

    def ignored(self) -> list[Effect]:
        """What follows from an event that comes late or twice: nothing, but that it is counted."""
        self.counts.ignored += 1
        return []

    def count_places(self) -> None:
        """Count the healthy replicas' places anew: health changed, or may have. In need those of smaller
        models are among them."""
        ready = (r for r in self.replicas.values() if r.healthy and (self.in_need or not self.is_smaller(r)))
        self.place_count = sum(r.in_flight_limit for r in ready)

    def place(self, request: Request, replica: Replica, now_s: float) -> None:
        """The next attempt of a request is at this replica."""
        request.sent_count += 1
        self.requests[request.request_id] = request
        replica.in_flight_count += 1
        replica.unread_input_tokens += request.input_tokens - request.hit_tokens
        replica.output_limit_tokens += request.output_limit_tokens
        request.attempt = Attempt(
            request.sent_count,
            replica,
            replica.circuit.era,
            request.hit_tokens,
            now_s,
        )

    def start(self, request: Request) -> None:
        """The first byte came: the input is read."""
        request.started = True
        attempt = request.attempt
        attempt.replica.unread_input_tokens -= request.input_tokens - attempt.hit_tokens

    def release(self, request: Request) -> None:
        """No attempt runs any more: neither the fleet nor a replica has the request."""
        if request.rival is not None:
            self.drop_rival(request)
        del self.requests[request.request_id]
        self._free(request, request.attempt)

    def swap(self, request: Request) -> None:
        """Of two attempts that run at once, the other is the request's."""
        rival = request.rival
        assert rival is not None, request
        request.attempt, request.rival = rival, request.attempt

    def drop_rival(self, request: Request) -> Attempt:
        """The attempt beside the request's is over; neither had begun."""
        rival, request.rival = request.rival, None
        assert rival is not None and not request.started, request
        self._free(request, rival)
        return rival

    def _free(self, request: Request, attempt: Attempt) -> None:
        replica = attempt.replica
        replica.in_flight_count -= 1
        replica.output_limit_tokens -= request.output_limit_tokens
        if not request.started:
            replica.unread_input_tokens -= request.input_tokens - attempt.hit_tokens
        self._forget_if_drained(replica)

    def _forget_if_drained(self, replica: Replica) -> None:
        if replica.draining and not replica.in_flight_count:
            del self.replicas[replica.replica_id]
