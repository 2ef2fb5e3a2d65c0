"""Serving engines behind one adapter: how each is started, asked, scraped and ended, and what it can do.

One row of `ENGINES` per engine. All speak the OpenAI protocol that the gateway passes through; they differ in
their command lines, in what their health route knows, in the names of their metrics and in what they accept.
What is asked of a running engine stands in `engine_checks.py`.
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.processes import python_module

BLOCK_TOKENS = 32  # of one KV block, stated on the command line
KV_BLOCK_COUNT = 256  # of a replica on processors, which have no memory of their own to fill
PROCESSOR_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # eager: a machine without a C compiler serves as well
    "TOKENIZERS_PARALLELISM": "false",
}
START_TIMEOUT_S = 180.0  # from its start to its first answered request
HIDE_GPUS = "CUDA_VISIBLE_DEVICES"
OPTION = "`--program PATH`"  # of `up`
VERIFIED = "twofold.live.control.verified"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What every replica of a service is told."""

    artefact: str  # a Hugging Face checkpoint folder; for llama.cpp one with a GGUF file; "" behind a URL
    weights_format: str  # float32, bfloat16
    thread_count: int
    kv_block_count: int
    batch_tokens: int  # prefill tokens of one step
    device: str = "cpu"
    kind: str = "transformers"  # a row of ENGINES
    sequence_count: int = 16  # that run at once, where the engine is told it
    program: str = ""  # the engine's executable; "": the one that is found
    url: str = ""  # of an engine that runs already
    model: str = ""  # what the engine behind the URL calls its model
    key_variable: str = ""  # of the environment, that holds the key which that engine asks for
    authorities: str = ""  # path of a PEM file of whom its certificate may be by, besides whom we trust
    digest: str = ""  # sha256:… of the artefact's manifest: other bytes are never opened; "": unknown

    @property
    def kv_capacity_tokens(self) -> int:
        """Prompt and answer tokens that one replica can hold."""
        return self.kv_block_count * BLOCK_TOKENS

    @property
    def request_tokens(self) -> int:
        """Prompt and answer tokens that one request may fill."""
        slots = self.sequence_count if engine_of(self.kind).has_slots else 1
        return self.kv_capacity_tokens // slots


@dataclass(frozen=True, slots=True)
class Series:
    """What an engine calls three of its own figures, in Prometheus' text format; "": it has none."""

    running: str = ""
    waiting: str = ""
    kv_used: str = ""  # a fraction from 0 to 1


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. `command` is all but the port; None: nothing is started."""

    command: Callable[[EngineSettings], list[str]] | None
    program: str = ""  # the name of its executable; "": it is not started here
    port_option: str = "--port"
    environment: tuple[tuple[str, str], ...] = ()
    health_path: str = "/health"  # "": none, its models are listed instead
    metrics_path: str = ""
    series: Series = Series()
    model_is_folder: bool = True  # requests name the model by its folder
    has_slots: bool = False  # each request has its own equal part of the cache
    stop_grace_s: float = 5.0  # between asking it to end and ending it
    settled: tuple[tuple[str, float], ...] = ()  # by its first request for all: how tokens are drawn


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
    """The command line of a replica, all but its port. Raises FileError for what is not installed.

    What has a digest is checked by the replica's own process, just before it becomes the engine.
    """
    command = engine_of(settings.kind).command
    if command is None:
        raise ValueRefusedError("an engine behind a URL is not started here", hint="start it where it runs")
    checked = python_module(VERIFIED, settings.artefact, settings.digest) if settings.digest else []
    return [*checked, *command(settings)]


def engine_environment(settings: EngineSettings) -> dict[str, str]:
    """What a replica's environment has beside what all have. Only one on the processor is hidden the GPUs."""
    told = {"OMP_NUM_THREADS": str(settings.thread_count), "HF_HUB_OFFLINE": "1"}
    told |= dict(engine_of(settings.kind).environment)
    if settings.device == "cpu":
        told[HIDE_GPUS] = ""
    return told


def engine_of(kind: str) -> Engine:
    """The adapter of an engine. Raises ValueRefusedError for one that nobody wrote."""
    if kind not in ENGINES:
        raise ValueRefusedError(f"`{kind}` cannot be run", hint=f"write one of {', '.join(ENGINES)}")
    return ENGINES[kind]


