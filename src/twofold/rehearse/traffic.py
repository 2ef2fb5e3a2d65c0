"""The requests that a rehearsal sends: a plan's own rates and lengths, or the rows of a trace.

Rehearsals that would not end in a day are refused before they begin, with what makes them so long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from typing import NamedTuple

import numpy as np

from twofold.contracts.results.serving import ClassPlan
from twofold.contracts.rows.trace import ordered_arrivals
from twofold.contracts.rows.trace_rows import Arrival, Reading
from twofold.contracts.spec.scenario import Scenario
from twofold.core.display import format_seconds
from twofold.core.errors import ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.inference.spreads import p95_and_longest
from twofold.twin.serving import fleet_types
from twofold.twin.serving.profiles import Profile
from twofold.twin.serving.traffic import Lengths, Sessions, Surge, TrafficModel, generate

DRAWN_BLOCK_TOKENS = 64  # of one id of a prefix, where all requests are drawn
TRACE_BLOCK_TOKENS = 512  # of one hash in published traces; the last one is of the prompt's rest
MINUTE_S = 60.0
INPUT_FRACTION = 0.75  # of the context, that a drawn prompt has at most; the rest is its answer's


@dataclass(frozen=True, slots=True)
class DrawnTraffic:
    """Requests of one class and tenant, made from the plan's rates and lengths."""

    model: TrafficModel
    stream: int  # tells streams of one seed apart


@dataclass(frozen=True, slots=True)
class TracedTraffic:
    """Requests of a file. Rows of a class of their own keep it, the others are of `class_name`."""

    path: Path
    class_name: str
    kept: tuple[str, ...]  # classes that this stream sends
    known: tuple[str, ...]  # classes that rows may name
    scale_ratio: float  # factor on the rate
    repeats: bool  # begins again at its end
    context_tokens: float
    halved: bool = False  # of its minutes a random half, so that another seed is another trace


Traffic = DrawnTraffic | TracedTraffic


@dataclass(frozen=True, slots=True)
class TrafficMix:
    """All requests of one pool until a horizon, in the order that they arrive."""

    parts: tuple[Traffic, ...]
    horizon_s: float
    seed: int

    def arrivals(self) -> Iterator[fleet_types.Arrival]:
        """Again the same with every call. Raises TraceError where a trace cannot be read further."""
        streams = []
        for part in self.parts:
            if isinstance(part, DrawnTraffic):
                streams.append(generate(part.model, (self.seed << 20) + part.stream, self.horizon_s))
            else:
                streams.append(_halved(_traced(part), self.seed) if part.halved else _traced(part))
        # Of equal times, the earlier stream's first.
        for arrival in merge(*streams, key=lambda arrival: arrival.arrival_s):
            if arrival.arrival_s >= self.horizon_s:
                return
            yield arrival


