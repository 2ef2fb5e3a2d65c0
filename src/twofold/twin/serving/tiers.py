"""CPU tiers in the twin: servers whose cores requests share, and what is counted of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import exp
from statistics import NormalDist

import numpy as np

from twofold.contracts.results import simulated
from twofold.policy.gate import tiers as gate_tiers
from twofold.policy.gate.events import TierPassed
from twofold.twin.histogram import Histogram
from twofold.twin.serving.fleet_state import Purpose, unit
from twofold.twin.serving.fleet_types import TierModel

NORMAL = NormalDist()
BLOCK_COUNT = 1024  # figures that are noted before they are counted together


def work_s(model: TierModel, seed: int, number: int, turn: int) -> float:
    """What one request takes of a core: the same in every run of a seed, whatever is decided."""
    if not model.sigma:
        return model.work_s
    normal = NORMAL.inv_cdf(unit(seed, Purpose.TIER, number, turn))
    return min(model.work_s * exp(model.sigma * normal - model.sigma**2 / 2.0), model.longest_s)


class TierServer:
    """One server. Mutable: what it has. Its cores go round among more requests than there are cores.

    Formula  each of n requests gains min(1, cores / n) / slowness seconds of work in a second
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._due: list[tuple[float, int]] = []  # by the gain at which each is done
        self._open: dict[int, float] = {}  # by request, its work
        self._gained_s = self._at_s = 0.0
        self._slowness = 1.0
        self.worked_s = 0.0  # of cores, by what is done
        self.timer = 0  # the heap's number for it; 0: none

    def start(self, key: int, work_s: float, now_s: float) -> None:
        """A request came."""
        self._reach(now_s)
        self._open[key] = work_s
        heappush(self._due, (self._gained_s + work_s, key))

    def cancel(self, key: int, now_s: float) -> None:
        """Its client left."""
        self._reach(now_s)
        if self._open.pop(key, None) is not None:
            self._due = [each for each in self._due if each[1] != key]
            heapify(self._due)

    def slow(self, factor: float, now_s: float) -> None:
        """What it has, and what comes, takes so many times as long from now on."""
        self._reach(now_s)
        self._slowness *= factor

    def finished(self, now_s: float) -> list[int]:
        """Who is done by now; asked at the times that `next_at_s` named, nobody is late."""
        self._reach(now_s)
        done = []
        while self._due and self._due[0][0] <= self._gained_s + 1e-9:
            key = heappop(self._due)[1]
            self.worked_s += self._open.pop(key)
            done.append(key)
        return done

    def next_at_s(self) -> float | None:
        """When the next one is done if nobody comes or leaves before; None: nobody is there."""
        if not self._due:
            return None
        return self._at_s + max(self._due[0][0] - self._gained_s, 0.0) / self._speed

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / max(len(self._open), 1)) / self._slowness

    def _reach(self, now_s: float) -> None:
        self._gained_s += (now_s - self._at_s) * self._speed
        self._at_s = now_s


@dataclass(slots=True)
class TierTally:
    """What passed one tier after the warm-up. Mutable."""

    took: Histogram = field(default_factory=Histogram)
    noted: list[float] = field(default_factory=list)
    wait_s: float = 0.0
    took_s: float = 0.0
    waiting: int = 0  # at scrapes, their sum
    scrapes: int = 0

    def passed(self, told: TierPassed) -> None:
        """HOT: once per request and tier."""
        self.wait_s += told.wait_s
        self.took_s += told.took_s
        self.noted.append(told.took_s)
        if len(self.noted) >= BLOCK_COUNT:
            self.settle()

    def settle(self) -> None:
        """Count what was only noted."""
        self.took.add(np.array(self.noted, float))
        self.noted.clear()


@dataclass(frozen=True, slots=True)
class FullTier:
    """A scrape at which as many waited for a tier as it has places, and more than for a replica."""

    at_s: float
    name: str
    waiting_count: int
    place_count: int


