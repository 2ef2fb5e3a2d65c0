"""What clients see of engines: their text, not their names, oddities or mistakes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_gateway import PATH, STREAM, Gateway, configured, gateway

SECRET = "/secret/path/of/the model"
ASKED = {"prompt": "once upon", "max_tokens": 4}


def with_engine(tmp_path: Path, stub_engines: Any, scenario: Any, **config: Any) -> None:
    async def main() -> None:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], **config)) as served,
        ):
            await scenario(engine, served)

    asyncio.run(main())


def test_no_answer_tells_what_the_engine_calls_its_model(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        for name in ("model-0", "/srv/models/model-0@main", 'a "model": "b\\'):
            engine.engines_name = name
            for asked in (STREAM, ASKED):
                status, body = await served.ask(asked)
                assert status == 200 and b"model-0" not in body and b'"model": "default"' in body
                assert json.dumps(name).encode() not in body
        engine.status, engine.said = 400, json.dumps({"error": {"message": "model-0 has no `x`"}}).encode()
        status, body = await served.ask(ASKED)
        assert status == 400 and json.loads(body)["error"]["message"] == "default has no `x`"

    with_engine(tmp_path, stub_engines, scenario)


@pytest.mark.parametrize("status", [204, 302, 404, 429, 500, 999])
def test_a_status_that_no_answer_has_is_the_replicas_failure(
    tmp_path: Path, stub_engines: Any, status: int
) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        engine.status = status
        for asked in (STREAM, ASKED):
            code, body = await served.ask(asked)
            assert code == 502 and json.loads(body)["error"]["code"] == "replica_failed"

    with_engine(tmp_path, stub_engines, scenario)


@pytest.mark.parametrize("said", [b"", b"<html>", b"[1]", b"[" * 100_000, b'{"a": 1'])
def test_a_body_that_is_no_answer_is_the_replicas_failure(
    tmp_path: Path, stub_engines: Any, said: bytes
) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        engine.said, engine.content_type = said, "text/plain; x=\u00e9"
        code, body = await served.ask(ASKED)
        assert code == 502 and json.loads(body)["error"]["code"] == "replica_failed"

    with_engine(tmp_path, stub_engines, scenario)


def test_a_stream_that_ends_in_the_midst_of_an_event_has_not_ended_well(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        engine.odd_end = True
        _, body = await served.ask(STREAM)
        assert b"replica_failed" in body and b"[DONE]" not in body and body.count(b'{"te') == 4
        assert (await served.state())["counts"]["finished"] == 0

    with_engine(tmp_path, stub_engines, scenario)


def test_only_the_model_that_is_served_is_found(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        status, body = await served.ask({**ASKED, "model": "gpt-5"})
        assert status == 404 and json.loads(body)["error"]["code"] == "model_not_found"
        assert not engine.requests
        for name, found in (("default", 200), ("other", 404)):
            async with served.client.get(f"{served.url}/v1/models/{name}") as answer:
                assert answer.status == found

    with_engine(tmp_path, stub_engines, scenario)


def test_each_answer_carries_the_id_of_its_request(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario(_engine: Any, served: Gateway) -> None:
        for given, kept in (("mine-1", True), ("with spaces", False), ("x" * 65, False)):
            headers = {"x-request-id": given}
            for asked in (ASKED, {"prompt": 3}):
                async with served.client.post(served.url + PATH, json=asked, headers=headers) as answer:
                    said = answer.headers["x-request-id"]
                    assert (said == given) is kept and said

    with_engine(tmp_path, stub_engines, scenario)


def test_what_neither_context_nor_cache_holds_is_never_sent(tmp_path: Path, stub_engines: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [train]: `make extras`")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))

    async def scenario(engine: Any, served: Gateway) -> None:
        for words, limit, status in ((10, 4, 200), (90, 4, 400), (10, 200, 400), (40, None, 200)):
            asked: dict[str, Any] = {"prompt": "a " * words}
            if limit is not None:
                asked["max_tokens"] = limit
            code, body = await served.ask(asked)
            assert code == status, (words, limit)
            if status == 400:
                assert json.loads(body)["error"]["code"] == "context_length_exceeded"
        assert [each[2]["max_tokens"] for each in engine.requests] == [4, 80 - 40], "what room there is"
        status, _ = await served.ask({"prompt": "a " * 60, "max_tokens": 20})  # 120 bytes, 60 tokens
        assert status == 200
        status, body = await served.ask({"prompt": "a " * 60, "max_tokens": 21})
        assert status == 400 and b"60 tokens of prompt and 21 of answer exceed a replica's" in body

    file = str(tmp_path / "tokenizer.json")
    with_engine(tmp_path, stub_engines, scenario, context_tokens=100, cache_tokens=80, tokenizer=file)


def test_without_a_tokenizer_the_length_of_a_prompt_decides(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        status, body = await served.ask({"prompt": "x" * 48_000, "max_tokens": 4})
        assert status == 400 and b"exceed a replica's cache of 8192 tokens" in body
        assert not engine.requests

    with_engine(tmp_path, stub_engines, scenario, cache_tokens=8192)


def test_what_tools_take_of_the_cache_counts_and_half_letters_harm_nobody(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario(engine: Any, served: Gateway) -> None:
        message = {"role": "user", "content": "hi"}
        tools = [{"type": "function", "function": {"description": "word " * 9000}}]
        status, body = await served.ask(
            {"messages": [message], "tools": tools, "max_tokens": 4}, "/v1/chat/completions"
        )
        assert status == 400 and json.loads(body)["error"]["code"] == "context_length_exceeded"
        status, _ = await served.ask(b'{"prompt": "' + b"\\ud800 " * 9000 + b'", "max_tokens": 4}')
        assert status == 400 and not engine.requests

    with_engine(tmp_path, stub_engines, scenario, cache_tokens=4096)
