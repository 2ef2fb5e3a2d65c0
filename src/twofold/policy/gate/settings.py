"""What a gate is told at its start: its settings, and what it believes of the replicas' speed.

A part that is None is off; every part has defaults that suit a fleet nobody has tuned.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from twofold.policy.gate.sequential import Errors

BINS_MAX = 10_080  # of a season: a week of minutes


class ClassKind(StrEnum):
    """What a class is for."""

    LATENCY = "latency"
    BULK = "bulk"  # the first to be shed under pressure


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """One class of requests. A request of a class that is not set is of `GateSettings.classes`' first."""

    name: str = ""
    kind: ClassKind = ClassKind.LATENCY
    priority: int = 0  # lower ones are served first; higher ones keep `QueueSettings.lower_share`
    weight: int = 1  # against the other classes of the same priority
    ttft_slo_s: float | None = None  # from the arrival to the first token
    e2e_slo_s: float | None = None  # from the arrival to the last token: the deadline where none is given
    tpot_slo_s: float | None = None  # mean time of one token after the first
    wait_s_max: float = 30.0  # that a request is held at most
    queue_limit_count: int = 1000  # requests that are held at most
    output_fraction_min: float = 1.0  # of its output limit that an answer keeps; 1: never made shorter
    smaller_model: str = ""  # that may answer in need; "": none

    def __post_init__(self) -> None:
        assert self.weight >= 1 and self.wait_s_max > 0 and self.queue_limit_count >= 0, self
        assert 0 < self.output_fraction_min <= 1, self
        slos_s = (self.ttft_slo_s, self.e2e_slo_s, self.tpot_slo_s)
        assert all(slo_s is None or slo_s > 0 for slo_s in slos_s), self


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests and tokens (input and output limit, settled to the true output) per second; None: any."""

    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    burst_s: float = 10.0  # of the rates that may come at once, after as long a silence

    def __post_init__(self) -> None:
        rates = (self.requests_per_s, self.tokens_per_s)
        assert self.burst_s > 0 and all(rate is None or rate > 0 for rate in rates), self


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much tenants and classes may ask for."""

    tenant: Rate | None = None  # of each tenant that is not named
    tenants: tuple[tuple[str, Rate], ...] = ()
    classes: tuple[tuple[str, Rate], ...] = ()
    tenant_count_max: int = 10_000  # told apart at once; those beyond share one limit

    def __post_init__(self) -> None:
        assert self.tenant_count_max >= 1, self


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Refuse at once what would miss its class's limits or its own deadline."""

    attained_fraction: float = 0.95  # of held requests that are to be within what was predicted

    def __post_init__(self) -> None:
        assert 0.5 <= self.attained_fraction < 1, self


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Hold requests in the gate while no replica has room."""

    lower_share: float = 0.1  # of the tokens served, that each lower priority gets while higher ones wait
    tenant_count_max: int = 10_000  # per class whose use is remembered while others wait
    kept_fraction: float = 0.03  # of the places, for tenants who had less than their share; 0: for nobody

    def __post_init__(self) -> None:
        assert 0 <= self.lower_share < 1 and self.tenant_count_max >= 1, self
        assert 0 <= self.kept_fraction <= 1, self


@dataclass(frozen=True, slots=True)
class DegradationSettings:
    """One level up after `raise_after_s` of pressure, one down after `lower_after_s` of calm.

    Pressure: more than `pressure_fraction` of the requests that arrive must wait or are refused.
    Calm: nothing waits, and less than `calm_fraction` of the fleet's places is taken.
    Level 1 sheds bulk classes, 2 shortens answers, 3 takes smaller models; each where its class permits it.
    """

    pressure_fraction: float = 0.5
    calm_fraction: float = 0.7
    raise_after_s: float = 5.0
    lower_after_s: float = 30.0
    level_max: int = 3

    def __post_init__(self) -> None:
        assert 0 < self.pressure_fraction < 1 and 0 < self.calm_fraction <= 1, self
        assert self.raise_after_s > 0 and self.lower_after_s > 0 and 1 <= self.level_max <= 3, self


@dataclass(frozen=True, slots=True)
class AnswerCacheSettings:
    """Answer exact repeats of a tenant's requests that have one answer only; a release empties it."""

    bytes_max: int = 64 << 20  # of all answers; the oldest go first
    age_s: float = 600.0  # that an answer is given again

    def __post_init__(self) -> None:
        assert self.bytes_max >= 1 and self.age_s > 0, self


