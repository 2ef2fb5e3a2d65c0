"""Ranks are processes that speak lines: what they say is gathered, and none outlives the measurement."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from twofold.core.errors import RunError
from twofold.device.cases import Service
from twofold.device.measuring import BURSTS, default_rank_count, measure, served_samples

TELL = "import json, os, sys\ndef say(**event): print(json.dumps(event), flush=True)\n"
RANK = (
    TELL
    + """
say(event="ready")
if os.environ["RANK"] == "0": say(event="stage", name="products")
print("a library's own words", flush=True)
say(event="sample", group="copy", sizes={"bytes": 8}, seconds=[1.0 + int(os.environ["RANK"])])
say(event="resident", bytes=100 + int(os.environ["RANK"]))
say(event="done", software="torch 9")
"""
)
FAILING = (
    TELL + "say(event='ready')\nif os.environ['RANK'] == '1': sys.exit('no memory left')\nsys.stdin.read()\n"
)


def test_samples_of_all_ranks_are_gathered_as_one() -> None:
    heard: list[str] = []
    found = measure(2, heard.append, (sys.executable, "-c", RANK))
    assert heard == ["products"]
    (sample,) = found.samples
    assert sorted(sample.seconds) == [1.0, 2.0]
    assert (found.software, found.rank_count, found.resident_bytes) == ("torch 9", 2, 101)


def test_a_rank_that_fails_ends_the_others_and_is_quoted(tmp_path: Path) -> None:
    mark = tmp_path / "process"
    program = f"import os\nopen({str(mark)!r} + os.environ['RANK'], 'w').write(str(os.getpid()))\n{FAILING}"
    with pytest.raises(RunError) as failed:
        measure(2, worker=(sys.executable, "-c", program))
    assert "no memory left" in failed.value.message
    other = int(Path(f"{mark}0").read_text())
    assert not Path(f"/proc/{other}").exists()


def test_a_machine_has_at_least_one_rank() -> None:
    assert default_rank_count() >= 1


@contextmanager
def server(status: str) -> Iterator[tuple[int, list[bytes]]]:
    """An HTTP server on loopback that answers everything alike, and the bodies that it was sent."""
    bodies: list[bytes] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    ports: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\ndata: x\n\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def listen() -> None:
        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.append(listener.sockets[0].getsockname()[1])
        ready.set()
        async with listener:
            while not stopped.is_set():
                await asyncio.sleep(0.01)

    stopped = threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(listen()))
    thread.start()
    assert ready.wait(10)
    try:
        yield ports[0], bodies
    finally:
        stopped.set()
        thread.join(10)
        loop.close()


def test_every_replica_gets_every_burst() -> None:
    with server("200 OK") as (port, bodies), server("200 OK") as (other, others):
        step, first = served_samples(Service(2, 128, 3, 5), [(port, "a"), (other, "b")])
    assert len(bodies) == len(others) == 3 * (1 + 2 * BURSTS)
    assert all(b'"model": "a"' in body for body in bodies)
    assert len(step.seconds) == len(first.seconds) == BURSTS
    assert min(step.seconds + first.seconds) > 0
    assert step.sizes == {"layers": 2, "hidden": 128, "requests": 3, "prompt": 5}


def test_a_refusal_is_an_error() -> None:
    with server("503 Service Unavailable") as (port, _), pytest.raises(ConnectionError, match="503"):
        served_samples(Service(2, 128, 1, 5), [(port, "a")])
