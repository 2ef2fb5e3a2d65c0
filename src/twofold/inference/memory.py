"""What a replica holds in memory: weights by part, buffers, and the KV cache with what it admits."""

from dataclasses import dataclass

import numpy as np

from twofold.inference.shape import ModelShape, attention_weights, expert_weights, ffn_weights, is_mla
from twofold.inference.types import CacheOptions, Capacity, Replica
from twofold.perf import Floats, bytes_per_weight

HALF_BYTES = 2.0  # embeddings, head and norms stay 16-bit in every published checkpoint


@dataclass(frozen=True, slots=True)
class WeightsBytes:
    """Weights of the whole model by part, scales included."""

    embedding_bytes: Floats
    attention_bytes: Floats
    ffn_bytes: Floats  # dense and shared FFNs, routers
    experts_bytes: Floats
    other_bytes: Floats

    @property
    def total_bytes(self) -> Floats:
        """All parts."""
        return (
            self.embedding_bytes
            + self.attention_bytes
            + self.ffn_bytes
            + self.experts_bytes
            + self.other_bytes
        )


def dense_format(shape: ModelShape, weights_format: str) -> str:
    """The format of matrices outside the experts: published 4-bit MoE checkpoints keep them in 16 bits."""
    has_experts = bool(np.all(np.asarray(shape.experts) > 0))
    return "bf16" if has_experts and bytes_per_weight(weights_format) < 1.0 else weights_format


def weights_bytes(shape: ModelShape, weights_format: str) -> WeightsBytes:
    """Bytes of a model's weights in a number format, by part.

    Formula  weights of a part × bytes per weight of its format, scales included
    Why      quantised checkpoints keep embeddings and head in 16 bits, and 4-bit MoE ones also the attention;
             one of 32 bits has them in 32.
    Units    B. Broadcasts over the shape.
    Source   published quantised checkpoints; gpt-oss and DeepSeek NVFP4 model cards.
    Limits   a format that mixes widths in another way is off by the part concerned.
    """
    inner = bytes_per_weight(dense_format(shape, weights_format))
    return WeightsBytes(
        embedding_bytes=shape.embedding_weights * max(HALF_BYTES, inner),
        attention_bytes=attention_weights(shape) * inner,
        ffn_bytes=ffn_weights(shape) * inner,
        experts_bytes=expert_weights(shape) * bytes_per_weight(weights_format),
        other_bytes=shape.other_weights * inner,
    )


def kv_bytes_per_layer_token(shape: ModelShape, kv_format: str) -> Floats:
    """Cache bytes of one token in one attention layer: keys and values, or MLA's one latent.

    >>> from types import SimpleNamespace as Shape
    >>> llama = Shape(kv_heads=8, head_dim=128, mla_kv_rank=0, mla_qk_rope=0)  # Llama-3.1-70B: 80 such layers
    >>> float(80 * kv_bytes_per_layer_token(llama, "bf16"))
    327680.0
    """
    plain = 2.0 * shape.kv_heads * shape.head_dim
    numbers = np.where(np.asarray(shape.mla_kv_rank) > 0, shape.mla_kv_rank + shape.mla_qk_rope, plain)
    return numbers * bytes_per_weight(kv_format)


def kv_bytes_per_token(shape: ModelShape, kv_format: str) -> Floats:
    """Cache bytes of one token in all attention layers, as long as no window is full."""
    return shape.softmax_layers * kv_bytes_per_layer_token(shape, kv_format)


def kv_bytes(shape: ModelShape, kv_format: str, context_tokens: Floats) -> Floats:
    """Cache bytes of one sequence of `context_tokens`: windows cap their layers, linear layers keep a state.

    Formula  layer-token bytes × ((softmax − sliding)·c + sliding·min(c, window)) + state
    Units    B per sequence, all accelerators together.
    Limits   a linear layer's state is taken in 16 bits, without the few inputs that its convolution keeps.
    """
    windowed = np.minimum(
        context_tokens, np.where(np.asarray(shape.sliding_window) > 0, shape.sliding_window, np.inf)
    )
    tokens = (shape.softmax_layers - shape.sliding_layers) * context_tokens + shape.sliding_layers * windowed
    state = shape.linear_layers * shape.linear_state * HALF_BYTES
    return kv_bytes_per_layer_token(shape, kv_format) * tokens + state


def expert_shards(replica: Replica) -> Floats:
    """Accelerators (of one pipeline stage) that share one copy of the experts."""
    return np.maximum(replica.ep, replica.tp)


def kv_shards(replica: Replica) -> Floats:
    """Accelerators that share one sequence's cache: KV heads split over TP, a latent is whole."""
    heads = np.where(is_mla(replica.shape) > 0, 1.0, np.maximum(replica.shape.kv_heads, 1.0))
    return np.minimum(replica.tp, heads) * replica.pp


def weights_bytes_per_accelerator(replica: Replica) -> Floats:
    """Weights that the fullest accelerator holds: everything over TP and PP, experts over EP."""
    parts = replica.shape.weights_bytes(replica.weights_format)
    dense = parts.attention_bytes + parts.ffn_bytes + parts.other_bytes
    # A pipeline's first and last stage hold one of the two embedding matrices each.
    ends = parts.embedding_bytes / np.minimum(replica.pp, 2.0)
    return (dense / replica.pp + ends) / replica.tp + parts.experts_bytes / (
        expert_shards(replica) * replica.pp
    )


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
    return Capacity(
        usable, weights, buffers, adapters, left, pool / np.maximum(per_token, 1e-30) * replica.dp
    )


def sequence_bytes(
    replica: Replica, context_tokens: Floats, input_tokens: Floats, cache: CacheOptions
) -> Floats:
    """Cache bytes that one running sequence takes, whole blocks, without its shared prefix."""
    own = context_tokens - cache.shared_prefix_fraction * input_tokens
    blocks = np.ceil(own / cache.block_tokens) * cache.block_tokens
    return replica.shape.kv_bytes(replica.kv_format, blocks)


def max_sequences(replica: Replica, context_tokens: Floats, input_tokens: Floats = 0.0) -> Floats:
    """Sequences of `context_tokens` that the cache of the whole replica holds at once; 0 when nothing fits.

    A cache without room for one sequence of a model that fits holds a fraction: callers compare with 1.
    """
    held = capacity(replica)
    pool = np.maximum(0.0, held.kv_bytes) + replica.cache.offload_bytes * (held.kv_bytes > 0)
    one = sequence_bytes(replica, context_tokens, input_tokens, replica.cache) / kv_shards(replica)
    return pool / one * replica.dp