@dataclass(frozen=True, slots=True)
class PoisonSettings:
    """When a prompt is taken for one that replicas die of. A repeat never goes to the last healthy one."""

    deaths_count: int = 2  # of replicas that it was on, without an answer of it in between
    block_s: float = 600.0
    digest_limit_count: int = 4096  # that are remembered

    def __post_init__(self) -> None:
        assert self.deaths_count >= 1 and self.block_s > 0 and self.digest_limit_count >= 1, self


@dataclass(frozen=True, slots=True)
class RetryBudgetSettings:
    """What the gate repeats and hedges, and apart from it what clients repeat: shares of what is new."""

    attempts_fraction: float = 0.1
    least_per_s: float = 0.1  # however few arrive
    burst_count: int = 10  # kept from calmer times

    def __post_init__(self) -> None:
        assert self.attempts_fraction >= 0 and self.least_per_s >= 0 and self.burst_count >= 1, self


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """Ask a second replica when the first token takes longer than at most others; the loser is cancelled."""

    after_fraction: float = 0.95  # of attempts begin sooner than the wait before a hedge …
    wait_s_min: float = 0.05  # … which is never shorter than this
    attempts_fraction: float = 0.05  # hedges at most, as a share of the requests that arrive

    def __post_init__(self) -> None:
        assert 0.5 <= self.after_fraction < 1 and self.wait_s_min > 0, self
        assert 0 <= self.attempts_fraction < 1, self


class Routing(StrEnum):
    """How one of several fit replicas is chosen."""

    LEAST_WORK = "least-work"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    POWER_OF_TWO = "power-of-two"  # the less loaded of two drawn ones
    PREFIX = "prefix"  # least work, where what the replica has cached of the prompt is no work
    SESSION = "session"  # a session stays where it is, unless that is overloaded


@dataclass(frozen=True, slots=True)
class PoolRules:
    """Separate pools for requests that cannot wait and for those that can.

    A latency-critical request overflows into the bulk pool when its own has no room; a bulk request borrows
    from the latency pool only while that is at most `borrow_fraction` full: the rest of it is the reserve
    that the pools were parted for.
    """

    latency_pool: str = "latency"
    bulk_pool: str = "bulk"
    bulk_classes: tuple[str, ...] = ()  # every other class is latency-critical
    borrow_fraction: float = 0.5

    def __post_init__(self) -> None:
        assert self.latency_pool != self.bulk_pool and 0 <= self.borrow_fraction <= 1, self


def pools_for(rules: PoolRules, class_name: str) -> tuple[tuple[str, float], ...]:
    """The pools that a class may use, in order, each with how full it may be for that."""
    if class_name in rules.bulk_classes:
        return (rules.bulk_pool, 1.0), (rules.latency_pool, rules.borrow_fraction)
    return (rules.latency_pool, 1.0), (rules.bulk_pool, 1.0)


