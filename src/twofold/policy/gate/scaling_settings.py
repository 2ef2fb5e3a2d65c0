"""When replicas are started and stopped: targets, steps, pauses, bounds."""

from dataclasses import dataclass

BINS_MAX = 10_080  # of a season: a week of minutes


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


@dataclass(frozen=True, slots=True)
class ScalingSettings:
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
    start_s_max: float = 1800.0  # a start that takes longer has failed
    start_backoff_s: float = 10.0  # after a failed start; doubled with each in a row …
    start_backoff_s_max: float = 600.0  # … up to this
    forecast: ForecastSettings | None = None

    def __post_init__(self) -> None:
        fractions = (self.target_fraction, self.kv_target_fraction, self.slo_miss_fraction)
        assert all(0 < fraction <= 1 for fraction in (*fractions, self.down_fraction)), self
        assert self.tick_s > 0 and self.up_ratio >= 1 and self.up_count >= 1, self
        assert 0 <= self.tolerance_fraction < 1 and 0 < self.start_s <= self.start_s_max, self
        assert 0 < self.start_backoff_s <= self.start_backoff_s_max and self.pools, self
        assert len({pool.pool for pool in self.pools}) == len(self.pools), self
