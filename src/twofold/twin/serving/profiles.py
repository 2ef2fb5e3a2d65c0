"""The shape of a week of requests: the rate of each hour over its mean."""

from collections.abc import Sequence
from enum import Enum
from math import cos, pi

HOURS = 24
HOUR_S = 3600.0


class Profile(Enum):
    """The shape of a week, in the hours of whoever sends. Time 0 is midnight before Monday."""

    FLAT = "flat"
    CONSUMER = "consumer"  # busiest at 20 h, every day
    BUSINESS = "business"  # busiest at 14 h, weekends as quiet as nights


def hourly_weights(profile: Profile | str, peak_ratio: float) -> list[float]:
    """The rate of each hour of a week over its mean; the highest is `peak_ratio`. Specs name profiles.

    Formula  w = b^p, b = 1.05 + cos(2π (hour − busiest) / 24), p so that max(w) = peak_ratio · mean(w)
    """
    profile = Profile(profile)
    if profile is Profile.FLAT or peak_ratio <= 1.0:
        return [1.0]
    busiest = 20 if profile is Profile.CONSUMER else 14
    day = [1.05 + cos(2.0 * pi * (hour - busiest) / HOURS) for hour in range(HOURS)]
    quiet = [min(day)] * HOURS if profile is Profile.BUSINESS else day
    week = day * 5 + quiet * 2
    low, high = 0.0, 64.0
    for _ in range(60):
        power = (low + high) / 2.0
        shaped = [base**power for base in week]
        if max(shaped) * len(shaped) < peak_ratio * sum(shaped):
            low = power
        else:
            high = power
    mean = sum(shaped) / len(shaped)
    return [weight / mean for weight in shaped]


def working_day(profile: str, peak_ratio: float) -> list[float]:
    """The rate of each hour of a working day over the week's mean."""
    week = hourly_weights(profile, peak_ratio)
    return week[:HOURS] if len(week) > 1 else week * HOURS


def quietest_hours(rates: Sequence[float], window_s: float) -> tuple[int, ...]:
    """The hours of a day, in a row and as many as whole ones fit a window, in which others ask least."""
    count = max(1, min(HOURS, int(window_s // HOUR_S)))
    spans = ([(start + step) % HOURS for step in range(count)] for start in range(HOURS))
    return tuple(sorted(min(spans, key=lambda span: sum(float(rates[hour]) for hour in span))))
