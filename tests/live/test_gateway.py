"""The gateway before stand-ins for engines: what passes, what is refused, and what a dying replica costs."""

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

import aiohttp

from twofold.live.gateway.gateway import gateway_server
from twofold.live.gateway.gateway_config import (
    GatewayAdmin,
    GatewayConfig,
    GatewayKey,
    GatewayLimits,
    GatewayReplica,
    write_gateway_config,
)
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.live.gateway.upstream import CLOSED_WITHIN_S
from twofold.live.processes import free_port
from twofold.live.sse import DONE
from twofold.policy.gate.events import (
    Probe,
    RequestArrived,
    ResponseEnded,
    ResponseStarted,
    Send,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import (
    Beliefs,
    ClassSettings,
    GateSettings,
    PoisonSettings,
    QueueSettings,
    RetryBudgetSettings,
)

PATH = "/v1/completions"
STREAM = {"prompt": "once upon", "stream": True, "max_tokens": 4}
QUICK = GateSettings(open_s=0.2, probe_every_s=0.1)
START_TIMEOUT_S = 60.0


def configured(folder: Path, engines: Sequence[Any], limit: int = 8, **more: Any) -> GatewayConfig:
    """A gateway for these engines on a free port."""
    replicas = tuple(
        GatewayReplica(f"replica-{number}", "127.0.0.1", engine.port, f"model-{number}", limit)
        for number, engine in enumerate(engines)
    )
    beliefs = Beliefs(input_token_s=0.001, output_token_s=0.01)
    settings = {"gate": QUICK, **more}
    return GatewayConfig(
        "127.0.0.1", free_port(), replicas, beliefs, str(folder / "events.jsonl"), **settings
    )


@dataclass
class Gateway:
    """A gateway that serves, and a client of it."""

    url: str
    client: Any
    driver: GateDriver

    async def ask(self, body: Any, path: str = PATH) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(self.url + path, data=data) as answer:
            return answer.status, await answer.read()

    async def state(self) -> Any:
        async with self.client.get(self.url + "/state") as answer:
            return await answer.json()


@asynccontextmanager
async def gateway(config: GatewayConfig) -> AsyncIterator[Gateway]:
    """In this process: uvicorn, the application and the gate, as the process of its own runs them."""
    async with gateway_server(config) as (server, driver), aiohttp.ClientSession() as client:
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield Gateway(f"http://127.0.0.1:{config.port}", client, driver)
        finally:
            server.should_exit = True
            await serving


async def until(happened: Callable[[], Any], timeout_s: float = 20.0) -> None:
    """Wait for what another task or process is about to do."""
    async with asyncio.timeout(timeout_s):
        while not happened():
            await asyncio.sleep(0.01)


def test_a_stream_passes_with_its_events_unchanged(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], gateway(configured(tmp_path, [engine])) as served:
            asked = {**STREAM, "model": "default", "user": "somebody", "n": 1, "temperature": 0.5}
            status, through = await served.ask(asked)
            async with served.client.post(f"http://127.0.0.1:{engine.port}{PATH}", json=STREAM) as direct:
                assert (status, through) == (200, await direct.read() + DONE)
            passed = engine.requests[0][2]
            assert passed == {**STREAM, "model": "model-0", "n": 1, "temperature": 0.5}
            counts = (await served.state())["counts"]
            assert (counts["arrived"], counts["finished"]) == (1, 1)

    asyncio.run(scenario())


def test_a_plain_answer_passes_and_a_limit_is_stated_where_the_client_states_none(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        limits = GatewayLimits(default_output_tokens=77)
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], limits=limits)) as served,
        ):
            status, body = await served.ask(
                {"messages": [{"role": "user", "content": "hi"}]}, "/v1/chat/completions"
            )
            assert status == 200 and json.loads(body)["choices"] == [{"text": "x"}]
            assert engine.requests[0][1] == "/v1/chat/completions"
            assert engine.requests[0][2]["max_tokens"] == 77
            await served.ask(STREAM)
        [run] = read_gate_log(tmp_path / "events.jsonl").runs
        events = [entry_from_line(line).event for line in run.entries]
        told = [type(event) for event in events if isinstance(event, ResponseStarted | ResponseEnded)]
        # Nobody saw when the answer in one piece began; of the stream it is known.
        assert told == [ResponseEnded, ResponseStarted, ResponseEnded]

    asyncio.run(scenario())


