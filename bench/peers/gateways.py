"""Other people's gateways before one engine: how each is told, started, found and ended; none is imported.

nginx and LiteLLM run one worker. vLLM's router takes the cores that it finds, and deals requests in turn: its
default asks the engine to render each prompt first, which is another request. nginx's answers are not
buffered, and it writes no log. All listen to loopback at ports that were free, and write into one folder.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twofold.live.processes import free_port

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's server. `command` writes its configuration and says how it is started."""

    command: Callable[[str, Path, int, int], list[str]]  # by program, scratch folder, engine's port, its own
    program: str  # nginx's own, or under the folder of the peers
    install: str
    environment: Mapping[str, str]


def nginx_command(program: str, folder: Path, engine: int, port: int) -> list[str]:
    """Everything that it writes goes into the folder: it wants no rights of its own."""
    kept = "keepalive_requests 1000000000"  # nginx hangs up after a thousand otherwise
    temporary = "".join(
        f"  {part}_temp_path {folder}/{part};\n"
        for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nevents {{ worker_connections 1024; }}\n"
        f"http {{\n  access_log off;\n  {kept};\n{temporary}"
        f"  upstream engine {{ server 127.0.0.1:{engine}; keepalive 256; {kept}; }}\n"
        f"  server {{\n    listen 127.0.0.1:{port};\n    location / {{\n      proxy_pass http://engine;\n"
        '      proxy_http_version 1.1;\n      proxy_set_header Connection "";\n'
        "      proxy_buffering off;\n      proxy_next_upstream off;\n    }\n  }\n}\n",
        "utf-8",
    )
    return [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def litellm_command(program: str, folder: Path, engine: int, port: int) -> list[str]:
    """Its configuration as JSON, which YAML contains."""
    told = {
        "model": "hosted_vllm/m",
        "api_base": f"http://127.0.0.1:{engine}/v1",
        "api_key": "none",
    }
    settings = {
        "model_list": [{"model_name": "default", "litellm_params": told}],
        "litellm_settings": {"num_retries": 0},
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},  # here, on loopback
    }
    path = folder / "litellm.yaml"
    path.write_text(json.dumps(settings), "utf-8")
    return [program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


def router_command(program: str, _folder: Path, engine: int, port: int) -> list[str]:
    """It is told by its command alone."""
    at = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://127.0.0.1:{engine}"]
    metrics = ["--prometheus-port", str(free_port())]
    return [program, *at, *metrics, "--policy", "round_robin", "--disable-retries", "--log-level", "warning"]


PEERS = {
    "nginx": Peer(nginx_command, "nginx", "`make system`, or Debian's nginx-light; or --nginx PROGRAM", {}),
    "LiteLLM": Peer(
        litellm_command,
        "litellm/bin/litellm",
        "`make peers`, 800 MB",
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},  # it asks the network otherwise
    ),
    "vLLM's router": Peer(router_command, "vllm-router/bin/vllm-router", "`make peers`, 130 MB", {}),
}


def found(folder: Path, nginx: str | None = None) -> dict[str, str]:
    """The programs that are there, by peer."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    there = {name: shutil.which(str(folder.resolve() / peer.program)) for name, peer in PEERS.items()}
    there["nginx"] = shutil.which(nginx or "nginx", path=path)
    return {name: program for name, program in there.items() if program}


def missing(programs: Mapping[str, str]) -> list[str]:
    """A line for each peer that is not there, and how it is installed."""
    return [f"{name} is NOT THERE: {PEERS[name].install}" for name in PEERS if name not in programs]


def version(program: str) -> str:
    """As nginx says it, or as the environment around the program does: LiteLLM takes long to say."""
    name = Path(program).name
    if name == "nginx":
        told = subprocess.run([program, "-v"], capture_output=True, text=True, check=False).stderr
        return told.rpartition("/")[2].strip()
    folders = Path(program).parents[1].glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info")
    return next((each.name.removesuffix(".dist-info").rpartition("-")[2] for each in folders), "unknown")


def start(
    name: str, program: str, folder: Path, engine: int, port: int, log: Path
) -> subprocess.Popen[bytes]:
    """One that listens to the port, before the engine's; it is told nothing of our own sources."""
    command = PEERS[name].command(program, folder, engine, port)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("wb") as out:
        return subprocess.Popen(
            command, cwd=folder, env={**environment, **PEERS[name].environment}, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """A peer and what it started."""
    with suppress(ProcessLookupError):
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
