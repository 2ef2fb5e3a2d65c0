"""What every machine is to its driver, a simulator's heap or a server's loop, and its log as lines of JSON.

In a line a field at its default is not written, and may be absent when read: so a log outlives the fields
that later versions add. Fields are text, whole and finite numbers, yes or no, enums, tuples of these, None.
"""

import json
from dataclasses import dataclass, fields
from enum import Enum
from json.encoder import encode_basestring_ascii
from math import isfinite
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
        made = dict.fromkeys((*get_args(events), *get_args(effects)))
        # HOT: per event; text put together from what is known of a class took half the time of a dict and
        # `json`'s encoder: bench/policy.py
        self._shapes = {
            each: (
                f'{{"type":"{each.__name__}"',
                [(field.name, f',"{field.name}":', field.default) for field in fields(each)],
            )
            for each in made
        }

    def to_line(self, entry: Entry[EventT, EffectT]) -> str:
        """One JSON object without a line break. NaN and infinity are our own mistake: ValueError."""
        effects = ",".join([self._text(effect) for effect in entry.effects])
        return f'{{"now_s":{json_text(entry.now_s)},"event":{self._text(entry.event)},"effects":[{effects}]}}'

    def _text(self, value: Any) -> str:
        text, shape = self._shapes[type(value)]
        for field, key, default in shape:
            content = getattr(value, field)
            if content != default:
                text += key + json_text(content)
        return text + "}"


def json_text(value: Any) -> str:
    """A field as JSON. Raises ValueError for NaN and infinity."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is int or (kind is float and isfinite(value)):
        return repr(value)
    if value is None:
        return "null"
    return _ENCODER.encode(value.value if isinstance(value, Enum) else value)


# HOT: `json.dumps` with the same options builds an encoder per call: bench/policy.py
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
