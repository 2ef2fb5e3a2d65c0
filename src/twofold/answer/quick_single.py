"""Single questions: what a collective takes, what a fleet computes, where a model meets the roofline."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from twofold.answer.question import Given
from twofold.answer.ranges import drawn
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.types import Model
from twofold.contracts.goals import QUANTILES
from twofold.contracts.results.parts import Machine
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.perf import collectives, operators
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight, peak_format
from twofold.perf.measured_products import measured_products
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster, one

PASSES = {"all_reduce": 2.0}  # times that a tensor goes round the ring; the others once
DECODE_BATCHES = (1, 8, 64, 256)
PREFILL_TOKENS = (512, 8192)
TRAINING_TOKENS = 8192  # of one micro-batch
CONTEXT_TOKENS = 2048  # of a decoding sequence


@dataclass(frozen=True, slots=True)
class CollectiveEstimate:
    """Schema `twofold/estimate-collective/1`."""

    schema: str
    operation: str
    payload_bytes: float  # of the full tensor on one rank
    machine: Machine
    rank_count: int
    idle_s: Estimate  # on an idle network
    ring_s: float  # by the ring formula of latency and bandwidth alone
    ring_difference_fraction: float  # of the idle time from it
    formula: str
    bus_bytes_per_s: float  # what one link carries meanwhile
    jitter_fraction: float  # of one rank
    tail_s: dict[str, Estimate]  # p50 p95 p99 with that jitter: all wait for the slowest rank
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComputeEstimate:
    """Schema `twofold/estimate-compute/1`."""

    schema: str
    machine: Machine
    duration_s: float
    mfu_fraction: float
    peak_flops_per_s: float  # of one accelerator, 16-bit, dense
    flops: float  # of the model, in that time
    accelerator_h: float
    energy_j: float  # of the accelerators at their power limit
    model: str  # "" when none was named
    tokens: float | None  # that the FLOPs train the model on
    spend_usd: float | None
    usd_per_accelerator_h: float | None  # at which the spend is met
    cost_usd: Estimate | None  # at the catalogue's price
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One kind of work: its FLOPs per byte, and the rate that the roofline allows it."""

    name: str
    flops_per_byte: float
    flops_per_s: float
    bound: str  # compute or memory bandwidth


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A product of matrices that was timed on this accelerator, and how near it came to the roof."""

    name: str
    flops_per_byte: float
    flops_per_s: float
    roof_fraction: float
    source: str


@dataclass(frozen=True, slots=True)
class RooflineEstimate:
    """Schema `twofold/estimate-roofline/1`."""

    schema: str
    model: str
    accelerator: str
    weights_format: str
    peak_flops_per_s: float
    memory_bytes_per_s: float
    ridge_flops_per_byte: float  # above it compute binds
    ridges: dict[str, float]  # by number format
    points: tuple[RooflinePoint, ...]
    measured: tuple[MeasuredPoint, ...]  # none where nobody measured this part in this format


def estimate_collective(
    operation: str,
    payload_bytes: float,
    machines: Given,
    constants: Constants,
    rank_count: int | None = None,
    jitter_fraction: float | None = None,
) -> CollectiveEstimate:
    """Seconds of one collective among `rank_count` consecutive accelerators (all of them by default)."""
    name = operation.lower().replace("-", "_").replace("allreduce", "all_reduce")
    if name not in collectives.BY_NAME:
        known = f"write one of: {', '.join(collectives.BY_NAME)}"
        raise UnknownNameError(f"`{operation}` is not a collective", hint=known)
    ranks = machines.accelerator_count if rank_count is None else rank_count
    if not 2 <= ranks <= machines.accelerator_count:
        raise ValueRefusedError(
            f"{ranks:,} ranks out of {machines.accelerator_count:,} accelerators",
            hint="a collective needs 2 ranks or more, and an accelerator for each",
        )
    take = collectives.BY_NAME[name]
    draws, network = draw_factors(constants), machines.cluster.network
    idle = drawn(
        take(network, payload_bytes, ranks),
        take(machines.cluster.scaled(draws).network, payload_bytes, ranks),
    )
    jitter = one(network.jitter_fraction) if jitter_fraction is None else jitter_fraction
    ring_s, formula = ring_law(name, payload_bytes, ranks, machines.cluster)
    wire_bytes = PASSES.get(name, 1.0) * (ranks - 1) / ranks * payload_bytes
    return CollectiveEstimate(
        schema="twofold/estimate-collective/1",
        operation=name,
        payload_bytes=payload_bytes,
        machine=machines.machine,
        rank_count=ranks,
        idle_s=idle.estimate("s"),
        ring_s=ring_s,
        ring_difference_fraction=idle.middle / ring_s - 1,
        formula=formula,
        bus_bytes_per_s=wire_bytes / idle.middle,
        jitter_fraction=jitter,
        tail_s={q: idle.times(slowest_factor(jitter, ranks, p)).estimate("s") for q, p in QUANTILES.items()},
        warnings=machines.warnings,
    )


def ring_law(name: str, payload_bytes: float, ranks: int, cluster: Cluster) -> tuple[float, str]:
    """The textbook time of a collective from latencies and bandwidths alone, and how it is written.

    Formula  ring: passes × [(a−1)·α + (d−1)·α' + (n−1)/n·S / min(B, a·B')], a ranks in each of d domains;
             all-to-all: max((a−1)/n·S / B, (n−a)/n·S / B')
    Why      The ring passes every link; each of a domain's a ranks drives its own network card.
    Units    seconds; B and B' are what links and cards sustain on large messages, S bytes.
    Source   Patarasuk & Yuan 2009; direct exchange.
    Limits   no launch, no slow start, perfect overlap: what an idle network converges to as messages grow.
    """
    network = cluster.network
    inside = min(ranks, network.domain_size)
    domains = -(-ranks // inside)
    in_node = ranks <= network.node_size
    card = one(network.host_bytes_per_s if in_node else network.nic_bytes_per_s)
    far_s = one(network.host_latency_s if in_node else network.nic_latency_s)
    link, near_s = one(network.link_bytes_per_s), one(network.link_latency_s)
    if name == "all_to_all":
        efficiency = one(network.all_to_all_efficiency_fraction)
        near = (inside - 1) / ranks * payload_bytes / (link * efficiency)
        far = (ranks - inside) / ranks * payload_bytes / (card * efficiency)
        inner = f"{inside - 1}/{ranks}·S/{_gb(link * efficiency)}"
        outer = f"{ranks - inside}/{ranks}·S/{_gb(card * efficiency)}"
        return max(near, far), f"max({inner}, {outer})"
    rates = [*([link] if inside > 1 else []), *([inside * card] if domains > 1 else [])]
    waits_s = (inside - 1) * near_s + (domains - 1) * far_s
    once_s = waits_s + (ranks - 1) / ranks * payload_bytes / min(rates)
    passes = PASSES.get(name, 1.0)
    text = f"({waits_s * 1e6:,.0f} µs + {ranks - 1}/{ranks}·S/{_gb(min(rates))})"
    return passes * once_s, f"2·{text}" if passes == 2 else text


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.1f} GB/s"


def slowest_factor(jitter_fraction: float, ranks: int, quantile: float) -> float:
    """How much longer than one undisturbed rank the slowest of `ranks` takes, at a quantile of repetitions.

    Formula  1 + σ·z(q^(1/n))
    Why      The slowest of n independent ranks is below x when all are.
    Source   Order statistics of the normal distribution.
    Limits   no jitter: 1; one rank: its own quantile.
    """
    return 1.0 + jitter_fraction * max(NormalDist().inv_cdf(quantile ** (1.0 / ranks)), 0.0)


def estimate_compute(
    machines: Given,
    duration_s: float,
    mfu_fraction: float,
    spend_usd: float | None = None,
    model: Model | None = None,
) -> ComputeEstimate:
    """FLOPs of a fleet in a time at a utilisation, and the price per accelerator-hour that a spend allows."""
    device, count = machines.cluster.device, machines.accelerator_count
    peak = float(np.max(device.peak_flops_per_s.get("bf16", device.peak_flops_per_s.get("fp16", np.nan))))
    if not np.isfinite(peak):
        hint = "name one that has: `twofold catalog accelerators --where 'bf16_tflops > 0'`"
        raise ValueRefusedError(f"{device.name} has no 16-bit matrix units", hint=hint)
    hours = duration_s / 3600 * count
    flops = peak * count * mfu_fraction * duration_s
    price = machines.machine.price
    return ComputeEstimate(
        schema="twofold/estimate-compute/1",
        machine=machines.machine,
        duration_s=duration_s,
        mfu_fraction=mfu_fraction,
        peak_flops_per_s=peak,
        flops=flops,
        accelerator_h=hours,
        energy_j=device.tdp_w * count * duration_s,
        model=model.name if model else "",
        tokens=flops / (6.0 * model.parameters_active) if model else None,
        spend_usd=spend_usd,
        usd_per_accelerator_h=None if spend_usd is None else spend_usd / hours,
        cost_usd=price.usd_per_accelerator_h.times(hours, "USD") if price else None,
        warnings=machines.warnings,
    )


def estimate_roofline(model: Model, machines: Given, weights_format: str = "bf16") -> RooflineEstimate:
    """Where training, prefill and decode of a model lie under a device's roofline."""
    device, shape = machines.cluster.device, ModelShape.of(model)
    # What a format without matrix units of its own runs in: weights are widened on the fly.
    activation_format = device.default_activation_format(weights_format)
    runs_in = peak_format(device.compute_format(weights_format, activation_format).format)
    if runs_in not in device.peak_flops_per_s:
        runs_in = next(iter(device.peak_flops_per_s))
    peak = float(np.max(device.peak_flops_per_s[runs_in]))
    bandwidth = float(np.max(device.memory_bytes_per_s))
    ridge = float(np.max(device.ridge_flops_per_byte(runs_in)))

    passes = {f"prefill, {count:,} tok": (count, 1) for count in PREFILL_TOKENS}
    passes |= {f"decode, batch {count}": (1, count) for count in DECODE_BATCHES}
    intensities = {f"training, {TRAINING_TOKENS:,} tok": training_flops_per_byte(model, runs_in)}
    for name, (tokens, sequences) in passes.items():
        intensities[name] = pass_flops_per_byte(model, shape, tokens, sequences, weights_format)
    bound = {name: "compute" if each >= ridge else "memory bandwidth" for name, each in intensities.items()}
    return RooflineEstimate(
        schema="twofold/estimate-roofline/1",
        model=model.name,
        accelerator=device.name,
        weights_format=weights_format,
        peak_flops_per_s=peak,
        memory_bytes_per_s=bandwidth,
        ridge_flops_per_byte=ridge,
        ridges={name: float(np.max(device.ridge_flops_per_byte(name))) for name in device.peak_flops_per_s},
        points=tuple(
            RooflinePoint(name, value, min(peak, value * bandwidth), bound[name])
            for name, value in intensities.items()
        ),
        measured=tuple(
            MeasuredPoint(
                f"{product.m:,} × {product.k:,} × {product.n:,}",
                product.flops_per_byte,
                product.flops_per_s,
                product.flops_per_s / min(peak, product.flops_per_byte * bandwidth),
                product.source,
            )
            for product in measured_products(device.name, runs_in)
        ),
    )


def training_flops_per_byte(model: Model, fmt: str) -> float:
    """Intensity of the widest product of a layer over one micro-batch of training."""
    width = model.ffn_hidden or model.moe_ffn_hidden or 2 * model.hidden  # mixers without an FFN widen twice
    # An expert sees its share of the tokens alone.
    alone = model.experts > 0 and not model.ffn_hidden
    tokens = TRAINING_TOKENS * (model.experts_topk / model.experts if alone else 1.0)
    return float(np.max(operators.gemm_flops_per_byte(tokens, width, model.hidden, fmt)))


def pass_flops_per_byte(
    model: Model, shape: ModelShape, tokens: int, sequences: int, weights_format: str
) -> float:
    """Intensity of one pass of the whole model over `tokens` new tokens of each of `sequences`.

    Formula  (2·P·n + attention) / (weights + caches + activations), n = tokens·sequences
    Why      Weights are read once for all tokens of a pass, caches once per sequence, and every layer writes
             and reads its activations. Of the experts those are read that at least one token visits.
    Units    FLOP/B.
    Limits   decode of one sequence: about 2 FLOPs per weight, 1 FLOP/B in 16 bits.
    """
    new = tokens * sequences
    held = CONTEXT_TOKENS if tokens == 1 else 0
    seen = held + tokens / 2
    attention = 4.0 * model.heads * model.head_dim * seen * model.softmax_attention_layers * new
    flops = 2.0 * model.parameters_active * new + attention
    parts = shape.weights_bytes(weights_format)
    experts = float(np.max(parts.experts_bytes))
    touched = 1.0 - (1.0 - model.experts_topk / model.experts) ** new if model.experts else 0.0
    read = float(np.max(parts.total_bytes)) - experts * (1.0 - touched)
    caches = float(np.max(shape.kv_bytes("bf16", float(held + tokens)))) * sequences
    activations = 12.0 * bytes_per_weight("bf16") * model.layers * model.hidden * new
    return flops / (read + caches + activations)
