"""Where the work of a plan lies under its accelerator's roofline, beside what others measured there.

FLOPs and bytes of a step are read off the formulas that price it, so that no list of operators stands twice:
on a device that only computes, a part's time is its FLOPs; on one that only moves data, its bytes.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from twofold.answer import loads
from twofold.answer.serving_pools import DrawnPool
from twofold.answer.training_step import TrainedStep
from twofold.contracts.results.parts import OperatorRate, Roofline
from twofold.core import record
from twofold.inference.replica import Replica
from twofold.inference.slo import merged_class
from twofold.perf.formats import peak_format
from twofold.perf.measured_products import measured_products
from twofold.perf.types import Cluster, Device, Floats, one
from twofold.training.stack import Stack
from twofold.training.step import step_time

HALF = 0.5  # an efficiency that no cap of real kernels, 0.92 of a memory's peak, cuts
RATE = 1e15  # FLOP/s or B/s of a bare device: of no consequence, it divides out
BOUNDLESS = 1e40
Parts = dict[str, float]  # seconds, FLOPs or bytes by kind of work

COSTS_NOTHING = (
    "gemm_half_k", "kernel_floor_s", "grouped_floor_s", "grouped_pad_tokens", "attention_floor_s",
    "attention_softmax_flops", "attention_tile_s", "decode_floor_s", "decode_tile_s", "gemm_ramp_ratio",
    "attention_wide_ratio", "gemm_tile_fraction",
)  # fmt: skip
NEUTRAL_ENGINE = (
    "prefill_factor", "launch_factor", "weight_read_gain", "expert_read_gain", "device_factor",
    "arithmetic_factor", "attention_factor", "moe_factor",
)  # fmt: skip
NEUTRAL_STACK = (
    "kernel_factor", "wide_factor", "attention_factor", "misaligned_factor", "expert_factor",
    "routing_imbalance_ratio",
)  # fmt: skip
WITHOUT_STACK = ("softmax_passes_factor", "quantise_factor")  # passes beside the products


def serving_roofline(pool: DrawnPool) -> Roofline:
    """A step that decodes at the peak, and one that prefills a prompt or a chunk of it, of one replica."""
    replica, served = pool.pool.replica, pool.pool.served
    lengths = merged_class([load.traffic for load in pool.loads]).lengths
    sequences, held = one(served.batch_sequences), one(lengths.mean_context_tokens)
    tokens = min(one(replica.chunk_tokens), one(lengths.input_tokens))

    def decode(on: Replica) -> Parts:
        return _of_iteration(loads.decode_step(on, sequences, held).by_name(), "decode")

    def prefill(on: Replica) -> Parts:
        return _of_iteration(loads.prefill_step(on, tokens).by_name(), "prompt")

    device = replica.cluster.device
    runs_in = device.compute_format(replica.weights_format, replica.activation_format).format
    with record.recording():  # steps of no real device
        planned = [
            rate
            for step in (decode, prefill)
            for rate in _rates(step(replica), *(step(_bare_replica(replica, way)) for way in (True, False)))
        ]
    return _roofline(device, runs_in, planned)


def training_roofline(trained: TrainedStep) -> Roofline:
    """The forward and backward products, attention and experts of a step."""
    job, layouts, cluster = trained.job, trained.chosen.layouts, trained.machines.cluster

    def parts(on: Cluster, stack: Stack) -> Parts:
        step = step_time(job.workload, job.precision, layouts, on, stack)
        named = {"products": step.gemm_s, "attention": step.attention_s, "experts": step.experts_s}
        return {f"{name}, a step": one(seconds) for name, seconds in named.items()}

    neutral: dict[str, Any] = dict.fromkeys(NEUTRAL_STACK, 1.0) | dict.fromkeys(WITHOUT_STACK, 0.0)
    bare = replace(trained.stack, **neutral)
    with record.recording():
        counted = (parts(replace(cluster, device=_bare(cluster.device, way)), bare) for way in (True, False))
        planned = _rates(parts(cluster, trained.stack), *counted)
    return _roofline(
        cluster.device, cluster.device.compute_format(job.precision, job.precision).format, planned
    )


def _of_iteration(parts: Mapping[str, Floats], what: str) -> Parts:
    names = {"gemm": "products", "attention": "attention", "moe": "experts"}
    return {f"{said}, {what}": one(parts[name]) for name, said in names.items()}


def _rates(seconds: Parts, computing: Parts, moving: Parts) -> list[OperatorRate]:
    """The rate of each part that there is, from its times as planned and on the two bare devices."""
    found = []
    for what, planned_s in seconds.items():
        flops, moved_bytes = computing[what] * RATE * HALF, moving[what] * RATE * HALF
        if planned_s > 0.0 and flops > 0.0 and moved_bytes > 0.0:
            found.append(OperatorRate(what, flops / moved_bytes, flops / planned_s, ""))
    return found


def _roofline(device: Device, runs_in: str, planned: list[OperatorRate]) -> Roofline:
    fmt = peak_format(runs_in)
    timed = tuple(
        OperatorRate(
            f"{each.m:,} × {each.k:,} × {each.n:,}", each.flops_per_byte, each.flops_per_s, each.source
        )
        for each in measured_products(device.name, fmt)
    )
    peak, bandwidth = one(device.peak_flops_per_s[fmt]), one(device.memory_bytes_per_s)
    return Roofline(device.name, fmt, peak, bandwidth, tuple(planned), timed)


def _bare_replica(replica: Replica, computes: bool) -> Replica:
    """The same layout on a bare device, under an engine that adds nothing to it."""
    neutral: dict[str, Any] = dict.fromkeys(NEUTRAL_ENGINE, 1.0)
    engine = replace(replica.engine, prefill_layer_s=0.0, **neutral)
    cluster = replace(replica.cluster, device=_bare(replica.cluster.device, computes))
    return replace(replica, engine=engine, cluster=cluster)


def _bare(device: Device, computes: bool) -> Device:
    """A device that computes and moves nothing, or the other way about, at half of `RATE` in any format."""
    flops_per_s, bytes_per_s = (RATE, BOUNDLESS) if computes else (BOUNDLESS, RATE)
    changed: dict[str, Any] = {
        each.name: _filled(getattr(device, each.name), HALF)
        for each in fields(device)
        if "efficiency_fraction" in each.name
    }
    changed |= dict.fromkeys(COSTS_NOTHING, 0.0)
    changed["peak_flops_per_s"] = _filled(device.peak_flops_per_s, flops_per_s)
    return replace(
        device, **changed, decode_compute_fraction=HALF, sm_count=1, memory_bytes_per_s=bytes_per_s
    )


def _filled(value: object, number: float) -> object:
    return dict.fromkeys(value, number) if isinstance(value, Mapping) else number
