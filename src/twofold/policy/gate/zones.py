"""When a whole zone is given up, and taken back; and how many spares survive the loss of one. Mutable.

Circuits and ejections spare single replicas. Where they have taken (almost) all of a zone, the zone itself is
the fault: what is left of it is spared too, scaling goes elsewhere, and it is taken back at once, when probes
have found most of it well for a while, not replica by replica while it flaps.
"""

import math

from twofold.policy.gate.events import Effect, FailOverZone, RestoreZone
from twofold.policy.gate.fleet_view import FleetView
from twofold.policy.gate.settings import ZoneSettings


class ZoneWatch:
    """Watches the zones of one gate; remembers those alone that are lost."""

    def __init__(self, settings: ZoneSettings) -> None:
        self.settings = settings
        self.lost: dict[str, float | None] = {}  # zone -> since when it is well enough; None: it is not

    def tick(self, view: FleetView, now_s: float) -> list[Effect]:
        """Fail over zones that are lost while another is left, and take back those that have recovered."""
        sick, well = _counts(view)
        effects: list[Effect] = []
        for zone in sorted(sick.keys() | well.keys() | self.lost.keys()):
            sick_count, well_count = sick.get(zone, 0), well.get(zone, 0)
            all_count = sick_count + well_count
            if zone in self.lost:
                effects += self._watched(zone, well_count, all_count, now_s)
            elif sick_count >= max(self.settings.lost_fraction * all_count, 1) and any(
                count for other, count in well.items() if other != zone and other not in self.lost
            ):
                self.lost[zone] = None
                effects.append(FailOverZone(zone))
        return effects

    def _watched(self, zone: str, well_count: int, all_count: int, now_s: float) -> list[Effect]:
        if not well_count or well_count < self.settings.restored_fraction * all_count:
            self.lost[zone] = None
            return []
        since_s = self.lost[zone]
        if since_s is None:
            since_s = self.lost[zone] = now_s
        if now_s - since_s < self.settings.restore_after_s:
            return []
        del self.lost[zone]
        return [RestoreZone(zone)]


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


def _counts(view: FleetView) -> tuple[dict[str, int], dict[str, int]]:
    """Sick and well replicas by zone, those alone that are in a named one."""
    sick: dict[str, int] = {}
    well: dict[str, int] = {}
    for replica in view.replicas.values():
        if replica.added.zone and not replica.draining:
            fine = replica.circuit.until_s is None and replica.ejected_until_s is None
            counts = well if fine else sick
            counts[replica.added.zone] = counts.get(replica.added.zone, 0) + 1
    return sick, well
