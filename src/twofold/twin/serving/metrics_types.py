"""What a run of a serving world answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from twofold.twin import Latency


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One class, of requests that arrived after the warm-up.

    An intent that its client asks for several times is one request: its times count from the first asking,
    and `outcomes` counts how it ended.
    """

    name: str
    arrived_count: int
    finished_count: int
    within_slo_count: int
    goodput_per_s: float  # finished within all its limits, per second of the measured time
    input_tokens: int  # of finished requests
    output_tokens: int
    ttft_s: Latency | None  # None: nothing finished
    tpot_s: Latency | None
    e2e_s: Latency | None
    outcomes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


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
class BrokeFirst:
    """The first limit that did not hold."""

    at_s: float
    signal: str
    value: float
    limit: float
    text: str


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

    duration_s: float  # simulated, from 0 to the last event
    measured_s: float  # of it, after the warm-up
    classes: tuple[ClassFigures, ...]
    outcomes: Mapping[str, int]  # of all intents, warm-up and all; their sum is arrived_count
    arrived_count: int
    finished_count: int
    retry_count: int  # further requests that clients made of the same intents
    goodput_per_s: float
    output_tokens: int
    input_tokens: int
    prefix_hit_fraction: float
    preempted_count: int
    busy_fraction: float  # of replicas' ready time
    kv_used_fraction: float
    waits_for: str | None  # why the run was stopped before all requests had ended
    replica_h: float
    accelerator_h: float
    cost_usd: float
    energy_j: float
    energy_j_per_output_token: float
    replicas_max_count: int
    started_count: int
    start_s_mean: float  # from StartReplica to ready
    event_count: int  # that the gate handled
    decision_count: int  # effects that it answered, probes aside
    effects: Mapping[str, int]  # by name
    little_error_fraction: float  # |L − λW| / L over the whole run
    broke_first: BrokeFirst | None
    timeline: tuple[TimelineRow, ...]
    queued_mean: float = 0.0  # of requests that the gate held, at the scrapes of the whole run …
    waiting_mean: float = 0.0  # … and of those in engines that had not begun
    computed_s: float = 0.0  # by all replicas together
    saved_s: float = 0.0  # that cached prompts spared them
    kv_waste_fraction: float = 0.0  # of the cache that requests held, what no token filled
    token_gap_p99_s: float | None = None  # between the tokens of an answer; None: none was seen
    token_gap_max_s: float | None = None  # the longest
    # Since the first fault began; without one, since the run did:
    first_effects_s: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )  # when, by name
    sent_counts: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by version, until …
    missent_count: int = 0  # … a release is decided; and requests sent where nobody could hear them,
    missent_last_s: float | None = None  # the last of them
