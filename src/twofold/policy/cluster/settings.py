"""What a cluster brain is told at its start. Every part has defaults that suit a cluster nobody has tuned."""

import math
from dataclasses import dataclass, field

DAY_S = 86_400.0
REPORT_S = 30.0  # between reports of a job's steps, by drivers that nobody told otherwise


@dataclass(frozen=True, slots=True)
class TeamQuota:
    """What one team is promised, and how far it may go beyond while nobody else needs it."""

    team: str
    quota_count: int | None = None  # accelerators; None: no limit, nothing is borrowed
    borrow_count: int | None = None  # accelerators beyond the quota, for preemptible jobs; None: no limit
    weight_ratio: float = 1.0  # of its fair share to that of a team with 1

    def __post_init__(self) -> None:
        assert self.quota_count is None or self.quota_count >= 0, self
        assert self.borrow_count is None or self.borrow_count >= 0, self
        assert 0 < self.weight_ratio < math.inf, self


@dataclass(frozen=True, slots=True)
class GangQueueSettings:
    """Of the gang queue."""

    limit_count: int = 10_000  # jobs that wait; more are refused
    share_half_life_s: float = 7 * DAY_S  # what a team used counts half after this
    aging_s: float = DAY_S  # each such wait counts as one step of priority, so nothing starves
    backfill_count: int = 100  # jobs behind a waiting head that are tried; 0: strictly in order
    look_every_s: float = 600.0  # at a queue where somebody waits, when nothing else happens
    grow_after_s: float = 1800.0  # an elastic job is left at its size so long

    def __post_init__(self) -> None:
        assert self.limit_count >= 1 and self.backfill_count >= 0, self
        assert min(self.share_half_life_s, self.aging_s, self.look_every_s) > 0, self
        assert self.grow_after_s >= 0, self


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """Of making room by stopping or shrinking what runs."""

    minimum_run_s: float = 600.0  # an attempt is left alone so long, or preemptions would chase each other
    patience_s: float = 300.0  # a head that can start as soon as this by itself preempts nobody

    def __post_init__(self) -> None:
        assert self.minimum_run_s >= 0 and self.patience_s >= 0, self


@dataclass(frozen=True, slots=True)
class CadenceSettings:
    """Of checkpoints. The priors are those of the Llama 3 herd of models, table 5."""

    prior_failures_per_accelerator_s: float = 419 / (54 * DAY_S * 16_384)  # job interruptions
    prior_count: float = 2.0  # failures that the prior counts for
    memory_count: float = 12.0  # failures after which an old one counts 1/e
    interval_s_min: float = 60.0
    interval_s_max: float = 6 * 3600.0
    fixed_interval_s: float | None = None  # None: Young and Daly's, from what is observed
    wait_s: float = 900.0  # the longest wait for a checkpoint, then it counts as failed …
    wait_ratio: float = 4.0  # … or this many of the job's own write times, if that is longer

    def __post_init__(self) -> None:
        assert min(self.prior_failures_per_accelerator_s, self.prior_count) > 0, self
        assert min(self.wait_s, self.wait_ratio) > 0, self
        assert self.memory_count >= 1 and 0 < self.interval_s_min <= self.interval_s_max, self
        assert self.fixed_interval_s is None or self.fixed_interval_s > 0, self


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Of restarts, spares and nodes that fail again and again."""

    restart_limit: int = 10  # failures without a checkpoint between them, before a job is given up
    backoff_s: float = 30.0  # the first restart is at once, the second after this, then doubled …
    backoff_s_max: float = 1800.0  # … up to this
    hold_s: float = 300.0  # shorter pauses keep their accelerators
    spare_count: int | None = None  # nodes; None: as failures and repairs suggest
    spare_confidence_fraction: float = 0.95  # of the time the spares are enough
    prior_failures_per_node_s: float = 8 * 419 / (54 * DAY_S * 16_384)
    prior_repair_s: float = 4 * 3600.0
    lemon_window_s: float = 7 * DAY_S
    lemon_failure_count: int = 3  # fewer are never a lemon
    lemon_chance_fraction: float = 0.01  # that any node of the fleet looks like one by chance
    quarantine_s: float = DAY_S
    quarantine_fraction_max: float = 0.05  # of nodes, though always one

    def __post_init__(self) -> None:
        assert self.restart_limit >= 0 and self.lemon_failure_count >= 2, self
        assert 0 < self.backoff_s <= self.backoff_s_max and self.hold_s >= 0, self
        assert self.spare_count is None or self.spare_count >= 0, self
        assert 0 < self.spare_confidence_fraction < 1 and 0 < self.lemon_chance_fraction < 1, self
        assert min(self.prior_failures_per_node_s, self.prior_repair_s, self.quarantine_s) > 0, self


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Of attempts that stand still or are slow without ending; only jobs that report progress are watched."""

    silence_s: float = 300.0  # without a report, before an attempt counts as hung …
    silence_ratio: float = 10.0  # … or so many of the longest steps that it reported, if that is longer
    start_wait_s: float | None = None  # for an attempt to start, before it counts as hung; None: for ever
    slow_ratio: float = 1.5  # of a node's own work per step to the median of the gang's others …
    slow_count: int = 5  # … in so many reports in a row: it sets their pace

    def __post_init__(self) -> None:
        assert min(self.silence_s, self.silence_ratio) > 0 and self.slow_ratio > 1, self
        assert self.slow_count >= 1 and (self.start_wait_s is None or self.start_wait_s > 0), self


@dataclass(frozen=True, slots=True)
class SharingSettings:
    """Of the pool that training and serving share over the day."""

    headroom_fraction: float = 0.05  # of demand, kept above it
    lead_s: float = 900.0  # a node is granted so long before the forecast needs it: checkpoint and start-up
    release_hold_s: float = 1800.0  # demand must stay below what is granted for this long
    bin_s: float = 900.0  # of the profile of a day
    day_memory_count: float = 3.0  # days after which an old one counts 1/e
    serving_count_max: int | None = None  # accelerators; None: all that is preemptible

    def __post_init__(self) -> None:
        assert self.headroom_fraction >= 0 and self.lead_s >= 0 and self.release_hold_s >= 0, self
        assert 0 < self.bin_s <= DAY_S and self.day_memory_count >= 1, self
        assert self.serving_count_max is None or self.serving_count_max >= 0, self


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """All of one brain's settings; a part that is None is off."""

    teams: tuple[TeamQuota, ...] = ()  # a team that is not named has no quota and weight 1
    queue: GangQueueSettings = field(default_factory=GangQueueSettings)
    preemption: PreemptionSettings | None = field(default_factory=PreemptionSettings)
    cadence: CadenceSettings = field(default_factory=CadenceSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    sharing: SharingSettings = field(default_factory=SharingSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)

    def __post_init__(self) -> None:
        names = [team.team for team in self.teams]
        assert len(names) == len(set(names)), names
