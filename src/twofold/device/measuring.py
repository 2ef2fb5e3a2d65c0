"""Measure this machine: start one process per share of it, gather what they time, load what they serve."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from twofold.core.errors import RunError, ValueRefusedError
from twofold.core.nvidia import VISIBLE, accelerator_count, limit_w, watts
from twofold.device.cases import (
    ACCELERATOR,
    LONG_ANSWER_TOKENS,
    PROCESSOR,
    SHORT_ANSWER_TOKENS,
    Sample,
    Service,
    pooled,
)

WORKER = (sys.executable, "-m", "twofold.device.worker")
SILENT_LIMIT_S = 180.0  # without a word from any rank
LOG_TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """All samples of one measurement, those of all ranks pooled, and what was measured."""

    samples: tuple[Sample, ...]
    rank_count: int
    thread_count: int  # of one rank
    software: str
    accelerator: str  # "" where the processor itself was measured
    memory_bytes: int | None  # of one accelerator, where torch says
    cores: int | None
    duration_s: float
    resident_bytes: int  # of a rank that trains, the largest; 0 when none did
    load_average: float  # processes that wanted a core when this began
    limit_w: float | None = None  # of one accelerator, as the driver has it
    idle_w: float | None = None  # of all accelerators together
    busy_w: float | None = None  # the same, while they multiply


def measure(
    rank_count: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    worker: Sequence[str] = WORKER,
) -> Measured:
    """Run every benchmark on all ranks at once; `tell` hears what is going on, `worker` is what runs a rank.

    Without `rank_count`: one rank per accelerator that the driver shows, else two, or one on a single core.
    Raises RunError when a rank fails or stays silent. Ranks end with this process.
    """
    began_s, load_average = time.monotonic(), os.getloadavg()[0]
    ranks, accelerators = rank_count or default_rank_count(), accelerator_count()
    if 0 < accelerators < ranks:
        what = f"{ranks} ranks cannot share {accelerators} accelerators"
        raise ValueRefusedError(what, hint=f"write `--ranks {accelerators}`, or hide them: {VISIBLE}=")
    threads, idle_w = max(1, (os.cpu_count() or 1) // ranks), watts()
    heard: dict[str, list[dict[str, Any]]] = defaultdict(list)  # of the ranks, by the kind of event
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory(prefix="twofold-device-") as folder,
        _started(worker, ranks, threads, Path(folder)) as (processes, events),
    ):
        while len(heard["done"]) < ranks:
            event = _next(events, Path(folder))
            heard[event["event"]].append(event)
            if event["event"] == "stage":
                tell(event["name"])
            elif event["event"] == "sample":
                samples.append(Sample(event["group"], event["sizes"], tuple(event["seconds"])))
            if len(heard["serving"]) == ranks:
                tell("serving")
                samples += _load(heard.pop("serving"))
                for process in processes:
                    assert process.stdin
                    process.stdin.write("next\n")
                    process.stdin.flush()
    ready = {name: value for each in heard["ready"] for name, value in each.items()}
    return Measured(
        samples=pooled(samples),
        rank_count=ranks,
        thread_count=threads,
        software=heard["done"][-1]["software"],
        accelerator=str(ready.get("accelerator", "")),
        memory_bytes=ready.get("memory_bytes"),
        cores=ready.get("cores"),
        duration_s=time.monotonic() - began_s,
        resident_bytes=max((each["bytes"] for each in heard["resident"]), default=0),
        load_average=load_average,
        limit_w=limit_w() if ready.get("accelerator") else None,
        idle_w=idle_w if ready.get("accelerator") else None,
        busy_w=next((each["busy_w"] for each in heard["power"]), None),
    )


def default_rank_count() -> int:
    """Accelerators that a process here sees, else two shares of the processor, or one of a single core."""
    return accelerator_count() or min(2, os.cpu_count() or 1)


@contextmanager
def _started(
    worker: Sequence[str], ranks: int, threads: int, folder: Path
) -> Iterator[tuple[list[subprocess.Popen[str]], "Queue[dict[str, Any]]"]]:
    """The ranks' processes, each in a session of its own, and their events; all are ended on the way out."""
    events: Queue[dict[str, Any]] = Queue(maxsize=10_000)
    shared = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": str(threads),
        "TWOFOLD_STATE": str(folder),
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            with (folder / f"rank-{rank}.log").open("wb") as log:
                process = subprocess.Popen(
                    list(worker),
                    env={**shared, "RANK": str(rank), "TWOFOLD_ROLE": f"device-{rank}"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            processes.append(process)
            threading.Thread(target=_forward, args=(rank, process, events), daemon=True).start()
        yield processes, events
    finally:
        for process in processes:
            _end(process)


def _forward(rank: int, process: subprocess.Popen[str], events: "Queue[dict[str, Any]]") -> None:
    """Every line of a rank as an event; a last one when there will be no more."""
    assert process.stdout
    for line in process.stdout:
        try:
            events.put(json.loads(line))
        except ValueError:
            continue  # a library's own words
    events.put({"event": "ended", "rank": rank, "code": process.wait()})


def _end(process: subprocess.Popen[str]) -> None:
    """The rank and whatever it started, at once: it holds nothing that is worth a farewell."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            with suppress(BrokenPipeError):
                stream.close()


def _next(events: "Queue[dict[str, Any]]", folder: Path) -> dict[str, Any]:
    """The next event. Raises RunError when a rank failed, or when none says anything for long."""
    try:
        event = events.get(timeout=SILENT_LIMIT_S)
    except Empty:
        raise RunError(
            f"no rank of the measurement said anything for {SILENT_LIMIT_S:.0f} s", hint="try fewer `--ranks`"
        ) from None
    if event.get("code"):
        rank = event["rank"]
        log = (folder / f"rank-{rank}.log").read_text("utf-8", "replace").strip().splitlines()
        raise RunError(
            f"rank {rank} of the measurement failed\n" + "\n".join(log[-LOG_TAIL_LINES:]),
            hint="try `--ranks 1`, and close what else needs memory",
        )
    return event


def _load(serving: list[dict[str, Any]]) -> list[Sample]:
    """Every burst that the served model has a case for."""
    shape = serving[0]["layers"], serving[0]["hidden"]
    replicas = [(each["port"], each["model"]) for each in serving]
    known = (*PROCESSOR.services, *ACCELERATOR.services)
    served = [each for each in known if (each.layers, each.hidden) == shape]
    return [sample for each in served for sample in served_samples(each, replicas)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


BURSTS = 3
TIMEOUT_S = 120.0


def served_samples(service: Service, replicas: Sequence[tuple[int, str]]) -> tuple[Sample, Sample]:
    """Seconds of one decoding step, and from a request to its first token, with all replicas loaded alike.

    `replicas` are (port, model). Two bursts that differ in the answers' length alone differ by that many
    steps; what the shorter takes beyond its own steps is what comes before a first token.
    """
    return asyncio.run(_served(service, replicas))


async def _served(service: Service, replicas: Sequence[tuple[int, str]]) -> tuple[Sample, Sample]:
    await _burst(service, replicas, SHORT_ANSWER_TOKENS)  # warms caches and threads
    steps_s, first_s = [], []
    for _ in range(BURSTS):
        short_s = await _burst(service, replicas, SHORT_ANSWER_TOKENS)
        long_s = await _burst(service, replicas, LONG_ANSWER_TOKENS)
        step_s = max(long_s - short_s, 1e-6) / (LONG_ANSWER_TOKENS - SHORT_ANSWER_TOKENS)
        steps_s.append(step_s)
        first_s.append(max(short_s - step_s * (SHORT_ANSWER_TOKENS - 1), 1e-6))
    sizes = asdict(service)
    return Sample("step", sizes, tuple(steps_s)), Sample("first", sizes, tuple(first_s))


async def _burst(service: Service, replicas: Sequence[tuple[int, str]], answer_tokens: int) -> float:
    """Mean seconds from the burst to the end of an answer."""
    prompt = " ".join(f"w{1 + 7 * index % 900}" for index in range(service.prompt))
    began_s = time.perf_counter()
    asked = {"prompt": prompt, "max_tokens": answer_tokens, "stream": True}
    answers = (
        _answered(port, {"model": name, **asked}) for port, name in replicas for _ in range(service.requests)
    )
    ended_s = await asyncio.wait_for(asyncio.gather(*answers), TIMEOUT_S)
    return sum(ended_s) / len(ended_s) - began_s


async def _answered(port: int, body: dict[str, object]) -> float:
    """When the stream of one request had ended. Raises ConnectionError when it is refused."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n"
    try:
        writer.write(f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + data)
        status = await reader.readline()
        if b" 200 " not in status:
            raise ConnectionError(f"{status.decode().strip()}: {(await reader.read(2000)).decode()[-300:]}")
        while await reader.read(65536):
            pass
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return time.perf_counter()
