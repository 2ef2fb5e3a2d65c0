"""What serving plans are made of: the replica, and what a model of it returns."""

from dataclasses import dataclass, field, fields

from twofold.inference.engine import Engine
from twofold.perf import Cluster, Floats, ModelShape


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the KV cache is kept. The defaults are a paged cache on the device without sharing."""

    block_tokens: Floats = 16.0  # a contiguous cache is one block of the largest context
    shared_prefix_fraction: Floats = (
        0.0  # of the input, found in the cache and neither computed nor kept twice
    )
    offload_bytes: Floats = 0.0  # host memory that holds cold blocks, per accelerator


@dataclass(frozen=True, slots=True)
class Admission:
    """How a scheduler lets waiting prompts in. The defaults let each in at the next step.

    TensorRT-LLM calls the first two `batch_wait_timeout_iters` and `batch_wait_max_tokens_ratio`, and has
    such a wait for data-parallel ranks too; SGLang calls the last `scheduler-recv-interval`.
    """

    wait_steps: Floats = 0.0  # decode steps that a prompt waits for company, at most
    wait_tokens: Floats = 0.0  # waiting prompt tokens that end that wait
    poll_steps: Floats = 1.0  # decode steps between two looks for new requests


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a model behind one endpoint: tp × pp × dp accelerators. Numeric fields may be arrays.

    `dp` copies of the attention share the experts (attention data parallelism) when `ep` > `tp`; otherwise
    they are independent copies. `ep` splits experts by number, what is left of `tp` slices each expert.
    """

    shape: ModelShape
    cluster: Cluster
    engine: Engine
    weights_format: str = "bf16"
    activation_format: str = "bf16"
    kv_format: str = "bf16"
    tp: Floats = 1.0
    pp: Floats = 1.0
    ep: Floats = 1.0
    dp: Floats = 1.0
    max_batch: Floats = 1024.0  # decoding sequences
    chunk_tokens: Floats = 8192.0  # prefill tokens that one step may carry
    memory_fraction: Floats | None = None  # of the device's; None: what the engine takes when not told
    cache: CacheOptions = field(default_factory=CacheOptions)
    adapter_weights: Floats = 0.0  # LoRA weights held resident, all adapters together
    draft_tokens: Floats = 0.0  # speculative decoding: tokens proposed per step
    draft_accept_fraction: Floats = 0.0
    admission: Admission = field(default_factory=Admission)

    @property
    def accelerator_count(self) -> Floats:
        """Accelerators that one replica takes."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True)
class Capacity:
    """Memory of one accelerator by part, and what its cache admits for the whole replica."""

    usable_bytes: Floats
    weights_bytes: Floats
    buffers_bytes: Floats  # activations of a prefill chunk, logits, graphs, communication
    adapter_bytes: Floats
    kv_bytes: Floats  # what is left for the cache; negative when the model does not fit
    kv_tokens: Floats  # tokens of the whole replica, at full attention on all layers


@dataclass(frozen=True, slots=True)
class Iteration:
    """Seconds of one step of the engine, by part; the parts sum to `total_s`."""

    gemm_s: Floats
    attention_s: Floats
    moe_s: Floats
    communication_s: Floats
    elementwise_s: Floats
    host_s: Floats

    def by_name(self) -> dict[str, Floats]:
        """The parts without their unit, in order."""
        return {part.name.removesuffix("_s"): getattr(self, part.name) for part in fields(self)}

    @property
    def total_s(self) -> Floats:
        """The whole step."""
        return (
            self.gemm_s
            + self.attention_s
            + self.moe_s
            + self.communication_s
            + self.elementwise_s
            + self.host_s
        )
