import json
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import ShapeError
from twofold.live.gateway.replays import entry_from_line
from twofold.policy.gate.events import Effect, Event, OpenCircuit, to_line
from twofold.policy.machine import Entry, Woke

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def of(union: Any) -> st.SearchStrategy[Any]:
    """Any value of any class, every field given: a float is a finite number."""
    plain = {float: NUMBERS, float | None: st.none() | NUMBERS}
    return st.one_of(
        st.builds(kind, **{f.name: plain.get(f.type, st.from_type(f.type)) for f in fields(kind)})
        for kind in get_args(union)
    )


EVENTS, EFFECTS = of(Event), of(Effect)


@given(NUMBERS, EVENTS, st.lists(EFFECTS, max_size=4))
def test_an_entry_comes_back_as_what_it_was(now_s: float, event: Any, effects: list[Any]) -> None:
    entry = Entry(now_s, event, tuple(effects))
    line = to_line(entry)
    back = entry_from_line(line)
    assert back == entry and to_line(back) == line
    assert [type(each) for each in (back.event, *back.effects)] == [type(event), *map(type, effects)]
    assert len(line.splitlines()) == 1 and line.isascii()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        '"Woke"',
        '{"type": "Slept"}',
        '{"type": ["Woke"]}',
        '{"type": "Woke", "at_s": 1}',
        '{"type": "ClientLeft"}',
        '{"type": "ClientLeft", "request_id": 1, "attempt": 1}',
        '{"type": "ClientLeft", "request_id": "1"}',
        '{"type": "ClientLeft", "request_id": true}',
        '{"type": "ClientLeft", "request_id": 1.0}',
        '{"type": "ReplicaRemoved", "replica_id": 7}',
        '{"type": "ProbeFailed", "replica_id": "a", "number": 1, "cause": "bored"}',
        '{"type": "ProbeFailed", "replica_id": "a", "number": 1, "cause": []}',
        '{"type": "OpenCircuit", "replica_id": "a", "until_s": NaN}',
        '{"type": "OpenCircuit", "replica_id": "a", "until_s": 1e999}',
        '{"type": "OpenCircuit", "replica_id": "a", "until_s": 1' + "0" * 400 + "}",
        '{"type": "OpenCircuit", "replica_id": "a", "until_s": "1"}',
    ],
)
def test_a_line_of_another_kind_is_refused(line: str) -> None:
    as_event = f'{{"now_s": 0.0, "event": {line}, "effects": []}}'
    as_effect = f'{{"now_s": 0.0, "event": {{"type": "Woke"}}, "effects": [{line or 0}]}}'
    for each in (line, as_event, as_effect):
        with pytest.raises(ShapeError, match="not a line of a policy log"):
            entry_from_line(each)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"now_s": "0"}, "now_s"),
        ({"now_s": 10**400}, "now_s"),
        ({"event": {"type": "Probe", "replica_id": "a", "number": 1}}, "`type` is none of RequestArrived"),
        ({"effects": [{"type": "Woke"}]}, "`type` is none of Send"),
        ({"effects": {}}, "effects"),
        ({"more": 1}, "entry"),
    ],
)
def test_an_entry_keeps_events_and_effects_apart(change: dict[str, Any], names: str) -> None:
    entry = {"now_s": 0.0, "event": {"type": "Woke"}, "effects": []}
    assert entry_from_line(json.dumps(entry)).effects == ()
    with pytest.raises(ShapeError, match=names):
        entry_from_line(json.dumps(entry | change))


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_ends_in_anything_but_an_error_that_can_be_read(text: str) -> None:  # INV-8
    with pytest.raises(ShapeError):
        entry_from_line(text)


def test_a_time_that_is_no_number_is_never_written() -> None:
    with pytest.raises(ValueError):
        to_line(Entry(0.0, Woke(), (OpenCircuit("a", float("nan")),)))
