"""The serving world in plain values: traffic, clients, replicas, all of a run, and what it answers.

The world's truth (lengths, speeds, faults) stands here; what the gate may know of it goes through its events.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple, Protocol

from twofold.contracts.results import courses, simulated
from twofold.contracts.results.simulated import ClassFigures
from twofold.policy.gate import events
from twofold.policy.gate import settings as gates
from twofold.twin.serving.engine_types import EngineSpent, EngineWork, Output
from twofold.twin.serving.fault_types import Fault


class ServingEngine(Protocol):
    """One replica's serving software: `engine.Engine`, a disaggregated pair, or a fixed service time.

    `advance` returns first tokens and finishes in order of time, none later than `now_s`; `next_at_s` says
    when the next one comes if nothing else does, None while there is nothing to do.
    """

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None: ...

    def submit(self, work: EngineWork, now_s: float) -> None: ...

    def cancel(self, key: int, now_s: float) -> None: ...

    def advance(self, now_s: float) -> list[Output]: ...

    def next_at_s(self) -> float | None: ...

    def set_speed(self, factor: float, now_s: float) -> None: ...

    def report(self) -> tuple[int, int, float]: ...

    @property
    def busy_s(self) -> float: ...

    def spent(self) -> EngineSpent: ...


# --- traffic ---


class Turn(NamedTuple):
    """A further request of a session, sent `think_s` after the answer before it."""

    think_s: float
    input_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()


class Arrival(NamedTuple):
    """One request as the world knows it: its true output length is never told to a policy.

    A closed-loop session is its first request with `turns`: each follows the answer before it, and none
    follows a request that failed for good. `turns` may be a generator; it is read as the session goes on.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    class_name: str = ""
    tenant: str = ""
    session_id: str = ""
    prefix_blocks: tuple[int, ...] = ()  # hashes of the prompt's leading blocks; equal ones are shared
    output_limit_tokens: int | None = None  # None: the class's
    model: str = ""
    zone: str = ""
    turns: Iterable[Turn] = ()
    answer_key: str = ""  # equal for exact repeats that have one answer


class Retry(Enum):
    """What a client does when it is refused or its request fails."""

    NEVER = "never"
    IMMEDIATE = "immediate"  # at once, whatever Retry-After says: what makes retry storms
    BACKOFF = "backoff"  # the longer of Retry-After and a doubling wait, with jitter


@dataclass(frozen=True, slots=True)
class ClientModel:
    """How the clients of a class behave."""

    retry: Retry = Retry.NEVER
    attempts_max: int = 1  # requests of one intent, the first one counted
    backoff_s: float = 0.5  # before the second request; doubles
    backoff_s_max: float = 30.0
    patience_s: float = inf  # leaves when the first token has not come by then
    answer_patience_s: float = inf  # leaves when the whole answer has not come by then
    timeout_s: float = inf  # breaks off one request whose whole answer has not come by then: that failed

    def __post_init__(self) -> None:
        assert self.attempts_max >= 1 and 0 <= self.backoff_s <= self.backoff_s_max, self
        assert self.patience_s > 0 and self.answer_patience_s > 0 and self.timeout_s > 0, self


@dataclass(frozen=True, slots=True)
class ClassModel:
    """One latency class: its clients and what it promises. An answer within all limits is goodput."""

    name: str
    client: ClientModel = ClientModel()
    output_limit_tokens: int = 2048  # that its clients ask for; the true length where that is more
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    attained_fraction: float = 0.95  # of its answers that are to be within each limit


# --- replicas ---


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """One kind of replica: how it serves, starts, draws power and costs."""

    new_engine: Callable[[], ServingEngine]  # cold; e.g. functools.partial(Engine, table, settings)
    in_flight_limit: int
    accelerator_count: int = 1
    weight_bytes: float = 0.0  # read from the store (or from peers) at a start
    read_bytes_per_s_max: float = inf  # that one machine can take in
    warm_up_s: float = 30.0  # of a start, after its weights are read
    idle_w: float = 0.0  # all accelerators and their share of the host
    busy_w: float = 0.0
    price_usd_per_h: float = 0.0


class Start(Enum):
    """How a run finds its replicas."""

    READY = "ready"
    COLD = "cold"  # all are started at time 0, and read their weights at once


ANY_REPLICA = events.StartReplica("", "", "", "", "")


