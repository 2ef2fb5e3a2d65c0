"""What a run of a serving world answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twofold.contracts.results import ClassFigures, FleetFigures


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

    figures: FleetFigures
    classes: tuple[ClassFigures, ...]
    timeline: tuple[TimelineRow, ...]
    replica_h: float
    # Since the first fault began; without one, since the run did:
    first_effects_s: Mapping[str, float] = field(default_factory=dict)  # when, by name
    sent_counts: Mapping[str, int] = field(default_factory=dict)  # by version, until …
    missent_count: int = 0  # … a release is decided; and requests sent where nobody could hear them,
    missent_last_s: float | None = None  # the last of them
