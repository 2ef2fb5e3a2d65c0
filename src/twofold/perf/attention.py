"""Attention on one device: prefill by flash kernels, decode by KV reads, MLA decode on the latent."""

import numpy as np

from twofold.perf.formats import bytes_per_weight, half_format, peak_format
from twofold.perf.smoothing import smooth_max
from twofold.perf.types import Device, Floats

ATTENTION_BACKWARD_RATIO = (
    2.5  # flash: five products backward, the scores' recomputation among them, to two forward
)
UNFUSED_ATTENTION_BACKWARD_RATIO = 2.0  # the probabilities were kept: four products to two
QUERY_TILE = 128.0
GEMM_BACKWARD_RATIO = 2.0  # one product for the input's gradient, one for the weight's


def attention_prefill_s(
    device: Device,
    batch: Floats,
    query_tokens: Floats,
    context_tokens: Floats,
    heads: Floats,
    kv_heads: Floats,
    head_dim: Floats,
    fmt: str,
    window: Floats = 0,
    v_head_dim: Floats | None = None,
) -> Floats:
    """Seconds of causal flash attention of `query_tokens` over `context_tokens` cached and themselves.

    Formula  smooth_max(b·h·pairs·(2d + 2d_v + softmax) / (peak·e), Q, K, V, O bytes / (bandwidth·e_m))
             + tiles/SMs·tile + floor; pairs = q·c + q·(q+1)/2 (fewer under a window), tiles = b·h·⌈q/128⌉
    Why      Two products and one exponential per query-key pair, whose cost is that of so many FLOPs;
             a query sees the cache, the queries before it, and itself.
    Shapes   all counts broadcast; heads and kv_heads are those of this device.
    Units    counts; seconds out. `window` 0 is none. `fmt` is that of the products and of the cache.
    Source   Dao 2023, FlashAttention-2; constants fitted on public kernel tables.
    Limits   context 0: causal self-attention; window ≥ all: none; many short sequences: the tiles.
    """
    dims = np.asarray(head_dim) + (head_dim if v_head_dim is None else v_head_dim)
    pairs = attended_pairs(query_tokens, context_tokens, window)
    pair_flops = 2.0 * dims + device.attention_softmax_flops
    compute_s = batch * heads * pairs * pair_flops / _attention_flops_per_s(device, fmt)
    keys = query_tokens + _visible_context(context_tokens, window)
    token_bytes = np.asarray(query_tokens) * heads * 2.0 + keys * kv_heads * bytes_per_weight(fmt)
    bandwidth = device.memory_bytes_per_s * device.attention_memory_efficiency_fraction
    tiles = batch * np.asarray(heads) * np.ceil(np.asarray(query_tokens) / QUERY_TILE)
    tiles_s = tiles / device.sm_count * device.attention_tile_s
    return smooth_max(compute_s, batch * token_bytes * dims / bandwidth) + tiles_s + device.attention_floor_s


def _attention_flops_per_s(device: Device, fmt: str) -> Floats:
    """What the products of attention reach: fp8 where asked for and known to the device, else 16 bits."""
    if peak_format(fmt) == "fp8" and "fp8" in device.native_formats:
        return device.peak_flops_per_s["fp8"] * device.attention_fp8_efficiency_fraction
    return device.peak_flops_per_s[half_format(device)] * device.attention_efficiency_fraction


