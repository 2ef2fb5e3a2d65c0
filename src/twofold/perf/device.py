"""From catalogue rows and fitted constants to a `Device` and a `Network`, and to the kernels of engines."""

import csv
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from twofold.catalog.types import Accelerator, Fabric
from twofold.core.estimate import Estimate
from twofold.perf.constants import Constants
from twofold.perf.formats import FORMAT_BYTES, PEAK_OF, WEIGHT_ONLY, bytes_per_weight
from twofold.perf.types import Device, Floats, Network

CATALOG_FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
SAME_KERNELS = MappingProxyType({"fp16": "bf16", "fp4": "nvfp4", "mxfp4": "nvfp4"})  # share their constants
MADE_OF: Mapping[str, tuple[str, ...]] = {  # other fields of Network, and what they are read from
    "link_bytes_per_s": ("scaleup_bytes_per_s", "link_efficiency_fraction"),
    "nic_bytes_per_s": ("nic", "fabric_efficiency_fraction"),
    "nic_latency_s": ("fabric_latency_s",),
    "jitter_fraction": ("fabric_jitter_fraction",),
    "host_bytes_per_s": ("pcie_generation", "host_link_efficiency_fraction"),
    "host_latency_s": ("host_link_latency_s",),
    "launch_s": ("collective_launch_s",),
}
RACK_SCALE_COUNT = 64  # from here on a scale-up domain spans nodes: NVL72, TPU and Trainium pods
Support = Literal["native", "fallback", "missing"]
PCIE_BYTES_PER_S = MappingProxyType({3: 16e9, 4: 32e9, 5: 64e9, 6: 128e9})  # ×16, one direction


def device(accelerator: Accelerator, constants: Constants) -> Device:
    """The accelerator with its efficiencies: its own, its family's or the prior of all, the narrowest."""
    scope = {"accelerator": accelerator.name, "family": accelerator.family}
    stated = {name: getattr(accelerator, f"{name}_flops_per_s") for name in CATALOG_FORMATS}
    peaks: dict[str, Floats] = {name: peak for name, peak in stated.items() if peak}
    native_formats = frozenset(name for name in FORMAT_BYTES if PEAK_OF.get(name, name) in peaks)
    peaks |= {name: _stand_in_flops_per_s(peaks) for name in ("bf16", "fp16") if name not in peaks}
    kernel_formats = [*sorted(native_formats | {"bf16", "fp16"}), WEIGHT_ONLY]
    sustained = _sustained_clock_fraction(accelerator, constants)

    def by_format(name: str, factor: float = 1.0) -> MappingProxyType[str, Floats]:
        return MappingProxyType(
            {f: constants.get(name, format=SAME_KERNELS.get(f, f), **scope) * factor for f in kernel_formats}
        )

    def held_back(name: str) -> float:
        return constants.get(name, **scope) * sustained

    given = dict[str, Any](
        name=accelerator.name,
        family=accelerator.family,
        memory_bytes=accelerator.memory_bytes,
        memory_bytes_per_s=accelerator.memory_bytes_per_s,
        peak_flops_per_s=MappingProxyType(peaks),
        native_formats=native_formats,
        gemm_efficiency_fraction=by_format("gemm_efficiency_fraction", sustained),
        gemm_memory_efficiency_fraction=by_format("gemm_memory_efficiency_fraction"),
        grouped_efficiency_fraction=by_format("grouped_efficiency_fraction", sustained),
        grouped_memory_efficiency_fraction=by_format("grouped_memory_efficiency_fraction"),
        gemm_floor_ratio=by_format("gemm_floor_ratio"),
        attention_efficiency_fraction=held_back("attention_efficiency_fraction"),
        attention_fp8_efficiency_fraction=held_back("attention_fp8_efficiency_fraction"),
        mla_efficiency_fraction=held_back("mla_efficiency_fraction"),
        sm_count=accelerator.sm_count or 100,
        tdp_w=accelerator.tdp_w,
        idle_w=accelerator.idle_w or constants.get("idle_power_fraction", **scope) * accelerator.tdp_w,
    )
    if accelerator.family == "cpu":  # no tensor cores whose tiles decode must fill: it reads the cache
        given["decode_compute_fraction"] = math.inf
    # Other fields are constants as they stand. A table without the later ones leaves their defaults.
    read: dict[str, Any] = {
        f.name: constants.get(f.name, **scope)
        for f in fields(Device)
        if f.name not in given and (f.default is MISSING or constants.has(f.name, **scope))
    }
    return Device(**given, **read)


