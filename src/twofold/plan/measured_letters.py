"""The source letter of times that rest on a device measured here."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from twofold.core import Estimate, Source
from twofold.perf import Constants

T = TypeVar("T")
TIMED_UNITS = frozenset({"s", "tok/s", "1/s", "req/s", "ratio"})  # bytes and money are not the device's


def is_measured(constants: Constants, accelerator: str) -> bool:
    """Whether the constants hold what was measured here of this very part."""
    pair = ("accelerator", accelerator)
    return any(row.source == Source.MEASURED and pair in row.pairs for row in constants.rows)


def marked_measured(part: T) -> T:
    """The same figures, their fitted times and rates marked as measured."""
    changed: Any = _marked(part)
    return changed  # type: ignore[no-any-return]  # the same type by construction


def _marked(value: Any) -> Any:
    if isinstance(value, Estimate):
        timed = value.unit in TIMED_UNITS and value.source == Source.FITTED
        return replace(value, source=Source.MEASURED) if timed else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_marked(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _marked(getattr(value, each.name)) for each in fields(value)})
    return value