def test_requests_that_are_held_are_answered_in_turn_and_one_that_waits_too_long_is_refused(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        classes = (ClassSettings("", wait_s_max=1.0, queue_limit_count=2),)
        holding = replace(QUICK, queue=QueueSettings(), classes=classes)
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], limit=1, gate=holding)) as served,
        ):
            answers = await asyncio.gather(*(served.ask(STREAM) for _ in range(3)))
            assert [status for status, _ in answers] == [200] * 3
            engine.hang = True
            first = asyncio.create_task(served.ask(STREAM))
            await until(lambda: served.driver.gate.view.requests)
            leaves = asyncio.create_task(served.ask(STREAM))
            await until(lambda: served.driver.gate.view.held)
            leaves.cancel()
            await until(lambda: served.driver.state()["counts"]["left"] == 1)
            status, body = await served.ask(STREAM)
            assert (status, json.loads(body)["error"]["code"]) == (503, "expired")
            first.cancel()
            await until(lambda: not served.driver.gate.view.requests)
            assert served.driver.state()["held"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"[1]", 400, None),
        (b'{"stream": true}', 400, "prompt"),
        (b'{"prompt": "a", "stream": 1}', 400, "stream"),
        (b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": "4"}', 400, "max_tokens"),
        (b'{"prompt": "' + b"a" * 5000 + b'"}', 413, None),
        (b'{"prompt": "' + b"a" * 500_000 + b'"}', 413, None),  # more than is read of it
    ],
)
def test_what_cannot_be_passed_is_refused_in_the_protocols_own_form(
    tmp_path: Path, stub_engines: Any, body: bytes, status: int, field: str | None
) -> None:
    async def scenario() -> None:
        limits = GatewayLimits(body_limit_bytes=4096)
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], limits=limits)) as served,
        ):
            got, text = await served.ask(body)
            error = json.loads(text)["error"]
            assert (got, error["param"]) == (status, field)
            assert error["type"] == "invalid_request_error" and error["message"]
            assert engine.requests == []

    asyncio.run(scenario())


def test_pages_answer_and_others_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = configured(tmp_path, [], model_name="assistant")
        async with gateway(config) as served:

            async def status(method: str, path: str) -> int:
                async with served.client.request(method, served.url + path) as answer:
                    await answer.read()
                    return int(answer.status)

            assert await status("GET", "/health") == 503  # no replica at all
            assert await status("GET", "/nowhere") == 404
            assert await status("GET", PATH) == await status("POST", "/state") == 405
            async with served.client.get(served.url + "/v1/models") as answer:
                assert [model["id"] for model in (await answer.json())["data"]] == ["assistant"]

    asyncio.run(scenario())


