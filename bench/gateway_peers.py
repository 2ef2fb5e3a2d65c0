"""The gateway beside other people's: nginx, LiteLLM's proxy and vLLM's router, in one run on one load.

`python -m bench.gateway_peers [--rounds N] [--seconds S] [--peers FOLDER] [--nginx PROGRAM]`, for minutes.
All stand before the stand-in engine of `bench.gateway` with its clients, each as one server of one replica,
as `bench.peers.gateways` starts them: no key is asked, nothing is written of a request but by our gateway
(both its logs), retries are off but for ours, connections to the engine are kept. What is not installed is
named, and the rest runs. Chats are asked, not completions, for which LiteLLM makes itself a new client each
time.

A round asks every server in turn, the next one in the opposite order, so that a drift of the machine cancels.
Ratios and added times are made within a round; what is printed is their median, least and most.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.gateway import (
    ANSWER_END,
    BARE,
    CONCURRENCIES,
    DURATION_S,
    EVENT_COUNT,
    EVERY,
    Client,
    Engine,
    chunk,
    load_s,
    request,
    run_ours,
    run_process,
    the_gate,
)
from bench.peers.gateways import PEERS, found, missing, start, stop, version
from twofold.live.processes import free_port

ALONE = "engine alone"
ROUNDS = 6  # an even number, so that either order is taken as often
FOLDER = Path(__file__).parents[1] / ".peers"  # that `make peers` makes
START_S, PATIENCE_S = 120.0, 30.0
LEAST_BYTES = EVENT_COUNT * 64  # of a whole answer; an error is shorter
CHAT = request("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 400}]})
CHAT_EVENTS = [
    chunk("chat.completion.chunk", {"delta": {"content": f"token {number}"}}, None)
    for number in range(EVENT_COUNT - 1)
] + [chunk("chat.completion.chunk", {"delta": {}}, "length")]
WELL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class WatchedEngine(Engine):
    """The stand-in, which routers also ask whether it is well."""

    events = CHAT_EVENTS

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET "):
            self.transport.write(WELL)
        else:
            super().data_received(data)


class WaryClient(Client):
    """A client that takes no error for an answer."""

    request = CHAT

    def ask(self) -> None:
        self.size_bytes = 0
        super().ask()

    def data_received(self, data: bytes) -> None:
        is_good = self.size_bytes > 0 or data.startswith(b"HTTP/1.1 200")
        self.size_bytes += len(data)
        if is_good and (self.size_bytes >= LEAST_BYTES or (self.last + data)[-5:] != ANSWER_END):
            super().data_received(data)
        elif not self.done.done():
            self.done.set_exception(ConnectionError(f"no whole answer: {data[:80]!r}"))


async def serve_watched(port: int) -> None:
    """The stand-in, for ever."""
    server = await asyncio.get_running_loop().create_server(WatchedEngine, "127.0.0.1", port)
    await server.serve_forever()


@dataclass(frozen=True, slots=True)
class Round:
    """What one server did under one load, once."""

    rate_per_s: float
    p50_s: float
    cpu_s: float  # of all processes of the server, per answer


Rounds = dict[tuple[str, int], list[Round]]  # by server and clients at once, equally many of each


async def answered(port: int) -> bool:
    """Whether one request gets all its events."""
    answer = b""
    with suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHAT)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n" + ANSWER_END), 5.0)
        writer.close()
    return answer.startswith(b"HTTP/1.1 200") and answer.count(b"token ") == EVENT_COUNT - 1


async def ready(port: int, is_running: Callable[[], bool]) -> bool:
    """Whether it answers within its time to start."""
    until_s = time.perf_counter() + START_S
    while is_running() and time.perf_counter() < until_s:
        if await answered(port):
            return True
        await asyncio.sleep(0.2)
    return False


def cpu_s(process_id: int) -> float:
    """Of a process and its children."""
    import psutil

    process, used_s = psutil.Process(process_id), 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            used_s += times.user + times.system
    return used_s


async def one_round(port: int, process_id: int, concurrency: int, duration_s: float) -> Round:
    """A load, and what it took."""
    before_s, began_s = cpu_s(process_id), time.perf_counter()
    load = load_s(port, concurrency, duration_s, WaryClient)
    latencies_s = await asyncio.wait_for(load, duration_s + PATIENCE_S)
    wall_s, count = time.perf_counter() - began_s, len(latencies_s)
    used_s = cpu_s(process_id) - before_s
    return Round(count / wall_s, statistics.median(latencies_s), used_s / count)


async def measure(
    ports: dict[str, int], process_ids: dict[str, int], rounds: int, duration_s: float
) -> tuple[Rounds, dict[str, str]]:
    """Rounds in turn, and which peers failed, by what: they are left out. One of ours that fails ends all."""
    taken: Rounds = {(name, each): [] for each in CONCURRENCIES for name in ports}
    failed: dict[str, str] = {}
    for name, port in ports.items():
        await load_s(
            port, 4, min(duration_s, 1.0), WaryClient
        )  # what is compiled or opened at the first requests
        assert await answered(port), name
    for concurrency in CONCURRENCIES:
        for number in range(rounds):
            for name in list(ports)[:: -1 if number % 2 else 1]:
                if name in failed:
                    continue
                try:
                    result = await one_round(ports[name], process_ids[name], concurrency, duration_s)
                except (OSError, statistics.StatisticsError) as error:
                    if name not in PEERS:
                        raise
                    failed[name] = f"{concurrency} at once: {error or type(error).__name__}"
                    await asyncio.sleep(duration_s)  # until its other clients are done
                else:
                    taken[name, concurrency].append(result)
    return {key: each for key, each in taken.items() if key[0] not in failed}, failed


def spread(values: Sequence[float], form: str) -> str:
    """Their median, with the least and the most."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def times(one: Sequence[Round], other: Sequence[Round]) -> list[float]:
    """How many times the answers/s of another it gave, round by round."""
    return [each.rate_per_s / base.rate_per_s for each, base in zip(one, other, strict=True)]


