"""How many replicas of a pool stand: by what they are asked, between the quietest hour and the peak."""

from dataclasses import dataclass
from math import ceil, floor, log10

from twofold.rendering.records import ServedPool
from twofold.twin.serving.profiles import hourly_weights

DIGITS = 4  # of a rate


@dataclass(frozen=True, slots=True)
class Scale:
    """Replicas = requests/s over `per_replica_per_s`, and the spares; never fewer nor more than these."""

    least_count: int
    most_count: int
    spare_count: int
    per_replica_per_s: float
    because_least: str
    because_rate: str


def scale_of(pool: ServedPool) -> Scale | None:
    """None where the plan pays for all replicas all the time.

    Formula  per replica: min(rate that meets the goals, peak / replicas without spares)
    Why      at the planned peak as many are asked for as the plan has, its room for chance included
    Limits   the quietest hour by the profile of each class; one replica without spares at the least
    """
    if pool.service.machine.held_fraction >= 1.0:
        return None
    planned, name = pool.pool, f"serving.{pool.service.name}"
    needed = planned.replica_count - planned.spare_count
    peak = sum(each.peak_per_s for each in pool.classes)
    rate, at = (
        planned.rate_per_replica_per_s,
        f"{name}.classes.{pool.classes[0].name}" if pool.is_own else pool.at,
    )
    because = f"{at}.rate_per_replica_per_s"
    if needed > 0 and 0.0 < peak / needed < rate:
        rate = peak / needed
        because = f"{name}.classes.{pool.classes[0].name}.peak_per_s over replicas without spares"
    rate = _rounded_up(rate)
    quietest = sum(
        each.rate_per_s * min(hourly_weights(each.profile, each.peak_per_s / each.rate_per_s))
        for each in pool.classes
        if each.rate_per_s > 0.0
    )
    least = min(planned.replica_count, max(1, ceil(quietest / rate)) + planned.spare_count)
    said = f"{name}.classes.{pool.classes[0].name}.profile: its quietest hour"
    return Scale(least, planned.replica_count, planned.spare_count, rate, said, because)


def _rounded_up(rate: float) -> float:
    """So that at the peak itself no replica is asked for beyond the planned ones."""
    step = 10.0 ** (floor(log10(rate)) + 1 - DIGITS)
    return round(ceil(rate / step - 1e-9) * step, 12)