def _stand_in_flops_per_s(peaks: Mapping[str, Floats]) -> Floats:
    """The rate of a missing 16-bit format: the other one's, half of fp8's, a quarter of fp4's, or fp32's."""
    shares = {"fp16": 1.0, "bf16": 1.0, "fp8": 0.5, "fp4": 0.25, "fp32": 1.0}
    known = next((name for name in shares if name in peaks), None)
    return peaks[known] * shares[known] if known else 1.0  # one that multiplies nothing: useless, not absent


def _sustained_clock_fraction(accelerator: Accelerator, constants: Constants) -> float:
    """How far a part's power limit pulls its clock below that of the family's reference part.

    Formula  min(1, (tdp / peak / reference)^0.4)
    Why      Dynamic power is about clock · voltage² and voltage follows the clock, so clock ~ power^0.4.
    Units    tdp W, peak FLOP/s, reference W per FLOP/s of the part the family's efficiencies were fitted on.
    Source   Cube law of CMOS power; the 500 W H100 reaches .62 of peak where the 700 W one reaches .73.
    Limits   1 for the reference part and every part with more power per FLOP/s.
    """
    peak = accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s
    scope = {"accelerator": accelerator.name, "family": accelerator.family}
    if not peak or not constants.has("reference_w_per_tflops", **scope):
        return 1.0
    reference = constants.get("reference_w_per_tflops", **scope) / 1e12
    return float(min(1.0, (accelerator.tdp_w / peak / reference) ** 0.4))


def network(
    accelerator: Accelerator,
    node_size: int,
    nic_bytes_per_s_per_accelerator: float,
    fabric: Fabric | str,
    constants: Constants,
    oversubscription: float = 1.0,
) -> Network:
    """The links of one accelerator: `nic_bytes_per_s_per_accelerator` is line rate, one direction.

    A fabric given by name takes the fitted constants of that class; a catalogue row speaks for itself.
    `oversubscription` divides what crosses nodes: 3.0 for three times more downlinks than uplinks.
    """
    scope = {"accelerator": accelerator.name, "family": accelerator.family}
    name = fabric if isinstance(fabric, str) else fabric.name
    if isinstance(fabric, str):
        efficiency = constants.get("fabric_efficiency_fraction", fabric=name)
        latency_s = constants.get("fabric_latency_s", fabric=name)
        jitter = constants.get("fabric_jitter_fraction", fabric=name)
    else:
        efficiency, latency_s, jitter = fabric.efficiency_fraction, fabric.latency_s, fabric.jitter_fraction
    pcie_bytes_per_s = PCIE_BYTES_PER_S.get(accelerator.pcie_generation or 4, 32e9)
    host_bytes_per_s = pcie_bytes_per_s * constants.get("host_link_efficiency_fraction", **scope)
    if accelerator.family == "cpu":  # ranks on one machine meet in its memory
        host_bytes_per_s = accelerator.memory_bytes_per_s * constants.get("shared_memory_link_fraction")
    count = accelerator.scaleup_domain_count
    linked = accelerator.scaleup_bytes_per_s > 0.0 and count > 1
    # A rack-scale domain spans nodes; any other is cut to the accelerators that the node has.
    domain_size = count if count >= RACK_SCALE_COUNT else min(count, node_size)
    link = accelerator.scaleup_bytes_per_s * constants.get("link_efficiency_fraction", **scope)
    given = dict[str, Any](
        node_size=node_size,
        domain_size=domain_size if linked else 1,
        link_bytes_per_s=link if linked else host_bytes_per_s,
        nic_bytes_per_s=nic_bytes_per_s_per_accelerator * efficiency / oversubscription,
        nic_latency_s=latency_s,
        jitter_fraction=jitter,
        fabric=name,
        host_bytes_per_s=host_bytes_per_s,
        host_latency_s=constants.get("host_link_latency_s", **scope),
        launch_s=constants.get("collective_launch_s", **scope),
    )
    read = {f.name: constants.get(f.name, **scope) for f in fields(Network) if f.name not in given}
    return Network(**given, **dict[str, Any](read))


