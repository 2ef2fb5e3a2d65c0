"""A table along one axis: the same question on every rung, one thing changed."""

from collections.abc import Mapping
from dataclasses import dataclass

from twofold.core import Estimate

Value = Estimate | float | int | str | None


@dataclass(frozen=True, slots=True)
class Rung:
    """One row. Keys of `values` carry units as field names do; None where the row has no such figure."""

    label: str
    values: Mapping[str, Value]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ladder:
    """One table: what varies, what is compared, and what the eye should catch."""

    title: str
    half: str  # training or serving
    name: str  # of the run or service
    columns: tuple[str, ...]  # keys of the rungs' values, in order
    rungs: tuple[Rung, ...]
    notes: tuple[str, ...] = ()