def test_a_replica_that_gets_no_requests_is_not_counted_as_healthy(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as engines, gateway(configured(tmp_path, engines)) as served:

            async def healthy_count() -> tuple[int, int]:
                async with served.client.get(served.url + "/health") as answer:
                    return answer.status, (await answer.json())["healthy_replicas"]

            assert await healthy_count() == (200, 2)
            first, second = served.driver.gate.view.replicas.values()
            first.ejected_until_s = 9e9
            assert await healthy_count() == (200, 1)
            second.draining = True
            assert await healthy_count() == (503, 0)

    asyncio.run(scenario())


def test_with_keys_only_the_health_page_is_open(tmp_path: Path) -> None:
    """`/state` names replicas and counts of all tenants: without a key it told them to everybody."""
    keys = (GatewayKey("blue", hashlib.sha256(b"k-blue").hexdigest()),)

    async def scenario() -> None:
        async with gateway(configured(tmp_path, [], keys=keys)) as served:
            told = {}
            for path in ("/health", "/state", "/v1/models", "/nowhere"):
                for key in ("", "Bearer k-red", "Bearer k-blue"):
                    headers = {"authorization": key} if key else {}
                    async with served.client.get(served.url + path, headers=headers) as answer:
                        told.setdefault(path, []).append(answer.status)
                        assert (b"counts" in await answer.read()) == (path == "/state" and "blue" in key)
            assert told["/health"] == [503] * 3 and told["/nowhere"] == [404] * 3  # no replica, no page
            assert told["/state"] == told["/v1/models"] == [401, 401, 200]

    asyncio.run(scenario())


def test_a_full_fleet_refuses_with_429_and_a_dead_one_with_503(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], limit=1)) as served,
        ):
            engine.gap_s = 0.2
            first = asyncio.create_task(served.ask(STREAM))
            await until(lambda: engine.requests)
            async with served.client.post(served.url + PATH, json=STREAM) as answer:
                assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
                assert (await answer.json())["error"]["type"] == "rate_limit_error"
            assert (await first)[0] == 200
            await engine.kill()
            await until(lambda: served.driver.state()["replicas"]["replica-0"]["circuit"] != "closed")
            async with served.client.post(served.url + PATH, json=STREAM) as answer:
                assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
            await engine.start()
            await until(lambda: served.driver.state()["replicas"]["replica-0"]["circuit"] == "closed")
            assert (await served.ask(STREAM))[0] == 200

    asyncio.run(scenario())


def test_a_request_counts_for_the_tenant_whose_key_it_carries(tmp_path: Path, stub_engines: Any) -> None:
    keys = (GatewayKey("blue", hashlib.sha256(b"k-blue").hexdigest()),)

    async def scenario() -> None:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], keys=keys)) as served,
        ):
            told = []
            for key in ("Bearer k-blue", "Bearer k-red", "k-blue"):
                headers = {"authorization": key, "x-tenant": "red"}
                async with served.client.post(served.url + PATH, json=STREAM, headers=headers) as answer:
                    told.append((answer.status, answer.headers.get("www-authenticate")))
                    await answer.read()
            assert told == [(200, None), (401, "Bearer"), (401, "Bearer")]
            assert served.driver.state()["counts"]["arrived"] == len(engine.requests) == 1

    asyncio.run(scenario())
    [run] = read_gate_log(tmp_path / "events.jsonl").runs
    events = [entry_from_line(line).event for line in run.entries]
    assert [event.tenant for event in events if isinstance(event, RequestArrived)] == ["blue"]


def test_tenants_that_wait_take_turns(tmp_path: Path, stub_engines: Any) -> None:
    policy = replace(QUICK, queue=QueueSettings())

    async def scenario() -> None:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], gate=policy)) as served,
        ):
            view = served.driver.gate.view
            asking: list[asyncio.Task[None]] = []

            async def ask(tenant: str) -> None:
                headers = {"x-tenant": tenant}
                async with served.client.post(served.url + PATH, json=STREAM, headers=headers) as answer:
                    await answer.read()

            async def come(*tenants: str, held_count: int) -> None:
                asking.extend(asyncio.create_task(ask(tenant)) for tenant in tenants)
                await until(lambda: (len(view.requests), len(view.held)) == (8, held_count))

            await ask("modest")
            engine.hang = True
            await come(*["greedy"] * 8, held_count=0)
            await come(*["greedy"] * 3, held_count=3)
            await come("modest", held_count=4)
            for task in asking[:2]:
                task.cancel()
            await until(lambda: "modest" in {request.arrival.tenant for request in view.requests.values()})
            assert {request.arrival.tenant for request in view.held.values()} == {"greedy"}
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    asyncio.run(scenario())


def test_what_clients_say_they_repeat_is_refused_beyond_its_share(tmp_path: Path, stub_engines: Any) -> None:
    policy = replace(QUICK, retry_budget=RetryBudgetSettings(0.0, 0.0, burst_count=1))

    async def scenario() -> None:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], gate=policy)) as served,
        ):
            told = []
            for said in ("0", "1", "2", "many", ""):
                headers = {"x-stainless-retry-count": said}
                async with served.client.post(served.url + PATH, json=STREAM, headers=headers) as answer:
                    told.append(answer.status)
                    await answer.read()
            assert told == [200, 200, 429, 200, 200]

    asyncio.run(scenario())


