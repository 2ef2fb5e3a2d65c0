"""The gateway's second server: replicas come and go while streams run, and slow effects are told once."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

import aiohttp

from tests.live.test_gateway import STREAM, configured, gateway, until
from twofold.live.gateway.gateway import admin_server
from twofold.live.gateway.gateway_config import GatewayAdmin, GatewayConfig
from twofold.live.processes import free_port

KEY = {"authorization": "Bearer secret"}


def added(number: int, port: int) -> dict[str, Any]:
    address = {"host": "127.0.0.1", "port": port, "model": "m"}
    return {"type": "ReplicaAdded", "replica_id": f"r{number}", "in_flight_limit": 4, "address": address}


def reported(**more: Any) -> dict[str, Any]:
    known = {"observed_s": 0.0, "running_count": 1, "waiting_count": 0, "kv_used_fraction": 0.5}
    return {"type": "ReplicaReported", "replica_id": "r1", **known, **more}


class Admin:
    """The controller's side, as plain requests."""

    def __init__(self, config: GatewayConfig, client: Any) -> None:
        assert config.admin is not None
        self.url, self.client = f"http://127.0.0.1:{config.admin.port}", client

    async def tell(self, *told: dict[str, Any]) -> int:
        async with self.client.post(f"{self.url}/events", json={"events": told}, headers=KEY) as answer:
            return int(answer.status)

    async def get(self, path: str) -> Any:
        async with self.client.get(self.url + path, headers=KEY) as answer:
            assert answer.status == 200
            return await answer.json()


def test_replicas_come_and_go_without_a_restart_or_a_broken_stream(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as (first, second):
            config = replace(configured(tmp_path, []), admin=GatewayAdmin(free_port(), "secret"))
            async with gateway(config) as served, admin_server(config, served.driver):
                admin = Admin(config, served.client)
                await until_serves(admin)
                assert (await served.ask(STREAM))[0] == 503
                assert await admin.tell(added(0, first.port)) == 200
                first.tokens, first.gap_s = 40, 0.01
                streaming = asyncio.create_task(served.ask({**STREAM, "max_tokens": 40}))
                await until(lambda: first.requests)
                assert await admin.tell(added(1, second.port)) == 200
                gone = {"type": "ReplicaRemoved", "replica_id": "r0"}
                assert await admin.tell(gone) == 200
                state = await admin.get("/state")
                assert state["replicas"]["r0"]["draining"] and state["replicas"]["r0"]["kept_tokens"] > 0
                assert (await served.ask(STREAM))[0] == 200  # by the second: the first drains
                status, body = await streaming
                assert status == 200 and b"t39" in body
                assert [len(first.requests), len(second.requests)] == [1, 1]
                state = await admin.get("/state")
                assert set(state["replicas"]) == {"r1"}
                assert state["replicas"]["r1"]["heard_ago_s"] < 10
                assert state["recent"]["refused_fraction"] == pytest.approx(1 / 3)
                assert state["recent"]["failed_fraction"] == 0.0

    asyncio.run(scenario())


def test_a_replica_that_comes_back_on_another_port_is_sent_requests_there(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as (first, second):
            config = replace(configured(tmp_path, []), admin=GatewayAdmin(free_port(), "secret"))
            async with gateway(config) as served, admin_server(config, served.driver):
                admin = Admin(config, served.client)
                await until_serves(admin)
                gone = {"type": "ReplicaRemoved", "replica_id": "r0"}
                await admin.tell(added(0, first.port))
                await admin.tell(gone, added(0, second.port))
                assert (await served.ask(STREAM))[0] == 200
                assert [len(first.requests), len(second.requests)] == [0, 1]

    asyncio.run(scenario())


def test_slow_effects_are_numbered_and_waited_for(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as (engine,):
            config = replace(configured(tmp_path, [engine]), admin=GatewayAdmin(free_port(), "secret"))
            async with gateway(config) as served, admin_server(config, served.driver):
                admin = Admin(config, served.client)
                await until_serves(admin)
                waiting = asyncio.create_task(admin.get("/effects?after=0&wait_s=20"))
                await engine.kill()
                told = await waiting  # the probe finds nobody: its circuit opens
                [[number, effect], *_] = told["effects"]
                assert (number, effect["type"]) == (1, "OpenCircuit")
                again = await admin.get(f"/effects?after={number}&wait_s=0")
                assert all(later > number for later, _ in again["effects"])
                assert again["incarnation"] == told["incarnation"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "told",
    [
        {"type": "RequestArrived", "input_tokens": 1, "output_limit_tokens": 1},
        {"type": "ReplicaAdded", "replica_id": "r0", "in_flight_limit": 4},
        {**added(0, 1), "in_flight_limit": 0},
        {**added(0, 1), "colour": "red"},
        {"type": "ReplicaRemoved"},
        added(0, 99_999_999),
        added(0, 0),
        {**added(0, 1), "replica_id": ""},
        {**added(0, 1), "in_flight_limit": 1 << 40},
        reported(kv_used_fraction=7.0),
        reported(running_count=-1),
        reported(observed_s=time.monotonic() + 1e6),
        {"type": "AnswerScored", "version": "v", "score": 1.5, "beside_score": 1.0},
        {"type": "AnswerScored", "version": "v", "score": 0.5, "beside_score": -0.1},
        {"type": "BeliefsChanged", "input_token_s": -1.0, "output_token_s": 0.1},
        {"type": "BeliefsChanged", "input_token_s": 0.1, "output_token_s": -0.1},
        {},
    ],
)
def test_what_is_no_event_of_the_fleet_is_refused_whole(told: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        config = replace(configured(tmp_path, []), admin=GatewayAdmin(free_port(), "secret"))
        async with gateway(config) as served, admin_server(config, served.driver):
            admin = Admin(config, served.client)
            await until_serves(admin)
            assert await admin.tell(added(1, 9), told) == 400
            assert (await admin.get("/state"))["replicas"] == {}
            assert await admin.tell(added(1, 9), reported()) == 200  # and what is one is taken
            async with served.client.get(f"{admin.url}/state") as answer:
                assert answer.status == 401
            async with served.client.post(
                f"{admin.url}/events", data=json.dumps({"events": []}), headers={"authorization": "Bearer x"}
            ) as answer:
                assert answer.status == 401

    asyncio.run(scenario())


async def until_serves(admin: Admin) -> None:
    async with asyncio.timeout(20.0):
        while True:
            try:
                await admin.get("/state")
                return
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)
