"""What a named factor does to hardware: one meaning in draws, in bounds and in calibration."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from twofold.perf.types import Cluster, Device, Floats, Network


def scale_cluster(cluster: Cluster, factors: Mapping[str, Floats]) -> Cluster:
    """The cluster with its rates multiplied and its waits divided by the named factors; the rest stays.

    `compute`, `memory_bandwidth`, `memory_capacity`, `link`, `fabric` and `host` mean something here. Scaling
    by draws of shape (200, 1) reprices all candidates under all draws; scaling by 1.2 tells what binds.
    """
    return replace(
        cluster,
        device=_scale_device(cluster.device, factors),
        network=_scale_network(cluster.network, factors),
    )


def calibrate_cluster(cluster: Cluster, factors: Mapping[str, Floats]) -> Cluster:
    """As `scale_cluster`, but `compute` is what kernels reach: the datasheet's peak stays what it is.

    A share of the peak, such as MFU, is then one of the vendor's peak. Times are those of `scale_cluster`.
    """
    rest = {name: factor for name, factor in factors.items() if name != "compute"}
    scaled = scale_cluster(cluster, rest)
    return replace(scaled, device=_reached(scaled.device, factors.get("compute", 1.0)))


def _reached(device: Device, factor: Floats) -> Device:
    def each(fractions: Mapping[str, Floats]) -> Mapping[str, Floats]:
        return MappingProxyType({key: fraction * factor for key, fraction in fractions.items()})

    return replace(
        device,
        gemm_efficiency_fraction=each(device.gemm_efficiency_fraction),
        grouped_efficiency_fraction=each(device.grouped_efficiency_fraction),
        attention_efficiency_fraction=device.attention_efficiency_fraction * factor,
        attention_fp8_efficiency_fraction=device.attention_fp8_efficiency_fraction * factor,
        mla_efficiency_fraction=device.mla_efficiency_fraction * factor,
    )


def _scale_device(device: Device, factors: Mapping[str, Floats]) -> Device:
    compute, host = factors.get("compute", 1.0), factors.get("host", 1.0)
    return replace(
        device,
        peak_flops_per_s=MappingProxyType(
            {key: peak * compute for key, peak in device.peak_flops_per_s.items()}
        ),
        memory_bytes_per_s=device.memory_bytes_per_s * factors.get("memory_bandwidth", 1.0),
        memory_bytes=device.memory_bytes * float(np.asarray(factors.get("memory_capacity", 1.0))),
        kernel_floor_s=device.kernel_floor_s / host,
    )


def _scale_network(network: Network, factors: Mapping[str, Floats]) -> Network:
    link, fabric = factors.get("link", 1.0), factors.get("fabric", 1.0)
    return replace(
        network,
        link_bytes_per_s=network.link_bytes_per_s * link,
        host_bytes_per_s=network.host_bytes_per_s * link,
        nic_bytes_per_s=network.nic_bytes_per_s * fabric,
    )