def test_a_client_that_leaves_frees_its_replica(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], gateway(configured(tmp_path, [engine])) as served:
            engine.tokens, engine.gap_s = 1000, 0.05
            async with served.client.post(served.url + PATH, json={**STREAM, "max_tokens": 1000}) as answer:
                await answer.content.readany()
                answer.close()
            await until(lambda: engine.lost_clients == 1)
            engine.hang = True
            waiting = asyncio.create_task(served.ask(STREAM))
            await until(lambda: len(engine.requests) == 2)
            waiting.cancel()
            await until(lambda: engine.lost_clients == 2)
            state = await served.state()
            assert (state["in_flight"], state["counts"]["left"]) == (0, 2)

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_let_go_and_not_held_against_its_replica(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        limits, settings = GatewayLimits(between_bytes_timeout_s=0.5), replace(QUICK, failure_limit=1)
        config = configured(tmp_path, [], limits=limits, gate=settings)
        async with stub_engines(1) as [engine]:
            config = replace(configured(tmp_path, [engine], limits=limits), gate=settings)
            async with gateway(config) as served:
                engine.tokens, engine.padding = 600, 1 << 16
                _, writer = await asyncio.open_connection("127.0.0.1", config.port)
                body = json.dumps({**STREAM, "max_tokens": 600}).encode()
                head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await until(lambda: served.driver.state()["counts"]["left"] == 1)
                state = await served.state()
                assert state["replicas"]["replica-0"]["circuit"] == "closed" and state["in_flight"] == 0
                assert (await served.ask({**STREAM, "max_tokens": 1}))[0] == 200
                writer.close()

    asyncio.run(scenario())


def test_a_body_that_never_comes_is_refused_in_time(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        limits = GatewayLimits(body_timeout_s=0.2)
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine], limits=limits)
            async with gateway(config):
                reader, writer = await asyncio.open_connection("127.0.0.1", config.port)
                writer.write(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{".encode())
                assert b" 408 " in await reader.readline()
                writer.close()
                assert engine.requests == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 500},
        {"break_after": 0, "role_first": True},  # its role was said already, but no text
        {"hang": True},
    ],
    ids=["error", "broken-before-text", "hangs"],
)
def test_what_fails_before_the_first_text_is_answered_by_another_replica(
    tmp_path: Path, stub_engines: Any, trouble: dict[str, Any]
) -> None:
    async def scenario() -> None:
        limits = GatewayLimits(first_byte_timeout_s=0.3)
        async with (
            stub_engines(2) as engines,
            gateway(configured(tmp_path, engines, limits=limits)) as served,
        ):
            for name, value in trouble.items():
                setattr(engines[0], name, value)
            status, body = await served.ask(STREAM)
            assert status == 200 and body.count(b"data: ") == 6
            assert [len(engine.requests) for engine in engines] == [1, 1]
            counts = (await served.state())["counts"]
            assert (counts["finished"], counts["gave_up"]) == (1, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("promised_s", "status"), [(100.0, 200), (None, 502)])
def test_who_was_promised_an_answer_is_waited_for_as_promised_and_only_others_as_always(
    promised_s: float | None, status: int, tmp_path: Path, stub_engines: Any
) -> None:
    """Its first text comes later than the time of those who were promised nothing."""

    async def scenario() -> None:
        limits = GatewayLimits(first_byte_timeout_s=0.2, between_bytes_timeout_s=0.2)
        gate = replace(QUICK, classes=(ClassSettings("reports", e2e_slo_s=promised_s),))
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], limits=limits, gate=gate)) as served,
        ):
            engine.gap_s = 0.5
            assert (await served.ask({**STREAM, "max_tokens": 2}))[0] == status

    asyncio.run(scenario())


