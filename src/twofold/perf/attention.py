"""Attention on one device: prefill by flash kernels, decode by KV reads, MLA decode on the latent."""

import numpy as np

from twofold.perf.formats import bytes_per_weight, half_format, peak_format
from twofold.perf.smoothing import smooth_max
from twofold.perf.types import Device, Floats

ATTENTION_BACKWARD_RATIO = (
    2.5  # flash: five products backward, the scores' recomputation among them, to two forward
)
UNFUSED_ATTENTION_BACKWARD_RATIO = 2.0  # the probabilities were kept: four products to two
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

    Formula  smooth_max(2·b·h·pairs·(d + d_v) / (peak·e), bytes of Q, K, V, O / bandwidth) + floor
             with pairs = q·c + q·(q+1)/2, or fewer under a window
    Why      Two products per query-key pair; a query sees the cache, the queries before it, and itself.
    Shapes   all counts broadcast; heads and kv_heads are those of this device.
    Units    counts; seconds out. `window` 0 is none.
    Source   Dao 2023, FlashAttention-2; constants fitted on public kernel tables.
    Limits   context 0: causal self-attention; one query: a decode step without split-KV; window ≥ all: none.
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    pairs = attended_pairs(query_tokens, context_tokens, window)
    peak = device.peak_flops_per_s[_attention_peak(device, fmt)] * device.attention_efficiency_fraction
    compute_s = 2.0 * batch * heads * pairs * (np.asarray(head_dim) + v_dim) / peak
    keys = query_tokens + _visible_context(context_tokens, window)
    traffic_bytes = batch * (
        query_tokens * heads * (np.asarray(head_dim) + v_dim) * 2.0
        + keys * kv_heads * (np.asarray(head_dim) + v_dim) * bytes_per_weight(fmt)
    )
    memory_s = traffic_bytes / (device.memory_bytes_per_s * device.decode_efficiency_fraction)
    return smooth_max(compute_s, memory_s) + device.attention_floor_s


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
    pairs: Floats = growing * c + growing * (growing + 1.0) / 2.0 + (q - growing) * np.asarray(window)
    return pairs


def _visible_context(context_tokens: Floats, window: Floats) -> Floats:
    limit = np.where(np.asarray(window) > 0, window, np.inf)
    visible: Floats = np.minimum(context_tokens, limit)
    return visible


def _attention_peak(device: Device, fmt: str) -> str:
    name = peak_format(fmt)
    return name if name in device.peak_flops_per_s else half_format(device)


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

    Formula  2·b·min(c, window)·kv_heads·d·s / (bandwidth·e) + floor
    Why      One query per sequence: a FLOP or two per byte, far below any ridge; split-KV fills the device.
    Shapes   all counts broadcast; `context_tokens` is the mean over the batch.
    Units    counts; seconds out.
    Source   PHYSICS, Attention; constants fitted on public kernel tables.
    Limits   empty cache: the floor. Grouped queries share what is read.
    """
    seen_tokens = batch * _visible_context(context_tokens, window)
    cache_bytes = 2.0 * seen_tokens * kv_heads * head_dim * bytes_per_weight(kv_fmt)
    query_bytes = 4.0 * batch * heads * head_dim
    bandwidth = device.memory_bytes_per_s * device.decode_efficiency_fraction
    return (cache_bytes + query_bytes) / bandwidth + device.attention_floor_s


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
    memory_s = cache_bytes / (device.memory_bytes_per_s * device.decode_efficiency_fraction)
    return smooth_max(compute_s, memory_s) + device.attention_floor_s
