"""Who is cut off while the gateway decides, and attempts that the gate counts on and nobody began."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_turns import with_driver
from twofold.live.gateway import gateway_driver
from twofold.live.gateway.attempts import Opened, Race
from twofold.live.gateway.gateway_app import GatewayApp
from twofold.live.gateway.gateway_config import GatewayConfig
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.openai_requests import GenerationRequest
from twofold.live.gateway.upstream import Upstream, UpstreamFailed
from twofold.policy.gate.settings import Beliefs


@pytest.mark.parametrize("heard", [False, True])
def test_who_is_cut_off_before_it_hears_its_decision_is_told_so_and_holds_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    async def reached(*_: object) -> None:
        return None

    monkeypatch.setattr(gateway_driver, "connect_failure", reached)

    async def scenario(driver: GateDriver) -> None:
        config = GatewayConfig("127.0.0.1", 9, (*driver.replicas.values(),), Beliefs(1e-4, 1e-3), "")
        told: list[dict[str, Any]] = []
        body = {"type": "http.request", "body": b'{"prompt": "x"}', "more_body": False}

        async def receive() -> dict[str, Any]:
            return body

        async def send(message: dict[str, Any]) -> None:
            told.append(message)

        app = GatewayApp(driver, Upstream(1.0), config)
        scope = {"path": "/v1/completions", "method": "POST", "headers": []}
        task = asyncio.create_task(app(scope, receive, send))
        while not driver._inbox:
            await asyncio.sleep(0)
        if heard:
            driver.settle()  # decided, and its task has not run since
        task.cancel()
        await task
        assert told[0]["status"] == 503 and b"shutting_down" in told[1]["body"]
        assert driver.state()["in_flight"] == 0 and driver.state()["counts"]["left"] == heard
        await app.upstream.close()

    with_driver(tmp_path, scenario)


def test_an_attempt_that_nobody_began_is_a_failed_one() -> None:
    async def main() -> None:
        async def opened(*_: object) -> Opened:
            raise AssertionError

        race = Race(opened, cast(GenerationRequest, None), lambda *_: None)
        with pytest.raises(UpstreamFailed):
            await race.next()

    asyncio.run(main())
