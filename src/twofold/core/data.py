"""Dataclasses as plain data, which is what JSON holds, and back: one converter for every file and log.

Fields are texts, numbers, yes or no, days, enums, choices of words, tuples and mappings of these, further
dataclasses, or None. A field that is absent is at its default.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]  # from plain data to a value; DataError where it is none


class DataError(ValueError):
    """Data that is not of its kind. `path` leads to the part that is not; "": the whole."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(f"`{path}`: {what}" if path else what)
        self.what, self.path = what, path

    def below(self, key: object) -> "DataError":
        """The same, seen from one level further out."""
        return DataError(self.what, f"{key}.{self.path}" if self.path else str(key))


def to_data(value: Any) -> Any:
    """A dataclass, or what its fields may hold, as plain data: field order kept, numbers unrounded."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: to_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_data(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


def to_json(value: Any, *, only_ascii: bool = False) -> str:
    """The same as JSON text: equal values give equal bytes."""
    return json.dumps(to_data(value), indent=1, allow_nan=False, ensure_ascii=only_ascii) + "\n"


def from_data(kind: type[T], data: Any, *, more: bool = False, finite: bool = True) -> T:
    """What `to_data` made, as a value of `kind` that is equal to it. Raises DataError.

    `more`, of files that are written again: fields that are unknown here, of a later version, are passed
    over, and a whole number stays one; elsewhere it becomes a float where one is asked for. Not `finite`:
    NaN is a number.
    """
    hint: Any = kind
    value: T = reader_of(hint, more, finite)(data)
    return value


@cache
def reader_of(hint: Any, more: bool = False, finite: bool = True) -> Reader:
    """How a field of this type is read."""
    parts, origin = get_args(hint), get_origin(hint)
    if is_dataclass(hint):
        return _record(hint, more, finite)
    if isinstance(hint, UnionType):
        [inner] = (reader_of(part, more, finite) for part in parts if part is not NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple and parts[-1] is not Ellipsis:
        return _row([reader_of(part, more, finite) for part in parts])
    if origin in (tuple, dict, Mapping):
        inner = reader_of(parts[0] if origin is tuple else parts[1], more, finite)
        if origin is not tuple:
            return _mapping(inner, None if parts[0] is str else reader_of(parts[0], more, finite))
        return lambda data: tuple(_each((key, inner, item) for key, item in enumerate(_list(data))))
    if origin is Literal:
        return _choice(dict(zip(parts, parts, strict=True)))
    if hint is float:
        whole = _number if finite else _plain(int | float)
        return whole if more else lambda value: float(whole(value))
    if hint is date:
        return _day
    return _choice({each.value: each for each in hint}) if issubclass(hint, Enum) else _plain(hint)


def _record(made: Any, more: bool, finite: bool) -> Reader:
    hints = get_type_hints(made)
    readers = {field.name: reader_of(hints[field.name], more, finite) for field in fields(made)}
    needed = {f.name for f in fields(made) if f.default is MISSING and f.default_factory is MISSING}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise DataError(f"not an object of {', '.join(readers)}")
        if more:
            data = {name: data[name] for name in readers if name in data}
        if not needed <= data.keys() <= readers.keys():
            [name, *_] = sorted(needed ^ data.keys() - (readers.keys() - needed))
            raise DataError(f"missing or unknown; the fields are {', '.join(readers)}", name)
        values = {}
        for name, item in data.items():  # HOT: per event that is read back; `_each` was a third slower
            try:
                values[name] = readers[name](item)
            except DataError as error:
                raise error.below(name) from None
        try:
            return made(**values)
        except (AssertionError, ValueError) as error:  # values that contradict each other
            raise DataError(str(error)) from error

    return read


def _each(parts: Iterable[tuple[object, Reader, Any]]) -> list[Any]:
    """Key, reader and data of every part of a whole, read."""
    found = []
    for key, reader, data in parts:
        try:
            found.append(reader(data))
        except DataError as error:
            raise error.below(key) from None
    return found


def _row(readers: list[Reader]) -> Reader:
    def read(data: Any) -> tuple[Any, ...]:
        if len(_list(data)) != len(readers):
            raise DataError(f"`{data}` has not {len(readers)} parts")
        return tuple(_each(zip(range(len(readers)), readers, data, strict=True)))

    return read


def _mapping(reader: Reader, key_reader: Reader | None) -> Reader:
    def read(data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise DataError(f"`{data}` is no mapping")
        keys = data if key_reader is None else _each((key, key_reader, key) for key in data)
        return dict(zip(keys, _each((key, reader, item) for key, item in data.items()), strict=True))

    return read


def _choice(values: dict[Any, Any]) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, str) or data not in values:
            raise DataError(f"`{data}` is none of {', '.join(map(str, values))}")
        return values[data]

    return read


def _plain(kind: Any) -> Reader:
    names = {str: "text", int: "whole number", bool: "yes or no", int | float: "number"}

    def read(data: Any) -> Any:
        if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
            raise DataError(f"`{data}` is no {names[kind]}")
        return data

    return read


def _number(data: Any) -> float:
    """A finite number, whole or not."""
    if isinstance(data, float) and math.isfinite(data):
        return data
    if not isinstance(data, int) or isinstance(data, bool) or data.bit_length() > 1023:
        raise DataError(f"`{data}` is no finite number")
    return data


def _day(data: Any) -> date:
    if not isinstance(data, str):
        raise DataError(f"`{data}` is no day")
    try:
        return date.fromisoformat(data)
    except ValueError as error:
        raise DataError(str(error)) from error


def _list(data: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise DataError(f"`{data}` is no list")
    return data