def home_pool(rules: PoolRules | None, class_name: str) -> str:
    """The pool that a class is sized in; without rules, the one that has no name."""
    return "" if rules is None else pools_for(rules, class_name)[0][0]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Limits of the rules; each matters only to the rule it names."""

    seed: int = 0  # RANDOM and POWER_OF_TWO draw by a hash of this and the request's id
    zone_spill_fraction: float = 0.8  # in flight over limit of the zone's best, from which others are asked
    prefix_block_tokens: int = 512  # of one hash in `prefix_blocks`
    prefix_blocks_per_replica_count: int = 8192
    session_limit_count: int = 65_536  # sessions remembered; the longest unseen is forgotten
    session_spill_ratio: float = (
        1.25  # a home with more than this times the mean in flight, plus 1, is spared
    )
    pools: PoolRules | None = None

    def __post_init__(self) -> None:
        assert 0 < self.zone_spill_fraction <= 1 and self.session_spill_ratio >= 1, self
        assert self.prefix_block_tokens >= 1 and self.prefix_blocks_per_replica_count >= 1, self
        assert self.session_limit_count >= 1, self


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """Bins, season and how fast the past fades."""

    bin_s: float = 60.0
    season_s: float = 86_400.0
    level_gain: float = 0.1  # weight of the newest bin in the level
    trend_gain: float = 0.02
    trend_kept_ratio: float = 0.9  # of the trend, per bin ahead
    profile_gain: float = 0.5  # weight of the newest season in the profile
    error_gain: float = 0.01  # weight of the newest bin's miss

    def __post_init__(self) -> None:
        assert 0 < self.bin_s <= self.season_s and 2 <= self.season_s / self.bin_s <= BINS_MAX, self
        gains = (self.level_gain, self.trend_gain, self.profile_gain, self.error_gain)
        assert all(0 < gain <= 1 for gain in gains) and 0 <= self.trend_kept_ratio < 1, self


@dataclass(frozen=True, slots=True)
class WarmSettings:
    """How sure to be, and what it may cost."""

    covered_fraction: float = 0.95  # of start-up times in which the pool is enough, if misses are normal
    max_count: int = 8
    min_count: int = 0
    rise_window_s: float = 3600.0  # a rise's weight falls to 1/e in this time

    def __post_init__(self) -> None:
        assert 0.5 <= self.covered_fraction < 1 and 0 <= self.min_count <= self.max_count, self
        assert self.rise_window_s > 0, self


@dataclass(frozen=True, slots=True)
class PoolScaling:
    """One pool that is scaled, and what its replicas are."""

    pool: str = ""
    min_count: int = 1  # 0: scaled to zero when nobody asks for long enough
    max_count: int = 64
    model: str = ""
    version: str = ""  # of the first ones; later, what most of the pool runs
    zones: tuple[str, ...] = ("",)  # filled evenly
    in_flight_limit_count: int = 32  # of a replica, believed until one is seen

    def __post_init__(self) -> None:
        assert 0 <= self.min_count <= self.max_count >= 1, self
        assert self.zones and self.in_flight_limit_count >= 1, self


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """When a start has failed, and when to ask again; what starts replicas is set to."""

    start_s_max: float = 1800.0  # a start that takes longer has failed
    start_backoff_s: float = 10.0  # after a failed start; doubled with each in a row …
    start_backoff_s_max: float = 600.0  # … up to this


@dataclass(frozen=True, slots=True)
class ScalingSettings(StartSettings):
    """How a fleet follows its load. Without `forecast` it only reacts."""

    pools: tuple[PoolScaling, ...] = (PoolScaling(),)
    tick_s: float = 10.0
    target_fraction: float = 0.7  # of the places that are taken
    kv_target_fraction: float = 0.85  # of the KV cache that is used, as reported
    report_s_max: float = 60.0  # older reports say nothing
    slo_miss_fraction: float = 0.05  # of first tokens that may be late; more adds replicas, half forbids less
    slo_window_s: float = 60.0
    tolerance_fraction: float = 0.1  # a need this near to what is there changes nothing
    up_ratio: float = 2.0  # the pool at most so many times what it was, or …
    up_count: int = 4  # … so many more, whichever is more, per step
    down_fraction: float = 0.1  # of the pool that is stopped at most per step, at least one
    up_pause_s: float = 30.0  # between steps up
    down_pause_s: float = 300.0  # that the need must have been lower, and between steps down
    idle_s: float = 600.0  # without a request, until a pool with `min_count` 0 is stopped
    sick_s: float = 30.0  # until a replica with an open circuit counts as absent
    start_s: float = 120.0  # that a replica takes to be ready, believed until one was
    forecast: ForecastSettings | None = None

    def __post_init__(self) -> None:
        fractions = (self.target_fraction, self.kv_target_fraction, self.slo_miss_fraction)
        assert all(0 < fraction <= 1 for fraction in (*fractions, self.down_fraction)), self
        assert self.tick_s > 0 and self.up_ratio >= 1 and self.up_count >= 1, self
        assert 0 <= self.tolerance_fraction < 1 and 0 < self.start_s <= self.start_s_max, self
        assert 0 < self.start_backoff_s <= self.start_backoff_s_max and self.pools, self
        assert len({pool.pool for pool in self.pools}) == len(self.pools), self


@dataclass(frozen=True, slots=True)
class OutlierSettings:
    """When a replica is an outlier, and what follows."""

    tick_s: float = 5.0  # between looks
    window_s: float = 60.0  # an answer's weight falls to 1/e in this time
    requests_min_count: int = 20  # weight of the answers from which a replica is judged
    slow_ratio: float = 1.5  # of time per output token over the peers' median
    late_ratio: float = 2.0  # of time to first token over the peers' median
    failure_margin_fraction: float = 0.1  # of attempts that fail, above the peers' median
    looks_count: int = 2  # in a row that must find it out of line
    peers_min_count: int = 3
    ejected_max_fraction: float = 0.34  # of the peers; at least one may be ejected
    eject_s: float = 30.0  # the first time; doubled each further time …
    eject_s_max: float = 600.0  # … up to this; as long in line, and the next time is a first one

    def __post_init__(self) -> None:
        assert self.tick_s > 0 and self.window_s > 0 and 0 < self.eject_s <= self.eject_s_max, self
        assert self.slow_ratio > 1 and self.late_ratio > 1 and 0 < self.failure_margin_fraction < 1, self
        assert self.looks_count >= 1 and self.peers_min_count >= 2, self
        assert 0 < self.ejected_max_fraction < 1 and self.requests_min_count >= 2, self


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """When a zone is lost, and when it is back. Replicas without a zone's name are in none."""

    tick_s: float = 1.0
    lost_fraction: float = 0.8  # of a zone's replicas that are sick: failed over
    restored_fraction: float = 0.5  # of them that must be well …
    restore_after_s: float = 30.0  # … for as long without a break
    spare_zones_count: int = 0  # zones whose loss the scaled fleet outlasts: N+k

    def __post_init__(self) -> None:
        assert self.tick_s > 0 and self.restore_after_s >= 0 and self.spare_zones_count >= 0, self
        assert 0 < self.lost_fraction <= 1 and 0 < self.restored_fraction <= 1, self


