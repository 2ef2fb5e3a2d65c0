"""Workloads that are given by measurement instead of by a model: embeddings, vision, speech, diffusion.

Rows of (batch size, seconds) become a server that takes what has queued, up to its largest batch. Rows may
also say when the first output comes, and how far apart the further ones are. Where rows say how late requests
at a rate were, that curve is what latencies are read off, and the largest rate is what a replica carries.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twofold.contracts.goals import SuccessGoal
from twofold.contracts.rows.measured_rows import ServiceRow
from twofold.core import record
from twofold.core.errors import InputError
from twofold.inference.bulk_queue import quantiles, taken
from twofold.inference.latency import Latency
from twofold.perf.known import spread_factor
from twofold.perf.types import Floats

POINTS = 200
MOST_FRACTION = 0.98  # of the rate at which batches follow without a pause
READ_AT = ("p50", "p95", "p99")  # what a `Latency` is given
QUANTILES = (0.50, 0.95, 0.99)
LOADS = np.linspace(
    0.0, MOST_FRACTION, 50
)  # of the largest batches' rate, that the latest answer is sought at
SAID = {
    "e2e": "wait for the own batch and its time, of batches",
    "ttft": "wait for the own batch and its first output, of batches",
    "tpot": "gap between outputs in the own batch, of batches",
}


@dataclass(frozen=True, slots=True)
class RateCurve:
    """How late whole answers of one replica were, by the rate that it was sent."""

    rates_per_s: tuple[float, ...]  # rising
    quantiles_s: tuple[tuple[float, ...], ...]  # of each of `READ_AT`, none falling with the rate

    @classmethod
    def of(cls, rows: Sequence[ServiceRow]) -> "RateCurve | None":
        """From the rows of rates; several of one rate give their median. None without any."""
        rates = sorted({row.rate_per_s for row in rows if row.rate_per_s is not None})
        if not rates:
            return None
        by_rate = [[row for row in rows if row.rate_per_s == rate] for rate in rates]
        found = [
            np.maximum.accumulate(
                [np.median([getattr(row, f"e2e_{which}_s") for row in own]) for own in by_rate]
            )
            for which in READ_AT
        ]
        return cls(tuple(rates), tuple(tuple(map(float, each)) for each in found))

    def slowed(self, factor: float) -> "RateCurve":
        """Answers so many times as late, at rates that are as much lower."""
        rates = tuple(rate / factor for rate in self.rates_per_s)
        return RateCurve(rates, tuple(tuple(factor * s for s in each) for each in self.quantiles_s))

    def at(self, rate_per_s: Floats) -> list[Floats]:
        """At a rate: on lines between those measured; below them as at the lowest, above them infinite."""
        rate = np.asarray(rate_per_s, float)
        over = np.where(rate > self.rates_per_s[-1], np.inf, 0.0)
        return [over + np.interp(rate, self.rates_per_s, each) for each in self.quantiles_s]


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """Seconds that one batch takes, by batch size, on one replica of `accelerators`."""

    batch_sizes: tuple[float, ...]  # rising
    service_s: tuple[float, ...]
    accelerators: int = 1
    ttft_s: tuple[float, ...] | None = None  # None: not measured at every size
    tpot_s: tuple[float, ...] | None = None
    spread_factor: float = 1.0  # a further run lies within time / factor … time × factor, 80 %
    repeats_count: int = 0  # rows beyond the first of their size; 0: the spread is assumed
    curve: RateCurve | None = None  # None: nothing was measured at rates
    unit: str = ""  # what requests hold, such as images; empty: nobody says
    units_per_request: float = 1.0
    start_s: float | None = None  # median of the rows that say it; None: no row does
    start_spread_factor: float = 1.0  # a further start lies within start_s / factor … start_s × factor, 80 %

    @classmethod
    def of(cls, rows: Sequence[ServiceRow], accelerators: int = 1) -> Self:
        """From measured rows; several rows of one size give their median."""
        curve, told = RateCurve.of(rows), {(row.unit, row.units_per_request) for row in rows}
        if len(told) > 1:
            hint = "one table is of requests of one kind"
            raise InputError("measured rows disagree on `unit` or `units_per_request`", hint=hint)
        starts = [row.start_s for row in rows if row.start_s is not None]
        rows = [row for row in rows if row.rate_per_s is None]
        if not rows or not all(
            (row.batch_size or 0) >= 1 and 0 < (row.service_s or 0) < np.inf for row in rows
        ):
            raise InputError(
                "a measured workload needs rows of batch size ≥ 1 and seconds > 0",
                hint="columns: batch_size, service_s",
            )
        [(unit, each)] = told
        sizes = tuple(sorted({row.batch_size for row in rows if row.batch_size is not None}))
        seconds = _medians(rows, sizes, "service_s")
        assert seconds
        _check_waiting(rows, sizes, seconds)
        ttft, tpot = (_medians(rows, sizes, name) for name in ("ttft_s", "tpot_s"))
        repeats = [[row.service_s for row in rows if row.batch_size == size] for size in sizes]
        spread = spread_factor([[s for s in own if s is not None] for own in repeats])
        repeated = len(rows) - len(sizes)
        return cls(
            *(sizes, seconds, accelerators, ttft, tpot, spread, repeated, curve),
            unit=unit,
            units_per_request=each or 1.0,
            start_s=float(np.median(starts)) if starts else None,
            start_spread_factor=spread_factor([starts]) if starts else 1.0,
        )

    def slowed(self, factor: float) -> Self:
        """The same service with all of its times multiplied: what a further run may be like."""
        return replace(
            self,
            service_s=tuple(factor * each for each in self.service_s),
            ttft_s=self.ttft_s and tuple(factor * each for each in self.ttft_s),
            tpot_s=self.tpot_s and tuple(factor * each for each in self.tpot_s),
            curve=self.curve and self.curve.slowed(factor),
        )

    @property
    def saturation_per_s(self) -> float:
        """Requests/s that were carried at most, else at which the largest batches follow without a pause."""
        if self.curve is not None:
            return self.curve.rates_per_s[-1]
        return self.batch_sizes[-1] / self.service_s[-1]

    def latency(self, rate_per_s: Floats, metric: str = "e2e") -> Latency | None:
        """Latency of Poisson arrivals at a server that always takes all that waits, up to its largest batch.

        Formula  `e2e` is the wait for the own batch + what that takes, `ttft` the wait + when its first
                 output comes, `tpot` the gap in it: quantiles over requests in the long run.
        Shapes   as `rate_per_s`.
        Units    requests/s; seconds.
        Source   inference.bulk_queue.
        Limits   at the largest batch's rate and beyond infinite; None: the rows do not hold this metric.
        """
        if self._column(metric) is None:
            return None
        if self.curve is not None and metric == "e2e":
            said = "measured at rates around this one, on a line between them"
            found = zip(READ_AT, self.curve.at(rate_per_s), strict=True)
            p50, p95, p99 = (record.note(f"e2e_{which}", each, said, "rows", "rate") for which, each in found)
            return Latency(p50, p50, p95, p99)
        rate = np.asarray(rate_per_s, float)
        found_s = np.array([self._met(float(each), metric) for each in rate.ravel()]).T
        mean, p50, p95, p99 = (each.reshape(rate.shape) for each in found_s)
        said = f"quantile over requests of the {SAID[metric]} that arrivals fill at this rate"
        p50, p95, p99 = (
            record.note(f"{metric}_{which}", each, said, "rows", "rate")
            for which, each in zip(READ_AT, (p50, p95, p99), strict=True)
        )
        return Latency(mean, p50, p95, p99)

    @property
    def falling(self) -> tuple[str, int, int] | None:
        """A column and two rows of it in turn, of which the larger batch is faster; None: none is."""
        for name in ("service_s", "ttft_s", "tpot_s"):
            for index, (one, other) in enumerate(pairwise(getattr(self, name) or ())):
                if other < one:
                    return name, index, index + 1
        return None

    def latest(self, rate_per_s: Floats, metric: str = "e2e") -> Latency | None:
        """The latest that is met at any rate up to this one: what a goal is held against.

        Formula  `latency`, where no larger batch is faster; else the largest of it here and at `LOADS` below
        Why      Where larger batches are faster, fewer requests may be answered later than more.
        """
        if self.falling is None or (self.curve is not None and metric == "e2e"):
            return self.latency(rate_per_s, metric)
        with record.recording():  # what is noted is the latest
            found = self.latency(rate_per_s, metric)
        if found is None:
            return None
        # In largest batches, so that what is slower or faster as a whole is looked up alike.
        unit_s, sizes = self.service_s[-1], self.batch_sizes
        columns = [
            each and tuple(float(f"{one / unit_s:.12g}") for one in each)
            for each in (self.service_s, self.ttft_s, self.tpot_s)
        ]
        assert columns[0]
        known = _latest(MeasuredService(sizes, columns[0], ttft_s=columns[1], tpot_s=columns[2]), metric)
        below = np.searchsorted(LOADS, np.asarray(rate_per_s) * unit_s / sizes[-1], side="right") - 1
        here = (found.mean_s, found.p50_s, found.p95_s, found.p99_s)
        mean, *rest = (np.maximum(one, unit_s * each) for one, each in zip(here, known[below].T, strict=True))
        said = f"latest, at any rate up to this one, quantile over requests of the {SAID[metric]}"
        noted = zip(READ_AT, rest, strict=True)
        return Latency(mean, *(record.note(f"{metric}_{w}", s, said, "rows", "rate") for w, s in noted))

    def _column(self, metric: str) -> tuple[float, ...] | None:
        return {"e2e": self.service_s, "ttft": self.ttft_s, "tpot": self.tpot_s}[metric]

    def _met(self, rate_per_s: float, metric: str) -> tuple[float, ...]:
        """The mean and the quantiles of `READ_AT` that requests at one rate meet."""
        if rate_per_s >= self.saturation_per_s:
            return (np.inf,) * (1 + len(READ_AT))
        met, column = taken(rate_per_s, self.batch_sizes, self.service_s), self._column(metric)
        assert column
        late_s = np.interp(met.batch, self.batch_sizes, column) + (met.wait_s if metric != "tpot" else 0.0)
        return float(met.weight @ late_s), *quantiles(late_s, met.weight, QUANTILES)

    def quantile(self, rate_per_s: Floats, goal: str) -> Floats | None:
        """What the rows say of a goal such as `ttft_p95` at rates up to this one; None where they cannot say.

        Without a measured first output the answer comes whole: TTFT is then no later than the end.
        """
        metric, _, which = goal.partition("_")
        found = self.latest(rate_per_s, metric)
        if found is None and metric == "ttft":
            found = self.latest(rate_per_s)
        return None if found is None else getattr(found, f"{which}_s")

    def rate_limit(self, goals_s: Mapping[str, float], success: SuccessGoal | None = None) -> float:
        """Requests/s of one replica up to which every goal that the rows can judge is met; 0 where none is.

        `goals_s` are seconds by name, `ttft_p95` and its like, each judged on its own metric and quantile.
        Of `success` the rows judge whether first tokens come before the gateway gives up.
        """
        most = 1.0 if self.curve else MOST_FRACTION
        rates = np.linspace(0.0, most * self.saturation_per_s, POINTS)
        held = bisect_left(rates, True, key=lambda rate: not self._holds(rate, goals_s, success))
        return float(rates[held - 1]) if held else 0.0

    def _holds(self, rate_per_s: float, goals_s: Mapping[str, float], success: SuccessGoal | None) -> bool:
        """Whether every goal that the rows can judge is met at a rate."""
        for name, goal_s in goals_s.items():
            value = self.quantile(rate_per_s, name)
            if value is not None and float(value) > goal_s:
                return False
        first = self.latest(rate_per_s, "ttft") or self.latest(rate_per_s)
        if success is None or first is None:
            return True
        return float(success.within_s(first.p95_s, first.p99_s)) <= success.TIMEOUT_S


@lru_cache(maxsize=64)
def _latest(service: MeasuredService, metric: str) -> NDArray[np.float64]:
    """The mean and the quantiles of `READ_AT` at each of `LOADS`, or at a lower one where that is later."""
    found = [service._met(float(load) * service.saturation_per_s, metric) for load in LOADS]
    return np.maximum.accumulate(np.array(found))


def _check_waiting(rows: Sequence[ServiceRow], sizes: Sequence[float], seconds: Sequence[float]) -> None:
    """Raises InputError where more requests come in the time of one batch than can be planned."""
    longest = int(np.argmax(seconds))
    coming = sizes[-1] / seconds[-1] * seconds[longest]
    if coming <= ServiceRow.BATCH_MOST:
        return
    meanwhile = f"in the {seconds[longest]:g} s of a batch of {sizes[longest]:g}, batches of {sizes[-1]:g}"
    raise InputError(
        f"{meanwhile} answer {coming:,.0f} requests: at most {ServiceRow.BATCH_MOST:,} are planned",
        place=next(row.place for row in rows if row.batch_size == sizes[longest]),
        hint=f"check `service_s` of both, or {ServiceRow.FEWER}",
    )


def _medians(rows: Sequence[ServiceRow], sizes: Sequence[float], name: str) -> tuple[float, ...] | None:
    """The column's median at each size; None where a size has none."""
    by_size: dict[float, list[float]] = {size: [] for size in sizes}
    for row in rows:
        value = getattr(row, name)
        by_size[row.batch_size or 0.0] += [] if value is None else [value]
    if not all(by_size.values()):
        return None
    return tuple(float(np.median(values)) for values in by_size.values())
