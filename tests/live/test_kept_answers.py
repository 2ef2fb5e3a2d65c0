"""Exact repeats over HTTP: byte for byte the first answer, of one tenant, until a release."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

import aiohttp

from twofold.live.gateway.gateway import gateway_server
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayLimits, GatewayReplica
from twofold.live.gateway.kept_answers import ANSWER_BYTES_MAX, Copy, answer_key
from twofold.live.gateway.openai_requests import GenerationRequest, read_request
from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.live.processes import free_port
from twofold.policy.gate.events import ReleaseOffered
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import AnswerCacheSettings, Beliefs, GateSettings

ASKED = {"prompt": "once upon", "max_tokens": 4, "temperature": 0}
KEPT = GateSettings(answer_cache=AnswerCacheSettings())


def key_of(**said: Any) -> str:
    body = json.dumps({"prompt": "once upon", **said}).encode()
    read = read_request("/v1/completions", body, GatewayLimits())
    assert isinstance(read, GenerationRequest)
    return answer_key(read)


def test_only_what_has_one_answer_has_a_key() -> None:
    assert key_of() == key_of(temperature=0.7) == key_of(temperature=1) == key_of(seed=None) == ""
    assert key_of(temperature=0) and key_of(seed=7, temperature=1.0) and key_of(temperature=0.0)


def test_whatever_is_asked_otherwise_has_another_key() -> None:
    others = [
        key_of(temperature=0, **more)
        for more in ({}, {"max_tokens": 9}, {"stream": True}, {"stop": "."}, {"seed": 1}, {"prompt": "once"})
    ]
    assert len(set(others)) == len(others)
    assert key_of(temperature=0, max_tokens=9) == key_of(max_tokens=9, temperature=0)


def test_an_answer_that_is_too_large_is_not_held() -> None:
    copy = Copy()
    for _ in range(9):
        copy.add(b"x" * (ANSWER_BYTES_MAX // 8))
    assert copy.whole(Any, streamed=True) is None  # type: ignore[arg-type]
    assert copy.parts == []


class Service:
    """A gateway in this process, and a client of it."""

    def __init__(self, url: str, client: aiohttp.ClientSession, driver: Any) -> None:
        self.url, self.client, self.driver = url, client, driver

    async def ask(self, headers: dict[str, str] | None = None, **more: Any) -> tuple[bool, bytes]:
        """Whether it was a hit, and the answer."""
        async with self.client.post(
            self.url + "/v1/completions", json={**ASKED, **more}, headers=headers
        ) as answer:
            assert answer.status == 200
            return answer.headers.get("x-twofold-cache") == "hit", await answer.read()

    async def page(self) -> str:
        async with self.client.get(self.url + "/metrics") as answer:
            return await answer.text()


def with_service(folder: Path, engines: Any, does: Any, gate: GateSettings = KEPT) -> None:
    async def main() -> None:
        async with engines(1) as [engine]:
            replica = GatewayReplica("r0", "127.0.0.1", engine.port, "m", 8, version="one")
            port = free_port()
            config = GatewayConfig(
                "127.0.0.1", port, (replica,), Beliefs(0.001, 0.01), str(folder / "events.jsonl"), gate=gate
            )
            config = replace(config, requests_log=str(folder / "requests.jsonl"))
            async with gateway_server(config) as (server, driver), aiohttp.ClientSession() as client:
                serving = asyncio.create_task(server.serve())
                try:
                    while not server.started:
                        await asyncio.sleep(0.01)
                    await does(Service(f"http://127.0.0.1:{port}", client, driver), engine)
                finally:
                    server.should_exit = True
                    await serving

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_a_repeat_is_the_first_answer_byte_for_byte(tmp_path: Path, stub_engines: Any, stream: bool) -> None:
    async def does(service: Service, engine: Any) -> None:
        missed, first = await service.ask(stream=stream)
        engine.tokens = 2  # another answer, were it asked
        hit, second = await service.ask(stream=stream)
        assert (missed, hit) == (False, True) and first == second
        assert len(engine.requests) == 1
        fresh, third = await service.ask({"cache-control": "no-cache"}, stream=stream)
        assert not fresh and third != first
        page = await service.page()
        assert "twofold_cache_hits_total 1\n" in page
        assert f'twofold_cache_tokens_total{{direction="output"}} {4}\n' in page

    with_service(tmp_path, stub_engines, does)
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [(line["cache"], line["replica"], line["attempts"]) for line in lines] == [
        ("", "r0", 1),
        ("hit", "", 0),
        ("", "r0", 1),
    ]
    assert lines[0]["output_tokens"] == lines[1]["output_tokens"] == 4


def test_r_177_exact_repeats_are_given_to_their_own_tenant_until_a_release(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def does(service: Service, engine: Any) -> None:
        anna, bert = {"x-tenant": "anna"}, {"x-tenant": "bert"}
        await service.ask(anna)
        assert (await service.ask(anna))[0] and not (await service.ask(bert))[0]
        assert len(engine.requests) == 2 and len(service.driver.kept) == 2
        service.driver.told([(ReleaseOffered("two"), None)])
        assert service.driver.kept == {}  # the bytes too
        assert not (await service.ask(anna))[0]

    with_service(tmp_path, stub_engines, does)


def test_errors_torn_streams_and_drawn_answers_are_given_to_nobody(tmp_path: Path, stub_engines: Any) -> None:
    async def does(service: Service, engine: Any) -> None:
        engine.break_after = 2
        async with service.client.post(
            service.url + "/v1/completions", json={**ASKED, "stream": True}
        ) as torn:
            assert b"error" in await torn.read()
        engine.break_after = None
        assert not (await service.ask(stream=True))[0]
        engine.status, engine.said = 400, b"{}"
        async with service.client.post(
            service.url + "/v1/completions", json={**ASKED, "prompt": "other"}
        ) as bad:
            assert bad.status == 400
        engine.status, engine.said = 200, None
        assert not (await service.ask(prompt="other"))[0]
        await service.ask(temperature=1, prompt="drawn")
        assert not (await service.ask(temperature=1, prompt="drawn"))[0]
        assert len(service.driver.kept) == 2

    with_service(tmp_path, stub_engines, does)


def test_without_the_policy_every_repeat_goes_to_a_replica(tmp_path: Path, stub_engines: Any) -> None:
    async def does(service: Service, engine: Any) -> None:
        await service.ask()
        assert not (await service.ask())[0] and len(engine.requests) == 2

    with_service(tmp_path, stub_engines, does, GateSettings())


def test_the_log_replays_with_hits(tmp_path: Path, stub_engines: Any) -> None:
    async def does(service: Service, _: Any) -> None:
        for number in range(6):
            await service.ask(prompt=str(number % 2))

    with_service(tmp_path, stub_engines, does)
    [run] = read_gate_log(tmp_path / "events.jsonl").runs
    entries = [entry_from_line(line) for line in run.entries]
    assert sum(type(e).__name__ == "GiveAgain" for each in entries for e in each.effects) == 4
    assert first_difference(Gate(run.settings, run.beliefs), entries) is None
