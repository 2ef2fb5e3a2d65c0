"""What each engine takes of the OpenAI protocol, and what it takes beyond: one table, by the engine's name.

A field that an engine would ignore is refused, not dropped: an answer that looks right and is not costs more
than an error. `openai` is any server of which nothing is known: it is sent what the protocol has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
COMMON = {
    *("model", "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed", "stop", "n", "user"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs"),
}
STANDARD: Mapping[str, frozenset[str]] = {
    CHAT: frozenset(
        {
            *COMMON,
            *("messages", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls"),
            *("response_format", "top_logprobs", "metadata", "store", "reasoning_effort", "service_tier"),
        }
    ),
    COMPLETIONS: frozenset({*COMMON, "prompt", "suffix", "echo", "best_of"}),
}
# Values that ask for nothing: with one of these a field may as well be absent.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "echo": (False,),
    "store": (False,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),  # `vllm bench serve` says it in every request
    "logit_bias": ({},),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto",),
    "response_format": ({"type": "text"},),
    "stream_options": ({"include_usage": False}, {}),
    "service_tier": ("auto", "default"),
}
# At which the likeliest token is taken each time.
LIKELIEST: Mapping[str, tuple[Any, ...]] = {"temperature": (0,), "top_p": (1,)}
# The least and the most that a number may be; a seed is whole.
NUMBERS: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "seed": (-(1 << 63), (1 << 63) - 1),
    "top_logprobs": (0, 20),
}
WHOLE = frozenset({"seed", "top_logprobs"})
# What only says who asks, or is for the books of a host: of no consequence for an answer.
UNANSWERED = frozenset({"user", "metadata", "service_tier"})


@dataclass(frozen=True, slots=True)
class EngineFields:
    """What of the protocol an engine does not know, and what it knows besides."""

    unsupported: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    one_text: bool = False  # a completion's prompt is one text: no list of texts or token ids
    likeliest: bool = False  # it takes the likeliest token each time, whatever is asked


SAMPLING = {"top_k", "min_p", "repetition_penalty", "ignore_eos", "min_tokens", "stop_token_ids"}
GUIDED = {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"}
PROTOCOL = "openai"
ENGINE_FIELDS: Mapping[str, EngineFields] = {
    PROTOCOL: EngineFields(),
    # As transformers 5.23 lists them in `cli/serving`, where it refuses some and takes others without effect:
    # batching requests, it heeds of each its length alone. How tokens are drawn the first request settles, by
    # which the controller asked whether it answers at all: at temperature 0.
    "transformers": EngineFields(
        frozenset(
            {
                *("n", "best_of", "logprobs", "top_logprobs", "echo", "presence_penalty", "stream_options"),
                *("response_format", "tool_choice", "parallel_tool_calls", "reasoning_effort", "store"),
                *("logit_bias", "stop", "frequency_penalty"),
            }
        ),
        one_text=True,
        likeliest=True,
    ),
    "vllm": EngineFields(
        frozenset({"store"}), frozenset({*SAMPLING, *GUIDED, "skip_special_tokens", "chat_template_kwargs"})
    ),
    "sglang": EngineFields(
        frozenset({"store"}),
        frozenset({*SAMPLING, "regex", "ebnf", "skip_special_tokens", "chat_template_kwargs"}),
    ),
    "tensorrt-llm": EngineFields(frozenset({"store"}), frozenset({*SAMPLING, "guided_decoding_params"})),
    # As the server in llama-cpp-python 0.3.36: what is unsupported it takes without effect, and of several
    # answers or texts it counts the tokens of one.
    "llama.cpp": EngineFields(
        frozenset({"best_of", "echo", "suffix", "store", "reasoning_effort", "n"}),
        frozenset({"top_k", "min_p", "repeat_penalty", "ignore_eos", "grammar", "json_schema"}),
        one_text=True,
    ),
}


def refused_field(path: str, data: Mapping[str, Any], engine: EngineFields) -> tuple[str, str] | None:
    """The first field that this engine would not heed, and why; None where it heeds all."""
    for name, value in data.items():
        if value is None or value in NEUTRAL.get(name, ()) or name in UNANSWERED:
            continue
        if name in engine.extensions and name not in STANDARD[path]:
            continue
        if name not in STANDARD[path]:
            return name, "is no field of this interface that the engine here knows"
        if name in engine.unsupported:
            return name, "is not supported by the engine here"
        if engine.likeliest and value not in LIKELIEST.get(name, (value,)):
            told = "is not heeded by the engine here, which takes the likeliest token each time"
            return name, f"{told}: leave it out, or write {LIKELIEST[name][0]}"
    if engine.one_text and path == COMPLETIONS and not isinstance(data.get("prompt"), str):
        return "prompt", "is one text for the engine here, no list"
    return None


def passed_fields(path: str, data: Mapping[str, Any], engine: EngineFields) -> dict[str, Any]:
    """What the engine is sent of a request that is not refused: all but what asks for nothing."""
    known = STANDARD[path] - engine.unsupported - UNANSWERED - {"model"} | engine.extensions
    return {name: value for name, value in data.items() if name in known and value is not None}
