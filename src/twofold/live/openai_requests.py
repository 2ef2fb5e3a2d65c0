"""What clients send in the OpenAI protocol, as far as a gateway must understand it, and its errors."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twofold.live.gateway_config import GatewayLimits

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_COMMON = {
    *("model", "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed", "stop", "n", "user"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs"),
}
# What replicas are sent; engines refuse a whole request for one field that they do not know, so what is not
# here is left out. `generation_config` is not here: a client could unset every limit with it.
PASSED_FIELDS = {
    CHAT: frozenset(
        {
            *_COMMON,
            *("messages", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls"),
            *("response_format", "top_logprobs", "metadata", "store", "reasoning_effort"),
        }
    ),
    COMPLETIONS: frozenset({*_COMMON, "prompt", "suffix", "echo", "best_of"}),
}
LIMIT_FIELDS = {CHAT: ("max_completion_tokens", "max_tokens"), COMPLETIONS: ("max_tokens",)}
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
    output_limit_tokens: int

    def body(self, model: str, output_limit_tokens: int | None = None) -> bytes:
        """What a replica that calls its model so is sent, with a shorter limit where one is given."""
        fields = self.fields
        if output_limit_tokens is not None:
            shorter = {name: output_limit_tokens for name in LIMIT_FIELDS[self.path] if name in fields}
            fields = {**fields, **shorter}
        return json.dumps({"model": model, **fields}).encode()


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


def read_request(path: str, body: bytes, limits: GatewayLimits) -> GenerationRequest | Problem:
    """A client's body. Only what the gateway acts on is judged here; the rest is the engine's to judge."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return Problem(400, "The body is not JSON")
    if not isinstance(data, dict):
        return Problem(400, "The body is not a JSON object")
    wanted, kinds = ("messages", (list,)) if path == CHAT else ("prompt", (str, list))
    if not isinstance(data.get(wanted), kinds) or not data[wanted]:
        return Problem(400, f"`{wanted}` is missing or empty, or of the wrong type", wanted)
    stream = data.get("stream", False)
    if not isinstance(stream, bool | None):
        return Problem(400, "`stream` is true or false", "stream")
    limit_tokens = None
    for name in LIMIT_FIELDS[path]:
        value = data.get(name)
        if value is not None and (type(value) is not int or value < 1):
            return Problem(400, f"`{name}` is a whole number above zero", name)
        if value is not None and value > limits.output_tokens_max:
            return Problem(400, f"`{name}` is at most {limits.output_tokens_max}", name)
        limit_tokens = limit_tokens or value
    fields = {name: value for name, value in data.items() if name in PASSED_FIELDS[path] and name != "model"}
    if limit_tokens is None:
        limit_tokens = fields["max_tokens"] = limits.default_output_tokens
    try:
        input_tokens = input_tokens_of(data[wanted], limits)
    except RecursionError:  # the reader goes deeper than we do
        return Problem(400, "The body is nested too deeply")
    return GenerationRequest(path, fields, bool(stream), input_tokens, limit_tokens)


def input_tokens_of(prompt: Any, limits: GatewayLimits) -> int:
    """Tokens that a prompt or a conversation probably has, at least one.

    Formula  ceil(bytes of all its texts / input_bytes_per_token); a list of token ids counts itself
    Limits   an image counts nothing: who routes pictures needs a better guess.
    """
    if isinstance(prompt, list) and all(type(item) is int for item in prompt):
        return len(prompt)
    return max(1, math.ceil(_text_bytes(prompt) / limits.input_bytes_per_token))


def _text_bytes(value: Any) -> int:
    """Bytes of every text in a prompt, or under `content` and `text` of messages and their parts."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list):
        return sum(_text_bytes(item) for item in value)
    if isinstance(value, dict):
        return _text_bytes(value.get("content")) + _text_bytes(value.get("text"))
    return 0


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


def caller_of(headers: Iterable[tuple[bytes, bytes]], tenants: Mapping[str, str]) -> Caller | Problem:
    """Who asks, or why the request is refused; of a header given twice the first one counts.

    `tenants` are those with a key, by its SHA-256 in hex: of a key only the digest is kept.
    """
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (RETRIES_HEADER, KEY_HEADER, TENANT_HEADER):
            said.setdefault(name, value)
    count, key = said.get(RETRIES_HEADER, b""), said.get(KEY_HEADER, b"")
    retry_count = int(count) if count.isdigit() and len(count) < 4 else 0
    if tenants:
        scheme, secret = key[: len(KEY_SCHEME)], key[len(KEY_SCHEME) :].strip()
        # Of another scheme nothing that any key has.
        digest = hashlib.sha256(secret).hexdigest() if scheme.lower() == KEY_SCHEME else ""
        tenant = tenants.get(digest)
        return NO_KEY if tenant is None else Caller(tenant, retry_count)
    name = said.get(TENANT_HEADER, b"").strip()
    if len(name) > TENANT_LIMIT:
        return LONG_TENANT
    return Caller(name.decode("latin-1"), retry_count)
