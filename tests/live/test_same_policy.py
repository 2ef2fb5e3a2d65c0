"""Each policy, changed in a scenario, changes what the gateway does and what the twin says, the same way.

The twin rehearses a small plan; the gateway, over HTTP and before stand-ins for engines, is told the gate
that `build_gate` made for that rehearsal. Where a policy looks every few seconds, it looks sooner here: which
way it pulls does not depend on that.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

import aiohttp

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.simulated import ClassFigures
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.scenario import parse_scenario
from twofold.contracts.spec.supply import Supply
from twofold.gating.build import overflow_settings
from twofold.live.gateway.gateway import gateway_server
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayReplica
from twofold.live.gateway.gateway_driver import GateDriver
from twofold.live.gateway.replays import entry_from_line, read_gate_log
from twofold.live.processes import free_port
from twofold.perf.constants import load_constants
from twofold.policy.gate.events import ReleaseOffered
from twofold.policy.gate.settings import ForecastSettings, GateSettings
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks
from twofold.twin.serving.fleet import simulate_fleet
from twofold.twin.serving.fleet_types import FleetResult

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  zones: 2
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 2 /s, input: 500 tok, output: {mean: 100 tok, p95: 350 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""
HURRIED = SPEC.replace("{mean: 100 tok, p95: 350 tok}", "{mean: 10 tok, p95: 12 tok}").replace(
    "ttft_p95: 2 s, tpot_p95: 100 ms", "e2e_p95: %s"
)
NIGHT = """\
    night:
      traffic: {%s, input: 500 tok, output: {mean: 100 tok, p95: 350 tok}}
