from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.core.errors import ShapeError
from twofold.live.jobs.job_log import LINES, READER
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.machine import Entry, Woke

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = {
    **dict.fromkeys(("expected_s", "checkpoint_write_s", "restart_s", "write_s", "until_s"), NUMBERS),
    **dict.fromkeys(("step_s", "slow_ratio"), NUMBERS),
    "node_s": st.lists(st.tuples(st.text(max_size=4), NUMBERS), max_size=3).map(tuple),
}


def of(union: Any) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(kind, **{name: TIMES[name] for name in TIMES if name in kind.__dataclass_fields__})
        for kind in get_args(union)
    )


@settings(max_examples=30, deadline=None)
@given(NUMBERS, of(ClusterEvent), st.lists(of(ClusterEffect), max_size=3))
def test_an_entry_comes_back_as_what_it_was(now_s: float, event: Any, effects: list[Any]) -> None:
    entry = Entry(now_s, event, tuple(effects))
    line = LINES.to_line(entry)
    assert READER.entry_from_line(line) == entry
    assert len(line.splitlines()) == 1 and line.isascii()


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"StartJob","job_id":"a","placement":[["n",8,1]],"attempt":1}',
        '{"type":"StartJob","job_id":"a","placement":[[8,"n"]],"attempt":1}',
        '{"type":"NodeFailed","node_id":"n","cause":"bored"}',
        '{"type":"NodeAdded","node_id":"n","accelerator_count":8,"domain":"zone"}',
        '{"type":"RequestArrived","input_tokens":1,"output_limit_tokens":1}',
    ],
)
def test_a_line_of_another_kind_is_refused(line: str) -> None:
    with pytest.raises(ShapeError, match="not a line of a policy log"):
        READER.entry_from_line(f'{{"now_s":0.0,"event":{line},"effects":[]}}')
    with pytest.raises(ShapeError, match="not a line of a policy log"):
        READER.entry_from_line(f'{{"now_s":0.0,"event":{{"type":"Woke"}},"effects":[{line}]}}')


def test_the_two_machines_share_one_waking() -> None:
    assert Woke in get_args(ClusterEvent)
