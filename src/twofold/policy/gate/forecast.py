"""What will come: a repeating profile, scaled to how the day goes. Fixed bins, fixed memory. Mutable.

Forecast  profile of the bin one season ago · (level + damped trend), where the level is what came of late
          over what the profile said for it. Before one whole season there is no forecast: None.
Error     each bin's forecast, made `lead_s` ahead, is kept until the bin is over; the faded mean square of
          the relative misses is what warm pools are sized by.
Source    Holt 1957 and Winters 1960 (level, trend, multiplicative season), Gardner & McKenzie 1985 (damping).

How many replicas stand ready beyond the need: what may come before a new one could be there.

A warm replica is a started one. The pool covers what the forecast misses over the start-up time (or, without
a forecast, how far the need has risen within one start-up time), at a chosen certainty.
"""

import math
from collections import deque
from statistics import NormalDist

from twofold.policy.gate.settings import ForecastSettings, WarmSettings

LEAD_BINS_MAX = 240
UNIT = 1e-9


class Forecast:
    """Of one rate: amounts per second."""

    def __init__(self, settings: ForecastSettings, lead_s: float) -> None:
        self.settings = settings
        self._bin_count = round(settings.season_s / settings.bin_s)
        self._lead_count = min(max(math.ceil(lead_s / settings.bin_s), 1), LEAD_BINS_MAX)
        self._first_s: float | None = None
        self._open_until_s = -math.inf
        self._begin()

    def _begin(self) -> None:
        self._profile = [0.0] * self._bin_count  # amounts per bin
        self._closed_count = 0  # bins
        self._amount = 0.0  # of the open bin
        self._recent = 0.0  # faded amounts …
        self._expected = 0.0  # … and what the profile said for them
        self._level = 1.0
        self._trend = 0.0
        self._ahead: deque[float] = deque(maxlen=self._lead_count)
        self._miss_square = 0.0
        self._miss_weight = 0.0

    def observe(self, now_s: float, amount: float) -> None:
        """So much came now; time does not run backwards."""
        if now_s >= self._open_until_s:
            self.advance(now_s)
        self._amount += amount

    def advance(self, now_s: float) -> None:
        """Close the bins that are over. After a silence of more than two seasons, begin anew."""
        if self._first_s is None:
            self._first_s = now_s - now_s % self.settings.bin_s
        behind = int((now_s - self._first_s) / self.settings.bin_s) - self._closed_count
        if behind > 2 * self._bin_count:
            self._begin()
            self._first_s = now_s - now_s % self.settings.bin_s
        else:
            for _ in range(behind):
                self._close()
        self._open_until_s = self._first_s + (self._closed_count + 1) * self.settings.bin_s

    def known(self) -> bool:
        """Whether a whole season was seen."""
        return self._closed_count >= self._bin_count

    def highest_per_s(self, ahead_s: float) -> float | None:
        """The highest rate expected from now until so long from now; None before a whole season was seen."""
        if not self.known():
            return None
        bins = min(max(math.ceil(ahead_s / self.settings.bin_s), 0), LEAD_BINS_MAX)
        return max(self.bin_ahead(number) for number in range(bins + 1)) / self.settings.bin_s

    def error_fraction(self) -> float | None:
        """Root mean square of what forecasts made `lead_s` ahead missed, over what they said."""
        if self._miss_weight < 0.1:
            return None
        return math.sqrt(self._miss_square / self._miss_weight)

    def bin_ahead(self, ahead_count: int) -> float:
        """Expected amount in the bin `ahead_count` after the open one."""
        kept = self.settings.trend_kept_ratio
        trend = self._trend * kept * (1 - kept**ahead_count) / (1 - kept)
        return self._smooth(self._closed_count + ahead_count) * max(self._level + trend, 0.0)

    def _smooth(self, number: int) -> float:
        """The profile about a bin, weighed 1 : 2 : 1: less noise, and half of a peak that is one bin wide."""
        profile, count = self._profile, self._bin_count
        around = profile[(number - 1) % count] + profile[(number + 1) % count]
        return 0.5 * profile[number % count] + 0.25 * around

    def _close(self) -> None:
        settings, amount = self.settings, self._amount
        place = self._closed_count % self._bin_count
        if self.known():
            expected = self._smooth(self._closed_count)
            forecast = self._ahead.popleft() if len(self._ahead) == self._lead_count else 0.0
            if forecast > UNIT:
                miss = (amount - forecast) / forecast
                self._miss_square += settings.error_gain * (miss * miss - self._miss_square)
                self._miss_weight += settings.error_gain * (1 - self._miss_weight)
            gain = settings.level_gain
            self._recent += gain * (amount - self._recent)
            self._expected += gain * (expected - self._expected)
            if self._expected > UNIT:
                before, self._level = self._level, self._recent / self._expected
                self._trend += settings.trend_gain * (self._level - before - self._trend)
            self._profile[place] += settings.profile_gain * (amount - self._profile[place])
        else:
            self._profile[place] = amount
            self._recent += settings.level_gain * (amount - self._recent)
            self._expected = self._recent
        self._closed_count += 1
        self._amount = 0.0
        if self.known():
            self._ahead.append(self.bin_ahead(self._lead_count - 1))


SAMPLES_MAX = 4096  # of the need, within one start-up time


def warm_count(needed_count: float, miss_fraction: float, settings: WarmSettings) -> int:
    """Replicas beyond `needed_count` that cover relative misses of this spread.

    Formula  ceil(z(covered) · miss · needed), within the settings' bounds

    >>> warm_count(10.0, 0.2, WarmSettings(covered_fraction=0.95))
    4
    """
    beyond = NormalDist().inv_cdf(settings.covered_fraction) * miss_fraction * needed_count
    return min(max(math.ceil(beyond - 1e-9), settings.min_count), settings.max_count)


class Rises:
    """How far a need rises within one start-up time, of late: faded root mean square of the rises."""

    def __init__(self, settings: WarmSettings) -> None:
        self.settings = settings
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._square = 0.0
        self._weight = 0.0
        self._at_s = 0.0

    def observe(self, now_s: float, needed_count: float, lead_s: float) -> None:
        """The need now; `lead_s` is the start-up time as it is believed now."""
        samples = self._samples
        samples.append((now_s, needed_count))
        while len(samples) > 1 and samples[1][0] <= now_s - lead_s:
            samples.popleft()
        if samples[0][0] > now_s - lead_s:
            return
        fade = math.exp(-max(now_s - self._at_s, 0.0) / self.settings.rise_window_s)
        self._at_s = now_s
        rise = max(needed_count - samples[0][1], 0.0)
        self._square = self._square * fade + rise * rise
        self._weight = self._weight * fade + 1.0

    def spread_count(self) -> float:
        """In replicas; 0 before a start-up time was seen."""
        return math.sqrt(self._square / self._weight) if self._weight else 0.0
