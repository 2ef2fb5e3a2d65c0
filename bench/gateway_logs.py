"""What logging costs: a gateway with its logs as `up` has them, and gateways whose logs are less.

All are the same otherwise, take turns, and are asked by the same clients. First of an engine that writes a
token each 10 ms, as a fast one does, the 95th percentile of a whole streamed answer. Then, of an engine that
writes all at once, the gateway's processor time of an answer, which is what bounds its requests/s: with the
log of requests chained and sealed, with samples of text besides, with a log that is neither, and with none.
Ratios are medians over pairs of turns; their bounds come from resampling the pairs.
"""

import asyncio
import contextlib
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.gateway import (
    ANSWER_END,
    ANSWER_EVENTS,
    ANSWER_HEAD,
    Engine,
    _open,
    load_s,
    run_process,
    serve_engine,
)
from twofold.core.errors import MissingExtraError
from twofold.core.extras import require_extra
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayReplica
from twofold.live.processes import free_port
from twofold.policy.gate.settings import Beliefs, GateSettings

PAIRS = 40
TURN_S = 1.2
CONCURRENCY = 16
GAP_S = 0.01  # from one token of the engine to its next
DRAWS = 2000
SEALED, SAMPLED, PLAIN, NOWHERE = "sealed", "sampled", "plain", "nowhere"  # the last: no log at all
SAMPLED_FRACTION = 0.05
RATIO_MAX = 1.02  # of the processor time of an answer, so of a gateway's answers/s


class PacedEngine(Engine):
    """Writes an event, then pauses."""

    def data_received(self, data: bytes) -> None:
        """One request at a time on a connection, as pools have them."""
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            return
        self.buffer = b""
        self.transport.write(ANSWER_HEAD)
        loop = asyncio.get_running_loop()
        for number, event in enumerate((*ANSWER_EVENTS, ANSWER_END)):
            loop.call_later(number * GAP_S, self.transport.write, event)


async def serve_paced(port: int) -> None:
    """The stand-in, for ever."""
    server = await asyncio.get_running_loop().create_server(PacedEngine, "127.0.0.1", port)
    await server.serve_forever()


async def serve_logging(config: GatewayConfig) -> None:
    """The gateway as its own process runs it, without the chain, or with logs that throw their lines away."""
    from twofold.live.gateway import gateway
    from twofold.live.line_file import LineFile

    if PLAIN in config.log:
        gateway.ChainedFile = lambda *told: LineFile(*told[:3])  # type: ignore[misc, assignment]
    if NOWHERE in config.log:
        gateway.GateLog.told = lambda _self, _entry: None  # type: ignore[method-assign]
        gateway.GateLog.flush = lambda self: self._waiting.clear()  # type: ignore[method-assign]
    await gateway.serve(config)


@contextlib.contextmanager
def gateways(
    folder: Path, names: tuple[str, ...], serve: Callable[..., Any]
) -> Iterator[tuple[dict[str, int], dict[str, BaseProcess]]]:
    """A gateway of each kind before one engine: their ports and processes."""
    engine = free_port()
    replica = GatewayReplica("replica-0", "127.0.0.1", engine, "m", 256)
    ports, started = {}, {"engine": run_process(serve, engine)}
    for name in names:
        own, ports[name] = folder / name, free_port()
        config = GatewayConfig(
            *("127.0.0.1", ports[name], (replica,), Beliefs(1e-4, 1e-3), str(own / "events.jsonl")),
            gate=GateSettings(),
            requests_log="" if name == NOWHERE else str(own / "requests.jsonl"),
            requests_key=str(folder / f"{name}.key"),
            samples_log=str(own / "samples.jsonl") if name == SAMPLED else "",
            samples_fraction=SAMPLED_FRACTION if name == SAMPLED else 0.0,
        )
        started[name] = run_process(serve_logging, config)
    try:
        yield ports, {name: started[name] for name in names}
    finally:
        for process in started.values():
            process.kill()
            process.join()


async def _measure(ports: dict[str, int], pairs: int, turn_s: float) -> dict[str, list[list[float]]]:
    turns: dict[str, list[list[float]]] = {name: [] for name in ports}
    await _warm(ports)
    for pair in range(pairs):
        names = list(ports) if pair % 2 else list(ports)[::-1]
        for name in names:
            turns[name].append(await load_s(ports[name], CONCURRENCY, turn_s))
    return turns


