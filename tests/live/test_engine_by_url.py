"""Engines behind a URL: by TLS, with a key and a path of their own, as gateway and controller ask them."""

import asyncio
import json
import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")

from tests.live.test_gateway import PATH, STREAM, configured, gateway
from tests.openai_service import Certificate, Service, served, server_tls
from twofold.core.errors import FileError
from twofold.live.control.engine_checks import EngineClient, Health, until_it_answers
from twofold.live.control.engines import EngineSettings, engine_of
from twofold.live.control.observed import Watched, watch, watched_url
from twofold.live.control.service import address_of
from twofold.live.gateway.gateway_config import (
    GatewayConfig,
    GatewayReplica,
    read_gateway_config,
    write_gateway_config,
)
from twofold.live.server_urls import server_url

SECRET = "sk-7f3a91c2d0"
OPENAI = engine_of("openai")


class Seen:
    """What a server by TLS was shown: a handshake for each connection, with the name that it was asked by."""

    def __init__(self, certificate: Certificate) -> None:
        self.names: list[str | None] = []
        self.context = server_tls(certificate)
        self.context.sni_callback = self._named

    def _named(self, _: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        self.names.append(name)


def behind(service: Service, authority: Path | None) -> EngineSettings:
    url = f"{service.url.replace('127.0.0.1', 'localhost')}{service.prefix}/v1"
    trusted = str(authority) if authority else ""
    return EngineSettings("", "", 1, 0, 0, "cpu", "openai", 16, "", url, "first", "OURS", trusted)


def config_of(folder: Path, engine: EngineSettings, **more: Any) -> GatewayConfig:
    at = server_url(engine.url)
    replica = address_of("replica-0", engine, at.host, at.port, 8)
    return replace(configured(folder, [], **more), replicas=(replica,))


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", SECRET)


@pytest.mark.usefixtures("keyed")
def test_requests_go_by_tls_on_one_connection_with_the_key_below_the_path(
    tmp_path: Path, certificate: Certificate
) -> None:
    seen = Seen(certificate)

    async def scenario(config: GatewayConfig) -> None:
        async with gateway(config) as through:
            for _ in range(3):
                status, body = await through.ask(STREAM)
                assert status == 200 and body.count(b"data: ") == 5 and SECRET.encode() not in body
            assert SECRET not in json.dumps(await through.state())

    with served(Service(key=SECRET, prefix="/team/a"), seen.context) as service:
        config = config_of(tmp_path, behind(service, certificate.authority))
        asyncio.run(scenario(config))
    assert service.paths == [f"/team/a{PATH}"] * 3
    assert seen.names == ["localhost"], "one handshake, by name: the connection is used again"
    assert SECRET not in write_gateway_config(config) and "OURS" in write_gateway_config(config)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    assert logs and SECRET not in logs


@pytest.mark.usefixtures("keyed")
def test_a_certificate_that_nobody_vouches_for_is_not_sent_a_request(
    tmp_path: Path, certificate: Certificate
) -> None:
    async def scenario(config: GatewayConfig) -> None:
        async with gateway(config) as through:
            status, body = await through.ask(STREAM)
            assert status == 502 and b"replica_failed" in body
            async with asyncio.timeout(5):
                while (await through.state())["replicas"]["replica-0"]["in_flight"]:
                    await asyncio.sleep(0.01)

    with served(Service(key=SECRET), server_tls(certificate)) as service:
        asyncio.run(scenario(config_of(tmp_path, behind(service, None))))
    assert service.asked == []


def test_a_key_that_is_missing_stops_the_gateway_before_it_serves(tmp_path: Path) -> None:
    replica = GatewayReplica("r", "localhost", 443, "m", 8, tls=True, key_variable="TWOFOLD_NO_SUCH_KEY")
    path = tmp_path / "gateway.json"
    for told, says in [
        (replica, "`TWOFOLD_NO_SUCH_KEY` holds no key"),
        (replace(replica, key_variable="", authorities=str(tmp_path)), "holds no certificates"),
        (replace(replica, key_variable="", prefix="team"), "`prefix` of r is the beginning"),
    ]:
        path.write_text(write_gateway_config(replace(configured(tmp_path, []), replicas=(told,))))
        with pytest.raises(FileError, match=says):
            read_gateway_config(path)


@pytest.mark.usefixtures("keyed")
def test_the_controller_asks_it_the_same_way_and_by_chat_where_there_are_no_completions(
    certificate: Certificate,
) -> None:
    async def scenario(service: Service) -> Watched:
        engine = behind(service, certificate.authority)
        replica, client, changed = (
            watched_url("r", engine, "v", time.monotonic()),
            EngineClient(),
            asyncio.Event(),
        )
        try:
            task = asyncio.create_task(watch(replica, client, changed.set))
            await asyncio.wait_for(changed.wait(), 20)
            task.cancel()
            assert await client.health(replica.base, OPENAI) is Health.WELL
            service.key = "another"
            assert await client.completes(replica.base, "first") == "status 401"
            said = await until_it_answers(client, replica.base, OPENAI, "first", time.monotonic() + 0.3)
            assert said == "status 401"
        finally:
            await client.close()
        return replica

    told = Service(apis=("chat/completions",), key=SECRET, prefix="/p", streams=False)
    with served(told, server_tls(certificate)) as service:
        replica = asyncio.run(scenario(service))
    assert (
        replica.answers
        and replica.base == server_url(service.url.replace("127.0.0.1", "localhost") + "/p").base
    )
    assert service.asked[0] == {
        "model": "first",
        "max_tokens": 1,
        "stream": False,
        "messages": [{"role": "user", "content": "import os"}],
    }


def test_a_replica_whose_key_is_missing_says_so_and_is_not_asked() -> None:
    engine = EngineSettings("", "", 1, 0, 0, kind="openai", url="https://h/v1", key_variable="NO_SUCH_KEY")

    async def scenario() -> None:
        client, replica = EngineClient(), watched_url("r", engine, "v", time.monotonic())
        await watch(replica, client, lambda: None)
        await client.close()
        assert "`NO_SUCH_KEY` holds no key" in replica.trouble and not replica.answers

    asyncio.run(scenario())
