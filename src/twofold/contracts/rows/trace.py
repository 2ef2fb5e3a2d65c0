"""Traffic traces: requests as a stream, in order where asked, and their summary in fixed memory."""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, exp, inf, log
from pathlib import Path
from typing import Any, TypeVar

from twofold.contracts.names import did_you_mean
from twofold.contracts.rows.trace_rows import (
    NAMES,
    NEEDED,
    Arrival,
    counted,
    flat_record,
    numbered_arrivals,
    seconds,
)
from twofold.core import errors
from twofold.core.errors import Place
from twofold.core.quantity import DAY_S

MINUTE_LIMIT = 2_000_000  # distinct minutes: almost four years
GAP_S_MAX = 366 * DAY_S  # between two requests: more is no trace's, but two clocks' in one
MODEL_LIMIT = 1000  # distinct model names that are counted
REORDER_LIMIT = 1024  # rows that may stand before one that belongs ahead of them
TRACE_BLOCK_TOKENS = 512  # that one id of a prefix stands for, in the traces that publish them
# Caches that a trace's prefixes are looked up in, all fleet's together: 131 k to 134 M tokens.
CACHE_BLOCKS = tuple(2**power for power in range(8, 19))
_BIN = log(1.01)  # histogram bins 1 % wide: 0.5 % error at most

Row = TypeVar("Row")


@dataclass(slots=True)
class PutRight:
    """Mutable: the rows of a file that stood below one that comes after them, counted as they are read."""

    row_count: int = 0
    first_line: int = 0  # 0: none

    def add(self, line: int) -> None:
        self.row_count += 1
        self.first_line = self.first_line or line


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
        """Raises TraceError when the arrivals give no rate."""
        count = self.minutes.total()
        if not count:
            raise errors.TraceError(f"`{file}` holds no request", place=Place(file, 1, 1))
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
    statistics = TraceStatistics()
    for line, arrival in numbered_arrivals(path):
        statistics.add(arrival)
        if len(statistics.minutes) > MINUTE_LIMIT:
            raise errors.TraceError("the trace spans more than four years", place=Place(str(path), line, 1))
    return statistics.summary(str(path))


def read_log(lines: Iterable[str], file: str) -> tuple[Trace, str]:
    """The summary of a log with a JSON object a line, and the model that most requests name; "" for none.

    Every line needs an arrival and both lengths. Raises InferenceSourceError for one that lacks them.
    """
    statistics, models = TraceStatistics(), Counter[str]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = Place(file, number, 1)
            try:
                record = flat_record(line)
            except ValueError as error:
                raise errors.InferenceSourceError(str(error), place=place) from error
            arrival, sent, answered = (_value(record, NAMES[name], place) for name in NEEDED)
            statistics.add(Arrival(seconds(arrival, place), counted(sent, place), counted(answered, place)))
            if isinstance(record.get("model"), str) and len(models) < MODEL_LIMIT:
                models[record["model"]] += 1
    return statistics.summary(file), models.most_common(1)[0][0] if models else ""


def _value(record: dict[str, Any], spellings: tuple[str, ...], place: Place) -> str:
    for name in spellings:
        if record.get(name) is not None:
            return str(record[name])
    hint = f"spellings: {', '.join(spellings)}"
    raise errors.InferenceSourceError(f"the request has no `{spellings[0]}`", place=place, hint=hint)


def ordered_arrivals(
    path: Path,
    context_tokens: float | None = None,
    classes: Collection[str] = (),
    put_right: PutRight | None = None,
) -> Iterator[Arrival]:
    """The requests in the order they arrive, the first one at 0 s. Memory does not grow with the file.

    `put_right` counts the rows that stood elsewhere. Raises TraceError, with its line, for a request that
    arrives before one that stands more than `REORDER_LIMIT` rows above it, for one that comes more than a
    year after the one before, for one that with its answer exceeds `context_tokens`, for one of a class that
    is none of `classes` where these are known, and for a file without requests.
    """
    first_s: float | None = None
    last_s = inf
    rows = in_order(numbered_arrivals(path), str(path), lambda arrival: arrival.arrival_s, put_right)
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
        raise errors.TraceError(f"`{path}` holds no request", place=Place(str(path), 1, 1))


def in_order(
    rows: Iterable[tuple[int, Row]],
    file: str,
    time_of: Callable[[Row], float],
    put_right: PutRight | None = None,
) -> Iterator[tuple[int, Row]]:
    """Numbered rows by their time; rows a little out of order are put right within a buffer of fixed size."""
    counted = PutRight() if put_right is None else put_right
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
            counted.add(line)
        newest_s = max(newest_s, at_s)
        heappush(waiting, (at_s, line, row))
        if len(waiting) > REORDER_LIMIT:
            last_s, last_line, first = heappop(waiting)
            yield last_line, first
    while waiting:
        _, line, row = heappop(waiting)
        yield line, row
