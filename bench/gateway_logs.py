"""What logging costs: a gateway with its logs as `up` has them, and gateways whose logs are less.

All are the same otherwise, take turns, and are asked by the same clients. First of an engine that writes a
token each 10 ms, as a fast one does, the 95th percentile of a whole streamed answer. Then, of an engine that
writes all at once, the gateway's processor time of an answer, which is what bounds its requests/s: with the
log of requests chained and sealed, with samples of text besides, with a log that is neither, and with none.
Two processes that do the same differ by a tenth, so what the log of requests and samples take is counted
inside the gateway, and what chain, seal and samples add is held against a whole answer.
Ratios are medians over pairs of turns; their bounds come from resampling the pairs.
"""

import asyncio
import contextlib
import math
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
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
from twofold.live.gateway.request_log import FLUSH_EVERY_S
from twofold.live.processes import free_port
from twofold.policy.gate.settings import Beliefs, GateSettings

PAIRS = 40
TURN_S = 1.2
CONCURRENCY = 16
GAP_S = 0.01  # from one token of the engine to its next
DRAWS = 2000
SEALED, SAMPLED, PLAIN, NOWHERE = "sealed", "sampled", "plain", "nowhere"  # the last: no log at all
SAMPLED_FRACTION = 0.05
Spent = Any  # a number that two processes share
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


async def serve_logging(told: tuple[GatewayConfig, Spent]) -> None:
    """The gateway as its own process runs it, without the chain, or with logs that throw their lines away."""
    from twofold.live.gateway import gateway
    from twofold.live.gateway.request_log import RequestLog
    from twofold.live.gateway.samples import SampleLog
    from twofold.live.line_file import LineFile

    config, spent = told
    RequestLog._write = counted(RequestLog._write, spent)  # type: ignore[method-assign]
    SampleLog.line = counted(SampleLog.line, spent)  # type: ignore[method-assign]
    if PLAIN in config.log:
        gateway.ChainedFile = lambda *told: LineFile(*told[:3])  # type: ignore[misc, assignment]
    if NOWHERE in config.log:
        gateway.GateLog.told = lambda _self, _entry: None  # type: ignore[method-assign]
        gateway.GateLog.flush = lambda self: self._waiting.clear()  # type: ignore[method-assign]
    await gateway.serve(config)


def counted(call: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
    """The same, its processor time added up."""

    def run(*given: Any) -> Any:
        began_s = time.thread_time()
        try:
            return call(*given)
        finally:
            spent.value += time.thread_time() - began_s

    return run


@dataclass(frozen=True, slots=True)
class Started:
    """A gateway before the engine."""

    port: int
    process: BaseProcess
    spent: Spent  # seconds of its logs of requests and samples


@contextlib.contextmanager
def gateways(folder: Path, names: tuple[str, ...], serve: Callable[..., Any]) -> Iterator[dict[str, Started]]:
    """A gateway of each kind before one engine."""
    engine = free_port()
    replica = GatewayReplica("replica-0", "127.0.0.1", engine, "m", 256)
    stand_in, started = run_process(serve, engine), dict[str, Started]()
    for name in names:
        own, port = folder / name, free_port()
        config = GatewayConfig(
            *("127.0.0.1", port, (replica,), Beliefs(1e-4, 1e-3), str(own / "events.jsonl")),
            gate=GateSettings(),
            requests_log="" if name == NOWHERE else str(own / "requests.jsonl"),
            requests_key=str(folder / f"{name}.key"),
            samples_log=str(own / "samples.jsonl") if name == SAMPLED else "",
            samples_fraction=SAMPLED_FRACTION if name == SAMPLED else 0.0,
        )
        spent = multiprocessing.get_context("spawn").Value("d", 0.0, lock=False)
        started[name] = Started(port, run_process(serve_logging, (config, spent)), spent)
    try:
        yield started
    finally:
        for process in (stand_in, *(each.process for each in started.values())):
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


@dataclass(frozen=True, slots=True)
class Turn:
    """Processor seconds of an answer, and of those what the logs of requests and samples took."""

    answer_s: float
    logs_s: float


async def _measure_cpu_s(there: dict[str, Started]) -> dict[str, list[Turn]]:
    """Turn by turn."""
    import psutil

    turns: dict[str, list[Turn]] = {name: [] for name in there}
    await _warm({name: each.port for name, each in there.items()})
    for pair in range(PAIRS):
        for name, each in list(there.items())[:: 1 if pair % 2 else -1]:
            process = psutil.Process(each.process.pid)
            before_s, logs_s = sum(process.cpu_times()[:2]), each.spent.value
            count = len(await load_s(each.port, CONCURRENCY, TURN_S))
            await asyncio.sleep(2 * FLUSH_EVERY_S)  # the last lines are made by then
            took_s = sum(process.cpu_times()[:2]) - before_s
            turns[name].append(Turn(took_s / count, (each.spent.value - logs_s) / count))
    return turns


def added_ratios(ones: list[Turn], plain: list[Turn]) -> list[float]:
    """What an answer takes with these logs over what it takes with plain ones, from what the logs took."""
    pairs = zip(ones, plain, strict=True)
    return [(each.answer_s + one.logs_s - each.logs_s) / each.answer_s for one, each in pairs]


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
    return median_of([one / other for one, other in zip(ones, others, strict=True)])


def median_of(ratios: list[float]) -> Compared:
    """Of pairs."""
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
        gateways(Path(folder), (SEALED, NOWHERE), serve_paced) as there,
    ):
        ports = {name: each.port for name, each in there.items()}
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
        gateways(Path(folder), (SEALED, SAMPLED, PLAIN, NOWHERE), serve_engine) as there,
    ):
        turns = uvloop.run(_measure_cpu_s(there))
    print(
        "processor time of an answer that the engine writes at once, and of the log of requests and samples"
    )
    answers_s = {name: [each.answer_s for each in turns[name]] for name in turns}
    for name, each in turns.items():
        took_us, logs_us = (
            1e6 * statistics.median(part) for part in (answers_s[name], [turn.logs_s for turn in each])
        )
        beside = ratios_of(answers_s[name], answers_s[NOWHERE]).text
        against = "" if name == NOWHERE else f"   against none {beside}"
        said = f"{took_us:7.0f} us{logs_us:7.1f} us{1e6 / took_us:7.0f} a second on a core"
        print(f"  requests {name:8}{said}{against}")
    for name, what in ((SEALED, "chain and seal"), (SAMPLED, f"the same and {SAMPLED_FRACTION:.0%} samples")):
        found = median_of(added_ratios(turns[name], turns[PLAIN]))
        print(f"  {what}, over plain lines: {verdict(found)}")


if __name__ == "__main__":  # `python -m bench.gateway_logs PAIRS TURN_S`: percentiles alone, in less time
    try:
        require_extra("live")
    except MissingExtraError as error:
        sys.exit(str(error))
    print_turns(int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else main()
