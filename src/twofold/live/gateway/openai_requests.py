"""What clients send in the OpenAI protocol, as far as a gateway must understand it, and its errors."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twofold.live.gateway.engine_fields import (
    CHAT,
    COMPLETIONS,
    NUMBERS,
    WHOLE,
    EngineFields,
    passed_fields,
    refused_field,
)
from twofold.live.gateway.gateway_config import GatewayLimits

LIMIT_FIELDS = {CHAT: ("max_completion_tokens", "max_tokens"), COMPLETIONS: ("max_tokens",)}
COUNT_FIELDS = ("n", "best_of")
HARMLESS = {
    *("stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"),
    *("stop", "presence_penalty", "frequency_penalty"),
}
NOT_TEXT = ("image_url", "input_audio", "file", "type", "role")  # of a message or a part of it
ANY_ENGINE = EngineFields()
KINDS = {404: "not_found_error", 413: "invalid_request_error", 429: "rate_limit_error"}
RETRIES_HEADER = b"x-stainless-retry-count"  # the usual clients of this interface say by it what they repeat
TENANT_HEADER = b"x-tenant"
KEY_HEADER, KEY_SCHEME = b"authorization", b"bearer "
TENANT_LIMIT = 128  # bytes of a name


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request that may be passed on."""

    path: str
    fields: dict[str, Any]  # without `model`
    stream: bool
    input_tokens: int  # an estimate
    output_limit_tokens: int  # of all its answers
    answer_limit_tokens: int  # of one
    model: str = ""  # as the client calls it
    prompt_digest: str = ""  # equal for equal prompts
    states_limit: bool = True  # how long an answer may be

    def body(self, model: str, output_limit_tokens: int | None = None) -> bytes:
        """What a replica that calls its model so is sent, with a shorter limit where one is given."""
        one = self
        if output_limit_tokens is not None:  # of all its answers together
            one = self.shortened(output_limit_tokens * self.answer_limit_tokens // self.output_limit_tokens)
        return json.dumps({"model": model, **one.fields}).encode()

    def heeded_by(self, engine: EngineFields) -> "GenerationRequest":
        """The same without what asks for nothing, where an engine would refuse that."""
        return replace(self, fields=passed_fields(self.path, self.fields, engine))

    def shortened(self, answer_limit_tokens: int) -> "GenerationRequest":
        """The same with shorter answers, of a token at least."""
        each = max(1, answer_limit_tokens)
        shorter = {name: each for name in LIMIT_FIELDS[self.path] if name in self.fields}
        whole = each * self.output_limit_tokens // self.answer_limit_tokens
        return replace(
            self,
            fields={**self.fields, **shorter},
            answer_limit_tokens=each,
            output_limit_tokens=max(1, whole),
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request cannot be passed on, in the protocol's own form."""

    status: int
    message: str
    field: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    def body(self) -> bytes:
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.field, "code": self.code}
        return json.dumps({"error": error}).encode()

    def event(self) -> bytes:
        """The same in a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"


def read_request(
    path: str, body: bytes, limits: GatewayLimits, engine: EngineFields = ANY_ENGINE
) -> GenerationRequest | Problem:
    """A client's body. What the gateway acts on is judged here, and what the engine would not heed."""
    try:
        data = json.loads(body, parse_constant=_no_number, parse_float=_number)
        if not isinstance(data, dict):
            return Problem(400, "The body is not a JSON object")
        _make_whole(data, (*LIMIT_FIELDS[path], *COUNT_FIELDS, *WHOLE))
        if isinstance(ids := data.get("prompt"), list):
            data["prompt"] = _whole_ids(ids)
        problem = _shape_problem(path, data) or _value_problem(data) or _limit_problem(path, data, limits)
        if problem is not None:
            return problem
        refused = refused_field(path, data, engine)
        if refused is not None:
            return Problem(400, f"`{refused[0]}` {refused[1]}", refused[0], "unsupported_parameter")
        return _request(path, data, limits, engine)
    except (ValueError, RecursionError):  # no JSON, or nested more deeply than anybody reads
        return Problem(400, "The body is not JSON, or nested too deeply")


def _make_whole(data: dict[str, Any], names: Iterable[str]) -> None:
    """Counts as counts: to JSON 16.0 and 16 are one number, and some clients write the first."""
    for name in names:
        value = data.get(name)
        if isinstance(value, float) and value.is_integer():
            data[name] = int(value)


def _whole_ids(prompt: list[Any]) -> list[Any]:
    """Token ids as whole numbers, in one prompt or each of several, for the same reason."""
    made = [_whole_ids(each) if isinstance(each, list) else each for each in prompt]
    if float in map(type, made):
        made = [int(each) if isinstance(each, float) and each.is_integer() else each for each in made]
    return made


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is beyond any number")
    return value


def _shape_problem(path: str, data: Mapping[str, Any]) -> Problem | None:
    """What an engine would fail at: it would count against the replica."""
    wanted, kinds = ("messages", (list,)) if path == CHAT else ("prompt", (str, list))
    said = data.get(wanted)
    if not isinstance(said, kinds) or not said:
        return Problem(400, f"`{wanted}` is missing or empty, or of the wrong type", wanted)
    if path == CHAT and not all(map(_is_message, said)):
        why = "each of `messages` has a `role`, and a `content` of text or parts"
        return Problem(400, why, "messages")
    if path == COMPLETIONS and isinstance(said, list) and not _is_prompts(said):
        return Problem(400, "`prompt` is a text, texts, token ids or lists of token ids", "prompt")
    tools = data.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(each, dict) for each in tools)):
        return Problem(400, "`tools` is a list of tools", "tools")
    if not isinstance(data.get("stream", False), bool | None):
        return Problem(400, "`stream` is true or false", "stream")
    if not isinstance(data.get("model", ""), str):
        return Problem(400, "`model` is a name", "model")
    return None