def test_what_fails_after_its_first_text_ends_with_an_error_in_the_stream(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as engines, gateway(configured(tmp_path, engines)) as served:
            engines[0].break_after = engines[1].break_after = 2
            status, body = await served.ask(STREAM)
            *texts, error = body.split(b"\n\n")[:-1]
            assert status == 200 and len(texts) == 2
            assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "replica_failed"
            assert sum(len(engine.requests) for engine in engines) == 1
            assert (await served.state())["counts"]["gave_up"] == 1
            engines[0].status = engines[1].status = 500
            status, body = await served.ask(STREAM)
            assert status == 502 and json.loads(body)["error"]["type"] == "server_error"

    asyncio.run(scenario())


def test_a_connection_that_was_closed_while_idle_is_not_held_against_its_replica(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        settings = replace(QUICK, failure_limit=1)  # a single failure would open the circuit
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], gate=settings)) as served,
        ):
            assert (await served.ask(STREAM))[0] == 200
            engine.close_on_next = True
            assert (await served.ask(STREAM))[0] == 200
            assert engine.closed_unasked == 1
            assert (await served.state())["replicas"]["replica-0"]["circuit"] == "closed"

    asyncio.run(scenario())


def test_each_time_a_replica_works_on_a_request_is_one_that_the_gate_sent_it(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], gateway(configured(tmp_path, [engine])) as served:
            assert (await served.ask(STREAM))[0] == 200  # from now on its connection is a used one
            engine.dies_after_s = 2 * CLOSED_WITHIN_S
            assert (await served.ask(STREAM))[0] == 502
        [run] = read_gate_log(tmp_path / "events.jsonl").runs
        effects = [effect for line in run.entries for effect in entry_from_line(line).effects]
        assert len(engine.requests) == sum(isinstance(effect, Send) for effect in effects)

    asyncio.run(scenario())


def test_one_that_dies_at_once_of_a_request_on_a_used_connection_died_of_it(
    tmp_path: Path, stub_engines: Any
) -> None:
    """The other one is the last: it is not given what may kill it too."""

    async def scenario() -> None:
        gate = replace(QUICK, poison=PoisonSettings())
        async with stub_engines(2) as engines, gateway(configured(tmp_path, engines, gate=gate)) as served:
            assert {(await served.ask(STREAM))[0] for _ in range(2)} == {200}
            before = [len(engine.requests) for engine in engines]
            for engine in engines:
                engine.on_request = partial(dies, engine)
            status, body = await served.ask({**STREAM, "prompt": "poison"})
            assert (status, json.loads(body)["error"]["code"]) == (502, "replica_failed")
            assert sum(len(engine.requests) for engine in engines) == sum(before) + 1

    def dies(engine: Any) -> None:
        engine.dies_after_s = 0.0
        engine._server.close()

    asyncio.run(scenario())


def test_what_a_replica_hears_stands_in_the_log_before(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        logged: list[int] = []
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine])
            engine.on_request = lambda: logged.append(Path(config.log).read_text("utf-8").count('"Send"'))
            async with gateway(config) as served:
                for _ in range(3):
                    await served.ask(STREAM)
                await asyncio.gather(*(served.ask(STREAM) for _ in range(5)))
            assert len(logged) == 8
            assert all(sends >= number for number, sends in enumerate(logged, 1))

    asyncio.run(scenario())


