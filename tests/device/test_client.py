"""Bursts reach every replica with as many requests as asked; a server that refuses is an error."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from twofold.device.cases import Service
from twofold.device.client import BURSTS, served_samples


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
