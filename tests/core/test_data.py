"""Dataclasses come back from plain data equal to what they were, or the part that is broken is named."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any, Literal

import pytest

from twofold.core.data import DataError, from_data, to_data, to_json
from twofold.core.estimate import Estimate, Source


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    size_m: float
    kind: Literal["wide", "tall"] = "wide"


@dataclass(frozen=True, slots=True)
class Whole:
    on: date
    parts: tuple[Part, ...]
    pair: tuple[str, int]
    best: Part | None = None
    shares: dict[str, Estimate] = field(default_factory=dict)
    is_open: bool = False


WHOLE = Whole(
    date(2026, 3, 1),
    (Part("a", 1.5), Part("b", 2.0, "tall")),
    ("x", 3),
    Part("c", 0.0),
    {"step": Estimate(2.0, 1.0, 3.0, "s", Source.MEASURED)},
    True,
)


def test_what_was_written_comes_back_equal() -> None:
    assert from_data(Whole, json.loads(to_json(WHOLE))) == WHOLE
    bare = {"on": "2026-03-01", "parts": [], "pair": ["x", 1]}
    assert from_data(Whole, bare) == Whole(date(2026, 3, 1), (), ("x", 1))


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, slots=True)
class Counted:
    by_size: Mapping[Size, Part]
    by_name: Mapping[str, int]


def test_keys_of_a_mapping_come_back_as_what_they_were() -> None:
    counted = Counted({Size.LARGE: Part("a", 1.5), Size.SMALL: Part("b", 2.0)}, {"x": 1})
    assert from_data(Counted, json.loads(json.dumps(to_data(counted)))) == counted
    with pytest.raises(DataError, match=r"by_size\.huge.*`huge` is none of small, large"):
        from_data(Counted, {"by_size": {"huge": {"name": "a", "size_m": 1.0}}, "by_name": {}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("on",), "2026-02-30"),
        (("on",), 7),
        (("parts",), {}),
        (("parts", 1), None),
        (("parts", 1, "size_m"), "2"),
        (("parts", 1, "size_m"), True),
        (("parts", 1, "size_m"), math.nan),
        (("parts", 1, "size_m"), 10**400),
        (("parts", 0, "kind"), "long"),
        (("parts", 0, "kind"), []),
        (("pair", 1), 1.0),
        (("pair",), ["x"]),
        (("best",), []),
        (("best", "more"), 1),
        (("shares",), []),
        (("shares", "step", "low"), 9.0),
        (("shares", "step", "source"), "q"),
        (("is_open",), 1),
    ],
)
def test_what_is_broken_is_named(path: tuple[Any, ...], value: object) -> None:
    data = json.loads(to_json(WHOLE))
    node: Any = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(DataError) as caught:
        from_data(Whole, data)
    assert caught.value.path == ".".join(map(str, path[: len(path) - (path[-1] == "low")]))


def test_fields_of_a_later_version_and_numbers_without_end_are_taken_where_they_may_be() -> None:
    data = {**to_data(Part("a", 1.0)), "colour": "red", "size_m": math.inf}
    assert from_data(Part, data, more=True, finite=False) == Part("a", math.inf)
    with pytest.raises(DataError, match="colour"):
        from_data(Part, data, finite=False)
    with pytest.raises(DataError, match="`name`: missing or unknown"):
        from_data(Part, {"size_m": 1.0})