@dataclass(frozen=True, slots=True)
class Stage:
    """One share of the requests, and how long it lasts at least."""

    share_fraction: float
    requests_count: int
    least_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """How a release is tried. Margins are what counts as worse."""

    stages: tuple[Stage, ...] = (Stage(0.01, 100), Stage(0.05, 400), Stage(0.25, 400), Stage(0.5, 200))
    request_limit_count: int = 2000  # canary outcomes after which a trial is decided
    trial_s_max: float = 86_400.0  # a release that gets no requests is not tried for ever
    ttft_margin_fraction: float = 0.25
    tpot_margin_fraction: float = 0.15
    failure_margin_fraction: float = 0.01
    quality_margin_fraction: float = 0.05  # of a score from 0 to 1
    errors: Errors = field(default_factory=Errors)
    block_count: int = 50  # canary outcomes per block of a test …
    failure_weight_count: int = 10  # … of which a failure counts as many: what fails always is found soon
    limit_odds_ratio: float = 1.0  # at the request limit, "worse" wins from these odds on
    limit_known_ratio: float = 20.0  # … and a test that could not even reach these odds is undecided

    def __post_init__(self) -> None:
        shares = [stage.share_fraction for stage in self.stages]
        assert shares and shares == sorted(shares) and shares[0] > 0 and shares[-1] < 1, self
        assert self.request_limit_count >= 1 and self.block_count >= 2, self


@dataclass(frozen=True, slots=True)
class RolloutSettings(StartSettings):
    """How the replicas of a release come and go. Without it, the driver brings and ends them."""

    tick_s: float = 5.0
    surge_fraction: float = 0.25  # of the pool, at least one: starts under way at once
    start_backoff_s: float = 30.0

    def __post_init__(self) -> None:
        assert self.tick_s > 0 and 0 < self.surge_fraction <= 1, self
        assert self.start_s_max > 0 and 0 < self.start_backoff_s <= self.start_backoff_s_max, self