def test_r_056_no_request_goes_to_a_killed_replica_after_a_second(tmp_path: Path, stub_engines: Any) -> None:
    """Under load from eight clients; and the log of it, replayed, decides the same again (INV-15)."""

    async def scenario() -> None:
        config = configured(tmp_path, [], gate=GateSettings())
        async with stub_engines(2) as engines:
            config = replace(configured(tmp_path, engines, limit=16), gate=GateSettings())
            async with gateway(config) as served:
                for engine in engines:
                    engine.gap_s = 0.01
                statuses: list[int] = []

                async def client() -> None:
                    while time.monotonic() < ends_s:
                        status, body = await served.ask(STREAM)
                        statuses.append(502 if b'"error"' in body else status)

                ends_s = time.monotonic() + 3.0
                clients = [asyncio.create_task(client()) for _ in range(8)]
                await until(lambda: len(engines[0].requests) > 20)
                killed_s, before = time.monotonic(), len(engines[0].requests)
                await engines[0].kill()
                await asyncio.gather(*clients)
                assert statuses.count(200) >= len(statuses) - 8  # no more than were in flight there
                assert 200 in statuses[-8:] and len(engines[0].requests) == before
        entries = [entry_from_line(line) for line in read_gate_log(tmp_path / "events.jsonl").runs[0].entries]
        sent_s = [
            entry.now_s
            for entry in entries
            for effect in entry.effects
            if isinstance(effect, Send) and effect.replica_id == "replica-0"
        ]
        assert len(sent_s) > 20 and max(sent_s) < killed_s + 1.0
        assert any(isinstance(effect, Probe) for entry in entries for effect in entry.effects)

    asyncio.run(scenario())
    [run] = read_gate_log(tmp_path / "events.jsonl").runs
    assert run.stopped and run.lost_lines == 0
    assert first_difference(Gate(run.settings, run.beliefs), map(entry_from_line, run.entries)) is None
    # The replay can fail: under other beliefs or with a forgotten entry it does.
    assert (
        first_difference(
            Gate(replace(run.settings, attempt_limit=1, open_s=9.0), run.beliefs),
            map(entry_from_line, run.entries),
        )
        is not None
    )


# --- the process of its own ---------------------------------------------------------------------------------


