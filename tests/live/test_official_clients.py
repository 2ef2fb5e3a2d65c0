"""Clients as others ship them, before the gateway: `openai`, `curl`, and the bodies of `vllm bench serve`.

Each finds what it knows: answers, events and their end, usage, errors as the exceptions or codes that it has
for them. What the engine would not heed is refused with the field's name and never sent on without it.
"""

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_gateway import configured, gateway
from tests.openai_service import Service, served
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayKey

SECRET = "k-blue"
KEYS = (GatewayKey("blue", hashlib.sha256(SECRET.encode()).hexdigest()),)
MESSAGES: Any = [{"role": "user", "content": "once upon a time"}]
TEXT = "t0t1t2t3"
Scenario = Callable[[Any, Service, GatewayConfig], Awaitable[None]]


@asynccontextmanager
async def before(service: Service, folder: Path, **more: Any) -> AsyncIterator[GatewayConfig]:
    """A gateway with a key before an engine that speaks the whole protocol."""
    with served(service):
        engine = SimpleNamespace(port=urlsplit(service.url).port)
        config = replace(configured(folder, [engine], keys=KEYS), **more)
        async with gateway(config):
            yield config


def by_openai(folder: Path, scenario: Scenario, **more: Any) -> None:
    openai = pytest.importorskip("openai", reason="needs `openai`: `make extras`")

    async def main() -> None:
        service = Service()
        async with before(service, folder, **more) as config:
            url = f"http://127.0.0.1:{config.port}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key=SECRET, max_retries=0) as client:
                await scenario(client, service, config)

    asyncio.run(main())


def test_openai_reads_answers_in_one_piece(tmp_path: Path) -> None:
    async def scenario(client: Any, service: Service, config: GatewayConfig) -> None:
        [model] = [each.id async for each in client.models.list()]
        assert model == config.model_name
        chat = await client.chat.completions.create(model=model, messages=MESSAGES, max_completion_tokens=4)
        assert chat.choices[0].message.content == "whole" and chat.usage.total_tokens == 4
        text = await client.completions.create(model=model, prompt="once", max_tokens=4, temperature=0.5)
        assert text.choices[0].text == "whole"
        assert [each["model"] for each in service.asked] == ["model-0"] * 2
        assert service.asked[0]["max_completion_tokens"] == 4 and service.asked[1]["temperature"] == 0.5

    by_openai(tmp_path, scenario)


def test_openai_reads_streams_to_their_end_and_usage(tmp_path: Path) -> None:
    async def scenario(client: Any, _: Service, config: GatewayConfig) -> None:
        asked = {"model": config.model_name, "stream": True, "stream_options": {"include_usage": True}}
        chat = await client.chat.completions.create(messages=MESSAGES, max_tokens=4, **asked)
        events = [each async for each in chat]
        assert "".join(each.choices[0].delta.content for each in events if each.choices) == TEXT
        assert events[-2].choices[0].finish_reason == "length" and events[-1].usage.completion_tokens == 4
        text = await client.completions.create(prompt="once", max_tokens=4, **asked)
        events = [each async for each in text]
        assert "".join(each.choices[0].text for each in events if each.choices) == TEXT
        assert events[-1].usage.completion_tokens == 4

    by_openai(tmp_path, scenario)


def test_openai_raises_its_own_exceptions(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="needs `openai`: `make extras`")

    async def scenario(client: Any, service: Service, config: GatewayConfig) -> None:
        def ask(by: Any = client, **more: Any) -> Awaitable[Any]:
            asked = {"model": config.model_name, "prompt": "once", "max_tokens": 4, **more}
            return by.completions.create(**asked)

        with pytest.raises(openai.AuthenticationError) as unknown:
            await ask(client.with_options(api_key="k-red"))
        assert unknown.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError):
            await ask(model="another")
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(extra_body={"top_k": 5})
        assert (refused.value.param, refused.value.code) == ("top_k", "unsupported_parameter")
        assert refused.value.request_id  # by which the log has it
        assert not service.asked
        service.statuses = (500,) * 3
        with pytest.raises(openai.InternalServerError) as failed:
            await ask()
        assert failed.value.code in ("replica_failed", "no-replica")

    by_openai(tmp_path, scenario)


def test_openai_raises_that_there_is_no_room(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="needs `openai`: `make extras`")

    async def scenario(client: Any, service: Service, config: GatewayConfig) -> None:
        service.gap_s = 0.1
        asked: Any = {"model": config.model_name, "prompt": "once", "max_tokens": 8, "stream": True}
        many: list[Any] = await asyncio.gather(
            *(client.completions.create(**asked) for _ in range(9)), return_exceptions=True
        )
        [refused] = [each for each in many if isinstance(each, Exception)]
        assert isinstance(refused, openai.RateLimitError) and int(refused.response.headers["retry-after"])
        for each in many:
            if each is not refused:
                assert len([event async for event in each]) == 8

    by_openai(tmp_path, scenario)