"""
WAITED_FOR = SPEC + NIGHT % "rate: 1 /s" + "      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}\n"
BULK = SPEC + NIGHT % "tokens_per_day: 100 Mtok"  # as many, that have a day
PATH = "/v1/completions"
ASKED = {"prompt": "once upon", "stream": True, "max_tokens": 4}
Said = dict[str, str]


@dataclass
class Live:
    """A gateway that serves before stand-ins, and what came of what it was asked."""

    url: str
    client: aiohttp.ClientSession
    engines: list[Any]
    codes: list[str]  # of refusals
    log: Path
    driver: GateDriver
    waited_s: float = 0.0  # by those who wait for answers

    async def ask(self, headers: Said | None = None, **body: Any) -> None:
        async with self.client.post(self.url + PATH, json={**ASKED, **body}, headers=headers) as answer:
            data = await answer.read()
            if answer.status != 200:
                self.codes.append(json.loads(data)["error"]["code"])

    async def many(self, count: int, headers: Said | None = None) -> None:
        await asyncio.gather(*(self.ask(headers) for _ in range(count)))

    def effects(self, name: str) -> int:
        [run] = read_gate_log(self.log).runs
        told = [each for line in run.entries for each in entry_from_line(line).effects]
        return sum(type(each).__name__ == name for each in told)


@asynccontextmanager
async def served(
    task: PoolTask,
    folder: Path,
    engines: list[Any],
    limit: int,
    changed: Callable[[GateSettings], GateSettings],
    variants: tuple[str, ...] = (),
    hosted: GatewayReplica | None = None,
) -> AsyncIterator[Live]:
    """The gateway in this process, told the gate of a rehearsal; engines stand in two zones by turns, and in
    the pools that the gate knows."""
    pools = [name for name, _ in task.gate.in_flight_limits]
    smaller = {each.smaller_model for each in task.gate.settings.classes}.pop()
    variants = variants or (
        *([""] * (len(engines) - 1)),
        smaller,
    )  # the last stands in for it, if it is named
    replicas = tuple(
        GatewayReplica(
            f"r{n}",
            "127.0.0.1",
            engine.port,
            f"model-{n}",
            limit,
            zone=f"zone-{n % 2 + 1}",
            pool=pools[n % len(pools)],
            variant=variants[n],
            version="new" if n == 4 else "base",
        )
        for n, engine in enumerate(engines)
    )
    log = folder / "events.jsonl"
    gate, port = changed(task.gate.settings), free_port()
    config = GatewayConfig("127.0.0.1", port, replicas, task.gate.beliefs, str(log), gate=gate)
    config = replace(config, gate_digest=task.gate.digest, overflow=hosted)
    async with gateway_server(config) as (server, driver), aiohttp.ClientSession() as client:
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield Live(f"http://127.0.0.1:{port}", client, engines, [], log, driver)
        finally:
            server.should_exit = True
            await serving


@cache
def planned(text: str = SPEC) -> tuple[ServicePlan, RehearsalTables]:
    catalog, constants = load_catalog(), load_constants()
    context = Context(parse_spec(text, "s.yaml"), catalog, constants, draw_factors(constants, 8, 0), None)
    [service] = context.spec.services
    plan, hosted = service_plan(choose_serving(service, context), context), overflow_settings(service)
    return plan, RehearsalTables(catalog, constants, Supply(), catalog.model, overflows={plan.name: hosted})


def rehearsal(world: str, policies: str, spec: str = SPEC) -> PoolTask:
    text = f"horizon: 90 s\nwarm_up: 1 s\n{world}\npolicies: {{{policies}}}"
    plan, tables = planned(spec)
    [task] = pool_tasks(plan, RehearsalSettings(parse_scenario(text, "s.yaml")), tables)
    return task


# --- what is done live: so many requests, and one figure of what came of them ---


async def burst(live: Live) -> None:
    await live.many(40)


async def repeated(live: Live) -> None:
    for number in range(40):
        await live.ask(prompt=f"question {number % 20}", temperature=0)


async def again(live: Live) -> None:
    await live.many(40, {"x-stainless-retry-count": "1"})


async def warmed_burst(live: Live) -> None:
    for engine in live.engines:
        engine.gap_s = 0.05
    await live.many(4)
    await live.many(40)


async def pressed(live: Live) -> None:
    for engine in live.engines:
        engine.gap_s = 0.02
    waves = []
    for _ in range(3):
        waves += [asyncio.create_task(live.ask(max_tokens=100)) for _ in range(60)]
        await asyncio.sleep(0.4)
    await asyncio.gather(*waves)


async def one_slow(live: Live) -> None:
    for _ in range(10):  # a few at once: what is usual is learnt from the slowest of the first
        await live.many(4)
    live.engines[0].gap_s = 0.1
    for _ in range(8):
        await live.many(8)


async def conversations(live: Live) -> None:
    for turn in range(1, 6):
        for who in ("a", "b", "c", "d"):
            await live.ask({"x-twofold-session": who}, prompt=who * 2400 * turn)


async def zone_dies(live: Live) -> None:
    for engine in live.engines[::2]:
        await engine.kill()
    for _ in range(40):
        await live.many(2)
        await asyncio.sleep(0.02)


async def long_burst(live: Live) -> None:
    await asyncio.gather(*(live.ask(max_tokens=200) for _ in range(40)))


async def in_line(live: Live) -> None:
    for engine in live.engines:
        engine.gap_s = 0.02
    await live.many(40)


async def two_classes(live: Live) -> None:
    live.engines[0].gap_s = 0.05
    asked = [asyncio.create_task(live.ask(prompt="first"))]
    for name in ("night", "chat"):
        await asyncio.sleep(0.05)
        header = {"x-twofold-class": name}
        asked += [asyncio.create_task(live.ask(header, prompt=name)) for _ in range(3)]
    await asyncio.gather(*asked)


async def heap(live: Live) -> None:
    """A heap of work that nobody waits for, and then somebody who waits."""
    for engine in live.engines:
        engine.gap_s = 0.05
    nights = [asyncio.create_task(live.ask({"x-twofold-class": "night"})) for _ in range(10)]
    await asyncio.sleep(0.05)
    began_s = time.monotonic()
    await live.ask({"x-twofold-class": "chat"})
    live.waited_s = time.monotonic() - began_s
    await asyncio.gather(*nights)


async def idle(live: Live) -> None:
    for _ in range(10):
        await live.ask()
        await asyncio.sleep(0.02)


async def days(live: Live) -> None:
    """Three of a second, with a rush in the middle of each."""
    for engine in live.engines:
        engine.gap_s = 0.05
    for _ in range(3):
        await asyncio.gather(asyncio.sleep(DAY_S), live.many(8))


async def released(live: Live) -> None:
    live.driver.told([(ReleaseOffered("new"), None)])
    await live.many(40)


def kept_share(live: Live) -> float:
    """Of the further turns, how many went to the engine of the one before."""
    told = [(at_s, asked["prompt"], n) for n, e in enumerate(live.engines) for at_s, _, asked in e.requests]
    where: dict[str, int] = {}
    kept = 0
    for _, prompt, number in sorted(told):
        kept += where.get(prompt[0]) == number
        where[prompt[0]] = number
    return kept / (len(told) - len(where))


def tokens_asked(live: Live) -> float:
    limits = [asked["max_tokens"] for engine in live.engines for _, _, asked in engine.requests]
    return sum(limits) / len(limits)


def chats_place(live: Live) -> float:
    """Of those of the class that people wait for, in the line before the one engine: the sum."""
    order = [asked["prompt"] for _, _, asked in live.engines[0].requests]
    return sum(place for place, said in enumerate(order) if said == "chat")


def unanswered(of: ClassFigures) -> float:
    return of.arrived_count - of.finished_count


def refused(code: str) -> tuple[Callable[[Live], float], Callable[[FleetResult], float]]:
    return (
        lambda live: live.codes.count(code),
        lambda result: result.figures.outcomes.get(f"refused: {code}", 0),
    )


def told_of(name: str) -> tuple[Callable[[Live], float], Callable[[FleetResult], float]]:
    return lambda live: live.effects(name), lambda result: result.figures.effects.get(name, 0)


def as_it_is(gate: GateSettings) -> GateSettings:
    return gate


def quicker(gate: GateSettings) -> GateSettings:
    """The same policies, looking and acting sooner."""
    degradation, outliers, zones, scaling = gate.degradation, gate.outliers, gate.zones, gate.scaling
    return replace(
        gate,
        probe_every_s=0.05,
        degradation=degradation and replace(degradation, raise_after_s=0.1),
        outliers=outliers and replace(outliers, tick_s=0.05, requests_min_count=5),
        zones=zones and replace(zones, tick_s=0.05),
        scaling=scaling and replace(scaling, tick_s=0.05),
    )


DAY_S = 1.0


def short_days(gate: GateSettings) -> GateSettings:
    """Scaling with a season of a second, that gives a replica up which does not come at once."""
    assert gate.scaling is not None
    forecast = gate.scaling.forecast and ForecastSettings(bin_s=DAY_S / 10, season_s=DAY_S)
    return replace(
        gate,
        scaling=replace(
            gate.scaling,
            tick_s=0.05,
            up_pause_s=0.05,
            down_pause_s=0.1,
            start_s=0.2,
            start_s_max=0.25,
            start_backoff_s=0.01,
            start_backoff_s_max=0.01,
            forecast=forecast,
        ),
    )


@dataclass(frozen=True)
class Case:
    """A policy: its two settings, the world for the twin, what is done live, and one figure of each.

    `specs`: where it is the spec's classes that are other, both.
    """

    off: str
    on: str
    world: str
    does: Callable[[Live], Awaitable[None]]
    figures: tuple[Callable[[Live], float], Callable[[FleetResult], float]]
    rises: bool = True
    limit: int = 8  # of a replica live
    engine_count: int = 2
    quicker: Callable[[GateSettings], GateSettings] = as_it_is
    specs: tuple[str, str] = (SPEC, SPEC)


BUSY = "traffic: {scale: 8x}"
SLOW = "fleet: {replicas: 4}\ntraffic: {scale: 2x}\nfaults: [{kind: slow-replica, at: 5 s, slowdown: 3x}]"
TURNS = "traffic: {arrivals: sessions, turns: 5, think: 5 s}"
REPEATED = "traffic: {repeats: 50 %}"
LOST = "faults: [{kind: zone-loss, at: 10 s, zone: 1}]"
HITS: Callable[[FleetResult], float] = lambda result: result.figures.prefix_hit_fraction  # noqa: E731 (a column)
LENGTH: Callable[[FleetResult], float] = lambda r: r.figures.output_tokens / r.figures.finished_count  # noqa: E731
CASES = {
    "limits": Case("limits: off", "limits: {requests: 1 /s}", "", burst, refused("rate")),
    "limits of a class": Case(
        "limits: off", "limits: {classes: {class: chat, requests: 1 /s}}", "", burst, refused("rate")
    ),
    "limits of a tenant's tokens": Case(
        "limits: off", "limits: {tokens: 300 tok/s}", "", long_burst, refused("rate")
    ),
    "deadlines": Case(
        "admission: off, outliers: off",
        "admission: off, outliers: off",
        "fleet: {replicas: 1}\ntraffic: {scale: 1.5x}",
        in_line,
        refused("expired"),
        limit=1,
        engine_count=1,
        specs=(HURRIED % "60 s", HURRIED % "1 s"),
    ),
    "class priorities": Case(
        "pools: priority, outliers: off",
        "pools: priority, outliers: off",
        "fleet: {replicas: 2}\ntraffic: {scale: 4x}",
        two_classes,
        (chats_place, lambda result: unanswered(result.classes[0])),
        rises=False,
        limit=1,
        engine_count=1,
        specs=(WAITED_FOR, BULK),
    ),
    "pools": Case(
        "pools: shared, outliers: off, zones: off",
        "pools: split, outliers: off, zones: off",
        "traffic: {bursts: [{at: 10 s, for: 30 s, rate: 16x, class: night}]}",
        heap,
        (lambda live: live.waited_s, lambda result: result.classes[0].ttft_s.p95),
        rises=False,
        limit=4,
        specs=(BULK, BULK),
    ),
    "queue": Case("queue: off", "queue: on", BUSY, burst, refused("full"), rises=False),
    "admission": Case("admission: off", "admission: on", BUSY, warmed_burst, refused("slo"), limit=1),
    "answer cache": Case(
        "answer_cache: off", "answer_cache: on", REPEATED, repeated, told_of("GiveAgain"), limit=64
    ),
    "retry budget": Case(
        "retry_budget: off, queue: {depth: 5}",
        "retry_budget: on, queue: {depth: 5}",
        f"{BUSY}\nclients: {{retry: immediate, attempts: 5}}",
        again,
        refused("retry"),
    ),
    "degradation": Case(
        "degradation: off",
        "degradation: on",
        BUSY,
        pressed,
        (tokens_asked, LENGTH),
        rises=False,
        limit=2,
        quicker=quicker,
    ),
    "a smaller model": Case(
        "degradation: on, outliers: off",
        "degradation: {smaller: int4}, outliers: off",
        BUSY,
        pressed,
        (lambda live: live.driver.gate.view.counts.smaller, lambda result: result.figures.smaller_count or 0),
        limit=2,
        engine_count=3,
        quicker=quicker,
    ),
    "hedge": Case("hedge: off, outliers: off", "hedge: on, outliers: off", SLOW, one_slow, told_of("Cancel")),
    "outliers": Case(
        "routing: round-robin, outliers: off",
        "routing: round-robin, outliers: on",
        SLOW,
        one_slow,
        told_of("EjectReplica"),
        engine_count=4,
        quicker=quicker,
    ),
    "prefix routing": Case(
        "routing: round-robin",
        "routing: prefix",
        TURNS,
        conversations,
        (kept_share, HITS),
        engine_count=3,
    ),
    "session routing": Case(
        "routing: round-robin",
        "routing: session",
        TURNS,
        conversations,
        (kept_share, HITS),
        engine_count=3,
    ),
    "canary": Case(
        "canary: off",
        "canary: on",
        "faults: [{kind: release, at: 10 s, version: new}]",
        released,
        told_of("StageRelease"),
        engine_count=5,
        quicker=quicker,
    ),
    "scaling": Case(
        "scaling: off",
        "scaling: {kind: reactive}",
        BUSY,
        pressed,
        told_of("StartReplica"),
        limit=2,
        quicker=quicker,
    ),
    "rollout": Case(
        "scaling: off, canary: off",
        "scaling: off, canary: on",
        "faults: [{kind: release, at: 10 s, version: new}]",
        released,
        told_of("StartReplica"),
        engine_count=4,
        quicker=quicker,
    ),
    "forecast": Case(
        "scaling: {kind: reactive}",
        "scaling: {kind: predictive}",
        "traffic: {arrivals: diurnal, day: 40 s, scale: 4x}",
        days,
        (told_of("StartReplica")[0], lambda result: result.replica_h),  # of those that stand early
        limit=2,
        quicker=short_days,
    ),
    "warm pool": Case(
        "scaling: {kind: reactive, most: 8}, warm: off",
        "scaling: {kind: reactive, most: 8}, warm: {replicas: 4}",
        "",
        idle,
        told_of("StartReplica"),
        quicker=quicker,
    ),
    "zones": Case(
        "zones: off", "zones: on", LOST, zone_dies, told_of("FailOverZone"), engine_count=4, quicker=quicker
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_policy_pulls_the_same_way_in_both(name: str, tmp_path: Path, stub_engines: Any) -> None:
    case = CASES[name]
    live_figure, twin_figure = case.figures

    async def seen(task: PoolTask, folder: Path) -> float:
        async with (
            stub_engines(case.engine_count) as engines,
            served(task, folder, engines, case.limit, case.quicker) as live,
        ):
            await case.does(live)
        return live_figure(live)

    twin, live = [], []
    for setting, spec in zip((case.off, case.on), case.specs, strict=True):
        task = rehearsal(case.world, setting, spec)
        twin.append(twin_figure(simulate_fleet(task.world, task.traffic.arrivals())))
        live.append(asyncio.run(seen(task, tmp_path / str(len(live)))))
    for before, after in (twin, live):
        assert (after > before) if case.rises else (after < before), (twin, live)


def test_r_049_turns_go_where_their_prefix_is_kept_and_their_first_tokens_come_sooner(
    tmp_path: Path, stub_engines: Any
) -> None:
    """Before stand-ins that read what they have not kept of a prompt slowly: by turns, then by prefixes."""

    def reads(engine: Any) -> None:
        *earlier, now = [asked["prompt"] for _, _, asked in engine.requests]
        engine.gap_s = 0.005 if any(now.startswith(each) for each in earlier) else 0.05

    async def seen(task: PoolTask, folder: Path) -> tuple[float, float]:
        first_s = []
        async with (
            stub_engines(case.engine_count) as engines,
            served(task, folder, engines, case.limit, case.quicker) as live,
        ):
            for engine in engines:
                engine.on_request = partial(reads, engine)
            for turn in range(1, 6):
                for who in ("a", "b", "c", "d"):
                    began_s = time.monotonic()
                    body = {**ASKED, "prompt": who * 2400 * turn}
                    async with live.client.post(live.url + PATH, json=body) as answer:
                        await answer.content.readany()
                        first_s.append(time.monotonic() - began_s)
                        await answer.read()
        return kept_share(live), sum(first_s) / len(first_s)

    case = CASES["prefix routing"]
    found = []
    for setting in (case.off, case.on):
        task = rehearsal(case.world, setting, SPEC)
        found.append(asyncio.run(seen(task, tmp_path / str(len(found)))))
    (turns_kept, turns_s), (prefix_kept, prefix_s) = found
    assert prefix_kept > 0.9 > turns_kept, found
    assert prefix_s < 0.8 * turns_s, found


OVERFLOW = """\
  overflow: {url: "http://127.0.0.1:9/v1", model: theirs, input_price: 1 $, output_price: 4 $, %s}
  classes:"""


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        ("in_flight: 1, ttft: 100 ms", "in_flight: 60, ttft: 100 ms"),
        ("in_flight: 60, ttft: 9 s", "in_flight: 60, ttft: 100 ms"),  # later than what is promised
    ],
)
def test_what_the_spec_says_of_a_hosted_api_pulls_the_same_way_in_both(
    fewer: str, more: str, tmp_path: Path, stub_engines: Any
) -> None:
    """Without one, with one that takes little, and with one that takes all: fewer are refused each time."""

    async def seen(task: PoolTask, folder: Path) -> tuple[int, int]:
        async with stub_engines(3) as [*engines, api]:
            for engine in (*engines, api):
                engine.gap_s = 0.02
            told = task.gate.settings.overflow
            hosted = told and GatewayReplica(
                told.replica_id, "127.0.0.1", api.port, "t", told.in_flight_limit
            )
            async with served(task, folder, engines, 8, as_it_is, hosted=hosted) as live:
                await live.many(60)
            return len(live.codes), len(api.requests)

    twin, live = [], []
    for spec in (SPEC, *(SPEC.replace("  classes:", OVERFLOW % told) for told in (fewer, more))):
        task = rehearsal(BUSY, "queue: off", spec)
        figures = simulate_fleet(task.world, task.traffic.arrivals()).figures
        twin.append((figures.outcomes.get("refused: full", 0), figures.overflowed_count or 0))
        live.append(asyncio.run(seen(task, tmp_path / str(len(live)))))
    for none, few, all_ in (twin, live):
        assert none[0] >= few[0] > all_[0], (twin, live)
        assert none[1] == 0 <= few[1] < all_[1], (twin, live)


# --- what the twin has no client for, or no replica that hangs ---


def promised(gate: GateSettings, **more: Any) -> GateSettings:
    return replace(quicker(gate), classes=tuple(replace(each, **more) for each in gate.classes))


def test_a_silent_replica_costs_its_streams_seconds_where_a_second_was_promised(
    tmp_path: Path, stub_engines: Any
) -> None:
    """As SIGSTOP does: its kernel accepts, and nothing comes."""

    async def scenario() -> None:
        loop, task = asyncio.get_running_loop(), rehearsal("", "outliers: off")
        async with (
            stub_engines(2) as engines,
            served(task, tmp_path, engines, 8, lambda gate: promised(gate, ttft_slo_s=0.5)) as live,
        ):
            engines[0].hang = True
            began_s = loop.time()
            await live.many(2)
            assert live.codes == [] and 2.0 <= loop.time() - began_s < 10.0  # 3 · 0.5 s is below the least
            engines[0].hang, engines[1].gap_s, engines[0].gap_s = False, 0.01, 0.01

            async def cut() -> bytes:
                async with live.client.post(live.url + PATH, json=ASKED) as answer:
                    first = await answer.content.readany()
                    engines[0].gap_s = engines[1].gap_s = 60.0
                    return first + await answer.read()

            began_s = loop.time()
            assert b"in time" in await cut()
            assert loop.time() - began_s < 10.0

    asyncio.run(scenario())


def test_a_hedge_answers_long_before_the_late_attempt_would(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        loop, task = asyncio.get_running_loop(), rehearsal("", "hedge: on, outliers: off")
        async with stub_engines(2) as engines, served(task, tmp_path, engines, 8, as_it_is) as live:
            await live.many(40)
            engines[0].hang = True
            began_s = loop.time()
            await live.ask()
            await live.ask(stream=False)
            assert loop.time() - began_s < 4.0 and live.codes == []
            assert engines[0].lost_clients > 0  # the slower attempt was ended, not left to run
            state = await (await live.client.get(live.url + "/state")).json()
            assert state["gate_digest"] == task.gate.digest
            assert state["in_flight"] == 0 and state["counts"]["finished"] == 42

    asyncio.run(scenario())


def test_who_waits_is_served_by_the_priority_of_its_class(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        task = rehearsal("", "pools: priority, outliers: off", BULK)
        async with stub_engines(1) as [engine], served(task, tmp_path, [engine], 1, as_it_is) as live:
            await two_classes(live)
            order = [body["prompt"] for _, _, body in engine.requests]
            # The lower priority keeps a tenth of the tokens: it is not starved, and not in front.
            assert order[0] == "first" and order.index("chat") == 1 and order[-1] == "night"
            assert live.codes == []

    asyncio.run(scenario())


def test_a_deadline_of_its_own_ends_a_requests_waiting_and_an_unknown_class_is_refused(
    tmp_path: Path, stub_engines: Any
) -> None:
    async def scenario() -> None:
        task = rehearsal("", "admission: off, outliers: off")
        async with stub_engines(1) as [engine], served(task, tmp_path, [engine], 1, as_it_is) as live:
            engine.gap_s = 0.1
            first = asyncio.create_task(live.ask(prompt="first"))
            while not engine.requests:
                await asyncio.sleep(0.01)
            await live.ask({"x-twofold-deadline": "0.05"}, prompt="late")
            assert live.codes == ["expired"] and not first.done()
            await asyncio.gather(first, live.ask({"x-twofold-deadline": "60"}, prompt="in time"))
            header = {"x-twofold-class": "moon"}
            async with live.client.post(live.url + PATH, json=ASKED, headers=header) as answer:
                assert answer.status == 400 and "it has: chat" in await answer.text()
            assert [body["prompt"] for _, _, body in engine.requests] == ["first", "in time"]

    asyncio.run(scenario())


def test_a_smaller_model_answers_in_need_and_no_sooner(tmp_path: Path, stub_engines: Any) -> None:
    async def scenario() -> None:
        task = rehearsal("", "degradation: on, outliers: off")
        async with (
            stub_engines(2) as engines,
            served(
                task, tmp_path, engines, 1, lambda gate: promised(gate, smaller_model="mini"), ("", "mini")
            ) as live,
        ):
            big, mini = engines
            await live.many(3)
            assert len(big.requests) == 3 and not mini.requests
            big.gap_s = 0.02
            waves = []
            for _ in range(5):
                waves += [asyncio.create_task(live.ask()) for _ in range(60)]
                await asyncio.sleep(0.4)
            await asyncio.gather(*waves)
            assert mini.requests and all(body["model"] == "model-1" for _, _, body in mini.requests)

    asyncio.run(scenario())
