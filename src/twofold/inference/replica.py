"""What serves a model: an engine, a replica, and what it holds in memory with what that admits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np

from twofold.core import record
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.shape import HALF_BYTES, ModelShape
from twofold.perf.software import engine_software
from twofold.perf.types import Cluster, Floats


@dataclass(frozen=True, slots=True)
class Engine:
    """What the serving software adds to the kernels, from the fitted constants of its name and era."""

    name: str
    era: str
    host_step_s: Floats  # scheduling, sampling, output: per step
    host_layer_s: Floats  # launches and gaps that the graph does not hide: per layer and step
    host_moe_layer_s: Floats  # the same, further per expert layer
    host_sequence_s: Floats  # detokenising and bookkeeping: per decoding sequence and step
    host_factor: Floats  # of the host's time per layer and sequence over the newest era's
    prefill_layer_s: Floats  # a step with prefill runs eagerly: no layer is faster
    eager_fraction: Floats  # of steps without prefill that run so too: 1 before captured graphs
    prefill_factor: Floats  # time of long prefill steps over their kernels': gaps between eager launches
    launch_factor: Floats  # of a kernel's shortest time, where captured graphs launch the next one early
    weight_read_gain: Floats  # rate of streaming over the kernel tables', whose narrow formats lack graphs
    expert_read_gain: Floats
    expert_pad_factor: Floats  # of the rows that a touched expert is padded to: tiles for small batches
    device_factor: Floats  # time of all kernels, where a family has no kernel tables
    arithmetic_factor: Floats  # further, of what dense products compute, where kernels were not tuned
    attention_factor: Floats  # further, by kind
    unshared_kv_fraction: Floats  # of a reading of a KV head's cache, that each further query head costs
    moe_factor: Floats
    communication_factor: Floats
    memory_fraction: Floats  # of the device's memory that weights, buffers and cache take together
    first_token_s: Floats  # tokenising, HTTP and streaming before a first token leaves
    first_token_steps: Floats  # further steps before a first token leaves
    reserved_output_fraction: Floats  # of its answer that a running sequence holds room for, on average
    wave_fraction: Floats  # of a closed loop's requests that wait for the prompts of all other clients
    lockstep_fraction: Floats  # the same where all requests are of one length, and end together
    exchange_processor_fraction: Floats  # of a device's, that experts' traffic of a step with prefill takes

    def scaled(self, factors: Mapping[str, Floats]) -> Self:
        """Its own times divided by `host`, the slowness of prefill by `prefill`, and what it adds to
        communication by `communication`; the rest stays.
        """
        host = factors.get("host", 1.0)
        changed = {f.name: getattr(self, f.name) / host for f in fields(self) if f.name.endswith("_s")}
        if "prefill" in factors:
            changed["prefill_factor"] = self.prefill_factor / factors["prefill"]
            changed["prefill_layer_s"] = changed["prefill_layer_s"] / factors["prefill"]
        if "communication" in factors:
            changed["communication_factor"] = self.communication_factor / factors["communication"]
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How the KV cache is kept. The defaults are a paged cache on the device without sharing."""

    block_tokens: Floats = 16.0  # a contiguous cache is one block of the largest context
    shared_prefix_fraction: Floats = 0.0  # of the input: found in the cache, not computed or kept again
    received_fraction: Floats = 0.0  # of the input: computed by other workers and moved here, kept
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
    rank_batch: Floats = 1024.0  # decoding sequences of one data-parallel rank
    chunk_tokens: Floats = 8192.0  # prefill tokens that one step may carry
    memory_fraction: Floats | None = None  # of the device's; None: what the engine takes when not told
    cache: CacheOptions = field(default_factory=CacheOptions)
    adapter_weights: Floats = 0.0  # LoRA weights held resident, all adapters together
    draft_tokens: Floats = 0.0  # speculative decoding: tokens proposed per step
    draft_accept_fraction: Floats = 0.0
    draft_layers: Floats = 0.0  # of a head that proposes them, each as one of the model's; 0: drafts are free
    admission: Admission = field(default_factory=Admission)
    # 1: a step runs as two halves, and experts' traffic of one beside the work of the other.
    halved_fraction: Floats = 0.0

    @property
    def accelerator_count(self) -> Floats:
        """Accelerators that one replica takes."""
        return self.tp * self.pp * self.dp

    @property
    def max_batch(self) -> Floats:
        """Sequences that may decode together: engines limit each data-parallel rank."""
        return self.rank_batch * self.dp

    @property
    def widened_text(self) -> str:
        """That its weights are multiplied wider than they are kept; "" where units take them as they are."""
        device, weights = self.cluster.device, self.weights_format
        wide = device.compute_format(weights, self.activation_format).format
        if bytes_per_weight(weights) >= 2.0 or bytes_per_weight(wide) < 2.0:
            return ""
        return f"{weights} weights are widened as {device.name} reads them: it multiplies them in {wide}"


