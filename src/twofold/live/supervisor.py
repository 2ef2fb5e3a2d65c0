"""Brings a service up and under load: replicas, then the gateway, then clients. Keeps what already runs.

It decides nothing about requests: that is the gate's work, in the gateway's process.
"""

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from twofold.core.errors import RunError
from twofold.live import processes
from twofold.live.engines import EngineSettings, Replica, await_replica, launch_replica
from twofold.live.gateway_config import (
    HEALTH_PATH,
    GatewayConfig,
    GatewayLimits,
    GatewayReplica,
    write_gateway_config,
)
from twofold.policy.gate import settings as gates

GATEWAY_START_S = 60.0
GATEWAY_ANSWER_S = 5.0  # of one request to a gateway that was found running
GATEWAY_GRACE_S = 4.0  # below what `stop` waits before it ends a process


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A service on this machine."""

    engine: EngineSettings
    replica_count: int
    in_flight_limit: int  # of one replica
    port: int  # of the gateway
    input_token_s: float  # what the gate believes of a replica: seconds of prefill per prompt token …
    output_token_s: float  # … and per token of an answer
    gate: gates.GateSettings = field(default_factory=gates.GateSettings)
    first_token_s: float = 0.0  # … and of an answer's first token, beyond the reading of its prompt
    gate_digest: str = ""  # of what the gate was built as, for the twin and for this


@dataclass(frozen=True, slots=True)
class Service:
    """A service that answers. `cold_start_s` is None when nothing had to be started."""

    url: str
    replicas: tuple[Replica, ...]
    cold_start_s: float | None


def need_gateway_port(port: int, state: Path) -> None:
    """Raise PortError when a program other than this state's own gateway holds `port`."""
    if not any(child.port == port for child in processes.running(state, "gateway")):
        processes.need_free_port(port)


def bring_up(settings: ServiceSettings, state: Path) -> Service:
    """Start what is missing and wait until the gateway answers; what was told the same runs on.

    Raises PortError when another program holds the port, RunError when a process ends or stays silent.
    """
    gateways = processes.running(state, "gateway")
    if not any(child.port == settings.port for child in gateways):
        processes.stop(gateways)
        processes.need_free_port(settings.port)
    began_s = time.monotonic()
    launched = [
        launch_replica(settings.engine, f"replica-{number}", state)
        for number in range(settings.replica_count)
    ]
    replicas = tuple(
        await_replica(child, state, settings.engine.artefact, started, began_s) for child, started in launched
    )
    _start_gateway(settings, replicas, state)
    colds = [replica.cold_start_s for replica in replicas if replica.cold_start_s is not None]
    return Service(f"http://127.0.0.1:{settings.port}", replicas, max(colds, default=None))


def _start_gateway(settings: ServiceSettings, replicas: tuple[Replica, ...], state: Path) -> None:
    """The gateway in front of these replicas; one that runs and was told the same is kept."""
    folder = state / "gateway"
    folder.mkdir(parents=True, exist_ok=True)
    text = write_gateway_config(_config(settings, replicas, folder / "events.jsonl"))
    digest = processes.digest_of([text])
    there = processes.running(state, "gateway")
    if [child.digest for child in there] == [digest] and _answers(settings.port, there[0], state):
        return
    processes.stop(there)
    processes.need_free_port(settings.port)
    path = folder / "config.json"
    path.write_text(text, "utf-8")
    command = processes.python_module("twofold.live.gateway", str(path))
    child = processes.start(command, "gateway", state, digest=digest, port=settings.port)
    processes.wait_until_open(settings.port, child, processes.log_path(state, "gateway"), GATEWAY_START_S)


def _answers(port: int, gateway: processes.Child, state: Path) -> bool:
    """Whether a gateway that was found running serves; one that was started a moment ago is waited for.

    One that was killed a moment ago still stands in the table of processes, and its port accepts
    connections until it is gone: only an answered request shows that it lives.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline_s = time.monotonic() + GATEWAY_START_S
    while time.monotonic() < deadline_s:
        try:
            processes.wait_until_open(port, gateway, processes.log_path(state, "gateway"), GATEWAY_START_S)
            direct.open(f"http://127.0.0.1:{port}{HEALTH_PATH}", timeout=GATEWAY_ANSWER_S).close()
        except RunError:
            return False
        except urllib.error.HTTPError as refusal:  # that no replica is healthy is an answer as well
            refusal.close()
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
            continue
        return gateway in processes.running(state, "gateway")
    return False


def _config(settings: ServiceSettings, replicas: tuple[Replica, ...], log: Path) -> GatewayConfig:
    model = str(settings.engine.artefact)
    return GatewayConfig(
        host="127.0.0.1",
        port=settings.port,
        replicas=tuple(
            GatewayReplica(each.replica_id, "127.0.0.1", each.port, model, settings.in_flight_limit)
            for each in replicas
        ),
        beliefs=gates.Beliefs(settings.input_token_s, settings.output_token_s, settings.first_token_s),
        log=str(log),
        model_name=settings.engine.artefact.name,
        gate=settings.gate,
        gate_digest=settings.gate_digest,
        limits=GatewayLimits(grace_s=GATEWAY_GRACE_S),
    )
