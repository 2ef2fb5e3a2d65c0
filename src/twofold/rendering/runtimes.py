"""What is known of an engine that runs: its image, how it says that it is ready, and what it counts.

Sources  the loggers and collectors of metrics of vLLM (v1), SGLang (srt) and TensorRT-LLM, whose latency
         buckets are those of vLLM; the engines' documentation of their images and health checks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twofold.live.control.engines import engine_of
from twofold.rendering.commands import Option
from twofold.rendering.records import OWN_SERVER, ServedPool

TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TPOT_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
E2E_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
SGLANG_LONG_S = (
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0),
    *(100.0, 200.0, 400.0),
)
SGLANG_TOKEN_S = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0),
)
OWN_HEALTH = "/health"  # that a server of the user's own is asked to answer
UNKNOWN_START_S = 1800.0  # that a replica may take to start where the plan has no cold start


@dataclass(frozen=True, slots=True)
class Histogram:
    """A series of latencies: how many requests took at most as long as each bucket."""

    name: str
    buckets_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """An engine as a container. `histograms` by ttft, tpot, e2e; none: nothing to alarm or scale by."""

    images: Mapping[str, str]  # by vendor of the device; "" for the others
    install: str  # what pip installs
    adapter: str  # of `live.control.engines`, which knows its paths; "" for the user's own
    histograms: Mapping[str, Histogram]
    switches: tuple[Option, ...] = ()  # without which it counts nothing

    @property
    def metrics_path(self) -> str:
        """Where it says what it counts."""
        return engine_of(self.adapter).metrics_path

    @property
    def health_path(self) -> str:
        """Answers once the weights are loaded."""
        return engine_of(self.adapter).health_path if self.adapter else OWN_HEALTH

    def image(self, vendor: str) -> str:
        """Of the devices of a vendor."""
        return self.images.get(vendor, self.images[""])


COUNTS = "alarms and scaling read what it counts"
VLLM = Runtime(
    {"": "vllm/vllm-openai", "AMD": "rocm/vllm"},
    "vllm",
    "vllm",
    {
        "ttft": Histogram("vllm:time_to_first_token_seconds", TTFT_S),
        "tpot": Histogram("vllm:request_time_per_output_token_seconds", TPOT_S),
        "e2e": Histogram("vllm:e2e_request_latency_seconds", E2E_S),
    },
)
SGLANG = Runtime(
    {"": "lmsysorg/sglang", "AMD": "rocm/sgl-dev"},
    "sglang[all]",
    "sglang",
    {
        "ttft": Histogram("sglang:time_to_first_token_seconds", SGLANG_LONG_S),
        "tpot": Histogram("sglang:inter_token_latency_seconds", SGLANG_TOKEN_S),
        "e2e": Histogram("sglang:e2e_request_latency_seconds", SGLANG_LONG_S),
    },
    (Option("--enable-metrics", "", COUNTS),),
)
TENSORRT_LLM = Runtime(
    {"": "nvcr.io/nvidia/tensorrt-llm/release"},
    "tensorrt-llm",
    "tensorrt-llm",
    {
        "ttft": Histogram("trtllm_time_to_first_token_seconds", TTFT_S),
        "tpot": Histogram("trtllm_time_per_output_token_seconds", TPOT_S),
        "e2e": Histogram("trtllm_e2e_request_latency_seconds", E2E_S),
    },
)
LLAMA_CPP = Runtime({"": "ghcr.io/ggml-org/llama.cpp:server-cuda"}, "", "llama.cpp", {})
TRANSFORMERS = Runtime(
    {"": "huggingface/transformers-pytorch-gpu"}, "transformers[serving]", "transformers", {}
)
OWN = Runtime({"": ""}, "", "", {})
RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        "vllm": VLLM,
        "sglang": SGLANG,
        "trtllm": TENSORRT_LLM,
        "tensorrt-llm": TENSORRT_LLM,
        "llama.cpp": LLAMA_CPP,
        "transformers": TRANSFORMERS,
        OWN_SERVER: OWN,
    }
)


def runtime_of(pool: ServedPool) -> Runtime:
    """Of the engine that `engines.engine_command` knows the line of."""
    return RUNTIMES[engine_name(pool)]


def engine_name(pool: ServedPool) -> str:
    """The engine without its version."""
    return (pool.pool.replica.engine or "").split()[0]


def engine_version(pool: ServedPool) -> str:
    """As the spec says it, without a `v`; "" where it says none."""
    words = (pool.pool.replica.engine or "").split()
    return words[1].removeprefix("v") if len(words) > 1 else ""


def over_servers(pool: ServedPool, rank: str, leader: str) -> tuple[Option, ...] | None:
    """What a server of a replica over several says beside; None where the engine has no such words."""
    count = Option("--nnodes", str(pool.nodes_per_replica), f"{pool.at}.replica.accelerator_count")
    own = Option("--node-rank", rank, "0 on the first server, which answers")
    if engine_name(pool) == "vllm":
        return count, own, Option("--master-addr", leader, "the first server")
    if engine_name(pool) == "sglang":
        return count, own, Option("--dist-init-addr", f"{leader}:20000", "the first server")
    return None
