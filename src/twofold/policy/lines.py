"""A machine's log as lines of JSON.

In a line a field at its default is not written, and may be absent when read: so a log outlives the fields
that later versions add. Fields are text, whole and finite numbers, yes or no, enums, tuples of these, None.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from typing import Any, Generic, get_args

from twofold.policy.machine import EffectT, Entry, EventT


class LineFormat(Generic[EventT, EffectT]):
    """The lines of one machine, from its two closed unions of dataclasses."""

    def __init__(self, events: Any, effects: Any) -> None:
        made = dict.fromkeys((*get_args(events), *get_args(effects)))
        # HOT: per event; text put together from what is known of a class took half the time of a dict and
        # `json`'s encoder: bench/policy.py
        self._shapes = {
            each: (
                f'{{"type":"{each.__name__}"',
                _values_of([field.name for field in fields(each)]),
                [f',"{field.name}":' for field in fields(each)],
                [field.default for field in fields(each)],  # MISSING where it is always written
            )
            for each in made
        }

    def to_line(self, entry: Entry[EventT, EffectT]) -> str:
        """One JSON object without a line break. NaN and infinity are our own mistake: ValueError."""
        effects = ",".join([self._text(effect) for effect in entry.effects])
        return f'{{"now_s":{json_text(entry.now_s)},"event":{self._text(entry.event)},"effects":[{effects}]}}'

    def _text(self, value: Any) -> str:
        text, values_of, keys, defaults = self._shapes[type(value)]
        values = values_of(value)
        for at in range(len(keys)):
            content, default = values[at], defaults[at]
            if content is default or (type(content) is type(default) and content == default):
                continue
            text += keys[at] + (repr(content) if type(content) is int else json_text(content))
        return text + "}"


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these fields of a value at once."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def json_text(value: Any) -> str:
    """A field as JSON. Raises ValueError for NaN and infinity."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is int:
        return repr(value)
    if kind is float and isfinite(value):
        return number_text(value)
    if value is None:
        return "null"
    if kind is tuple:  # HOT: a hash for each block of a prompt
        return f"[{','.join([json_text(each) for each in value])}]"
    return _ENCODER.encode(value.value if isinstance(value, Enum) else value)


def number_text(value: float) -> str:
    """A finite number as `repr` writes it.

    HOT: per time in a line. Nearly all are whole microseconds, whose digits are those of a whole number;
    `repr`, and `round` before it, search for the shortest text that is read back as the same number.

    >>> number_text(2.5), number_text(3.0), number_text(1e-7)
    ('2.5', '3.0', '1e-07')
    """
    if 1e-4 <= value < 1e9:  # larger ones have more digits than a float keeps
        whole_us = int(value * 1e6 + 0.5)
        if whole_us / 1e6 == value:
            second = whole_us // 1_000_000
            digits = str(1_000_000 + whole_us - second * 1_000_000)[1:]
            return f"{second}.{digits.rstrip('0') or '0'}"
    return repr(value)


# HOT: `json.dumps` with the same options builds an encoder per call: bench/policy.py
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