@asynccontextmanager
async def process(config: GatewayConfig, folder: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`python -m twofold.live.gateway.gateway`, answering; killed at the end."""
    path = folder / "gateway.json"
    path.write_text(write_gateway_config(config), "utf-8")
    child = subprocess.Popen(
        [sys.executable, "-m", "twofold.live.gateway.gateway", str(path)], stderr=subprocess.PIPE
    )
    try:
        async with aiohttp.ClientSession() as client:

            async def answers() -> bool:
                try:
                    async with client.get(f"http://127.0.0.1:{config.port}/state"):
                        return True
                except aiohttp.ClientError:
                    assert child.poll() is None, child.stderr and child.stderr.read()
                    return False

            async with asyncio.timeout(START_TIMEOUT_S):
                while not await answers():
                    await asyncio.sleep(0.05)
        yield child
    finally:
        child.kill()
        await asyncio.to_thread(child.communicate)


async def waited(child: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(child.wait, 30.0)


def test_sigterm_lets_answers_finish_and_exits_with_0(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine])
            async with process(config, tmp_path) as child, aiohttp.ClientSession() as client:
                engine.gap_s = 0.2
                url = f"http://127.0.0.1:{config.port}{PATH}"
                async with client.post(url, json=STREAM) as answer:
                    await answer.content.readany()
                    child.send_signal(signal.SIGTERM)
                    rest = await answer.read()
                assert b'"length"' in rest and b'"error"' not in rest
                assert await waited(child) == 0
                with pytest.raises(aiohttp.ClientConnectorError):
                    await client.post(url, json=STREAM)
        [run] = read_gate_log(tmp_path / "events.jsonl").runs
        assert run.stopped

    asyncio.run(scenario())


def test_a_controller_that_waits_is_answered_at_the_end_and_two_signals_leave_no_traceback(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            admin = GatewayAdmin(free_port(), "secret")
            config = replace(configured(tmp_path, [engine]), admin=admin)
            async with process(config, tmp_path) as child, aiohttp.ClientSession() as client:
                url, key = f"http://127.0.0.1:{admin.port}/effects", {"authorization": "Bearer secret"}
                waiting = asyncio.create_task(client.get(f"{url}?wait_s=20", headers=key))
                async with client.get(url, headers=key) as answer:  # the one before is there by now
                    assert answer.status == 200
                child.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
                child.send_signal(signal.SIGTERM)
                async with await waiting as answer:
                    assert (await answer.json())["effects"] == []
                assert await waited(child) == 0
                assert child.stderr is not None and child.stderr.read() == b""

    asyncio.run(scenario())


def test_what_outlasts_the_grace_is_told_so_and_the_exit_is_0_all_the_same(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine], limits=GatewayLimits(grace_s=1.0))
            async with process(config, tmp_path) as child, aiohttp.ClientSession() as client:
                engine.tokens, engine.gap_s = 1000, 0.1
                url = f"http://127.0.0.1:{config.port}{PATH}"
                async with client.post(url, json={**STREAM, "max_tokens": 1000}) as answer:
                    await answer.content.readany()
                    child.send_signal(signal.SIGTERM)
                    assert b"shutting_down" in await answer.read()
                assert await waited(child) == 0
        [run] = read_gate_log(tmp_path / "events.jsonl").runs
        assert run.stopped and any('"ClientLeft"' in line for line in run.entries)

    asyncio.run(scenario())


def test_a_gateway_that_was_stopped_for_a_moment_goes_on_and_blames_nobody(
    tmp_path: Path, stub_engines: Any
) -> None:
    """By its clock it leaps; what came meanwhile lies in the kernel."""

    async def scenario() -> None:
        async with stub_engines(2) as engines:
            config = configured(tmp_path, engines)
            async with process(config, tmp_path) as child, aiohttp.ClientSession() as client:
                for engine in engines:
                    engine.tokens, engine.gap_s = 20, 0.05
                url = f"http://127.0.0.1:{config.port}"

                async def ask() -> bytes:
                    async with client.post(url + PATH, json={**STREAM, "max_tokens": 20}) as answer:
                        return await answer.read()

                asking = [asyncio.create_task(ask()) for _ in range(4)]
                await until(lambda: sum(len(engine.requests) for engine in engines) == 4)
                child.send_signal(signal.SIGSTOP)
                await asyncio.sleep(1.5)  # longer than several probes may take, and than the answers
                child.send_signal(signal.SIGCONT)
                assert all(
                    said.endswith(DONE) and b'"error"' not in said for said in await asyncio.gather(*asking)
                )
                async with client.get(url + "/state") as answer:
                    state = await answer.json()
                assert all(each["healthy"] for each in state["replicas"].values())
                assert (state["counts"]["finished"], state["in_flight"]) == (4, 0)

    asyncio.run(scenario())


def test_a_killed_gateway_leaves_a_log_that_replays_and_starts_cold_again(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine])
            url = f"http://127.0.0.1:{config.port}{PATH}"
            sent = 0
            for _ in range(2):
                async with process(config, tmp_path) as child, aiohttp.ClientSession() as client:

                    async def ask(client: Any = client) -> None:
                        async with client.post(url, json=STREAM) as answer:
                            await answer.read()

                    engine.gap_s = 0.0
                    await asyncio.gather(*(ask() for _ in range(4)))
                    engine.gap_s = 5.0
                    left = [asyncio.create_task(ask()) for _ in range(3)]
                    await until(lambda sent=sent: len(engine.requests) == sent + 7)
                    child.kill()
                    await waited(child)
                    await asyncio.gather(*left, return_exceptions=True)
                sent += 7
        history = read_gate_log(tmp_path / "events.jsonl")
        assert len(history.runs) == 2
        for run in history.runs:
            assert not run.stopped
            assert (
                first_difference(Gate(run.settings, run.beliefs), map(entry_from_line, run.entries)) is None
            )
            effects = [effect for line in run.entries for effect in entry_from_line(line).effects]
            assert sum(isinstance(effect, Send) for effect in effects) == 7  # not one of them unlogged

    asyncio.run(scenario())


def test_a_taken_port_is_said_with_exit_2(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            path = tmp_path / "gateway.json"
            path.write_text(
                write_gateway_config(replace(configured(tmp_path, []), port=engine.port)), "utf-8"
            )
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "twofold.live.gateway.gateway", str(path), stderr=subprocess.PIPE
            )
            _, said = await child.communicate()
            assert child.returncode == 2 and b"error[E-port]" in said and str(engine.port).encode() in said

    asyncio.run(scenario())
