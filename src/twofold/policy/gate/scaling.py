"""How many replicas each pool has: follows what is there, what waits, and what the forecast says. Mutable.

Need      requests in flight and held over what a replica takes: `target_fraction` of its places, or fewer,
          where more made first tokens late (learnt); at least what reported KV use and lateness ask for.
Ahead     the highest forecast until a replica started now would be ready, as requests in flight by Little's
          law: work per second · time with a full replica per work (beliefs price the work). That time grows
          with what is in flight beside; a line through what was seen tells it for a full replica.
Beyond    warm replicas for what forecasts miss (`forecast.py`), spares for lost zones (`outliers.py`).
Changes   up at once, down only after the need has been lower for `down_pause_s`; within a tolerance nothing;
          steps, pauses and bounds as set. Starts under way count as there. A start that failed, or takes too
          long, is tried again after a pause that doubles.
Most      counts the sick too: a gate that is cut off from its fleet sees nobody well. Where some are well,
          one that has been sick for long makes room for its successor.
Lost      zones get none but one on trial, where nobody is left by whom it could be seen that they are back.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twofold.policy.gate.events import Effect, StartReplica, StopReplica
from twofold.policy.gate.fleet_view import FleetView, Replica, most_common_version
from twofold.policy.gate.forecast import Forecast, Rises, warm_count
from twofold.policy.gate.outliers import replicas_with_spares
from twofold.policy.gate.settings import PoolScaling, ScalingSettings, WarmSettings
from twofold.policy.gate.starts import Starts

START_GAIN = 0.3  # weight of the newest start in the believed start-up time
STAY_KEPT_RATIO = 0.9999  # of what was seen of answers, when the next one ends
FRESH_MIN = 50  # first tokens from which a tick says how much a replica bears
SLOW_FRACTION = 0.1  # of them that are slow: it bears less
LOWERED_RATIO = 0.9
RAISED_RATIO = 1.005
BEARABLE_MIN_RATIO = 0.125
FIRST_TOKENS_MIN = 10.0  # weight of first tokens below which their lateness says nothing
SURE_SPREADS = 1.645  # by which a late share must be too high: one of twenty that is not looks like it


@dataclass(slots=True)
class Stays:
    """How long answers take, per second of their work, by how many are beside them: a faded line. Mutable."""

    work_s: float = 0.0
    residence_s: float = 0.0
    beside_value: float = 0.0  # sums over answers, weighed by their work
    square_value: float = 0.0
    product_value: float = 0.0

    def add(self, work_s: float, residence_s: float, beside_count: int) -> None:
        """An answer of so much work took so long beside so many."""
        self.work_s = self.work_s * STAY_KEPT_RATIO + work_s
        self.residence_s = self.residence_s * STAY_KEPT_RATIO + residence_s
        self.beside_value = self.beside_value * STAY_KEPT_RATIO + work_s * beside_count
        self.square_value = self.square_value * STAY_KEPT_RATIO + work_s * beside_count * beside_count
        self.product_value = self.product_value * STAY_KEPT_RATIO + residence_s * beside_count

    def per_work_ratio(self, beside_count: float) -> float:
        """Seconds with a replica per second of work, beside so many; 0 before any answer.

        Formula  mean + slope · (beside - mean beside), by least squares; the slope is never negative
        """
        if not self.work_s:
            return 0.0
        mean, beside = self.residence_s / self.work_s, self.beside_value / self.work_s
        scatter = self.square_value / self.work_s - beside * beside
        slope = max((self.product_value / self.work_s - mean * beside) / (scatter + 1.0), 0.0)
        return max(mean + slope * (beside_count - beside), 0.0)


@dataclass(slots=True)
class PoolState:
    """What is remembered of one pool. Mutable, bounded."""

    pool: PoolScaling
    start_s: float  # believed time to ready
    forecast: Forecast | None
    rises: Rises | None
    starts: Starts  # and their zones
    trials: Starts  # of lost zones that have no replica, and those zones
    up_at_s: float = -math.inf
    down_at_s: float = -math.inf
    asked_at_s: float = -math.inf  # the last time that anybody wanted anything
    needs: deque[tuple[float, int]] = field(default_factory=deque)  # falling maxima of the needs of late
    late_count: float = 0.0
    first_count: float = 0.0
    counts_at_s: float = 0.0
    fresh_count: int = 0  # first tokens since the last tick …
    fresh_late_count: int = 0  # … and those that came too late after they were sent
    bearable_ratio: float = 1.0  # of the places in use at the target, those that first tokens in time allow
    busiest: deque[float] = field(default_factory=lambda: deque(maxlen=2))  # in flight per replica, of late
    stays: Stays = field(default_factory=Stays)
    sick_since_s: dict[str, float] = field(default_factory=dict)

    def pending(self) -> list[str]:
        """The zones of starts under way, those on trial included."""
        return [zone for _, zone in [*self.starts.pending.values(), *self.trials.pending.values()]]


class Scaler:
    """Scales the pools of one gate. Ids of started replicas are counted."""

    def __init__(
        self, settings: ScalingSettings, warm: WarmSettings | None = None, spare_zones_count: int = 0
    ) -> None:
        self.settings, self.warm, self.spare_zones_count = settings, warm, spare_zones_count
        self._given_ids = 0
        self.pools: dict[str, PoolState] = {}
        for pool in settings.pools:
            forecast = Forecast(settings.forecast, settings.start_s) if settings.forecast else None
            rises, starts, trials = Rises(warm) if warm else None, Starts(settings), Starts(settings)
            self.pools[pool.pool] = PoolState(pool, settings.start_s, forecast, rises, starts, trials)

    def observe_arrival(self, pool: str, now_s: float, work_s: float) -> None:
        """A request came; `work_s`: what it asks for, as beliefs price it."""
        state = self.pools.get(pool)
        if state is not None:
            state.asked_at_s = now_s
            if state.forecast is not None:
                state.forecast.observe(now_s, work_s)

    def observe_first_token(self, pool: str, late: bool, slow: bool) -> None:
        """An answer began, within its class's limit or too `late` for it; `slow`: its replica alone was."""
        state = self.pools.get(pool)
        if state is not None:
            # HOT: per answer; what is old fades at the ticks.
            state.first_count += 1.0
            state.late_count += late
            state.fresh_count += 1
            state.fresh_late_count += slow

    def observe_finished(self, pool: str, work_s: float, residence_s: float, beside_count: int) -> None:
        """An answer ended, so long after it was sent, where so many were in flight."""
        state = self.pools.get(pool)
        if state is not None and work_s > 0:
            state.stays.add(work_s, residence_s, beside_count)

    def replica_added(self, replica_id: str, now_s: float) -> None:
        """One is ready; if it was started here, so long does a start take."""
        for state in self.pools.values():
            since_s = state.starts.came(replica_id)
            if since_s is None:
                since_s = state.trials.came(replica_id)
            if since_s is not None:
                state.start_s += START_GAIN * (now_s - since_s - state.start_s)

    def start_failed(self, replica_id: str, now_s: float) -> bool:
        """One that was started will not come. Whether it was started here."""
        starts = [each for state in self.pools.values() for each in (state.starts, state.trials)]
        return any(each.failed(replica_id, now_s) for each in starts)

    def tick(
        self,
        view: FleetView,
        now_s: float,
        held_counts: Mapping[str, int],
        lost_zones: Collection[str] = (),
        versions: Mapping[str, str] | None = None,
        kept_versions: Collection[str] = (),
    ) -> list[Effect]:
        """What to start and stop now.

        `held_counts`: requests that wait, by pool; `versions`: what pools run, where that is known better
        than by majority; replicas of `kept_versions` are another's to start and stop, and do not count here.
        """
        effects: list[Effect] = []
        for name, state in self.pools.items():
            state.starts.given_up(now_s)
            state.trials.given_up(now_s)
            members = [each for each in view.members(name) if each.added.version not in kept_versions]
            # Those that serve, or have not been sick for long.
            since_s, sick_ids = state.sick_since_s, [each.replica_id for each in members if not each.healthy]
            state.sick_since_s = since_s = {each: since_s.get(each, now_s) for each in sick_ids}
            gone = {each for each in sick_ids if now_s - since_s[each] >= self.settings.sick_s}
            well = [replica for replica in members if replica.replica_id not in gone]
            held_count, needs = held_counts.get(name, 0), state.needs
            need = self._need(state, members, len(well), held_count, now_s)
            # The highest need of the window, this one included; falling maxima alone are kept.
            while needs and needs[-1][1] <= need:
                needs.pop()
            needs.append((now_s, need))
            while needs[0][0] < now_s - self.settings.down_pause_s:
                needs.popleft()
            version = (versions or {}).get(name) or most_common_version(members) or state.pool.version
            waking = held_count > 0 and not well and not state.starts.pending
            effects += self._started(state, members, well, need, waking, now_s, lost_zones, version)
            effects += self._stopped(state, members, len(well) - needs[0][1], version, now_s)
        return effects

    def _need(
        self, state: PoolState, members: Sequence[Replica], well_count: int, held_count: int, now_s: float
    ) -> int:
        """Replicas that the pool should have now."""
        settings, pool, forecast = self.settings, state.pool, state.forecast
        busy_count = held_count + sum(replica.in_flight_count for replica in members)
        if busy_count:
            state.asked_at_s = now_s
        limits = [replica.in_flight_limit for replica in members] or [pool.in_flight_limit_count]
        most_count = settings.target_fraction * sum(limits) / len(limits)
        full_count = most_count * bearable(state, (busy_count - held_count) / max(well_count, 1) / most_count)
        ahead = 0.0
        if forecast is not None:
            forecast.advance(now_s)
            # The most that is expected until one that is started now has been ready for a tick.
            rate = forecast.highest_per_s(state.start_s + settings.tick_s)
            ahead = 0.0 if rate is None else rate * state.stays.per_work_ratio(full_count) / full_count
        # Replicas that hold the KV in use at its target, by the reports that are fresh enough.
        reports = [each.report for each in members if each.report is not None]
        used = [each.kv_used_fraction for each in reports if now_s - each.observed_s <= settings.report_s_max]
        by_kv = len(members) * sum(used, 0.0) / len(used) / settings.kv_target_fraction if used else 0.0
        basic = max(busy_count / full_count, by_kv, by_lateness(state, well_count, now_s, settings))
        idle = not busy_count and not ahead and now_s - state.asked_at_s >= settings.idle_s
        if idle and pool.min_count == 0:
            return 0
        exact = max(basic, ahead)
        if self.warm is not None and state.rises is not None:
            state.rises.observe(now_s, basic, state.start_s)
            miss = forecast.error_fraction() if forecast else None
            if miss is not None:
                exact += warm_count(exact, miss, self.warm)
            else:
                exact += warm_count(1.0, state.rises.spread_count(), self.warm)
        there_count = well_count + len(state.starts.pending)
        near = abs(exact - there_count) <= settings.tolerance_fraction * there_count
        count = there_count if near else math.ceil(exact - 1e-9)
        if self.spare_zones_count:
            count = replicas_with_spares(math.ceil(exact - 1e-9), len(pool.zones), self.spare_zones_count)
        return min(max(count, pool.min_count, 1), pool.max_count)

    def _started(
        self,
        state: PoolState,
        members: Sequence[Replica],
        well: Sequence[Replica],
        need: int,
        waking: bool,
        now_s: float,
        lost_zones: Collection[str],
        version: str,
    ) -> list[Effect]:
        """Start some that lack, and one where a lost zone has none: its probes tell when that is back."""
        settings, pool, starts = self.settings, state.pool, state.starts
        effects: list[Effect] = []
        there_count = len(well) + len(starts.pending)
        step = max(settings.up_count, int((settings.up_ratio - 1) * there_count))
        step = min(need - there_count, step) if now_s >= starts.not_before_s else 0
        if step > 0 and (waking or now_s - state.up_at_s >= settings.up_pause_s):
            room_count = max(pool.max_count - len(members) - len(state.pending()), 0)
            well_ids = {replica.replica_id for replica in well}
            sick_ids = [each.replica_id for each in members if well and each.replica_id not in well_ids]
            effects += [StopReplica(replica_id) for replica_id in sick_ids[: max(step - room_count, 0)]]
            used = Counter([replica.added.zone for replica in well] + state.pending())
            zones = [zone for zone in pool.zones if zone not in lost_zones] or list(pool.zones)
            for _ in range(min(step, room_count + len(effects))):
                state.up_at_s = now_s
                zone = min(zones, key=lambda name: (used[name], name))
                used[zone] += 1
                effects.append(self._start(state, starts, zone, version, now_s))
        pending = state.pending()
        there = {replica.added.zone for replica in members} | set(pending)
        empty = [zone for zone in pool.zones if zone in lost_zones and zone not in there]
        room = len(members) + len(pending) < pool.max_count
        if empty and room and now_s >= state.trials.not_before_s:
            effects.append(self._start(state, state.trials, empty[0], version, now_s))
        return effects

    def _start(self, state: PoolState, starts: Starts, zone: str, version: str, now_s: float) -> StartReplica:
        self._given_ids += 1
        replica_id = f"scaled-{self._given_ids}"
        starts.asked(replica_id, now_s, zone)
        return StartReplica(replica_id, state.pool.pool, zone, state.pool.model, version)

    def _stopped(
        self, state: PoolState, members: Sequence[Replica], over_count: int, version: str, now_s: float
    ) -> list[Effect]:
        """Stop some of those beyond the need: the sick, the outdated, the idlest of the fullest zone."""
        settings = self.settings
        if state.down_at_s == -math.inf:  # what was needed before this gate began, it does not know
            state.down_at_s = now_s
        if over_count <= 0 or now_s - max(state.up_at_s, state.down_at_s) < settings.down_pause_s:
            return []
        state.down_at_s = now_s
        left = list(members)
        effects: list[Effect] = []
        for _ in range(min(over_count, max(int(settings.down_fraction * len(members)), 1))):
            used = Counter(replica.added.zone for replica in left)
            last = max(
                left,
                key=lambda r: (
                    not r.healthy,
                    r.added.version != version,
                    used[r.added.zone],
                    -r.in_flight_count,
                    r.replica_id,
                ),
            )
            left.remove(last)
            effects.append(StopReplica(last.replica_id))
        return effects


