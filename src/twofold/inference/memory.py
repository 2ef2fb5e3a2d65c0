"""What a replica holds in memory: weights, buffers, and the KV cache with what it admits."""

import numpy as np

from twofold.inference.types import CacheOptions, Capacity, Replica
from twofold.perf import HALF_BYTES, Floats


def expert_shards(replica: Replica) -> Floats:
    """Accelerators (of one pipeline stage) that share one copy of the experts."""
    return np.maximum(replica.ep, replica.tp)


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
