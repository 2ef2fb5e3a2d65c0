"""What every machine is to its driver, a simulator's heap or a server's loop, and its log as lines of JSON.

In a line a field at its default is not written, and may be absent when read: so a log outlives the fields
that later versions add. Fields are text, whole and finite numbers, yes or no, enums, tuples of these, None.
"""

import json
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, dataclass_transform, get_args

T = TypeVar("T")
ToldT = TypeVar("ToldT", contravariant=True)
DoneT = TypeVar("DoneT")


class Machine(Protocol[ToldT, DoneT]):
    """State that only events change: no clock, socket, thread, file or randomness of its own."""

    def handle(self, event: ToldT, now_s: float) -> list[DoneT]:
        """Fold one event in; what is returned is to be done, in this order."""
        ...

    def wake_at_s(self) -> float | None:
        """When the driver is to send Woke, if nothing else comes first; None: nothing to wait for."""
        ...


@dataclass_transform(frozen_default=True)
def record(made: type[T]) -> type[T]:
    """Slots, equality and a hash by value. Writing to a field is refused by the type checker alone.

    # HOT: per event and effect; `frozen=True` sets each field through `object.__setattr__`, which made the
    # making of a Send 2.9 times slower: bench/policy.py
    """
    return dataclass(slots=True, unsafe_hash=True)(made)


@record
class Woke:
    """The time that `wake_at_s` named has come."""


EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class Entry(Generic[EventT, EffectT]):
    """One line of a machine's log: what came, when, and what the machine answered."""

    now_s: float  # as the driver gave it
    event: EventT
    effects: tuple[EffectT, ...]


class LineFormat(Generic[EventT, EffectT]):
    """The lines of one machine, from its two closed unions of dataclasses."""

    def __init__(self, events: Any, effects: Any) -> None:
        self._events, self._effects = (
            {made.__name__: made for made in get_args(union)} for union in (events, effects)
        )
        self._defaults = {
            name: [(field.name, field.default) for field in fields(made)]
            for name, made in (self._events | self._effects).items()
        }

    def to_line(self, entry: Entry[EventT, EffectT]) -> str:
        """One JSON object without a line break. NaN and infinity are our own mistake: ValueError."""
        effects = [self._to_data(effect) for effect in entry.effects]
        return _ENCODER.encode(
            {"now_s": entry.now_s, "event": self._to_data(entry.event), "effects": effects}
        )

    def _to_data(self, value: Any) -> dict[str, Any]:
        name = type(value).__name__
        data: dict[str, Any] = {"type": name}
        for field, default in self._defaults[name]:
            content = getattr(value, field)
            if content != default:
                data[field] = content.value if isinstance(content, Enum) else content
        return data


# HOT: per event; `json.dumps` with the same options builds an encoder per call: bench/policy.py
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
