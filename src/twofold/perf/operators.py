"""Matrix products, experts and elementwise passes on one device. Attention has its own file.

Every function is pure, broadcasts its array arguments and returns seconds.
"""

import numpy as np

from twofold.perf.formats import bytes_per_weight, kernel_format, peak_format
from twofold.perf.types import Device, Floats, smooth_max

TILE = 128.0  # rows or columns of a product that one block computes


def gemm_s(
    device: Device,
    m: Floats,
    n: Floats,
    k: Floats,
    fmt: str,
    out_fmt: str = "bf16",
    weight_fmt: str | None = None,
) -> Floats:
    """Seconds of one matrix product, m×k activations by k×n weights, run in `fmt`.

    Formula  smooth_max(2·m'·n'·(k + k_half) / (peak·e), (m·k·s + k·n·s_w + m·n·s_o) / (bandwidth·e_m))
             + floor·(1 + ramp·k / (k + k_ramp)), m' and n' partly rounded up to tiles of 128
    Why      The larger of compute and traffic hides the other. Short inner loops (in bytes) do not fill the
             pipeline, and a product of few tiles waits for its loop over k until split-k takes over. Counting
             waves over tile shapes was tried and was no better: libraries choose among too many tiles.
    Shapes   m, n, k broadcast.
    Units    counts; seconds out.
    Source   PHYSICS, Operators; constants fitted on public kernel tables.
    Limits   huge: flops / (peak·e); one row: weights / (bandwidth·e_m); tiny: the floor.
             `weight_fmt` narrower than `fmt` means weight-only quantisation: fewer bytes, the same maths.
             Quantising the activations is not included: `quantise_s`.
    """
    kernel = kernel_format(fmt, weight_fmt)
    peak = device.peak_flops_per_s[peak_format(fmt)] * device.gemm_efficiency_fraction[kernel]
    half_k = device.gemm_half_k * (2.0 / bytes_per_weight(fmt))
    compute_s = 2.0 * _tiled(m, device) * _tiled(n, device) * (k + half_k) / peak
    weight_bytes = bytes_per_weight(weight_fmt or fmt)
    traffic_bytes = m * k * bytes_per_weight(fmt) + k * n * weight_bytes + m * n * bytes_per_weight(out_fmt)
    memory_s = traffic_bytes / (device.memory_bytes_per_s * device.gemm_memory_efficiency_fraction[kernel])
    ramp = 1.0 + device.gemm_ramp_ratio * k / (k + device.gemm_ramp_half_k)
    floor_s = device.kernel_floor_s * device.gemm_floor_ratio[kernel]
    return smooth_max(compute_s, memory_s) + floor_s * ramp


def gemm_flops_per_byte(m: Floats, n: Floats, k: Floats, fmt: str = "bf16") -> Floats:
    """Intensity of a product: 2mnk over its three matrices. Near m when weights dominate (decode)."""
    size = bytes_per_weight(fmt)
    return 2.0 * m * n * k / (size * (m * k + k * n + m * n))


def _tiled(size: Floats, device: Device) -> Floats:
    """Rows or columns with the share of the last tile that is paid for without being used."""
    lacking: Floats = np.ceil(np.asarray(size) / TILE) * TILE - size
    return size + device.gemm_tile_fraction * lacking


def experts_touched(tokens: Floats, experts: Floats, topk: Floats) -> Floats:
    """How many of `experts` at least one of `tokens` visits.

    Formula  E·(1 − (1 − k/E)^B)
    Why      Each token visits k of E experts; one is missed by B independent tokens with (1 − k/E)^B.
    Shapes   arguments broadcast.
    Units    counts.
    Source   PHYSICS, MoE: expected coverage under even, independent routing.
    Limits   0 tokens: 0; one token: k; many: E. Skewed routing touches fewer.

    >>> round(float(experts_touched(1, 64, 8)), 6)
    8.0
    """
    share = np.minimum(np.asarray(topk) / experts, 1.0)
    return experts * (1.0 - (1.0 - share) ** tokens)


