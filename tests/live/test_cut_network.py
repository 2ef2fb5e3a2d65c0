"""With the network cut after the installation a service comes up, answers, heals and goes down on loopback.

All tests so: `make test-cut`, as root.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.loopback_only import REFUSED

ALONE = str(Path(__file__).parents[1] / "loopback_only.py")
SERVES = """
import socket, sys
from pathlib import Path
from tests.live.test_controller import Served, ask, program, until
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.processes import free_port, running

try:
    socket.create_connection(("192.0.2.1", 9), 1.0)
except OSError as error:
    assert "unreachable" in str(error), error
folder = Path(sys.argv[1])
engine = EngineSettings("v1", "float32", 1, 256, 64, program=program(folder, "stub", folder / "orders"))
served = Served(folder / ".twofold", ServiceSettings(engine, 2, 4, free_port(), 0.001, 0.01), folder)
try:
    bring_up(served.settings, served.state)
    killed = served.hit("replica-0")
    assert ask(served.url) == 200
    until(lambda: served.back("replica-0", killed) and ask(served.url) == 200, served.happened)
finally:
    bring_down(served.state)
assert running(served.state) == []
print("served")
"""


def test_a_service_needs_no_network_but_loopback(tmp_path: Path) -> None:
    command = [sys.executable, ALONE, sys.executable, "-c", SERVES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(ALONE).parents[1])
    if done.returncode == REFUSED:
        pytest.skip(f"needs the right to a network of its own: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