def drawn_parts(
    planned: ClassPlan, scenario: Scenario, context_tokens: float, block_tokens: int, first_stream: int
) -> tuple[DrawnTraffic, ...]:
    """The streams of a class, one for each tenant: a burst may be one tenant's alone."""
    traffic = scenario.traffic
    shares = [(tenant.name, tenant.share_fraction) for tenant in traffic.tenants]
    rest = 1.0 - sum(share for _, share in shares)
    shares += [("", rest)] if rest > 1e-9 else []
    is_day = traffic.arrivals == "diurnal"
    rate = planned.rate_per_s if is_day or traffic.level == "mean" else planned.peak_per_s
    sessions = None
    input_tokens, output_tokens = planned.input_tokens or 1.0, planned.output_tokens or 1.0
    if traffic.arrivals == "sessions":
        sessions = Sessions(float(traffic.turns), max(traffic.think_s, 1e-3))
        # A turn holds all that was said before: what it adds is the mean of a turn less the answer before it.
        input_tokens = max(1.0, input_tokens / traffic.turns - output_tokens)
    most = max(2, int(context_tokens))
    inputs = _lengths(input_tokens, planned.input_spread_ratio, int(most * INPUT_FRACTION))
    if sessions is not None:  # what was said so far may fill the context, whatever one turn adds
        inputs = replace(inputs, max_tokens=int(most * INPUT_FRACTION))
    whole = TrafficModel(
        rate_per_s=rate * traffic.scale_ratio,
        input=inputs,
        output=_lengths(output_tokens, planned.output_spread_ratio, most - int(most * INPUT_FRACTION)),
        class_name=planned.name,
        gap_cv=traffic.burstiness_ratio if traffic.arrivals == "gamma" else 1.0,
        profile=Profile(planned.profile) if is_day else Profile.FLAT,
        peak_ratio=max(1.0, planned.peak_per_s / planned.rate_per_s),
        day_s=traffic.day_s,
        shared_prefix_fraction=min(planned.shared_prefix_fraction, 0.99),
        block_tokens=block_tokens,
        sessions=sessions,
        repeats_fraction=traffic.repeats_fraction if sessions is None else 0.0,
    )
    streams = []
    for stream, (tenant, share) in enumerate(shares, first_stream):
        if share <= 0:
            continue
        surges = (
            Surge(burst.at_s, burst.at_s + burst.for_s, burst.rate_ratio)
            for burst in traffic.bursts
            if burst.class_name in (None, planned.name) and burst.tenant in (None, tenant)
        )
        tenants = ((tenant, 1.0),) if tenant else ()
        rate_per_s = rate * share * traffic.scale_ratio
        model = replace(whole, rate_per_s=rate_per_s, surges=tuple(surges), tenants=tenants)
        streams.append(DrawnTraffic(model, stream))
    return tuple(streams)


def _lengths(mean_tokens: float, spread_ratio: float, most_tokens: int) -> Lengths:
    """Log-normal lengths of this mean and spread; none is far longer than most."""
    p95_tokens, longest = p95_and_longest(mean_tokens, spread_ratio)
    return Lengths(mean_tokens, p95_tokens, max(1, min(most_tokens, round(longest))))


def _traced(part: TracedTraffic) -> Iterator[fleet_types.Arrival]:
    """A file's requests of the kept classes, again and again where it repeats."""
    begins_s = last_s = 0.0
    while True:
        sent = 0
        for row in ordered_arrivals(part.path, part.context_tokens, part.known):
            last_s = begins_s + row.arrival_s / part.scale_ratio
            class_name = row.class_name or part.class_name
            if class_name in part.kept:
                sent += 1
                tokens = max(1, round(row.input_tokens)), max(1, round(row.output_tokens))
                arrival = fleet_types.Arrival(
                    last_s, *tokens, class_name, row.tenant, row.session_id, row.prefix_blocks
                )
                yield arrival._replace(answer_key=_asked_by(row, begins_s))
        if not part.repeats or not sent or last_s <= begins_s:
            return
        begins_s = last_s  # the last request of one round stands for the first of the next


def _asked_by(row: Arrival, begins_s: float) -> str:
    """Equal for rows of a round whose whole prompts have the same hashes; "" of a row that tells less.

    Limits  a trace does not say at which temperature was asked: repeats count as if at 0.
    """
    if len(row.prefix_blocks) * TRACE_BLOCK_TOKENS < row.input_tokens:
        return ""
    return f"{begins_s:g} {row.input_tokens:g} {hash(row.prefix_blocks)}"