def _value_problem(data: Mapping[str, Any]) -> Problem | None:
    """The same of what says how tokens are drawn and where an answer ends."""
    for name in data.keys() & NUMBERS.keys():
        value, (least, most) = data[name], NUMBERS[name]
        kinds = (int,) if name in WHOLE else (int, float)
        if value is not None and (type(value) not in kinds or not least <= value <= most):
            kind = "whole number" if name in WHOLE else "number"
            return Problem(400, f"`{name}` is a {kind} from {least:g} to {most:g}", name)
    ends = data.get("stop")
    if not (ends is None or isinstance(ends, str) or (isinstance(ends, list) and _are_texts(ends))):
        return Problem(400, "`stop` is a text, or a list of texts", "stop")
    return None


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)
    return isinstance(content, str) or (content is None and bool(message.get("tool_calls")))


def _is_prompts(prompts: list[Any]) -> bool:
    if _are_texts(prompts) or _is_ids(prompts):
        return True
    return all(isinstance(each, list) and each and _is_ids(each) for each in prompts)


def _is_ids(values: list[Any]) -> bool:
    return all(type(each) is int and each >= 0 for each in values)


def _limit_problem(path: str, data: Mapping[str, Any], limits: GatewayLimits) -> Problem | None:
    for name in LIMIT_FIELDS[path]:
        value = data.get(name)
        if value is not None and (type(value) is not int or value < 1):
            return Problem(400, f"`{name}` is a whole number above zero", name)
        if value is not None and value > limits.output_tokens_max:
            return Problem(400, f"`{name}` is at most {limits.output_tokens_max}", name)
    for name in COUNT_FIELDS:
        value = data.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= limits.answers_max):
            return Problem(400, f"`{name}` is a whole number from 1 to {limits.answers_max}", name)
    prompt = data.get("prompt")
    if isinstance(prompt, list) and not _is_ids(prompt) and len(prompt) > limits.answers_max:
        return Problem(400, f"`prompt` has at most {limits.answers_max} prompts", "prompt")
    return None