def lines(rounds: Rounds) -> list[str]:
    """The table, then what the gateway with every policy is beside each peer."""
    told = [f"{'server':18}{'clients':>8}{'answers/s':>27}{'x bare':>26}{'ms added':>29}{'CPU ms':>9}"]
    for (name, clients), each in rounds.items():
        added = [
            (one.p50_s - base.p50_s) * 1e3 for one, base in zip(each, rounds[ALONE, clients], strict=True)
        ]
        told.append(
            f"{name:18}{clients:>8}{spread([one.rate_per_s for one in each], ',.0f'):>27}"
            f"{spread(times(each, rounds[BARE, clients]), '.3f'):>26}"
            f"{spread(added, '+.2f') if clients == 1 and name != ALONE else '':>29}"
            f"{statistics.median(one.cpu_s for one in each) * 1e3:>9.3f}"
        )
    for name, clients in rounds:
        if name in PEERS:
            ratios = spread(times(rounds[EVERY, clients], rounds[name, clients]), ".2f")
            told.append(f"every policy beside {name}, {clients} at once: {ratios} times the answers/s")
    return told


def run(programs: Mapping[str, str], rounds: int, duration_s: float, folder: Path) -> None:
    """Start all, measure, print."""
    import uvloop

    ports = {name: free_port() for name in (ALONE, BARE, "gateway", EVERY)}
    with ExitStack() as stack:
        ours = {ALONE: run_process(serve_watched, ports[ALONE])} | run_ours(ports, folder)
        for process in ours.values():
            stack.callback(process.join)
            stack.callback(process.kill)
        ids = {name: process.pid or 0 for name, process in ours.items()}
        for name, process in ours.items():
            assert uvloop.run(ready(ports[name], process.is_alive)), f"{name} does not answer"
        for name, program in programs.items():
            port, log = free_port(), folder / f"{name}.log"
            started = start(name, program, folder, ports[ALONE], port, log)
            stack.callback(stop, started)
            if uvloop.run(ready(port, lambda: started.poll() is None)):  # noqa: B023
                ports[name], ids[name] = port, started.pid
            else:
                print(f"{name} DOES NOT ANSWER:\n{log.read_text('utf-8', 'replace')[-800:]}")
        taken, failed = uvloop.run(measure(ports, ids, rounds, duration_s))
    print("\n".join(lines(taken)))
    for name, reason in failed.items():
        print(f"{name} FAILED and is left out: {reason}")


def main(arguments: Sequence[str] = ()) -> None:
    """Print answers per second of all servers side by side, and name what is not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_peers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each load; %(default)s")
    parser.add_argument("--seconds", type=float, default=DURATION_S, help="of a round; %(default)s")
    parser.add_argument("--peers", type=Path, default=FOLDER, help="environments of the peers; .peers")
    parser.add_argument("--nginx", help="its program, if it is not installed")
    told = parser.parse_args(arguments)
    try:
        import uvloop  # noqa: F401
    except ImportError:
        print("needs the extra [live]")
        return
    programs = found(told.peers, told.nginx)
    print(
        f"{EVENT_COUNT} events an answer, {told.rounds} rounds of {told.seconds:g} s: median (least to most);"
    )
    print("ms added at one client: of the median answer, beside the engine alone")
    print(the_gate())
    print(", ".join(f"{name} {version(program)}" for name, program in programs.items()) or "no peer is there")
    with tempfile.TemporaryDirectory() as folder:
        run(programs, told.rounds, told.seconds, Path(folder))
    print("\n".join(missing(programs)))


if __name__ == "__main__":
    main(sys.argv[1:])
