"""What the gateway takes and answers, as an OpenAPI description made of the tables that judge requests.

A field that the gateway passes on unread is described as anything: its engine is who judges it.
"""

from collections.abc import Mapping
from typing import Any

from twofold.live.gateway.engine_fields import (
    CHAT,
    ENGINE_FIELDS,
    LIKELIEST,
    NEUTRAL,
    NUMBERS,
    STANDARD,
    UNANSWERED,
    WHOLE,
    EngineFields,
)
from twofold.live.gateway.gateway_config import HEALTH_PATH, GatewayConfig, GatewayLimits
from twofold.live.gateway.openai_requests import COUNT_FIELDS, LIMIT_FIELDS, TENANT_HEADER, TENANT_LIMIT
from twofold.live.gateway.request_facts import CLASS, DEADLINE, DEADLINE_S_MAX, SESSION, VALUE_LIMIT, ZONE

Schema = dict[str, Any]
OPENAPI_PATH, METRICS_PATH, MODELS_PATH = "/openapi.json", "/metrics", "/v1/models"
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
ID: Schema = {"type": "integer", "minimum": 0}
REFUSALS: Mapping[int, str] = {
    400: "Not as described here, or longer than the model's context or a replica's cache",
    401: "The key is missing or unknown",
    404: "No such model",
    408: "The body did not come in time",
    413: "The body is too large",
    422: "Replicas died of this prompt",
    429: "Beyond a limit, or no room: ask again after `retry-after` seconds",
    502: "Every replica that was tried failed: ask again",
    503: "No replica is there, or the gateway ends: ask again after `retry-after` seconds",
}


def description(config: GatewayConfig) -> Schema:
    """Of this gateway, with its model, its engine's fields and its limits."""
    engine = ENGINE_FIELDS[config.engine]
    asked = {path: {"post": _generation(path, config, engine)} for path in STANDARD}
    paths: dict[str, Any] = {
        **asked,
        MODELS_PATH: {"get": _read("The model that is served")},
        f"{MODELS_PATH}/{config.model_name}": {"get": _read("The same alone")},
        HEALTH_PATH: {"get": _read("Whether a replica is healthy", 503, keyed=False)},
        METRICS_PATH: {"get": _read("Counters in Prometheus' text format", kind="text/plain")},
        OPENAPI_PATH: {"get": _read("This description")},
    }
    has_keys = bool(config.keys or config.keys_file)
    return {
        "openapi": "3.1.0",
        "info": {"title": config.model_name, "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        **({"security": [{"key": []}, {}]} if has_keys else {}),
    }


def body_schema(path: str, model: str, limits: GatewayLimits, engine: EngineFields) -> Schema:
    """Of the bodies that this path takes."""
    fields = {name: _field(name, engine) for name in (*STANDARD[path], *engine.extensions)}
    fields |= {
        "model": {"enum": [model, ""]},
        "stream": {"type": ["boolean", "null"]},
        **{name: _count(limits.output_tokens_max) for name in LIMIT_FIELDS[path]},
        **{name: _count(limits.answers_max) for name in COUNT_FIELDS if fields.get(name) == {}},
    }
    if path == CHAT:
        fields["messages"] = {"type": "array", "minItems": 1, "items": MESSAGE}
        if fields["tools"] == {}:
            fields["tools"] = {"anyOf": [NULL, {"type": "array", "items": {"type": "object"}}]}
    else:
        fields["prompt"] = _prompt(limits, engine)
    return {
        "type": "object",
        "properties": {name: fields[name] for name in sorted(fields)},
        "required": ["messages" if path == CHAT else "prompt"],
        "additionalProperties": False,
    }


def _field(name: str, engine: EngineFields) -> Schema:
    """Anything; of what the engine would not heed, what asks for nothing."""
    if name in engine.unsupported and name not in UNANSWERED:
        return {"enum": [None, *NEUTRAL.get(name, ())]}
    if engine.likeliest and name in LIKELIEST:
        return {"enum": [None, *LIKELIEST[name]]}
    if name in NUMBERS:
        least, most = NUMBERS[name]
        return {"type": ["integer" if name in WHOLE else "number", "null"], "minimum": least, "maximum": most}
    if name == "stop":
        return {"anyOf": [NULL, TEXT, {"type": "array", "items": TEXT}]}
    return {}


def _count(most: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": 1, "maximum": most}


def _prompt(limits: GatewayLimits, engine: EngineFields) -> Schema:
    one = {**TEXT, "minLength": 1}
    if engine.one_text:
        return one
    several = {"type": "array", "minItems": 1, "maxItems": limits.answers_max}
    ids = {"type": "array", "minItems": 1, "items": ID}
    return {"anyOf": [one, {**several, "items": TEXT}, ids, {**several, "items": ids}]}


PART: Schema = {"type": "object", "properties": {"type": TEXT}, "required": ["type"]}
MESSAGE: Schema = {
    "type": "object",
    "properties": {"role": TEXT, "content": {"anyOf": [TEXT, {"type": "array", "items": PART}]}},
    "required": ["role", "content"],  # an assistant's that only calls tools may have none
}
ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": TEXT,
                "type": TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def _generation(path: str, config: GatewayConfig, engine: EngineFields) -> Schema:
    body = body_schema(path, config.model_name, config.limits, engine)
    answer = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}
    return {
        "summary": "A chat's next message" if path == CHAT else "What follows a text",
        "parameters": _headers(config),
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "The answer, whole or as events", "content": answer},
            **{str(status): _error(said) for status, said in REFUSALS.items()},
        },
    }


def _headers(config: GatewayConfig) -> list[Schema]:
    names = [each.name for each in config.gate.classes if each.name]
    text = {**TEXT, "maxLength": VALUE_LIMIT}
    said = {
        SESSION: ("Requests of one session stay at one replica, where sessions are routed", text),
        ZONE: ("Where the client is", text),
        DEADLINE: (
            "Seconds until the last token is of use",
            {"type": "number", "exclusiveMinimum": 0, "maximum": DEADLINE_S_MAX},
        ),
        **({CLASS: ("One of the service's classes", {"enum": names})} if names else {}),
    }
    if not (config.keys or config.keys_file):
        said[TENANT_HEADER] = ("For whom is asked", {**TEXT, "maxLength": TENANT_LIMIT})
    return [
        {"name": name.decode(), "in": "header", "required": False, "description": told, "schema": schema}
        for name, (told, schema) in said.items()
    ]


def _read(said: str, *more: int, kind: str = "application/json", keyed: bool = True) -> Schema:
    schema = TEXT if kind.startswith("text/") else {"type": "object"}
    told = {"description": said, "content": {kind: {"schema": schema}}}
    refused = {"401": _error(REFUSALS[401])} if keyed else {}
    return {"summary": said, "responses": {"200": told, **{str(status): told for status in more}, **refused}}


def _error(said: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": said, "content": content}
