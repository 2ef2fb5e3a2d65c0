"""What logging costs: one gateway that writes its logs to a disk, and one whose logs go nowhere.

Both are the same otherwise, take turns, and are asked by the same clients for answers of an engine that
writes a token each 10 ms, as a fast one does. What is compared is the 95th percentile of a whole streamed
answer, over pairs of turns; the bounds are of the median of the pairs' ratios, by resampling them.
"""

import asyncio
import math
import random
import statistics
import tempfile
from pathlib import Path

from bench.gateway import ANSWER_END, ANSWER_EVENTS, ANSWER_HEAD, Engine, _open, load_s, run_process
from twofold.live.gateway.gateway_config import GatewayConfig, GatewayReplica
from twofold.live.processes import free_port
from twofold.policy.gate.settings import Beliefs, GateSettings

PAIRS = 40
TURN_S = 1.2
CONCURRENCY = 16
GAP_S = 0.01  # from one token of the engine to its next
DRAWS = 2000
NOWHERE = "nowhere"  # the log that is no file


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
    """The gateway as its own process runs it, or with logs that throw their lines away."""
    from twofold.live import line_file
    from twofold.live.gateway import gateway

    if NOWHERE in config.log:

        class Nowhere(line_file.LineFile):
            def append(self, line: str) -> None: ...

            def flush(self) -> None:
                self._waiting.clear()

        for name in ("append", "flush"):
            setattr(line_file.LineFile, name, getattr(Nowhere, name))
        gateway.GateLog.told = lambda _self, _entry: None  # type: ignore[method-assign]
    await gateway.serve(config)


async def _measure(ports: dict[str, int]) -> dict[str, list[list[float]]]:
    turns: dict[str, list[list[float]]] = {name: [] for name in ports}
    for port in ports.values():
        await _open(port)
        await load_s(port, CONCURRENCY, TURN_S)
    for pair in range(PAIRS):
        names = list(ports) if pair % 2 else list(ports)[::-1]
        for name in names:
            turns[name].append(await load_s(ports[name], CONCURRENCY, TURN_S))
    return turns


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def main() -> None:
    """Print the 95th percentiles with logs and without, and their ratio with its bounds."""
    try:
        import uvloop
    except ImportError:
        print("needs the extra [live]")
        return
    with tempfile.TemporaryDirectory() as folder:
        engine = free_port()
        replica = GatewayReplica("replica-0", "127.0.0.1", engine, "m", 256)
        ports, processes = {}, [run_process(serve_paced, engine)]
        for name in ("logs", NOWHERE):
            ports[name] = free_port()
            own = Path(folder) / name
            config = GatewayConfig(
                *("127.0.0.1", ports[name], (replica,), Beliefs(1e-4, 1e-3), str(own / "events.jsonl")),
                gate=GateSettings(),
                requests_log=str(own / "requests.jsonl"),
            )
            processes.append(run_process(serve_logging, config))
        try:
            turns = uvloop.run(_measure(ports))
        finally:
            for process in processes:
                process.kill()
                process.join()
    with_s, without_s = ([p95(turn) for turn in turns[name]] for name in ("logs", NOWHERE))
    ratios = [one / other for one, other in zip(with_s, without_s, strict=True)]
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    low, high = drawn[DRAWS // 40], drawn[-DRAWS // 40]
    count = sum(map(len, turns["logs"]))
    print(f"p95 of an answer, medians of {PAIRS} pairs of turns of {TURN_S:g} s, {count} answers with logs")
    told_ms = f"{statistics.median(with_s) * 1e3:.2f} ms, without {statistics.median(without_s) * 1e3:.2f} ms"
    print(f"with logs {told_ms}")
    print(f"ratio {statistics.median(ratios):.3f}, 95 % within {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