def _request(
    path: str, data: Mapping[str, Any], limits: GatewayLimits, engine: EngineFields
) -> GenerationRequest:
    prompt = data["messages" if path == CHAT else "prompt"]
    told = next((data[name] for name in LIMIT_FIELDS[path] if data.get(name) is not None), None)
    fields, states_limit = passed_fields(path, data, engine), told is not None
    if told is None:
        told = fields["max_tokens"] = limits.default_output_tokens
    # Each of `n` answers, or of `best_of` that are tried, to each of several prompts, may be so long.
    several = len(prompt) if path == COMPLETIONS and isinstance(prompt, list) and not _is_ids(prompt) else 1
    answers = several * max(data.get(name) or 1 for name in COUNT_FIELDS)
    # What else is asked makes another request, but for what every engine does the same work for.
    text = json.dumps([path, {each: fields[each] for each in fields if each not in HARMLESS}], sort_keys=True)
    return GenerationRequest(
        path,
        fields,
        bool(data.get("stream")),
        input_tokens_of([prompt, data.get("tools"), data.get("response_format")], limits),
        told * answers,
        answer_limit_tokens=told,
        model=data.get("model") or "",
        prompt_digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        states_limit=states_limit,
    )


def input_tokens_of(prompt: Any, limits: GatewayLimits) -> int:
    """Tokens that a prompt or a conversation probably has, at least one.

    Formula  ceil(bytes of all its texts, wherever they stand / input_bytes_per_token) + token ids
    Limits   pictures and sounds count nothing: who routes them needs a better guess.
    """
    text_bytes, ids = _size_of(prompt)
    return max(1, math.ceil(text_bytes / limits.input_bytes_per_token) + ids)


def _size_of(value: Any) -> tuple[int, int]:
    """Bytes of all texts, and how many numbers there are: token ids where a prompt is a list of them."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")), 0
    if isinstance(value, dict):
        parts = [_size_of(each) for name, each in value.items() if name not in NOT_TEXT]
    elif isinstance(value, list):
        parts = [_size_of(each) for each in value]
    else:
        return 0, int(type(value) is int)
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


NO_KEY = Problem(401, "The key is missing or unknown", code="invalid_api_key")
LONG_TENANT = Problem(400, f"`x-tenant` is at most {TENANT_LIMIT} bytes of text", "x-tenant")


@dataclass(frozen=True, slots=True)
class Caller:
    """What the gate is told of who asks.

    With keys configured a request carries one, and counts for the tenant whose key it is, whatever else it
    says: nobody asks in another's name. Without keys nobody is known, and clients are taken at their word.
    """

    tenant: str  # "": nobody said
    retry_count: int  # that the client says; 0: new, or it says no such number


def caller_of(headers: Iterable[tuple[bytes, bytes]], tenants: Mapping[str, str] | None) -> Caller | Problem:
    """Who asks, or why the request is refused; of a header given twice the first one counts.

    `tenants` are those with a key, by its SHA-256 in hex: of a key only the digest is kept. None: nobody
    needs one.
    """
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (RETRIES_HEADER, KEY_HEADER, TENANT_HEADER):
            said.setdefault(name, value)
    count, key = said.get(RETRIES_HEADER, b""), said.get(KEY_HEADER, b"")
    retry_count = int(count) if count.isdigit() and len(count) < 4 else 0
    if tenants is not None:
        scheme, secret = key[: len(KEY_SCHEME)], key[len(KEY_SCHEME) :].strip()
        # Of another scheme nothing that any key has.
        digest = hashlib.sha256(secret).hexdigest() if scheme.lower() == KEY_SCHEME else ""
        tenant = tenants.get(digest)
        return NO_KEY if tenant is None else Caller(tenant, retry_count)
    name = said.get(TENANT_HEADER, b"").strip()
    if len(name) > TENANT_LIMIT:
        return LONG_TENANT
    return Caller(name.decode("latin-1"), retry_count)
