"""What a service needs of a pool through its days, and what its autoscaler asks for."""

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, pi, sin

import numpy as np

from twofold.twin.cluster.cluster_types import ServingLoad

DAY_S = 86_400.0


def day_profile(trough_share: float, hour_count: int = 24, peak_hour: float = 15.0) -> tuple[float, ...]:
    """A smooth day: 1 at its peak, `trough_share` half a day away."""
    middle, swing = (1 + trough_share) / 2, (1 - trough_share) / 2
    angles = [2 * pi * ((hour + 0.5) * 24 / hour_count - peak_hour) / 24 for hour in range(hour_count)]
    return tuple(middle + swing * sin(angle + pi / 2) for angle in angles)


def accelerators_for(rate_per_s: float, capacity: Sequence[tuple[int, float]]) -> int:
    """The fewest accelerators of a capacity table that hold the SLO at this rate.

    `capacity` has rows of accelerators and the highest rate within the SLO, rising in both; beyond its end
    the last row's rate per accelerator goes on.
    """
    rates = [rate for _, rate in capacity]
    place = bisect_right(rates, rate_per_s * (1 - 1e-12))
    if place < len(capacity):
        return capacity[place][0]
    count, rate = capacity[-1]
    return ceil(rate_per_s / rate * count)


def serving_load(
    profile: Sequence[float],
    peak_rate_per_s: float,
    capacity: Sequence[tuple[int, float]],
    days: float,
    noise_fraction: float = 0.05,
    lead_s: float = 900.0,
    margin_fraction: float = 0.1,
    every_s: float = 300.0,
    start_s: float = 60.0,
    seed: int = 0,
) -> ServingLoad:
    """What a service with this profile of rates needs, and what its autoscaler asks for.

    The truth is the profile (of one day, or of a week: it is repeated) between its hours, times a noise that
    lasts about an hour. The autoscaler sees the present rate, knows the profile `lead_s` ahead, and
    asks for `margin_fraction` more than either. Users come one step after its first ask: no fleet is there at
    once.
    """
    generator = np.random.default_rng([seed, 21])
    count = ceil(days * DAY_S / every_s)
    keep = np.exp(-every_s / 3600.0)
    noise, needed, asked = 0.0, [], []
    period_s = 3600.0 * len(profile) if len(profile) > 24 else DAY_S

    def expected(at_s: float) -> float:
        place = at_s % period_s / period_s * len(profile) - 0.5
        low = int(np.floor(place))
        first, second = profile[low % len(profile)], profile[(low + 1) % len(profile)]
        return peak_rate_per_s * (first + (second - first) * (place - low))

    for number in range(count):
        at_s = number * every_s
        noise = keep * noise + float(np.sqrt(1 - keep * keep)) * float(generator.standard_normal())
        rate = expected(at_s) * max(0.0, 1 + noise_fraction * noise)
        ahead = max(expected(at_s), expected(at_s + lead_s))
        needed.append((at_s, accelerators_for(rate, capacity) if number else 0))
        asked.append((at_s, accelerators_for(max(rate, ahead) * (1 + margin_fraction), capacity)))
    return ServingLoad(_steps(needed), _steps(asked), start_s)


def _steps(series: Sequence[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """Only where it changes."""
    return tuple(row for number, row in enumerate(series) if number == 0 or row[1] != series[number - 1][1])
