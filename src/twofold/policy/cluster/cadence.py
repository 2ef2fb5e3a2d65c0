"""When a job writes its next checkpoint: Young and Daly's interval from failures and writes as observed.

Failures are counted over all jobs, per accelerator and second, and old ones are forgotten, so that the rate
follows a cluster that ages, heals or grows. A job's own rate is that times its size.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.policy.cluster.settings import CadenceSettings

NEW_WRITE_FRACTION = 0.3  # of the latest write in the smoothed write time


@dataclass(slots=True)
class FailureRate:
    """A gamma posterior of a Poisson rate, whose evidence fades by the failure. Mutable.

    Formula  rate = a / b; at a failure a ← a·k + 1, b ← b·k with k = 1 − 1/memory; b grows with exposure
    Why      The gamma is conjugate to the Poisson; the prior is a failures in a / rate of exposure. Fading by
             failures, not by the clock, needs no guess of how often things fail: the last `memory` or so
             count, be they an hour or a month. A long time without any lowers the rate by itself.
    Source   Gelman et al., Bayesian Data Analysis, 2.6; West and Harrison 1997 on discounting.
    """

    failed_count: float  # a
    exposure_s: float  # b: accelerator-seconds, or node-seconds
    memory_count: float

    def advance(self, exposure_s: float) -> None:
        """So much more was at risk, whether or not it failed."""
        self.exposure_s += exposure_s

    def fail(self) -> None:
        """One failure more."""
        kept = 1.0 - 1.0 / self.memory_count
        self.failed_count = self.failed_count * kept + 1.0
        self.exposure_s *= kept

    @property
    def failures_per_s(self) -> float:
        """The posterior mean: of all rates the one whose interval loses least in expectation."""
        return self.failed_count / self.exposure_s


def prior_rate(failures_per_s: float, prior_count: float, memory_count: float) -> FailureRate:
    """What is believed before anything was seen, worth `prior_count` failures."""
    return FailureRate(prior_count, prior_count / failures_per_s, memory_count)


def checkpoint_interval_s(mean_time_between_failures_s: float, write_s: float) -> float:
    """Work between two checkpoints that loses least time to both writes and repeated work.

    Formula  sqrt(2·δ·M)·(1 + sqrt(δ/2M)/3 + δ/(18·M)) − δ for δ < 2M, else M
    Why      Rare checkpoints repeat much work after a failure, frequent ones stand still; Young's square root
             is the balance, Daly's terms correct it where failures are as frequent as writes.
    Units    seconds; `write_s` is how long the work stands still for a write.
    Source   Young 1974; Daly 2006, equation 37.
    Limits   δ → 0: 0; M → ∞: never.

    >>> round(checkpoint_interval_s(3.1 * 3600, 60.0) / 60)
    19
    """
    if write_s >= 2 * mean_time_between_failures_s:
        return mean_time_between_failures_s
    ratio = write_s / (2 * mean_time_between_failures_s)
    young_s = math.sqrt(2 * write_s * mean_time_between_failures_s)
    return young_s * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_s


def next_interval_s(
    failures_per_accelerator_s: float, size_count: int, write_s: float, settings: "CadenceSettings"
) -> float:
    """Seconds of work of one job before its next checkpoint, within the settings' bounds."""
    if settings.fixed_interval_s is not None:
        return settings.fixed_interval_s
    between_s = 1.0 / (failures_per_accelerator_s * size_count)
    interval_s = checkpoint_interval_s(between_s, write_s)
    return min(max(interval_s, settings.interval_s_min), settings.interval_s_max)


def smoothed_write_s(before_s: float, seen_s: float) -> float:
    """The write time to expect next: a storage that slows down shows within a few writes."""
    return before_s + NEW_WRITE_FRACTION * (seen_s - before_s)
