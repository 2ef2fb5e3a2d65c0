"""The rows of a trace, csv or JSON lines, plain or gzip: each becomes a request, or names its line."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from io import TextIOWrapper
from itertools import chain
from math import isfinite, nan
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

from twofold.core import errors
from twofold.core.errors import FileError, Place

# The spellings that published traces and common logs use, ours first, by the field of `Arrival` that each
# becomes; those behind the needed ones may be left out.
NAMES: Mapping[str, tuple[str, ...]] = {
    "arrival_s": (
        "arrival_s", "timestamp", "arrival", "arrival_time", "arrival_timestamp", "time", "ts", "created",
        "created_at", "start_time", "at",
    ),
    "input_tokens": (
        "input_tokens", "prompt_tokens", "contexttokens", "context_tokens", "input_length", "prompt_length",
        "input_len", "num_prefill_tokens", "request_tokens",
    ),
    "output_tokens": (
        "output_tokens", "completion_tokens", "generatedtokens", "generated_tokens", "output_length",
        "response_length", "output_len", "num_decode_tokens", "response_tokens",
    ),
    "class_name": ("class", "class_name", "latency_class"),
    "tenant": ("tenant", "tenant_id", "user", "user_id", "customer", "client_id"),
    "session_id": ("session_id", "session", "conversation_id", "chat_id"),
    "prefix_blocks": ("prefix_hash_ids", "prefix_blocks", "hash_ids", "block_hashes"),
    "model": ("model", "model_name"),
}  # fmt: skip
NEEDED = ("arrival_s", "input_tokens", "output_tokens")
HINT = f"columns: {', '.join(NEEDED)}"
TEXTS = ("class_name", "tenant", "session_id", "model")
MOONCAKE = {"timestamp", "input_length", "output_length", "hash_ids"}  # its published lines, in milliseconds
GATEWAYS = {"at", "request_id", "outcome", "e2e_s"}  # what the log of our gateway has of each request
INSIDE = ("usage", "request", "response", "metrics")  # objects that logs nest the figures in

LINE_LIMIT = 1 << 20  # characters; a longer line is no trace
NAME_LIMIT = 128  # characters of a class, a tenant, a session or a model
PLAIN = re.compile(r"\d{1,16}(\.\d*)?([eE][+-]?\d{1,2})?", re.ASCII)
_EPOCH_MS_FROM = 1e11  # numbers above are milliseconds since 1970; as seconds they would be the year 5138


class Arrival(NamedTuple):
    """One request of a trace, before it is served: its true output length is the world's, not a policy's.

    A tuple: millions are made, and making frozen dataclasses was half of reading a trace.
    """

    arrival_s: float
    input_tokens: float
    output_tokens: float
    class_name: str = ""  # this and what follows: as `RequestArrived` of the policies takes it
    tenant: str = ""
    session_id: str = ""
    prefix_blocks: tuple[int, ...] = ()  # equal leading ids are equal leading blocks of the prompt
    model: str = ""


@dataclass(slots=True)
class Reading:
    """Mutable: what a reader did other than take the rows of a file as they stand, counted as it reads."""

    moved_count: int = 0  # rows that stood below one that comes after them
    first_moved_line: int = 0  # 0: none
    taken_count: int = 0  # requests of a gateway's log …
    unread_count: int = 0  # … those left out that were turned away before their prompt was read …
    unanswered_count: int = 0  # … and those refused or broken off: how long their answers were, nobody knows

    def moved(self, line: int) -> None:
        """The row of a line belongs ahead of one that was read before it."""
        self.moved_count += 1
        self.first_moved_line = self.first_moved_line or line

    def takes(self, record: Mapping[str, Any]) -> bool:
        """Whether a line of a gateway's log is an arrival of known lengths.

        A client that left counts with what it was sent.
        """
        outcome = record["outcome"]
        is_known = outcome == "finished" or (outcome == "left" and record.get("output_tokens"))
        if record.get("input_tokens") is None:
            self.unread_count += 1
        elif is_known:
            self.taken_count += 1
            return True
        else:
            self.unanswered_count += 1
        return False

    def notes(self, name: str) -> list[str]:
        """The same in words, of the file of that name."""
        said = []
        if self.moved_count:
            those = "1 row was" if self.moved_count == 1 else f"{self.moved_count:,} rows were"
            first = f"the first one on line {self.first_moved_line:,}"
            said.append(f"{name}: {those} not in order of time and put right, {first}")
        if out := self.unread_count + self.unanswered_count:
            why = [
                f"{self.unread_count:,} turned away before the prompt was read" if self.unread_count else "",
                f"{self.unanswered_count:,} refused or broken off, whose whole answers nobody knows"
                if self.unanswered_count
                else "",
            ]
            of = f"{out:,} of {out + self.taken_count:,} requests"
            said.append(f"{name}: {of} left out: {' and '.join(filter(None, why))}; the rate is without them")
        return said


def numbered_arrivals(path: Path, reading: Reading | None = None) -> Iterator[tuple[int, Arrival]]:
    """The requests of a file with their lines, in the file's order: memory does not grow with the file.

    `reading` counts the lines of a gateway's log that are left out.
    """
    file = str(path)
    with opened_lines(path) as lines:
        first = next(lines, "")
        rows = chain([first], lines)
        if first.lstrip().startswith("{"):
            yield from arrivals_of_json(rows, file, reading)
        else:
            header, numbered = csv_table(rows, file, HINT)
            columns = columns_of(header, NAMES, NEEDED, Place(file, 1, 1), HINT)
            for field in NEEDED:  # which of two columns with one meaning counts would be a guess
                if len(found := [f"`{name}`" for name in NAMES[field] if name in header]) > 1:
                    what = f"{' and '.join(found)} have one meaning"
                    raise errors.TraceError(what, place=Place(file, 1, 1), hint="leave one of them")
            read_row = _row_reader(columns, header.keys() >= MOONCAKE)
            for line, cells in numbered:
                yield line, read_row(cells, Place(file, line, 1))


def csv_table(
    lines: Iterator[str], file: str, hint: str
) -> tuple[dict[str, int], Iterator[tuple[int, list[str]]]]:
    """The columns by lower-case name, and the rows with their lines, each as wide as the header."""
    reader = csv.reader(lines, strict=True)
    header = [name.strip().lower() for name in next(reader, [])]
    if not any(header):
        raise errors.TraceError(f"`{file}` is empty", place=Place(file, 1, 1), hint=hint)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for row in reader:
            if row and len(row) != len(header):
                where = Place(file, reader.line_num, 1)
                raise errors.TraceError(f"{len(row)} cells where the header has {len(header)}", place=where)
            if row:
                yield reader.line_num, row

    for name in header:
        if name and header.count(name) > 1:
            raise errors.TraceError(f"column `{name}` stands twice", place=Place(file, 1, 1))
    return {name: header.index(name) for name in header}, rows()


def columns_of(
    header: Mapping[str, int],
    names: Mapping[str, tuple[str, ...]],
    needed: Collection[str],
    place: Place,
    hint: str,
) -> dict[str, int]:
    """Which column each field stands in, by its spellings. Raises TraceError where one needed is missing."""
    found = {}
    for field, spellings in names.items():
        name = next((name for name in spellings if name in header), None)
        if name is not None:
            found[field] = header[name]
        elif field in needed:
            raise errors.TraceError(f"no column `{field}`", place=place, hint=hint)
    return found


def arrivals_of_json(
    lines: Iterable[str], file: str, reading: Reading | None = None
) -> Iterator[tuple[int, Arrival]]:
    """The requests of a log with a JSON object a line, our gateway's too, with their lines."""
    seen = Reading() if reading is None else reading
    for line, text in enumerate(lines, 1):
        if not text.strip() or text.startswith('{"log":'):  # what our log says of itself
            continue
        place = Place(file, line, 1)
        try:
            record = _flat_record(text)
        except ValueError as error:
            raise errors.TraceError(str(error), place=place) from error
        if record.keys() >= GATEWAYS and not seen.takes(record):
            continue
        lists = {key: " ".join(map(str, value)) for key, value in record.items() if isinstance(value, list)}
        plain = {key: value for key, value in record.items() if not isinstance(value, list | dict | None)}
        cells = lists | {key: str(value) for key, value in plain.items()}
        header = {key: index for index, key in enumerate(cells)}
        read_row = _row_reader(columns_of(header, NAMES, NEEDED, place, HINT), cells.keys() >= MOONCAKE)
        yield line, read_row(list(cells.values()), place)


