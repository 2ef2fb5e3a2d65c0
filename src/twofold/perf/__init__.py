"""Operators, collectives and energy of one device and its network, from fitted constants."""

from twofold.perf.attention import (
    ATTENTION_BACKWARD_RATIO,
    GEMM_BACKWARD_RATIO,
    UNFUSED_ATTENTION_BACKWARD_RATIO,
    attended_pairs,
    attention_decode_s,
    attention_prefill_s,
    mla_decode_s,
)
from twofold.perf.cluster_factors import scale_cluster
from twofold.perf.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    point_to_point_s,
    reduce_scatter_s,
    serving_all_reduce_s,
    straggler_factor,
)
from twofold.perf.constants import (
    ConstantRow,
    Constants,
    build_constants,
    constants_path,
    format_constants,
    load_constants,
    parse_constants,
    with_rows,
    write_constants,
)
from twofold.perf.device import device, network
from twofold.perf.energy import energy_j, power_w
from twofold.perf.formats import (
    FORMAT_BYTES,
    WEIGHT_ONLY,
    ComputeFormat,
    bytes_per_weight,
    compute_format,
    kernel_format,
)
from twofold.perf.known import (
    Half,
    Known,
    KnownClass,
    Seen,
    format_known,
    known_of,
    known_path,
    load_known,
)
from twofold.perf.operators import elementwise_s, experts_touched, gemm_s, grouped_gemm_s, quantise_s
from twofold.perf.repeats import spread_factor
from twofold.perf.roofline import (
    decode_attention_flops_per_byte,
    gemm_flops_per_byte,
    prefill_attention_flops_per_byte,
    ridge_flops_per_byte,
)
from twofold.perf.smoothing import smooth_max
from twofold.perf.support import KernelSupport, engines, kernel_support
from twofold.perf.types import Cluster, Device, Floats, Network

__all__ = [
    "ATTENTION_BACKWARD_RATIO",
    "FORMAT_BYTES",
    "GEMM_BACKWARD_RATIO",
    "UNFUSED_ATTENTION_BACKWARD_RATIO",
    "WEIGHT_ONLY",
    "Cluster",
    "ComputeFormat",
    "ConstantRow",
    "Constants",
    "Device",
    "Floats",
    "Half",
    "KernelSupport",
    "Known",
    "KnownClass",
    "Network",
    "Seen",
    "all_gather_s",
    "all_reduce_s",
    "all_to_all_s",
    "attended_pairs",
    "attention_decode_s",
    "attention_prefill_s",
    "build_constants",
    "bytes_per_weight",
    "compute_format",
    "constants_path",
    "decode_attention_flops_per_byte",
    "device",
    "elementwise_s",
    "energy_j",
    "engines",
    "experts_touched",
    "format_constants",
    "format_known",
    "gemm_flops_per_byte",
    "gemm_s",
    "grouped_gemm_s",
    "kernel_format",
    "kernel_support",
    "known_of",
    "known_path",
    "load_constants",
    "load_known",
    "mla_decode_s",
    "network",
    "parse_constants",
    "point_to_point_s",
    "power_w",
    "prefill_attention_flops_per_byte",
    "quantise_s",
    "reduce_scatter_s",
    "ridge_flops_per_byte",
    "scale_cluster",
    "serving_all_reduce_s",
    "smooth_max",
    "spread_factor",
    "straggler_factor",
    "with_rows",
    "write_constants",
]
