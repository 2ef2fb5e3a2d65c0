"""Which replicas answer worse than their peers, which zones are lost, and how long they are spared. Mutable.

The breaker sees a replica that fails alone; this sees one that is merely slow, or fails now and then: against
the median of its peers, which are the replicas of the same pool, model and version. A release under trial is
not compared with what runs (that is the canary's), and a fleet that is slow as a whole has no outliers.
An ejected replica is tried again after a time that doubles with each ejection in a row.

What it can see: twice the spread of chance; a replica `slow_ratio` times as slow as the median is ejected
after about `requests_min_count` answers and two looks. A failure counts once its replica is to blame
(`health.py`). Only those that serve are peers: what the others did before they were lost says nothing of the
load that they left behind. At most `ejected_max_fraction` of all are out, for whatever reason.

Circuits and ejections spare single replicas. Where they have taken (almost) all of a zone, the zone itself is
the fault: what is left of it is spared too, scaling goes elsewhere, and it is taken back at once, when probes
have found most of it well for a while, not replica by replica while it flaps.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import median

from twofold.policy.gate.events import Effect, EjectReplica, FailOverZone, ReadmitReplica, RestoreZone
from twofold.policy.gate.fleet_view import FleetView, Replica
from twofold.policy.gate.settings import OutlierSettings, ZoneSettings

DOUBLINGS_MAX = 32
SURE_SPREADS = 3.0  # standard errors that a difference must have beyond chance


@dataclass(slots=True)
class _Mean:
    """A mean whose old values fade. Mutable."""

    weight_value: float = 0.0
    sum_value: float = 0.0
    squares_value: float = 0.0

    def add(self, value: float) -> None:
        self.weight_value += 1.0
        self.sum_value += value
        self.squares_value += value * value

    def mean(self) -> float:
        return self.sum_value / self.weight_value


@dataclass(slots=True)
class _Record:
    """What one replica did of late. Mutable."""

    at_s: float
    failed: _Mean = field(default_factory=_Mean)
    ttft: _Mean = field(default_factory=_Mean)  # of logs
    tpot: _Mean = field(default_factory=_Mean)  # of logs
    looks_count: int = 0  # in a row that found it out of line
    ejections_count: int = 0
    readmitted_s: float = 0.0

    def fade_to(self, now_s: float, window_s: float) -> None:
        factor = math.exp(-max(now_s - self.at_s, 0.0) / window_s)
        self.at_s = now_s
        for mean in (self.failed, self.ttft, self.tpot):
            mean.weight_value *= factor
            mean.sum_value *= factor
            mean.squares_value *= factor

    def clear(self) -> None:
        self.failed, self.ttft, self.tpot = _Mean(), _Mean(), _Mean()
        self.looks_count = 0


class Outliers:
    """Watches the replicas of one gate; remembers those alone that the view has."""

    def __init__(self, settings: OutlierSettings) -> None:
        self.settings = settings
        self._records: dict[str, _Record] = {}

    def observe(
        self,
        replica_id: str,
        now_s: float,
        *,
        failed: bool,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
    ) -> None:
        """Fold the end of one attempt in."""
        record = self._records.get(replica_id)
        if record is None:
            record = self._records[replica_id] = _Record(now_s)
        # HOT: per attempt; what is old fades at the looks alone, which are much more frequent than it is old.
        record.failed.add(float(failed))
        if ttft_s is not None and ttft_s > 0:
            record.ttft.add(math.log(ttft_s))
        if tpot_s is not None and tpot_s > 0:
            record.tpot.add(math.log(tpot_s))

    def tick(self, view: FleetView, now_s: float) -> list[Effect]:
        """Readmit whose time is over, then eject who is out of line, the worst first."""
        self._records = {name: kept for name, kept in self._records.items() if name in view.replicas}
        readmitted: dict[str, None] = {}
        peers: dict[tuple[str, str, str], list[Replica]] = {}
        for replica in view.replicas.values():
            if replica.draining:
                continue
            added = replica.added
            peers.setdefault((added.pool, added.model, added.version), []).append(replica)
            if replica.ejected_until_s is not None and now_s >= replica.ejected_until_s:
                readmitted[replica.replica_id] = None
                record = self._records.setdefault(replica.replica_id, _Record(now_s))
                record.clear()
                record.readmitted_s = now_s
        effects: list[Effect] = [ReadmitReplica(name) for name in readmitted]
        for group in peers.values():
            if len(group) >= self.settings.peers_min_count:
                effects += self._ejected(group, readmitted, now_s)
        return effects

    def _ejected(self, group: Sequence[Replica], readmitted: Collection[str], now_s: float) -> list[Effect]:
        settings, judged = self.settings, []
        for replica in group:
            record = self._records.get(replica.replica_id)
            if record is not None and replica.healthy:
                record.fade_to(now_s, settings.window_s)
                judged.append((replica, record))
        # How far each is beyond its worst limit, in units of that limit; 0 for those in line.
        excesses = [
            max(each)
            for each in zip(
                _beyond([record.tpot for _, record in judged], math.log(settings.slow_ratio), settings),
                _beyond([record.ttft for _, record in judged], math.log(settings.late_ratio), settings),
                _beyond([record.failed for _, record in judged], settings.failure_margin_fraction, settings),
                strict=True,
            )
        ]
        out = sum(
            r.circuit.until_s is not None
            or r.zone_lost
            or (r.ejected_until_s is not None and r.replica_id not in readmitted)
            for r in group
        )
        room = max(int(settings.ejected_max_fraction * len(group)), 1) - out
        effects: list[Effect] = []
        order = sorted(zip(excesses, judged, strict=True), key=lambda each: (-each[0], each[1][0].replica_id))
        for excess, (replica, record) in order:
            record.looks_count = record.looks_count + 1 if excess > 0 else 0
            if record.looks_count >= settings.looks_count and len(effects) < room:
                if now_s - record.readmitted_s >= settings.eject_s_max:
                    record.ejections_count = 0
                eject_s = settings.eject_s * 2.0 ** min(record.ejections_count, DOUBLINGS_MAX)
                record.ejections_count += 1
                record.clear()
                until_s = now_s + min(eject_s, settings.eject_s_max)
                effects.append(EjectReplica(replica.replica_id, until_s))
        return effects


def _beyond(means: Sequence[_Mean], limit: float, settings: OutlierSettings) -> list[float]:
    """By how many limits each mean is above the median of all, where that is no chance; else 0."""
    known = [mean for mean in means if mean.weight_value >= settings.requests_min_count]
    if len(known) < settings.peers_min_count:
        return [0.0] * len(means)
    middle = median(mean.mean() for mean in known)
    found = []
    for mean in means:
        found.append(0.0)
        if mean.weight_value >= settings.requests_min_count:
            above = mean.mean() - middle
            variance = max(mean.squares_value / mean.weight_value - mean.mean() ** 2, 0.0)
            if above > limit and above > SURE_SPREADS * math.sqrt(variance / mean.weight_value):
                found[-1] = above / limit
    return found


class ZoneWatch:
    """Watches the zones of one gate; remembers those alone that are lost."""

    def __init__(self, settings: ZoneSettings) -> None:
        self.settings = settings
        self.lost: dict[str, float | None] = {}  # zone -> since when it is well enough; None: it is not

    def tick(self, view: FleetView, now_s: float) -> list[Effect]:
        """Fail over zones that are lost while another is left, and take back those that have recovered."""
        lost, settings = self.lost, self.settings
        sick: Counter[str] = Counter()  # replicas by zone, those alone that are in a named one
        well: Counter[str] = Counter()
        for replica in view.replicas.values():
            if replica.added.zone and not replica.draining:
                fine = replica.circuit.until_s is None and replica.ejected_until_s is None
                (well if fine else sick)[replica.added.zone] += 1
        effects: list[Effect] = []
        for zone in sorted(sick.keys() | well.keys() | lost.keys()):
            all_count = sick[zone] + well[zone]
            if zone not in lost:
                others = any(count for each, count in well.items() if each != zone and each not in lost)
                if others and sick[zone] >= max(settings.lost_fraction * all_count, 1):
                    lost[zone] = None
                    effects.append(FailOverZone(zone))
            elif not well[zone] or well[zone] < settings.restored_fraction * all_count:
                lost[zone] = None
            else:
                since_s = lost[zone]
                if since_s is None:
                    since_s = lost[zone] = now_s
                if now_s - since_s >= settings.restore_after_s:
                    del lost[zone]
                    effects.append(RestoreZone(zone))
        return effects


def replicas_with_spares(needed_count: int, zone_count: int, lost_count: int) -> int:
    """The fewest replicas, spread evenly, of which `needed_count` are left when `lost_count` zones are lost.

    Formula  the least T with T - lost · ceil(T / zones) >= needed; T = needed where all zones would be lost
    """
    if lost_count == 0 or zone_count <= lost_count:
        return needed_count
    total = math.ceil(needed_count * zone_count / (zone_count - lost_count))
    while total - lost_count * math.ceil(total / zone_count) < needed_count:
        total += 1
    return total