def _flat_record(text: str) -> dict[str, Any]:
    """A line's JSON object, flattened by one level and with lower-case keys. Raises ValueError."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(record, dict):
        raise ValueError("a line is one JSON object")
    flat = {str(key).lower(): value for key, value in record.items()}
    for name in INSIDE:
        if isinstance(flat.get(name), dict):
            flat = {str(key).lower(): value for key, value in flat[name].items()} | flat
    return flat


def _row_reader(columns: Mapping[str, int], is_in_ms: bool) -> Callable[[Sequence[str], Place], Arrival]:
    """Reads one row after another; which columns there are is settled once."""
    arrival, sent, answered = (columns[name] for name in NEEDED)
    texts = [(name, columns[name]) for name in TEXTS if name in columns]
    blocks = columns.get("prefix_blocks")
    divisor = 1000.0 if is_in_ms else 1.0

    def read_row(cells: Sequence[str], place: Place) -> Arrival:
        at_s = seconds(cells[arrival], place) / divisor
        inputs, outputs = counted(cells[sent], place), counted(cells[answered], place)
        if not texts and blocks is None:
            return Arrival(at_s, inputs, outputs)
        named = {name: cells[index].strip() for name, index in texts}
        for name, text in named.items():
            if len(text) > NAME_LIMIT:
                raise errors.TraceError(f"a `{name}` of more than {NAME_LIMIT} characters", place=place)
        held = () if blocks is None else _blocks(cells[blocks])
        return Arrival(at_s, inputs, outputs, prefix_blocks=held, **named)

    return read_row


def _blocks(text: str) -> tuple[int, ...]:
    """Ids of leading blocks: whole numbers, or any words, which are hashed."""
    words = text.replace(",", " ").strip("[] ").split()
    try:
        return tuple(map(int, words))
    except ValueError:
        return tuple(int.from_bytes(blake2b(word.encode(), digest_size=7).digest()) for word in words)


def seconds(text: str, place: Place) -> float:
    """Seconds from a number (milliseconds when it can be nothing else) or from an ISO date and time."""
    try:
        number = float(text)
    except ValueError:
        number = nan
        with suppress(ValueError):
            moment = datetime.fromisoformat(_six_decimals(text.strip()))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not isfinite(number) or abs(number) > 1e16:
        raise errors.TraceError(f"`{text[:40]}` is not a time", place=place, hint="seconds, or ISO 8601")
    return number / 1000 if abs(number) >= _EPOCH_MS_FROM else number


def counted(text: str, place: Place, what: str = "tokens", most: float = 1e9) -> float:
    """A number from 0 to `most`, whole where it counts tokens; Python reads more than people mean."""
    number = float(text) if PLAIN.fullmatch(text.strip()) else -1.0
    if not 0 <= number <= most or (what == "tokens" and number != int(number)):
        message = f"`{text[:40]}` is not a count of {what}"
        hint = f"write a {'whole ' if what == 'tokens' else ''}number from 0"
        raise errors.TraceError(message, place=place, hint=hint)
    return number


@contextmanager
def opened_lines(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a text or gzip file; what goes wrong while they are read is a TraceError at its line."""
    reader = _Bounded(str(path))
    try:
        if not path.is_file():
            raise FileError(f"`{path}` {'is not a file' if path.exists() else 'does not exist'}")
        with path.open("rb") as raw:
            is_gzip = raw.peek(2)[:2] == b"\x1f\x8b"
            binary = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if is_gzip else raw
            with TextIOWrapper(binary, "utf-8-sig", newline="") as text:
                yield reader.lines(text)
    except UnicodeDecodeError as error:
        hint = "a trace is csv or JSON lines, plain or gzip"
        raise errors.TraceError("not UTF-8 text", place=reader.place(), hint=hint) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise errors.TraceError(f"broken gzip: {error}", place=reader.place()) from error
    except csv.Error as error:
        raise errors.TraceError(f"not csv: {error}", place=reader.place()) from error
    except (OSError, ValueError) as error:
        raise errors.unread(path, error) from error


@dataclass(slots=True)
class _Bounded:
    """Reads lines of a bounded length. Mutable: knows which one it reads."""

    file: str
    line: int = 1

    def lines(self, text: TextIO) -> Iterator[str]:
        while line := text.readline(LINE_LIMIT):
            if len(line) == LINE_LIMIT:
                raise errors.TraceError(f"a line of more than {LINE_LIMIT:,} characters", place=self.place())
            yield line
            self.line += 1

    def place(self) -> Place:
        return Place(self.file, self.line, 1)


def _six_decimals(text: str) -> str:
    """Some logs write seven decimals or more; Python reads six."""
    whole, point, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{whole}{point}{rest[: min(digits, 6)].ljust(6, '0')}{rest[digits:]}" if point else text