def grouped_gemm_s(
    device: Device,
    tokens: Floats,
    experts: Floats,
    topk: Floats,
    experts_local: Floats,
    hidden: Floats,
    inter: Floats,
    fmt: str,
    weight_fmt: str | None = None,
    matrices: Floats = 3,
    imbalance: Floats = 1.0,
    experts_read: Floats | None = None,
) -> Floats:
    """Seconds of the expert FFN of one MoE layer on one device that holds `experts_local` of `experts`.

    `tokens` are those of the whole expert-parallel group, before routing; `inter` is one expert's width on
    this device (after tensor parallelism); `matrices` 3 gated, 2 not. `imbalance` is the busiest device's
    load over the mean: 1.0 when routing is forced even, 1.08–1.2 in real use.

    `experts_read` are the local experts that hold rows, where known; left out, those of even routing.

    Formula  smooth_max(2·(R + touched·pad)·h·i·((M−1)·(1 + k_half/h) + 1 + k_half/i) / (peak·e),
                        touched·M·h·i·s_w / (bandwidth·e_m)) + R·(2h + M·i)·2 / (bandwidth·e_m) + floor
             with R = tokens·topk·experts_local/experts·imbalance rows
    Why      Weights are read as far as experts are touched, each expert's last tile is part empty, and short
             inner loops (narrow experts) do not fill the pipeline. Gathering rows, the activation and the
             weighted sum are passes of their own, so that rows come on top.
    Shapes   all counts broadcast.
    Units    counts; seconds out.
    Source   PHYSICS, MoE; constants fitted on public MoE kernel tables.
    Limits   few tokens: the touched experts' weights; many: compute; no tokens: the floor.
    """
    rows = tokens * topk * experts_local / experts * imbalance
    touched = experts_touched(tokens, experts, topk) * experts_local / experts
    touched = touched if experts_read is None else experts_read
    kernel = kernel_format(fmt, weight_fmt)
    peak = device.peak_flops_per_s[peak_format(fmt)] * device.grouped_efficiency_fraction[kernel]
    half_k = device.gemm_half_k
    unfilled = (matrices - 1.0) * (1.0 + half_k / hidden) + 1.0 + half_k / inter
    compute_s = 2.0 * (rows + touched * device.grouped_pad_tokens) * hidden * inter * unfilled / peak
    weight_bytes = touched * matrices * hidden * inter * bytes_per_weight(weight_fmt or fmt)
    row_bytes = rows * (2.0 * hidden + matrices * inter) * 2.0  # activations pass between kernels in 16 bits
    bandwidth = device.memory_bytes_per_s * device.grouped_memory_efficiency_fraction[kernel]
    return smooth_max(compute_s, weight_bytes / bandwidth) + row_bytes / bandwidth + device.grouped_floor_s


def elementwise_s(device: Device, bytes_moved: Floats, launches: Floats = 1.0) -> Floats:
    """Seconds of passes that only move data: norms, rotary, activations, residuals, sampling, optimiser.

    Formula  bytes / (bandwidth·e) + launches·floor
    Why      No pass does enough arithmetic per byte to be bound by anything but memory.
    Shapes   arguments broadcast.
    Units    bytes read plus bytes written; launches are kernels started.
    Source   PHYSICS, Elementwise.
    Limits   nothing to move: the launches alone.
    """
    bytes_per_s = device.memory_bytes_per_s * device.memory_efficiency_fraction
    return bytes_moved / bytes_per_s + launches * device.kernel_floor_s


def quantise_s(device: Device, m: Floats, k: Floats, fmt: str = "fp8") -> Floats:
    """Seconds to quantise m×k activations from 16 bits to `fmt`: one pass that reads and writes them once."""
    return elementwise_s(device, m * k * (2.0 + bytes_per_weight(fmt)), 1.0)