@dataclass(frozen=True, slots=True)
class Capacity:
    """Memory of one accelerator by part, and what its cache admits for the whole replica."""

    usable_bytes: Floats
    weights_bytes: Floats
    buffers_bytes: Floats  # activations of a prefill chunk, logits, graphs, communication
    adapter_bytes: Floats
    kv_bytes: Floats  # what is left for the cache; negative when the model does not fit
    kv_tokens: Floats  # tokens of the whole replica, at full attention on all layers


# Of `Capacity`: how a part follows, and the names of what it follows from beside constants.
FORMULAS: Mapping[str, tuple[str, ...]] = {
    "usable_bytes": ("the share of the memory that the engine takes", "layout"),
    "weights_bytes": ("weights in their format, scales included, over TP × PP", "layout", "parameters"),
    "buffers_bytes": ("a prefill chunk's tensors, logits, graphs, communication", "layout"),
    "adapter_bytes": ("LoRA weights held resident", "layout"),
    "kv_bytes": (
        "what is left of the usable memory",
        *("layout", "usable_bytes", "weights_bytes", "buffers_bytes", "adapter_bytes"),
    ),
}


def engine(
    constants: Constants,
    name: str,
    version: str | None = None,
    *,
    family: str = "",
    model: str = "dense",
    weights_format: str = "bf16",
    accelerator: str = "",
) -> Engine:
    """The engine's constants: the narrowest of name and era, the device and its family, the model and its
    format.

    `model` is `dense`, `moe` or `mla` (see `model_kind`).
    """
    era = engine_software(name).era_of(version)
    scope = {"engine": name, "era": era, "family": family, "model": model, "format": weights_format}
    scope |= {"accelerator": accelerator}
    held = [field.name for field in fields(Engine) if field.name not in ("name", "era")]
    return Engine(name, era, **{each: constants.get(f"serving_{each}", **scope) for each in held})


def replica_of(
    shape: ModelShape, cluster: Cluster, engine: Engine, weights_format: str, kv_format: str = "bf16"
) -> Replica:
    """A replica on one accelerator, its layout still open: it multiplies as its device does untold."""
    activation = cluster.device.default_activation_format(weights_format)
    return Replica(shape, cluster, engine, weights_format, activation, kv_format)


def expert_shards(replica: Replica) -> Floats:
    """Accelerators (of one pipeline stage) that share one copy of the experts."""
    return np.maximum(replica.ep, replica.tp)


def rank_experts(replica: Replica) -> Floats:
    """Experts that one rank of a group holds; copies of some fill the rest where they do not divide."""
    return np.ceil(np.maximum(replica.shape.experts, 1.0) / replica.ep)


def kv_shards(replica: Replica) -> Floats:
    """Accelerators that share one sequence's cache: KV heads split over TP, a latent is whole."""
    heads = np.where(replica.shape.is_mla > 0, 1.0, np.maximum(replica.shape.kv_heads, 1.0))
    return np.minimum(replica.tp, heads) * replica.pp


def weights_bytes_per_accelerator(replica: Replica) -> Floats:
    """Weights that the fullest accelerator holds: everything over TP and PP, experts over EP."""
    parts = replica.shape.weights_bytes(replica.weights_format)
    dense = parts.attention_bytes + parts.ffn_bytes + parts.other_bytes
    # A pipeline's first and last stage hold one of the two embedding matrices each.
    ends = parts.embedding_bytes / np.minimum(replica.pp, 2.0)
    slots = rank_experts(replica) * replica.ep / np.maximum(replica.shape.experts, 1.0)
    experts = slots * parts.experts_bytes / (expert_shards(replica) * replica.pp)
    # A head that drafts stands on one stage, with the last one's vocabulary.
    more = 1.0 + replica.draft_layers * replica.pp / replica.shape.layers
    return (dense * more / replica.pp + ends) / replica.tp + experts * more


