"""What happens to a machine and what it wants done: two closed unions, each value one line of JSON.

An event holds only what a real system knows by then: an arrival has no id (the machine gives it one, and its
Send or Refuse names it) and no true output length. The driver reports every attempt's end exactly once
(ended, failed, or its client left) and every probe's end exactly once; what comes late is ignored.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, get_args, get_type_hints

from twofold.core import ShapeError


class Cause(Enum):
    """Why an attempt or a probe failed."""

    REFUSED = "refused"  # nobody listens: the process is gone
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection was lost
    ERROR = "error"  # the replica answered 5xx


class RefusalReason(Enum):
    """Why a request was not taken."""

    FULL = "full"  # every healthy replica is at its limit: 429
    NO_REPLICA = "no-replica"  # no replica is healthy: 503


# --- events ---


@dataclass(frozen=True, slots=True)
class ReplicaAdded:
    """A replica may be sent requests; of a known one, the limit changes."""

    replica_id: str
    in_flight_limit: int


@dataclass(frozen=True, slots=True)
class ReplicaRemoved:
    """A replica is sent nothing new; what it has runs on."""

    replica_id: str


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A client asks; the answer is exactly one Send or Refuse."""

    input_tokens: int
    output_limit_tokens: int


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The first byte of an answer came."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """The whole answer came."""

    request_id: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ResponseFailed:
    """The latest attempt of a request failed."""

    request_id: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """Nobody waits for the answer any more."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """The replica is there; whether it can also answer requests, requests show."""

    replica_id: str


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """The replica is not there, or too slow to say so."""

    replica_id: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Woke:
    """The time that `wake_at_s` named has come."""


Event = (
    RequestArrived
    | ResponseStarted
    | ResponseEnded
    | ResponseFailed
    | ClientLeft
    | ProbeAnswered
    | ProbeFailed
    | Woke
    | ReplicaAdded
    | ReplicaRemoved
)

# --- effects ---


@dataclass(frozen=True, slots=True)
class Send:
    """Pass the request to the replica; `attempt` counts from 1."""

    request_id: int
    replica_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with `status` and Retry-After; nothing went to any replica."""

    request_id: int
    reason: RefusalReason
    status: int
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the request with an error: 502, or an error in the stream if the answer has begun."""

    request_id: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask whether the replica is there."""

    replica_id: str


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Nothing is sent to the replica until a probe is answered after `until_s`. To be told, not done."""

    replica_id: str
    until_s: float


@dataclass(frozen=True, slots=True)
class CloseCircuit:
    """The replica is sent requests again. To be told, not done."""

    replica_id: str


Effect = Send | Refuse | GiveUp | Probe | OpenCircuit | CloseCircuit


# --- one per line ---


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a machine's log: what came, when, and what the machine answered."""

    now_s: float  # as the driver gave it
    event: Event
    effects: tuple[Effect, ...]


def to_line(value: Event | Effect | Entry) -> str:
    """One JSON object without a line break. NaN and infinity are our own mistake: ValueError."""
    if isinstance(value, Entry):
        effects = [_to_data(effect) for effect in value.effects]
        data = {"now_s": value.now_s, "event": _to_data(value.event), "effects": effects}
    else:
        data = _to_data(value)
    return _ENCODER.encode(data)


def from_line(line: str) -> Event | Effect:
    """What `to_line` wrote, equal to it. Raises ShapeError on anything else."""
    value: Event | Effect = _from_data(_parse(line), _FIELDS)
    return value


def entry_from_line(line: str) -> Entry:
    """The entry that `to_line` wrote, equal to it. Raises ShapeError on anything else."""
    data = _parse(line)
    if not isinstance(data, dict) or data.keys() != {"now_s", "event", "effects"}:
        raise _refused("an entry is an object of `now_s`, `event` and `effects`")
    if not isinstance(data["effects"], list):
        raise _refused("`effects` is not a list")
    event = _from_data(data["event"], _EVENT_FIELDS)
    effects = tuple(_from_data(effect, _EFFECT_FIELDS) for effect in data["effects"])
    try:
        return Entry(_number(data["now_s"]), event, effects)
    except (ValueError, OverflowError) as error:
        raise _refused(f"`now_s`: {error}") from error


# HOT: per event; `json.dumps` with the same options builds an encoder per call: bench/policy.py
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
Reader = Callable[[Any], Any]  # from JSON to a field's value; ValueError when it is none


def _to_data(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"type": type(value).__name__}
    for name in _FIELDS[type(value).__name__][1]:
        field = getattr(value, name)
        data[name] = field.value if isinstance(field, Enum) else field
    return data


def _from_data(data: Any, known: dict[str, tuple[type[Any], dict[str, Reader]]]) -> Any:
    name = data.get("type") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in known:
        raise _refused(f"`type` is none of {', '.join(known)}")
    made, readers = known[name]
    if data.keys() - {"type"} != readers.keys():
        raise _refused(f"the fields of {name} are `type`{''.join(f', `{field}`' for field in readers)}")
    try:
        return made(**{field: reader(data[field]) for field, reader in readers.items()})
    except (ValueError, OverflowError) as error:
        raise _refused(f"{name}: {error}") from error


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _refused(f"not JSON: {error}") from error


def _refused(why: str) -> ShapeError:
    return ShapeError(
        f"not a line of a policy log: {why}", hint="replay the log with the version that wrote it"
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{value}` is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"`{value}` is no whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"`{value}` is no finite number")
    return float(value)


def _readers(union: Any) -> dict[str, tuple[type[Any], dict[str, Reader]]]:
    """Of every class of a union: itself, and how each of its fields is read."""
    plain: dict[Any, Reader] = {str: _text, int: _whole, float: _number}
    table = {}
    for made in get_args(union):
        hints = get_type_hints(made)
        # An Enum class called with a value is its own reader.
        table[made.__name__] = (made, {f.name: plain.get(hints[f.name], hints[f.name]) for f in fields(made)})
    return table


_EVENT_FIELDS = _readers(Event)
_EFFECT_FIELDS = _readers(Effect)
_FIELDS = _EVENT_FIELDS | _EFFECT_FIELDS