def bearable(state: PoolState, used_ratio: float) -> float:
    """The part of the target's places that replicas can have in use with first tokens in time; learnt.

    Lower where answers are slow at less than this, higher again, little by little, where they are not at as
    much. Never below BEARABLE_MIN: a limit that even an idle replica misses would ask for the whole world.
    """
    state.busiest.append(used_ratio)
    fresh_count, late_count = state.fresh_count, state.fresh_late_count
    if fresh_count < FRESH_MIN:
        return state.bearable_ratio
    state.fresh_count = state.fresh_late_count = 0
    used_ratio = max(state.busiest)
    if late_count > SLOW_FRACTION * fresh_count:
        lower = min(state.bearable_ratio, LOWERED_RATIO * used_ratio)
        state.bearable_ratio = max(lower, BEARABLE_MIN_RATIO)
    elif used_ratio > LOWERED_RATIO * state.bearable_ratio and late_count * 4 < SLOW_FRACTION * fresh_count:
        state.bearable_ratio = min(state.bearable_ratio * RAISED_RATIO, 1.0)
    return state.bearable_ratio


def by_lateness(state: PoolState, well_count: int, now_s: float, settings: ScalingSettings) -> float:
    """Replicas that late first tokens ask for: more, as many as there are, or 0. Fades what was counted.

    More are asked for where surely too many are late; as many are kept where half as many seem to be: chance
    may neither start a replica nor stop one. Fewer than FIRST_TOKENS_MIN of late, by weight, ask for nothing:
    one of two is a great share by any bound.
    """
    fade = math.exp(-max(now_s - state.counts_at_s, 0.0) / settings.slo_window_s)
    state.counts_at_s = now_s
    state.first_count *= fade
    state.late_count *= fade
    if state.first_count < FIRST_TOKENS_MIN:
        return 0.0
    surely = surely_late_fraction(state.late_count, state.first_count)
    if surely > settings.slo_miss_fraction:
        return well_count * (1 + max(surely, settings.tolerance_fraction * 2))
    seemingly = state.late_count / state.first_count
    return float(well_count) if seemingly > settings.slo_miss_fraction / 2 else 0.0


def surely_late_fraction(late_count: float, count: float) -> float:
    """The share of late ones that can be told from chance; 0 without any.

    Formula  (p + z²/2n - z · sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), p = late / count, n = count
    Why      of few answers some are late on any fleet: the share alone would scale a quiet pool up by chance.
    Limits   of very few the bound is high as well: 0.27 of one that is late.
    Source   Wilson 1927, "Probable inference, the law of succession, and statistical inference"

    >>> round(surely_late_fraction(1.0, 10.0), 3), round(surely_late_fraction(100.0, 1000.0), 3)
    (0.023, 0.085)
    """
    if count <= 0.0:
        return 0.0
    late, square = late_count / count, SURE_SPREADS**2 / count
    spread = math.sqrt(max(late * (1.0 - late) * square + square * square / 4.0, 0.0))
    return max((late + square / 2.0 - spread) / (1.0 + square), 0.0)