def program_of(kind: str, path: str = "") -> str:
    """The executable of an engine: at `path` if that is said, else the one that is found.

    Raises FileError for one that is not there or cannot be run, ValueRefusedError for what is not started.
    """
    name = engine_of(kind).program
    if not name:
        startable = ", ".join(each for each, engine in ENGINES.items() if engine.program)
        raise ValueRefusedError(f"`{kind}` is not started here", hint=f"write one of {startable}")
    ours = Path(sys.executable).with_name(name)  # beside our own interpreter: installed with us
    if not path and ours.exists():
        return str(ours)
    if found := shutil.which(path or name):
        return str(Path(found).absolute())  # the controller may stand elsewhere
    if path:
        raise FileError(f"`{path}` is no program that can be run", hint=f"give the path of `{name}`")
    raise FileError(
        f"{kind} is not installed: no `{name}` is found", hint=f"install it, or say where: {OPTION}"
    )


def engine_model(settings: EngineSettings) -> str:
    """What a replica calls its model in requests."""
    if settings.url or not engine_of(settings.kind).model_is_folder:
        return settings.model or "default"
    return settings.artefact


def engine_name(kind: str = "transformers") -> str:
    """The engine and its version, as plans name it; none for a program that is no package."""
    try:
        return f"{kind} {version(kind)}"
    except PackageNotFoundError:
        return kind


def _transformers(settings: EngineSettings) -> list[str]:
    decided = serve_options(settings.weights_format, settings.batch_tokens)
    here = processor_options(settings.device, settings.kv_block_count)
    return [
        program_of("transformers", settings.program),
        "serve",
        settings.artefact,
        *(word for option in (*decided, *here) for word in option if word),
        *("--host", "127.0.0.1"),
    ]


def _vllm(settings: EngineSettings) -> list[str]:
    return [
        program_of("vllm", settings.program),
        "serve",
        settings.artefact,
        *("--dtype", settings.weights_format),
        *("--max-num-batched-tokens", str(settings.batch_tokens)),
        *("--max-num-seqs", str(settings.sequence_count)),
        *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(settings.kv_block_count)),
        *("--enforce-eager", "--host", "127.0.0.1"),
    ]


def _llama_cpp(settings: EngineSettings) -> list[str]:
    files = sorted(Path(settings.artefact).glob("*.gguf"))
    if len(files) != 1:
        what = f"`{settings.artefact}` holds {len(files)} GGUF files; llama.cpp serves one"
        raise FileError(what, hint="convert the checkpoint with llama.cpp's own converter")
    return [
        program_of("llama.cpp", settings.program),
        # Without the other name its answers have the file's path.
        *("--model", str(files[0]), "--alias", engine_model(settings)),
        *("--threads", str(settings.thread_count), "--no-kv-unified"),
        *("--parallel", str(settings.sequence_count), "--ctx-size", str(settings.kv_capacity_tokens)),
        *("--batch-size", str(settings.batch_tokens), "--metrics", "--host", "127.0.0.1"),
    ]


# `transformers`: its health route knows that the worker thread died, "cb_worker_dead", 503. It has no
# metrics, and refuses a request with a field that it does not know.
# `vllm`: /health is 503 once its engine core is dead. Its KV in use is named so since 0.9.
# `llama.cpp`: /health is 503 while the model loads; it closes the connection after a streamed answer. It has
# not said of late how full its cache is.
ENGINES: Mapping[str, Engine] = {
    "transformers": Engine(
        _transformers,
        "transformers",
        environment=tuple(PROCESSOR_ENVIRONMENT.items()),
        settled=(("temperature", 0.0),),
    ),
    "vllm": Engine(
        _vllm,
        "vllm",
        environment=(("VLLM_NO_USAGE_STATS", "1"), ("VLLM_CPU_KVCACHE_SPACE", "1")),
        metrics_path="/metrics",
        series=Series("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
        stop_grace_s=10.0,
    ),
    "llama.cpp": Engine(
        _llama_cpp,
        "llama-server",
        metrics_path="/metrics",
        series=Series("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        model_is_folder=False,
        has_slots=True,
    ),
    # The last three run elsewhere: nobody has run the first two here, whose names are their documentation's.
    "sglang": Engine(
        None,
        metrics_path="/metrics",
        series=Series("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),
        model_is_folder=False,
    ),
    "tensorrt-llm": Engine(None, metrics_path="/prometheus/metrics", model_is_folder=False),
    "openai": Engine(None, health_path="", model_is_folder=False),
}
