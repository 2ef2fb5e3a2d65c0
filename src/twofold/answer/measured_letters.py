"""The source letter of times that rest on a device measured here."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from twofold.answer.calibrated import Scope, is_calibrated
from twofold.core import Estimate, Source
from twofold.perf import Constants

T = TypeVar("T")
TIMED_UNITS = frozenset({"s", "tok/s", "1/s", "req/s", "ratio"})  # bytes and money are not the device's


def is_measured(constants: Constants, accelerator: str) -> bool:
    """Whether the constants hold what was measured here of this very part."""
    pair = ("accelerator", accelerator)
    return any(
        row.source == Source.MEASURED and pair in row.pairs and row.fitted_by != "calibration"
        for row in constants.rows
    )


def with_letters(part: T, accelerator: str, constants: Constants, scope: Scope) -> T:
    """The same figures; times and rates of a part measured here, or calibrated, are marked as measured."""
    own = is_measured(constants, accelerator) or is_calibrated(constants, scope)
    changed: T = _marked(part) if own else part
    return changed


def _marked(value: Any) -> Any:
    """What holds no such figure is returned as it is."""
    if isinstance(value, Estimate):
        timed = value.unit in TIMED_UNITS and value.source == Source.FITTED
        return replace(value, source=Source.MEASURED) if timed else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        changed = tuple(_marked(each) for each in value)
        return value if all(a is b for a, b in zip(changed, value, strict=True)) else changed
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        differing = {name: new for name, old in parts.items() if (new := _marked(old)) is not old}
        return replace(value, **differing) if differing else value
    return value
