"""Attention on one device: prefill by flash kernels, decode by KV reads, MLA decode on the latent."""

import numpy as np

from twofold.perf.formats import bytes_per_weight, peak_format
from twofold.perf.types import Device, Floats, smooth_max

SMALLEST_TILE = 16.0
KEY_BLOCK = 128.0
DECODE_QUERIES = 64.0  # queries of one KV head that a decode tile holds
WIDE_HEAD = 128.0  # beyond it a tile's registers and shared memory run short


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
    packed_heads: Floats = 1,
) -> Floats:
    """Seconds of causal flash attention of `query_tokens` over `context_tokens` cached and themselves.

    Formula  smooth_max(max(all tiles/SMs, longest tile) on one SM, Q, K, V, O bytes / (bandwidth·e_m))
             + tiles/SMs·tile + floor, one pair costing 2d·wide + 2d_v·wide + softmax FLOPs
    Why      Two products and one exponential per query-key pair, whose cost is that of so many FLOPs. Kernels
             work in whole tiles of up to 128 queries (a processor's: 32) by as many keys, so a narrow window
             or a short prompt pays for pairs that the mask drops; with few heads the last tile of a long
             prompt runs alone.
    Shapes   all counts broadcast; heads and kv_heads are those of this device.
    Units    counts; seconds out. `window` 0 is none. `fmt` is that of the products and of the cache.
             `packed_heads` are the query heads of one KV head that a kernel packs into one tile: 1 for none.
    Source   Dao 2023, FlashAttention-2; constants fitted on public kernel tables.
    Limits   context 0: causal self-attention; window ≥ all: none; many short sequences: the tiles.
    """
    dims = np.asarray(head_dim) + (head_dim if v_head_dim is None else v_head_dim)
    # Rows of queries in one tile: a power of two, no more than a short prompt needs.
    rows = np.maximum(np.asarray(query_tokens) * packed_heads, 1.0)
    tile = np.clip(2.0 ** np.ceil(np.log2(rows)), SMALLEST_TILE, device.attention_tile_queries)
    tile_queries = tile / packed_heads
    tile_count = np.ceil(np.asarray(query_tokens) / tile_queries)  # of the heads packed together
    pairs = _tiled_pairs(tile_queries, tile_count, context_tokens, window)
    wide = 1.0 + device.attention_wide_ratio * (np.asarray(head_dim) > WIDE_HEAD)
    pair_flops = 2.0 * dims * wide + device.attention_softmax_flops
    # Products run in fp8 where it is asked for and known to the device, else in 16 bits.
    if peak_format(fmt) == "fp8" and "fp8" in device.native_formats:
        flops_per_s = device.peak_flops_per_s["fp8"] * device.attention_fp8_efficiency_fraction
    else:
        flops_per_s = device.peak_flops_per_s[device.half_format] * device.attention_efficiency_fraction
    all_s = batch * heads * pairs * pair_flops / flops_per_s
    keys = np.asarray(query_tokens) + _visible_context(context_tokens, window)
    longest_s = tile * _visible_context(keys, window) * pair_flops / (flops_per_s / device.sm_count)
    token_bytes = np.asarray(query_tokens) * heads * 2.0 + keys * kv_heads * bytes_per_weight(fmt)
    bandwidth = device.memory_bytes_per_s * device.attention_memory_efficiency_fraction
    tiles = batch * np.asarray(heads) / packed_heads * tile_count
    tiles_s = tiles / device.sm_count * device.attention_tile_s
    compute_s = smooth_max(all_s, longest_s) + tiles_s
    return smooth_max(compute_s, batch * token_bytes * dims / bandwidth) + device.attention_floor_s


def _tiled_pairs(tile_queries: Floats, tile_count: Floats, context_tokens: Floats, window: Floats) -> Floats:
    """Query-key pairs of one head in whole tiles: tile j reads the keys up to its last query's; at most a
    window, a tile and half a block of keys, since blocks do not end where the window does."""
    width = np.asarray(window) + tile_queries + KEY_BLOCK / 2.0
    reach = np.where(np.asarray(window) > 0, width / tile_queries, 0.0)
    context = np.asarray(context_tokens) / tile_queries
    return tile_queries * tile_queries * attended_pairs(tile_count, context, reach)


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
    return np.minimum(context_tokens, limit)


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

    Formula  smooth_max(2·b·min(c, window)·kv_heads·d·s / (bandwidth·e), padded FLOPs / (peak·e_c))
             + b·kv_heads·⌈group/64⌉/SMs·tile + floor
    Why      One query per sequence: a FLOP or two per byte, far below any ridge; split-KV fills the device.
             The queries that share a KV head fill a tensor-core tile of 16 rows whatever their number.
    Shapes   all counts broadcast; `context_tokens` is the mean over the batch.
    Units    counts; seconds out.
    Source   PHYSICS, Attention; constants fitted on public kernel tables.
    Limits   empty cache: floor and tiles; no heads (state-space layers alone): the floor. Grouped queries
             share what is read.
    """
    seen_tokens = batch * _visible_context(context_tokens, window)
    cache_bytes = 2.0 * seen_tokens * kv_heads * head_dim * bytes_per_weight(kv_fmt)
    query_bytes = 4.0 * np.asarray(batch) * heads * head_dim
    group = np.asarray(heads) / np.where(np.asarray(kv_heads) > 0, kv_heads, 1.0)
    tiles = np.asarray(batch) * kv_heads * np.ceil(group / DECODE_QUERIES)
    tiles_s = tiles / device.sm_count * device.decode_tile_s
    padded = np.where(group > 1.0, np.ceil(group / SMALLEST_TILE) * SMALLEST_TILE, 1.0)
    rows = padded * kv_heads
    peak = device.peak_flops_per_s[device.half_format] * device.decode_compute_fraction
    compute_s = 4.0 * seen_tokens * rows * head_dim / peak
    read_s = (cache_bytes + query_bytes) / _cache_bytes_per_s(device, kv_fmt)
    return smooth_max(read_s, compute_s) + tiles_s + device.decode_floor_s


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
    peak = device.peak_flops_per_s[device.half_format] * device.mla_efficiency_fraction
    compute_s = 2.0 * batch * heads * context_tokens * (2.0 * kv_rank + rope_dim) / peak
    cache_bytes = batch * context_tokens * (np.asarray(kv_rank) + rope_dim) * bytes_per_weight(kv_fmt)
    return smooth_max(compute_s, cache_bytes / _cache_bytes_per_s(device, kv_fmt)) + device.decode_floor_s
