"""The description of the gateway says what it does: what fits it is taken, what does not is refused."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.gateway.engine_fields import CHAT, COMPLETIONS, ENGINE_FIELDS
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayLimits
from twofold.live.gateway.openai_requests import GenerationRequest, Problem, read_request
from twofold.live.gateway.openapi import OPENAPI_PATH, REFUSALS, body_schema, description
from twofold.policy.gate.settings import Beliefs

LIMITS, MODEL = GatewayLimits(), "m"
SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "object": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
}
ANYTHING = st.one_of(
    *SCALARS.values(),
    *(st.text(max_size=4), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=2),
)


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """All that fits, of the parts of JSON Schema that the description uses."""
    if not schema:
        return ANYTHING
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*map(values_of, schema["anyOf"]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of(*(_of_kind(kind, schema) for kind in kinds))


def _of_kind(kind: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "string":
        return st.text(min_size=schema.get("minLength", 0), max_size=20)
    if kind == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if kind == "array":
        items = values_of(schema["items"])
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)
    if kind == "number":
        bounds = schema.get("minimum"), schema.get("maximum")
        return st.one_of(st.floats(*bounds, allow_nan=False, allow_infinity=False), st.integers(*bounds))
    if kind == "object" and "properties" in schema:
        parts = {name: values_of(each) for name, each in schema["properties"].items()}
        needed = {name: parts.pop(name) for name in schema["required"]}
        return st.fixed_dictionaries(needed, optional=parts)
    return SCALARS[kind]


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value does, by the same parts."""
    if "enum" in schema:
        return any(_kind_of(each) is _kind_of(value) and each == value for each in schema["enum"])
    if "anyOf" in schema:
        return any(fits(value, each) for each in schema["anyOf"])
    if not schema:
        return True
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(_fits_kind(value, kind, schema) for kind in kinds)


def _kind_of(value: Any) -> type:
    return float if type(value) is int else type(value)  # one number, to JSON


def _fits_kind(value: Any, kind: str, schema: Mapping[str, Any]) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str) and len(value) >= schema.get("minLength", 0)
    if kind == "integer":
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())  # one number, to JSON
        return whole and schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if kind == "number":
        return type(value) in (int, float) and schema["minimum"] <= value <= schema["maximum"]
    if kind == "array":
        most = schema.get("maxItems", len(value)) if isinstance(value, list) else 0
        sized = isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= most
        return sized and all(fits(each, schema["items"]) for each in value)
    return isinstance(value, dict) and all(
        fits(value[name], each) if name in value else name not in schema.get("required", ())
        for name, each in schema.get("properties", {}).items()
    )


def judged(path: str, engine: str, body: Any) -> GenerationRequest | Problem:
    return read_request(path, json.dumps(body).encode(), LIMITS, ENGINE_FIELDS[engine])


@pytest.mark.parametrize("engine", ["openai", "transformers", "vllm"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@given(data=st.data())
def test_what_fits_the_description_is_taken(path: str, engine: str, data: st.DataObject) -> None:
    schema = body_schema(path, MODEL, LIMITS, ENGINE_FIELDS[engine])
    body = data.draw(values_of(schema))
    assert isinstance(judged(path, engine, body), GenerationRequest), body


def test_a_count_that_is_written_as_a_fraction_is_that_count() -> None:
    read = judged(COMPLETIONS, "vllm", {"prompt": "x", "max_tokens": 16.0, "n": 2.0})
    assert isinstance(read, GenerationRequest) and read.output_limit_tokens == 32
    assert read.fields["max_tokens"] == 16 and type(read.fields["max_tokens"]) is int
    assert isinstance(judged(COMPLETIONS, "vllm", {"prompt": "x", "max_tokens": 16.5}), Problem)
    ids = judged(COMPLETIONS, "vllm", {"prompt": [[1.0, 2], [3]]})
    assert isinstance(ids, GenerationRequest) and str(ids.fields["prompt"]) == "[[1, 2], [3]]"
    assert isinstance(judged(COMPLETIONS, "vllm", {"prompt": [1.5]}), Problem)


@pytest.mark.parametrize("engine", ["openai", "transformers", "vllm"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@given(data=st.data())
def test_what_does_not_fit_is_refused_and_names_its_field(
    path: str, engine: str, data: st.DataObject
) -> None:
    schema = body_schema(path, MODEL, LIMITS, ENGINE_FIELDS[engine])
    body = data.draw(values_of(schema))
    judging = [name for name, each in schema["properties"].items() if each and name != "model"]
    name = data.draw(st.sampled_from([*judging, "no-such-field"]))
    value = data.draw(ANYTHING)
    said = judged(path, engine, {**body, name: value})
    described = name in schema["properties"] and fits(value, schema["properties"][name])
    if name == "messages" or (name == "no-such-field" and value is None):
        return  # of a message more is taken than is described; nothing is asked by null
    assert isinstance(said, GenerationRequest) == described, (name, value)
    if isinstance(said, Problem):
        assert said.status == 400 and said.field == name and str(said.status) in map(str, REFUSALS)


def test_the_gateway_serves_it_and_it_is_what_openapi_says(tmp_path: Path, stub_engines: Any) -> None:
    for library in ("uvicorn", "aiohttp"):
        pytest.importorskip(library, reason="needs the extra [live]: `make extras`")
    from tests.live.test_gateway import configured, gateway

    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = replace(configured(tmp_path, [engine]), engine="transformers")
            async with gateway(config) as served, served.client.get(served.url + OPENAPI_PATH) as answer:
                assert answer.status == 200
                told = await answer.json()
                assert told == json.loads(json.dumps(description(config)))
                for path in told["paths"]:
                    async with served.client.get(served.url + path) as read:
                        wanted = (405, "POST") if path in (CHAT, COMPLETIONS) else (200, None)
                        assert (read.status, read.headers.get("allow")) == wanted

    asyncio.run(scenario())


def test_what_it_says_of_keys_and_classes_is_what_is_set() -> None:
    config = GatewayConfig("127.0.0.1", 1, (), Beliefs(1.0, 1.0), "log")
    assert "security" not in description(config)
    headers = {each["name"] for each in description(config)["paths"][CHAT]["post"]["parameters"]}
    assert "x-tenant" in headers and "x-twofold-class" not in headers
    keyed = description(replace(config, keys_file="keys"))
    assert keyed["security"]
    headers = {each["name"] for each in keyed["paths"][CHAT]["post"]["parameters"]}
    assert "x-tenant" not in headers
