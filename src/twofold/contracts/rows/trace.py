"""Traffic traces: requests as a stream, in order where asked, and their summary in fixed memory."""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, exp, inf, log
from pathlib import Path
from typing import TypeVar

from twofold.contracts.names import did_you_mean
from twofold.contracts.rows.trace_rows import Arrival, Reading, arrivals_of_json, numbered_arrivals
from twofold.core import errors
from twofold.core.errors import Place
from twofold.core.quantity import DAY_S

MINUTE_LIMIT = 2_000_000  # distinct minutes: almost four years
GAP_S_MAX = 366 * DAY_S  # between two requests: more is no trace's, but two clocks' in one
MODEL_LIMIT = 1000  # distinct model names that are counted
# Rows that may stand before one that belongs ahead of them: a gateway logs a request when it has ended.
REORDER_LIMIT = 16_384
TRACE_BLOCK_TOKENS = 512  # that one id of a prefix stands for, in the traces that publish them
# Caches that a trace's prefixes are looked up in, all fleet's together: 131 k to 134 M tokens.
CACHE_BLOCKS = tuple(2**power for power in range(8, 19))
_BIN = log(1.01)  # histogram bins 1 % wide: 0.5 % error at most

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """Lengths of one side of the requests; percentiles to 0.5 %."""

    mean_tokens: float
    p50_tokens: float
    p95_tokens: float


@dataclass(frozen=True, slots=True)
class Trace:
    """What a plan needs of a trace. `peak_ratio` is the busiest minute over the mean."""

    request_count: int
    duration_s: float
    mean_rate_per_s: float
    peak_ratio: float
    input: TokenSummary
    output: TokenSummary
    # Of the input, what a cache of so many tokens finds in it, smallest first; none: no prefix is told.
    prefix_hits: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()  # which lines of a gateway's log are left out


@dataclass(slots=True)
class _Caches:
    """Mutable: the ids that caches of several sizes would hold, the longest unused one out first.

    A larger one holds all that a smaller one does. Their size is fixed, whatever the trace's. Requests come
    as the file has them.
    """

    held: tuple[OrderedDict[int, None], ...] = field(
        default_factory=lambda: tuple(OrderedDict() for _ in CACHE_BLOCKS)
    )
    found_tokens: list[float] = field(default_factory=lambda: [0.0] * len(CACHE_BLOCKS))
    named: bool = False

    def add(self, blocks: tuple[int, ...], input_tokens: float) -> None:
        if not blocks:
            return
        self.named = True
        for place, (limit, held) in enumerate(zip(CACHE_BLOCKS, self.held, strict=True)):
            leading = next((at for at, each in enumerate(blocks) if each not in held), len(blocks))
            # An engine computes the last token of a prompt in any case.
            self.found_tokens[place] += min(leading * TRACE_BLOCK_TOKENS, max(input_tokens - 1, 0))
            for each in reversed(blocks):  # the first block is needed by all that follow: it goes last
                held[each] = None
                held.move_to_end(each)
            while len(held) > limit:
                held.popitem(last=False)

    def hits(self, input_tokens: float) -> tuple[tuple[float, float], ...]:
        """Tokens of each cache, and the part of `input_tokens` that was found in it."""
        if not self.named:
            return ()
        sizes = zip(CACHE_BLOCKS, self.found_tokens, strict=True)
        return tuple((float(blocks * TRACE_BLOCK_TOKENS), found / input_tokens) for blocks, found in sizes)


@dataclass(slots=True)
class _Lengths:
    """Mutable: a histogram with bins 1 % wide, so its size does not grow with the trace."""

    total: float = 0.0
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, tokens: float) -> None:
        self.total += tokens
        self.bins[ceil(log(tokens) / _BIN) if tokens > 0 else -1] += 1

    def summary(self) -> TokenSummary:
        """Of one request or more."""
        count, indices = self.bins.total(), sorted(self.bins)
        seen = list(accumulate(self.bins[index] for index in indices))

        def quantile(part: float) -> float:
            index = indices[bisect_left(seen, part * count)]
            return exp((index - 0.5) * _BIN) if index > 0 else float(max(index, -1) + 1)

        return TokenSummary(self.total / count, quantile(0.5), quantile(0.95))


