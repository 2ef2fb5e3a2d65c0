"""What the gateway adds to a streamed answer: the engine alone, the bare pass-through, and the gateway.

Three processes share this machine's cores: a stand-in for an engine of 16 events an answer, the server under
test, and the client, each on uvloop. The stand-in writes all events at once, so that what a gateway does once
an answer weighs most; or, where a request is `paced`, one each millisecond, as a fast engine writes tokens.
The bare pass-through is the gateway's own application with a fixed replica: no gate, no log. The busiest
process is named, because that one binds the rate. Other work on the machine stretches all times; the CPU time
of an answer, beside the stand-in's own, is stretched least.
"""

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from twofold.live.gateway.gateway_config import GatewayConfig, GatewayReplica
from twofold.live.processes import free_port
from twofold.policy.gate.events import Cause, GiveUp, Send
from twofold.policy.gate.patience import NO_PROMISE, Patience
from twofold.policy.gate.settings import (
    AdmissionSettings,
    AnswerCacheSettings,
    Beliefs,
    CanarySettings,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    HedgeSettings,
    LimitSettings,
    OutlierSettings,
    PoisonSettings,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    RolloutSettings,
    Routing,
    RoutingSettings,
    ZoneSettings,
)

EVENT_COUNT = 16
DURATION_S = 3.0
CONCURRENCIES = (1, 16, 64)
PACED, PACE_S = "paced ", 1e-3  # how the prompt of a request begins that asks for it, and between two events
LOADS = (
    *((each, False) for each in CONCURRENCIES),
    (64, True),
)  # clients at once; paced? Fewer saturate none
BARE, EVERY = "bare pass-through", "every policy"
FRACTION_MIN, ADDED_S_MAX = 0.85, 2e-4  # of the bare pass-through's answers/s; beside its time, alone
ROUNDS = 3  # of each server in turn, so that a slow moment of the machine hits all
PATH = "/v1/completions"


