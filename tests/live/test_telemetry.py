"""What the gateway says of its requests: a line and a count for each that ended; nobody waits for them."""

import asyncio
import hashlib
import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.outcomes import outcome_of
from tests.live.test_admin import KEY, added, until_serves
from tests.live.test_admin import Admin as AdminOf
from tests.live.test_gateway import STREAM, configured, gateway, until
from twofold.live.gateway.gateway import admin_server
from twofold.live.gateway.gateway_config import GatewayAdmin, GatewayKey, GatewayLimits, GatewayReplica
from twofold.live.gateway.replays import read_gate_log
from twofold.live.processes import free_port

ENGINES_PAGE = b"# TYPE vllm:running gauge\nvllm:running 2\n"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def value_of(page: str, sample: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith(sample + " ")]
    return float(line.rpartition(" ")[2])


def test_each_request_is_one_private_line_apart_from_probes(tmp_path: Path, stub_engines: Any) -> None:
    path = tmp_path / "requests.jsonl"

    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = replace(configured(tmp_path, [engine]), requests_log=str(path))
            async with gateway(config) as served:
                named = {"x-request-id": "mine-1", "x-tenant": "them"}
                async with served.client.post(
                    served.url + "/v1/completions", json=STREAM, headers=named
                ) as answer:
                    await answer.read()
                assert (await served.ask({"prompt": "whole", "max_tokens": 4}))[0] == 200
                assert (await served.ask(b"no json"))[0] == 400
                engine.status = 500
                assert (await served.ask(STREAM))[0] == 502
                page = (await get(served, "/metrics"))[1]
                assert value_of(page, "twofold_retries_total") == 1

    asyncio.run(scenario())
    first, whole, unread, failed = lines_of(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (first["request_id"], first["tenant"], first["outcome"], first["status"]) == (
        *("mine-1", "them", "finished", 200),
    )
    assert (first["model"], first["replica"], first["attempts"]) == ("model-0", "replica-0", 1)
    assert first["path"] == unread["path"] == "/v1/completions"
    assert first["output_tokens"] == 4 and 0 < first["ttft_s"] <= first["e2e_s"] < 5
    assert datetime.fromisoformat(first["at"]).utcoffset() is not None
    assert (whole["input_tokens"], whole["output_tokens"], whole["ttft_s"]) == (3, 4, None)
    assert (unread["outcome"], unread["status"], unread["attempts"]) == ("refused", 400, 0)
    assert (failed["outcome"], failed["status"], failed["reason"]) == ("failed", 502, "error")
    assert failed["attempts"] == 2 and failed["request_id"].startswith("req-")


async def get(served: Any, path: str, headers: Any = None) -> tuple[int, str]:
    async with served.client.get(served.url + path, headers=headers) as answer:
        return answer.status, await answer.text()


def test_counters_need_a_key_where_there_are_keys_and_name_tenants_to_the_controller_alone(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            config = configured(tmp_path, [engine])
            async with gateway(config) as served:
                await served.ask(STREAM)
                status, page = await get(served, "/metrics")
                answered = 'twofold_requests_total{class="default",outcome="finished",code="200",reason=""}'
                assert status == 200 and value_of(page, answered) == 1
                assert value_of(page, "twofold_replicas_ready") == 1
                assert value_of(page, 'twofold_ttft_seconds_count{class="default"}') == 1
            digest = hashlib.sha256(b"k").hexdigest()
            kept = replace(
                config,
                port=free_port(),
                keys=(GatewayKey("them", digest),),
                admin=GatewayAdmin(free_port(), "secret"),
            )
            async with gateway(kept) as served, admin_server(kept, served.driver):
                assert (await get(served, "/metrics"))[0] == 401
                await served.client.post(
                    served.url + "/v1/completions", json=STREAM, headers={"authorization": "Bearer k"}
                )
                status, page = await get(served, "/metrics", {"authorization": "Bearer k"})
                assert (status, value_of(page, "twofold_replicas")) == (200, 1) and "tenant" not in page
                admin = AdminOf(kept, served.client)
                await until_serves(admin)
                async with served.client.get(f"{admin.url}/metrics", headers=KEY) as answer:
                    page = await answer.text()
                    assert answer.content_type == "text/plain"
                assert value_of(page, 'twofold_tenant_requests_total{tenant="them"}') == 1
                async with served.client.get(f"{admin.url}/metrics") as answer:
                    assert answer.status == 401

    asyncio.run(scenario())


def test_r_146_first_tokens_and_failures_are_counted_by_where_clients_are(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], gateway(configured(tmp_path, [engine])) as served:
            path = served.url + "/v1/completions"
            for zone, seconds in (("eu-west", 0.0), ("ap-south", 0.3)):
                engine.gap_s = seconds
                async with served.client.post(path, json=STREAM, headers={"x-twofold-zone": zone}) as answer:
                    assert answer.status == 200 and await answer.read()
            await engine.kill()
            async with served.client.post(path, json=STREAM, headers={"x-twofold-zone": "eu-west"}) as answer:
                assert answer.status >= 500
            _, page = await get(served, "/metrics")
            counted = "twofold_client_zone_requests_total"
            assert value_of(page, f'{counted}{{zone="eu-west",outcome="finished"}}') == 1
            assert value_of(page, f'{counted}{{zone="ap-south",outcome="finished"}}') == 1
            failed = [line for line in page.splitlines() if line.startswith(f'{counted}{{zone="eu-west"')]
            assert len(failed) == 2  # the one that was answered, and the one that was not
            bucket = 'twofold_client_zone_ttft_seconds_bucket{zone="%s",le="0.2"}'
            assert value_of(page, bucket % "eu-west") == 1 and value_of(page, bucket % "ap-south") == 0

    asyncio.run(scenario())


@asynccontextmanager
async def counting_engine(page: bytes) -> AsyncIterator[int]:
    """Something that answers whatever is asked with a page of counters."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(page)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + page)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_engines_counters_pass_through_with_their_replica_and_a_dead_one_holds_nobody_up(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        config = replace(configured(tmp_path, []), admin=GatewayAdmin(free_port(), "secret"))
        async with (
            counting_engine(ENGINES_PAGE) as port,
            gateway(config) as served,
            admin_server(config, served.driver),
        ):
            admin = AdminOf(config, served.client)
            await until_serves(admin)
            await admin.tell(added(0, port), added(1, free_port()))  # nobody is at the second
            async with served.client.get(f"{admin.url}/metrics/engines", headers=KEY) as answer:
                page = await answer.text()
            assert page == '# TYPE vllm:running gauge\nvllm:running{replica="r0"} 2\n'

    asyncio.run(scenario())


def test_the_log_of_requests_takes_so_much_of_a_disk_and_no_more(tmp_path: Path, stub_engines: Any) -> None:
    path = tmp_path / "requests.jsonl"

    async def scenario() -> None:
        async with stub_engines(1) as [engine]:
            limits = GatewayLimits(log_limit_bytes=2000, log_file_count=2)
            config = replace(configured(tmp_path, [engine], limits=limits), requests_log=str(path))
            async with gateway(config) as served:
                for _ in range(3):
                    await asyncio.gather(*(served.ask(b"no json") for _ in range(20)))
                    await until(lambda: path.stat().st_size == 0 or path.stat().st_size < 2000)

    asyncio.run(scenario())
    files = sorted(file.name for file in tmp_path.glob("requests.jsonl*"))
    assert files == ["requests.jsonl", "requests.jsonl.1", "requests.jsonl.head"]
    assert all(line["status"] == 400 for line in lines_of(tmp_path / "requests.jsonl.1"))


def test_an_idle_gateway_writes_a_line_a_minute_and_its_replay_has_every_probe(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as engines, gateway(configured(tmp_path, engines)) as served:
            began = (tmp_path / "events.jsonl").stat().st_size
            turns = served.driver.gate.view
            await until(lambda: len(read_probes(served)) > 10, 5)
            assert turns.counts.ignored == 0
            assert (tmp_path / "events.jsonl").stat().st_size - began < 600  # the replicas' arrival

    def read_probes(served: Any) -> list[int]:
        return [number for turn in served.driver.log._quiet.turns for number in turn]

    asyncio.run(scenario())
    [run] = read_gate_log(tmp_path / "events.jsonl").runs
    assert sum('"ProbeAnswered"' in line for line in run.entries) >= 4


def test_a_replica_without_a_name_has_the_services_in_its_lines() -> None:
    from twofold.live.gateway.request_log import line_of

    outcome = outcome_of()
    assert json.loads(line_of(outcome, None, "service"))["model"] == "service"
    there = GatewayReplica("r", "127.0.0.1", 1, "/some/folder/sha256-12", 1)
    assert json.loads(line_of(outcome, there, "service"))["model"] == "sha256-12"


@pytest.mark.parametrize("odd", ['"', "\\", "\n", "\u2028", "\ud800", "}", "a,b"])
def test_a_line_is_json_whatever_clients_and_engines_call_themselves(odd: str) -> None:
    from twofold.live.gateway.request_log import line_of

    outcome = outcome_of(ttft_s=1e-7, e2e_s=1e20, usd=1e-9)
    outcome.request_id = outcome.tenant = outcome.class_name = odd
    outcome.path = outcome.reason = outcome.replica_id = outcome.zone = odd
    outcome.tiers_s = {odd: 0.1234567}
    for replica in (None, GatewayReplica("r", "127.0.0.1", 1, f"/some/{odd}", 1)):
        said = json.loads(line_of(outcome, replica, odd))
        keys = ("request_id", "path", "tenant", "class", "model", "reason", "replica", "zone")
        assert {said[key] for key in keys} == {odd}
        assert (said["tiers_s"], said["ttft_s"], said["e2e_s"]) == ({odd: 0.123457}, 0.0, 1e20)


def test_what_a_request_is_counted_and_logged_with_is_little(tmp_path: Path) -> None:
    """Processor time alone, which other work stretches little; all of it: `python -m bench gateway_logs`."""
    from twofold.live.gateway.counters import Counters
    from twofold.live.gateway.request_log import RequestLog
    from twofold.live.gateway.telemetry import Telemetry
    from twofold.live.line_file import LineFile
    from twofold.policy.gate.events import RequestArrived, Send

    count, meters, arrived = 3000, Counters(()), RequestArrived(5, 9, "them")

    async def scenario() -> float:
        log = RequestLog(LineFile(tmp_path / "requests.jsonl", 1 << 30, 2), {}, "m")
        told = Telemetry([meters.saw, log.saw])
        began_s = time.process_time()
        for number in range(count):
            told.arrives(("id", "/v1/completions"), arrived, 1.0)
            told.decided(Send(number, "a", 1), 1.0)
            told.started(number, 1.1)
            told.ended(number, "a", 200, (3, 4), 1.5)
        took_s = time.process_time() - began_s
        log.stop()
        return took_s

    took_s = asyncio.run(scenario())
    assert len(lines_of(tmp_path / "requests.jsonl")) == count
    assert took_s / count < 100e-6  # 8 µs where it was measured


def test_a_mistake_in_one_line_loses_no_other_flush_and_the_log_closes(tmp_path: Path) -> None:
    from twofold.live.gateway.request_log import RequestLog
    from twofold.live.line_file import LineFile

    async def scenario() -> None:
        log = RequestLog(LineFile(tmp_path / "requests.jsonl", 1 << 20, 2), {}, "m")
        good, bad = (outcome_of(request_id=name) for name in ("good", "bad"))
        bad.at_s = float("nan")
        log.saw(good)
        log.saw(bad)
        with pytest.raises(ValueError):
            log.stop()
        again = RequestLog(LineFile(tmp_path / "again.jsonl", 1 << 20, 2), {}, "m")
        again.saw(bad)
        with pytest.raises(ValueError):
            again._flush()
        again.saw(good)
        again.stop()

    asyncio.run(scenario())
    for name in ("requests", "again"):
        assert [line["request_id"] for line in lines_of(tmp_path / f"{name}.jsonl")] == ["good"]


def test_a_busy_log_tells_which_lines_there_are_a_few_times_a_second_and_at_its_end(tmp_path: Path) -> None:
    from twofold.live.chain_check import check_chained
    from twofold.live.chain_head import read_head
    from twofold.live.chained_file import ChainedFile
    from twofold.live.gateway.request_log import FLUSH_COUNT, RequestLog

    path, key, count = tmp_path / "requests.jsonl", b"k" * 32, 3 * FLUSH_COUNT + 1

    async def scenario() -> None:
        log = RequestLog(ChainedFile(path, 1 << 20, 2, key), {}, "m")
        for number in range(count):
            log.saw(outcome_of(request_id=str(number)))
        assert len(lines_of(path)) == count - 1  # the last one waits
        head, checked = read_head(path), check_chained(path, key)
        assert head is not None and head.number == 0  # they are ahead of it, and vouched for by their seals
        assert not checked.broken and checked.number == count - 1
        log.stop()
        head = read_head(path)
        assert head is not None and head.number == count

    asyncio.run(scenario())
