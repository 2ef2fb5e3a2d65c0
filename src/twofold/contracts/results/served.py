"""What a load on a service came to, measured by us or by another tool: `measure serve`, `measure import`.

Seconds, tokens, bytes, joules; what nobody measured is None. Ranges of quantiles hold with 90 %.
"""

from dataclasses import dataclass

SERVED_SCHEMA = "twofold/measure-serve/1"


@dataclass(frozen=True, slots=True)
class Ranged:
    """A quantile and the range that holds that of all such requests; an end is None where too few came."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency over the finished requests of a load."""

    mean_s: float | None = None
    p50_s: Ranged | None = None
    p95_s: Ranged | None = None
    p99_s: Ranged | None = None


LIMITED_FROM_FRACTION = 0.03  # of a load's requests, refused or failed


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """One load. Closed: `concurrency` clients; open (also in bursts, or a replayed trace): `rate_per_s`;
    burst: `concurrency` requests, all sent at once.
    """

    name: str  # closed-4, open-2, bursts-2x8, replay-1x …
    kind: str  # closed open bursts replay burst
    concurrency: float | None = None  # clients at once
    rate_per_s: float | None = None  # offered
    input_tokens: float | None = None  # mean of the prompts
    output_tokens: float | None = None  # mean of the answers
    lengths: str = ""  # how they are spread: fixed, trace; empty: nobody says
    sent: int | None = None
    finished: int | None = None
    refused: int | None = None  # 429 or 503
    failed: int | None = None
    reasons: tuple[tuple[str, int], ...] = ()  # of those: status or what broke, how many
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    ttft: Latency | None = None
    tpot: Latency | None = None
    e2e: Latency | None = None
    duration_s: float | None = None
    client_cpu_fraction: float | None = None  # of one core, by whoever loaded
    lag_s_max: float | None = None  # the latest that a request was sent after it was due
    lag_s_p99: float | None = None
    memory_before_bytes: int | None = None  # of the server's processes
    memory_peak_bytes: int | None = None
    peak_held_tokens: float | None = None  # most prompt and answer tokens in flight at once
    joules_per_token: float | None = None  # of the machine, per generated token
    energy_source: str = ""  # RAPL NVML

    @property
    def lost_fraction(self) -> float:
        """Of the requests sent, those refused or failed."""
        return ((self.refused or 0) + (self.failed or 0)) / self.sent if self.sent else 0.0

    @property
    def is_limited(self) -> bool:
        """Whether so many were lost that it measured a limit or a fault, and not what the machine does."""
        return self.lost_fraction > LIMITED_FROM_FRACTION


@dataclass(frozen=True, slots=True)
class Knee:
    """The largest rate that held, and the smallest measured one that did not; None: none is known."""

    rate_per_s: float | None
    broken_per_s: float | None
    why: str  # the first sign that the smallest one did not hold
    method: str


@dataclass(frozen=True, slots=True)
class Growth:
    """A straight line through what the server's processes held at most, by the tokens in flight at most."""

    bytes_per_token: float
    base_bytes: float  # of no token in flight
    load_count: int
    worst_fraction: float  # the load furthest off the line, as a part of the growth between the outermost


@dataclass(frozen=True, slots=True)
class ServedPage:
    """All loads of one service."""

    service: str  # its URL, or the file that was read
    model: str  # as the service calls it
    loads: tuple[ServedLoad, ...]
    knee: Knee | None = None
    growth: Growth | None = None  # of memory; None: not watched, or too few loads that differ
    notes: tuple[str, ...] = ()
    rows_file: str = ""
    unit: str = ""  # what answers in one piece are counted in; empty: tokens of streams
    units_per_request: int = 1