def buffers_bytes(replica: Replica) -> Floats:
    """Memory besides weights and cache: what one prefill chunk passes through, logits, graphs, communication.

    Formula  chunk·(2·hidden + (matrices−1)·ffn/tp)·2 + 24·256·vocab + 0.3 GB + 0.4 GB when tp > 1
    Why      the widest tensors alive at once are a residual, its copy and the FFN's inner ones; engines probe
             256 sampled rows, whose 32-bit logits are copied and sorted about six times.
    Units    B per accelerator.
    Source   vLLM 0.15 start-up logs (nine rows of KV blocks): within 0.5 GB of all.
    Limits   other engines differ by up to a few GB; `memory_fraction` holds the rest back.
    """
    shape = replica.shape
    inner = np.maximum(
        (shape.ffn_matrices - 1) * shape.ffn_hidden,
        shape.experts_topk * shape.moe_ffn_hidden + (shape.ffn_matrices - 1) * shape.shared_ffn_hidden,
    )
    activations = replica.chunk_tokens * (2 * shape.hidden + inner / replica.tp) * HALF_BYTES
    logits = 24.0 * 256.0 * shape.vocab
    return activations + logits + 0.3e9 + np.where(np.asarray(replica.tp) > 1, 0.4e9, 0.0)


def capacity(replica: Replica) -> Capacity:
    """Memory of one accelerator by part; what is left is cache, counted in tokens of the whole replica."""
    told = replica.memory_fraction
    fraction = replica.engine.memory_fraction if told is None else told
    usable = replica.cluster.device.memory_bytes * np.asarray(fraction)
    weights = weights_bytes_per_accelerator(replica)
    buffers = buffers_bytes(replica)
    adapters = replica.adapter_weights * HALF_BYTES / (replica.tp * replica.pp)
    left = usable - weights - buffers - adapters
    per_token = replica.shape.kv_bytes_per_token(replica.kv_format) / kv_shards(replica)
    pool = np.maximum(0.0, left) + replica.cache.offload_bytes * (left > 0)
    kv_tokens = pool / np.maximum(per_token, 1e-30) * replica.dp
    for name, part in zip(FORMULAS, (usable, weights, buffers, adapters, left), strict=True):
        record.note(name, part, *FORMULAS[name])
    return Capacity(usable, weights, buffers, adapters, left, kv_tokens)


def max_sequences(replica: Replica, context_tokens: Floats, input_tokens: Floats = 0.0) -> Floats:
    """Sequences of `context_tokens` that the cache of the whole replica holds at once; 0 when nothing fits.

    A cache without room for one sequence of a model that fits holds a fraction: callers compare with 1.
    """
    left, cache = capacity(replica).kv_bytes, replica.cache
    pool = np.maximum(0.0, left) + cache.offload_bytes * (left > 0)
    # One sequence takes whole blocks, without its shared prefix.
    own = context_tokens - cache.shared_prefix_fraction * input_tokens
    blocks = np.ceil(own / cache.block_tokens) * cache.block_tokens
    return pool / (replica.shape.kv_bytes(replica.kv_format, blocks) / kv_shards(replica)) * replica.dp


def chips_needed(shape: ModelShape, weights_format: str, memory_bytes: float, fraction: float = 0.9) -> int:
    """Devices that the weights alone take: the honest count for SRAM parts (R-069)."""
    total = float(np.max(shape.weights_bytes(weights_format).total_bytes))
    return int(np.ceil(total / (memory_bytes * fraction)))


def communication_bytes_per_token(replica: Replica) -> Floats:
    """Bytes that one accelerator sends per token: all-reduces of TP, hand-offs of PP, all-to-alls of EP.

    Formula  2(n−1)/n·hidden·2 B per all-reduce, two per layer (one where experts exchange instead), plus
             (dispatch + combine)·(n−1)/n per layer of experts over `ep` > `tp`, plus hidden·2 B per hand-off
    Units    B per token that passes through the accelerator's rank.
    Source   R-053; ring and direct-exchange volumes.
    """
    shape, tp, ep = replica.shape, np.asarray(replica.tp, float), np.asarray(replica.ep, float)
    spread = (ep > tp) & (np.asarray(shape.experts) > 0)
    reduces = 2.0 * shape.layers - np.where(spread, shape.moe_layers, 0.0)
    reduced = reduces * 2.0 * (tp - 1.0) / tp * shape.hidden * HALF_BYTES
    one_layer = shape.exchange_bytes_per_token(ep, bytes_per_weight(replica.activation_format)) / tp
    exchanged = np.where(spread, shape.moe_layers * (ep - 1.0) / np.maximum(ep, 1.0) * one_layer, 0.0)
    handed = np.where(np.asarray(replica.pp) > 1, shape.hidden * HALF_BYTES / tp, 0.0)
    total: Floats = reduced + exchanged + handed
    return total
