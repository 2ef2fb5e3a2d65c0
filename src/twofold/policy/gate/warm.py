"""How many replicas stand ready beyond the need: what may come before a new one could be there. Mutable.

A warm replica is a started one. The pool covers what the forecast misses over the start-up time (or, without
a forecast, how far the need has risen within one start-up time), at a chosen certainty.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist

SAMPLES_MAX = 4096  # of the need, within one start-up time


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
