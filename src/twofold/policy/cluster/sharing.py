"""How many accelerators of the shared pool serving should have."""

import math
from dataclasses import dataclass, field

from twofold.policy.cluster.settings import DAY_S, SharingSettings


@dataclass(slots=True)
class DayProfile:
    """Demand by time of day, each bin an average of its peaks that forgets old days. Mutable, bounded."""

    bin_s: float
    day_memory_count: float
    peak_counts: list[float | None] = field(init=False)  # None: a time of day not seen yet
    demand_count: int = 0  # in force
    _open_bin: int = 0  # number of the bin since the start of time
    _open_peak: int = 0

    def __post_init__(self) -> None:
        self.peak_counts = [None] * math.ceil(DAY_S / self.bin_s)

    def observe(self, demand_count: int, now_s: float) -> None:
        """Demand is this from now on."""
        self.advance(now_s)
        self.demand_count = demand_count
        begins = now_s <= self._bin_begins_s(self._open_bin)  # then what was before has not been in this bin
        self._open_peak = demand_count if begins else max(self._open_peak, demand_count)

    def advance(self, now_s: float) -> None:
        """Close the bins that have passed; after a longer gap than a day only the last day counts."""
        current = self._bin_of(now_s)
        bins, new_share = len(self.peak_counts), 1.0 - math.exp(-1.0 / self.day_memory_count)
        self._open_bin = max(self._open_bin, current - bins)
        while self._open_bin < current:
            index, peak = self._open_bin % bins, self._open_peak
            before = self.peak_counts[index]
            self.peak_counts[index] = float(peak) if before is None else before + new_share * (peak - before)
            self._open_bin += 1
            self._open_peak = self.demand_count

    def forecast_count(self, from_s: float, until_s: float) -> float:
        """The highest learned peak of the bins that this time touches; 0 where nothing was learned."""
        bins = len(self.peak_counts)
        first = self._bin_of(from_s)
        last = min(self._bin_of(until_s), first + bins - 1)
        return max((self.peak_counts[n % bins] or 0.0 for n in range(first, last + 1)), default=0.0)

    def next_bin_at_s(self, now_s: float) -> float:
        """When the next bin begins."""
        number = self._bin_of(now_s) + 1
        at_s = self._bin_begins_s(number)
        # Where bins are no round numbers, a time may be taken for the end of the bin before it.
        return at_s if at_s > now_s else self._bin_begins_s(number + 1)

    def _bin_of(self, at_s: float) -> int:
        """Bins start anew each day, so a bin that does not divide a day does not drift."""
        day, rest_s = divmod(at_s, DAY_S)
        bins = len(self.peak_counts)
        return int(day) * bins + min(int(rest_s // self.bin_s), bins - 1)

    def _bin_begins_s(self, number: int) -> float:
        day, index = divmod(number, len(self.peak_counts))
        return day * DAY_S + index * self.bin_s


@dataclass(slots=True)
class ServingPlan:
    """How many accelerators serving should have. Mutable: it remembers how long demand has been low."""

    settings: SharingSettings
    profile: DayProfile = field(init=False)
    ever_asked_s: float | None = None  # when serving first asked; None: training has the pool to itself
    _low_since_s: float | None = None
    _low_peak: int = 0  # the most that was wanted since then

    def __post_init__(self) -> None:
        self.profile = DayProfile(self.settings.bin_s, self.settings.day_memory_count)

    def observe(self, demand_count: int, now_s: float) -> None:
        """Serving says what it needs."""
        self.profile.observe(demand_count, now_s)
        if self.ever_asked_s is None:
            self.ever_asked_s = now_s

    def wanted_count(self, granted_count: int, now_s: float) -> int:
        """What serving should have now, given what it has.

        Formula  (1 + headroom) · max(demand, forecast until now + lead), raised at once, lowered only after
                 it stayed low for the hold, and then to the highest of that time
        Why      To take a node back from training costs a checkpoint and a start; a dip that ends soon, or
                 that the forecast says will end, is not worth them.
        """
        settings = self.settings
        self.profile.advance(now_s)
        wanted = self._with_headroom(self.profile.forecast_count(now_s, now_s + settings.lead_s))
        if wanted >= granted_count:
            self._low_since_s = None
            return wanted
        soon_s = now_s + settings.lead_s + settings.release_hold_s
        kept = self._with_headroom(self.profile.forecast_count(now_s, soon_s))
        if kept >= granted_count:
            self._low_since_s = None
            return granted_count
        if self._low_since_s is None:
            self._low_since_s, self._low_peak = now_s, kept
        self._low_peak = max(self._low_peak, kept)
        if now_s < self._low_since_s + settings.release_hold_s:
            return granted_count
        lowered, self._low_since_s = min(self._low_peak, granted_count), None
        return lowered

    def next_look_at_s(self, now_s: float) -> float | None:
        """When the answer may change although nothing happens."""
        if self.ever_asked_s is None:
            return None
        at_s = self.profile.next_bin_at_s(now_s)
        if self._low_since_s is not None:
            at_s = min(at_s, self._low_since_s + self.settings.release_hold_s)
        return at_s

    def _with_headroom(self, forecast_count: float) -> int:
        most = max(self.profile.demand_count, forecast_count)
        # A hair less, or 100 · 1.05 would be 106 where floats round up.
        wanted = math.ceil(most * (1.0 + self.settings.headroom_fraction) - 1e-9)
        limit = self.settings.serving_count_max
        return wanted if limit is None else min(wanted, limit)
