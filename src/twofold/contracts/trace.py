"""Traffic traces: arrivals with lengths, read as a stream, and their summary in fixed memory."""

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from math import ceil, exp, isfinite, log
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from twofold.core import FileError, Place, TraceError

# The spellings that published traces and common logs use, ours first.
ARRIVAL_NAMES: tuple[str, ...] = (
    "arrival_s",
    "timestamp",
    "arrival",
    "arrival_time",
    "arrival_timestamp",
    "time",
    "ts",
    "created",
    "created_at",
    "start_time",
)
INPUT_NAMES: tuple[str, ...] = (
    "input_tokens",
    "prompt_tokens",
    "contexttokens",
    "context_tokens",
    "input_length",
    "prompt_length",
    "input_len",
    "num_prefill_tokens",
    "request_tokens",
)
OUTPUT_NAMES: tuple[str, ...] = (
    "output_tokens",
    "completion_tokens",
    "generatedtokens",
    "generated_tokens",
    "output_length",
    "response_length",
    "output_len",
    "num_decode_tokens",
    "response_tokens",
)

LINE_LIMIT = 1 << 20  # characters; a longer line is no trace
MINUTE_LIMIT = 2_000_000  # distinct minutes: almost four years
_BIN = log(1.01)  # histogram bins 1 % wide: 0.5 % error at most
_EPOCH_MS_FROM = 1e11  # numbers above are milliseconds since 1970; as seconds they would be the year 5138


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace, before it is served: its true output length is the world's, not a policy's."""

    arrival_s: float
    input_tokens: float
    output_tokens: float


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


@dataclass(slots=True)
class _Lengths:
    """Mutable: a histogram with bins 1 % wide, so its size does not grow with the trace."""

    total: float = 0.0
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, tokens: float) -> None:
        self.total += tokens
        self.bins[ceil(log(tokens) / _BIN) if tokens > 0 else -1] += 1

    def summary(self) -> TokenSummary:
        count = self.bins.total()
        return TokenSummary(self.total / count, self._quantile(0.5), self._quantile(0.95))

    def _quantile(self, part: float) -> float:
        wanted, seen = part * self.bins.total(), 0
        for index, count in sorted(self.bins.items()):
            seen += count
            if seen >= wanted:
                return exp((index - 0.5) * _BIN) if index > 0 else float(max(index, -1) + 1)
        return 0.0


@dataclass(slots=True)
class TraceStatistics:
    """Mutable: folds arrivals in any order into a summary of fixed size."""

    first_s: float = float("inf")
    last_s: float = float("-inf")
    minutes: Counter[int] = field(default_factory=Counter)
    input: _Lengths = field(default_factory=_Lengths)
    output: _Lengths = field(default_factory=_Lengths)

    def add(self, arrival: Arrival) -> None:
        self.first_s = min(self.first_s, arrival.arrival_s)
        self.last_s = max(self.last_s, arrival.arrival_s)
        self.minutes[int(arrival.arrival_s // 60)] += 1
        self.input.add(arrival.input_tokens)
        self.output.add(arrival.output_tokens)

    def summary(self, file: str) -> Trace:
        """Raises TraceError when the arrivals give no rate."""
        count = self.minutes.total()
        if not count:
            raise TraceError(f"`{file}` holds no request", place=Place(file, 1, 1))
        duration_s = self.last_s - self.first_s
        if duration_s < 1e-6:
            raise TraceError(
                f"all {count} requests of `{file}` arrive at once, so there is no rate",
                place=Place(file, 2, 1),
            )
        rate_per_s = count / duration_s
        busiest_per_s = max(self.minutes.values()) / 60 if duration_s >= 60 else rate_per_s
        ratio = max(1.0, busiest_per_s / rate_per_s)
        return Trace(count, duration_s, rate_per_s, ratio, self.input.summary(), self.output.summary())


def read_trace(path: Path) -> Trace:
    """The summary of a csv or csv.gz with arrivals, input and output tokens; errors name the line."""
    statistics = TraceStatistics()
    for line, arrival in enumerate(read_arrivals(path), 2):
        statistics.add(arrival)
        if len(statistics.minutes) > MINUTE_LIMIT:
            raise TraceError("the trace spans more than four years", place=Place(str(path), line, 1))
    return statistics.summary(str(path))


def read_arrivals(path: Path) -> Iterator[Arrival]:
    """The requests one by one, in the file's order: memory does not grow with the file."""
    file = str(path)
    with opened_lines(path) as lines:
        rows = csv.reader(lines, strict=True)
        header = [name.strip().lower() for name in next(rows, [])]
        if not header:
            raise TraceError(f"`{file}` is empty", place=Place(file, 1, 1), hint=_columns_hint())
        columns = [_column(header, names, file) for names in (ARRIVAL_NAMES, INPUT_NAMES, OUTPUT_NAMES)]
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise TraceError(
                    f"{len(row)} cells where the header has {len(header)}",
                    place=Place(file, rows.line_num, 1),
                )
            place = Place(file, rows.line_num, 1)
            arrival_s = seconds(row[columns[0]], place)
            yield Arrival(arrival_s, tokens(row[columns[1]], place), tokens(row[columns[2]], place))


