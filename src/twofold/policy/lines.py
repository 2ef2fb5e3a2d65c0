"""Values of a machine's unions of events and effects as lines of JSON, and back.

A field at its default is not written, and may be absent when read: so a log outlives the fields that later
versions add. Fields are text, whole and finite numbers, yes or no, enums, tuples of these, or None.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from twofold.core import ShapeError

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")
Reader = Callable[[Any], Any]  # from JSON to a field's value; ValueError when it is none


@dataclass(frozen=True, slots=True)
class Entry(Generic[EventT, EffectT]):
    """One line of a machine's log: what came, when, and what the machine answered."""

    now_s: float  # as the driver gave it
    event: EventT
    effects: tuple[EffectT, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one class is written and read."""

    made: type[Any]
    defaults: tuple[tuple[str, Any], ...]  # of every field, in order; MISSING: it must be given
    readers: dict[str, Reader]
    required: frozenset[str]


class LineFormat(Generic[EventT, EffectT]):
    """The lines of one machine, from its two closed unions of dataclasses."""

    def __init__(self, events: Any, effects: Any) -> None:
        self._events, self._effects = _kinds(events), _kinds(effects)
        self._all = self._events | self._effects

    def to_line(self, value: EventT | EffectT | Entry[EventT, EffectT]) -> str:
        """One JSON object without a line break. NaN and infinity are our own mistake: ValueError."""
        if isinstance(value, Entry):
            effects = [self._to_data(effect) for effect in value.effects]
            data = {"now_s": value.now_s, "event": self._to_data(value.event), "effects": effects}
        else:
            data = self._to_data(value)
        return _ENCODER.encode(data)

    def from_line(self, line: str) -> EventT | EffectT:
        """What `to_line` wrote, equal to it. Raises ShapeError on anything else."""
        value: EventT | EffectT = _from_data(_parse(line), self._all)
        return value

    def entry_from_line(self, line: str) -> Entry[EventT, EffectT]:
        """The entry that `to_line` wrote, equal to it. Raises ShapeError on anything else."""
        data = _parse(line)
        if not isinstance(data, dict) or data.keys() != {"now_s", "event", "effects"}:
            raise _refused("an entry is an object of `now_s`, `event` and `effects`")
        if not isinstance(data["effects"], list):
            raise _refused("`effects` is not a list")
        event = _from_data(data["event"], self._events)
        effects = tuple(_from_data(effect, self._effects) for effect in data["effects"])
        try:
            return Entry(_number(data["now_s"]), event, effects)
        except (ValueError, OverflowError) as error:
            raise _refused(f"`now_s`: {error}") from error

    def _to_data(self, value: Any) -> dict[str, Any]:
        name = type(value).__name__
        data: dict[str, Any] = {"type": name}
        for field, default in self._all[name].defaults:
            content = getattr(value, field)
            if content != default:
                data[field] = content.value if isinstance(content, Enum) else content
        return data


# HOT: per event; `json.dumps` with the same options builds an encoder per call: bench/policy.py
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def _from_data(data: Any, known: dict[str, _Kind]) -> Any:
    name = data.get("type") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in known:
        raise _refused(f"`type` is none of {', '.join(known)}")
    kind = known[name]
    given = data.keys() - {"type"}
    if not kind.required <= given <= kind.readers.keys():
        raise _refused(f"the fields of {name} are `type`{''.join(f', `{field}`' for field in kind.readers)}")
    try:
        return kind.made(**{field: kind.readers[field](data[field]) for field in given})
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


def _kinds(union: Any) -> dict[str, _Kind]:
    """Of every class of a union: itself, its fields' defaults, and how each of its fields is read."""
    table = {}
    for made in get_args(union):
        hints, each = get_type_hints(made), fields(made)
        table[made.__name__] = _Kind(
            made,
            tuple((field.name, field.default) for field in each),
            {field.name: reader_of(hints[field.name]) for field in each},
            frozenset(field.name for field in each if field.default is MISSING),
        )
    return table


def reader_of(hint: Any) -> Reader:
    """How a field of this type is read. An Enum class called with a value is its own reader."""
    parts = get_args(hint)
    if is_dataclass(hint):
        return _record(hint)
    if isinstance(hint, UnionType):
        [inner] = (reader_of(part) for part in parts if part is not type(None))
        return lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:
        return _series(reader_of(parts[0])) if parts[-1] is Ellipsis else _row([reader_of(p) for p in parts])
    plain: dict[Any, Reader] = {str: _text, int: _whole, float: _number, bool: _yes_or_no}
    return plain.get(hint, hint)  # type: ignore[no-any-return]


def _record(made: Any) -> Reader:
    """A dataclass from an object of its fields; those that are absent are at their defaults."""
    hints = get_type_hints(made)
    readers = {field.name: reader_of(hints[field.name]) for field in fields(made)}

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or not value.keys() <= readers.keys():
            raise ValueError(f"`{value}` has other fields than {', '.join(readers)}")
        try:
            return made(**{name: readers[name](content) for name, content in value.items()})
        except TypeError as error:  # one that must be given is absent
            raise ValueError(str(error)) from error

    return read


def _series(reader: Reader) -> Reader:
    return lambda value: tuple(reader(part) for part in _list(value))


def _row(readers: list[Reader]) -> Reader:
    return lambda value: tuple(r(part) for r, part in zip(readers, _list(value), strict=True))


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"`{value}` is no list")
    return value


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


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{value}` is neither true nor false")
    return value