@dataclass(frozen=True, slots=True)
class OverflowSettings:
    """A hosted API that takes what would be refused for want of room or time: never what breaks a limit.

    Its times are as stated, and are what its attempts are judged by; its replies say nothing of the fleet.
    """

    replica_id: str = "overflow"  # in each Send, as a replica's
    in_flight_limit: int = 16  # requests that it is sent at once: what bounds its bill
    first_token_s: float = 1.0  # from sending to the first token
    output_token_s: float = 0.02  # of a token after the first
    usd_per_input_mtok: float = 0.0
    usd_per_output_mtok: float = 0.0
    class_names: tuple[str, ...] = ()  # whose requests may go there; none: all

    def __post_init__(self) -> None:
        assert self.replica_id and self.in_flight_limit >= 1, self
        assert 0 <= self.first_token_s < math.inf and 0 <= self.output_token_s < math.inf, self
        assert self.usd_per_input_mtok >= 0 and self.usd_per_output_mtok >= 0, self

    def usd(self, input_tokens: float, output_tokens: float) -> float:
        """What a request comes to there.

        >>> OverflowSettings(usd_per_input_mtok=0.5, usd_per_output_mtok=2.0).usd(1000, 500)
        0.0015
        """
        return (input_tokens * self.usd_per_input_mtok + output_tokens * self.usd_per_output_mtok) / 1e6


@dataclass(frozen=True, slots=True)
class TierSettings:
    """CPU servers that every request passes before a replica is chosen for it."""

    name: str
    replica_ids: tuple[str, ...]
    in_flight_limit: int = 1  # of one of them
    queue_limit_count: int = 1000  # requests that wait for a place
    wait_s_max: float = 30.0  # that one of them does
    timeout_s: float = 30.0  # that a server may take for one
    p95_slo_s: float | None = None  # of waiting and work together

    def __post_init__(self) -> None:
        assert self.replica_ids and len(set(self.replica_ids)) == len(self.replica_ids), self
        assert self.in_flight_limit >= 1 and self.queue_limit_count >= 0, self
        assert 0 < self.wait_s_max < math.inf and 0 < self.timeout_s < math.inf, self

    @property
    def place_count(self) -> int:
        """Requests that all of them have at once."""
        return self.in_flight_limit * len(self.replica_ids)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Limits and times of one gate; each may be set in the gateway's configuration. None: off."""

    attempt_limit: int = 2  # sends of one request, the first one counted
    failure_limit: int = 3  # failures within the window that open a circuit; a refused connection does alone
    failure_window_s: float = 10.0
    open_s: float = 1.0  # of the first opening; each further one lasts twice as long …
    open_s_max: float = 30.0  # … up to this
    probe_every_s: float = 0.25
    retry_after_s_max: float = 60.0  # the longest that a refused client is asked to wait
    routing: Routing = Routing.LEAST_WORK
    routes: RoutingSettings = field(default_factory=RoutingSettings)
    classes: tuple[ClassSettings, ...] = ()  # the first is that of requests without a known one
    limits: LimitSettings | None = None
    admission: AdmissionSettings | None = None
    queue: QueueSettings | None = None
    degradation: DegradationSettings | None = None
    poison: PoisonSettings | None = None
    answer_cache: AnswerCacheSettings | None = None
    retry_budget: RetryBudgetSettings | None = None
    hedge: HedgeSettings | None = None
    outliers: OutlierSettings | None = None
    zones: ZoneSettings | None = None
    scaling: ScalingSettings | None = None
    warm: WarmSettings | None = None  # matters only with `scaling`
    canary: CanarySettings | None = None
    rollout: RolloutSettings | None = None  # matters only with `canary`
    overflow: OverflowSettings | None = None
    tiers: tuple[TierSettings, ...] = ()  # in the order in which requests pass them

    def __post_init__(self) -> None:
        assert self.attempt_limit >= 1 and self.failure_limit >= 1, self
        assert 0 < self.open_s <= self.open_s_max and self.failure_window_s > 0, self
        assert self.probe_every_s > 0 and self.retry_after_s_max > 0, self


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Predicted seconds per token on one replica; only the order and the rough size matter."""

    input_token_s: float
    output_token_s: float
    first_token_s: float = 0.0  # of an answer's first token, beyond the reading of its input

    def __post_init__(self) -> None:
        assert 0 <= self.input_token_s < math.inf and 0 <= self.output_token_s < math.inf, self
        assert 0 <= self.first_token_s < math.inf, self