def attended_pairs(query_tokens: Floats, context_tokens: Floats, window: Floats = 0) -> Floats:
    """Query-key pairs of one head under the causal mask, and under a sliding window when there is one.

    Formula  q·c + q·(q+1)/2 without a window; the sum over queries of min(window, position + 1) with one
    Why      Query j at position c + j sees c + j + 1 keys, itself among them, at most `window`.
    Shapes   arguments broadcast.
    Units    counts. `window` 0 is none.
    Source   Counting.
    Limits   window ≥ q + c: as without; window 1: q.

    >>> float(attended_pairs(4, 0)), float(attended_pairs(4, 0, 2)), float(attended_pairs(1, 9))
    (10.0, 7.0, 10.0)
    """
    q, c = np.asarray(query_tokens, dtype=float), np.asarray(context_tokens, dtype=float)
    limit = np.where(np.asarray(window) > 0, window, np.inf)
    # Queries whose view is still growing see position + 1 keys; the rest see exactly the window.
    growing = np.clip(limit - c, 0.0, q)
    pair_count: Floats = growing * c + growing * (growing + 1.0) / 2.0 + (q - growing) * np.asarray(window)
    return pair_count


def _visible_context(context_tokens: Floats, window: Floats) -> Floats:
    limit = np.where(np.asarray(window) > 0, window, np.inf)
    visible_tokens: Floats = np.minimum(context_tokens, limit)
    return visible_tokens


def attention_decode_s(
    device: Device,
    batch: Floats,
    context_tokens: Floats,
    heads: Floats,
    kv_heads: Floats,
    head_dim: Floats,
    kv_fmt: str,
    window: Floats = 0,
) -> Floats:
    """Seconds of one decode step of attention: each of `batch` sequences reads its cache once.

    Formula  2·b·min(c, window)·kv_heads·d·s / (bandwidth·e) + b·kv_heads/SMs·tile + floor
    Why      One query per sequence: a FLOP or two per byte, far below any ridge; split-KV fills the device.
    Shapes   all counts broadcast; `context_tokens` is the mean over the batch.
    Units    counts; seconds out.
    Source   PHYSICS, Attention; constants fitted on public kernel tables.
    Limits   empty cache: floor and tiles. Grouped queries share what is read.
    """
    seen_tokens = batch * _visible_context(context_tokens, window)
    cache_bytes = 2.0 * seen_tokens * kv_heads * head_dim * bytes_per_weight(kv_fmt)
    query_bytes = 4.0 * np.asarray(batch) * heads * head_dim
    tiles_s = np.asarray(batch) * kv_heads / device.sm_count * device.decode_tile_s
    return (cache_bytes + query_bytes) / _cache_bytes_per_s(device, kv_fmt) + tiles_s + device.decode_floor_s


def _cache_bytes_per_s(device: Device, kv_fmt: str) -> Floats:
    narrow = bytes_per_weight(kv_fmt) < 2.0
    efficiency = device.decode_fp8_efficiency_fraction if narrow else device.decode_efficiency_fraction
    return device.memory_bytes_per_s * efficiency


def mla_decode_s(
    device: Device,
    batch: Floats,
    context_tokens: Floats,
    heads: Floats,
    kv_rank: Floats,
    rope_dim: Floats,
    kv_fmt: str,
) -> Floats:
    """Seconds of one decode step of multi-head latent attention with absorbed projections.

    Formula  smooth_max(2·b·h·c·(2·rank + rope) / (peak·e), b·c·(rank + rope)·s / (bandwidth·e_kv)) + floor
    Why      All heads share one latent per token, so its bytes are few and its FLOPs are not.
    Shapes   all counts broadcast; heads are those of this device, the latent is whole on each.
    Units    counts; seconds out.
    Source   DeepSeek-AI 2024, DeepSeek-V2; SKETCHES, inference formulas.
    Limits   many heads: compute; few (tensor parallel): bandwidth; empty cache: the floor.
    """
    peak = device.peak_flops_per_s[half_format(device)] * device.mla_efficiency_fraction
    compute_s = 2.0 * batch * heads * context_tokens * (2.0 * kv_rank + rope_dim) / peak
    cache_bytes = batch * context_tokens * (np.asarray(kv_rank) + rope_dim) * bytes_per_weight(kv_fmt)
    return smooth_max(compute_s, cache_bytes / _cache_bytes_per_s(device, kv_fmt)) + device.decode_floor_s
