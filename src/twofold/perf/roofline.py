"""Roofline: FLOPs per byte of an operator against the ridge of a device."""

import numpy as np

from twofold.perf.formats import bytes_per_weight, peak_format
from twofold.perf.types import Device, Floats


def ridge_flops_per_byte(device: Device, fmt: str = "bf16") -> Floats:
    """FLOPs per byte above which compute binds, by vendor's peaks: 295 on H100, 206 on H200."""
    return device.peak_flops_per_s[peak_format(fmt)] / device.memory_bytes_per_s


def gemm_flops_per_byte(m: Floats, n: Floats, k: Floats, fmt: str = "bf16") -> Floats:
    """Intensity of a product: 2mnk over its three matrices. Near m when weights dominate (decode)."""
    size = bytes_per_weight(fmt)
    return 2.0 * m * n * k / (size * (m * k + k * n + m * n))


def decode_attention_flops_per_byte(heads: Floats, kv_heads: Floats, kv_fmt: str = "bf16") -> Floats:
    """Intensity of decode attention: two FLOPs per query head and cached element that it shares."""
    return 2.0 * np.asarray(heads) / kv_heads / bytes_per_weight(kv_fmt)


def prefill_attention_flops_per_byte(
    tokens: Floats, heads: Floats, kv_heads: Floats, fmt: str = "bf16"
) -> Floats:
    """Intensity of causal flash attention: 2·h·s² FLOPs per dimension over Q, K, V and O."""
    moved = bytes_per_weight(fmt) * tokens * (2.0 * np.asarray(heads) + 2.0 * np.asarray(kv_heads))
    return 2.0 * heads * np.asarray(tokens) ** 2 / moved