@dataclass(slots=True)
class TraceStatistics:
    """Mutable: folds arrivals in any order into a summary of fixed size."""

    first_s: float = inf
    last_s: float = -inf
    minutes: Counter[int] = field(default_factory=Counter)
    input: _Lengths = field(default_factory=_Lengths)
    output: _Lengths = field(default_factory=_Lengths)
    caches: _Caches = field(default_factory=_Caches)

    def add(self, arrival: Arrival) -> None:
        self.first_s = min(self.first_s, arrival.arrival_s)
        self.last_s = max(self.last_s, arrival.arrival_s)
        self.minutes[int(arrival.arrival_s // 60)] += 1
        self.input.add(arrival.input_tokens)
        self.output.add(arrival.output_tokens)
        self.caches.add(arrival.prefix_blocks, arrival.input_tokens)

    def summary(self, file: str) -> Trace:
        """Of one arrival or more. Raises TraceError when they give no rate."""
        count = self.minutes.total()
        duration_s, place = self.last_s - self.first_s, Place(file, 2, 1)
        if duration_s < 1e-6:
            message = f"all {count} requests of `{file}` arrive at once, so there is no rate"
            raise errors.TraceError(message, place=place)
        sent, answered = self.input.summary(), self.output.summary()
        for column, lengths in (("input", sent), ("output", answered)):
            if not lengths.mean_tokens:
                hint = "write how long prompts and answers are; zeros alone give no plan"
                message = f"no request of `{file}` has {column} tokens"
                raise errors.TraceError(message, place=place, hint=hint)
        rate_per_s = count / duration_s
        busiest_per_s = max(self.minutes.values()) / 60 if duration_s >= 60 else rate_per_s
        peak = max(1.0, busiest_per_s / rate_per_s)
        hits = self.caches.hits(self.input.total)
        return Trace(count, duration_s, rate_per_s, peak, sent, answered, hits)


def read_trace(path: Path) -> Trace:
    """The summary of a trace, its rows in any order; errors name the line."""
    reading = Reading()
    return _summary(numbered_arrivals(path, reading), path, reading)[0]


def read_log(lines: Iterable[str], path: Path) -> tuple[Trace, str]:
    """The summary of a log with a JSON object a line, and the model that most requests name; "" for none."""
    reading = Reading()
    return _summary(arrivals_of_json(lines, str(path), reading), path, reading)


def _summary(rows: Iterable[tuple[int, Arrival]], path: Path, reading: Reading) -> tuple[Trace, str]:
    statistics, models = TraceStatistics(), Counter[str]()
    for line, arrival in rows:
        statistics.add(arrival)
        if len(statistics.minutes) > MINUTE_LIMIT:
            raise errors.TraceError("the trace spans more than four years", place=Place(str(path), line, 1))
        if arrival.model and len(models) < MODEL_LIMIT:
            models[arrival.model] += 1
    if not statistics.minutes:
        raise _empty(path, reading)
    trace = replace(statistics.summary(str(path)), notes=tuple(reading.notes(path.name)))
    return trace, models.most_common(1)[0][0] if models else ""


def _empty(path: Path, reading: Reading) -> errors.TraceError:
    hint = "; ".join(reading.notes(path.name))
    return errors.TraceError(f"`{path}` holds no request", place=Place(str(path), 1, 1), hint=hint)


def ordered_arrivals(
    path: Path,
    context_tokens: float | None = None,
    classes: Collection[str] = (),
    reading: Reading | None = None,
) -> Iterator[Arrival]:
    """The requests in the order they arrive, the first one at 0 s. Memory does not grow with the file.

    `reading` counts the rows that stood elsewhere or are left out. Raises TraceError, with its line, for a
    request that arrives before one that stands more than `REORDER_LIMIT` rows above it, for one that comes
    more than a year after the one before, for one that with its answer exceeds `context_tokens`, for one of a
    class that is none of `classes` where these are known, and for a file without requests.
    """
    first_s: float | None = None
    last_s, counted = inf, Reading() if reading is None else reading
    rows = in_order(numbered_arrivals(path, counted), str(path), lambda arrival: arrival.arrival_s, counted)
    for line, arrival in rows:
        needed, wrong = arrival.input_tokens + arrival.output_tokens, ("", "")
        if classes and arrival.class_name and arrival.class_name not in classes:
            known = f"classes: {', '.join(sorted(classes))}"
            hint = did_you_mean(arrival.class_name, classes, known)
            wrong = f"`{arrival.class_name}` is not a class of the service", hint
        elif context_tokens is not None and needed > context_tokens:
            wrong = (
                f"{needed:,.0f} tokens of request and answer exceed the context of {context_tokens:,.0f}",
                "leave such rows out, or serve a model with a longer context",
            )
        elif arrival.arrival_s - last_s > GAP_S_MAX:
            wrong = (
                f"this request comes {(arrival.arrival_s - last_s) / DAY_S:,.0f} d after the one before it",
                "write all times of one kind: seconds from one begin, or dates",
            )
        if wrong[0]:
            raise errors.TraceError(wrong[0], place=Place(str(path), line, 1), hint=wrong[1])
        last_s = arrival.arrival_s
        first_s = arrival.arrival_s if first_s is None else first_s
        yield arrival._replace(arrival_s=arrival.arrival_s - first_s)
    if first_s is None:
        raise _empty(path, counted)


def in_order(
    rows: Iterable[tuple[int, Row]],
    file: str,
    time_of: Callable[[Row], float],
    reading: Reading | None = None,
) -> Iterator[tuple[int, Row]]:
    """Numbered rows by their time; rows a little out of order are put right within a buffer of fixed size."""
    counted = Reading() if reading is None else reading
    newest_s = -inf
    waiting: list[tuple[float, int, Row]] = []  # the line breaks ties, so that rows are never compared
    last_s, last_line = -inf, 0
    for line, row in rows:
        at_s = time_of(row)
        if at_s < last_s:
            raise errors.TraceError(
                f"not sorted: {at_s:g} s comes {last_s - at_s:g} s before what line {last_line} holds",
                place=Place(file, line, 1),
                hint=f"sort the file by time; only neighbours within {REORDER_LIMIT:,} rows are put right",
            )
        if at_s < newest_s:
            counted.moved(line)
        newest_s = max(newest_s, at_s)
        heappush(waiting, (at_s, line, row))
        if len(waiting) > REORDER_LIMIT:
            last_s, last_line, first = heappop(waiting)
            yield last_line, first
    while waiting:
        _, line, row = heappop(waiting)
        yield line, row