def request(path: str, said: dict[str, object]) -> bytes:
    """One for a streamed answer, as it is sent."""
    body = json.dumps({"model": "default", **said, "max_tokens": EVENT_COUNT, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


REQUEST = request(PATH, {"prompt": "x" * 400})
PACED_REQUEST = request(PATH, {"prompt": PACED + "x" * (400 - len(PACED))})


def chunk(kind: str, said: dict[str, object], end: str | None) -> bytes:
    """An event of an answer, as it is sent."""
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": end}
    data = {"id": "cmpl-1", "object": kind, "created": 1, "model": "m", "choices": [choice]}
    event = b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _event(text: str, end: str | None) -> bytes:
    return chunk("text_completion", {"text": text}, end)


ANSWER_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER_EVENTS = [_event(f"token {number}", None) for number in range(EVENT_COUNT - 1)] + [
    _event("", "length")
]
ANSWER_END = b"0\r\n\r\n"


class Engine(asyncio.Protocol):
    """Answers every request at once, one write per event; a paced one event by event."""

    events = ANSWER_EVENTS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.buffer) < end + 4 + length:
                return
            is_paced = f'"{PACED}'.encode() in self.buffer[end : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            self.transport.write(ANSWER_HEAD)
            if is_paced:
                self.next_event(0)
                continue
            for event in self.events:
                self.transport.write(event)
            self.transport.write(ANSWER_END)

    def next_event(self, number: int) -> None:
        self.transport.write(self.events[number])
        if number + 1 < len(self.events):
            asyncio.get_running_loop().call_later(PACE_S, self.next_event, number + 1)
        else:
            self.transport.write(ANSWER_END)


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    request = REQUEST

    def __init__(self, until_s: float, latencies_s: list[float]) -> None:
        self.until_s, self.latencies_s, self.last = until_s, latencies_s, b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.ask()

    def ask(self) -> None:
        self.asked_s = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.last = (self.last + data)[-5:]
        if self.last != ANSWER_END:
            return
        now_s = time.perf_counter()
        self.latencies_s.append(now_s - self.asked_s)
        if now_s < self.until_s:
            self.ask()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server hung up"))


class PacedClient(Client):
    """One whose answers come event by event."""

    request = PACED_REQUEST


EVERY_POLICY = GateSettings(  # that needs no controller
    routing=Routing.PREFIX,
    routes=RoutingSettings(prefix_block_tokens=64),
    classes=(ClassSettings("chat", ttft_slo_s=5.0, e2e_slo_s=60.0, tpot_slo_s=1.0),),
    limits=LimitSettings(Rate(1e6, 1e9)),
    admission=AdmissionSettings(),
    queue=QueueSettings(),
    degradation=DegradationSettings(),
    retry_budget=RetryBudgetSettings(),
    hedge=HedgeSettings(),
    outliers=OutlierSettings(),
    poison=PoisonSettings(),
    answer_cache=AnswerCacheSettings(),
    zones=ZoneSettings(),
    canary=CanarySettings(),
    rollout=RolloutSettings(),
)


class NothingTold:
    """In place of a `Telemetry`."""

    def wrote(self, *_told: object) -> None: ...

    def turned_away(self, *_told: object) -> None: ...


class FixedChoice:
    """In place of a `GateDriver`, it decides nothing: the application's own cost, without gate and log."""

    def __init__(self, replicas: Sequence[GatewayReplica]) -> None:
        self.given_ids = 0
        self.telemetry = NothingTold()
        self.replicas = {each.replica_id: each for each in replicas}

    async def arrived(self, *_asked: object) -> Send:
        self.given_ids += 1
        return Send(self.given_ids, "replica-0", 1)

    async def held(self, request_id: int) -> GiveUp:
        return GiveUp(request_id, Cause.ERROR)  # nothing is ever held

    def failed(self, request_id: int, cause: Cause, _attempt: int) -> GiveUp:
        return GiveUp(request_id, cause)

    def patience(self, _request_id: int) -> Patience:
        return NO_PROMISE

    def address(self, replica_id: str) -> GatewayReplica | None:
        return self.replicas.get(replica_id)

    def heard(self, replica_id: str) -> None: ...

    def started(self, request_id: int, attempt: int) -> None: ...

    def ended(self, *_ended: object) -> None: ...

    def left(self, request_id: int) -> None: ...

    def state(self) -> dict[str, Any]:
        return {"replicas": {}}


async def serve_engine(port: int) -> None:
    """The stand-in, for ever."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


async def serve_bare(config: GatewayConfig) -> None:
    """The application with a fixed choice."""
    import uvicorn

    from twofold.live.gateway.gateway import server_config, settle_memory
    from twofold.live.gateway.gateway_app import GatewayApp
    from twofold.live.gateway.gateway_driver import GateDriver
    from twofold.live.gateway.upstream import Upstream

    app = GatewayApp(
        cast(GateDriver, FixedChoice(config.replicas)), Upstream(config.limits.connect_timeout_s), config
    )
    settle_memory()
    await uvicorn.Server(server_config(app, config)).serve()


async def serve_gateway(config: GatewayConfig) -> None:
    """The gateway as its own process runs it."""
    from twofold.live.gateway.gateway import serve

    await serve(config)


def run_process(serve: Callable[..., Any], argument: Any) -> BaseProcess:
    """A server in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(
        target=_in_uvloop, args=(serve, argument), daemon=True
    )
    process.start()
    return process


def _in_uvloop(serve: Callable[..., Any], argument: Any) -> None:
    import uvloop

    uvloop.run(serve(argument))


async def _open(port: int) -> None:
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise TimeoutError(f"port {port} never opened")


@dataclass(slots=True)
class Point:
    """One server at one concurrency, over its rounds."""

    rates_per_s: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    busy: dict[str, list[float]] = field(default_factory=dict)  # fraction of a core, by process
    cpu_s: list[float] = field(default_factory=list)  # of the server under test, per answer

    @property
    def rate_per_s(self) -> float:
        return statistics.median(self.rates_per_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.p50_s)

    @property
    def median_cpu_s(self) -> float:
        return statistics.median(self.cpu_s)


Load = tuple[int, bool]
Points = dict[tuple[str, Load], Point]  # by server


async def load_s(
    port: int, concurrency: int, duration_s: float = DURATION_S, client: type[Client] = Client
) -> list[float]:
    """Latencies of so many clients that ask again as soon as they are answered."""
    latencies_s: list[float] = []
    until_s = time.perf_counter() + duration_s
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: client(until_s, latencies_s), "127.0.0.1", port))[1]
        for _ in range(concurrency)
    ]
    await asyncio.gather(*(each.done for each in clients))
    for each in clients:
        each.transport.close()
    return latencies_s


async def _measure(ports: dict[str, int], processes: dict[str, BaseProcess]) -> Points:
    import psutil

    def cpu_s() -> dict[str, float]:
        times = {name: psutil.Process(each.pid).cpu_times() for name, each in processes.items() if each.pid}
        return {"client": time.process_time()} | {n: each.user + each.system for n, each in times.items()}

    for port in ports.values():
        await _open(port)
        await load_s(port, 4)
    points = {(name, load): Point() for load in LOADS for name in ports}
    for load in LOADS:
        concurrency, client = load[0], PacedClient if load[1] else Client
        for _ in range(ROUNDS):
            for name, port in ports.items():
                before, began_s = cpu_s(), time.perf_counter()
                latencies_s = await load_s(port, concurrency, client=client)
                wall_s, point = time.perf_counter() - began_s, points[name, load]
                point.rates_per_s.append(len(latencies_s) / wall_s)
                point.p50_s.append(statistics.median(latencies_s))
                server = name if name in processes else "engine"
                after = cpu_s()
                point.cpu_s.append((after[server] - before[server]) / len(latencies_s))
                for process, now_s in after.items():
                    if process in ("client", "engine", name):
                        point.busy.setdefault(process, []).append((now_s - before[process]) / wall_s)
    return points


