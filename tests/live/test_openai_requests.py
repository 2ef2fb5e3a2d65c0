"""What a gateway reads out of a client's request."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.gateway.engine_fields import ENGINE_FIELDS
from twofold.live.gateway.gateway_config import GatewayLimits
from twofold.live.gateway.openai_requests import (
    CHAT,
    COMPLETIONS,
    GenerationRequest,
    Problem,
    input_tokens_of,
    read_request,
)

LIMITS = GatewayLimits(input_bytes_per_token=4.0, default_output_tokens=99)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["prompt", "messages", "stream", "max_tokens", "max_completion_tokens", "model", "n"]
)


@given(path=st.sampled_from([CHAT, COMPLETIONS]), data=st.dictionaries(FIELDS, JSON))
def test_whatever_comes_is_passed_on_whole_or_refused_with_a_reason(
    path: str, data: dict[str, object]
) -> None:
    read = read_request(path, json.dumps(data).encode(), LIMITS)
    if isinstance(read, Problem):
        assert read.status == 400 and read.message
        return
    assert read.input_tokens >= 1 and read.output_limit_tokens >= 1
    body = json.loads(read.body("theirs"))
    assert body == {"model": "theirs", **read.fields}


@given(body=st.binary(max_size=40))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    assert isinstance(read_request(CHAT, body, LIMITS), Problem)


def test_deep_nesting_is_refused_like_other_nonsense() -> None:
    assert isinstance(read_request(CHAT, b"[" * 100_000, LIMITS), Problem)
    for depth in (100, 500, 900, 2000, 50_000):
        prompt = b"[" * depth + b"]" * depth
        read = read_request(COMPLETIONS, b'{"prompt": ' + prompt + b"}", LIMITS)
        assert isinstance(read, Problem) or read.body("theirs")


def test_a_shorter_limit_replaces_the_one_that_was_stated() -> None:
    for stated in ("max_tokens", "max_completion_tokens"):
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], stated: 100}).encode()
        read = read_request(CHAT, body, LIMITS)
        assert not isinstance(read, Problem)
        assert json.loads(read.body("theirs"))[stated] == 100
        assert json.loads(read.body("theirs", 40))[stated] == 40


def test_more_work_than_any_replica_does_is_refused() -> None:
    for digits in (7, 300, 4000):
        said = f'{{"prompt": "a", "max_tokens": {10**digits}}}'.encode()
        read = read_request(COMPLETIONS, said, LIMITS)
        assert isinstance(read, Problem) and (read.status, read.field) == (400, "max_tokens")


def test_the_newer_name_of_the_limit_goes_before_the_older() -> None:
    said = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "max_completion_tokens": 7}
    read = read_request(CHAT, json.dumps(said).encode(), LIMITS)
    assert isinstance(read, GenerationRequest) and read.output_limit_tokens == 7
    del said["max_tokens"], said["max_completion_tokens"]
    read = read_request(CHAT, json.dumps(said).encode(), LIMITS)
    assert isinstance(read, GenerationRequest) and read.output_limit_tokens == read.fields["max_tokens"] == 99


def test_input_is_counted_in_text_and_token_ids_not_in_braces() -> None:
    parts = [{"type": "text", "text": "x" * 40}, {"type": "image_url", "image_url": {"url": "u" * 999}}]
    assert input_tokens_of("x" * 400, LIMITS) == 100
    assert input_tokens_of("é" * 4, LIMITS) == 2  # bytes, not letters
    assert input_tokens_of([{"role": "user", "content": "x" * 40}, {"content": parts}], LIMITS) == 20
    assert input_tokens_of([5, 6, 7], LIMITS) == 3
    assert input_tokens_of(["x" * 4, "x" * 4], LIMITS) == 2
    assert input_tokens_of("", LIMITS) == 1


def test_a_field_that_the_engine_would_not_heed_is_refused_and_none_is_dropped() -> None:
    engine = ENGINE_FIELDS["transformers"]
    for field, value in (("ignore_eos", True), ("generation_config", "{}"), ("n", 2), ("logprobs", 3)):
        read = read_request(COMPLETIONS, json.dumps({"prompt": "a", field: value}).encode(), LIMITS, engine)
        assert isinstance(read, Problem), field
        assert (read.status, read.field, read.code) == (400, field, "unsupported_parameter")
    said = {"prompt": "a", "n": 1, "logprobs": None, "user": "somebody", "temperature": 0.0}
    read = read_request(COMPLETIONS, json.dumps(said).encode(), LIMITS, engine)
    assert isinstance(read, GenerationRequest)
    assert read.fields.keys() == {"prompt", "temperature", "max_tokens"}


def test_an_engine_that_takes_the_likeliest_token_is_asked_for_no_other() -> None:
    engine = ENGINE_FIELDS["transformers"]
    for field, value in (("temperature", 0.7), ("top_p", 0.9), ("stop", "."), ("frequency_penalty", 1)):
        asked = json.dumps({"prompt": "a", field: value}).encode()
        read = read_request(COMPLETIONS, asked, LIMITS, engine)
        assert isinstance(read, Problem) and (read.status, read.field) == (400, field)
        assert isinstance(read_request(COMPLETIONS, asked, LIMITS, ENGINE_FIELDS["vllm"]), GenerationRequest)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", "hot"), ("temperature", -1), ("temperature", True), ("top_p", 7)),
        *(("seed", "abc"), ("seed", 1.5), ("seed", 1 << 63), ("stop", 5), ("stop", ["a", 1])),
    ],
)
def test_a_value_that_an_engine_would_fail_at_is_the_clients_fault(field: str, value: Any) -> None:
    read = read_request(COMPLETIONS, json.dumps({"prompt": "a", field: value}).encode(), LIMITS)
    assert isinstance(read, Problem) and (read.status, read.field) == (400, field)


def test_an_extension_passes_where_the_engine_has_it() -> None:
    said = json.dumps({"prompt": "a", "top_k": 5}).encode()
    read = read_request(COMPLETIONS, said, LIMITS, ENGINE_FIELDS["vllm"])
    assert isinstance(read, GenerationRequest) and read.fields["top_k"] == 5
    assert isinstance(read_request(COMPLETIONS, said, LIMITS), Problem)


MESSAGES = [{"role": "user", "content": "hi"}]
WORK = {
    "answers": (COMPLETIONS, {"prompt": "x", "max_tokens": 10, "n": 7}, 1, 70),
    "tries": (COMPLETIONS, {"prompt": "x", "max_tokens": 10, "best_of": 9, "n": 2}, 1, 90),
    "prompts": (COMPLETIONS, {"prompt": ["xxxx"] * 20, "max_tokens": 4}, 20, 80),
    "lists of ids": (COMPLETIONS, {"prompt": [[1] * 50] * 2, "max_tokens": 4}, 100, 8),
    "tools": (CHAT, {"messages": MESSAGES, "tools": [{"d": "x" * 4000}], "max_tokens": 1}, 1001, 1),
    "calls": (
        CHAT,
        {
            "messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "x" * 400}}]}],
            "max_tokens": 1,
        },
        100,
        1,
    ),
    "thoughts": (
        CHAT,
        {
            "messages": [{"role": "assistant", "content": "", "reasoning_content": "x" * 400}],
            "max_tokens": 1,
        },
        100,
        1,
    ),
}


@pytest.mark.parametrize(("path", "said", "least_input", "output"), WORK.values(), ids=WORK)
def test_all_work_that_a_request_asks_for_is_charged(
    path: str, said: dict[str, object], least_input: int, output: int
) -> None:
    read = read_request(path, json.dumps(said).encode(), LIMITS)
    assert isinstance(read, GenerationRequest)
    assert read.input_tokens >= least_input and read.output_limit_tokens == output


@pytest.mark.parametrize(
    "messages",
    [["x"], [{}], [{"role": 1, "content": "x"}], [{"role": "user"}], [{"role": "user", "content": ["x"]}]],
)
def test_messages_that_no_engine_reads_are_the_clients_mistake(messages: object) -> None:
    read = read_request(CHAT, json.dumps({"messages": messages}).encode(), LIMITS)
    assert isinstance(read, Problem) and (read.status, read.field) == (400, "messages")


def test_equal_prompts_have_equal_digests_whatever_else_is_asked() -> None:
    def digest(**more: object) -> str:
        read = read_request(COMPLETIONS, json.dumps({"prompt": "a", **more}).encode(), LIMITS)
        assert isinstance(read, GenerationRequest)
        return read.prompt_digest

    assert digest() == digest(max_tokens=5, seed=3) != digest(prompt="b")
    assert digest() != digest(n=7), "which may kill where one answer does not"


@pytest.mark.parametrize("tools", [5, True, "x", ["x"], {"a": 1}])
def test_tools_that_are_none_are_the_clients_mistake(tools: object) -> None:
    read = read_request(CHAT, json.dumps({"messages": MESSAGES, "tools": tools}).encode(), LIMITS)
    assert isinstance(read, Problem) and (read.status, read.field) == (400, "tools")


def test_a_number_beyond_all_numbers_is_refused() -> None:
    assert isinstance(read_request(COMPLETIONS, b'{"prompt": "a", "temperature": 1e999}', LIMITS), Problem)
