"""A service is brought up once: what was told the same is kept, and waited for where it is still starting."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold.live.engines import EngineSettings
from twofold.live.gateway_config import write_gateway_config
from twofold.live.processes import PortError, digest_of, free_port, running, start, stop_all
from twofold.live.supervisor import ServiceSettings, _config, bring_up, need_gateway_port

for library in ("psutil", "uvicorn", "aiohttp"):
    pytest.importorskip(library, reason="needs the extra [live]: `make extras`")

LATE = """
import http.server, sys, time
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler)
time.sleep(1.0)
server.serve_forever()
"""  # accepts connections at once, answers requests a second later


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    try:
        yield tmp_path / ".twofold"
    finally:
        stop_all(tmp_path / ".twofold")


def without_replicas(tmp_path: Path, port: int) -> ServiceSettings:
    engine = EngineSettings(tmp_path / "artefact", "float32", 1, 8, 64)
    return ServiceSettings(engine, 0, 4, port, input_token_s=0.001, output_token_s=0.01)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_gateway_that_is_still_starting_is_kept_and_waited_for(tmp_path: Path, state: Path) -> None:
    settings = without_replicas(tmp_path, free_port())
    log = state / "gateway" / "events.jsonl"
    digest = digest_of([write_gateway_config(_config(settings, (), log))])
    started = start(
        [sys.executable, "-c", LATE, str(settings.port)], "gateway", state, digest=digest, port=settings.port
    )
    bring_up(settings, state)
    assert [child.process_id for child in running(state, "gateway")] == [started.process_id]
    assert listens(settings.port)


def test_a_gateway_is_kept_replaced_when_told_otherwise_and_started_again_when_killed(
    tmp_path: Path, state: Path
) -> None:
    settings = without_replicas(tmp_path, free_port())
    bring_up(settings, state)
    [first] = running(state, "gateway")
    need_gateway_port(settings.port, state)  # our own gateway is in nobody's way
    with pytest.raises(PortError):
        need_gateway_port(settings.port, tmp_path / "another")
    bring_up(settings, state)
    assert running(state, "gateway") == [first]
    os.kill(first.process_id, signal.SIGKILL)
    bring_up(settings, state)  # at once: the killed one may still hold its port
    [second] = running(state, "gateway")
    moved = without_replicas(tmp_path, free_port())
    bring_up(moved, state)
    [third] = running(state, "gateway")
    assert len({first.process_id, second.process_id, third.process_id}) == 3
    assert listens(moved.port)
    assert not listens(settings.port)
