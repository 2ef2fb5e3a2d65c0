"""What the performance models run on: a device, the network around it, and the software that drives them.

Every number may be a float or an array: scaling a field by a draw of shape (200, 1) reprices every candidate
under every draw in one pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = float | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator with its fitted efficiencies. Peaks are the vendor's, dense; efficiencies are of them."""

    name: str
    family: str
    memory_bytes: float
    memory_bytes_per_s: Floats
    peak_flops_per_s: Mapping[str, Floats]  # by number format; a format it lacks is absent
    gemm_efficiency_fraction: Mapping[str, Floats]  # large matrices, by number format
    attention_efficiency_fraction: Floats
    memory_efficiency_fraction: Floats
    gemm_half_k: Floats  # inner size at which a GEMM reaches half of its efficiency
    kernel_floor_s: Floats
    sm_count: int
    tdp_w: float
    idle_w: float


@dataclass(frozen=True, slots=True)
class Network:
    """Links of one accelerator, one direction: inside the scale-up domain, and to other nodes."""

    node_size: int  # accelerators per node
    domain_size: int  # accelerators per scale-up domain: 8 on HGX, 72 on NVL72, 1 on plain PCIe
    link_bytes_per_s: Floats  # inside the domain
    link_latency_s: Floats
    link_half_bytes: Floats  # message at which the link reaches half of its rate
    nic_bytes_per_s: Floats  # per accelerator, fabric efficiency and oversubscription already applied
    nic_latency_s: Floats
    jitter_fraction: Floats
    fabric: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """`accelerator_count` equal devices and their network."""

    device: Device
    network: Network
    accelerator_count: int