def seconds(text: str, place: Place) -> float:
    """Seconds from a number (milliseconds when it can be nothing else) or from an ISO date and time."""
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(_six_decimals(text.strip()))
        except ValueError as error:
            raise TraceError(
                f"`{text[:40]}` is not a time", place=place, hint="seconds, or ISO 8601"
            ) from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not isfinite(number) or abs(number) > 1e16:
        raise TraceError(f"`{text[:40]}` is not a time", place=place, hint="seconds, or ISO 8601")
    return number / 1000 if abs(number) >= _EPOCH_MS_FROM else number


def tokens(text: str, place: Place) -> float:
    """A count of tokens."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise TraceError(f"`{text[:40]}` is not a count of tokens", place=place, hint="write a number from 0")
    return number


@contextmanager
def opened_lines(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a text or gzip file; what goes wrong while they are read is a TraceError at its line."""
    place = [Place(str(path), 1, 1)]
    try:
        if not path.is_file():
            raise FileError(f"`{path}` {'is not a file' if path.exists() else 'does not exist'}")
        with path.open("rb") as raw:
            is_gzip = raw.peek(2)[:2] == b"\x1f\x8b"
            binary = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_gzip else raw
            with TextIOWrapper(binary, "utf-8-sig", newline="") as text:
                yield _bounded(text, place)
    except UnicodeDecodeError as error:
        raise TraceError("not UTF-8 text", place=place[0], hint="a trace is csv or csv.gz") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"broken gzip: {error}", place=place[0]) from error
    except csv.Error as error:
        raise TraceError(f"not csv: {error}", place=place[0]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read `{path}`: {reason}") from error


def _bounded(text: TextIO, place: list[Place]) -> Iterator[str]:
    while line := text.readline(LINE_LIMIT):
        if len(line) == LINE_LIMIT:
            raise TraceError(f"a line of more than {LINE_LIMIT:,} characters", place=place[0])
        yield line
        place[0] = place[0]._replace(line=place[0].line + 1)


def _column(header: Sequence[str], names: Iterable[str], file: str) -> int:
    choices = list(names)
    for name in choices:
        if name in header:
            return header.index(name)
    raise TraceError(f"no column `{choices[0]}`", place=Place(file, 1, 1), hint=_columns_hint())


def _columns_hint() -> str:
    return f"columns: {ARRIVAL_NAMES[0]}, {INPUT_NAMES[0]}, {OUTPUT_NAMES[0]}"


def _six_decimals(text: str) -> str:
    """Some logs write seven decimals or more; Python reads six."""
    whole, point, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{whole}{point}{rest[: min(digits, 6)].ljust(6, '0')}{rest[digits:]}" if point else text
