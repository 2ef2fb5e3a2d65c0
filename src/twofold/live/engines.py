"""Serving engines as child processes: how one is started, how it says that it is ready, what it can hold.

One engine so far, `transformers serve` with continuous batching: it needs nothing but the training
libraries, and speaks the OpenAI protocol that the gateway passes through.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from twofold.core.errors import RunError
from twofold.live import processes

BLOCK_TOKENS = 32  # of one KV block, stated on the command line
KV_BLOCK_COUNT = 256  # of a replica on processors, which have no memory of their own to fill
PROCESSOR_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # eager: a machine without a C compiler serves as well
    "TOKENIZERS_PARALLELISM": "false",
}
START_TIMEOUT_S = 180.0
WARM_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What every replica of a service is told."""

    artefact: Path  # a Hugging Face checkpoint folder
    weights_format: str  # float32, bfloat16
    thread_count: int
    kv_block_count: int
    batch_tokens: int  # prefill tokens of one step
    device: str = "cpu"

    @property
    def kv_capacity_tokens(self) -> int:
        """Prompt and answer tokens that one replica can hold."""
        return self.kv_block_count * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Replica:
    """One running engine. `cold_start_s` is None when it was found running."""

    replica_id: str
    port: int
    cold_start_s: float | None


def engine_name() -> str:
    """The engine and its version, as plans name it."""
    return f"transformers {version('transformers')}"


def serve_options(weights_format: str, batch_tokens: int) -> tuple[tuple[str, str], ...]:
    """Options of `transformers serve` that a plan decides: each with its value, "" for a switch.

    These and `processor_options` are what `render` writes too: what is rendered is what is started.
    """
    return (
        ("--continuous-batching", ""),
        ("--dtype", weights_format),
        ("--cb-max-batch-tokens", str(batch_tokens)),
    )


def processor_options(device: str, kv_block_count: int) -> tuple[tuple[str, str], ...]:
    """What a replica on processors is told beside: where it computes, and how large its cache is."""
    return (
        ("--device", device),
        ("--cb-block-size", str(BLOCK_TOKENS)),
        ("--cb-num-blocks", str(kv_block_count)),
    )


def engine_command(settings: EngineSettings) -> list[str]:
    """The command line of a replica, all but its port."""
    decided = serve_options(settings.weights_format, settings.batch_tokens)
    here = processor_options(settings.device, settings.kv_block_count)
    return [
        str(Path(sys.executable).with_name("transformers")),
        "serve",
        str(settings.artefact),
        *(word for option in (*decided, *here) for word in option if word),
        *("--host", "127.0.0.1"),
    ]


def launch_replica(settings: EngineSettings, replica_id: str, state: Path) -> tuple[processes.Child, bool]:
    """The replica's process, and whether it was started just now.

    One that runs already and was told the same is kept; one that was told something else is replaced.
    """
    command = engine_command(settings)
    digest = processes.digest_of([*command, str(settings.thread_count), engine_name()])
    there = processes.running(state, replica_id, exact=True)
    if there and there[0].digest == digest and there[0].port and processes.is_open(there[0].port):
        return there[0], False
    processes.stop(there)
    port = processes.free_port()
    environment = {
        "OMP_NUM_THREADS": str(settings.thread_count),
        "HF_HUB_OFFLINE": "1",
        **PROCESSOR_ENVIRONMENT,
    }
    told = [*command, "--port", str(port)]
    return processes.start(told, replica_id, state, digest=digest, port=port, environment=environment), True


def await_replica(
    child: processes.Child, state: Path, artefact: Path, started: bool, began_s: float
) -> Replica:
    """Wait for the first answered request, which also builds the engine's caches. `began_s` is monotonic."""
    port, log = child.port or 0, processes.log_path(state, child.role)
    processes.wait_until_open(port, child, log, START_TIMEOUT_S)
    deadline_s = time.monotonic() + WARM_TIMEOUT_S
    while True:
        try:
            _ask(port, str(artefact))
            break
        except (urllib.error.URLError, OSError, ValueError) as error:
            if time.monotonic() > deadline_s or child not in processes.running(state, child.role, exact=True):
                raise RunError(
                    f"{child.role} never answered its first request: {error}\n{processes.last_lines(log)}",
                    hint=f"its log is {log}",
                ) from error
            time.sleep(0.2)
    return Replica(child.role, port, time.monotonic() - began_s if started else None)


def _ask(port: int, model: str) -> None:
    """One request for one token, answered in full."""
    body = json.dumps({"model": model, "prompt": "import os", "max_tokens": 2, "stream": False})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body.encode(), {"content-type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60.0) as answer:
        json.loads(answer.read())
