"""What the performance models run on: a device, the network around it, and the software that drives them.

Every number may be a float or an array: scaling a field by a draw of shape (200, 1) reprices every candidate
under every draw in one pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = float | NDArray[np.float64]


def one(value: object) -> float:
    """The number of a single candidate, whatever the shape that it stands in."""
    return float(np.ravel(np.asarray(value, float))[0])


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. Peaks are the vendor's, dense; the fitted efficiencies are fractions of them."""

    name: str
    family: str
    memory_bytes: float
    memory_bytes_per_s: Floats
    peak_flops_per_s: Mapping[str, Floats]  # by the catalogue's number formats; a format it lacks is absent
    native_formats: frozenset[str]  # what its matrix units know; the other 16-bit peak is a stand-in
    gemm_efficiency_fraction: Mapping[str, Floats]  # large matrices, by kernel format
    attention_efficiency_fraction: Floats  # prefill, of the 16-bit peak
    memory_efficiency_fraction: Floats  # elementwise passes
    gemm_half_k: Floats  # inner size, in 16-bit numbers, at which a GEMM reaches half of its efficiency
    kernel_floor_s: Floats  # the shortest kernel
    sm_count: int
    tdp_w: float
    idle_w: float
    serving_power_fraction: float  # of the range from idle to tdp, while any request is served
    gemm_memory_efficiency_fraction: Mapping[str, Floats]  # streaming of weights, by kernel format
    grouped_efficiency_fraction: Mapping[str, Floats]  # grouped GEMMs of experts, by kernel format
    grouped_memory_efficiency_fraction: Mapping[str, Floats]
    grouped_floor_s: Floats  # routing, permutation and two grouped GEMMs
    grouped_pad_tokens: Floats  # routed tokens that an expert's tile wastes on average
    decode_efficiency_fraction: Floats  # reads of a 16-bit KV cache, of memory bandwidth
    mla_efficiency_fraction: Floats  # absorbed FLOPs of MLA decode, of the 16-bit peak
    attention_floor_s: Floats
    attention_fp8_efficiency_fraction: Floats  # prefill in fp8, of the fp8 peak
    attention_softmax_flops: Floats  # what one query-key pair's exponential costs, as FLOPs of the products
    attention_memory_efficiency_fraction: Floats  # Q, K, V and O of prefill
    attention_tile_s: Floats  # one tile of 128 queries of one head on one SM, at least
    decode_fp8_efficiency_fraction: Floats  # reads of an 8-bit KV cache
    decode_floor_s: Floats
    decode_tile_s: Floats  # one sequence and KV head on one SM, at least
    gemm_floor_ratio: Mapping[str, Floats]  # a product's floor over `kernel_floor_s`, by kernel format
    gemm_ramp_ratio: Floats  # how many further floors a long inner loop costs a small product
    gemm_ramp_half_k: Floats  # inner size where half of that is reached
    attention_wide_ratio: Floats = 0.0  # what heads of more than 128 cost prefill's products on top
    gemm_tile_fraction: Floats = 0.0  # of the rows and columns that a product's last tiles lack, paid for
    decode_compute_fraction: Floats = 1.0  # products of decode attention, of the 16-bit peak


@dataclass(frozen=True, slots=True)
class Network:
    """Links of one accelerator, one direction, as large messages see them: efficiencies are applied.

    Three levels: `domain_size` accelerators share fast links, `node_size` share a host, the rest is fabric.
    """

    node_size: int  # accelerators per node
    domain_size: int  # accelerators joined by fast links: 8 on HGX, 72 on NVL72, 1 on plain PCIe
    link_bytes_per_s: Floats  # inside the domain
    link_latency_s: Floats  # per collective step
    link_half_bytes: Floats  # bytes on the wire at which the link reaches half of its rate
    nic_bytes_per_s: Floats  # per accelerator, fabric efficiency and oversubscription already applied
    nic_latency_s: Floats
    jitter_fraction: Floats
    fabric: str
    host_bytes_per_s: Floats = 20e9  # between domains of one node: PCIe and host memory
    host_latency_s: Floats = 10e-6
    launch_s: Floats = 8e-6  # what any collective costs before the first byte moves
    engine_launch_s: Floats = 5e-6  # one step of a serving engine's own all-reduce
    engine_half_bytes: Floats = 1e6
    all_to_all_efficiency_fraction: Floats = 0.8  # of what a ring reaches
    pair_loss_fraction: Floats = 0.2  # of the rate, lost when only two ranks talk


@dataclass(frozen=True, slots=True)
class Cluster:
    """`accelerator_count` equal devices and their network."""

    device: Device
    network: Network
    accelerator_count: int