def _halved(arrivals: Iterator[fleet_types.Arrival], seed: int) -> Iterator[fleet_types.Arrival]:
    """A random half of a trace's minutes, in their order, one after the other; read as a stream.

    Why     a trace is one draw of its traffic. What holds on most halves is no accident of a few minutes; on
            half of the minutes a figure scatters more than on all, so that intervals are rather too wide.
    Source  Politis & Romano 1994, "Large sample confidence regions based on subsamples"
    Limits  a session's turns in minutes left out are missing; no minute comes twice, or its prefixes would
            lie in caches that only the copy had filled.
    """
    generator = np.random.default_rng(seed)
    pair, keeps_first = -1, True
    for arrival in arrivals:
        minute = int(arrival.arrival_s // MINUTE_S)
        while pair < minute // 2:  # of every two minutes one
            pair += 1
            keeps_first = bool(generator.random() < 0.5)
        if keeps_first == (minute % 2 == 0):
            earlier_s = (minute - minute // 2) * MINUTE_S  # each two minutes before it are one
            yield arrival._replace(arrival_s=arrival.arrival_s - earlier_s)


class TraceScan(NamedTuple):
    """What a trace holds."""

    end_s: float  # its last request arrives, at its own rate
    class_names: set[str]  # whose requests it holds
    notes: list[str]  # what is replayed other than it stands there


def scan_trace(path: Path, class_name: str, known: Sequence[str], context_tokens: float) -> TraceScan:
    """Reads a trace once, so that what is wrong with it is told before anything runs, with its row."""
    end_s, seen, reading, empty_count = 0.0, set(), Reading(), 0
    for row in ordered_arrivals(path, context_tokens, known, reading):
        end_s = row.arrival_s
        seen.add(row.class_name or class_name)
        empty_count += round(row.output_tokens) < 1
    notes = reading.notes(path.name)
    if empty_count:  # an engine ends an answer with a token: it computes one at least
        those = "1 answer of no token is" if empty_count == 1 else f"{empty_count:,} answers of no token are"
        notes.append(f"{path.name}: {those} replayed with one, which ends it")
    return TraceScan(end_s, seen, notes)


SPAN_S_MAX = 366 * DAY_S  # simulated
REQUESTS_MAX = 50_000_000  # drawn in one run: hours of computing
SCRAPES_MAX = 20_000_000  # of one replica


def check_ends(horizon_s: float, scraped_every_s: float, traffic: TrafficMix) -> None:
    """Raises ValueRefusedError for a run that is too long, asks too much, or looks too often."""
    if horizon_s > SPAN_S_MAX:
        raise ValueRefusedError(
            f"a rehearsal of requests over {format_seconds(horizon_s)} would not end: a year is the most",
            hint="write a shorter `horizon`, replay a part of the trace, or raise `scale` under `traffic`",
        )
    drawn = [part.model for part in traffic.parts if isinstance(part, DrawnTraffic)]
    requests = horizon_s * sum(model.rate_per_s for model in drawn)
    if requests > REQUESTS_MAX:
        raise ValueRefusedError(
            f"about {requests:.3g} requests are more than the {REQUESTS_MAX:.3g} that a rehearsal draws",
            hint="write a shorter `horizon`, or a lower `scale` under `traffic`",
        )
    if horizon_s / scraped_every_s > SCRAPES_MAX:
        raise ValueRefusedError(
            f"metrics every {scraped_every_s:g} s: {horizon_s / scraped_every_s:.3g} looks at each replica",
            hint="write a longer `every` under `metrics`: live, it is seconds",
        )


def check_measured(ends_s: float, warm_up_s: float, *, at_once: bool = False) -> None:
    """Raises ValueRefusedError where requests end before any is in the figures: traces may be short.

    `at_once`: all requests of the trace come at one moment.
    """
    if warm_up_s >= ends_s > 0:
        span, all_of = format_seconds(warm_up_s), format_seconds(ends_s)
        if at_once:
            raise ValueRefusedError(
                f"all requests arrive at once, so that a warm-up of {span} leaves none",
                hint="leave `warm_up` out, or replay a trace that lasts",
            )
        raise ValueRefusedError(
            f"a warm-up of {span} leaves none of {all_of} of requests",
            hint="write a shorter `warm_up`, or replay a longer part of the trace",
        )