async def curled(config: GatewayConfig, path: str, body: Any, *options: str) -> tuple[int, bytes]:
    """The status that curl saw, and what it wrote."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    words = ["-sSN", "-w", "\n%{http_code}", "-H", "content-type: application/json", *options]
    url = f"http://127.0.0.1:{config.port}{path}"
    child = await asyncio.create_subprocess_exec(
        "curl", *words, "-d", "@-", url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    written, _ = await child.communicate(json.dumps(body).encode())
    assert child.returncode == 0
    text, _, status = written.rpartition(b"\n")
    return int(status), text


def test_curl_gets_a_completion_a_stream_and_a_refusal(tmp_path: Path) -> None:
    async def main() -> None:
        async with before(Service(), tmp_path) as config:
            asked = {"model": config.model_name, "prompt": "once", "max_tokens": 4}
            key = ("-H", f"authorization: Bearer {SECRET}")
            status, body = await curled(config, "/v1/completions", asked, *key)
            assert (status, json.loads(body)["choices"][0]["text"]) == (200, "whole")
            status, body = await curled(config, "/v1/completions", {**asked, "stream": True}, *key)
            events = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
            assert status == 200 and events.pop() == b"[DONE]"
            assert "".join(json.loads(each)["choices"][0]["text"] for each in events) == TEXT
            asks_first = ("-H", "expect: 100-continue")  # as curl does with a body of a megabyte
            status, body = await curled(config, "/v1/completions", asked, *key, *asks_first)
            assert (status, json.loads(body)["choices"][0]["text"]) == (200, "whole")
            status, body = await curled(config, "/v1/chat/completions", asked)
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")

    asyncio.run(main())


# As `vllm bench serve` writes them with its backends `openai` and `openai-chat`; the options in `MORE` are
# those of its command line that it puts into every body.
BENCHED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "once", "repetition_penalty": 1.0, "max_tokens": 4, "logprobs": None},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "once"}]}],
        "max_completion_tokens": 4,
    },
}
ALWAYS = {"stream": True, "stream_options": {"include_usage": True}}
MORE = {"ignore_eos": True, "temperature": 0.0, "top_k": 20, "min_p": 0.1, "top_p": 0.9}


async def benched(config: GatewayConfig, path: str, more: Any) -> tuple[int, Any]:
    import aiohttp

    body = {"model": config.model_name, **BENCHED[path], **ALWAYS, **more}
    headers = {"authorization": f"Bearer {SECRET}", "x-request-id": "bench-0"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"http://127.0.0.1:{config.port}{path}", json=body, headers=headers) as answer,
    ):
        if answer.status != 200:
            return answer.status, (await answer.json())["error"]
        parts = (await answer.text()).strip().split("\n\n")
        assert parts.pop() == "data: [DONE]"
        return 200, [json.loads(part.removeprefix("data: ")) for part in parts]


@pytest.mark.parametrize("path", BENCHED)
@pytest.mark.parametrize("engine", ["openai", "vllm", "sglang"])
def test_the_bodies_of_vllms_bench_are_served_and_tell_usage(tmp_path: Path, path: str, engine: str) -> None:
    async def main() -> None:
        service = Service()
        async with before(service, tmp_path, engine=engine) as config:
            status, events = await benched(config, path, {} if engine == "openai" else MORE)
            assert status == 200 and len([each for each in events if each["choices"]]) == 4
            assert events[-1]["usage"]["completion_tokens"] == 4 and not events[-1]["choices"]
            [sent] = service.asked
            told = {**BENCHED[path], **ALWAYS, **({} if engine == "openai" else MORE)}
            asks_nothing = {"logprobs", *(["repetition_penalty"] if engine == "openai" else [])}
            assert sent == {
                "model": "model-0",
                **{name: value for name, value in told.items() if name not in asks_nothing},
            }

    asyncio.run(main())


@pytest.mark.parametrize("path", BENCHED)
@pytest.mark.parametrize(
    ("engine", "more", "field"),
    [
        ("openai", {"ignore_eos": True}, "ignore_eos"),
        ("openai", {"repetition_penalty": 1.1}, "repetition_penalty"),
        ("transformers", {}, "stream_options"),
        ("llama.cpp", {"repetition_penalty": 1.1}, "repetition_penalty"),
    ],
)
def test_what_the_engine_would_not_heed_of_them_is_refused_by_its_name(
    tmp_path: Path, path: str, engine: str, more: dict[str, Any], field: str
) -> None:
    async def main() -> None:
        service = Service()
        async with before(service, tmp_path, engine=engine) as config:
            status, error = await benched(config, path, more)
            assert (status, error["param"], error["code"]) == (400, field, "unsupported_parameter")
            assert not service.asked

    asyncio.run(main())
