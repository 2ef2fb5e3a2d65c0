"""What the performance models run on: a device, the network around it, and the software that drives them.

Every number may be a float or an array: scaling a field by a draw of shape (200, 1) reprices every candidate
under every draw in one pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twofold.perf.formats import ComputeFormat, bytes_per_weight, peak_format

Floats = float | NDArray[np.float64]
SMALLEST = np.finfo(np.float64).tiny  # stands in for a divisor of 0


def one(value: object) -> float:
    """The number of a single candidate, whatever the shape that it stands in."""
    return float(np.ravel(np.asarray(value, float))[0])


def smooth_max(a: Floats, b: Floats, p: float = 4.0) -> Floats:
    """The p-norm of two non-negative costs that run side by side.

    Formula  (a^p + b^p)^(1/p), written as large · (1 + (small/large)^p)^(1/p) so that nothing overflows.
    Why      Compute and memory traffic of one kernel overlap, though never perfectly where they are equal.
    Shapes   a and b broadcast.
    Units    those of a and b, which must agree.
    Source   PHYSICS: the p-norm roofline; p ≈ 4–8 fits measured kernels.
    Limits   p = 1 is the sum, p → ∞ the maximum; never below either, never above their sum. 0, 0 gives 0.

    >>> float(smooth_max(3.0, 0.0)), float(smooth_max(0.0, 0.0)), float(smooth_max(3.0, 4.0, p=2.0))
    (3.0, 0.0, 5.0)
    """
    large = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.maximum(large, SMALLEST)
    # HOT: every operator ends here; `**` was up to 10 times slower where one cost is 0: bench/perf.py.
    norm = np.sqrt(np.sqrt(1.0 + np.square(np.square(ratio)))) if p == 4.0 else (1.0 + ratio**p) ** (1.0 / p)
    return large * norm


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
    attention_tile_s: Floats  # one tile of queries of one head on one SM, at least
    decode_fp8_efficiency_fraction: Floats  # reads of an 8-bit KV cache
    decode_floor_s: Floats
    decode_tile_s: Floats  # one sequence and KV head on one SM, at least
    gemm_floor_ratio: Mapping[str, Floats]  # a product's floor over `kernel_floor_s`, by kernel format
    gemm_ramp_ratio: Floats  # how many further floors a long inner loop costs a small product
    gemm_ramp_half_k: Floats  # inner size where half of that is reached
    attention_wide_ratio: Floats = 0.0  # what heads of more than 128 cost prefill's products on top
    gemm_tile_fraction: Floats = 0.0  # of the rows and columns that a product's last tiles lack, paid for
    decode_compute_fraction: Floats = 1.0  # products of decode attention, of the 16-bit peak
    attention_tile_queries: float = 128.0  # of one head that prefill works on at once, at most

    @property
    def half_format(self) -> str:
        """The 16-bit format that it multiplies in: bf16, or fp16 before Ampere."""
        return "bf16" if "bf16" in self.native_formats or "fp16" not in self.native_formats else "fp16"

    def compute_format(self, weight_format: str, activation_format: str) -> ComputeFormat:
        """The format that a GEMM of these weights and activations runs in.

        Both operands must be in a format that the tensor cores know; otherwise the weights are widened on the
        fly (weight-only) and the maths runs in 16 bits.
        """
        half = self.half_format
        wanted = max(activation_format, weight_format, key=bytes_per_weight)
        if wanted in self.native_formats:
            return ComputeFormat(wanted, False)
        missing = f"{self.name} has no {peak_format(wanted)} tensor cores"
        return ComputeFormat(half, True, f"{missing}: {weight_format} weights, maths in {half}")

    def default_activation_format(self, weights_format: str) -> str:
        """What serving quantises activations to when nobody says: int4 is weight-only, mxfp4 wants 8-bit
        tensor cores that take block scales, other formats match their weights."""
        if weights_format == "int4":
            return "bf16"
        if weights_format == "mxfp4":
            return "mxfp8" if self.family.startswith(("blackwell", "rubin", "cdna4")) else "bf16"
        return weights_format

    def widens(self, weights_format: str) -> bool:
        """Whether products of these weights run in 16 bits though the weights have fewer."""
        used = self.compute_format(weights_format, self.default_activation_format(weights_format)).format
        return bytes_per_weight(weights_format) < bytes_per_weight(used) == 2.0

    def ridge_flops_per_byte(self, fmt: str = "bf16") -> Floats:
        """FLOPs per byte above which compute binds, by vendor's peaks: 295 on H100, 206 on H200."""
        return self.peak_flops_per_s[peak_format(fmt)] / self.memory_bytes_per_s

    def power_w(self, utilisation_fraction: Floats) -> Floats:
        """Watts that it draws while a share of its time goes into kernels.

        Formula  idle + (tdp − idle)·utilisation
        Why      Dynamic power follows switching activity; the rest flows anyway.
        Shapes   utilisation broadcasts.
        Units    W; utilisation 0–1.
        Source   Fan, Weber & Barroso 2007, power provisioning: linear in utilisation.
        Limits   0: idle; 1: the vendor's limit.
        """
        return self.idle_w + (self.tdp_w - self.idle_w) * utilisation_fraction


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

    def scaled(self, factors: Mapping[str, Floats]) -> Self:
        """The cluster with its rates multiplied and its waits divided by the named factors; the rest stays.

        `compute`, `memory_bandwidth`, `memory_capacity`, `link`, `fabric` and `host` mean something here.
        Scaling by draws of shape (200, 1) reprices all candidates under all draws; scaling by 1.2 tells what
        binds.
        """
        device, network, link = self.device, self.network, factors.get("link", 1.0)
        return replace(
            self,
            device=replace(
                device,
                peak_flops_per_s=_times(device.peak_flops_per_s, factors.get("compute", 1.0)),
                memory_bytes_per_s=device.memory_bytes_per_s * factors.get("memory_bandwidth", 1.0),
                memory_bytes=device.memory_bytes * float(np.asarray(factors.get("memory_capacity", 1.0))),
                kernel_floor_s=device.kernel_floor_s / factors.get("host", 1.0),
            ),
            network=replace(
                network,
                link_bytes_per_s=network.link_bytes_per_s * link,
                host_bytes_per_s=network.host_bytes_per_s * link,
                nic_bytes_per_s=network.nic_bytes_per_s * factors.get("fabric", 1.0),
            ),
        )

    def calibrated(self, factors: Mapping[str, Floats]) -> Self:
        """As `scaled`, but `compute` is what kernels reach: the datasheet's peak stays what it is.

        A share of the peak, such as MFU, is then one of the vendor's peak. Times are those of `scaled`.
        """
        scaled = self.scaled({name: factor for name, factor in factors.items() if name != "compute"})
        device, factor = scaled.device, factors.get("compute", 1.0)
        reached = replace(
            device,
            gemm_efficiency_fraction=_times(device.gemm_efficiency_fraction, factor),
            grouped_efficiency_fraction=_times(device.grouped_efficiency_fraction, factor),
            attention_efficiency_fraction=device.attention_efficiency_fraction * factor,
            attention_fp8_efficiency_fraction=device.attention_fp8_efficiency_fraction * factor,
            mla_efficiency_fraction=device.mla_efficiency_fraction * factor,
        )
        return replace(scaled, device=reached)

    def virtualised(self, overhead_fraction: float) -> Self:
        """The same cluster behind a hypervisor: kernels and fabric slower by that share."""
        slower, device, network = 1 + overhead_fraction, self.device, self.network
        return replace(
            self,
            device=replace(
                device,
                peak_flops_per_s={name: peak / slower for name, peak in device.peak_flops_per_s.items()},
                memory_bytes_per_s=device.memory_bytes_per_s / slower,
                kernel_floor_s=device.kernel_floor_s * slower,
            ),
            network=replace(network, nic_bytes_per_s=network.nic_bytes_per_s / slower),
        )


def _times(values: Mapping[str, Floats], factor: Floats) -> Mapping[str, Floats]:
    return MappingProxyType({key: value * factor for key, value in values.items()})
