"""Settings of what steers the fleet by the clock: outliers, zones, releases and how they are rolled out."""

from dataclasses import dataclass, field

from twofold.policy.gate.sequential import Errors


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
class RolloutSettings:
    """How the replicas of a release come and go. Without it, the driver brings and ends them."""

    tick_s: float = 5.0
    surge_fraction: float = 0.25  # of the pool, at least one: starts under way at once
    start_s_max: float = 1800.0  # a start that takes longer has failed
    start_backoff_s: float = 30.0  # after a failed start; doubled with each in a row …
    start_backoff_s_max: float = 600.0  # … up to this

    def __post_init__(self) -> None:
        assert self.tick_s > 0 and 0 < self.surge_fraction <= 1, self
        assert self.start_s_max > 0 and 0 < self.start_backoff_s <= self.start_backoff_s_max, self