class TierWorld:
    """All servers of all tiers. Mutable."""

    def __init__(
        self, models: Sequence[TierModel], tiers: Sequence[gate_tiers.Tier], warm_up_s: float
    ) -> None:
        self._tiers, self._warm_up_s = tuple(tiers), warm_up_s
        self._last_s = 0.0  # that somebody was through one
        self.models: Mapping[str, TierModel] = {model.name: model for model in models}
        self.servers = {
            server.replica_id: TierServer(self.models[tier.settings.name].cores)
            for tier in tiers
            for server in tier.servers
        }
        self._tallies = {name: TierTally() for name in self.models}
        self.full: list[FullTier] = []  # one a scrape at most, as many as there are scrapes

    def servers_of(self, name: str) -> list[TierServer]:
        """All of one tier."""
        told = next(tier.settings for tier in self._tiers if tier.settings.name == name)
        return [self.servers[each] for each in told.replica_ids]

    def passed(self, told: TierPassed, now_s: float) -> None:
        """A request is through a tier."""
        self._last_s = now_s
        if now_s >= self._warm_up_s:
            self._tallies[told.tier].passed(told)

    def scraped(self, now_s: float, held_count: int) -> None:
        """Look at the lines; `held_count` wait for a replica."""
        for tier in self._tiers:
            waiting, places = len(tier.waiting), tier.settings.place_count
            if now_s >= self._warm_up_s:
                tally = self._tallies[tier.settings.name]
                tally.waiting += waiting
                tally.scrapes += 1
            if waiting >= max(places, held_count, 1):
                self.full.append(FullTier(now_s, tier.settings.name, waiting, places))

    def full_near(self, from_s: float, until_s: float) -> FullTier | None:
        """The scrape in a span at which most waited for a tier; None: at none did too many."""
        found = [each for each in self.full if from_s <= each.at_s <= until_s]
        return max(found, key=lambda each: each.waiting_count / each.place_count, default=None)

    def figures(self, held_mean: float) -> tuple[simulated.TierFigures, ...]:
        """What came of each tier over the run, and which of them held requests up."""
        spans = [self._span(tier) for tier in self._tiers]
        worst = gate_tiers.bottleneck(spans, held_mean)
        return tuple(
            self._figures(tier, span, is_bottleneck=span is worst)
            for tier, span in zip(self._tiers, spans, strict=True)
        )

    def _span(self, tier: gate_tiers.Tier) -> gate_tiers.TierSpan:
        told, tally = tier.settings, self._tallies[tier.settings.name]
        tally.settle()
        count = tally.took.count
        wait_s = tally.wait_s / max(count, 1)
        return gate_tiers.TierSpan(
            name=told.name,
            passed_count=count,
            wait_s_mean=wait_s,
            work_s_mean=tally.took_s / max(count, 1) - wait_s,
            took_s_p95=tally.took.quantile(0.95),
            waiting_count=tally.waiting / max(tally.scrapes, 1),
            slo_s=told.p95_slo_s,
        )

    def _figures(
        self, tier: gate_tiers.Tier, span: gate_tiers.TierSpan, *, is_bottleneck: bool
    ) -> simulated.TierFigures:
        told, took = tier.settings, self._tallies[span.name].took
        model, servers = self.models[span.name], [self.servers[each] for each in told.replica_ids]
        room_s = self._last_s * len(servers) * model.cores
        return simulated.TierFigures(
            name=span.name,
            replica_count=len(servers),
            cores=model.cores,
            in_flight_limit=told.in_flight_limit,
            passed_count=span.passed_count,
            refused_count=tier.refused_count,
            wait_s_mean=span.wait_s_mean,
            work_s_mean=span.work_s_mean,
            p50_s=took.quantile(0.5),
            p95_s=span.took_s_p95,
            p99_s=took.quantile(0.99),
            goal_s=told.p95_slo_s,
            met=None if told.p95_slo_s is None or not took.count else span.took_s_p95 <= told.p95_slo_s,
            busy_fraction=sum(each.worked_s for each in servers) / room_s if room_s else 0.0,
            waiting_mean=span.waiting_count,
            is_bottleneck=is_bottleneck,
        )