async def _measure_cpu_s(ports: dict[str, int], pids: dict[str, int]) -> dict[str, list[float]]:
    """Processor seconds of an answer, turn by turn."""
    import psutil

    turns: dict[str, list[float]] = {name: [] for name in ports}
    await _warm(ports)
    for pair in range(PAIRS):
        names = list(ports) if pair % 2 else list(ports)[::-1]
        for name in names:
            process = psutil.Process(pids[name])
            before = sum(process.cpu_times()[:2])
            count = len(await load_s(ports[name], CONCURRENCY, TURN_S))
            turns[name].append((sum(process.cpu_times()[:2]) - before) / count)
    return turns


async def _warm(ports: dict[str, int]) -> None:
    for port in ports.values():
        await _open(port)
        await load_s(port, CONCURRENCY, TURN_S)


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@dataclass(frozen=True, slots=True)
class Compared:
    """The median of the pairs' ratios."""

    ratio: float
    low: float  # 95 % within …
    high: float

    @property
    def text(self) -> str:
        return f"ratio {self.ratio:.3f}, 95 % within {self.low:.3f} to {self.high:.3f}"


def ratios_of(ones: list[float], others: list[float]) -> Compared:
    """Of pairs that were measured after each other."""
    ratios = [one / other for one, other in zip(ones, others, strict=True)]
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return Compared(statistics.median(ratios), drawn[DRAWS // 40], drawn[-DRAWS // 40])


def verdict(found: Compared) -> str:
    """Whether what makes logs evidence, seals and samples, costs as little as it is to: a line."""
    how = "met" if found.ratio <= RATIO_MAX else "missed"
    return f"{found.text}; at most {RATIO_MAX:.2f}: {how}"


def turns_of(pairs: int = PAIRS, turn_s: float = TURN_S) -> tuple[list[float], list[float], int]:
    """95th percentiles of the turns with logs and without, and how many answers had logs.

    Raises ImportError without the extra [live].
    """
    import uvloop

    with (
        tempfile.TemporaryDirectory() as folder,
        gateways(Path(folder), (SEALED, NOWHERE), serve_paced) as (ports, _),
    ):
        turns = uvloop.run(_measure(ports, pairs, turn_s))
    with_s, without_s = ([p95(turn) for turn in turns[name]] for name in (SEALED, NOWHERE))
    return with_s, without_s, sum(map(len, turns[SEALED]))


def print_turns(pairs: int = PAIRS, turn_s: float = TURN_S) -> None:
    """95th percentiles with logs and without, and their ratio with bounds."""
    with_s, without_s, count = turns_of(pairs, turn_s)
    print(f"p95 of an answer, medians of {pairs} pairs of turns of {turn_s:g} s, {count} answers with logs")
    told_ms = f"{statistics.median(with_s) * 1e3:.2f} ms, without {statistics.median(without_s) * 1e3:.2f} ms"
    print(f"with logs {told_ms}: {ratios_of(with_s, without_s).text}")


def main() -> None:
    """Print 95th percentiles and processor times with logs and without, and their ratios with bounds."""
    try:
        import uvloop
    except ImportError:
        print("needs the extra [live]")
        return
    print_turns()
    with (
        tempfile.TemporaryDirectory() as folder,
        gateways(Path(folder), (SEALED, SAMPLED, PLAIN, NOWHERE), serve_engine) as (ports, processes),
    ):
        pids = {name: process.pid or 0 for name, process in processes.items()}
        cpu_s = uvloop.run(_measure_cpu_s(ports, pids))
    print("processor time of an answer that the engine writes at once")
    for name in (SEALED, SAMPLED, PLAIN, NOWHERE):
        took_us = statistics.median(cpu_s[name]) * 1e6
        against = "" if name == NOWHERE else f"   against none {ratios_of(cpu_s[name], cpu_s[NOWHERE]).text}"
        print(f"  requests {name:8}{took_us:7.0f} us {1e6 / took_us:7.0f} a second on a core{against}")
    print(f"  sealed against plain {ratios_of(cpu_s[SEALED], cpu_s[PLAIN]).text}")
    print(f"  {SAMPLED_FRACTION:.0%} sampled against sealed {ratios_of(cpu_s[SAMPLED], cpu_s[SEALED]).text}")
    print(f"  both against plain: {verdict(ratios_of(cpu_s[SAMPLED], cpu_s[PLAIN]))}")


if __name__ == "__main__":  # `python -m bench.gateway_logs PAIRS TURN_S`: percentiles alone, in less time
    try:
        require_extra("live")
    except MissingExtraError as error:
        sys.exit(str(error))
    print_turns(int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else main()