def answered_count(log: Path, duration_s: float) -> int:
    """How many answers the gateway with every policy gave to 4 clients; its log stays."""
    import uvloop

    engine, port = free_port(), free_port()
    replica = GatewayReplica("replica-0", "127.0.0.1", engine, "m", 256)
    config = GatewayConfig("127.0.0.1", port, (replica,), Beliefs(1e-4, 1e-3), str(log), gate=EVERY_POLICY)
    processes = [run_process(serve_engine, engine), run_process(serve_gateway, config)]

    async def asked() -> int:
        await _open(engine)
        await _open(port)
        return len(await load_s(port, 4, duration_s))

    try:
        count: int = uvloop.run(asked())
        return count
    finally:
        for process in reversed(processes):
            process.terminate()
            process.join()


def run_ours(ports: dict[str, int], folder: Path) -> dict[str, BaseProcess]:
    """The bare pass-through and both gateways, each at the port of its name, before the engine alone."""
    replica = GatewayReplica("replica-0", "127.0.0.1", ports["engine alone"], "m", 256)

    def config(name: str) -> GatewayConfig:
        return GatewayConfig(
            "127.0.0.1",
            ports[name],
            (replica,),
            Beliefs(1e-4, 1e-3),
            str(folder / f"events.jsonl-{name[:5]}"),
            gate=EVERY_POLICY if name == EVERY else GateSettings(),
            requests_log="" if name == BARE else str(folder / f"requests-{name[:5]}.jsonl"),
        )

    return {
        BARE: run_process(serve_bare, config(BARE)),
        "gateway": run_process(serve_gateway, config("gateway")),
        EVERY: run_process(serve_gateway, config(EVERY)),
    }


def main() -> None:
    """Print answers per second and the median whole answer of the three servers, side by side."""
    try:
        import uvloop
    except ImportError:
        print("needs the extra [live]")
        return
    with tempfile.TemporaryDirectory() as folder:
        ports = {"engine alone": free_port()}
        ports |= {name: free_port() for name in (BARE, "gateway", EVERY)}
        processes = {"engine": run_process(serve_engine, ports["engine alone"])}
        processes |= run_ours(ports, Path(folder))
        try:
            points = uvloop.run(_measure(ports, processes))
        finally:
            for process in processes.values():
                process.kill()
                process.join()
    _print(points, list(ports))
    print("\n".join(verdicts(points)))


def the_gate() -> str:
    """Whether it is compiled: a sentence."""
    from twofold.policy.gate import request_path

    is_compiled = not str(request_path.__file__).endswith(".py")
    return f"the gate is {'compiled' if is_compiled else 'interpreted: `make fast` compiles it'}"


def _print(points: Points, names: list[str]) -> None:
    print(f"{EVENT_COUNT} events an answer, medians of {ROUNDS} rounds of {DURATION_S:g} s, taken in turn")
    print(the_gate())
    times = f"{'p50 ms':>9}{'CPU ms':>8}{'x engine':>9}"
    print(f"{'server':20}{'clients':>9}{'answers/s':>11}{'x bare':>8}{times}  busiest")
    for (name, load), point in points.items():
        cpu_s, bare = point.median_cpu_s, points[BARE, load]
        engine_cpu_s = points[names[0], load].median_cpu_s
        # A short round may cost the engine less than a tick of the clock that counts CPU time.
        beside_engine = f"{cpu_s / engine_cpu_s:.1f}" if engine_cpu_s else "-"
        asked = f"{'paced ' * load[1]}{load[0]}"
        busy = {process: statistics.median(each) for process, each in point.busy.items()}
        binds = max(busy, key=lambda process: busy[process])
        print(
            f"{name:20}{asked:>9}{point.rate_per_s:>11.0f}{point.rate_per_s / bare.rate_per_s:>8.2f}"
            f"{point.median_s * 1e3:>9.2f}{cpu_s * 1e3:>8.3f}{beside_engine:>9}"
            f"  {binds} {busy[binds]:.0%}"
        )


def verdicts(points: Points) -> list[str]:
    """A line for each goal: what the gateway with every policy is beside the bare pass-through."""
    lines = []
    for load in dict.fromkeys(load for _, load in points):
        bare, gateway = points[BARE, load], points[EVERY, load]
        if load == (1, False):
            added_s = gateway.median_s - bare.median_s
            said, holds = f"{added_s * 1e3:+.2f} ms, at most {ADDED_S_MAX * 1e3:.2f}", added_s <= ADDED_S_MAX
        else:
            fraction = gateway.rate_per_s / bare.rate_per_s
            said, holds = (
                f"{fraction:.0%} of the answers/s, at least {FRACTION_MIN:.0%}",
                fraction >= FRACTION_MIN,
            )
        how = f"{load[0]} at once{', paced' * load[1]}"
        lines.append(f"every policy, {how}: {said}: {'met' if holds else 'missed'}")
    return lines


if __name__ == "__main__":
    main()
