"""The requests that a rehearsal sends: a plan's own rates and lengths, or the rows of a trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf, log, sqrt
from pathlib import Path

import numpy as np

from twofold.contracts import ClassPlan, Scenario, ordered_arrivals
from twofold.twin import Arrival

TRACE_BLOCK_TOKENS = 512  # that one id of a prefix stands for, in the traces that publish them …
DRAWN_BLOCK_TOKENS = 64  # … and where all requests are drawn
DRAWN_AT_ONCE = 4096  # arrivals: memory does not grow with the run
Steps = tuple[tuple[float, float], ...]  # from this second on, so many requests/s


@dataclass(frozen=True, slots=True)
class DrawnTraffic:
    """Requests of one class and tenant at given rates, with lengths like the plan's."""

    class_name: str
    tenant: str
    steps: Steps
    burstiness_ratio: float  # deviation of gaps over their mean: 1 is Poisson
    input_tokens: float  # mean
    output_tokens: float  # mean
    input_spread_ratio: float  # deviation over mean, log-normal
    output_spread_ratio: float
    shared_prefix_fraction: float  # of each input, the same in all of them
    context_tokens: float  # longer requests are drawn as long as this allows
    block_tokens: int  # that one id of a prefix stands for
    stream: int  # tells streams of one seed apart


@dataclass(frozen=True, slots=True)
class TracedTraffic:
    """Requests of a file. Rows of a class of their own keep it, the others are of `class_name`."""

    path: Path
    class_name: str | None  # None: rows without a class are left out
    kept: tuple[str, ...]  # classes that this stream sends
    known: tuple[str, ...]  # classes that rows may name
    scale_ratio: float  # factor on the rate
    repeats: bool  # begins again at its end
    context_tokens: float


Traffic = DrawnTraffic | TracedTraffic


@dataclass(frozen=True, slots=True)
class TrafficMix:
    """All requests of one pool until a horizon, in the order that they arrive."""

    parts: tuple[Traffic, ...]
    horizon_s: float
    seed: int

    def arrivals(self) -> Iterator[Arrival]:
        """Again the same with every call. Raises TraceError where a trace cannot be read further."""
        streams = [
            drawn(part, self.horizon_s, self.seed) if isinstance(part, DrawnTraffic) else _traced(part)
            for part in self.parts
        ]
        for arrival in merge(*streams, key=lambda arrival: arrival.arrival_s):
            if arrival.arrival_s >= self.horizon_s:
                return
            yield arrival


def drawn_parts(
    planned: ClassPlan, scenario: Scenario, context_tokens: float, block_tokens: int, first_stream: int
) -> tuple[DrawnTraffic, ...]:
    """The streams of a class, one for each tenant, with the scenario's bursts in their rates."""
    traffic = scenario.traffic
    rate = planned.peak_per_s if traffic.level == "peak" else planned.rate_per_s
    shares = [(tenant.name, tenant.share_fraction) for tenant in traffic.tenants]
    rest = 1.0 - sum(share for _, share in shares)
    shares += [("", rest)] if rest > 1e-9 else []
    return tuple(
        DrawnTraffic(
            class_name=planned.name,
            tenant=tenant,
            steps=rate_steps(rate * share * traffic.scale_ratio, planned, tenant, scenario),
            burstiness_ratio=traffic.burstiness_ratio if traffic.arrivals == "gamma" else 1.0,
            input_tokens=planned.input_tokens or 1.0,
            output_tokens=planned.output_tokens or 1.0,
            input_spread_ratio=planned.input_spread_ratio,
            output_spread_ratio=planned.output_spread_ratio,
            shared_prefix_fraction=planned.shared_prefix_fraction,
            context_tokens=context_tokens,
            block_tokens=block_tokens,
            stream=first_stream + index,
        )
        for index, (tenant, share) in enumerate(shares)
        if share > 0
    )


def rate_steps(rate_per_s: float, planned: ClassPlan, tenant: str, scenario: Scenario) -> Steps:
    """The rate over time: constant but for the bursts that concern this class and tenant."""
    bursts = [
        burst
        for burst in scenario.traffic.bursts
        if burst.class_name in (None, planned.name) and burst.tenant in (None, tenant)
    ]
    moments = sorted(
        {0.0, *(burst.at_s for burst in bursts), *(burst.at_s + burst.for_s for burst in bursts)}
    )

    def rate_at(moment_s: float) -> float:
        rate = rate_per_s
        for burst in bursts:
            if burst.at_s <= moment_s < burst.at_s + burst.for_s:
                rate *= burst.rate_ratio
        return rate

    return tuple((moment_s, rate_at(moment_s)) for moment_s in moments)


