"""Streams are read alike however they are cut into chunks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.sse import HELD_LIMIT_BYTES, SseTally


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def text(said: str) -> bytes:
    return event({"choices": [{"index": 0, "text": said, "finish_reason": None}]})


ROLE = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
FINISH = event({"choices": [{"delta": {}, "finish_reason": "length"}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 7}})
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
TEXT = st.one_of(
    # Text that looks like the stream's own words, escaped as JSON escapes it; and a token without text.
    st.sampled_from(['"error": {', "[DONE]", "\n\ndata: x\n\n", '"usage":{', "é\u2028", ""]).map(text),
    st.text(min_size=1).map(text),
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """The events of one answer, as engines order them."""
    before = draw(st.lists(st.sampled_from([ROLE, PING]), max_size=2))
    first = draw(st.text(min_size=1).map(text))
    texts = draw(st.lists(st.one_of(TEXT, st.just(PING)), max_size=8))
    end = draw(st.sampled_from([[FINISH, USAGE, DONE], [FINISH], [USAGE], []]))
    return [*before, first, *texts, *end]


def fed(chunks: list[bytes]) -> tuple[bytes, SseTally]:
    tally = SseTally()
    passed = b"".join([tally.feed(chunk) for chunk in chunks])
    return passed + tally.rest(), tally


@given(said=streams(), data=st.data())
def test_any_cutting_of_a_stream_passes_and_counts_the_same(said: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    passed, tally = fed(chunks)
    assert passed == whole
    assert tally.content_events == len([each for each in said if b'"text"' in each])
    assert tally.started
    assert tally.output_tokens == (7 if USAGE in said else tally.content_events)


def test_what_precedes_the_first_text_is_held_until_it_comes() -> None:
    tally = SseTally()
    assert tally.feed(ROLE) == b""
    assert not tally.started
    assert tally.feed(PING) == b""
    assert tally.feed(text("a")) == ROLE + PING + text("a")
    assert tally.started
    assert tally.feed(text("b")[:5]) == b""
    assert tally.feed(text("b")[5:]) == text("b")


def test_an_answer_without_text_is_passed_at_its_end() -> None:
    passed, tally = fed([ROLE, FINISH, USAGE, DONE])
    assert passed == ROLE + FINISH + USAGE + DONE
    assert not tally.started


def test_an_error_in_the_stream_is_seen_and_not_passed() -> None:
    tally = SseTally()
    assert tally.feed(text("a") + event({"error": "out of blocks"}) + text("b")) == text("a")
    assert tally.failed
    assert tally.feed(text("c")) == tally.rest() == b""


def test_tool_calls_and_reasoning_are_content() -> None:
    for delta in ({"tool_calls": [{"index": 0}]}, {"reasoning_content": "so"}):
        assert fed([event({"choices": [{"delta": delta}]})])[1].started


def test_lines_may_end_in_returns() -> None:
    stream = (text("a") + text("b")).replace(b"\n", b"\r\n")
    passed, tally = fed([stream[:9], stream[9:]])
    assert passed == stream
    assert tally.content_events == 2


def test_an_event_without_an_end_is_refused_rather_than_kept() -> None:
    tally = SseTally()
    with pytest.raises(ValueError, match="longer"):
        tally.feed(b"data: " + b"x" * HELD_LIMIT_BYTES)


def test_a_count_that_could_be_none_is_not_taken() -> None:
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1 << 31}
    _, tally = fed([text("a"), event({"choices": [], "usage": usage}), FINISH, DONE])
    assert (tally.prompt_tokens, tally.output_tokens) == (None, 1)
