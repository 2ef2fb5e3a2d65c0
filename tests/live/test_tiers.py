"""CPU tiers over HTTP: their servers are asked within their limits, slow ones are named, dead ones spared."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")

from aiohttp import web

from tests.live.test_gateway import QUICK, STREAM, Gateway, configured, gateway, until
from tests.live.test_overflow import spec_of
from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.app.loop_settings import serve_settings
from twofold.app.loop_tiers import tiers_measured
from twofold.app.sources import load
from twofold.catalog.catalog import load_catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.scenario import parse_scenario
from twofold.contracts.spec.supply import Supply
from twofold.core.data import to_data
from twofold.core.errors import TwofoldError
from twofold.live.control.status import ServiceStatus, TierStatus
from twofold.live.gateway.gateway_config import (
    GatewayConfig,
    GatewayReplica,
    read_gateway_config,
    write_gateway_config,
)
from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.perf.constants import load_constants
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import GateSettings, TierSettings
from twofold.policy.gate.tiers import replica_ids
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks, tallied_run
from twofold.report.service import status_lines
from twofold.twin.serving.fleet_types import FleetResult

WORK_S = 0.05


@dataclass
class LookupServer:
    """A lookup's server. Change its fields to change what it does with the requests that come next."""

    port: int = 0
    work_s: float = 0.0
    status: int = 200
    answer: Any = None  # what it says; None: no body
    at_work: int = 0
    most_at_work: int = 0
    lost: int = 0  # clients that left
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def look_up(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await asyncio.sleep(self.work_s)
        except asyncio.CancelledError:
            self.lost += 1
            raise
        finally:
            self.at_work -= 1
        body = b"" if self.answer is None else json.dumps(self.answer).encode()
        return web.Response(status=self.status, body=body, content_type="application/json")


@asynccontextmanager
async def lookups(count: int, **told: Any) -> AsyncIterator[list[LookupServer]]:
    """So many servers on ports of their own, at the path /look-up."""
    servers, runners = [LookupServer(**told) for _ in range(count)], []
    try:
        for server in servers:
            app = web.Application()
            app.router.add_post("/look-up", server.look_up)
            runner = web.AppRunner(app, handler_cancellation=True)
            await runner.setup()
            runners.append(runner)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            server.port = runner.addresses[0][1]
        yield servers
    finally:
        for runner in runners:
            await runner.cleanup()


def behind(
    config: GatewayConfig, tiers: dict[str, list[LookupServer]], limit: int = 1, **told: Any
) -> GatewayConfig:
    """The same gateway behind tiers of these servers."""
    settings = tuple(
        TierSettings(name, replica_ids(name, len(servers)), limit, **told) for name, servers in tiers.items()
    )
    there = tuple(
        GatewayReplica(own, "127.0.0.1", server.port, "", limit, prefix="/look-up")
        for each, servers in zip(settings, tiers.values(), strict=True)
        for own, server in zip(each.replica_ids, servers, strict=True)
    )
    gate = replace(config.gate, tiers=settings)
    requests_log = str(Path(config.log).with_name("requests.jsonl"))
    return replace(config, gate=gate, tier_servers=there, requests_log=requests_log)


async def page_of(through: Gateway) -> str:
    async with through.client.get(f"{through.url}/metrics") as answer:
        return str(await answer.text())


def test_r_083_a_lookup_is_passed_its_answer_taken_over_and_its_latency_told(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], lookups(1) as [documents], lookups(1) as [tokens]:
            documents.answer = {"prompt": "found: a castle. once upon", "model": "not its to say"}
            documents.work_s, tokens.work_s, tokens.status = WORK_S, 0.01, 204
            config = behind(configured(tmp_path, [engine]), {"documents": [documents], "tokens": [tokens]})
            async with gateway(config) as through:
                for _ in range(20):
                    status, _ = await through.ask(STREAM)
                    assert status == 200
                assert documents.asked[0] == {**STREAM, "model": "default"}
                assert tokens.asked[0]["prompt"] == documents.answer["prompt"]
                assert engine.requests[0][2]["prompt"] == documents.answer["prompt"]
                assert engine.requests[0][2]["model"] == "model-0"
                state, page = await through.state(), await page_of(through)
                told = state["tiers"]["documents"]
                assert told["passed"] == 20 and WORK_S <= told["s_p95"] < 1.0 and told["waiting"] == 0
                assert 'twofold_tier_seconds_count{tier="documents"} 20' in page
                assert 'twofold_tier_places{tier="tokens"} 1' in page
                assert 'twofold_tier_bottleneck{tier="documents"} 0' in page
                await until(lambda: not through.driver.gate.view.tiered)

    asyncio.run(scenario())
    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert len(lines) == 20
    for line in lines:
        took = line["tiers_s"]
        assert took.keys() == {"documents", "tokens"} and took["documents"] >= WORK_S
        assert sum(took.values()) <= line["ttft_s"] <= line["e2e_s"]
    (tmp_path / "gateway").mkdir()
    (tmp_path / "requests.jsonl").rename(tmp_path / "gateway" / "requests.jsonl")
    [measured] = tiers_measured(tmp_path, ["documents"], "")
    own = sorted(line["tiers_s"]["documents"] for line in lines)
    assert (measured.count, measured.p95_s, measured.is_bottleneck) == (20, own[18], False)
    [run] = read_gate_log(tmp_path / "events.jsonl").runs
    gate = Gate(run.settings, run.beliefs)
    assert first_difference(gate, map(entry_from_line, run.entries)) is None, "a replay decides the same"


def test_a_servers_limit_holds_and_others_wait_in_line(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], lookups(2, work_s=WORK_S) as servers:
            config = behind(configured(tmp_path, [engine], limit=64), {"lookup": servers}, limit=2)
            async with gateway(config) as through:
                answers = await asyncio.gather(*(through.ask(STREAM) for _ in range(12)))
                assert [status for status, _ in answers] == [200] * 12
                assert [each.most_at_work for each in servers] == [2, 2]
                [tier] = through.driver.gate.tiers
                assert tier.wait_s > 0.0 and tier.passed_count == 12

    asyncio.run(scenario())


def test_a_slowed_server_is_named_as_the_bottleneck(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(2) as engines, lookups(1) as [server]:
            config = behind(configured(tmp_path, engines), {"lookup": [server]}, p95_slo_s=0.5)
            async with gateway(config) as through:
                await asyncio.gather(*(through.ask(STREAM) for _ in range(4)))
                assert (await through.state())["bottleneck"] is None
                server.work_s = 0.3
                asked = [asyncio.create_task(through.ask(STREAM)) for _ in range(8)]
                await until(lambda: through.driver.gate.tiers[0].passed_count >= 7)
                state, page = await through.state(), await page_of(through)
                told = state["tiers"]["lookup"]
                assert state["bottleneck"] == "lookup"
                assert told["waiting"] >= 1 and told["wait_s_mean"] > 0.3
                assert 'twofold_tier_bottleneck{tier="lookup"} 1' in page
                await asyncio.gather(*asked)
                statuses.update(state["tiers"]["lookup"])

    statuses: dict[str, Any] = {}
    asyncio.run(scenario())
    tier = TierStatus("lookup", 1, 1, statuses["waiting"], statuses["s_p95"], 0.5, is_bottleneck=True)
    figures = ("", True, True, (), 1.0, 0.0, 0.0, None, None, 0, 0, "v", ())
    [*_, line] = status_lines(ServiceStatus("s", *figures, tiers=(tier,)))
    assert line.startswith("  tier lookup   1 of 1 places taken") and line.endswith("of 500   the bottleneck")


def test_a_dead_server_costs_nobody_an_answer_and_all_dead_are_said(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], lookups(1) as [alive]:
            async with lookups(1) as [dead]:
                pass
            config = behind(
                configured(tmp_path, [engine]), {"lookup": [dead, alive]}, limit=4, wait_s_max=0.3
            )
            async with gateway(config) as through:
                for _ in range(6):
                    assert (await through.ask(STREAM))[0] == 200
                [tier] = through.driver.gate.tiers
                assert 1 <= tier.failed_count <= 3 and tier.servers[0].circuit.until_s is not None
                alive.status = 500
                codes = [(await through.ask(STREAM))[0] for _ in range(5)]
                assert set(codes) <= {502, 503} and not through.driver.gate.view.tiered
                alive.status = 200
                await until(lambda: alive.at_work == 0)
                async with asyncio.timeout(10.0):
                    while (await through.ask(STREAM))[0] != 200:
                        pass

    asyncio.run(scenario())


def test_what_does_not_fit_any_more_is_a_fault_of_the_tier(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], lookups(1) as [server]:
            config = behind(configured(tmp_path, [engine], context_tokens=64), {"lookup": [server]})
            async with gateway(config) as through:
                for wrong in ({"prompt": "word " * 400}, {"prompt": {"no": "prompt"}}):
                    server.answer = wrong
                    assert (await through.ask(STREAM))[0] == 502
                server.answer = ["not an object"]
                assert (await through.ask(STREAM))[0] == 200
                assert len(engine.requests) == 1

    asyncio.run(scenario())


def test_a_client_that_leaves_frees_its_place(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        async with stub_engines(1) as [engine], lookups(1, work_s=30.0) as [server]:
            config = behind(configured(tmp_path, [engine]), {"lookup": [server]})
            async with gateway(config) as through:
                asked = asyncio.create_task(through.ask(STREAM))
                await until(lambda: server.at_work == 1)
                asked.cancel()
                await until(lambda: server.lost == 1)
                server.work_s = 0.0
                assert (await through.ask(STREAM))[0] == 200
                assert through.driver.gate.view.counts.left == 1

    asyncio.run(scenario())


def test_a_tier_and_its_servers_are_configured_together(tmp_path: Path) -> None:
    server = LookupServer(port=9000)
    whole, path = behind(configured(tmp_path, []), {"lookup": [server]}), tmp_path / "c.json"
    path.write_text(write_gateway_config(whole))
    assert read_gateway_config(path) == whole
    for wrong in (replace(whole, tier_servers=()), replace(whole, gate=QUICK)):
        path.write_text(write_gateway_config(wrong))
        with pytest.raises(TwofoldError, match="tier_servers"):
            read_gateway_config(path)


def test_up_is_told_the_servers_of_the_spec_and_asks_for_them(tmp_path: Path) -> None:
    tier = "  before:\n    lookup: {work: 5 ms, limit: 3, urls: ['http://127.0.0.1:9001/look-up']}\n  engine:"
    [server] = serve_settings(load(spec_of(tmp_path, tier)).spec, 1.0).tier_servers
    assert (server.replica_id, server.base, server.in_flight_limit) == (
        "lookup-0",
        "http://127.0.0.1:9001/look-up",
        3,
    )
    bare = tier.replace(", urls: ['http://127.0.0.1:9001/look-up']", "")
    with pytest.raises(TwofoldError, match="has no servers here") as caught:
        serve_settings(load(spec_of(tmp_path, bare)).spec, 1.0)
    assert caught.value.exit_code == 2


# --- the spec changes both halves ---

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xL4
  before:
    lookup: {work: 100 ms, work_p95: 120 ms, p95: 20 s%s}
  classes:
    chat:
      traffic: {rate: 2 /s, peak: 3x, input: 500 tok, output: {mean: 100 tok, p95: 350 tok}}
      slo: {ttft_p95: 30 s, tpot_p95: 100 ms}
"""
AT_PEAK = "horizon: 240 s\nwarm_up: 24 s\ntraffic: {level: peak, scale: 1.6x}"


def rehearsal(more: str) -> PoolTask:
    """The gate and the world of the spec with more said of its tier."""
    catalog, constants = load_catalog(), load_constants()
    spec = parse_spec(SPEC % more, "s.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 8, 0), None)
    plan = service_plan(choose_serving(spec.services[0], context), context)
    tables = RehearsalTables(catalog, constants, Supply(), catalog.model)
    [task] = pool_tasks(plan, RehearsalSettings(parse_scenario(AT_PEAK, "s.yaml")), tables)
    return task


def in_the_twin(task: PoolTask) -> FleetResult:
    return tallied_run(task.world, task.traffic, 1.0)[0]


async def live(folder: Path, stub_engines: Any, gate: GateSettings) -> tuple[list[LookupServer], float]:
    """Twelve requests at once through the gate's own tier: its servers, and the mean wait for a place."""
    [told] = gate.tiers
    async with stub_engines(1) as [engine], lookups(len(told.replica_ids), work_s=WORK_S) as servers:
        config = behind(configured(folder, [engine], limit=64), {told.name: servers})
        there = tuple(replace(each, in_flight_limit=told.in_flight_limit) for each in config.tier_servers)
        config = replace(config, gate=gate, tier_servers=there)
        async with gateway(config) as through:
            answers = await asyncio.gather(*(through.ask(STREAM) for _ in range(12)))
            assert [status for status, _ in answers] == [200] * 12
            [tier] = through.driver.gate.tiers
            return servers, tier.wait_s / tier.passed_count


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (", replicas: 1", ", replicas: 3"),
        (", replicas: 1, cores: 3, limit: 1", ", replicas: 1, cores: 3, limit: 3"),
    ],
    ids=["servers", "limit"],
)
def test_r_175_servers_and_limits_of_the_spec_change_live_and_the_twin_alike(
    less: str, more: str, tmp_path: Path, stub_engines: Any
) -> None:
    few, many = rehearsal(less), rehearsal(more)
    [scarce], [ample] = (in_the_twin(task).figures.tiers for task in (few, many))
    assert scarce.wait_s_mean > 3 * ample.wait_s_mean and scarce.p95_s > 2 * ample.p95_s
    assert scarce.is_bottleneck and not ample.is_bottleneck
    waits = []
    for task in (few, many):
        folder = tmp_path / f"{len(waits)}"
        folder.mkdir()
        servers, wait_s = asyncio.run(live(folder, stub_engines, task.gate.settings))
        [told] = task.gate.settings.tiers
        assert len(servers) == len(told.replica_ids)
        assert [each.most_at_work for each in servers] == [told.in_flight_limit] * len(servers)
        waits.append(wait_s)
    assert waits[0] > 2 * waits[1]
    assert few.gate.digest != many.gate.digest


def test_a_gate_without_tiers_has_the_digest_that_it_had() -> None:
    """Of a gate before there were tiers: the same fields, without theirs."""
    plain = rehearsal(", replicas: 1").gate
    bare = replace(plain, settings=replace(plain.settings, tiers=()))
    told = to_data(bare)
    del told["settings"]["tiers"]
    rounded = json.loads(json.dumps(told), parse_float=lambda text: float(f"{float(text):.9g}"))
    text = json.dumps(rounded, sort_keys=True, separators=(",", ":"))
    assert bare.digest == hashlib.sha256(text.encode()).hexdigest() != plain.digest