def replica_order(zone: str = "", pool: str = "", model: str = "", version: str = "") -> events.StartReplica:
    """An order for a replica there; what grants it gives the name."""
    return events.StartReplica("", pool, zone, model, version)


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas that the run begins with: r0, r1, … counted over all groups."""

    count: int
    order: events.StartReplica = ANY_REPLICA  # as for each of them
    start: Start = Start.READY


@dataclass(frozen=True, slots=True)
class Storage:
    """Where weights come from at a start. Starts share it evenly, each up to what its machine takes in.

    With peers, every ready replica of the same model also uploads, one stream's worth each (R-062).
    """

    bytes_per_s: float = inf
    peer_bytes_per_s: float = 0.0  # that a ready replica uploads; 0: no fan-out among peers


@dataclass(frozen=True, slots=True)
class TierModel:
    """One CPU tier's servers: what a request takes of a core, log-normal, and how many cores each has."""

    name: str
    work_s: float  # mean
    sigma: float = 0.0  # of its logarithm; 0: all are alike
    longest_s: float = inf  # at which draws are cut
    cores: int = 1


# --- the world ---


@dataclass(frozen=True, slots=True)
class FleetWorld:
    """All of one run except its arrivals. `models` by (pool, model); "" in a key stands for any."""

    models: Mapping[tuple[str, str], ReplicaModel]
    replicas: tuple[ReplicaGroup, ...]
    gate: gates.GateSettings
    beliefs: gates.Beliefs  # true ones; the gate's are `belief_factor` times these
    classes: tuple[ClassModel, ...] = (ClassModel(""),)
    belief_factor: float = 1.0
    storage: Storage = Storage()
    faults: tuple[Fault, ...] = ()
    # Of all steps while a replica starts, where they share its machine; the start is as it was measured.
    start_slow_ratio: float = 1.0
    # Of one machine that all replicas share: how many it carries at work or starting at once, and by what
    # each more makes all of them slower, starts too. Infinite: nobody is in another's way.
    crowd_count: float = inf
    crowd_ratio: float = 1.0
    network_s: float = 0.001  # one way between gateway and replica
    metrics_every_s: float = 5.0  # how often a replica is scraped
    metrics_delay_s: float = 1.0  # from the scrape until the gate knows it
    # What the gateway waits for, as the live one does by default.
    probe_timeout_s: float = 0.25
    connect_timeout_s: float = 1.0
    first_token_timeout_s: float = 60.0
    stall_timeout_s: float = 30.0  # of an answer that has begun and goes no further
    # After which a controller tells the gate of a dead replica, as it tells of one that is back; None: nobody
    # looks after them, and its own probes find out.
    controlled_s: float | None = None
    lost_after_s: float = 60.0  # after which a replica that does not come back is announced as removed
    prefix_block_tokens: int = 512  # that one of an arrival's prefix blocks stands for
    cached_prompts: tuple[tuple[int, ...], ...] = ()  # by blocks: who is ready when the run begins holds them
    error_fraction: float = 0.0  # of requests that fail at a sound replica
    quality_mean: float = 0.8  # of an answer's score, where scores are drawn; 0 spread: none are
    quality_spread: float = 0.0
    tiers: tuple[TierModel, ...] = ()  # CPU servers, one for each tier that the gate knows
    horizon_s: float = inf  # later arrivals are not let in
    drain_s: float = 3600.0  # without an arrival or an answer, after which the run is stopped
    warm_up_s: float = 0.0  # requests that arrive earlier are not in the figures
    timeline_count: int = 120  # buckets of the timeline
    seed: int = 0


def own_groups(world: FleetWorld) -> tuple[ReplicaGroup, ...]:
    """The replicas of the service's own model; behind them stand those of smaller ones."""
    smaller = {each.smaller_model for each in world.gate.classes} - {""}
    return tuple(group for group in world.replicas if group.order.model not in smaller)


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One bucket of time: sums within it, and means over it."""

    from_s: float
    until_s: float
    arrived_count: int
    finished_count: int
    refused_count: int
    failed_count: int
    left_count: int
    within_slo_count: int
    ttft_s_mean: float
    e2e_s_mean: float
    ttft_s_max: float
    in_flight_mean: float
    waiting_mean: float  # of requests in engines that have not begun, at the scrapes
    kv_used_fraction: float
    busy_fraction: float
    ready_replica_count: int
    queued_mean: float = 0.0  # of requests that the gate holds, at the scrapes


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it ended, or as it stood when the run was stopped; None where it did not come so far."""

    arrival_s: float
    class_name: str
    tenant: str
    session_id: str
    input_tokens: int
    output_tokens: int
    outcome: str
    attempts: int
    replica_id: str
    ttft_s: float | None
    e2e_s: float


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What a run came to; equal inputs give an equal result."""

    figures: simulated.FleetFigures
    classes: tuple[ClassFigures, ...]
    timeline: tuple[TimelineRow, ...]
    course: courses.FleetCourse
    replica_h: float
    # Since the first fault began; without one, since the run did:
    first_effects_s: Mapping[str, float] = field(default_factory=dict)  # when, by name
    sent_counts: Mapping[str, int] = field(default_factory=dict)  # by version, until …
    missent_count: int = 0  # … a release is decided; and requests sent where nobody could hear them,
    missent_last_s: float | None = None  # the last of them