def drawn(part: DrawnTraffic, horizon_s: float, seed: int) -> Iterator[Arrival]:
    """Gaps of a gamma renewal process in the time in which the rate is 1, lengths log-normal.

    Formula  N(t) runs on Λ(t) = ∫ rate; a gap there is Gamma(1/cv², cv²)
    Why      A burst is more of the same users, so that it stretches time and not the law of the gaps.
    """
    generator = np.random.default_rng([seed, part.stream])
    operational = 0.0
    shape = 1.0 / part.burstiness_ratio**2
    blocks = _shared_blocks(part)
    clock = _Clock(part.steps)
    while True:
        gaps = generator.gamma(shape, 1.0 / shape, DRAWN_AT_ONCE)
        inputs = _lengths(generator, part.input_tokens, part.input_spread_ratio, part.context_tokens)
        outputs = _lengths(generator, part.output_tokens, part.output_spread_ratio, part.context_tokens)
        for gap, sent, answered in zip(gaps.tolist(), inputs, outputs, strict=True):
            operational += gap
            at_s = clock.time_s(operational)
            if at_s >= horizon_s:
                return
            sent = min(sent, int(part.context_tokens) - 1)
            shared = blocks[: int(sent * part.shared_prefix_fraction) // part.block_tokens]
            answered = min(answered, int(part.context_tokens) - sent)
            yield Arrival(at_s, sent, answered, part.class_name, part.tenant, "", shared)


class _Clock:
    """From operational time to seconds, forwards only. Mutable."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._index, self._before = steps, 0, 0.0

    def time_s(self, operational: float) -> float:
        while True:
            from_s, rate = self._steps[self._index]
            last = self._index == len(self._steps) - 1
            until_s = inf if last else self._steps[self._index + 1][0]
            held = inf if last else (until_s - from_s) * rate
            if operational <= self._before + held:
                return from_s + (operational - self._before) / rate if rate > 0 else inf
            self._before += held
            self._index += 1


def _lengths(
    generator: np.random.Generator, mean_tokens: float, spread_ratio: float, most_tokens: float
) -> Sequence[int]:
    """Log-normal lengths of that mean and deviation, at least one token."""
    variance = log(1.0 + spread_ratio**2)
    values = generator.lognormal(log(mean_tokens) - variance / 2, sqrt(variance), DRAWN_AT_ONCE)
    whole: list[int] = np.clip(np.rint(values), 1, max(1.0, most_tokens - 1)).astype(int).tolist()
    return whole


def _shared_blocks(part: DrawnTraffic) -> tuple[int, ...]:
    """Ids of the blocks that all prompts of a class begin with; those of classes and tenants differ."""
    most = int(part.context_tokens * part.shared_prefix_fraction) // part.block_tokens
    return tuple(-1 - (part.stream << 32) - index for index in range(most))


def _traced(part: TracedTraffic) -> Iterator[Arrival]:
    """A file's requests of the kept classes, again and again where it repeats."""
    begins_s = last_s = 0.0
    while True:
        sent = 0
        for row in ordered_arrivals(part.path, part.context_tokens, part.known):
            last_s = begins_s + row.arrival_s / part.scale_ratio
            class_name = row.class_name or part.class_name
            if class_name in part.kept:
                sent += 1
                yield Arrival(
                    last_s,
                    round(row.input_tokens),
                    max(1, round(row.output_tokens)),
                    class_name or "",
                    row.tenant,
                    row.session_id,
                    row.prefix_blocks,
                )
        if not part.repeats or not sent or last_s <= begins_s:
            return
        begins_s = last_s  # the last request of one round stands for the first of the next


@dataclass(frozen=True, slots=True)
class TraceScan:
    """What is known of a trace before it is replayed."""

    end_s: float  # when its last request arrives, at its own rate
    classes: frozenset[str]  # whose requests it holds


def scan_trace(path: Path, class_name: str | None, known: Sequence[str], context_tokens: float) -> TraceScan:
    """Reads a trace once, so that what is wrong with it is told before anything runs, with its row."""
    end_s, seen = 0.0, set()
    for row in ordered_arrivals(path, context_tokens, known):
        end_s = row.arrival_s
        seen.add(row.class_name or class_name or "")
    return TraceScan(end_s, frozenset(seen))