def read_from(name: str, accelerator: Accelerator) -> tuple[str, ...]:
    """What a number of `device` or `network` is made of: cells of the accelerator's row, `nic`, constants.

    `name` is a field, or `field.format` where there is one number for each format.
    """
    field, _, fmt = name.partition(".")
    if field == "peak_flops_per_s":
        stated = [
            each for each in (fmt, "bf16", "fp16", "fp8") if getattr(accelerator, f"{each}_flops_per_s", 0)
        ]
        return (f"{(*stated, 'fp32')[0]}_flops_per_s",)
    if field == "link_bytes_per_s" and accelerator.scaleup_bytes_per_s <= 0:
        field = "host_bytes_per_s"
    if field == "host_bytes_per_s" and accelerator.family == "cpu":
        return "memory_bytes_per_s", "shared_memory_link_fraction"
    if field == "idle_w" and not accelerator.idle_w:
        return "tdp_w", "idle_power_fraction"
    return MADE_OF.get(field, (field,))


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """How an engine runs one operation in one number format."""

    engine: str
    operation: str  # gemm attention norm
    format: str
    support: Support
    slowdown: Estimate | None  # of a fallback on prompts, over a native 16-bit kernel of the same shape
    decode_slowdown: Estimate | None  # the same for decode, where bytes bind: below 1 it is faster
    measured_count: int  # shapes that both rest on
    measured_on: str  # accelerators, apart by spaces
    source: str


def kernel_support(device: Device, constants: Constants) -> tuple[KernelSupport, ...]:
    """Every operation and format of every engine on `device`.

    A fallback's slowdown is measured: products of weights that are widened on the fly, and attention over a
    cache that is, on parts of the device's family or, where none was measured, of others.
    """
    text = (files("twofold.perf") / "kernel_support.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    found = {(row["engine"], row["operation"], row["format"]): row for row in rows}
    works = sorted({(operation, name) for _, operation, name in found})
    return tuple(
        _judge(device, engine, *work, found.get((engine, *work), {}), constants)
        for engine in sorted({engine for engine, _, _ in found})
        for work in works
    )


def _judge(
    device: Device, engine: str, operation: str, name: str, row: Mapping[str, str], constants: Constants
) -> KernelSupport:
    """Native needs both the engine's kernel and, for products, matrix units that know the format."""
    known = operation != "gemm" or name in device.native_formats or bytes_per_weight(name) >= 2.0
    native, fallback = (
        {"*", device.family} & set(row.get(f"{kind}_families", "").split()) for kind in ("native", "fallback")
    )
    support: Support = "native" if known and native else "fallback" if fallback else "missing"
    source = row.get("source", "not listed by the engine")
    if support != "fallback":
        return KernelSupport(engine, operation, name, support, None, None, 0, "", source)
    bits = "8" if bytes_per_weight(name) >= 1.0 else "4"
    where = {"family": device.family, "operation": operation, "bits": bits}
    prompts, decode = (
        constants.row("fallback_slowdown_ratio", **where, phase=phase) for phase in ("prefill", "decode")
    )
    slowdowns = prompts.plain, decode.plain
    count = prompts.rows + decode.rows
    return KernelSupport(engine, operation, name, support, *slowdowns, count, prompts.note, source)
